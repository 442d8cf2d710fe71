# SPDX-License-Identifier: MIT
"""The losses of the papers, as expressions of expressions or arrays whose first axis counts tokens.

A loss of each token, [t], counts by its mean; one of all tokens is a single number. layer.compile_gradients(tokens, loss=...) takes both,
and sums of them.
"""

from __future__ import annotations

from typing import Any

from . import _core
from ._arrays import count, number
from ._core import Expression
from ._expressions import expression


def mse(y: Any, target: Any) -> Expression:
    """[t, o], [t, o] -> [t]: the mean of (y - target)^2 over the outputs of a token."""
    return _core.mse(expression(y), expression(target))


def nmse(y: Any, target: Any) -> Expression:
    """[t, o], [t, o] -> [t]: |y - target|^2 / |target|^2, the normalised error of MxD's Fig. 10 (Oldfield et al. 2025)."""
    return _core.nmse(expression(y), expression(target))


def normalized_error(y: Any, target: Any) -> Expression:
    """[t, o], [t, o] -> [t]: |y - target|^2 / |target|, the loss of MxD's Sec. 3.1, whose divisor has no square."""
    return _core.normalized_error(expression(y), expression(target))


def authors_mse(y: Any, target: Any) -> Expression:
    """[t, o], [t, o] -> [t]: normalized_error / o, the loss in the MxD authors' code."""
    return _core.authors_mse(expression(y), expression(target))


def fvu(y: Any, target: Any) -> Expression:
    """[t, o], [t, o] -> one number: the fraction of variance unexplained.

    It is the sum of |y - target|^2 by that of |target - m|^2, where m [o] is the mean target of the tokens.
    """
    return _core.fvu(expression(y), expression(target))


def uniformity(g1: Any, g2: Any, floor: float = 1e-10) -> Expression:
    """[t, p, s], [t, p, s] -> one number: Monet's uniformity loss (Park et al. 2024, Eq. 16).

    With m1 [p, s] and m2 the means of g1 and g2 over the tokens, it is -(mean log m1 + mean log m2) / 2. As the equation is printed it
    has no mean over tokens; the values of the paper's Table 7 have. It is log s at least, where all are used alike. A mean below `floor`,
    such as that of an expert that no token keeps, counts as `floor`, and has no gradient.
    """
    return _core.uniformity(expression(g1), expression(g2), number(floor, "floor"))


def ambiguity(g1: Any, g2: Any) -> Expression:
    """[t, p, s], [t, p, s] -> [t]: Monet's ambiguity loss (Eq. 17).

    It is 1 less the mean, over heads and both halves, of the greatest probability.
    """
    return _core.ambiguity(expression(g1), expression(g2))


def load_balance(coefficients: Any, scores: Any) -> Expression:
    """[t, n], [t, n] -> one number: n sum_n f_n P_n.

    f_n is the share of the tokens whose coefficient n is not 0, without a gradient, and P_n the mean of the softmax of the scores (Fedus
    et al. 2022, Switch Transformers, Eqs. 4 to 6; AoE, Lv et al. 2025, Eqs. 2 and 6, with the norms as scores). The papers weigh it by
    0.01.
    """
    return _core.load_balance(expression(coefficients), expression(scores))


def router_z(scores: Any) -> Expression:
    """[t, n] -> [t]: (log sum_n exp(score_n))^2, the router z-loss (Zoph et al. 2022, ST-MoE, Eq. 5)."""
    return _core.router_z(expression(scores))


def entropy(scores: Any) -> Expression:
    """[t, n] -> [t]: -sum_n p_n log p_n in nats, where p is the softmax of the scores: AoE's Eq. 8.

    With the weight 1e-4 it keeps the layers of top-p from choosing all experts (AoE, Sec. 4).
    """
    return _core.entropy(expression(scores))


def l1(coefficients: Any, weights: Any = None) -> Expression:
    """[t, n] -> [t]: sum_n |a_n|, or with weights [n] sum_n |a_n| w_n.

    The weights of the MxD authors' code are the norms of the decoder's rows.
    """
    return _core.l1(expression(coefficients), None if weights is None else expression(weights))


def auxk(y: Any, target: Any, units: Any, dead: Any, decoder: Any, k: int) -> Expression:
    """y, target [t, o], units [t, n], dead [n], decoder [n, o] -> [t]: AuxK (Gao et al. 2024, A.2).

    The k greatest of the units that are dead model what y leaves over, and so come back to life: the mean of (e - z D)^2 over the
    outputs, where e = target - y has no gradient and z are the k greatest dead units. Units are those before the selection, and not
    negative; `dead` is 1 for dead units and 0 for the others.
    """
    return _core.auxk(expression(y), expression(target), expression(units), expression(dead), expression(decoder), count(k, "k"))

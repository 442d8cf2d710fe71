# SPDX-License-Identifier: MIT
"""The losses of fmoe.losses for tensors of PyTorch, as one number: the mean over tokens, where those are of each token.

All axes before the last, or before the last two of Monet's probabilities, count tokens. The equations are those of fmoe.losses.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def mse(y: Tensor, target: Tensor) -> Tensor:
    """The mean of (y - target)^2."""
    return functional.mse_loss(y, _same(y, target, "target"))


def nmse(y: Tensor, target: Tensor) -> Tensor:
    """The mean over tokens of |y - target|^2 / |target|^2: the normalised error of MxD's Fig. 10."""
    return (_squares(y - _same(y, target, "target")) / _squares(target)).mean()


def normalized_error(y: Tensor, target: Tensor) -> Tensor:
    """The mean over tokens of |y - target|^2 / |target|: the loss of MxD's Sec. 3.1."""
    return (_squares(y - _same(y, target, "target")) / _squares(target).sqrt()).mean()


def authors_mse(y: Tensor, target: Tensor) -> Tensor:
    """normalized_error by the number of outputs: the loss in the MxD authors' code."""
    return normalized_error(y, target) / y.shape[-1]


def fvu(y: Tensor, target: Tensor) -> Tensor:
    """The fraction of variance unexplained: the sum of |y - target|^2 by that of |target - mean target|^2."""
    rows = target.reshape(-1, target.shape[-1])
    return _squares(y - _same(y, target, "target")).sum() / _squares(rows - rows.mean(0)).sum()


def uniformity(g1: Tensor, g2: Tensor, floor: float = 1e-10) -> Tensor:
    """Monet's uniformity loss (Eq. 16) of [..., head, half] twice: of probabilities that are averaged over the tokens first.

    A mean below `floor` counts as `floor`, and has no gradient.
    """
    if not 0 < floor < 1:
        raise ValueError(f"the floor is {floor}, and a number between 0 and 1 is expected")
    _routing(g1, _same(g1, g2, "g2"))
    means = [g.reshape(-1, *g.shape[-2:]).mean(0) for g in (g1, g2)]
    first, second = (m.clamp_min(floor).log().mean() for m in means)
    return -(first + second) / 2


def ambiguity(g1: Tensor, g2: Tensor) -> Tensor:
    """Monet's ambiguity loss (Eq. 17) of [..., head, half] twice: 1 less the mean of the greatest probabilities."""
    _routing(g1, _same(g1, g2, "g2"))
    return 1 - (g1.max(-1).values.mean() + g2.max(-1).values.mean()) / 2


def load_balance(coefficients: Tensor, scores: Tensor) -> Tensor:
    """n sum_n f_n P_n of coefficients and scores [..., expert]: the load-balancing loss of Switch Transformers and of AoE (Eqs. 2, 6)."""
    experts = _same(coefficients, scores, "the scores").shape[-1]
    f = (coefficients.detach() != 0).reshape(-1, experts).to(scores.dtype).mean(0)
    return experts * (f * scores.softmax(-1).reshape(-1, experts).mean(0)).sum()


def router_z(scores: Tensor) -> Tensor:
    """The mean over tokens of (log sum_n exp(score_n))^2: the router z-loss of ST-MoE (Eq. 5)."""
    return scores.logsumexp(-1).square().mean()


def entropy(scores: Tensor) -> Tensor:
    """The mean over tokens of the entropy, in nats, of the softmax of the scores: AoE's Eq. 8."""
    p = scores.softmax(-1)
    return -torch.xlogy(p, p).sum(-1).mean()


def l1(coefficients: Tensor, weights: Tensor | None = None) -> Tensor:
    """The mean over tokens of sum_n |a_n|, or with weights [n] of sum_n |a_n| w_n."""
    a = coefficients.abs()
    return (a if weights is None else a * weights).sum(-1).mean()


def auxk(y: Tensor, target: Tensor, units: Tensor, dead: Tensor, decoder: Tensor, k: int) -> Tensor:
    """AuxK (Gao et al. 2024, A.2): the k greatest of the dead units model what y leaves over.

    It is the mean of (e - z D)^2, where e = target - y has no gradient. `units` [..., n] are those before the selection, and not
    negative, `dead` [n] is 1 or True for dead units, and the decoder D is [n, o].
    """
    left = (_same(y, target, "target") - y).detach()
    places = dead.to(torch.bool).nonzero()[:, 0]
    kept = units.reshape(-1, units.shape[-1])[:, places].topk(min(k, len(places)), -1)
    if kept.values.shape[-1] == 0:
        return (left.square() + 0 * kept.values.sum()).mean()
    made = functional.embedding_bag(places[kept.indices], decoder, per_sample_weights=kept.values, mode="sum")
    return functional.mse_loss(made, left.reshape(made.shape))


def _same(a: Tensor, b: Tensor, name: str) -> Tensor:
    if a.shape != b.shape:
        raise ValueError(f"{name} is {list(b.shape)} and {list(a.shape)} is expected")
    return b


def _routing(g1: Tensor, g2: Tensor) -> None:
    if g1.dim() < 3:
        raise ValueError(f"g1 and g2 are [..., head, half], and these have {g1.dim()} axes")


def _squares(rows: Tensor) -> Tensor:
    return rows.square().sum(-1)

# SPDX-License-Identifier: MIT
"""Lazy expressions. Operands are expressions or arrays; nothing is computed until evaluate or compile.

Operands of different rank are aligned at their last axes, and the one with fewer axes is repeated along the leading axes of the
other. Aligned extents must be equal: an extent of 1 is not stretched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import _core
from ._arrays import count, count_or_none, items, number, pair, shown, text
from ._core import Expression


def expression(x: Any) -> Expression:
    return x if isinstance(x, Expression) else Expression(x)


def parameter(array: Any) -> Expression:
    """An array that belongs to a layer, whose cost and plan differ from those of any array. The elements stay where they are.

    `evaluate`, `compile` and `refresh` read them as they are then.
    """
    return _core.constant(array, True)


def input(index: int = 0, ndim: int = 2) -> Expression:
    """Stands for an input of a compiled expression. Its first axis counts tokens; its other lengths follow from what it meets."""
    return _core.input(count(index, "index"), count(ndim, "ndim"))


def einsum(subscripts: str, *operands: Any) -> Expression:
    """Multiplies all operands and sums over every label that the result does not name: einsum("ti,io->to", x, w) is x w.

    It takes any number of operands; the planner finds the order, also across several einsums. The subscripts are those of
    numpy, but each axis has a letter, and an axis of extent 1 is not repeated.
    """
    if not isinstance(subscripts, str):
        raise TypeError(f'the first argument of einsum is a text such as "ti,io->to", and not {shown(subscripts)}')
    return _core.einsum(subscripts, [expression(x) for x in operands])


def _no_product(e: Any, other: Any) -> Any:
    raise TypeError('expressions have no @: fmoe.einsum("ti,io->to", x, w) is x @ w')


for _name in ("__matmul__", "__rmatmul__"):
    setattr(Expression, _name, _no_product)


def _pointwise(name: str, text: str) -> Callable[[Any], Expression]:
    def function(x: Any) -> Expression:
        return _core.apply(name, expression(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


relu = _pointwise("relu", "max(x, 0)")
gelu = _pointwise("gelu", "x Phi(x), the exact form with erf")
gelu_tanh = _pointwise("gelu_tanh", "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))")
silu = _pointwise("silu", "x sigmoid(x)")
sigmoid = _pointwise("sigmoid", "1 / (1 + exp(-x))")
squared_relu = _pointwise("squared_relu", "max(x, 0)^2")
exp = _pointwise("exp", "e^x")
sqrt = _pointwise("sqrt", "The square root.")
tanh = _pointwise("tanh", "The hyperbolic tangent.")
log = _pointwise("log", "The natural logarithm.")
abs = _pointwise("abs", "|x|")
inverse_sqrt = _pointwise("inverse_sqrt", "1 / sqrt(x)")


def threshold(x: Any, bound: float) -> Expression:
    """x where x >= bound, else 0; NaN stays NaN."""
    return _core.apply("threshold", expression(x), number(bound, "bound"))


def max(a: Any, b: Any) -> Expression:
    """The greater one, element by element; one of the two may be a number. NaN stays NaN."""
    if isinstance(b, (int, float)):
        return _core.apply("at_least", expression(a), b)
    return max(b, a) if isinstance(a, (int, float)) else _core.maximum(expression(a), expression(b))


def min(a: Any, b: Any) -> Expression:
    """The smaller one, element by element; one of the two may be a number. NaN stays NaN."""
    if isinstance(b, (int, float)):
        return _core.apply("at_most", expression(a), b)
    return min(b, a) if isinstance(a, (int, float)) else _core.minimum(expression(a), expression(b))


def clamp(x: Any, least: float, most: float) -> Expression:
    """min(max(x, least), most)"""
    return min(max(x, least), most)


def where(condition: Any, a: Any, b: Any) -> Expression:
    """a where the condition is above 0, else b."""
    return _core.where(expression(condition), expression(a), expression(b))


def softmax(scores: Any) -> Expression:
    """exp(x - max x) / sum for each row, the last axis."""
    return _core.map_rows("softmax", expression(scores))


def entmax(scores: Any, alpha: float = 1.5) -> Expression:
    """[(alpha - 1) x - tau]_+^(1 / (alpha - 1)) for each row, where tau makes its sum 1. alpha 1 is softmax, 2 sparsemax."""
    return _core.map_rows("entmax", expression(scores), number(alpha, "alpha"))


def bounded_softmax(scores: Any, bound: Any) -> Expression:
    """The softmax over the entries of each row that reach min(max of the row, its bound), and 0 for the others."""
    return _core.bounded_softmax(expression(scores), expression(bound))


def layer_norm(x: Any, epsilon: float = 1e-5) -> Expression:
    """(x - mean) / sqrt(variance + epsilon) for each row, with the biased variance."""
    return _core.map_rows("layer_norm", expression(x), number(epsilon, "epsilon"))


def rms_norm(x: Any, epsilon: float = 1e-6) -> Expression:
    """x / sqrt(mean(x^2) + epsilon) for each row, without a weight."""
    return _core.map_rows("rms_norm", expression(x), number(epsilon, "epsilon"))


def clamped_rms_norm(x: Any, epsilon: float = 1e-12) -> Expression:
    """x sqrt(n) / max(|x|_2, epsilon) for each row of n entries."""
    return _core.map_rows("clamped_rms_norm", expression(x), number(epsilon, "epsilon"))


def norm(which: str, x: Any) -> Expression:
    """One number of each row: its "l1", "l2" or "max" norm, or its "mean"."""
    return _core.norm(text(which, "which"), expression(x))


def mean(x: Any) -> Expression:
    """The mean of each row."""
    return norm("mean", x)


def repeat(x: Any, n: int) -> Expression:
    """[...] -> [..., n]: a row of n equal numbers for each number."""
    return _core.repeat(expression(x), count(n, "n"))


def best_groups(scores: Any, groups: int, active: int, score: str = "sum_of_two") -> Expression:
    """Cuts each row into groups of neighbours; those beside the `active` best become -inf.

    `score` compares groups: by the "sum_of_two" greatest entries, or by the "greatest" one.
    """
    return _core.best_groups(expression(scores), count(groups, "groups"), count(active, "active"), text(score, "score"))


def group_max(scores: Any, groups: int) -> Expression:
    """Cuts each row into groups of neighbours and keeps the greatest entry of each; the others become -inf."""
    return _core.map_rows("group_max", expression(scores), float(count(groups, "groups")))


def sparse_mixer(scores: Any, jitter: float = 0.01) -> Expression:
    """Weighs the two greatest entries of each row; the others become 0. The weights need not sum to 1.

    An entry s stands beside the greatest one m unless (m - s) / max(|s|, m) > 2 jitter, and the weight of m is its softmax over those
    that do. The second one is weighed in the same way without m. This is the router of Phi-3.5-MoE (SparseMixer-v2).
    """
    return _core.map_rows("sparse_mixer", expression(scores), number(jitter, "jitter"))


def top_k(scores: Any, k: int | None, weights: str = "score", *, ranked: Any = None) -> Expression:
    """Keeps the k largest scores of each row, of equal ones the lower index, and makes the rest zero; None keeps all.

    A contraction over that axis then visits k entries instead of all. `weights` says what becomes of the kept scores: "score",
    "softmax" of the kept ones, "softmax_of_all", "normalized" by their sum, "one" or "relu". With `ranked`, numbers of the scores'
    shape, these say which entries are the largest.
    """
    k, weights = count_or_none(k, "k"), text(weights, "weights")
    if ranked is None:
        return _core.top_k(expression(scores), k, weights)
    return _core.top_k_by(expression(scores), expression(ranked), k, weights)


def top_p(scores: Any, mass: float, weights: str) -> Expression:
    """Keeps the fewest of the largest scores of each row whose softmax over the whole row sums to `mass` or more."""
    return _core.top_p(expression(scores), number(mass, "mass"), text(weights, "weights"))


def nonzeros(scores: Any) -> Expression:
    """The scores themselves: a contraction over their last axis then visits only those that are not 0."""
    return _core.nonzeros(expression(scores))


def jump_relu(scores: Any, thresholds: Any) -> Expression:
    """The scores that are above their thresholds, a number for each column, and 0 elsewhere: JumpReLU (Rajamanoharan et al. 2024).

    A contraction over the last axis visits the others alone, and behind relu of a large product most scores are not made in full. NaN
    stays. Gradients hold the thresholds constant.
    """
    return _core.jump_relu(expression(scores), expression(thresholds))


def expert_choice(scores: Any, ranked: Any, weights: str, capacity: int | None = None, factor: float = 2) -> Expression:
    """[t, n]: each expert keeps the `capacity` tokens that `ranked` has greatest in its column; by default T factor / n."""
    most = count_or_none(capacity, "capacity")
    return _core.expert_choice(
        expression(scores), expression(ranked), text(weights, "weights"), most, number(factor, "factor")
    )


def product_top_k(scores: Any, k: int, each: int, weights: str = "softmax") -> Expression:
    """Product keys: of two lists of scores, [..., 2, s] -> [..., s^2], the k largest of the sums of the `each` largest."""
    return _core.product_top_k(expression(scores), count(k, "k"), count(each, "each"), text(weights, "weights"))


class Kept(NamedTuple):
    values: Expression
    indices: Expression


def kept(selection: Any) -> Kept:
    """The entries that top_k or product_top_k keeps, [..., n] -> [..., K], by ascending index; missing ones are 0 and -1."""
    e = expression(selection)
    return Kept(_core.kept_values(e), _core.kept_indices(e))


def concat(parts: list[Any], axis: int) -> Expression:
    """Joins expressions along an axis."""
    return _core.concat([expression(p) for p in items(parts, "parts")], count(axis, "axis"))


def append_one(x: Any) -> Expression:
    """x with a 1 after the last entry of each row: a product along that axis adds the last slice of its weight as a bias."""
    return _core.append_one(expression(x))


def all_except(pairs: list[tuple[int, int]], rows: int, columns: int) -> Expression:
    """[rows, columns]: 0 at the pairs (row, column), 1 elsewhere. It can only be an operand of einsum.

    Only the list is stored, and a sum over it costs as much as the rows or columns with a pair.
    """
    listed = [pair(p, "a pair") for p in items(pairs, "pairs")]
    return _core.all_except(listed, count(rows, "rows"), count(columns, "columns"))


def sized(x: Any, shape: list[int | None]) -> Expression:
    """States lengths that nothing else in an expression tells; None may be any."""
    return _core.sized(expression(x), [count_or_none(n, "a length of shape") for n in items(shape, "shape")])


def gradient(y: Any, of: Any, dy: Any = None) -> Expression:
    """The gradient of sum(y dy) with respect to a parameter, an array or a part of y: an expression of its shape.

    Of one number, such as a loss of all tokens, dy is 1 by default.

    Raises DomainError, when it is computed, if y does not depend on it. An array whose rows do not follow each other, as a transposed
    one, is another array at each time that it is named: name one fmoe.parameter(array) twice.
    """
    return _core.gradient(expression(y), expression(of), None if dy is None else expression(dy))


def stop_gradient(x: Any) -> Expression:
    """x, which gradients hold constant."""
    return _core.stop_gradient(expression(x))

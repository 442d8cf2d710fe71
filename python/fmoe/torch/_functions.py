# SPDX-License-Identifier: MIT
"""Expressions as functions of tensors of PyTorch, with gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._arrays import readable, shown
from .._core import DomainError, Expression
from .._executables import evaluate
from .._expressions import einsum, gradient, parameter
from ._operators import expects_reverse_mode

_Maker = Callable[..., Any]


def function(f: _Maker) -> Callable[..., Any]:
    """The function of tensors that computes what f makes of expressions: one, or a tuple of them.

    >>> @fmoe.torch.function
    ... def mixture(x, router, experts):
    ...     return fmoe.einsum("tn,ti,nio->to", fmoe.top_k(fmoe.einsum("ti,in->tn", x, router), 2, "softmax"), x, experts)
    >>> y = mixture(x, router, experts)

    Each tensor has a gradient, of which backward plans both passes; a call plans anew. float64 is computed in float64, all else in
    float32, and results have the type to which PyTorch promotes the tensors. Second derivatives raise RuntimeError, and so do forward
    mode, torch.func.grad and vmap.
    """
    if not callable(f):
        raise TypeError(f"fmoe.torch.function takes a function of expressions, and not {shown(f)}")

    @functools.wraps(f)
    def call(*tensors: Tensor) -> Any:
        for i, x in enumerate(tensors):
            if not isinstance(x, Tensor):
                raise TypeError(f"argument {i} is of type {type(x).__name__}, and a tensor of PyTorch is expected")
        if tensors:
            expects_reverse_mode(tensors[0], tensors[1:])
        is_one, *results = _Evaluated.apply(f, *tensors)
        return results[0] if is_one else tuple(results)

    made: Callable[..., Any] = torch.compiler.disable(call)  # type: ignore[no-untyped-call]
    return made


class Function(nn.Module):
    """A module of an expression: module(x) is f(x, **parameters), where f makes an expression of expressions.

    >>> module = fmoe.torch.Function(lambda x, w: fmoe.relu(fmoe.einsum("ti,io->to", x, w)), w=torch.randn(4, 3))
    """

    def __init__(self, f: _Maker, **parameters: Tensor) -> None:
        super().__init__()
        self.f = f
        self._names = list(parameters)
        for name, value in parameters.items():
            self.register_parameter(name, value if isinstance(value, nn.Parameter) else nn.Parameter(value))

    def forward(self, *inputs: Tensor) -> Any:
        own = [getattr(self, name) for name in self._names]

        def named(*operands: Expression) -> Any:
            return self.f(*operands[: len(inputs)], **dict(zip(self._names, operands[len(inputs) :], strict=True)))

        return function(named)(*inputs, *own)


def _results(f: _Maker, operands: Sequence[Expression]) -> tuple[list[Expression], bool]:
    made = f(*operands)
    is_one = isinstance(made, Expression)
    results = [made] if is_one else list(made) if isinstance(made, (tuple, list)) else []
    if not results or not all(isinstance(y, Expression) for y in results):
        raise TypeError(f"the function returns {shown(made)}, and an expression or a tuple of them is expected")
    return results, is_one


class _Evaluated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, f: _Maker, *tensors: Tensor) -> Any:
        ctx.f = f
        ctx.save_for_backward(*tensors)
        results, is_one = _results(f, _operands(tensors))
        made = evaluate(results, like=torch.empty(0))
        types = [x.dtype for x in tensors]
        type = functools.reduce(torch.promote_types, types) if types else torch.float32
        return is_one, *(y.to(type) for y in made)

    @staticmethod
    def backward(ctx: Any, _: None, *dy: Tensor) -> Any:
        return None, *_Backward.apply(ctx.f, ctx.needs_input_grad[1:], len(dy), *dy, *ctx.saved_tensors)


class _Backward(torch.autograd.Function):
    """The gradients of _Evaluated, which have none."""

    @staticmethod
    def forward(ctx: Any, f: _Maker, needs: Sequence[bool], results: int, *tensors: Tensor) -> Any:
        dy, saved = tensors[:results], tensors[results:]
        operands = _operands(saved)
        wanted = [x for x, is_wanted in zip(operands, needs, strict=True) if is_wanted]
        made = iter(_gradients(_results(f, operands)[0], [readable(d.detach()) for d in dy], wanted))
        gradients = [next(made) if is_wanted else None for is_wanted in needs]
        return tuple(None if g is None else g.to(x.dtype) for g, x in zip(gradients, saved, strict=True))

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError("fmoe has no second derivatives in PyTorch: fmoe.gradient of a gradient has them")


def _operands(tensors: Sequence[Tensor]) -> list[Expression]:
    return [parameter(readable(x.detach())) for x in tensors]


def _gradients(results: Sequence[Expression], dy: Sequence[Tensor], wanted: Sequence[Expression]) -> list[Tensor | None]:
    """Those of the sum of all results times dy, and None where no result depends on an operand."""
    if len(results) == 1:
        made = [gradient(results[0], x, dy[0]) for x in wanted]
    else:
        labels = ["abcdefgh"[: d.dim()] for d in dy]
        total = functools.reduce(
            lambda a, b: a + b, (einsum(f"{s},{s}->", y, d) for s, y, d in zip(labels, results, dy, strict=True))
        )
        made = [gradient(total, x) for x in wanted]
    try:
        return list(evaluate(tuple(made), like=torch.empty(0)))
    except DomainError as e:
        if "does not depend on" not in str(e):
            raise
        return [None] if len(wanted) == 1 else [_gradients(results, dy, [x])[0] for x in wanted]

# SPDX-License-Identifier: MIT
"""Both passes of a layer, compiled for many calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._arrays import as_kind_of, count_or_none, empty, exported, in_file, readable, writable
from ._core import CompiledGradients as Core
from ._core import Explanation


class Gradients(NamedTuple):
    """y, the gradient dx of a loss, or of sum(y dy), with respect to x, and those with respect to the parameters, by their names in files.

    For several results y is a tuple, and the gradients are those of the sum over all of them. Where the step takes a routing, dx is the
    tuple (dx, dg1, dg2).
    """

    y: Any
    dx: Any
    parameters: dict[str, Any]


class CompiledGradients:
    """The forward and the backward pass of a layer, for calls of up to `tokens` rows. Calls of several threads wait for each other."""

    __slots__ = ("_core", "_is_one", "_lock", "_parameters", "_ranks", "_shapes", "_takes_dy", "__weakref__")

    def __init__(self, core: Core, is_one: bool = True, takes_dy: bool = True) -> None:
        self._core = core
        self._is_one = is_one
        self._takes_dy = takes_dy  # and no loss or slopes
        self._lock = threading.Lock()
        self._ranks = [len(core.input_shape(i)) for i in range(core.arguments + core.given)]
        self._shapes = [tuple(core.output_shape(i)) for i in range(core.results)]
        self._parameters = [
            (p.name, p.value.shape, p.file_shape, p.file_axes) for p in core.parameters
        ]

    def __reduce__(self) -> Any:
        raise TypeError("what is compiled cannot be copied or pickled: pickle the layer, and compile it again")

    @property
    def loss(self) -> float:
        """The loss of the last call, the mean of those of its tokens. Raises TypeError where the step takes dy, or was given a slope."""
        if not self._core.has_loss:
            raise TypeError("the step has no loss: pass one to compile_gradients, as in loss=fmoe.losses.mse")
        return self._core.loss

    def __call__(self, *arrays: Any) -> Gradients:
        """Computes both passes of x and dy. Leading axes of all arrays count tokens. Results are of the kind of x.

        dy has the shape of y; for several results it is a tuple of one for each. With a loss, its target stands in place of dy, or what
        the loss names as fmoe.input(1), fmoe.input(2) and so on. A routing, g1 and g2, stands behind x.
        """
        given = list(arrays)
        if self._takes_dy and not self._is_one:
            dy = given.pop() if given else None
            if not isinstance(dy, (tuple, list)) or len(dy) != len(self._shapes):
                raise TypeError(f"the step has {len(self._shapes)} results: pass a tuple with a dy for each")
            given += dy
        if len(given) != len(self._ranks):
            raise TypeError(f"the step takes {len(self._ranks)} arrays, and not {len(given)}")
        n = self._core.arguments
        y, dx, made = self.in_order(given[:n], given[n:])
        named = {name: in_file(g, shape, axes) for (name, _, shape, axes), g in zip(self._parameters, made)}
        return Gradients(y[0] if self._is_one else tuple(y), dx[0] if n == 1 else tuple(dx), named)

    def in_order(self, arguments: Sequence[Any], others: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """The same as lists: the results, the gradients of the arguments, and those of the parameters as the layer has them, in its order.

        Arguments are x and a routing; others are dy for each result, or what the loss alone takes.
        """
        arguments, given = [readable(a) for a in arguments], [readable(a) for a in others]
        x = arguments[0]
        tokens = tuple(x.shape[:-1])
        y = [empty(x, tokens + shape, False) for shape in self._shapes]
        dx = [empty(x, tuple(a.shape), False) for a in arguments]
        made = [empty(x, shape, False) for _, shape, _, _ in self._parameters]
        ranks = [*self._ranks, *map(len, self._shapes), *self._ranks[: len(arguments)]]
        rows = [a.reshape(-1, *tuple(a.shape)[a.ndim - rank :]) for a, rank in zip((*arguments, *given, *y, *dx), ranks)]
        read = len(arguments) + len(given)
        with self._lock:
            self._core.run([exported(a) for a in rows[:read]], [writable(a) for a in (*rows[read:], *made)])
        return [as_kind_of(x, r) for r in y], [as_kind_of(x, d) for d in dx], [as_kind_of(x, g) for g in made]

    def keep(self, k: int | None) -> None:
        """From now on each top_k keeps k entries, at most as many as it was compiled for; None keeps all of these."""
        self._core.keep(count_or_none(k, "k"))

    def refresh(self) -> None:
        """Reads the weights again, after they were written. No call may run at the same time."""
        self._core.refresh()

    def explain(self) -> Explanation:
        """The plan of both passes for the tokens that go through them at a time."""
        return self._core.explain()

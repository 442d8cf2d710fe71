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

    For several results y is a tuple, and the gradients are those of the sum over all of them.
    """

    y: Any
    dx: Any
    parameters: dict[str, Any]


class CompiledGradients:
    """The forward and the backward pass of a layer, for calls of up to `tokens` rows. Calls of several threads wait for each other."""

    __slots__ = ("_core", "_is_one", "_lock", "_parameters", "_ranks", "_shapes", "_takes_slopes", "__weakref__")

    def __init__(self, core: Core, is_one: bool = True, takes_slopes: bool = False) -> None:
        self._core = core
        self._is_one = is_one
        self._takes_slopes = takes_slopes  # a loss, or slopes of one: a call takes no dy
        self._ranks = core.given_ranks
        self._lock = threading.Lock()
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

    def __call__(self, x: Any, *given: Any) -> Gradients:
        """Computes both passes. Leading axes of x and of the other arrays count tokens. Results are of the kind of x.

        Behind x it takes the target of a loss, or what the loss names as fmoe.input(1), fmoe.input(2) and so on. Without a loss that is
        dy, which has the shape of y; for several results it is a tuple of one for each.
        """
        if not self._takes_slopes and not self._is_one:
            if len(given) != 1 or not isinstance(given[0], (tuple, list)) or len(given[0]) != len(self._shapes):
                raise TypeError(f"the step has {len(self._shapes)} results: pass a tuple with a dy for each")
            given = tuple(given[0])
        if len(given) != len(self._ranks):
            several = f"{len(self._ranks)} array{'s' * (len(self._ranks) != 1)}"
            raise TypeError(f"the step takes x and {several} behind it, and not {len(given)}")
        y, dx, made = self.in_order(x, given)
        named = {name: in_file(g, shape, axes) for (name, _, shape, axes), g in zip(self._parameters, made)}
        return Gradients(y[0] if self._is_one else tuple(y), dx, named)

    def in_order(self, x: Any, behind: Sequence[Any]) -> tuple[list[Any], Any, list[Any]]:
        """The same with a list of the results, and the gradients as the layer has them, in the order of its parameters."""
        x, given = readable(x), [readable(a) for a in behind]
        tokens = tuple(x.shape[:-1])
        y = [empty(x, tokens + shape, False) for shape in self._shapes]
        dx = empty(x, tuple(x.shape), False)
        made = [empty(x, shape, False) for _, shape, _, _ in self._parameters]
        ranks = [1, *self._ranks, *map(len, self._shapes), 1]
        rows = [a.reshape(-1, *tuple(a.shape)[a.ndim - rank :]) for a, rank in zip((x, *given, *y, dx), ranks)]
        read = 1 + len(given)
        with self._lock:
            self._core.run([exported(a) for a in rows[:read]], [writable(a) for a in (*rows[read:], *made)])
        return [as_kind_of(x, r) for r in y], as_kind_of(x, dx), [as_kind_of(x, g) for g in made]

    def keep(self, k: int | None) -> None:
        """From now on each top_k keeps k entries, at most as many as it was compiled for; None keeps all of these."""
        self._core.keep(count_or_none(k, "k"))

    def refresh(self) -> None:
        """Reads the weights again, after they were written. No call may run at the same time."""
        self._core.refresh()

    def explain(self) -> Explanation:
        """The plan of both passes for the tokens that go through them at a time."""
        return self._core.explain()

# SPDX-License-Identifier: MIT
"""Both passes of a layer, compiled for many calls."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from ._arrays import as_kind_of, count_or_none, empty, exported, in_file, readable, writable
from ._core import CompiledGradients as Core
from ._core import Explanation


class Gradients(NamedTuple):
    """y, the gradient dx of sum(y dy) with respect to x, and those with respect to the parameters, by their names in files."""

    y: Any
    dx: Any
    parameters: dict[str, Any]


class CompiledGradients:
    """The forward and the backward pass of a layer, for calls of up to `tokens` rows. Calls of several threads wait for each other."""

    __slots__ = ("_core", "_lock", "_parameters", "__weakref__")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._parameters = [
            (p.name, p.value.shape, p.file_shape, p.file_axes) for p in core.parameters
        ]

    def __reduce__(self) -> Any:
        raise TypeError("what is compiled cannot be copied or pickled: pickle the layer, and compile it again")

    def __call__(self, x: Any, dy: Any) -> Gradients:
        """Computes both passes. Leading axes of x and dy count tokens. Results are of the kind of x."""
        y, dx, made = self.in_order(x, dy)
        named = {name: in_file(g, shape, axes) for (name, _, shape, axes), g in zip(self._parameters, made)}
        return Gradients(y, dx, named)

    def in_order(self, x: Any, dy: Any) -> tuple[Any, Any, list[Any]]:
        """The same with the gradients as the layer has them, in the order of its parameters."""
        x, dy = readable(x), readable(dy)
        tokens = tuple(x.shape[:-1])
        y = empty(x, tokens + (self._core.outputs,), False)
        dx = empty(x, tuple(x.shape), False)
        made = [empty(x, shape, False) for _, shape, _, _ in self._parameters]
        rows = [a.reshape(-1, a.shape[-1]) for a in (x, dy, y, dx)]
        with self._lock:
            self._core.run([exported(a) for a in rows[:2]], [writable(a) for a in (*rows[2:], *made)])
        return as_kind_of(x, y), as_kind_of(x, dx), [as_kind_of(x, g) for g in made]

    def keep(self, k: int | None) -> None:
        """From now on each top_k keeps k entries, at most as many as it was compiled for; None keeps all of these."""
        self._core.keep(count_or_none(k, "k"))

    def refresh(self) -> None:
        """Reads the weights again, after they were written. No call may run at the same time."""
        self._core.refresh()

    def explain(self) -> Explanation:
        """The plan of both passes for the tokens that go through them at a time."""
        return self._core.explain()

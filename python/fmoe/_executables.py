# SPDX-License-Identifier: MIT
"""Expressions are computed once, or compiled for many calls."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import numpy

from . import _core
from ._arrays import as_kind_of, count, count_or_none, empty, exported, flag, readable, writable
from ._core import Cost, DomainError, Explanation, Expression
from ._expressions import expression


class Executable:
    """Expressions that are planned and ready for calls of up to `tokens` rows, from any number of threads."""

    __slots__ = ("_core", "_is_one", "_inputs", "_ranks", "_rows", "_is_double", "__weakref__")

    def __init__(self, core: _core.Executable, is_one: bool) -> None:
        if not isinstance(core, _core.Executable):
            raise TypeError("fmoe.compile(y, tokens) and layer.compile(tokens) make executables")
        self._core = core
        self._is_one = is_one
        self._inputs = core.inputs
        self._ranks = [len(core.input_shape(i)) for i in range(core.inputs)]
        self._rows = [(tuple(core.output_shape(i)), core.has_tokens(i)) for i in range(core.outputs)]
        self._is_double = core.is_double

    def __reduce__(self) -> Any:
        raise TypeError("what is compiled cannot be copied or pickled: pickle the layer, and compile it again")

    @property
    def tokens(self) -> int:
        """The most rows of a call."""
        return self._core.tokens

    def input_shape(self, i: int = 0) -> tuple[int, ...]:
        """The shape of an input without the token axes."""
        return tuple(self._core.input_shape(_one_of(i, self._inputs, "input")))

    def output_shape(self, i: int = 0) -> tuple[int, ...]:
        """The shape of a result without the token axes."""
        return tuple(self._core.output_shape(_one_of(i, len(self._rows), "result")))

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Computes the results: an array, or a tuple of them for several. Leading axes of an input beyond a row's count tokens.

        Arrays are read and written where they lie. Results are of the kind of the first input, or are written to `out`, an array
        or a tuple of them.
        """
        if len(inputs) != self._inputs:
            raise TypeError(f"the executable takes {self._inputs} input{'s' * (self._inputs != 1)}, and not {len(inputs)}")
        arrays = [readable(x) for x in inputs]
        given = [exported(x) for x in arrays]
        if out is not None:
            outputs = list(out) if isinstance(out, (tuple, list)) else [out]
            self._core.run(given, [writable(y) for y in outputs])
        else:
            first = arrays[0] if arrays else None
            tokens = () if first is None else tuple(first.shape)[: first.ndim - self._ranks[0]]
            outputs = [empty(first, tokens + row if has else row, self._is_double) for row, has in self._rows]
            self._core.run(given, [exported(y) for y in outputs])
            if not isinstance(first, numpy.ndarray):
                outputs = [as_kind_of(first, y) for y in outputs]
        return outputs[0] if self._is_one else tuple(outputs)

    def keep(self, k: int | None) -> None:
        """From now on each top_k keeps k entries, at most as many as it was compiled for; None keeps all of these."""
        self._core.keep(count_or_none(k, "k"))

    def refresh(self) -> None:
        """Reads the weights again, after they were written. No call may run at the same time."""
        self._core.refresh()


def _one_of(i: Any, number: int, what: str) -> int:
    if count(i, "i") >= number:
        raise DomainError(f"i is {i}, and the executable has {number} {what}{'s' * (number != 1)}, counted from 0")
    return count(i, "i")


def _results(results: Any) -> tuple[list[Expression], bool]:
    is_one = not isinstance(results, (tuple, list))
    return [expression(e) for e in ([results] if is_one else results)], is_one


def checked(options: dict[str, Any], *known: str) -> dict[str, Any]:
    """Returns the options of a function that has these. Raises TypeError for another one, and for what is no value of it."""
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"there is no option {name!r}: {', '.join(known[:-1])} and {known[-1]} are options")
        if name in ("threads", "callers"):
            options[name] = count_or_none(value, name)
        else:
            options[name] = flag(value, name)
    return options


def compile(results: Any, tokens: int, **options: Any) -> Executable:
    """Plans an expression, or several, for calls of up to `tokens` rows of their inputs, and packs the weights.

    Options: threads and callers (None: as many as there are), naive (contract parameters first), screen, tune (measure the most
    promising plans), bf16_products (products with weights of bf16 round their rows to bf16, too: faster with AVX512_BF16),
    int8_products (products with weights of q8 round their rows to 8 bits, as ggml does: faster with VNNI) and reference (the plain
    interpreter in double instead of the CPU's kernels).
    """
    expressions, is_one = _results(results)
    known = checked(options, "threads", "callers", "naive", "screen", "tune", "bf16_products", "int8_products", "reference")
    return Executable(_core.compile(expressions, count(tokens, "tokens"), **known), is_one)


def evaluate(results: Any, *, like: Any = None, **options: Any) -> Any:
    """The value of an expression without inputs, or of several, whose common parts are computed once.

    The result is a numpy array, or an array of the kind of `like`.
    """
    expressions, is_one = _results(results)
    known = checked(options, "threads", "naive", "screen", "bf16_products", "int8_products", "reference")
    values = [as_kind_of(like, v) for v in _core.evaluate(expressions, **known)]
    return values[0] if is_one else tuple(values)


def explain(results: Any, tokens: int | None = None, **options: Any) -> Explanation:
    """The plan of expressions: steps with predicted times, costs and memory. Its str is text; notebooks draw it."""
    known = checked(options, "threads", "naive", "screen", "bf16_products", "int8_products")
    return _core.explain(_results(results)[0], count_or_none(tokens, "tokens"), **known)


def cost(e: Any, tokens: int | None = None) -> Cost:
    """The cost of an expression, factorized and naive."""
    return _core.cost(expression(e), count_or_none(tokens, "tokens"))


def _drawing(explanation: Explanation) -> str | None:
    """The plan as SVG, if Graphviz is installed."""
    dot = shutil.which("dot")
    if dot is None:
        return None
    return subprocess.run([dot, "-Tsvg"], input=explanation.dot, capture_output=True, text=True, check=True).stdout


Explanation._repr_svg_ = _drawing  # type: ignore[attr-defined]

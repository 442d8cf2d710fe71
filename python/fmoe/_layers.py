# SPDX-License-Identifier: MIT
"""Layers of files, of any kind."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy

from . import _core
from ._arrays import (
    Path,
    count,
    count_or_none,
    exported,
    flag,
    is_double,
    items,
    number,
    pair,
    path_text,
    readable,
    refusal,
    shown,
    text,
    texts,
    where_it_lies,
    writable,
)
from ._core import Cost, DomainError, ExpertStatistics, Explanation, Expression, FileError, ShapeError
from ._executables import Executable, compile, cost, evaluate, explain
from ._expressions import expression, input, sized
from ._files import write
from ._gradients import CompiledGradients


class Layer:
    """A layer, [token, input] -> [token, output]. Functions take expressions and return expressions, or take and return arrays."""

    __slots__ = ("_core", "_forward", "_is_edit", "_lent", "_routed", "__weakref__")

    def __init__(self, core: _core.Layer, lent: list[bool] | None = None) -> None:
        if not isinstance(core, _core.Layer):
            raise TypeError("fmoe.load, fmoe.load_mixture, fmoe.from_arrays and fmoe.from_torch make layers")
        self._core = core
        self._forward: Executable | None = None
        self._routed: Executable | None = None  # takes x, g1 and g2
        self._is_edit = lent is not None
        self._lent = lent or [False]  # true if somebody may write the weights, which an edit shares with its original

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in Layer.__slots__:
            advice = "with_active(k) returns one with another K" if name in ("active", "K") else "its methods return others"
            raise AttributeError(f"a layer has no attribute {name!r} to set, and does not change: {advice}")
        super().__setattr__(name, value)

    def __copy__(self) -> Layer:
        """A layer with weights of its own, as a copy of an array has elements of its own; an edit shares those of its original."""
        return Layer(self._core.copied(), self._lent if self._is_edit else None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles what save writes, and the type of the weights. An edit raises DomainError."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "layer.safetensors")
            self.save(file)
            with open(file, "rb") as saved:
                return _of_bytes, (saved.read(), self.type)

    @property
    def settings(self) -> dict[str, str]:
        """What the metadata of its file say: kind, K, activation and the like."""
        return self._core.settings()

    @property
    def type(self) -> str:
        """The type of its weights, as load takes it; a router may keep one of more bits. An edit raises DomainError."""
        return self._core.type

    @property
    def levels(self) -> int:
        """The levels of experts: more than 1 in a hierarchy, 0 for a layer without coefficients."""
        return self._core.levels

    def arrays(self) -> dict[str, numpy.ndarray]:
        """What a file of the layer holds, by the names of the authors' code, as a state_dict has them; bfloat16 is widened."""
        return self._core.arrays()

    @property
    def parameters(self) -> dict[str, numpy.ndarray]:
        """The weights where they lie, by the names that arrays() has: what you write to them, the layer has.

        Later calls of the layer plan and read them anew; what compile and compile_gradients made reads them at its refresh(). Where
        files join two axes that lie apart, as in some of Monet's, the array has both. Weights of 16 and 8 bits raise TypeError.
        """
        named: dict[str, Any] = {}
        for p in self._core.parameters():
            value: Any = p.lent()
            if not any(numpy.may_share_memory(value, other) for other in named.values()):  # under another of its names
                named[p.name] = where_it_lies(value, p.file_shape, p.file_axes)
        self._lent[0] = True
        return named

    def __repr__(self) -> str:
        return f"<fmoe.Layer {', '.join(f'{key}={value}' for key, value in self.settings.items())}>"

    def __call__(self, x: Any, out: Any = None, *, routing: tuple[Any, Any] | None = None) -> Any:
        """The output of x, whose leading axes count tokens. It plans at the first call, and for calls of more tokens.

        In Monet a group of layers shares the router of its first layer, which sees the x of that layer alone. So each other layer of
        the group takes `routing`, g1 and g2, both [token, head, half], from the first one: layer(x, routing=first.routing(x0)). A
        layer with a router takes it, too, and does not ask its router then.
        """
        given: list[Any] = [] if routing is None else items(routing, "routing")
        if routing is not None and len(given) != 2:
            raise TypeError(f"routing is the two arrays g1 and g2, as layer.routing(x) returns them, and not {len(given)}")
        if any(isinstance(a, Expression) for a in (x, *given)):
            return self._output(expression(x), *map(expression, given))
        x, given = _rows(x), [readable(g) for g in given]
        if any(len(g.shape) != len(x.shape) + 1 for g in given):
            raise _core.ShapeError("[routing] g1 and g2 have an axis more than x: [token, head, half] where x is [token, input]")
        if is_double(x) or self._lent[0]:
            y = self._value(self._output, x, *(expression(g.reshape(-1, *g.shape[-2:])) for g in given))
            return y if out is None else _written(out, y)
        tokens = 1
        for n in tuple(x.shape)[:-1]:
            tokens *= n
        room = 1 << max(tokens - 1, 0).bit_length()
        if given:
            heads = int(given[0].shape[-2])
            routed = self._routed
            if routed is None or routed.tokens < tokens or routed.input_shape(1)[0] != heads:
                sides = [sized(input(k, 3), [None, heads, None]) for k in (1, 2)]
                routed = self._routed = compile(self._output(input(0), *sides), room)
            return routed(x, *given, out=out)
        forward = self._forward
        if forward is None or forward.tokens < tokens:
            forward = self._forward = compile(self._output(input(0)), room)
        return forward(x, out=out)

    def _output(self, x: Expression, *routing: Expression) -> Expression:
        return self._core.routed_output(x, *routing) if routing else self._core.output(x)

    def _of_inputs(self) -> Expression:
        """The output of input 0, with inputs 1 and 2 for the routing of a Monet layer whose router is another layer's."""
        return self._output(input(0), *(input(k, 3) for k in (1, 2) if self._core.needs_routing))

    def compile(self, tokens: int, **options: Any) -> Executable:
        """Plans the layer for calls of up to `tokens` rows; options as for fmoe.compile.

        What it returns takes x. For a Monet layer whose router is another layer's it takes x, g1 and g2: forward(x, *first.routing(x0)).
        """
        return compile(self._of_inputs(), tokens, **options)

    def result(self, name: str, x: Any) -> Any:
        """What the layer makes of x by this name.

        "y" is its output, "coefficients" what coefficients() gives, "coefficients[1]" those of a second level. Where a layer has them:
        "scores" before the selection, "preactivations", "hidden" units, "contribution_norms", and "g1" and "g2" of Monet's router. Of a
        selection that keeps K coefficients of a token, "weights" and "indices", both [token, K], are these and their places in ascending
        order; missing ones are 0 and -1. Each has gradients but for "indices".
        """
        return self._value(lambda rows: self._core.result(text(name, "name"), rows), x)

    def compile_gradients(
        self, tokens: int, outputs: str | Sequence[str] = "y", loss: Any = None, *, threads: int | None = None
    ) -> CompiledGradients:
        """Plans the forward and the backward pass for calls of up to `tokens` rows: step(x, dy) returns y, dx and gradients.

        `outputs` are names of result(). With several, step(x, (dy, da)) returns a tuple in place of y, and the gradients of the sum over
        all of them; what they share is computed once in both passes.

        With a loss, step(x, target) returns y, dx and the gradients of the loss, and step.loss is its value. `loss` is a function of the
        output, or of the tuple of outputs, and of the target [t, o], such as fmoe.losses.mse; or an expression of layer.result(name,
        fmoe.input()) and of fmoe.input(1), fmoe.input(2) and so on, which a call takes behind x. A loss of each token, [t], counts by its
        mean; with one of all tokens, these go through together. An expression of more axes, or a tuple of them, is the slope of a loss:
        its gradient with respect to each output.

        A Monet layer whose router is another layer's takes its routing behind x, and has its gradients: step(x, g1, g2, dy) returns y,
        (dx, dg1, dg2) and the others.
        """
        is_one = isinstance(outputs, str)
        names = [outputs] if is_one else items(outputs, "outputs")
        results = [
            self._of_inputs() if name == "y" else self._core.result(text(name, "an output"), input(0)) for name in names
        ]
        if callable(loss) and not isinstance(loss, Expression):
            target = input(3 if self._core.needs_routing else 1)
            loss = loss(results[0] if is_one else tuple(results), target)
        given = [] if loss is None else list(loss) if isinstance(loss, (tuple, list)) else [loss]
        slopes = [expression(slope) for slope in given]
        core = self._core.compile_gradients(count(tokens, "tokens"), results, slopes, threads=count_or_none(threads, "threads"))
        return CompiledGradients(core, is_one, not slopes)

    def explain(self, tokens: int = 1, **options: Any) -> Explanation:
        """The plan of what compile makes, for calls of up to `tokens` rows."""
        return explain(self._of_inputs(), tokens, **options)

    def cost(self, tokens: int = 1) -> Cost:
        """The cost of what compile makes, factorized and naive."""
        return cost(self._of_inputs(), tokens)

    def _value(self, function: Any, x: Any, *more: Any) -> Any:
        """function(x, ...) as an expression, or its value if x is an array of rows."""
        if isinstance(x, Expression):
            return function(x, *more)
        x = _rows(x)
        rows = x.reshape(-1, x.shape[-1])
        made = evaluate(function(expression(rows), *more), like=x)
        return made.reshape(tuple(x.shape[:-1]) + tuple(made.shape[1:]))

    def coefficients(self, x: Any, level: int = 0) -> Any:
        """The coefficients of the experts of one level, [token, expert]."""
        return self._value(self._core.coefficients, x, count(level, "level"))

    def statistics(
        self, batches: Iterable[Any], level: int = 0, *, into: ExpertStatistics | None = None, progress: bool = True
    ) -> ExpertStatistics:
        """How often and how strongly the experts of a level are used by the tokens of all batches [..., input].

        They are added to `into`, if it is given, which holds the complete batches if the stream is interrupted. tqdm shows the
        progress, if it is installed.
        """
        forward: Executable | None = None
        level = count(level, "level")
        if not isinstance(batches, Iterable):
            raise TypeError(f"batches are a list or another iterable of arrays, and not {shown(batches)}")
        if not isinstance(into, (ExpertStatistics, type(None))):
            raise TypeError(f"into is an fmoe.ExpertStatistics, and not {shown(into)}")
        for x in _with_progress(batches) if progress else batches:
            rows = _rows(x)
            rows = rows.reshape(-1, rows.shape[-1])
            if forward is None or forward.tokens < len(rows):
                forward = compile(self._core.coefficients(input(0), level), max(len(rows), 1))
            if into is None:
                into = ExpertStatistics(forward.output_shape()[-1])
            into.add(forward(rows))
        if into is None:
            raise ValueError("there is no batch")
        return into

    def mixed(self, x: Any, *coefficients: Any) -> Any:
        """The output of x with these coefficients, one array for each level."""
        return self._value(self._core.mixed, x, [expression(a) for a in coefficients])

    def expert_output(self, x: Any, n: int) -> Any:
        """What expert n adds to the output with the coefficient 1."""
        return self._value(self._core.expert_output, x, count(n, "n"))

    def expert(self, *n: int) -> numpy.ndarray:
        """The matrix of one expert, by a number for each level."""
        return cast(numpy.ndarray, evaluate(self._core.expert([count(i, "n") for i in n])))

    def routing(self, x: Any) -> tuple[Any, Any]:
        """What the router of a Monet layer gives the halves of its experts, g1 and g2, both [token, head, half].

        Only the first layer of a group has a router; the others take what it gives here. The probability of expert (i, j) is the sum of g1[p, i] g2[p, j] over the heads p.
        """
        return self._value(lambda rows: self._core.routing(rows)[0], x), self._value(lambda rows: self._core.routing(rows)[1], x)

    def ablated(self, experts: Iterable[int] | Iterable[tuple[int, int]], level: int = 0) -> Layer:
        """The layer without these experts of one level: their coefficients are multiplied by 0, and nothing is renormalised.

        An expert of Monet is a pair (i, j).
        """
        listed = items(experts, "experts")
        if not listed:
            return self
        if numpy.ndim(listed[0]) == 1:
            return Layer(self._core.ablated_pairs([pair(n, "an expert") for n in listed]))
        return Layer(self._core.ablated([count(n, "an expert") for n in listed], count(level, "level")), self._lent)

    def steered(self, n: int, strength: float, level: int = 0) -> Layer:
        """The layer with `strength` times what expert n adds; for a muMoE at x plus `strength` times the expert's gate column."""
        return Layer(self._core.steered(count(n, "n"), number(strength, "strength"), count(level, "level")), self._lent)

    def rewritten(self, head: int, mean: Iterable[float], strength: float, level: int = 0) -> Layer:
        """The layer with y[head] + strength (mean . a), where a are the coefficients (muMoE, Eq. 5)."""
        means = [number(a, "an entry of mean") for a in items(mean, "mean")]
        return Layer(
            self._core.rewritten(count(head, "head"), means, number(strength, "strength"), count(level, "level")), self._lent
        )

    def with_active(self, k: int | None) -> Layer:
        """The layer with another K, the number of experts, or of hidden units, that its selection keeps; None keeps all.

        It has weights of its own, with the numbers that those of this layer have now. Raises DomainError for a K that the layer cannot keep, for an edit, and for a kind that selects
        nothing.
        """
        made = Layer(self._core.with_active(count_or_none(k, "k")))
        made.cost()  # which refuses a K that is too great
        return made

    def quantize(self, type: str = "q8") -> Layer:
        """The layer with weights of 8 bits: "q8" has a scale for each block of 32 weights, "q8c" one for each column.

        A sparse mixture keeps the floats of its router and a Monet layer those of its own, so that a token has the same experts.
        """
        return Layer(self._core.quantize(text(type, "type")))

    def save(self, file: Path, prefix: str = "", form: str = "fmoe") -> None:
        """Writes a safetensors file from which load makes an equal layer.

        With form="saelens" `file` is a folder, into which it writes sae_weights.safetensors and cfg.json, as SAELens reads them; it
        raises FileError for a layer that is none of SAELens' architectures.
        """
        if text(form, "form") not in ("fmoe", "saelens"):
            raise DomainError(f'form is {form!r}, and "fmoe" or "saelens" is expected')
        self._core.save_to(path_text(file, "file"), text(prefix, "prefix"), form == "saelens")


def _written(out: Any, y: Any) -> Any:
    """Returns `out` with the numbers of y. Raises as a compiled call does."""
    y, to = exported(y), writable(out)
    if not isinstance(to, numpy.ndarray) or to.dtype != y.dtype:
        type_of = "bfloat16" if isinstance(to, tuple) else to.dtype
        raise DomainError(f"[forward] the output is of {type_of} and the layer computes in {y.dtype}: convert it first")
    if to.shape != y.shape:
        raise ShapeError(f"[forward] the output is {list(to.shape)} and {list(y.shape)} is expected")
    if not to.flags.writeable:
        raise TypeError(refusal(out, to_write=True))
    to[...] = y
    return out


def _rows(x: Any) -> Any:
    """Returns readable(x), which has the axis of the inputs at least."""
    x = readable(x)
    if not tuple(x.shape):
        raise ShapeError("x is a single number, and rows [..., input] are expected")
    return x


def _of_bytes(file: bytes, type: str) -> Layer:
    """The layer of the file that save has written, whose weights have this type."""
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "layer.safetensors")
        with open(name, "wb") as written:
            written.write(file)
        return load(name, type=type)


def _with_progress(batches: Iterable[Any]) -> Iterable[Any]:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return batches
    shown: Iterable[Any] = tqdm(batches, unit="batch")
    return shown


def _active(k: Any) -> int | None:
    try:
        return count_or_none(k, "active", 1)
    except DomainError as e:
        raise DomainError(f'{e}: metadata={{"K": "-1"}} keeps all') from None


def _with_extra(extra: Any, load: Callable[[bool], tuple[_core.Layer, list[str]]]) -> Layer:
    """The layer of load(is_listed), which also returns the names of tensors that nothing reads."""
    if not isinstance(extra, (list, type(None))):
        raise TypeError(f"extra is a list, to which names of tensors are added, and not {shown(extra)}")
    core, names = load(extra is not None)
    if extra is not None:
        extra.extend(names)
    return Layer(core)


def load(
    file: Path,
    prefix: str = "",
    *,
    active: int | None = None,
    type: str = "float32",
    narrow: bool = False,
    mapped: bool = False,
    metadata: Mapping[str, str] | None = None,
    extra: list[str] | None = None,
) -> Layer:
    """Loads the one layer that a file or a checkpoint holds, whatever kind it is; a Monet layer with its router, if it has one.

    Of a model with several layers the prefix says which: "model.layers.4.". A Monet layer that is not the first of its group has no
    router: it takes the routing of the first one, as in layer(x, routing=(g1, g2)).

    A setting that the layer needs is never guessed. `active` is K where the file does not say it, and `metadata` is what else it does
    not say, such as {"activation": "gelu"}. Settings in the config.json of Monet and in the cfg.json of SAELens beside the file count
    as the file's. A tensor of the layer that nothing reads is refused, unless a list is passed as `extra`, to which the names of such
    tensors are added.

    Weights have `type`: "float32", "bfloat16", "float16", or "q8" and "q8c" of 8 bits, into which floats are quantised. The routers of
    mixtures and of Monet, and PEER's queries and keys, stay float32. `narrow` lets weights be rounded to a type of fewer bits than the
    file has.

    With `mapped`, weights of the layer's type stay in the file and take no memory. Those with axes in another order are copied when their
    elements are read, which packing a product does not. The file must be left as it is while the layer lives.
    """
    given = path_text(file, "file"), text(prefix, "prefix"), _active(active), text(type, "type"), flag(narrow, "narrow"), flag(mapped, "mapped")
    settings = texts(metadata, "metadata")
    return _with_extra(extra, lambda is_listed: _core.load(*given, settings, is_listed))


def load_mixture(
    model: Path,
    layer: int,
    *,
    prefix: str = "",
    active: int | None = None,
    type: str = "float32",
    narrow: bool = False,
    extra: list[str] | None = None,
) -> Layer:
    """Loads the mixture of experts of one layer, counted from 0, of a released model.

    The model is a folder with safetensors and config.json, or a GGUF file, of a family that docs/moe.md lists: Mixtral, Qwen, OLMoE,
    DeepSeek, GLM, Kimi, Mistral 4, MiniMax, Ling, ERNIE, Hunyuan, LFM2, Step, Jamba, Granite, Nemotron-H, Llama 4, gpt-oss, Phi-3.5-MoE and others. FP8, MXFP4 and ggml's blocks are decoded to weights of `type`: "float32", "bfloat16", "float16", or "q8" and
    "q8c" of 8 bits, which are made tensor by tensor; "q8" keeps blocks of Q8_0, Q5_0, Q4_0 and MXFP4. `narrow` lets weights be rounded to 16 bits.
    The router, what is added to its scores and the gate of a shared expert stay float32 in every type: a token's experts are those of the file.
    `prefix` is the text before the layer's number where it is another one, and `active` another K. A tensor of the mixture that
    nothing reads is refused, unless a list is passed as `extra`, to which the names of such tensors are added.
    """
    place = path_text(model, "model"), count(layer, "layer"), text(prefix, "prefix")
    how = count_or_none(active, "active", 1), text(type, "type"), flag(narrow, "narrow")
    return _with_extra(extra, lambda is_listed: _core.load_mixture(*place, *how, is_listed))


def from_arrays(
    arrays: Mapping[str, Any],
    *,
    active: int | None = None,
    metadata: Mapping[str, str] | None = None,
    type: str = "float32",
    narrow: bool = False,
    extra: list[str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Layer:
    """Makes the layer of these arrays, by the names of the authors' code: a state_dict of PyTorch is such a mapping.

    `active` is K where the metadata do not say it. An array that nothing reads is refused, unless a list is passed as `extra`, to which
    the names of such arrays are added. `type` and `narrow` are those of load. `config` is what the cfg.json, config.json or config.yaml
    beside a dictionary says, as a mapping: of SAELens, eai-sparsify, circuit-tracer, or dictionary_learning, whose tensors are
    torch.load("ae.pt", weights_only=True).
    """
    if isinstance(arrays, Mapping):  # batch norms of PyTorch count their calls beside their statistics
        arrays = {name: a for name, a in arrays.items() if not str(name).endswith("num_batches_tracked")}
    metadata = texts(metadata, "metadata")
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(f"config is a mapping, as json.load reads a cfg.json, and not {shown(config)}")
    trainer = None if config is None else config.get("trainer")
    if isinstance(trainer, Mapping):  # of dictionary_learning, which counts in integers
        metadata |= {"dict_class": str(trainer["dict_class"])} if "dict_class" in trainer else {}
        arrays = {name: a for name, a in arrays.items() if name not in ("k", "group_sizes")}
        if metadata.get("dict_class") == "AutoEncoderTopK" and active is None and "k" in trainer:
            active = count(trainer["k"], "config's k")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "layer.safetensors")
        if config is not None and not isinstance(trainer, Mapping):
            with open(os.path.join(folder, "cfg.json"), "w") as beside:
                json.dump(dict(config), beside)
        write(file, arrays, metadata)
        try:
            return load(file, active=active, type=type, narrow=narrow, extra=extra)
        except FileError as e:
            told = str(e).replace(f'"{file}": tensor ', "tensor ")
            raise FileError(told.replace(f'"{file}": ', "the mapping ").replace(f'"{file}"', "the mapping")) from None


def from_torch(module: Any) -> Layer:
    """The layer of a module of fmoe.torch or of the authors' code: see fmoe.torch.from_torch."""
    from .torch import from_torch

    return from_torch(module)

# SPDX-License-Identifier: MIT
"""The operators fmoe::layer and fmoe::layer_gradients of PyTorch, and what they run.

A module's operators take its weights as operands, so that autograd, torch.compile and torch.func see them. What they run is
found by a number, the module's handle.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import _core
from .._core import ShapeError
from .._arrays import in_file, in_layer
from .._executables import compile
from .._expressions import input, sized
from .._gradients import CompiledGradients
from .._layers import Layer

_T = TypeVar("_T")
Weights = tuple[Sequence[Tensor], Sequence[Tensor]]  # those that are trained, and statistics
Call = tuple[bool, int, str]  # is it in training; the K of this call, or 0 for that of the layer; the names of its results
Plan = tuple[str, bool, str, int]  # the pass, whether it takes statistics of its tokens, its results, and the heads of a routing

_runners: weakref.WeakValueDictionary[int, Runner] = weakref.WeakValueDictionary()
_handles = itertools.count()


def _place(t: Tensor) -> tuple[Any, ...]:
    """Where the elements of a tensor lie, and how."""
    return t.data_ptr(), t.dtype, t.shape, t.stride()


class Weight:
    """A parameter or statistic of a layer: how its module holds it, and the memory that fmoe reads."""

    def __init__(self, name: str, held: Tensor, file_shape: Sequence[int], file_axes: Sequence[int], trained: bool) -> None:
        self.name = name
        self.held = held  # in the layer's order of axes; nobody else has its storage, which PyTorch could move
        self.file_shape = tuple(file_shape)
        self.file_axes = tuple(file_axes)
        self.trained = trained
        self._lent: Any = None  # how the tensor of PyTorch lies there; nothing else is written to it then
        self._seen: Any = None

    @property
    def is_lent(self) -> bool:
        return self._lent is not None

    def as_file(self, value: Tensor) -> Tensor:
        """A tensor in the layer's order as the state_dict has it."""
        made: Tensor = in_file(value, self.file_shape, self.file_axes)
        return made

    def lend(self) -> Tensor | None:
        """Returns the memory as the state_dict has it; nothing if strides cannot say that, and it would be a copy."""
        mine = self.as_file(torch.from_numpy(self.held.numpy()))
        if mine.data_ptr() != self.held.data_ptr():
            return None
        self._lent = _place(mine)
        return mine

    def is_at(self, given: Tensor) -> bool:
        """True if this is the tensor that lies where fmoe reads it, and not one that PyTorch has moved, as to shared memory."""
        return self.is_lent and _place(given) == self._lent

    def forget(self, addresses: Collection[int] | None) -> None:
        if self._seen is not None and (addresses is None or self._seen[0][0] in addresses):
            self._seen = None

    def read(self, given: Tensor) -> bool:
        """Lets the memory hold what is given. Returns true if that may have changed since the last time.

        PyTorch counts the writes to a tensor, but not to one of inference mode, and not those of other processes. Raises ShapeError
        for a tensor of another shape.
        """
        now = *_place(given), None if given.is_inference() else given._version
        seen = self._seen
        is_known = seen is not None and now == seen[0] and (seen[1] is None or seen[1].data_ptr() == now[0])
        if is_known and now[-1] is not None and not seen[2]:
            return False
        if self.is_lent:
            self._seen = now, None, False
            return True
        if tuple(given.shape) != self.file_shape:
            raise ShapeError(f"{self.name} is {list(given.shape)}, and the layer's is {list(self.file_shape)}")
        given = given.detach()  # while it is held, no other tensor has its address
        mine = in_layer(given, self.held.shape, self.file_axes)
        if is_known and torch.equal(mine.to(self.held.dtype), self.held):
            return False
        self.held.copy_(mine)
        self._seen = now, given, given.is_shared()  # type: ignore[no-untyped-call]
        return True


class _Plan:
    """A compiled pass for up to `room` tokens, which is to be refreshed before its next call if it is stale."""

    def __init__(self, run: Any, room: int) -> None:
        self.run = run  # an Executable, or CompiledGradients
        self.room = room
        self.is_stale = False


class Runner:
    """A layer whose weights a module holds, and its plans."""

    def __init__(self, core: _core.Layer, names: Collection[str] = ()) -> None:
        """Takes copies of the weights. Where a layer has two names for a parameter, those of `names` count."""
        self._lock = threading.Lock()
        self.weights: list[Weight] = []
        found: dict[int, Weight] = {}
        for p in core.parameters():
            value = p.value
            address = value.ctypes.data
            if address not in found:
                held = torch.from_numpy(value.copy())
                found[address] = Weight(p.name, held, p.file_shape, p.file_axes, p.trained)
                self.weights.append(found[address])
            elif p.name in names:
                known = found[address]
                known.name, known.file_shape, known.file_axes = p.name, tuple(p.file_shape), tuple(p.file_axes)
        self.core = core.with_arrays({w.name: w.held.numpy() for w in self.weights})
        self.names = {w.name for w in self.weights}
        self.has_statistics = not all(w.trained for w in self.weights)
        self._shapes: dict[tuple[str, int], list[tuple[int, ...]]] = {}
        self._plans: dict[Plan, _Plan] = {}
        self._elsewhere: Runner | None = None
        self.handle = next(_handles)
        _runners[self.handle] = self

    def pairs(self, trained: Sequence[_T], statistics: Sequence[_T]) -> list[tuple[Weight, _T]]:
        """Each weight and what is given for it; without statistics, only those that are trained."""
        each, other = iter(trained), iter(statistics)
        return [(w, next(each if w.trained else other)) for w in self.weights if w.trained or statistics]

    def at(self, weights: Weights) -> Runner:
        """The runner whose memory may hold these weights: this one, or one that copies each of them."""
        if all(w.is_at(given) for w, given in self.pairs(*weights) if w.is_lent):
            return self
        if self._elsewhere is None:
            self._elsewhere = Runner(self.core, self.names)
        return self._elsewhere

    def forget(self, addresses: Collection[int] | None = None) -> None:
        """Takes weights for written: all, or those that lie at these addresses."""
        for runner in filter(None, (self, self._elsewhere)):
            for w in runner.weights:
                w.forget(addresses)

    def read(self, weights: Weights) -> None:
        """Makes plans stale whose weights may have been written."""
        written = {w.name for w, given in self.pairs(*weights) if w.read(given)}
        if written:
            self.core.written(written)
            for plan in self._plans.values():
                plan.is_stale = True

    def copied(self, weights: Weights) -> Layer:
        """A layer with copies of these weights."""
        with self._lock:
            self.read(weights)
            return Layer(self.core.with_arrays({w.name: w.held.numpy().copy() for w in self.weights}))

    def _compile(self, which: str, training: bool, outputs: str, heads: int, room: int) -> _Plan:
        core = self.core.in_training(True) if training else self.core
        routing = [sized(input(k, 3), [None, heads, None]) for k in (1, 2)] if heads else []

        def result(name: str) -> Any:
            return core.routed_output(input(0), *routing) if routing and name == "y" else core.result(name, input(0))

        results = [result(name) for name in outputs.split(",")]
        if which == "forward":
            return _Plan(compile(results, room), room)
        return _Plan(CompiledGradients(core.compile_gradients(room, results, [])), room)

    def shapes(self, outputs: str, heads: int) -> list[tuple[int, ...]]:
        """Those of results without the axes of tokens."""
        key = outputs, heads
        if key not in self._shapes:
            made = self._compile("forward", False, outputs, heads, 1).run
            self._shapes[key] = [made.output_shape(i) for i in range(outputs.count(",") + 1)]
        return self._shapes[key]

    def run(self, which: str, weights: Weights, call: Call, arguments: Sequence[Tensor], dy: Sequence[Tensor] = ()) -> Any:
        """Runs the "forward" pass, which returns a tuple of results, or both, "gradients". Arguments are x, and a routing or none."""
        training, keep, outputs = call
        x, *routing = arguments
        tokens = x[..., :1].numel()
        key = which, training and self.has_statistics, outputs, _heads(routing)
        with self._lock:
            self.read(weights)
            plan = self._plans.get(key)
            if plan is None or plan.room < tokens:
                plan = self._plans[key] = self._compile(*key, 1 << max(tokens - 1, 0).bit_length())
            if plan.is_stale:
                plan.run.refresh()
                plan.is_stale = False
            plan.run.keep(keep or None)
            return plan.run(*arguments) if which == "forward" else plan.run.in_order(arguments, dy)

    def update_statistics(self, x: Tensor, weights: Weights, momentum: float) -> None:
        with self._lock:
            self.read(weights)
            self.core.update_statistics(x.reshape(-1, x.shape[-1]).float().contiguous().numpy(), momentum)
            for w, given in self.pairs(*weights):
                if not w.trained and not w.is_lent:
                    given.copy_(w.as_file(w.held))


def runner_of(handle: int) -> Runner:
    return _runners[int(handle)]  # PyTorch 2.7 compiles a second module with a number that is not known yet


def _heads(routing: Sequence[Tensor]) -> int:
    return routing[0].shape[-2] if routing else 0


@torch.library.custom_op("fmoe::layer", mutates_args=(), device_types="cpu")
def layer(
    x: Tensor,
    routing: Sequence[Tensor],
    weights: Sequence[Tensor],
    statistics: Sequence[Tensor],
    handle: int,
    training: bool,
    keep: int,
    outputs: str,
) -> list[Tensor]:
    """Results of x, whose names are joined by commas. `keep` is the K of this call, or 0 for that of the layer."""
    given = weights, statistics
    arguments = [a.detach() for a in (x, *routing)]
    made = runner_of(handle).at(given).run("forward", given, (training, keep, outputs), arguments)
    return [y.to(type) for y, type in zip(made, _types(outputs, x))]


def _has_gradients(name: str) -> bool:
    return not name.startswith("indices")


def _types(outputs: str, x: Tensor) -> list[torch.dtype]:
    """Those of the results: integers of what has no gradient."""
    return [x.dtype if _has_gradients(name) else torch.int64 for name in outputs.split(",")]


def expects_place(x: Tensor, weights: Sequence[Tensor], statistics: Sequence[Tensor]) -> None:
    """Raises ValueError if not all of them are where fmoe.torch runs."""
    for w in (*weights, *statistics):
        if w.device.type != x.device.type:
            raise ValueError(f"fmoe.torch runs on the CPU, and weights are on {w.device}: {_TO_CPU[w.is_meta]}")


def expects_reverse_mode(x: Tensor, weights: Sequence[Tensor]) -> None:
    """Raises RuntimeError within the transforms of PyTorch that do not see through its operators.

    Of forward-mode derivatives PyTorch takes an operator for a constant.
    """
    if torch.compiler.is_compiling():
        return
    unpack: Any = forward_ad.unpack_dual
    if forward_ad._current_level >= 0 and any(unpack(t).tangent is not None for t in (x, *weights)):
        raise RuntimeError("fmoe has no forward-mode derivatives, as torch.func.jvp and jacfwd take: use torch.autograd.grad")
    if any(torch._C._functorch.is_functorch_wrapped_tensor(t) for t in (x, *weights)):
        raise RuntimeError(
            "fmoe is no operator of torch.func.grad, jacrev and vmap: use torch.autograd.grad and torch.autograd.functional.jacobian, "
            "and leading axes of x in place of vmap"
        )


_TO_CPU = {
    False: 'move them with module.to("cpu")',
    True: 'they have no numbers, which module.to_empty(device="cpu") and load_state_dict give them',
}


@layer.register_fake
def _(
    x: Tensor,
    routing: Sequence[Tensor],
    weights: Sequence[Tensor],
    statistics: Sequence[Tensor],
    handle: int,
    training: bool,
    keep: int,
    outputs: str,
) -> list[Tensor]:
    expects_place(x, weights, statistics)
    shapes = runner_of(handle).shapes(outputs, _heads(routing))
    return [x.new_empty((*x.shape[:-1], *shape), dtype=type) for shape, type in zip(shapes, _types(outputs, x))]


@torch.library.custom_op("fmoe::layer_gradients", mutates_args=(), device_types="cpu")
def layer_gradients(
    dy: Sequence[Tensor],
    x: Tensor,
    routing: Sequence[Tensor],
    weights: Sequence[Tensor],
    statistics: Sequence[Tensor],
    handle: int,
    training: bool,
    keep: int,
    outputs: str,
) -> list[Tensor]:
    """The gradients with respect to x, a routing and each weight. Without statistics those of the last call count."""
    given = weights, statistics
    runner = runner_of(handle).at(given)
    arguments = [a.detach() for a in (x, *routing)]
    _, dx, made = runner.run("gradients", given, (training, keep, outputs), arguments, [d.detach() for d in dy])
    of_arguments = [d.to(a.dtype) for d, a in zip(dx, arguments)]
    return [*of_arguments, *(w.as_file(g).to(given.dtype) for (w, given), g in zip(runner.pairs(weights, ()), made))]


@layer_gradients.register_fake
def _(
    dy: Sequence[Tensor],
    x: Tensor,
    routing: Sequence[Tensor],
    weights: Sequence[Tensor],
    statistics: Sequence[Tensor],
    handle: int,
    *more: Any,
) -> list[Tensor]:
    pairs = runner_of(handle).pairs(weights, ())
    of_weights = [w.as_file(given.new_empty(w.held.shape)) for w, given in pairs]
    return [*(a.new_empty(a.shape) for a in (x, *routing)), *of_weights]


@torch.library.custom_op("fmoe::update_statistics", mutates_args=("statistics",), device_types="cpu")
def update_statistics(
    x: Tensor, weights: Sequence[Tensor], statistics: Sequence[Tensor], handle: int, momentum: float
) -> None:
    """Moves running statistics towards those of the tokens of x."""
    given = weights, statistics
    runner_of(handle).at(given).update_statistics(x.detach(), given, momentum)


@update_statistics.register_fake
def _(x: Tensor, weights: Sequence[Tensor], statistics: Sequence[Tensor], handle: int, momentum: float) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, routing, weights, statistics, *ctx.call = inputs
    ctx.runner = runner_of(ctx.call[0])  # it lives as long as the graph
    ctx.counts = len(routing), len(weights), len(statistics)
    ctx.shapes = [y.shape for y in output]
    # Both passes in training take the statistics of the tokens, and the running ones move between them.
    ctx.save_for_backward(x, *routing, *weights, *([] if ctx.call[1] else statistics))


def _backward(ctx: Any, dy: list[Tensor | None]) -> tuple[Any, ...]:
    routed, trained, others = ctx.counts
    x, *saved = ctx.saved_tensors
    routing, weights, statistics = saved[:routed], saved[routed : routed + trained], saved[routed + trained :]
    *call, outputs = ctx.call
    names = outputs.split(",")
    each = [x.new_zeros(shape) if d is None else d for d, shape, name in zip(dy, ctx.shapes, names) if _has_gradients(name)]
    of = ",".join(filter(_has_gradients, names))
    dx, *made = layer_gradients(each, x, routing, weights, statistics, *call, of)
    return dx, made[:routed], made[routed:], [None] * others, None, None, None, None


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Fused optimizers write parameters without counting that."""
    fused = [group["params"] for group in optimizer.param_groups if group.get("fused")]
    if fused:
        addresses = {p.data_ptr() for params in fused for p in params}
        for runner in list(_runners.values()):
            runner.forget(addresses)


register_optimizer_step_post_hook(_after_step)
layer.register_autograd(_backward, setup_context=_setup_context)

# SPDX-License-Identifier: MIT
"""Optimizers, which change the weights of a layer by its gradients, and clipping."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from . import _core
from ._arrays import Path, exported, flag, in_layer, items, number, path_text, readable, refusal, shown, text, writable
from ._core import DomainError, ShapeError
from ._gradients import Gradients
from ._layers import Layer


class _Number:
    """A setting of an optimizer, which may change between two steps."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, optimizer: _Optimizer, owner: type | None = None) -> float:
        return float(getattr(optimizer._core, self._name))

    def __set__(self, optimizer: _Optimizer, value: float) -> None:
        optimizer._set(self._name, number(value, self._name))


class _Flag:
    """One that is on or off."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, optimizer: _Optimizer, owner: type | None = None) -> bool:
        return bool(getattr(optimizer._core, self._name))

    def __set__(self, optimizer: _Optimizer, value: bool) -> None:
        optimizer._set(self._name, flag(value, self._name))


class _Optimizer:
    """What all optimizers have. An optimizer belongs to one layer."""

    __slots__ = ("_core", "_layer", "_lock", "__weakref__")

    def __init__(self, core: Any, **settings: Any) -> None:
        self._core = core
        self._layer: Layer | None = None
        self._lock = threading.Lock()
        for name, value in settings.items():
            setattr(self, name, value)

    def __reduce__(self) -> Any:
        raise TypeError("an optimizer cannot be copied or pickled: save writes what it keeps, and load reads it")

    def __call__(self, layer: Layer, gradients: Gradients | Mapping[str, Any]) -> None:
        """Changes the weights of a layer by gradients of all its parameters: what compile_gradients made, or a mapping from the same names.

        Later calls of the layer have the new weights; what compile and compile_gradients made reads them at its refresh(). Gradients
        are float32, of any kind of array. Weights of 16 bits have a master in float32, from which they are rounded after each step.
        Raises DomainError or ShapeError, before a weight is changed, for gradients or settings that do not fit, for an edit and for
        weights of 8 bits.
        """
        if not isinstance(layer, Layer):
            raise TypeError(f"layer is an fmoe.Layer, and not {shown(layer)}")
        parameters = {p.name: p for p in layer._core.parameters()}
        made: list[tuple[str, Any]] = []
        for name, gradient in _named(gradients).items():
            array = exported(readable(gradient))
            if name not in parameters:
                raise DomainError(f"[optimizer] the layer trains no parameter {name}")
            if not isinstance(array, numpy.ndarray):
                raise DomainError(f"[optimizer] the gradient of {name} is bfloat16 and must be float32")
            p = parameters[name]
            if array.shape != tuple(p.file_shape):
                raise ShapeError(f"[optimizer] the gradient of {name} is {list(array.shape)} and {list(p.file_shape)} is expected")
            made.append((name, numpy.asarray(in_layer(array, p.shape, p.file_axes), order="C")))
        with self._lock:
            if self._layer is not None and self._layer is not layer:
                raise DomainError("[optimizer] the steps so far were of another layer: an optimizer belongs to one layer")
            self._core.step(layer._core, made)
            self._layer = layer
            layer._lent[0] = True  # as if the caller had written the weights

    def _set(self, name: str, value: Any) -> None:
        with self._lock:
            setattr(self._core, name, value)

    @property
    def steps(self) -> int:
        """The steps so far."""
        return int(self._core.steps)

    def save(self, file: Path) -> None:
        """Writes what the optimizer keeps as safetensors, without its settings: averages and masters, by the names of parameters."""
        with self._lock:
            self._core.save_to(path_text(file, "file"))

    def load(self, file: Path) -> None:
        """Reads what save wrote: with the saved layer, training goes on with the same bits."""
        with self._lock:
            self._core.load_from(path_text(file, "file"))
            self._layer = None


class SGD(_Optimizer):
    """Stochastic gradient descent with momentum, as torch.optim.SGD has it.

    g = gradient + weight_decay w;  b = momentum b + (1 - dampening) g, in the first step with momentum b = g;  w = w - rate b, with
    nesterov w = w - rate (g + momentum b), without momentum w = w - rate g.
    """

    __slots__ = ()
    rate, momentum, dampening, weight_decay = _Number(), _Number(), _Number(), _Number()
    nesterov = _Flag()

    def __init__(
        self, *, rate: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False
    ) -> None:
        settings = dict(rate=rate, momentum=momentum, dampening=dampening, weight_decay=weight_decay)
        super().__init__(_core.SGD(), **settings, nesterov=nesterov)


class _Averages(_Optimizer):
    """The settings of Adam and AdamW."""

    __slots__ = ()
    rate, beta1, beta2, epsilon, weight_decay = _Number(), _Number(), _Number(), _Number(), _Number()


class Adam(_Averages):
    """Adam (Kingma and Ba 2015, Algorithm 1), as torch.optim.Adam has it. In step t:

    g = gradient + weight_decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
    w = w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon).
    """

    __slots__ = ()

    def __init__(
        self, *, rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0
    ) -> None:
        super().__init__(_core.Adam(), rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)


class AdamW(_Averages):
    """AdamW (Loshchilov and Hutter 2019, Algorithm 2), as torch.optim.AdamW has it: w = w - rate weight_decay w before a step of Adam
    with the gradient alone."""

    __slots__ = ()

    def __init__(
        self, *, rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 1e-2
    ) -> None:
        super().__init__(_core.AdamW(), rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)


def clip_norm(gradients: Gradients | Mapping[str, Any] | Sequence[Gradients | Mapping[str, Any]], limit: float) -> float:
    """Scales gradients in place by min(1, limit / (norm + 1e-6)), and returns the norm of all of them that they had.

    They are what compile_gradients made, or a mapping, or a list of these for several layers that are clipped together. Raises
    DomainError for a limit below 0 and for gradients that are neither float32 nor float64, before one is scaled.
    """
    limit = number(limit, "limit")
    together = [gradients] if isinstance(gradients, (Gradients, Mapping)) else items(gradients, "gradients")
    plain: list[tuple[str, Any]] = []
    copied: list[tuple[Any, Any]] = []
    for name, gradient in (entry for each in together for entry in _named(each).items()):
        readable(gradient)  # raises TypeError for what is no array
        array = writable(gradient)
        if not isinstance(array, numpy.ndarray):
            raise DomainError(f"[clip_norm] the gradient of {name} is bfloat16 and must be float32 or float64")
        if not array.flags.writeable:
            raise TypeError(refusal(gradient, to_write=True))
        lying = array.transpose(sorted(range(array.ndim), key=lambda k: -array.strides[k]))
        rows = numpy.asarray(lying, order="C")  # copies elements that have gaps between them
        plain.append((name, rows))
        if rows is not lying:
            copied.append((lying, rows))
    norm = _core.clip_norm(limit, plain)
    for lying, rows in copied:
        lying[...] = rows
    return norm


def _named(gradients: Any) -> dict[str, Any]:
    """Returns gradients by their names. Raises TypeError for what has no names."""
    by_name = gradients.parameters if isinstance(gradients, Gradients) else gradients
    if not isinstance(by_name, Mapping):
        raise TypeError(f"gradients are what compile_gradients made, or a mapping from names to arrays, and not {shown(gradients)}")
    return {text(name, "the name of a gradient"): g for name, g in by_name.items()}

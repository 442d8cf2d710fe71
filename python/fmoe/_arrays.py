# SPDX-License-Identifier: MIT
"""Arrays come in as they are, and results go out as the caller's kind of array."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy


class Array(Protocol):
    """An array of numpy, of PyTorch, or of whatever else has DLPack."""

    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...


def _torch(x: Any) -> Any:
    """Returns the module torch if x is one of its tensors."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(x, torch.Tensor) else None


def readable(x: Any) -> Any:
    """Returns the array in a form that the extension reads where it lies."""
    torch = _torch(x)
    if torch is not None and x.requires_grad:
        if torch.is_grad_enabled():
            raise TypeError("fmoe computes no gradients of torch here: pass x.detach(), or call under torch.no_grad()")
        return x.detach()
    if isinstance(x, (list, tuple, int, float)):
        return numpy.asarray(x, dtype=numpy.float32)
    return x


def empty(like: Any, shape: tuple[int, ...], is_double: bool) -> Any:
    """Returns an array of this shape to write to: of torch if `like` is, else of numpy."""
    torch = _torch(like)
    if torch is not None:
        return torch.empty(shape, dtype=torch.float64 if is_double else torch.float32)
    return numpy.empty(shape, dtype=numpy.float64 if is_double else numpy.float32)


def as_kind_of(like: Any, result: numpy.ndarray) -> Any:
    """Returns a numpy array as the kind of array that `like` is, without a copy."""
    torch = _torch(like)
    if torch is not None:
        return torch.from_numpy(result)
    if isinstance(like, numpy.ndarray) or not hasattr(like, "__array_namespace__"):
        return result
    return like.__array_namespace__().from_dlpack(result)


def is_double(x: Any) -> bool:
    return str(getattr(x, "dtype", "")).endswith("float64")


def in_file(value: Any, file_shape: Sequence[int], file_axes: Sequence[int]) -> Any:
    """Returns a parameter in the order and the shape that files have, without a copy where strides can say it."""
    order = sorted(range(len(file_axes)), key=lambda k: file_axes[k])
    permuted = value.permute(order) if _torch(value) is not None else value.transpose(order)
    return permuted.reshape(tuple(file_shape))


def where_it_lies(value: Any, file_shape: Sequence[int], file_axes: Sequence[int]) -> Any:
    """The same of an array of numpy, never a copy: two axes of the layer that only a copy could join stay two."""
    joined = in_file(value, file_shape, file_axes)
    if numpy.may_share_memory(joined, value) or not value.size:
        return joined
    return value.transpose(sorted(range(len(file_axes)), key=lambda k: file_axes[k]))


def in_layer(array: Any, shape: Sequence[int], file_axes: Sequence[int]) -> Any:
    """The reverse of in_file: returns an array of a file in the order and the shape that the layer has."""
    apart = [0] * len(file_axes)
    for k, axis in enumerate(file_axes):
        apart[axis] = shape[k]
    flat = array.reshape(tuple(apart))
    return flat.permute(list(file_axes)) if _torch(array) is not None else flat.transpose(list(file_axes))

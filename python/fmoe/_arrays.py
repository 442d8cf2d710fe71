# SPDX-License-Identifier: MIT
"""Arrays come in as they are, and results go out as the caller's kind of array."""

from __future__ import annotations

import sys
from typing import Any

import numpy


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

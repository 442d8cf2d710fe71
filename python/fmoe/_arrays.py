# SPDX-License-Identifier: MIT
"""Arrays come in as they are, and results go out as the caller's kind of array."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy

from ._core import DomainError


Path = str | bytes | os.PathLike[str]


class Array(Protocol):
    """An array of numpy, of PyTorch, or of whatever else has DLPack."""

    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...


def _torch(x: Any) -> Any:
    """Returns the module torch if x is one of its tensors."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(x, torch.Tensor) else None


_FLOAT32 = numpy.dtype(numpy.float32)
_GREATEST = 2**63 - 1
_TYPES = "fmoe takes arrays of float32, float64, float16 or bfloat16: convert it first"


def lasting(x: Any) -> Any:
    """Returns the array that x is, of numpy, of PyTorch or with DLPack, for who reads its elements now and again later.

    Raises TypeError, with the reason, for what fmoe does not read. The extension is given nothing that has not been here.
    """
    if isinstance(x, numpy.ndarray):
        if type(x) is not numpy.ndarray and numpy.ma.is_masked(x):
            raise TypeError("some numbers of the array are masked, and fmoe reads all of them: pass x.filled(0)")
        if x.dtype.char in "fde" and x.dtype.isnative:
            return x
        if x.dtype.name == "bfloat16":  # of ml_dtypes
            return x
        raise TypeError(refusal(x))
    torch = _torch(x)
    if torch is not None:
        if x.device.type != "cpu" or x.layout != torch.strided:
            raise TypeError(refusal(x))
        if not x.requires_grad:
            return x
        if torch.is_grad_enabled():
            raise TypeError("fmoe computes no gradients of torch here: pass x.detach(), or call under torch.no_grad()")
        return x.detach()
    if isinstance(x, (list, tuple, int, float)):
        try:
            return numpy.asarray(x, dtype=numpy.float32)
        except (TypeError, ValueError) as e:
            raise TypeError(f"{type(x).__name__} is no array of numbers: {e}") from None
    if isinstance(x, numpy.generic):
        return lasting(numpy.asarray(x))
    if hasattr(x, "__dlpack__"):
        return x
    try:
        view = memoryview(x)
    except TypeError:
        raise TypeError(refusal(x)) from None
    return lasting(numpy.asarray(view))


def readable(x: Any) -> Any:
    """Returns the array that x is with its elements as they are now, in a form that the extension reads where it lies."""
    if type(x) is numpy.ndarray and x.dtype is _FLOAT32:
        return x
    x = lasting(x)
    return x.resolve_neg() if _torch(x) is not None and x.is_neg() else x


def importable(x: Any) -> Any:
    """What the extension imports of any object."""
    return exported(readable(x))


def writable(out: Any) -> Any:
    """What the extension imports of an array to write to.

    Raises TypeError for what is none, for a view of PyTorch whose numbers are not those in memory, and for arrays of JAX, which say that
    they can be written and must not be.
    """
    if isinstance(out, numpy.ndarray):
        return out
    if out.is_neg() if _torch(out) is not None else type(out).__module__.startswith("jax"):
        raise TypeError(refusal(out, to_write=True))
    return exported(out, to_write=True)


def refusal(x: Any, to_write: bool = False) -> str:
    """Why fmoe does not read x, or does not write to it, and what to do."""
    torch = _torch(x)
    if torch is not None:
        if x.device.type != "cpu":
            place = f"the tensor is on {x.device}, and fmoe reads memory of the CPU"
            return place + (": it has no numbers yet" if x.is_meta else ": pass x.cpu()")
        if x.layout != torch.strided:
            return "the tensor is sparse, and fmoe reads all of its numbers: pass x.to_dense()"
        if to_write and x.is_neg():
            return "the tensor to write to is the negative of other numbers: pass a tensor of its own"
    elif isinstance(x, numpy.ndarray):
        if to_write and not x.flags.writeable:
            return "the array to write to is read-only"
        if not x.dtype.isnative and x.dtype.kind == "f":
            return 'the array has the byte order of other machines: pass x.astype(x.dtype.newbyteorder("="))'
        if any(step % x.itemsize for step in x.strides if x.itemsize):
            return "the elements of the array are not a whole number of elements apart: pass x.copy()"
        return f"the array is {x.dtype}, and {_TYPES}" if x.dtype.char not in "fde" else _TYPES
    elif not hasattr(x, "__dlpack__"):
        advice = ": pass x.to_numpy()" if hasattr(x, "to_numpy") else ", and an array of numpy, of PyTorch or with DLPack is expected"
        return f"this is {_article(type(x).__name__)}{advice}"
    if to_write:
        return f"fmoe does not write to {_article(type(x).__name__)}: pass an array of numpy or a tensor of PyTorch"
    return f"fmoe cannot read this {type(x).__name__}: pass numpy.asarray(x)"


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def exported(x: Any, to_write: bool = False) -> Any:
    """What the extension imports of an array that is readable: one of numpy in its place, or a tuple with the bits of bfloat16."""
    if type(x) is numpy.ndarray and x.dtype is _FLOAT32:
        return x
    if isinstance(x, numpy.ndarray):
        return x if x.dtype.char in "fde" else (x.view(numpy.uint16),)
    torch = _torch(x)
    try:
        if torch is not None:
            return (x.view(torch.int16).numpy(),) if x.dtype == torch.bfloat16 else x.detach().numpy()
        if not hasattr(x, "__dlpack__"):
            raise TypeError
        try:
            return numpy.from_dlpack(x)
        except (BufferError, RuntimeError):  # numpy has no bfloat16 of DLPack
            return exported(lasting(numpy.asarray(x)))
    except (TypeError, RuntimeError):
        raise TypeError(refusal(x, to_write)) from None


def count(value: Any, name: str, least: int = 0) -> int:
    """Returns a whole number of `least` or more. Raises TypeError for what is none, and DomainError for less."""
    try:
        if isinstance(value, (bool, numpy.bool_)):
            raise TypeError
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, and not {shown(value)}") from None
    if whole < least:
        raise DomainError(f"{name} is {whole}, and must be at least {least}")
    if whole > _GREATEST:
        raise DomainError(f"{name} is {whole}, and must be at most {_GREATEST}")
    return whole


def count_or_none(value: Any, name: str, least: int = 0) -> int | None:
    """The same of a number that None leaves open."""
    return None if value is None else count(value, name, least)


def number(value: Any, name: str) -> float:
    """Returns a number. Raises TypeError for what is none."""
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is a number, and not {shown(value)}") from None


def text(value: Any, name: str) -> str:
    """Returns a text. Raises TypeError for what is none."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a text, and not {shown(value)}")
    return value


def items(value: Any, name: str) -> list[Any]:
    """Returns what a list, a tuple or an array holds. Raises TypeError for what holds nothing."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return list(value)
    except TypeError:
        raise TypeError(f"{name} is a list, and not {shown(value)}") from None


def pair(value: Any, name: str) -> tuple[int, int]:
    """Returns two whole numbers of 0 or more."""
    both = items(value, name)
    if len(both) != 2:
        raise TypeError(f"{name} is a pair (i, j), and not {shown(value)}")
    return count(both[0], name), count(both[1], name)


def flag(value: Any, name: str) -> bool:
    """Returns a truth value. Raises TypeError for what is none."""
    if not isinstance(value, (bool, numpy.bool_)):
        raise TypeError(f"{name} is True or False, and not {shown(value)}")
    return bool(value)


def path_text(value: Any, name: str) -> str:
    """Returns a path, which may be bytes or a pathlib.Path, as a text. Raises TypeError for what is none."""
    try:
        decoded = os.fsdecode(value)
        decoded.encode()
    except TypeError:
        raise TypeError(f"{name} is the name of a file, as text or pathlib.Path, and not {shown(value)}") from None
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {value!r}, and fmoe opens files whose names are UTF-8: rename it") from None
    if "\0" in decoded:
        raise ValueError(f"{name} is {value!r}, and no name of a file has a null character")
    return decoded


def texts(value: Any, name: str) -> dict[str, str]:
    """Returns a mapping from texts to texts, an empty one for None. Raises TypeError for what is none."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f'{name} is a mapping from texts to texts, such as {{"K": "32"}}, and not {shown(value)}')
    return {text(key, f"a key of {name}"): text(of_key, f'{name}["{key}"]') for key, of_key in value.items()}


def shown(value: Any) -> str:
    """The value in a sentence: itself where it is short, or else its type."""
    is_plain = isinstance(value, (str, bytes, int, float, list, tuple, numpy.generic, type(None)))
    return repr(value) if is_plain and len(repr(value)) <= 60 else f"of type {type(value).__name__}"


def empty(like: Any, shape: tuple[int, ...], is_double: bool) -> Any:
    """Returns an array of this shape to write to: of torch if `like` is, else of numpy."""
    torch = _torch(like)
    if torch is not None:
        return torch.empty(shape, dtype=torch.float64 if is_double else torch.float32)
    return numpy.empty(shape, dtype=numpy.float64 if is_double else numpy.float32)


def as_kind_of(like: Any, result: Any) -> Any:
    """Returns an array of numpy, or one of `empty`, as the kind of array that `like` is, without a copy."""
    if isinstance(like, numpy.ndarray) or not isinstance(result, numpy.ndarray):
        return result
    torch = _torch(like)
    if torch is not None:
        return torch.from_numpy(result)
    if not hasattr(like, "__array_namespace__"):
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

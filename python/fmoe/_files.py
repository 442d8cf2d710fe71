# SPDX-License-Identifier: MIT
"""The arrays of safetensors and GGUF files and of sharded checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy

from . import _core
from ._arrays import readable


class File(Mapping[str, numpy.ndarray]):
    """The arrays of a file or a checkpoint by name; each is read when it is asked for. bfloat16, the blocks of GGUF files, and FP8
    and MXFP4 with their scales become float32."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._core = _core.Checkpoint.open(os.fspath(path))

    @property
    def metadata(self) -> dict[str, str]:
        return self._core.metadata()

    def __getitem__(self, name: str) -> numpy.ndarray:
        if not self._core.contains(name):
            raise KeyError(name)
        return self._core.at(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.names())

    def __len__(self) -> int:
        return len(self._core.names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._core.contains(name)


def read(path: str | os.PathLike[str]) -> File:
    """Opens a safetensors or a GGUF file, a folder of shards, or its index."""
    return File(path)


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Writes arrays of floating-point numbers to a safetensors file."""
    plain = {name: readable(a) for name, a in arrays.items()}
    _core.write(os.fspath(path), plain, dict(metadata or {}))

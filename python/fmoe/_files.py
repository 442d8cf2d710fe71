# SPDX-License-Identifier: MIT
"""The arrays of safetensors and GGUF files and of sharded checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy

from . import _core
from ._arrays import Path, exported, path_text, readable, shown, text, texts


class File(Mapping[str, numpy.ndarray]):
    """The arrays of a file or a checkpoint by name; each is read when it is asked for. bfloat16, the blocks of GGUF files, and FP8
    and MXFP4 with their scales become float32."""

    __slots__ = ("_open",)

    def __init__(self, path: Path) -> None:
        self._open: _core.Checkpoint | None = _core.Checkpoint.open(path_text(path, "path"))

    @property
    def _core(self) -> _core.Checkpoint:
        if self._open is None:
            raise ValueError("the file is closed: fmoe.read opens it again")
        return self._open

    def close(self) -> None:
        """Gives the file back. Arrays that were read stay."""
        self._open = None

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def metadata(self) -> dict[str, str]:
        return self._core.metadata()

    def __getitem__(self, name: str) -> numpy.ndarray:
        if name not in self:
            raise KeyError(name)
        made: numpy.ndarray = self._core.at(name)
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.names())

    def __len__(self) -> int:
        return len(self._core.names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._core.contains(name)

    def __repr__(self) -> str:
        return "<fmoe.File, closed>" if self._open is None else f"<fmoe.File of {len(self)} arrays>"


def read(path: Path) -> File:
    """Opens a safetensors or a GGUF file, a folder of shards, or its index."""
    return File(path)


def write(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Writes arrays of floating-point numbers to a safetensors file. Raises TypeError, with the name, for another array."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays are a mapping from names, as a state_dict is, and not {shown(arrays)}")
    plain = {}
    for name, a in arrays.items():
        try:
            plain[text(name, "the name of an array")] = exported(readable(a))
        except TypeError as e:
            raise TypeError(f'"{name}": {e}') from None
    _core.write(path_text(path, "path"), plain, texts(metadata, "metadata"))

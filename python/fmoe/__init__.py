# SPDX-License-Identifier: MIT
"""Factorized mixture-of-experts layers: muMoE, MxD, Monet, AoE and PEER, planned and run on the CPU.

>>> layer = fmoe.load("layer.safetensors")        # a layer of any kind
>>> y = layer(x)                                  # numpy, PyTorch, or whatever has DLPack
>>> forward = layer.compile(128)                  # for many calls
>>> z = fmoe.einsum("tn,no,th,ho->to", a, c, h, d)  # a lazy expression, planned as a whole
"""

from ._core import DomainError, ExpertDomains, ExpertStatistics, Expression, FileError, ShapeError
from ._core import version as __version__
from ._executables import Executable, compile, cost, evaluate, explain
from ._expressions import (
    abs,
    append_one,
    best_groups,
    bounded_softmax,
    clamp,
    clamped_rms_norm,
    concat,
    einsum,
    entmax,
    exp,
    expert_choice,
    gelu,
    gelu_tanh,
    gradient,
    input,
    inverse_sqrt,
    kept,
    layer_norm,
    log,
    max,
    mean,
    min,
    nonzeros,
    norm,
    parameter,
    product_top_k,
    relu,
    rms_norm,
    sigmoid,
    silu,
    sized,
    softmax,
    sqrt,
    squared_relu,
    tanh,
    threshold,
    top_k,
    top_p,
    where,
)
from ._files import File, read, write
from ._gradients import CompiledGradients, Gradients
from ._layers import Layer, from_arrays, from_torch, load, load_mixture

__all__ = [name for name in dir() if not name.startswith("_")] + ["__version__"]

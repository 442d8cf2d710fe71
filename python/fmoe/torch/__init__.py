# SPDX-License-Identifier: MIT
"""Layers as modules of PyTorch, which run on the CPU and are trained by fmoe's gradients.

>>> module = fmoe.torch.MxD(d_in=768, d_sae=3072, n_experts=21490, topk=32)  # as the authors name their settings
>>> module.load_state_dict(state)                                           # of the authors' module
>>> y = module(x)
>>> loss(y).backward()
"""

from . import losses
from ._authors import from_torch
from ._functions import Function, function
from ._mixtures import PEER, SAE, MoE, TuckerMuMoE
from ._models import Hooked, Recovered, cross_entropy_recovered, replace
from ._modules import AoE, Layer, MuMoE, MxD, Transcoder, load
from ._monet import Monet, MonetExperts, MonetRouter

__all__ = [
    "AoE",
    "Function",
    "Hooked",
    "Layer",
    "MoE",
    "Monet",
    "MonetExperts",
    "MonetRouter",
    "MuMoE",
    "MxD",
    "PEER",
    "Recovered",
    "SAE",
    "Transcoder",
    "TuckerMuMoE",
    "cross_entropy_recovered",
    "from_torch",
    "function",
    "load",
    "losses",
    "replace",
]

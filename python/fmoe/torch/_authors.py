# SPDX-License-Identifier: MIT
"""The settings of the authors' modules, which their state_dicts do not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .. import _layers
from ._modules import Layer, activation_name

Settings = dict[str, Any]


def _of_sparse(m: Any) -> Settings:
    activation = {"gelu_pytorch_tanh": "gelu_tanh"}.get(m.cfg.mlp_activation_fn, m.cfg.mlp_activation_fn)
    return {"K": m.cfg.topk if m.cfg.topk > 0 else -1, "activation": activation}


def _of_mumoe(m: Any) -> Settings:
    return {"activation": activation_name(m.act), "norm": {"bn": "batch", "ln": "layer", None: "none"}[m.normalization]}


def _of_monet(m: Any) -> Settings:
    config = m.router.config
    activation = {"relu2": "squared_relu"}.get(config.hidden_act, config.hidden_act)
    return {"K": config.moe_topk, "heads": config.moe_heads, "activation": activation}


def _of_aoe(m: Any) -> Settings:
    return {"K": m.args.moe_top_k, "weighting": "released", "activation": activation_name(m.args.activation_fn)}


# What a module has, and its settings.
_KINDS: list[tuple[tuple[str, ...], Callable[[Any], Settings]]] = [
    (("cfg", "W_enc", "W_dec"), _of_sparse),
    (("projs", "MuMoE", "normalization"), _of_mumoe),
    (("router", "moe"), _of_monet),
    (("args", "wg", "experts"), _of_aoe),
]

_OTHERS = ("self_attn.", "input_layernorm.", "post_attention_layernorm.")  # beside router and moe in Monet's decoder layer


def from_torch(module: nn.Module) -> _layers.Layer:
    """Makes the layer of a module, with copies of its weights: one of fmoe.torch, or of the authors'.

    These are SparseAutoencoder of MxD, MuMoE, Monet's decoder layer with a router, and VanillaAoE. Of others, pass the state_dict and
    the settings to fmoe.from_arrays.
    """
    if isinstance(module, Layer):
        return module.layer()
    for names, settings in _KINDS:
        if all(hasattr(module, name) for name in names):
            arrays: dict[str, Tensor] = {
                name: value.detach().cpu().float().contiguous()
                for name, value in module.state_dict().items()
                if value.is_floating_point() and not name.startswith(_OTHERS)
            }
            return _layers.from_arrays(arrays, metadata={key: str(value) for key, value in settings(module).items()})
    raise TypeError(
        f"fmoe does not know the settings of {type(module).__name__}: "
        "fmoe.from_arrays(module.state_dict(), metadata={'K': '32', 'activation': 'gelu'}) takes them"
    )

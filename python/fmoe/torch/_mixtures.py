# SPDX-License-Identifier: MIT
"""Mixtures, PEER, autoencoders and a Tucker muMoE, from their first weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._arrays import count
from ._modules import Made, activation_name, normal, numbered, uniform


class MoE(Made):
    """A sparse mixture of SwiGLU experts: top-k of a linear router, with the softmax over the chosen (AoE's Algorithm 1).

    `gated=False` leaves out the factor W_p. `shared_size` is the width of an expert that all tokens have. The weights are normal ones of
    0.02. With `weights="released"` the softmax is that over all experts, and "normalized" and "score" weigh by the scores themselves.
    """

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        num_experts: int,
        top_k: int = 2,
        *,
        activation: Any = "silu",
        gated: bool = True,
        shared_size: int = 0,
        weights: str = "paper",
    ) -> None:
        n, d, w = num_experts, hidden_size, ffn_hidden_size
        arrays = {"router": normal(d, n), "W_g": normal(n, d, w), "W_o": normal(n, w, d)}
        if gated:
            arrays["W_p"] = normal(n, d, w)
        if shared_size:
            arrays |= {"shared.W_g": normal(d, shared_size), "shared.W_o": normal(shared_size, d)}
            if gated:
                arrays["shared.W_p"] = normal(d, shared_size)
        name = activation_name(activation)
        settings = {"K": count(top_k, "top_k", 1), "weighting": weights, "activation": name, "experts": "gated" if gated else "ungated"}
        super().__init__(arrays, settings | ({"shared_activation": name} if shared_size else {}))


class PEER(Made):
    """Parameter-efficient expert retrieval (He 2024, Algorithm 1), with the names and the first weights of PEER-pytorch.

    `num_experts` is a square. A head keeps `num_experts_per_head` experts, of the `product_key_topk` best halves of both keys, with the
    softmax of their scores; with `non_competing_scores`, as that package has it by default, weights are the ReLU of the scores.
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 8,
        num_experts: int = 1_000_000,
        num_experts_per_head: int = 16,
        activation: Any = "gelu",
        dim_key: int | None = None,
        product_key_topk: int | None = None,
        non_competing_scores: bool = False,
    ) -> None:
        halves, dim_key = math.isqrt(num_experts), dim_key or dim // 2
        if halves * halves != num_experts:
            raise ValueError(f"num_experts is {num_experts}, and a square is expected, such as {halves * halves}")
        k = count(num_experts_per_head, "num_experts_per_head", 1)
        arrays = {
            "to_queries.0.weight": uniform((dim_key * heads * 2, dim), dim),
            "keys": normal(heads, halves, 2, dim_key),
            "weight_down_embed.weight": torch.randn(num_experts, dim),
            "weight_up_embed.weight": torch.randn(num_experts, dim),
        }
        weighting = "relu" if non_competing_scores else "softmax"
        settings = {"K": k, "candidates": product_key_topk or k, "weighting": weighting, "activation": activation_name(activation)}
        super().__init__(arrays, settings)


class SAE(Made):
    """A sparse autoencoder: y = z D + b, where z are the `topk` greatest of act((x - b) E + b_E); `topk` of 0 keeps all.

    The decoder begins with random rows of length 1 and the encoder as its transpose (Gao et al. 2024, A.1). Losses are in
    fmoe.torch.losses: l1 of module(x, ("y", "coefficients")), and auxk.
    """

    def __init__(self, d_in: int, d_sae: int, *, topk: int = 0, activation: Any = "relu") -> None:
        decoder = torch.nn.functional.normalize(torch.randn(d_sae, d_in), dim=-1)
        arrays = {"W_enc": decoder.T.clone(), "b_enc": torch.zeros(d_sae), "W_dec": decoder, "b_dec": torch.zeros(d_in)}
        super().__init__(arrays, {"K": count(topk, "topk") or -1, "activation": activation_name(activation)})


class TuckerMuMoE(Made):
    """A muMoE layer whose weight is a Tucker product (Oldfield et al. 2024, App. B.2).

    `ranks` are those of the core: one for each level of experts, then those of the inputs and the outputs. The authors published no such
    layer: the factors of experts begin as those of their CP layer, normal ones around 1 in the first level and ones in the others, and
    the core and the other factors as torch.nn.Linear does.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        expert_dims: Sequence[int],
        ranks: Sequence[int],
        normalization: str | None = "bn",
        act: Any = "entmax15",
        use_bias: bool = True,
    ) -> None:
        if len(ranks) != len(expert_dims) + 2:
            raise ValueError(f"ranks are {len(expert_dims) + 2} numbers: one for each level, of the inputs and of the outputs")
        if normalization not in ("bn", "ln", None):
            raise ValueError(f'normalization is "bn", "ln" or None, and not {normalization}')
        arrays = numbered("projs", [torch.zeros(input_dim, n) for n in expert_dims])
        if normalization == "bn":
            for e, n in enumerate(expert_dims):
                arrays |= {f"bn.{e}.running_mean": torch.zeros(n), f"bn.{e}.running_var": torch.ones(n)}
        *of_experts, q, r = ranks
        factors: list[Tensor] = [1 + (torch.randn(n, p) if e == 0 else torch.zeros(n, p)) for e, (n, p) in enumerate(zip(expert_dims, of_experts))]
        factors += [uniform((input_dim + int(use_bias), q), input_dim), uniform((output_dim, r), r)]
        arrays |= numbered("MuMoE.factors", factors)
        arrays["MuMoE.core"] = uniform(tuple(ranks), math.prod(ranks[:-1]))
        norm = {"bn": "batch", "ln": "layer", None: "none"}[normalization]
        super().__init__(arrays, {"activation": activation_name(act), "norm": norm})

# SPDX-License-Identifier: MIT
"""Monet's modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .._arrays import count
from ._modules import Made, activation_name, normal


def _router(hidden_size: int, heads: int, experts: int) -> dict[str, Tensor]:
    arrays: dict[str, Tensor] = {}
    for i in (1, 2):
        arrays[f"w{i}.weight"] = normal(heads * experts, hidden_size)
        arrays[f"norm{i}.running_mean"] = torch.zeros(heads)
        arrays[f"norm{i}.running_var"] = torch.ones(heads)
    return arrays


def _experts(hidden_size: int, moe_dim: int, experts: int, form: str) -> dict[str, Tensor]:
    d, s, h, half = hidden_size, experts, experts * moe_dim, hidden_size // 2
    if form == "horizontal":
        return {"u.weight": normal(h, d), "u.bias": torch.zeros(h), "v.weight": normal(d, h), "b": torch.zeros(s, d)}
    if form != "vertical":
        raise ValueError(f'moe_decompose is "vertical" or "horizontal", and not {form}')
    arrays: dict[str, Tensor] = {}
    for i in (1, 2):
        arrays |= {f"u{i}.weight": normal(h // 2, d), f"u{i}.bias": torch.zeros(h // 2)}
        arrays |= {f"v{i}{j}.weight": normal(half, h // 2) for j in (1, 2)}
        arrays[f"b{i}"] = torch.zeros(s, half)
    return arrays


def _within(part: str, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}.{name}": value for name, value in arrays.items()}


def _activation(hidden_act: Any) -> str:
    name = activation_name(hidden_act)
    return {"relu2": "squared_relu", "relusquaredactivation": "squared_relu"}.get(name, name)


class Monet(Made):
    """A router of Monet and the layer behind it (Park et al. 2024): y = moe(x, *router(x)), by the authors' names.

    It begins as the authors' model does, with normal weights of 0.02 and without biases. The router is trained with the rest; the
    authors' published class, which fine-tunes, does not train it: module.router.requires_grad_(False). The first layer of a group gives
    the others its routing: y, g1, g2 = first(x, ("y", "g1", "g2")), and each of them is a MonetExperts.
    """

    def __init__(
        self,
        hidden_size: int,
        moe_dim: int,
        moe_heads: int,
        moe_experts: int,
        moe_topk: int,
        moe_decompose: str = "vertical",
        hidden_act: Any = "relu2",
    ) -> None:
        arrays = _within("router", _router(hidden_size, moe_heads, moe_experts))
        arrays |= _within("moe", _experts(hidden_size, moe_dim, moe_experts, moe_decompose))
        settings = {"K": count(moe_topk, "moe_topk", 1), "heads": moe_heads, "activation": _activation(hidden_act)}
        super().__init__(arrays, settings)


class MonetExperts(Made):
    """The experts of a Monet layer whose router is another module: y = experts(x, g1, g2), where g1 and g2 have gradients.

    `moe_decompose` is "vertical", as the authors' MonetMoVDE, or "horizontal", as MonetMoHDE. The names of parameters are theirs,
    behind "moe.". A group of layers shares the routing of the x of its first layer:

    >>> g1, g2 = router(x)        # a MonetRouter
    >>> y = experts(x, g1, g2)
    """

    def __init__(
        self, hidden_size: int, moe_dim: int, moe_experts: int, moe_decompose: str = "vertical", hidden_act: Any = "relu2"
    ) -> None:
        arrays = _within("moe", _experts(hidden_size, moe_dim, moe_experts, moe_decompose))
        super().__init__(arrays, {"activation": _activation(hidden_act)})

    def forward(self, x: Tensor, g1: Tensor, g2: Tensor) -> Any:  # type: ignore[override]
        return super().forward(x, routing=(g1, g2))


class MonetRouter(nn.Module):
    """Monet's adaptive router (Park et al. 2024, Sec. 3.3): x -> g1, g2, both [..., head, half], as the authors' class of this name.

    A head keeps the experts whose score, divided by a batch norm of the head, is in the upper moe_topk / moe_experts of a normal
    distribution, and the best one at least, and weighs them by a softmax. In training the batch norm takes the statistics of the call's
    tokens, without gradients, and moves the running ones.
    """

    def __init__(self, hidden_size: int, moe_heads: int, moe_experts: int, moe_topk: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        k = count(moe_topk, "moe_topk", 1)
        if k > moe_experts:
            raise ValueError(f"moe_topk is {k}, and a head has {moe_experts} experts")
        self.heads, self.epsilon = moe_heads, epsilon
        self.quantile = float(torch.special.ndtri(torch.tensor(1 - k / moe_experts)))
        arrays = _router(hidden_size, moe_heads, moe_experts)
        for i in (1, 2):
            self.add_module(f"w{i}", nn.Linear(hidden_size, moe_heads * moe_experts, bias=False))
            self.add_module(f"norm{i}", nn.BatchNorm1d(moe_heads, eps=epsilon, affine=False))
        self.load_state_dict(arrays, strict=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._side(x, 1), self._side(x, 2)

    def _side(self, x: Tensor, i: int) -> Tensor:
        scores: Tensor = getattr(self, f"w{i}")(x).unflatten(-1, (self.heads, -1))
        with torch.no_grad():
            by_head = scores.transpose(-1, -2)
            normed = getattr(self, f"norm{i}")(by_head.reshape(-1, self.heads)).reshape(by_head.shape).transpose(-1, -2)
            bound = normed.amax(-1, keepdim=True).clamp(max=self.quantile)
        return scores.masked_fill(normed < bound, -torch.inf).softmax(-1)

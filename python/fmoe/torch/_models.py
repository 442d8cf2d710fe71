# SPDX-License-Identifier: MIT
"""Layers in the place of others in a model, and how much of the model they keep."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._arrays import count, items, shown, text


@contextlib.contextmanager
def replace(model: nn.Module, name: str, module: nn.Module) -> Iterator[nn.Module]:
    """Puts a module in the place of a part of a model, and gives the part back on leaving.

    `name` is that of model.named_modules(), such as "model.layers.8.mlp". The module takes and returns what the part does, and is set
    to the part's mode, training or evaluation. Raises ValueError if the model has no such part.

    >>> with fmoe.torch.replace(model, "model.layers.8.mlp", module):
    ...     logits = model(tokens).logits
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"fmoe.torch.replace puts a torch.nn.Module into the model, and not {shown(module)}")
    path, _, own = text(name, "name").rpartition(".")
    try:
        parent = model.get_submodule(path)
        part = model.get_submodule(name)
    except AttributeError:
        raise ValueError(f"the model has no part {name!r}: dict(model.named_modules()) lists the names") from None
    if part is model:
        raise ValueError("the name is empty, and that of a part of the model is expected")
    module.train(part.training)
    _put(parent, own, module)
    try:
        yield module
    finally:
        _put(parent, own, part)


def _put(parent: nn.Module, name: str, module: nn.Module) -> None:
    if isinstance(parent, (nn.ModuleList, nn.Sequential)):
        parent[int(name)] = module
    else:
        setattr(parent, name, module)


class Hooked(nn.Module):
    """A module whose results beside y pass through modules of their own, where hooks of PyTorch see them.

    >>> hooked = fmoe.torch.Hooked(module, ["coefficients"])
    >>> hooked.coefficients.register_forward_hook(lambda _, inputs, a: seen.append(a))
    >>> y = hooked(x)            # as module(x)

    Names are those of fmoe.Layer.result; of "coefficients[1]" the part is coefficients_1. What a hook returns does not change y.
    """

    def __init__(self, module: nn.Module, outputs: Sequence[str]) -> None:
        super().__init__()
        self.module = module
        self._outputs = [text(name, "an output") for name in items(outputs, "outputs")]
        for name in self._outputs:
            if not name.replace("[", "_").replace("]", "").isidentifier() or hasattr(self, _part(name)):
                raise ValueError(f"a part cannot have the name {name!r}")
            self.add_module(_part(name), nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        y, *seen = self.module(x, ("y", *self._outputs))
        for name, a in zip(self._outputs, seen, strict=True):
            getattr(self, _part(name))(a)
        made: Tensor = y
        return made


def _part(name: str) -> str:
    return name.replace("[", "_").replace("]", "")


class Recovered(NamedTuple):
    """How much of a language model a layer keeps in the place of a part: losses and KL in nats of a token."""

    original: float  # the cross-entropy of the model
    replaced: float  # with the layer in place of the part
    without: float  # with zeros in place of the part's output
    recovered: float  # (without - replaced) / (without - original): 1 keeps the loss, and 0 is no better than zeros
    kl: float  # the mean of KL(the model's distribution of the next token, that with the layer)
    identical: float | None  # the share of prompts whose greedy continuation is the same; None where none is asked for


def cross_entropy_recovered(
    model: nn.Module,
    name: str,
    module: nn.Module,
    batches: Iterable[Any],
    *,
    logits: Callable[[Any], Tensor] | None = None,
    prompt: int = 0,
    continuation: int = 0,
) -> Recovered:
    """Measures a language model with a module in the place of a part, as MxD's Fig. 3 and its App. B.1 do (Oldfield et al. 2025).

    `batches` are tensors of tokens [b, t], or mappings of arguments of the model with "input_ids", whose positions with an
    "attention_mask" of 0 do not count. `logits` takes them from what the model returns: its attribute of this name, or the tensor itself.
    Cross-entropies are those of the next token, over all tokens of all batches. With `continuation`, the first `prompt` tokens of each
    row are continued by so many tokens, each the most likely one, by the model and with the module.
    """
    count(prompt, "prompt"), count(continuation, "continuation")
    if continuation and not prompt:
        raise ValueError("continuations need a prompt, the number of tokens that each row gives")
    of = logits or _logits

    def made(arguments: Mapping[str, Any]) -> Tensor:
        return of(model(**arguments))

    sums = dict.fromkeys(("original", "replaced", "without", "kl"), 0.0)
    tokens = rows = same = 0
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for batch in batches:
                arguments = dict(batch) if isinstance(batch, Mapping) else {"input_ids": batch}
                ids = arguments["input_ids"]
                mask = arguments.get("attention_mask")
                counts = torch.ones_like(ids[:, 1:], dtype=torch.bool) if mask is None else (mask[:, 1:] * mask[:, :-1]).bool()
                by: dict[str, Tensor] = {}
                own = made(arguments)
                with replace(model, name, module):
                    by["replaced"] = made(arguments)
                with replace(model, name, _Zeros(model.get_submodule(name))):
                    by["without"] = made(arguments)
                by["original"] = own
                wanted = ids[:, 1:][counts]
                logs = {key: a[:, :-1][counts].float().log_softmax(-1) for key, a in by.items()}
                for key, log in logs.items():
                    sums[key] -= log.gather(-1, wanted[:, None]).double().sum().item()
                p = logs["original"]
                sums["kl"] += (p.exp() * (p - logs["replaced"])).double().sum().item()
                tokens += len(wanted)
                if continuation:
                    continued = _continued(made, ids[:, :prompt], continuation)
                    with replace(model, name, module):
                        other = _continued(made, ids[:, :prompt], continuation)
                    same += int((continued == other).all(-1).sum())
                    rows += len(ids)
    finally:
        model.train(was_training)
    if tokens == 0:
        raise ValueError("the batches have no token with another one before it")
    means = {key: value / tokens for key, value in sums.items()}
    lost = means["without"] - means["original"]
    share = (means["without"] - means["replaced"]) / lost if lost else float("nan")
    return Recovered(means["original"], means["replaced"], means["without"], share, means["kl"], same / rows if rows else None)


class _Zeros(nn.Module):
    """Zeros in place of the output of a part."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, *args: Any, **named: Any) -> Any:
        y = self.part(*args, **named)
        return torch.zeros_like(y) if isinstance(y, Tensor) else type(y)((torch.zeros_like(y[0]), *y[1:]))


def _logits(made: Any) -> Tensor:
    found = made if isinstance(made, Tensor) else getattr(made, "logits", None)
    if not isinstance(found, Tensor):
        raise TypeError(f"the model returns {type(made).__name__}, which has no logits: pass a function `logits` that takes them from it")
    return found


def _continued(made: Callable[[Mapping[str, Any]], Tensor], ids: Tensor, tokens: int) -> Tensor:
    for _ in range(tokens):
        ids = torch.cat([ids, made({"input_ids": ids})[:, -1].argmax(-1, keepdim=True)], -1)
    return ids

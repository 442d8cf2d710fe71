# SPDX-License-Identifier: MIT
"""Modules that stand in for those of the papers' authors."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn

from .. import _layers
from .._arrays import Path, count, count_or_none, items, text
from . import _operators
from ._operators import Runner, Weight


class Layer(nn.Module):
    """A layer of any kind. Parameters, statistics and state_dict have the names that files of the layer have."""

    def __init__(self, layer: _layers.Layer, names: Collection[str] = ()) -> None:
        """Takes the weights of a layer. Where its kind has two names for a parameter, those of `names` count."""
        if not isinstance(layer, _layers.Layer):
            raise TypeError(f"fmoe.torch.Layer takes an fmoe.Layer, as fmoe.load returns it, and not {type(layer).__name__}")
        super().__init__()
        self._settings = layer.settings
        self._keep = 0
        self._bind(Runner(layer._core, names))
        for w in self._runner.weights:
            part, name = self._place(w, make=True)
            lent = w.lend()
            value = w.as_file(w.held) if lent is None else lent
            if w.trained:
                part.register_parameter(name, nn.Parameter(value))
            else:
                part.register_buffer(name, value)
            if name == "running_mean":  # batch norms of PyTorch count their calls in training
                part.register_buffer("num_batches_tracked", torch.tensor(0))

    def _bind(self, runner: Runner) -> None:
        self._runner = runner
        self._handle = runner.handle
        lengths = {w.name: w.file_shape[0] for w in runner.weights}
        heads = lengths.get("router.norm1.running_mean", 1)
        self._scores = lengths.get("router.w1.weight", heads) // heads  # of a token, for each running variance

    def _place(self, w: Weight, make: bool = False) -> tuple[nn.Module, str]:
        """The part that holds a weight, and its name there."""
        *path, name = w.name.split(".")
        part: nn.Module = self
        for step in path:
            if make and step not in part._modules:
                part.add_module(step, nn.Module())
            part = getattr(part, step)
        return part, name

    def _weights(self) -> tuple[list[Tensor], list[Tensor]]:
        """The parameters and the statistics."""
        weights: tuple[list[Tensor], list[Tensor]] = [], []
        for w in self._runner.weights:
            weights[not w.trained].append(getattr(*self._place(w)))
        return weights

    @overload
    def forward(self, x: Tensor, *, routing: Sequence[Tensor] | None = None) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, outputs: Sequence[str], routing: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]: ...
    def forward(self, x: Tensor, outputs: Sequence[str] | None = None, routing: Sequence[Tensor] | None = None) -> Any:
        """[..., input] -> [..., output]; leading axes count tokens. The arithmetic is float32, and y has the type of x.

        `outputs` are names of fmoe.Layer.result, such as ("y", "coefficients"). The call then returns a tuple of these, which are
        planned together, and each of them has gradients but for "indices", which are integers. `routing` is g1 and g2 of a Monet layer
        whose router is another layer's, both [..., head, half], and has gradients.

        Raises ValueError in training for a muMoE with batch norms and a single token, whose variance does not exist: nothing has
        changed then.
        """
        sides = [] if routing is None else items(routing, "routing")
        if routing is not None and len(sides) != 2:
            raise TypeError(f"routing is the two tensors g1 and g2, and not {len(sides)}")
        for name, a in zip(("x", "g1", "g2"), (x, *sides)):
            _expects_rows(a, name)
        if any(g.shape[:-2] != x.shape[:-1] for g in sides):
            raise ValueError(f"g1 and g2 are [..., head, half] with the leading axes of x, which is {list(x.shape)}")
        weights, statistics = self._weights()
        _operators.expects_place(x, weights, statistics)
        _operators.expects_reverse_mode(x, [*sides, *weights])
        if self.training and statistics and x[..., :1].numel() * self._scores == 1:
            raise ValueError(
                "a batch norm in training takes the variance of more than 1 number, and there is 1 token: pass more, or call module.eval()"
            )
        names = ["y"] if outputs is None else items(outputs, "outputs")
        joined = ",".join(text(name, "an output") for name in names)
        made = _operators.layer(x, sides, weights, statistics, self._handle, self.training, self._keep, joined)
        if self.training and statistics:
            with torch.no_grad():
                _operators.update_statistics(x.detach(), weights, statistics, self._handle, 0.1)
                for name, count in self.named_buffers():
                    if name.endswith("num_batches_tracked"):
                        count += 1
        return made[0] if outputs is None else tuple(made)

    def coefficients(self, x: Tensor, level: int = 0) -> Tensor:
        """The coefficients of the experts of one level, [..., expert], with gradients."""
        made: tuple[Tensor] = self(x, [f"coefficients[{level}]" if count(level, "level") else "coefficients"])
        return made[0]

    def routing(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the router of a Monet layer gives the halves of its experts, g1 and g2, both [..., head, half], with gradients."""
        g1, g2 = self(x, ("g1", "g2"))
        return g1, g2

    def keep(self, k: int | None) -> None:
        """From now on each top-k keeps k entries, at most as many as the layer's K; None keeps these."""
        self._keep = count_or_none(k, "k") or 0

    def refresh(self) -> None:
        """Lets the next call read all weights again. After writes that PyTorch does not count: through p.data and numpy."""
        self._runner.forget()

    def layer(self) -> _layers.Layer:
        """The fmoe.Layer of copies of the weights as they are now, to take it apart. Later steps of training do not change it."""
        weights = self._weights()
        _operators.expects_place(torch.empty(0), *weights)
        return self._runner.at(weights).copied(weights)

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self._settings.items())

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        weights, statistics = self._weights()
        if not all(w.is_at(given) for w, given in self._runner.pairs(weights, statistics) if w.is_lent):
            self._take_weights(_layers.Layer(self._runner.core))
        return self

    def _take_weights(self, layer: _layers.Layer) -> None:
        """Moves parameters of float32 to new memory that fmoe reads, so that they are not copied.

        Those in memory that other processes share stay there.
        """
        self._bind(Runner(layer._core, self.state_dict()))
        for w in self._runner.weights:
            given = getattr(*self._place(w))
            may_move = given.device.type == "cpu" and given.dtype == torch.float32 and not given.is_shared()
            if may_move and (lent := w.lend()) is not None:
                given.data = lent.copy_(given.detach())

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_runner"], state["_handle"], state["_scores"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._take_weights(_of_tensors(self.state_dict(), self._settings))


def _expects_rows(x: Tensor, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"fmoe.torch takes tensors of PyTorch, and {name} is of type {type(x).__name__}: pass torch.as_tensor({name})")
    if x.device.type != "cpu":
        raise ValueError(f"fmoe.torch runs on the CPU, and {name} is on {x.device}: pass {name}.cpu()")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(f"fmoe.torch computes in float32, and {name} is {x.dtype}: pass {name}.float()")


def _of_tensors(tensors: Mapping[str, Tensor], settings: Mapping[str, str]) -> _layers.Layer:
    """The layer of these weights, or where they are on another device of ones, which no call reads."""
    numbers = {name: value for name, value in tensors.items() if value.is_floating_point()}
    here = {name: value if value.device.type == "cpu" else torch.ones(value.shape, device="cpu") for name, value in numbers.items()}
    return _layers.from_arrays({name: value.detach() for name, value in here.items()}, metadata=settings)


def load(
    file: Path,
    prefix: str = "",
    *,
    active: int | None = None,
    narrow: bool = False,
    metadata: Mapping[str, str] | None = None,
    extra: list[str] | None = None,
) -> Layer:
    """The module of the one layer that a file or a checkpoint holds: see fmoe.load."""
    return Layer(_layers.load(file, prefix, active=active, narrow=narrow, metadata=metadata, extra=extra))


_ACTIVATIONS = {"geluactivation": "gelu", "gelutanh": "gelu_tanh", "pytorchgelutanh": "gelu_tanh", "siluactivation": "silu"}


def activation_name(f: Any) -> str:
    """The name of a function: of its text, of a function or module of PyTorch, or of gelu as megablocks has it by default."""
    if isinstance(f, functools.partial):
        settings = dict(f.keywords)
        approximation = settings.pop("approximate", "none")
        if f.args or settings or f.func is not nn.functional.gelu:
            raise ValueError(f"fmoe does not know the function {f}: pass the name of one")
        return {"tanh": "gelu_tanh", "none": "gelu"}[approximation]
    if isinstance(f, nn.GELU):
        return activation_name(functools.partial(nn.functional.gelu, approximate=f.approximate))
    if isinstance(f, nn.Module):
        name = type(f).__name__.lower()
        return _ACTIVATIONS.get(name, name)
    return str(getattr(f, "__name__", f))


class Made(Layer):
    """A layer with initial weights."""

    def __init__(self, arrays: Mapping[str, Tensor], settings: Mapping[str, Any]) -> None:
        texts = {key: str(value) for key, value in settings.items() if value is not None}
        super().__init__(_of_tensors(arrays, texts), arrays)
        if any(value.is_meta for value in arrays.values()):  # under torch.device("meta")
            self.to("meta")


def uniform(shape: Sequence[int], inputs: int) -> Tensor:
    """As torch.nn.Linear begins: uniform between -1 / sqrt(inputs) and 1 / sqrt(inputs)."""
    return torch.empty(*shape).uniform_(-1 / math.sqrt(inputs), 1 / math.sqrt(inputs))


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape) * 0.02


class _Sparse(Made):
    """What the MxD authors' class SparseAutoencoder has in all of its forms."""

    def __init__(
        self, d_in: int, d_sae: int, d_out: int, topk: int, activation: str, use_skip: bool, **others: Tensor
    ) -> None:
        """`others` are the decoder W_dec, and what only some forms have."""
        arrays = {
            "W_enc": uniform((d_in, d_sae), d_in),
            "b_enc": torch.zeros(d_sae),
            "b_dec_out": torch.zeros(d_out),
            **others,
        }
        if use_skip:
            arrays["W_skip.weight"] = torch.zeros(d_in, d_in)
        activation = {"gelu_pytorch_tanh": "gelu_tanh"}.get(activation, activation)
        super().__init__(arrays, {"K": count(max(topk, 0), "topk") or -1, "activation": activation})
        self.b_dec = nn.Parameter(torch.zeros(d_in))  # of an autoencoder; the authors' module has it in each form


class MxD(_Sparse):
    """A mixture of decoders (Oldfield et al. 2025), with the names and the first weights of the authors' class.

    `topk` is K, and 0 keeps all positive coefficients. It returns y alone, without losses.
    """

    def __init__(
        self,
        d_in: int,
        d_sae: int,
        n_experts: int,
        d_out: int | None = None,
        *,
        topk: int = 32,
        mlp_activation_fn: str = "gelu",
        use_glu: bool = False,
        use_skip: bool = False,
    ) -> None:
        d_out = d_out or d_in
        others = {
            "gate": uniform((n_experts, d_in), d_in),
            "gate_bias": torch.zeros(n_experts),
            "W_cond": uniform((d_out, n_experts), n_experts),
            "W_dec": torch.zeros(d_sae, d_out),
        }
        if use_glu:
            others |= {"W_glu.weight": uniform((d_sae, d_in), d_in), "W_glu.bias": uniform((d_sae,), d_in)}
        super().__init__(d_in, d_sae, d_out, topk, mlp_activation_fn, use_skip, **others)


class Transcoder(_Sparse):
    """A transcoder, or a skip transcoder, as the MxD authors' class makes it. `topk` below 1 keeps all units."""

    def __init__(
        self,
        d_in: int,
        d_sae: int,
        d_out: int | None = None,
        *,
        topk: int = 32,
        mlp_activation_fn: str = "relu",
        use_skip: bool = False,
    ) -> None:
        d_out = d_out or d_in
        decoder = torch.zeros(d_sae, d_out) if use_skip else uniform((d_sae, d_out), d_sae)
        super().__init__(d_in, d_sae, d_out, topk, mlp_activation_fn, use_skip, W_dec=decoder)


class MuMoE(Made):
    """A muMoE layer or block (Oldfield et al. 2024), with the names and the first weights of the authors' class.

    `MuMoE_layer` is "cp" or "tr", or the authors' class CPMuMoE or TRMuMoE, and `ranks` the rank of CP, or for TR the cores
    [[r1, n, r2], ..., [r2, i, r3], [r3, o, r1]], whose middle lengths do not count. As theirs, it takes [b, t, i] and [b, i], which
    is taken for [b, 1, i].
    """

    def __init__(
        self,
        MuMoE_layer: Any,
        input_dim: int,
        output_dim: int,
        expert_dims: Sequence[int],
        ranks: Any,
        second_dim: int = 0,
        normalization: str | None = "bn",
        act: Any = "entmax15",
        use_bias: bool = True,
        hierarchy: int | None = None,
        apply_ln: bool = False,
    ) -> None:
        kind = {"CPMuMoE": "cp", "TRMuMoE": "tr"}.get(*[getattr(MuMoE_layer, "__name__", MuMoE_layer)] * 2)
        if kind not in ("cp", "tr"):
            raise ValueError(f'MuMoE_layer is "cp" or "tr", and not {kind}')
        if normalization not in ("bn", "ln", None):
            raise ValueError(f'normalization is "bn", "ln" or None, and not {normalization}')
        factors = _cp_factors if kind == "cp" else _tr_factors
        arrays = numbered("projs", [torch.zeros(input_dim, n) for n in expert_dims])
        if normalization == "bn":
            for e, n in enumerate(expert_dims):
                arrays |= {f"bn.{e}.running_mean": torch.zeros(n), f"bn.{e}.running_var": torch.ones(n)}
        if apply_ln:
            arrays |= {"input_ln.weight": torch.ones(input_dim), "input_ln.bias": torch.zeros(input_dim)}
        bias = int(use_bias)
        arrays |= numbered("MuMoE.factors", factors(expert_dims, input_dim, bias, output_dim, ranks))
        if second_dim > 0:
            arrays |= numbered("MuMoE2.factors", factors(expert_dims, output_dim, bias, second_dim, ranks))
        norm = {"bn": "batch", "ln": "layer", None: "none"}[normalization]
        super().__init__(arrays, {"activation": activation_name(act), "norm": norm})

    def forward(self, x: Tensor, outputs: Any = None, routing: Any = None) -> Any:
        return super().forward(x.unsqueeze(1) if x.dim() == 2 else x, outputs, routing)


def numbered(name: str, parts: Sequence[Tensor]) -> dict[str, Tensor]:
    return {f"{name}.{i}": part for i, part in enumerate(parts)}


def _cp_factors(experts: Sequence[int], inputs: int, bias: int, outputs: int, rank: int) -> list[Tensor]:
    first = torch.randn(experts[0], rank) + 1
    others = [torch.ones(n, rank) for n in experts[1:]]
    return [first, *others, uniform((inputs + bias, rank), inputs), uniform((outputs, rank), rank)]


def _tr_factors(experts: Sequence[int], inputs: int, bias: int, outputs: int, cores: Sequence[Sequence[int]]) -> list[Tensor]:
    *of_experts, of_input, of_output = [(core[0], core[2]) for core in cores]
    made = []
    for e, (n, (left, right)) in enumerate(zip(experts, of_experts, strict=True)):
        diagonals = 1 + (torch.randn(n, left, right) if e == 0 else torch.zeros(n, left, right))
        made.append((torch.eye(left, right) * diagonals).transpose(0, 1).contiguous())
    made.append(uniform((of_input[0], inputs + bias, of_input[1]), inputs))
    made.append(uniform((of_output[0], outputs, of_output[1]), of_output[0] * of_output[1]))
    return made


class AoE(Made):
    """A layer of autonomous experts (Lv et al. 2025), by the names of the authors' class VanillaAoE and of megablocks' settings.

    The weights are normal ones of 0.02. The coefficients are the softmax over all experts, as in the released code.
    `activation` is a name, or a function or a module of PyTorch.
    """

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        moe_num_experts: int,
        d_low: int,
        moe_top_k: int = 1,
        activation: Any = "silu",
        bias: bool = True,
    ) -> None:
        rows = moe_num_experts * ffn_hidden_size
        arrays = {
            "wg": normal(hidden_size, moe_num_experts * d_low),
            "experts.mlp.wup": normal(rows, d_low),
            "experts.mlp.v1": normal(rows, hidden_size),
            "experts.mlp.w2": normal(rows, hidden_size),
        }
        if bias:
            arrays["experts.bias"] = torch.zeros(hidden_size)
        k = count(moe_top_k, "moe_top_k", 1)
        super().__init__(arrays, {"K": k, "weighting": "released", "activation": activation_name(activation)})

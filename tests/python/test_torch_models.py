# SPDX-License-Identifier: MIT
"""Layers of fmoe in the place of a part of a language model."""
import math
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

import fmoe.torch as ft


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, h):
        return h + self.mlp(h) + 0.1 * h.cumsum(1)


class Model(nn.Module):
    """A language model of two blocks, which returns what models of transformers return."""

    def __init__(self, d=16, tokens=11):
        super().__init__()
        self.embed, self.layers = nn.Embedding(tokens, d), nn.ModuleList([Block(d), Block(d)])
        self.head = nn.Linear(d, tokens)

    def forward(self, input_ids, attention_mask=None):
        h = self.embed(input_ids)
        for layer in self.layers:
            h = layer(h)
        return SimpleNamespace(logits=self.head(h))


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = Model()
    with torch.no_grad():
        for p in made.parameters():
            p.mul_(2)
    return made


def layer():
    m = ft.MxD(16, 24, 40, topk=6)
    with torch.no_grad():
        m.W_dec.normal_(std=0.3)
    return m


def test_a_layer_stands_in_for_a_part_and_goes_again(model):
    part, m = model.layers[1].mlp, layer()
    ids = torch.randint(11, (3, 7))
    before = model(ids).logits
    model.eval()
    with ft.replace(model, "layers.1.mlp", m) as placed:
        assert placed is m and model.layers[1].mlp is m and not m.training
        h = model.layers[0](model.embed(ids))
        wanted = model.head(h + m(h) + 0.1 * h.cumsum(1))
        assert torch.allclose(model(ids).logits, wanted)
        assert {n for n, _ in model.named_parameters()} >= {"layers.1.mlp.gate"}
        model(ids).logits.square().mean().backward()
        assert m.gate.grad.abs().max() > 0 and model.embed.weight.grad.abs().max() > 0
    assert model.layers[1].mlp is part and torch.equal(model(ids).logits, before)
    with pytest.raises(RuntimeError, match="inside"), ft.replace(model, "layers.0", nn.Identity()):
        raise RuntimeError("inside")
    assert isinstance(model.layers[0], Block)
    for name, sentence in (("layers.7.mlp", "no part 'layers.7.mlp'"), ("", "the name is empty")):
        with pytest.raises(ValueError, match=sentence), ft.replace(model, name, m):
            pass
    with pytest.raises(TypeError, match="a torch.nn.Module"), ft.replace(model, "layers.0", 3):
        pass


def test_hooks_see_coefficients_of_a_layer_in_a_model(model):
    m, seen, ids = layer(), [], torch.randint(11, (3, 7))
    hooked = ft.Hooked(m, ["coefficients", "indices"])
    hooked.coefficients.register_forward_hook(lambda _, inputs, a: seen.append(a))
    with ft.replace(model, "layers.1.mlp", hooked):
        shown = model(ids).logits
    with ft.replace(model, "layers.1.mlp", m):
        assert torch.equal(model(ids).logits, shown)
    (a,) = seen
    assert torch.equal(a, m.coefficients(model.layers[0](model.embed(ids)))) and a.requires_grad
    two = ft.MuMoE("cp", 16, 16, [4, 3], 5)
    assert ft.Hooked(two, ["coefficients[1]"]).eval()(torch.randn(5, 16)).shape == (5, 1, 16)
    with pytest.raises(ValueError, match="cannot have the name 'module'"):
        ft.Hooked(m, ["module"])


def test_the_share_of_the_loss_that_a_layer_recovers(model):
    m = layer()
    batches = [torch.randint(11, (3, 7)), {"input_ids": torch.randint(11, (2, 5)), "attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])}]
    model.train()
    made = ft.cross_entropy_recovered(model, "layers.1.mlp", m, batches, prompt=3, continuation=4)
    assert model.training and isinstance(model.layers[1].mlp, nn.Sequential)

    def losses(part):
        """The cross-entropy of each token that counts, and its logits."""
        found, logits = [], []
        for batch in batches:
            ids = batch if isinstance(batch, torch.Tensor) else batch["input_ids"]
            with torch.no_grad():
                h = model.layers[0](model.embed(ids))
                rows = model.head(h + part(h) + 0.1 * h.cumsum(1))
            for b in range(len(ids)):
                last = ids.shape[1] if isinstance(batch, torch.Tensor) else int(batch["attention_mask"][b].sum())
                found += [F.cross_entropy(rows[b, t], ids[b, t + 1]).item() for t in range(last - 1)]
                logits += [rows[b, t] for t in range(last - 1)]
        return sum(found) / len(found), torch.stack(logits).log_softmax(-1)

    original, p = losses(model.layers[1].mlp)
    replaced, q = losses(m.eval())
    without, _ = losses(torch.zeros_like)
    for a, b in ((made.original, original), (made.replaced, replaced), (made.without, without)):
        assert math.isclose(a, b, rel_tol=1e-5)
    assert math.isclose(made.recovered, (without - replaced) / (without - original), rel_tol=1e-3)
    assert math.isclose(made.kl, (p.exp() * (p - q)).sum(-1).mean().item(), rel_tol=1e-4) and made.kl > 0
    assert made.identical in {k / 5 for k in range(6)}

    same = ft.cross_entropy_recovered(model, "layers.1.mlp", model.layers[1].mlp, batches, prompt=3, continuation=4)
    assert same.recovered == 1 and same.kl == 0 and same.identical == 1 and same.original == made.original
    assert ft.cross_entropy_recovered(model, "layers.1.mlp", m, batches).identical is None
    as_tensor = ft.cross_entropy_recovered(model, "layers.1.mlp", m, batches, logits=lambda made: made.logits.double())
    assert math.isclose(as_tensor.replaced, made.replaced, rel_tol=1e-6)


def test_what_cannot_be_measured_is_refused(model):
    with pytest.raises(ValueError, match="no token with another one before it"):
        ft.cross_entropy_recovered(model, "layers.1.mlp", layer(), [torch.randint(11, (3, 1))])
    with pytest.raises(ValueError, match="need a prompt"):
        ft.cross_entropy_recovered(model, "layers.1.mlp", layer(), [], continuation=3)
    model.forward = lambda input_ids: [input_ids]
    with pytest.raises(TypeError, match="the model returns list, which has no logits"):
        ft.cross_entropy_recovered(model, "layers.1.mlp", layer(), [torch.randint(11, (3, 4))])

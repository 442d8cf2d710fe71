# SPDX-License-Identifier: MIT
"""A group of Monet's layers shares the router of its first layer, which sees the x of that layer alone."""
import json

import numpy as np
import pytest

import fmoe

D, S, M, HEADS, K, TOKENS = 10, 6, 4, 2, 2, 7


def off(made, wanted):
    return np.abs(made - wanted).max() / np.abs(wanted).max()


def prefix(layer):
    return f"model.layers.{layer}."


def routed(x, keys):
    """One side of the router, [token, head, half], by loops in float64."""
    g = np.zeros((len(x), HEADS, S))
    for t in range(len(x)):
        for h in range(HEADS):
            scores = keys[h * S : (h + 1) * S].astype(np.float64) @ x[t].astype(np.float64)
            kept = np.argsort(-scores, kind="stable")[:K]
            g[t, h, kept] = np.exp(scores[kept]) / np.exp(scores[kept]).sum()
    return g


def output(arrays, layer, x, g1, g2, deleted=()):
    """The sum over all experts (i, j) of their probability times their output, by loops in float64."""
    u, c, v, b = (arrays[prefix(layer) + name].astype(np.float64) for name in ("moe.u.weight", "moe.u.bias", "moe.v.weight", "moe.b"))
    y = np.zeros((len(x), D))
    for t in range(len(x)):
        units = np.maximum(u @ x[t].astype(np.float64) + c, 0) ** 2
        for i in range(S):
            for j in range(S):
                expert = v[:, j * M : (j + 1) * M] @ units[i * M : (i + 1) * M] + b[j]
                y[t] += (i, j) not in deleted and (g1[t, :, i] * g2[t, :, j]).sum() * expert
    return y


@pytest.fixture
def group():
    """The arrays of layers 0 to 3, an input of each, the routing, and the outputs."""
    rng = np.random.default_rng(5)

    def weights(*shape):
        return rng.normal(size=shape).astype(np.float32)

    arrays = {prefix(0) + f"router.w{i}.weight": weights(HEADS * S, D) for i in (1, 2)}
    for layer in range(4):
        shapes = {"moe.u.weight": (S * M, D), "moe.u.bias": (S * M,), "moe.v.weight": (D, S * M), "moe.b": (S, D)}
        arrays |= {prefix(layer) + name: weights(*shape) for name, shape in shapes.items()}
    x = weights(4, TOKENS, D)
    g = [routed(x[0], arrays[prefix(0) + f"router.w{i}.weight"]) for i in (1, 2)]
    return arrays, x, g, [output(arrays, layer, x[layer], *g) for layer in range(4)]


@pytest.fixture
def model(group, tmp_path):
    """The folder of a model whose settings are those of config.json."""
    fmoe.write(tmp_path / "model.safetensors", group[0])
    config = {"model_type": "monet", "hidden_act": "relu2", "moe_topk": K, "moe_heads": HEADS, "moe_groups": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_group_takes_the_routing_of_its_first_layer(group, model):
    _, x, g, y = group
    first = fmoe.load(model, prefix(0))
    assert off(first(x[0]), y[0]) < 1e-5
    routing = first.routing(x[0])
    assert off(routing[0], g[0]) < 1e-5 and off(routing[1], g[1]) < 1e-5
    for n in (1, 2, 3):
        layer = fmoe.load(model, prefix(n))
        assert off(layer(x[n], routing=routing), y[n]) < 1e-5
        assert off(layer(x[n], routing=first.routing(x[n])), y[n]) > 1e-2  # which shows that x0 counts
        forward = layer.compile(TOKENS)
        assert off(forward(x[n], *routing), y[n]) < 1e-5
        both = fmoe.compile(layer(fmoe.input(0), routing=first.routing(fmoe.input(1))), TOKENS)
        assert off(both(x[n], x[0]), y[n]) < 1e-5
        with pytest.raises(TypeError, match="takes 3 inputs, and not 1"):
            forward(x[n])


def test_the_forms_of_a_call(group, model):
    _, x, g, y = group
    first, layer = fmoe.load(model, prefix(0)), fmoe.load(model, prefix(2))
    routing = first.routing(x[0])
    out = np.empty((TOKENS, D), np.float32)
    assert layer(x[2], out=out, routing=routing) is out and off(out, y[2]) < 1e-5
    assert off(layer(x[2].astype(np.float64), routing=g), y[2]) < 1e-13
    leading = layer(x[2][:6].reshape(2, 3, D), routing=first.routing(x[0][:6].reshape(2, 3, D)))
    assert leading.shape == (2, 3, D) and off(leading.reshape(6, D), y[2][:6]) < 1e-5
    assert off(layer(x[2][4], routing=first.routing(x[0][4])), y[2][4]) < 1e-5
    assert off(fmoe.evaluate(layer(fmoe.parameter(x[2]), routing=routing)), y[2]) < 1e-5
    # A layer with a router does not ask it if a routing is given.
    swapped = output(group[0], 0, x[0], g[1], g[0])
    assert off(first(x[0], routing=routing[::-1]), swapped) < 1e-5 and off(first(x[0]), y[0]) < 1e-5
    weights = layer.parameters
    weights["moe.b"] *= 2
    assert off(layer(x[2], routing=routing), y[2]) > 1e-2  # later calls read what was written
    with pytest.raises(TypeError, match="the two arrays g1 and g2"):
        layer(x[2], routing=[routing[0]])
    with pytest.raises(fmoe.ShapeError, match="an axis more than x"):
        layer(x[2], routing=(routing[0][0], routing[1][0]))
    with pytest.raises(fmoe.DomainError, match="this kind of layer has none"):
        fmoe.load("examples/data/minilm_l3_mxd_bf16.safetensors")(np.zeros((1, 384), np.float32), routing=routing)


def test_a_layer_that_nothing_tells_its_heads_takes_any_number_of_them(group):
    arrays, x, g, y = group
    layer = {name.removeprefix(prefix(1)): a for name, a in arrays.items() if name.startswith(prefix(1))}
    alone = fmoe.from_arrays(layer, metadata={"activation": "relu2"})
    g = [a.astype(np.float32) for a in g]
    assert off(alone(x[1], routing=g), y[1]) < 1e-5
    twice = [np.concatenate([a, a / 2], axis=1) for a in g]
    wanted = output(arrays, 1, x[1], *twice)
    assert off(alone(x[1], routing=twice), wanted) < 1e-5


def test_what_needs_the_router_is_refused(group, model):
    x, layer = group[1][3], fmoe.load(model, prefix(3))
    refused = pytest.raises(fmoe.DomainError, match="the layer has no router")
    for call in (layer, layer.routing, lambda x: layer.result("y", x), lambda _: layer(fmoe.input())):
        with refused:
            call(x)
    for call in (layer.coefficients, lambda x: layer.statistics([x], progress=False), lambda x: layer.expert_output(x, 0)):
        with pytest.raises(fmoe.DomainError, match="this kind of layer has none"):
            call(x)


def test_what_needs_no_router(group, model, tmp_path):
    arrays, x, exact, y = group
    g = [side.astype(np.float32) for side in exact]
    layer = fmoe.load(model, prefix(1))
    assert layer.settings == {"activation": "squared_relu", "heads": str(HEADS)}
    assert set(layer.arrays()) == {"moe.u.weight", "moe.u.bias", "moe.v.weight", "moe.b"}
    layer.save(tmp_path / "alone.safetensors")
    (tmp_path / "config.json").unlink()
    for again in (fmoe.load(tmp_path / "alone.safetensors"), fmoe.from_arrays(layer.arrays(), metadata=layer.settings)):
        assert off(again(x[1], routing=g), y[1]) < 1e-5
        with pytest.raises(fmoe.DomainError, match="the layer has no router"):
            again(x[1])
    without = layer.ablated([(1, 2), (3, 0), (5, 5)])
    assert off(without(x[1], routing=g), output(arrays, 1, x[1], *g, {(1, 2), (3, 0), (5, 5)})) < 1e-5
    assert 1e-4 < off(layer.quantize()(x[1], routing=g), y[1]) < 0.05
    assert "multiply-adds a token" in layer.explain(TOKENS).text
    assert layer.cost().factorized.multiply_adds > S * M * D


def test_gradients_of_a_layer_without_a_router(group, model):
    arrays, x, g, _ = group
    layer = fmoe.load(model, prefix(1))
    dy = np.random.default_rng(6).normal(size=(TOKENS, D)).astype(np.float32)
    b = layer.parameters["moe.b"]
    made = fmoe.evaluate(fmoe.gradient(layer(fmoe.parameter(x[1]), routing=g), b, dy))
    assert off(made, np.einsum("tpi,tpj,td->jd", *g, dy)) < 1e-5


def test_a_step_of_a_layer_without_a_router_has_the_gradients_of_its_routing(group, model):
    arrays, x, g, y = group
    layer = fmoe.load(model, prefix(1))
    x, g = x[1].astype(np.float32), [side.astype(np.float32) for side in g]
    dy = np.random.default_rng(6).normal(size=(TOKENS, D)).astype(np.float32)
    step = layer.compile_gradients(TOKENS)
    made, (dx, dg1, dg2), parameters = step(x, *g, dy)
    assert off(made, y[1]) < 1e-5
    operands = [fmoe.parameter(a.astype(np.float64)) for a in (x, *g)]
    output = layer(operands[0], routing=operands[1:])
    for right, of in zip((dx, dg1, dg2), operands):
        assert off(right, fmoe.evaluate(fmoe.gradient(output, of, dy.astype(np.float64)))) < 1e-5
    assert off(parameters["moe.b"], np.einsum("tpi,tpj,td->jd", *g, dy)) < 1e-5
    by_loss = layer.compile_gradients(TOKENS, loss=fmoe.losses.mse)
    by_loss(x, *g, dy)
    assert np.isclose(by_loss.loss, ((made - dy) ** 2).mean(), rtol=1e-5)
    with pytest.raises(TypeError, match="takes 4 arrays, and not 2"):
        step(x, dy)


def test_config_and_metadata_that_differ(group, tmp_path):
    fmoe.write(tmp_path / "model.safetensors", group[0], {"K": "3", "heads": str(HEADS)})
    config = {"moe_topk": K, "moe_groups": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(fmoe.FileError, match='has K = "3" in its metadata, and "2" is in "config.json" beside it'):
        fmoe.load(tmp_path, prefix(0))
    with pytest.raises(fmoe.FileError, match="layer 2 has a router"):
        fmoe.load(tmp_path, prefix(2))

# SPDX-License-Identifier: MIT
"""Gradients of layers are those of the authors' code."""
import numpy as np
import pytest

import fmoe
from golden import CASES, load

x = np.ones((3, 4), np.float32)


def off(made, wanted):
    return np.abs(made - wanted).max() / max(np.abs(wanted).max(), 1e-300)


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_the_authors(case):
    c = load(case)
    layer = fmoe.from_arrays(c.weights, metadata=c.settings)
    y, dx, d = layer.compile_gradients(64)(c.x, c.dy)
    assert y.shape == c.y.shape and dx.shape == c.x.shape
    assert off(y, c.y) < 2e-6 and off(dx, c.dx) < 1e-5
    # A layer that holds the authors' gradients has them under the names that ours have.
    statistics = {name: a for name, a in c.weights.items() if "running" in name}
    floats = {name: g.astype(np.float32) for name, g in c.gradients.items()}
    wanted = fmoe.from_arrays(floats | statistics, metadata=c.settings).arrays()
    assert d.keys() == wanted.keys() - statistics.keys()
    for name, made in d.items():
        assert made.shape == wanted[name].shape and off(made, wanted[name]) < 1e-5, name


@pytest.mark.parametrize("case", CASES)
def test_a_layer_is_trained_where_its_weights_lie(case):
    c = load(case)
    layer = fmoe.from_arrays(c.weights, metadata=c.settings)
    before, other = layer(c.x), fmoe.from_arrays(c.weights, metadata=c.settings)
    compiled, step, old = layer.compile(64), layer.compile_gradients(64), layer.arrays()
    weights = layer.parameters
    assert weights.keys() == old.keys()
    for refused in (lambda: compiled(c.x), lambda: step(c.x, c.dy)):
        with pytest.raises(fmoe.DomainError, match="call refresh"):  # they may have been written already
            refused()
    step.refresh()
    trained = {}
    for round in range(2):
        d = step(c.x, c.dy).parameters
        for name, g in d.items():
            weights[name] -= 0.01 * g.reshape(weights[name].shape)
        trained = {name: w.reshape(old[name].shape) for name, w in layer.parameters.items()}
        now = fmoe.from_arrays(trained, metadata=c.settings)
        assert all((array == trained[name]).all() for name, array in layer.arrays().items())
        assert (layer(c.x) == now(c.x)).all() and (layer(c.x, out=np.empty_like(before)) == now(c.x)).all()
        compiled.refresh()
        step.refresh()
        assert (compiled(c.x) == now(c.x)).all()
        assert (step(c.x, c.dy).dx == now.compile_gradients(64)(c.x, c.dy).dx).all()
    assert any((old[name] != trained[name]).any() for name in old)
    assert (other(c.x) == before).all()


def test_weights_of_16_bits_are_not_shown_where_they_lie():
    arrays = {name: np.ones(s, np.float32) for name, s in {"W_enc": (4, 6), "gate": (20, 4), "W_cond": (5, 20), "W_dec": (6, 5)}.items()}
    with pytest.raises(TypeError, match="q8, which numpy cannot show where it lies"):
        fmoe.from_arrays(arrays, active=4, metadata={"activation": "gelu"}).quantize("q8").parameters


def test_a_step_follows_the_weights_and_k():
    rng = np.random.default_rng(0)
    sizes = {"W_enc": (4, 6), "gate": (20, 4), "W_cond": (5, 20), "W_dec": (6, 5)}
    arrays = {name: rng.normal(size=s).astype(np.float32) for name, s in sizes.items()}
    layer = fmoe.from_arrays(arrays, active=4, metadata={"activation": "gelu"})
    step, dy = layer.compile_gradients(8, threads=1), np.ones((3, 5), np.float32)
    y, dx, d = step(x, dy)
    assert {name: g.shape for name, g in d.items()} == sizes
    assert (y == layer(x)).all() and y.dtype == np.float32
    assert "forward and backward" in str(step.explain())
    step.keep(2)
    fewer = step(x, dy)
    assert (fewer.y == layer.with_active(2)(x)).all() and not (fewer.y == y).all()
    step.keep(None)
    assert (step(x, dy).dx == dx).all()
    with pytest.raises(fmoe.ShapeError, match="axis 0 of the rows of dy is 4"):
        step(x, dy[:, :4])
    with pytest.raises(fmoe.ShapeError, match="compiled for at most 8"):
        step(np.ones((9, 4), np.float32), np.ones((9, 5), np.float32))
    with pytest.raises(fmoe.DomainError, match="dy is of float64"):
        step(x, dy.astype(np.float64))
    with pytest.raises(fmoe.DomainError, match="ask the original layer"):
        layer.ablated([1]).compile_gradients(8)


@pytest.mark.parametrize("type", ["q8", "q8c"])
def test_a_layer_of_8_bits_has_float_gradients(type):
    rng = np.random.default_rng(0)
    sizes = {"W_enc": (4, 6), "gate": (20, 4), "W_cond": (5, 20), "W_dec": (6, 5)}
    arrays = {name: rng.normal(size=s).astype(np.float32) for name, s in sizes.items()}
    layer = fmoe.from_arrays(arrays, active=20, metadata={"activation": "gelu"})
    dy = rng.normal(size=(3, 5)).astype(np.float32)
    y, dx, d = layer.compile_gradients(8)(x, dy)
    small = layer.quantize(type).compile_gradients(8)(x, dy)
    assert 0 < off(small.y, y) < 0.05 and 0 < off(small.dx, dx) < 0.05
    for name, g in small.parameters.items():
        assert g.dtype == np.float32 and g.shape == d[name].shape and off(g, d[name]) < 0.05, name


def test_several_outputs_have_gradients_together():
    rng = np.random.default_rng(0)
    sizes = {"W_enc": (4, 6), "gate": (20, 4), "W_cond": (5, 20), "W_dec": (6, 5)}
    arrays = {name: rng.normal(size=s).astype(np.float32) for name, s in sizes.items()}
    layer = fmoe.from_arrays(arrays, active=4, metadata={"activation": "gelu"})
    dy, da = rng.normal(size=(3, 5)).astype(np.float32), rng.normal(size=(3, 20)).astype(np.float32)
    step = layer.compile_gradients(8, ("y", "coefficients"))
    (y, a), dx, d = step(x, (dy, da))
    assert (y == layer(x)).all() and (a == layer.coefficients(x)).all() and (a == layer.result("coefficients", x)).all()
    of_y = layer.compile_gradients(8)(x, dy)
    of_a = layer.compile_gradients(8, "coefficients")(x, da)
    assert (of_a.y == a).all()
    assert off(dx, of_y.dx + of_a.dx) < 1e-6
    for name, g in d.items():
        assert off(g, of_y.parameters[name] + of_a.parameters[name]) < 1e-6, name
    with pytest.raises(TypeError, match="the step has 2 results: pass a tuple with a dy for each"):
        step(x, dy)
    with pytest.raises(fmoe.ShapeError, match="dy 1"):
        step(x, (dy, da[:, :4]))
    with pytest.raises(fmoe.DomainError, match="and no nothing"):
        layer.compile_gradients(8, ("y", "nothing"))

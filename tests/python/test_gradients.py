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


def test_a_step_follows_the_weights_and_k():
    rng = np.random.default_rng(0)
    sizes = {"W_enc": (4, 6), "gate": (20, 4), "W_cond": (5, 20), "W_dec": (6, 5)}
    arrays = {name: rng.normal(size=s).astype(np.float32) for name, s in sizes.items()}
    layer = fmoe.from_arrays(arrays, active=4)
    step, dy = layer.compile_gradients(8, threads=1), np.ones((3, 5), np.float32)
    y, dx, d = step(x, dy)
    assert {name: g.shape for name, g in d.items()} == sizes
    assert (y == layer(x)).all() and y.dtype == np.float32
    assert "forward and backward" in str(step.explain())
    step.keep(2)
    fewer = step(x, dy)
    assert (fewer.y == fmoe.from_arrays(arrays, active=2)(x)).all() and not (fewer.y == y).all()
    step.keep(None)
    assert (step(x, dy).dx == dx).all()
    with pytest.raises(fmoe.ShapeError, match="the rows of dy have 4 numbers"):
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
    layer = fmoe.from_arrays({name: rng.normal(size=s).astype(np.float32) for name, s in sizes.items()}, active=20)
    dy = rng.normal(size=(3, 5)).astype(np.float32)
    y, dx, d = layer.compile_gradients(8)(x, dy)
    small = layer.quantize(type).compile_gradients(8)(x, dy)
    assert 0 < off(small.y, y) < 0.05 and 0 < off(small.dx, dx) < 0.05
    for name, g in small.parameters.items():
        assert g.dtype == np.float32 and g.shape == d[name].shape and off(g, d[name]) < 0.05, name

# SPDX-License-Identifier: MIT
"""The losses are the formulas of the papers, written out in float64, with their gradients."""
import numpy as np
import pytest

import fmoe

rng = np.random.default_rng(0)
T, O, N, K, P, S = 11, 5, 9, 3, 2, 6


def routing():
    g = rng.uniform(0.1, 1, size=(T, P, S)) * (rng.uniform(size=(T, P, S)) > 0.3)
    g[..., 0] += 0.1
    return g / g.sum(-1, keepdims=True)


def selected(scores):
    kept = np.argsort(-scores, -1)[:, :K]
    made = np.zeros_like(scores)
    np.put_along_axis(made, kept, np.take_along_axis(scores, kept, -1) + 10, -1)
    return made


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


y, target, scores, decoder = (rng.normal(size=s) for s in ((T, O), (T, O), (T, N), (N, O)))
coefficients, units, weights = selected(scores), abs(rng.normal(size=(T, N))), rng.uniform(size=N)
g1, g2 = routing(), routing()
dead = np.array([0, 1, 1, 0, 1, 0, 1, 1, 0.0])


def auxk(z, d):
    z = z * dead
    z = np.where(z >= np.sort(z, -1)[:, -K, None], z, 0)
    return ((z @ d - (target - y)) ** 2).mean(-1)


def squares(e):
    return (e**2).sum(-1)


# For each loss its arguments, the places of those that have a gradient, and the formula.
LOSSES = {
    "mse": ((y, target), (0,), lambda y, t: ((y - t) ** 2).mean(-1)),
    "nmse": ((y, target), (0,), lambda y, t: squares(y - t) / squares(t)),
    "normalized_error": ((y, target), (0,), lambda y, t: squares(y - t) / np.sqrt(squares(t))),
    "authors_mse": ((y, target), (0,), lambda y, t: ((y - t) ** 2).mean(-1) / np.sqrt(squares(t))),
    "fvu": ((y, target), (0,), lambda y, t: squares(y - t).sum() / squares(t - t.mean(0)).sum()),
    "uniformity": ((g1, g2), (0, 1), lambda a, b: -(np.log(a.mean(0)).mean() + np.log(b.mean(0)).mean()) / 2),
    "ambiguity": ((g1, g2), (0, 1), lambda a, b: 1 - (a.max(-1) + b.max(-1)).mean(-1) / 2),
    "load_balance": (
        (coefficients, scores),
        (1,),
        lambda a, s: N * ((a != 0).mean(0) * softmax(s).mean(0)).sum(),
    ),
    "router_z": ((scores,), (0,), lambda s: np.log(np.exp(s).sum(-1)) ** 2),
    "entropy": ((scores,), (0,), lambda s: -(softmax(s) * np.log(softmax(s))).sum(-1)),
    "l1": ((coefficients, weights), (0,), lambda a, w: (abs(a) * w).sum(-1)),
    "auxk": ((y, target, units, dead, decoder, K), (2, 4), lambda y, t, z, dead, d, k: auxk(z, d)),
}


def differences(formula, arguments, place):
    """The gradient of the mean of a formula with respect to one of its arguments."""
    made = np.zeros_like(arguments[place])
    for i in np.ndindex(made.shape):
        values = []
        for h in (1e-5, -1e-5):
            moved = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
            moved[place][i] += h
            values.append(np.mean(formula(*moved)))
        made[i] = (values[0] - values[1]) / 2e-5
    return made


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_its_formula(name):
    arguments, _, formula = LOSSES[name]
    made = fmoe.evaluate(getattr(fmoe.losses, name)(*arguments))
    wanted = formula(*arguments)
    assert made.shape == np.shape(wanted) and np.allclose(made, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_has_the_gradient_of_its_formula(name):
    arguments, places, formula = LOSSES[name]
    for place in places:
        wanted = differences(formula, arguments, place)
        operands = [fmoe.parameter(a) if isinstance(a, np.ndarray) else a for a in arguments]
        loss = getattr(fmoe.losses, name)(*operands)
        each = None if np.ndim(formula(*arguments)) == 0 else np.full(T, 1 / T)
        made = fmoe.evaluate(fmoe.gradient(loss, operands[place], each))
        assert abs(wanted).max() > 0 and abs(made - wanted).max() < 1e-7 * (1 + abs(wanted).max())


@pytest.mark.parametrize("name", LOSSES)
def test_the_losses_of_torch_are_the_same(name):
    torch = pytest.importorskip("torch")
    from fmoe.torch import losses

    arguments, places, formula = LOSSES[name]
    tensors = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
    for place in places:
        tensors[place].requires_grad_()
    made = getattr(losses, name)(*tensors)
    assert made.shape == () and np.allclose(made.item(), formula(*arguments).mean(), rtol=1e-12)
    made.backward()
    for place in places:
        wanted = differences(formula, arguments, place)
        assert abs(tensors[place].grad.numpy() - wanted).max() < 1e-7 * (1 + abs(wanted).max())


def mxd(K=4):
    sizes = {"W_enc": (4, 6), "gate": (20, 4), "W_cond": (5, 20), "W_dec": (6, 5)}
    arrays = {name: rng.normal(size=s).astype(np.float32) for name, s in sizes.items()}
    return fmoe.from_arrays(arrays, active=K, metadata={"activation": "gelu"})


def test_a_step_takes_a_loss_or_its_slope():
    layer = mxd()
    x, t = rng.normal(size=(7, 4)).astype(np.float32), rng.normal(size=(7, 5)).astype(np.float32)
    step = layer.compile_gradients(16, loss=fmoe.losses.mse)
    made = step(x, t)
    assert (made.y == layer(x)).all()
    assert np.isclose(step.loss, ((made.y - t) ** 2).mean(), rtol=1e-6)
    plain = layer.compile_gradients(16)
    wanted = plain(x, 2 / 35 * (made.y - t))
    by_slope = layer.compile_gradients(16, loss=lambda y, target: 2 / 35 * (y - target))
    y = layer.result("y", fmoe.input())
    by_expression = layer.compile_gradients(16, loss=fmoe.losses.mse(y, fmoe.input(1)))
    for other in (made, by_slope(x, t), by_expression(x, t)):
        assert abs(other.dx - wanted.dx).max() < 1e-6 * abs(wanted.dx).max()
        for name, g in wanted.parameters.items():
            assert abs(other.parameters[name] - g).max() < 1e-6 * abs(g).max(), name
    assert step.loss == by_expression.loss
    for without in (by_slope, plain):
        with pytest.raises(TypeError, match="the step has no loss"):
            without.loss
    with pytest.raises(TypeError, match="the step takes 2 arrays, and not 3"):
        step(x, t, t)
    with pytest.raises(fmoe.ShapeError, match="axis 0 of the rows of input 1 is 4"):
        step(x, t[:, :4])


def test_a_step_of_several_outputs_takes_one_loss():
    layer = mxd()
    x, t = rng.normal(size=(7, 4)).astype(np.float32), rng.normal(size=(7, 5)).astype(np.float32)

    def loss(outputs, target):
        y, a, scores = outputs
        return fmoe.losses.nmse(y, target) + fmoe.losses.l1(a) * 0.1 + fmoe.losses.load_balance(a, scores) * 0.5

    names = ("y", "coefficients", "scores")
    step = layer.compile_gradients(16, names, loss)
    (y, a, scores), dx, gradients = step(x, t)
    assert (y == layer(x)).all() and (a == layer.coefficients(x)).all()
    value = fmoe.evaluate(loss((y, a, scores), t)).mean()
    assert np.isclose(step.loss, value, rtol=1e-5)
    slopes = [fmoe.evaluate(fmoe.gradient(loss(*args), args[0][i], np.full(7, 1 / 7, np.float32)))
              for args in [([fmoe.parameter(o) for o in (y, a, scores)], t)] for i in range(3)]
    wanted = layer.compile_gradients(16, names)(x, tuple(slopes))
    assert abs(dx - wanted.dx).max() < 1e-5 * abs(wanted.dx).max()
    for name, g in wanted.parameters.items():
        assert abs(gradients[name] - g).max() < 1e-5 * abs(g).max(), name


def test_a_loss_of_one_axis_has_the_weight_of_its_tokens():
    layer = mxd()
    x, t = rng.normal(size=(7, 4)).astype(np.float32), rng.normal(size=(7, 5)).astype(np.float32)
    weight = np.arange(7, dtype=np.float32)
    y = layer.result("y", fmoe.input())
    loss = fmoe.losses.mse(y, fmoe.input(1)) * fmoe.input(2, 1)
    step = layer.compile_gradients(16, loss=loss)
    step(x, t, weight)
    assert np.isclose(step.loss, (((layer(x) - t) ** 2).mean(-1) * weight).mean(), rtol=1e-6)


def test_what_a_selection_keeps_is_an_output():
    layer, x = mxd(), rng.normal(size=(7, 4)).astype(np.float32)
    weights, indices = layer.result("weights", x), layer.result("indices", x)
    a = layer.coefficients(x)
    assert weights.shape == indices.shape == (7, 4)
    dense = np.zeros_like(a)
    for t, k in np.ndindex(7, 4):
        if indices[t, k] >= 0:
            dense[t, int(indices[t, k])] = weights[t, k]
    assert (dense == a).all() and (a != 0).any()
    dw = rng.normal(size=(7, 4)).astype(np.float32)
    of_weights = layer.compile_gradients(8, "weights")(x, dw)
    da = np.zeros_like(a)
    for t, k in np.ndindex(7, 4):
        if indices[t, k] >= 0:
            da[t, int(indices[t, k])] = dw[t, k]
    wanted = layer.compile_gradients(8, "coefficients")(x, da)
    assert abs(of_weights.dx - wanted.dx).max() < 1e-6 * abs(wanted.dx).max()
    with pytest.raises(fmoe.DomainError, match="takes a selection that keeps K entries"):
        layer.with_active(None).result("weights", x)


def test_a_part_is_held_constant():
    x = fmoe.parameter(np.array([2.0, 3.0]))
    y = x * fmoe.stop_gradient(x)
    assert (fmoe.evaluate(fmoe.gradient(y, x, np.ones(2))) == [2, 3]).all()

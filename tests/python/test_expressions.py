# SPDX-License-Identifier: MIT
"""Expressions give what numpy gives."""
import numpy as np
import pytest

import fmoe

rng = np.random.default_rng(0)
x = rng.normal(size=(7, 12)).astype(np.float32)
w = rng.normal(size=(12, 5)).astype(np.float32)
b = rng.normal(size=5).astype(np.float32)


def close(made, wanted, tolerance=1e-5):
    np.testing.assert_allclose(made, wanted, rtol=tolerance, atol=tolerance)


def rows_softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_einsum_and_operators():
    product = fmoe.einsum("ti,io->to", x, w)
    plain = x.astype(float) @ w
    close(fmoe.evaluate(product), plain)
    close(fmoe.evaluate(product + b), plain + b)
    close(fmoe.evaluate(b + product), plain + b)
    close(fmoe.evaluate(product - b), plain - b)
    close(fmoe.evaluate(b - product), b - plain)
    close(fmoe.evaluate(product * b), plain * b)
    close(fmoe.evaluate(b * product), plain * b)
    close(fmoe.evaluate(product / b), plain / b, 1e-4)
    close(fmoe.evaluate(1 + 2 * product), 1 + 2 * plain)
    close(fmoe.evaluate(1 - product / 4), 1 - plain / 4)
    close(fmoe.evaluate(-product), -plain)
    close(fmoe.evaluate(2 / (product * product + 1)), 2 / (plain * plain + 1))


@pytest.mark.parametrize("subscripts", ["t i, i o -> t o", "ti,io->ot", "ti,io", "ab, bc", "aB,BA", "ti,jo"])
def test_subscripts_are_read_as_numpy_reads_them(subscripts):
    made, wanted = fmoe.evaluate(fmoe.einsum(subscripts, x, w)), np.einsum(subscripts, x, w)
    assert made.shape == wanted.shape
    close(made, wanted)


@pytest.mark.parametrize(
    "name, function",
    [
        ("relu", lambda v: np.maximum(v, 0)),
        ("squared_relu", lambda v: np.maximum(v, 0) ** 2),
        ("sigmoid", lambda v: 1 / (1 + np.exp(-v))),
        ("silu", lambda v: v / (1 + np.exp(-v))),
        ("tanh", np.tanh),
        ("exp", np.exp),
        ("abs", np.abs),
        ("softmax", rows_softmax),
        ("rms_norm", lambda v: v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-6)),
        ("layer_norm", lambda v: (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5)),
        ("mean", lambda v: v.mean(-1)),
    ],
)
def test_functions(name, function):
    close(fmoe.evaluate(getattr(fmoe, name)(x)), function(x.astype(float)))


def test_bounds_and_choices():
    close(fmoe.evaluate(fmoe.max(x, 0.5)), np.maximum(x, 0.5))
    close(fmoe.evaluate(fmoe.min(0.5, x)), np.minimum(x, 0.5))
    close(fmoe.evaluate(fmoe.max(x, -x)), np.abs(x))
    close(fmoe.evaluate(fmoe.clamp(x, -1, 1)), np.clip(x, -1, 1))
    close(fmoe.evaluate(fmoe.where(x, x, 0.5 * fmoe.parameter(x))), np.where(x > 0, x, 0.5 * x))
    two = np.array([[9, 0, 0, 5, 5, 0]], np.float32)
    assert fmoe.evaluate(fmoe.best_groups(two, 2, 1)).max() == 5
    assert fmoe.evaluate(fmoe.best_groups(two, 2, 1, score="greatest")).max() == 9
    with pytest.raises(fmoe.DomainError, match="greatest"):
        fmoe.best_groups(two, 2, 1, score="least")
    assert (fmoe.evaluate(fmoe.group_max(two, 2)) == [[9, -np.inf, -np.inf, 5, -np.inf, -np.inf]]).all()
    scores = np.array([[0.99, -3, 1, 0.975]], np.float32)
    close(fmoe.evaluate(fmoe.sparse_mixer(scores)), [[1 / (1 + np.exp(-0.015)), 0, 1 / (1 + np.exp(-0.01)), 0]])
    close(fmoe.evaluate(fmoe.sparse_mixer(scores, 0.001)), [[1, 0, 1, 0]])
    with pytest.raises(fmoe.DomainError, match="jitter"):
        fmoe.evaluate(fmoe.sparse_mixer(scores, 1))
    close(fmoe.evaluate(fmoe.norm("l1", x)), np.abs(x).sum(-1))
    close(fmoe.evaluate(fmoe.concat([x, x], 1)), np.concatenate([x, x], 1))
    close(fmoe.evaluate(fmoe.append_one(x)), np.concatenate([x, np.ones((7, 1))], 1))
    close(fmoe.evaluate(fmoe.repeat(fmoe.mean(x), 3)), np.repeat(x.mean(1, keepdims=True), 3, 1))


def test_pairs_left_out_of_a_sum():
    mask = np.ones((7, 7), np.float32)
    mask[2, 5] = mask[0, 0] = 0
    left_out = fmoe.all_except([(2, 5), (0, 0), (2, 5)], 7, 7)
    close(fmoe.evaluate(fmoe.einsum("it,tj,ij->tj", x[:, :4], x[:4, :7], left_out)), np.einsum("it,tj,ij->tj", x[:, :4], x[:4, :7], mask))
    with pytest.raises(fmoe.DomainError, match="outside"):
        fmoe.all_except([(7, 0)], 7, 7)
    with pytest.raises(TypeError, match="a pair"):
        fmoe.all_except([(7, 0, 1)], 7, 7)


def test_selections():
    best = np.sort(np.argsort(-x, axis=1, kind="stable")[:, :3], axis=1)
    kept = fmoe.kept(fmoe.top_k(x, 3))
    values, indices = fmoe.evaluate(kept)
    assert (indices == best).all()
    assert (values == np.take_along_axis(x, best, 1)).all()
    weights = np.zeros_like(x)
    np.put_along_axis(weights, best, rows_softmax(np.take_along_axis(x, best, 1)), 1)
    close(fmoe.evaluate(fmoe.top_k(x, 3, "softmax")), weights)
    assert (fmoe.evaluate(fmoe.top_k(x, None)) == x).all()
    by = fmoe.evaluate(fmoe.top_k(np.abs(x), 2, "normalized", ranked=-x))
    least = np.argsort(x, axis=1)[:, :2]
    shares = np.take_along_axis(np.abs(x), least, 1)
    close(np.take_along_axis(by, least, 1), shares / shares.sum(1, keepdims=True))


def test_jump_relu():
    thresholds = np.abs(x[0])
    close(fmoe.evaluate(fmoe.jump_relu(x, thresholds)), np.where(x > thresholds, x, 0))
    with pytest.raises(fmoe.ShapeError, match="thresholds"):
        fmoe.jump_relu(thresholds, x)


def test_doubles_stay_doubles():
    made = fmoe.evaluate(fmoe.einsum("ti,io->to", x.astype(np.float64), w))
    assert made.dtype == np.float64
    close(made, x.astype(np.float64) @ w, 1e-14)


def test_a_new_layer_is_a_few_lines():
    e, g, c, d = (rng.normal(size=s).astype(np.float32) for s in [(12, 16), (12, 40), (40, 5), (16, 5)])
    i = fmoe.input()
    z = fmoe.gelu(fmoe.einsum("ti,ih->th", i, fmoe.parameter(e)))
    a = fmoe.top_k(fmoe.relu(fmoe.einsum("ti,in->tn", i, fmoe.parameter(g))), 4)
    y = fmoe.einsum("tn,no,th,ho->to", a, fmoe.parameter(c), z, fmoe.parameter(d))
    forward = fmoe.compile(y, 16, threads=1)
    assert forward.input_shape() == (12,) and forward.output_shape() == (5,) and forward.tokens == 16

    scores = np.maximum(x.astype(float) @ g, 0)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :4]
    kept = np.zeros_like(scores)
    np.put_along_axis(kept, best, np.take_along_axis(scores, best, 1), 1)
    hidden = fmoe.evaluate(fmoe.gelu(x.astype(float) @ e))
    wanted = (kept @ c) * (hidden @ d)
    close(forward(x), wanted, 1e-4)
    close(fmoe.compile(y, 16, naive=True)(x), wanted, 1e-4)
    close(fmoe.compile(y, 16, reference=True)(x), wanted, 1e-4)
    out = np.empty((7, 5), np.float32)
    assert forward(x, out=out) is out
    assert (out == forward(x)).all()
    assert (forward(x.reshape(7, 1, 12)) == out.reshape(7, 1, 5)).all()
    assert "top_k" in str(fmoe.explain(y, 16)) or "screened" in str(fmoe.explain(y, 16))
    assert fmoe.cost(y, 16).factorized.multiply_adds < fmoe.cost(y, 16).naive_multiply_adds


def test_weights_are_read_where_they_lie():
    v = w.copy()
    forward = fmoe.compile(fmoe.einsum("ti,io->to", fmoe.input(), fmoe.parameter(v)), 8)
    before = forward(x)
    assert (before == fmoe.evaluate(fmoe.einsum("ti,io->to", x, w))).all()


LAYOUTS = {
    "rows": lambda: w.copy(),
    "columns": lambda: np.asfortranarray(w),
    "transposed": lambda: np.ascontiguousarray(w.T).T,
    "every second row": lambda: np.repeat(w, 2, 0)[::2],
    "columns backwards": lambda: np.ascontiguousarray(w[:, ::-1])[:, ::-1],
    "fields": lambda: np.stack([w, 0 * w], -1)[..., 0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operand", [lambda a: a, fmoe.Expression, fmoe.parameter])
def test_refresh_reads_what_numpy_has_written(operand, layout):
    v = LAYOUTS[layout]()
    assert (v == w).all()
    y = fmoe.einsum("ti,io->to", fmoe.input(), operand(v))
    forward, other = fmoe.compile(y, 8), fmoe.compile(y, 8)
    before = forward(x)
    for factor in (2, 4):
        v *= 2
        forward.refresh()
        assert (forward(x) == factor * before).all()
    other.refresh()
    assert (other(x) == 4 * before).all()
    assert (forward(x) == 4 * before).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compile_and_evaluate_read_what_numpy_has_written(layout):
    v = LAYOUTS[layout]()
    p = fmoe.parameter(v)
    y, of_x = fmoe.einsum("ti,io->to", fmoe.input(), p), fmoe.einsum("ti,io->to", x, p)
    before = fmoe.compile(y, 8)(x)
    assert (fmoe.evaluate(of_x) == before).all()
    v *= 2
    assert (fmoe.compile(y, 8)(x) == 2 * before).all()
    assert (fmoe.evaluate(of_x) == 2 * before).all()


def test_gradient():
    dy = rng.normal(size=(7, 5)).astype(np.float32)
    p = fmoe.parameter(w)
    close(fmoe.evaluate(fmoe.gradient(fmoe.einsum("ti,io->to", x, p), p, dy)), x.astype(float).T @ dy)


OPERANDS = {"array": lambda a: a, "expression": fmoe.Expression, "parameter": fmoe.parameter}


@pytest.mark.parametrize("of", OPERANDS)
@pytest.mark.parametrize("inside", OPERANDS)
def test_the_gradient_of_an_array_is_that_of_its_memory(inside, of):
    v, dy = w.copy(), rng.normal(size=(7, 5)).astype(np.float32)
    dw = x.astype(float).T @ dy
    y = fmoe.einsum("ti,io->to", x, OPERANDS[inside](v))
    close(fmoe.evaluate(fmoe.gradient(y, OPERANDS[of](v), dy)), dw)
    y = fmoe.einsum("ti,io->to", fmoe.input(), OPERANDS[inside](v))
    step = fmoe.compile(fmoe.gradient(y, OPERANDS[of](v), fmoe.input(1)), 8)
    close(step(x, dy), dw)
    assert step(x, dy).shape == v.shape
    twice = fmoe.einsum("ti,io->to", x, v) + fmoe.einsum("ti,io->to", x, fmoe.parameter(v))
    close(fmoe.evaluate(fmoe.gradient(twice, OPERANDS[of](v), dy)), 2 * dw)


@pytest.mark.parametrize("of", OPERANDS)
def test_the_gradient_of_what_y_does_not_depend_on_is_refused(of):
    dy = np.ones((7, 5), np.float32)
    y = fmoe.einsum("ti,io->to", x, w)
    for other in (w.copy(), w[:, :3], np.asfortranarray(w), np.zeros((2, 2), np.float32)):
        with pytest.raises(fmoe.DomainError, match="y does not depend on what the gradient is asked of"):
            fmoe.evaluate(fmoe.gradient(y, OPERANDS[of](other), dy))
    p = fmoe.parameter(np.asfortranarray(w))  # named once
    close(fmoe.evaluate(fmoe.gradient(fmoe.einsum("ti,io->to", x, p), p, dy)), x.astype(float).T @ dy)


def test_a_compiled_gradient_of_inputs():
    token, target, p = fmoe.input(0), fmoe.input(1), fmoe.parameter(w.copy())
    y = fmoe.einsum("ti,io->to", token, p)
    step = fmoe.compile([y, fmoe.gradient(y, p, y - target)], 8)
    t = rng.normal(size=(7, 5)).astype(np.float32)
    made, dw = step(x, t)
    close(made, x.astype(float) @ w)
    close(dw, x.astype(float).T @ (x.astype(float) @ w - t))


def test_several_inputs_and_results():
    i, j = fmoe.input(0), fmoe.input(1)
    forward = fmoe.compile((i * j, fmoe.einsum("ti,ti->i", i, j), fmoe.sized(i, [None, 12])), 8)
    product, sums, same = forward(x, 2 * x)
    close(product, 2 * x * x)
    close(sums, 2 * (x * x).sum(0))
    assert (same == x).all()


@pytest.mark.parametrize(
    "error, sentence, provoke",
    [
        (fmoe.DomainError, "subscripts are letters", lambda: fmoe.einsum("ti,io>to", x, w)),
        (fmoe.DomainError, "write a letter for each axis", lambda: fmoe.einsum("...i,io->...o", x, w)),
        (fmoe.ShapeError, "an axis of extent 1 is not repeated", lambda: fmoe.evaluate(fmoe.einsum("ti,ti->ti", x, x[:1]))),
        (fmoe.ShapeError, "operand 1 of", lambda: fmoe.einsum("ti,io->to", x, b)),
        (fmoe.ShapeError, "'i' is 12 in operand 0 and 5", lambda: fmoe.evaluate(fmoe.einsum("ti,oi->to", x, w))),
        (fmoe.DomainError, "compile it and call it", lambda: fmoe.evaluate(fmoe.input())),
        (TypeError, "takes 1 input, and not 2", lambda: fmoe.compile(fmoe.input() * x[0], 8)(x, x)),
        (TypeError, "this is a str, and an array", lambda: fmoe.einsum("ti,io->to", x, "text")),
        (TypeError, "float32", lambda: fmoe.relu(np.arange(4))),
    ],
)
def test_errors_are_sentences(error, sentence, provoke):
    with pytest.raises(error, match=sentence):
        provoke()

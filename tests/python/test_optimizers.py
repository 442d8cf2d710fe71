# SPDX-License-Identifier: MIT
"""Optimizers make the steps of their formulas, and PyTorch's, on the weights of any layer."""
import copy
import pathlib
import pickle
import re
import threading

import numpy as np
import pytest

import fmoe
from golden import CASES, load

SIZES = {"W_enc": (4, 6), "gate": (20, 4), "W_cond": (5, 20), "W_dec": (6, 5)}


def numbers(seed, **others):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=s).astype(np.float32) for name, s in (SIZES | others).items()}


def mxd(arrays=None, **options):
    return fmoe.from_arrays(arrays or numbers(0), active=4, metadata={"activation": "gelu"}, **options)


class Sgd64:
    """The formula in double. Averages are by the names of parameters."""

    def __init__(self, rate=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False):
        self.__dict__.update(locals(), b={})

    def __call__(self, w, d):
        for name, g in d.items():
            g = g.astype(np.float64) + self.weight_decay * w[name]
            step = g
            if self.momentum:
                b = self.momentum * self.b[name] + (1 - self.dampening) * g if name in self.b else g
                self.b[name] = b
                step = g + self.momentum * b if self.nesterov else b
            w[name] = w[name] - self.rate * step


class Adam64:
    def __init__(self, rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0, decoupled=False):
        self.__dict__.update(locals(), m={}, v={}, t=0)

    def __call__(self, w, d):
        self.t += 1
        for name, g in d.items():
            g = g.astype(np.float64)
            if self.decoupled:
                w[name] = w[name] * (1 - self.rate * self.weight_decay)
            else:
                g = g + self.weight_decay * w[name]
            self.m[name] = self.beta1 * self.m.get(name, 0) + (1 - self.beta1) * g
            self.v[name] = self.beta2 * self.v.get(name, 0) + (1 - self.beta2) * g * g
            m, v = self.m[name] / (1 - self.beta1**self.t), self.v[name] / (1 - self.beta2**self.t)
            w[name] = w[name] - self.rate * m / (np.sqrt(v) + self.epsilon)


AVERAGES = {"rate": 0.03, "beta1": 0.8, "beta2": 0.98, "epsilon": 1e-3, "weight_decay": 0.2}
RULES = {
    "plain": (fmoe.SGD, Sgd64, {"rate": 0.1, "weight_decay": 0.1}),
    "momentum": (fmoe.SGD, Sgd64, {"rate": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "nesterov": (fmoe.SGD, Sgd64, {"rate": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": (fmoe.Adam, Adam64, AVERAGES),
    "adamw": (fmoe.AdamW, lambda **s: Adam64(decoupled=True, **s), AVERAGES),
}
TORCH = {"rate": "lr", "epsilon": "eps"}


@pytest.mark.parametrize("rule", RULES)
def test_five_steps_are_those_of_the_formula(rule):
    make, formula, settings = RULES[rule]
    layer, optimizer, in_double = mxd(), make(**settings), formula(**settings)
    assert all(getattr(optimizer, name) == value for name, value in settings.items())
    weights = {name: w.astype(np.float64) for name, w in layer.arrays().items()}
    before = layer.arrays()
    for step in range(5):
        if step == 3:  # a schedule
            optimizer.rate = in_double.rate = 0.02
        d = numbers(step + 1)
        assert optimizer(layer, d) is None and optimizer.steps == step + 1
        in_double(weights, d)
    for name, w in layer.arrays().items():
        assert np.abs(w - weights[name]).max() < 1e-6 * np.abs(weights[name]).max()
        assert np.abs(w - before[name]).max() > 0.01


@pytest.mark.parametrize("rule", RULES)
def test_five_steps_are_those_of_torch(rule):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    make, _, settings = RULES[rule]
    layer, optimizer = mxd(), make(**settings)
    given = {TORCH.get(name, name): value for name, value in settings.items() if not name.startswith("beta")}
    if "beta1" in settings:
        given["betas"] = settings["beta1"], settings["beta2"]
    parameters = {name: torch.nn.Parameter(torch.from_numpy(w.copy())) for name, w in layer.arrays().items()}
    theirs = getattr(torch.optim, make.__name__)(parameters.values(), **given)
    for step in range(5):
        if step == 3:
            theirs.param_groups[0]["lr"] = optimizer.rate = 0.02
        d = numbers(step + 1)
        optimizer(layer, d)
        for name, g in d.items():
            parameters[name].grad = torch.from_numpy(g)
        theirs.step()
    for name, w in layer.arrays().items():
        assert np.abs(w - parameters[name].detach().numpy()).max() < 1e-6 * np.abs(w).max()


def test_defaults_are_those_of_torch():
    sgd, adam, adamw = fmoe.SGD(), fmoe.Adam(), fmoe.AdamW()
    assert (sgd.rate, sgd.momentum, sgd.dampening, sgd.weight_decay, sgd.nesterov) == (1e-3, 0, 0, 0, False)
    for o, decay in ((adam, 0), (adamw, 0.01)):
        assert (o.rate, o.beta1, o.beta2, o.epsilon, o.weight_decay) == (1e-3, 0.9, 0.999, 1e-8, decay)


@pytest.mark.parametrize("case", CASES)
def test_a_layer_of_any_kind_is_trained(case):
    c = load(case)
    layer = fmoe.from_arrays(c.weights, metadata=c.settings)
    before, y = layer.arrays(), layer(c.x)
    forward, step = layer.compile(64), layer.compile_gradients(64)
    optimizer, in_double = fmoe.AdamW(rate=0.01), Adam64(rate=0.01, weight_decay=0.01, decoupled=True)
    made = step(c.x, c.dy)
    weights = {name: before[name].astype(np.float64) for name in made.parameters}
    for _ in range(2):
        optimizer(layer, made)
        in_double(weights, made.parameters)
        now = layer.arrays()
        for name, w in now.items():
            wanted = weights.get(name, before[name])  # statistics stay as they are
            assert np.abs(w - wanted).max() <= 1e-6 * max(np.abs(wanted).max(), 1e-3), name
        with pytest.raises(fmoe.DomainError, match="call refresh"):
            forward(c.x)
        step.refresh()
        forward.refresh()
        anew = fmoe.from_arrays(now, metadata=c.settings)
        assert (forward(c.x) == anew(c.x)).all() and (layer(c.x) == anew(c.x)).all()
        made = step(c.x, c.dy)
        assert (made.dx == anew.compile_gradients(64)(c.x, c.dy).dx).all()
    assert not (layer(c.x) == y).all()


def test_a_small_mxd_learns():
    rng = np.random.default_rng(1)
    x, target = rng.normal(size=(64, 4)).astype(np.float32), rng.normal(size=(64, 5)).astype(np.float32)
    layer = mxd()
    step, optimizer, losses = layer.compile_gradients(64), fmoe.Adam(rate=0.03), []
    for _ in range(50):
        difference = layer(x) - target
        losses.append((difference**2).mean())
        made = step(x, 2 * difference / difference.size)
        fmoe.clip_norm(made, 1.0)
        optimizer(layer, made)
        step.refresh()
    assert losses[-1] < losses[0] / 2 and optimizer.steps == 50


def test_the_loop_of_the_page_trains(capsys):
    text = pathlib.Path("docs/python.md").read_text()
    loop = re.search(r"## Training\n.*?```python\n(.*?)```", text, re.DOTALL)[1]
    exec("import fmoe\n" + loop, {})
    losses = [float(line) for line in capsys.readouterr().out.split()]
    assert len(losses) == 10 and losses[-1] < losses[0] / 2


def test_momentum_may_begin_later():
    late, new = mxd(), mxd()
    plain = fmoe.SGD(rate=0.1)
    plain(late, numbers(1))
    fmoe.SGD(rate=0.1)(new, numbers(1))
    plain.momentum, plain.dampening = 0.9, 0.5
    fresh = fmoe.SGD(rate=0.1, momentum=0.9, dampening=0.5)
    for step in (1, 2):
        plain(late, numbers(step + 1))
        fresh(new, numbers(step + 1))
    assert all((w == new.arrays()[name]).all() for name, w in late.arrays().items())


def test_what_shares_weights_is_trained_and_copies_are_not():
    layer, x = mxd(), np.ones((3, 4), np.float32)
    ablated, copied, lent = layer.ablated([1]), copy.copy(layer), layer.parameters
    before = layer(x), ablated(x), copied(x)
    optimizer = fmoe.SGD(rate=0.1)
    optimizer(layer, numbers(1))
    assert all((lent[name] == w).all() for name, w in layer.arrays().items())
    assert not (layer(x) == before[0]).all() and (copied(x) == before[2]).all()
    assert (ablated(x) == layer.ablated([1])(x)).all() and not (ablated(x) == before[1]).all()
    lent["W_dec"][...] = 0  # a write between two steps counts
    optimizer(layer, numbers(2))
    assert (layer.arrays()["W_dec"] == -np.float32(0.1) * numbers(2)["W_dec"]).all()


@pytest.mark.parametrize("type", ["bfloat16", "float16"])
def test_weights_of_16_bits_have_masters(type, tmp_path):
    narrow = mxd(type=type, narrow=True)
    wide = mxd(narrow.arrays())
    settings = {"rate": 1e-4, "momentum": 0.9}
    optimizer, of_wide = fmoe.SGD(**settings), fmoe.SGD(**settings)
    for step in range(4):  # each is too short to change 16 bits
        d = numbers(step + 1)
        optimizer(narrow, d)
        of_wide(wide, d)
    optimizer.save(tmp_path / "state.safetensors")
    state, rounded = fmoe.read(tmp_path / "state.safetensors"), narrow.arrays()
    for name, w in wide.arrays().items():
        master = state[f"{name}.master"]  # in the layer's order of axes
        assert (master == (w if master.shape == w.shape else w.T)).all()
        assert np.abs(rounded[name] - w).max() < np.abs(w).max() / 256
        assert (mxd(wide.arrays(), type=type, narrow=True).arrays()[name] == rounded[name]).all()
    with pytest.raises(fmoe.DomainError, match="q8, and weights of 8 bits are not trained"):
        fmoe.SGD()(mxd().quantize("q8"), d)


def test_a_mapped_file_is_not_written(tmp_path):
    file = tmp_path / "layer.safetensors"
    mxd().save(file)
    content, layer, own = file.read_bytes(), fmoe.load(file, mapped=True), mxd()
    for trained in (layer, own):
        fmoe.Adam()(trained, numbers(1))
    assert file.read_bytes() == content
    assert all((w == own.arrays()[name]).all() for name, w in layer.arrays().items())
    assert not (layer.arrays()["gate"] == fmoe.load(file).arrays()["gate"]).all()


@pytest.mark.parametrize("rule", RULES)
def test_training_that_is_resumed_has_the_same_bits(rule, tmp_path):
    make, _, settings = RULES[rule]
    whole, part, optimizer, first = mxd(), mxd(), make(**settings), make(**settings)
    for step in range(4):
        optimizer(whole, numbers(step + 1))
    for step in range(2):
        first(part, numbers(step + 1))
    part.save(tmp_path / "layer.safetensors")
    first.save(str(tmp_path / "state.safetensors"))
    part, resumed = fmoe.load(tmp_path / "layer.safetensors"), make(**settings)
    resumed.load(tmp_path / "state.safetensors")
    assert resumed.steps == 2
    for step in range(2, 4):
        resumed(part, numbers(step + 1))
    assert all((w == whole.arrays()[name]).all() for name, w in part.arrays().items())
    other = fmoe.SGD() if make is not fmoe.SGD else fmoe.Adam()
    with pytest.raises(fmoe.FileError, match="is the state of"):
        other.load(tmp_path / "state.safetensors")
    with pytest.raises(fmoe.FileError, match="this is not the state of an optimizer"):
        resumed.load(tmp_path / "layer.safetensors")
    first.load(tmp_path / "state.safetensors")  # and goes on with another layer
    first(fmoe.load(tmp_path / "layer.safetensors"), numbers(0))
    assert first.steps == 3


def test_a_step_has_the_same_bits_on_any_kind_of_array():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    layer, x, dy = mxd(), np.ones((3, 4), np.float32), np.ones((3, 5), np.float32)
    other, step = copy.copy(layer), layer.compile_gradients(8)
    of_numpy, of_torch = step(x, dy), step(torch.from_numpy(x), torch.from_numpy(dy))
    assert fmoe.clip_norm(of_numpy, 0.5) == fmoe.clip_norm(of_torch, 0.5)
    for trained, made in ((layer, of_numpy), (other, of_torch)):
        fmoe.SGD()(trained, made)
    assert all((w == other.arrays()[name]).all() for name, w in layer.arrays().items())


def test_gradients_are_clipped_where_they_lie():
    layer, x, dy = mxd(), np.ones((3, 4), np.float32), np.ones((3, 5), np.float32)
    made, again = (layer.compile_gradients(8)(x, dy) for _ in range(2))
    assert not all(g.flags.c_contiguous for g in made.parameters.values())  # the gate is the layer's, transposed
    norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in made.parameters.values()))
    assert norm > 0.7 and abs(fmoe.clip_norm(made, 1000) - norm) < 1e-6 * norm
    assert all((g == again.parameters[name]).all() for name, g in made.parameters.items())
    assert fmoe.clip_norm(made, 0.5) == fmoe.clip_norm(again, np.inf)
    for name, g in made.parameters.items():
        wanted = again.parameters[name] * np.float32(0.5 / (norm + 1e-6))
        assert np.abs(g - wanted).max() <= 1e-6 * np.abs(wanted).max(), name
    assert abs(fmoe.clip_norm(made, 1.0) - 0.5) < 1e-6
    # Several layers together, doubles, arrays with gaps and in another order.
    wide = np.arange(1.0, 25.0).reshape(4, 6)
    gaps, turned, small = wide[::2, ::3], wide[1::2, ::-2].T, np.ones(2, np.float32)
    left, right, kept = gaps.copy(), turned.copy(), wide[:, 1].copy()
    norm = np.sqrt((left**2).sum() + (right**2).sum() + 2)
    assert abs(fmoe.clip_norm([{"a": gaps, "b": turned}, {"a": small}], norm / 2) - norm) < 1e-12 * norm
    for made, was in ((gaps, left), (turned, right), (small, 1)):
        assert np.abs(made - was / 2).max() < 1e-6 * np.max(was)
    assert (wide[::2, 1] == kept[::2]).all()
    assert fmoe.clip_norm({}, 1.0) == 0
    # Elements are added up in the order in which they lie, as in C++.
    lying = np.exp(4 * np.random.default_rng(0).normal(size=(300, 200)))
    assert fmoe.clip_norm({"a": lying.T}, np.inf) == fmoe.clip_norm({"a": lying}, np.inf)
    assert fmoe.clip_norm({"a": lying.T.copy()}, np.inf) != fmoe.clip_norm({"a": lying}, np.inf)


def test_calls_of_several_threads_wait_for_each_other():
    many = {"gate": (40_000, 4), "W_cond": (5, 40_000)}  # a step takes long enough to meet another
    layer, optimizer = mxd(numbers(0, **many)), fmoe.SGD(rate=0.5)
    before = layer.arrays()
    ones = {name: np.ones_like(w) for name, w in before.items()}
    threads = [threading.Thread(target=lambda: [optimizer(layer, ones) for _ in range(25)]) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert optimizer.steps == 100
    assert all(np.abs(before[name] - 50 - w).max() < 1e-3 for name, w in layer.arrays().items())


def test_what_does_not_fit_is_refused_before_a_weight_is_changed():
    layer = mxd()
    before, d, optimizer = layer.arrays(), numbers(1), fmoe.AdamW()
    biased, larger = mxd(numbers(0, b_enc=(6,))), mxd(numbers(0, gate=(21, 4), W_cond=(5, 21)))
    of_biased = biased.compile_gradients(1)(np.ones((1, 4), np.float32), np.ones((1, 5), np.float32))
    for error, words, call in (
        (fmoe.DomainError, "the layer trains no parameter W_other", lambda: optimizer(layer, d | {"W_other": d["gate"]})),
        (fmoe.DomainError, "the layer trains no parameter b_enc", lambda: optimizer(layer, of_biased)),
        (fmoe.DomainError, "gate has no gradient", lambda: optimizer(layer, {name: g for name, g in d.items() if name != "gate"})),
        (fmoe.DomainError, "b_enc has no gradient", lambda: optimizer(biased, d)),
        (fmoe.ShapeError, r"the gradient of gate is \[4, 20\] and \[20, 4\] is expected", lambda: optimizer(layer, d | {"gate": d["gate"].T})),
        (fmoe.ShapeError, r"the gradient of gate is \[20, 4\] and \[21, 4\] is expected", lambda: optimizer(larger, d)),
        (fmoe.DomainError, "W_dec is float64 and must be float32", lambda: optimizer(layer, d | {"W_dec": d["W_dec"].astype(float)})),
        (fmoe.DomainError, "W_dec is float16 and must be float32", lambda: optimizer(layer, d | {"W_dec": d["W_dec"].astype(np.float16)})),
        (TypeError, "an array of numpy, of PyTorch or with DLPack is expected", lambda: optimizer(layer, d | {"W_dec": None})),
        (TypeError, "a mapping from names to arrays, and not", lambda: optimizer(layer, list(d.values()))),
        (TypeError, "the name of a gradient is a text, and not 1", lambda: optimizer(layer, {1: d["gate"]})),
        (TypeError, "layer is an fmoe.Layer, and not of type dict", lambda: optimizer(d, d)),
        (fmoe.DomainError, "ask the original layer", lambda: optimizer(layer.ablated([1]), d)),
        (fmoe.DomainError, r"\[adamw\] the rate is -1 and must be", lambda: fmoe.AdamW(rate=-1)(layer, d)),
        (fmoe.DomainError, r"\[adam\] beta2 is 1 and must be less than 1", lambda: fmoe.Adam(beta2=1)(layer, d)),
        (fmoe.DomainError, r"\[sgd\] Nesterov's momentum needs", lambda: fmoe.SGD(nesterov=True)(layer, d)),
        (fmoe.DomainError, r"\[sgd\] the rate is nan", lambda: fmoe.SGD(rate=np.nan)(layer, d)),
        (TypeError, "rate is a number, and not 'fast'", lambda: fmoe.SGD(rate="fast")),
        (TypeError, "nesterov is True or False, and not 1", lambda: fmoe.SGD(nesterov=1)),
        (TypeError, "positional", lambda: fmoe.SGD(0.1)),
        (AttributeError, "lr", lambda: setattr(optimizer, "lr", 0.1)),
        (TypeError, "save writes what it keeps", lambda: pickle.dumps(optimizer)),
        (TypeError, "save writes what it keeps", lambda: copy.copy(optimizer)),
        (TypeError, "file is the name of a file", lambda: optimizer.save(None)),
    ):
        with pytest.raises(error, match=words):
            call()
    assert optimizer.steps == 0
    assert all((w == before[name]).all() for name, w in layer.arrays().items())
    optimizer(layer, d)
    other = copy.copy(layer)
    with pytest.raises(fmoe.DomainError, match="the steps so far were of another layer"):
        optimizer(other, d)
    assert optimizer.steps == 1 and (other.arrays()["gate"] == layer.arrays()["gate"]).all()


def test_gradients_that_cannot_be_scaled_are_refused_before_one_is():
    good, frozen = np.full(4, 8, np.float32), np.full(4, 8, np.float32)
    frozen.flags.writeable = False
    for error, words, bad in (
        (TypeError, "the array to write to is read-only", frozen),
        (TypeError, "and fmoe takes arrays of float32", np.ones(3, int)),
        (TypeError, "this is a list", [1.0, 2.0]),
        (fmoe.DomainError, "the gradient of b is float16 and must be float32 or float64", np.ones(3, np.float16)),
    ):
        with pytest.raises(error, match=words):
            fmoe.clip_norm({"a": good, "b": bad}, 1.0)
    with pytest.raises(fmoe.DomainError, match="the limit is -1 and must be at least 0"):
        fmoe.clip_norm({"a": good}, -1)
    with pytest.raises(TypeError, match="limit is a number, and not None"):
        fmoe.clip_norm({"a": good}, None)
    with pytest.raises(TypeError, match="what compile_gradients made, or a mapping"):
        fmoe.clip_norm([good], 1.0)
    assert (good == 8).all()


def test_gradients_of_bfloat16_are_refused():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rounded = {"gate": torch.ones(20, 4, dtype=torch.bfloat16)}
    for refused in (lambda: fmoe.clip_norm(rounded, 1), lambda: fmoe.SGD()(mxd(), rounded)):
        with pytest.raises(fmoe.DomainError, match="the gradient of gate is bfloat16 and must be float32"):
            refused()

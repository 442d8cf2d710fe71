# SPDX-License-Identifier: MIT
"""Layers of files run with the authors' numbers."""
import copy
import faulthandler
import gc
import itertools
import pickle
import signal
import struct
import sys
import threading
import time

import numpy as np
import pytest

import fmoe

DATA = "examples/data/"
FILE = DATA + "minilm_l3_mxd_bf16.safetensors"


@pytest.fixture(scope="module")
def minilm():
    return fmoe.load(DATA + "minilm_l3_mxd_bf16.safetensors")


@pytest.fixture(scope="module")
def rows():
    return fmoe.read(DATA + "minilm_l3_rows.safetensors")


def off(made, wanted):
    return np.abs(made - wanted).max() / np.abs(wanted).max()


def test_a_released_layer_gives_the_authors_numbers(minilm, rows):
    assert minilm.levels == 1
    assert minilm.settings["kind"] == "mxd_mlp"
    assert off(minilm(rows["x"]), rows["y_bf16"]) < 1e-5


def test_a_call_is_the_compiled_one(minilm, rows):
    x = rows["x"]
    forward = minilm.compile(256)
    y = forward(x)
    assert y.shape == (256, 384) and y.dtype == np.float32
    assert (minilm(x) == y).all()
    assert (minilm(x[5]) == y[5]).all() and minilm(x[5]).shape == (384,)
    assert (minilm(x[:6].reshape(2, 3, 384)).reshape(6, 384) == y[:6]).all()
    assert off(minilm(x.astype(np.float64)), y) < 1e-5
    with pytest.raises(fmoe.ShapeError, match="compiled for at most 256"):
        forward(np.concatenate([x, x]))


@pytest.mark.parametrize("stored, option", [({"type": "bfloat16", "narrow": True}, "bf16_products"), ({"type": "q8"}, "int8_products")])
def test_products_that_round_their_rows(stored, option):
    x = fmoe.read("tests/mixtures/qwen3_moe_q8_0.io.safetensors")["x"]
    layer = fmoe.load_mixture("tests/mixtures/qwen3_moe_q8_0.gguf", 1, **stored)
    made = layer.compile(len(x), **{option: True})(x)
    assert 1e-4 < np.median(np.abs(made - layer(x)).max(1)) / np.abs(layer(x)).max() < 0.02
    assert "rounds its rows" in layer.explain(len(x), **{option: True}).text
    assert "rounds its rows" not in layer.explain(len(x)).text


def test_plans_and_costs(minilm):
    plan = minilm.explain(128)
    assert "multiply-adds a token" in plan.text and "digraph" in plan.dot
    assert plan.memory.packed > 0
    assert minilm.cost().factorized.multiply_adds < minilm.cost().naive_multiply_adds / 10


def test_parts_of_a_layer(minilm, rows):
    x = rows["x"][:8]
    a = minilm.coefficients(x)
    assert ((a > 0).sum(axis=1) <= int(minilm.settings["K"])).all()
    assert off(minilm.mixed(x, a), minilm(x)) < 1e-5
    n = int(a[0].argmax())
    assert minilm.expert(n).shape == (1536, 384)
    assert minilm.expert_output(x, n).shape == (8, 384)
    y = fmoe.input()
    doubled = fmoe.compile(2 * minilm(y), 8)
    assert (doubled(x) == 2 * minilm(x)).all()


def test_edits_return_layers(minilm, rows):
    x = rows["x"][:8]
    y, a = minilm(x), minilm.coefficients(x)
    n = int(a[0].argmax())
    without = minilm.ablated([n])
    assert (without.coefficients(x)[:, n] == 0).all() and not (without(x)[0] == y[0]).all()
    assert (without(x)[a[:, n] == 0] == y[a[:, n] == 0]).all()
    assert off(minilm.steered(n, 2)(x), y + 2 * minilm.expert_output(x, n)) < 1e-5
    mean = a.mean(axis=0)
    wanted = y.copy()
    wanted[:, 3] += -0.5 * a @ mean
    assert off(minilm.rewritten(3, mean, -0.5)(x), wanted) < 1e-5
    with pytest.raises(fmoe.DomainError, match="no expert 4096 among 4096"):
        minilm.ablated([4096])


def test_experts_of_monet_are_pairs(tmp_path):
    io = fmoe.read("tests/golden/monet/monet_vd_topk.io.safetensors")
    settings = {"K": io.metadata["k"], "heads": io.metadata["p"], "activation": io.metadata["activation"]}
    layer = fmoe.from_arrays(dict(fmoe.read("tests/golden/monet/monet_vd_topk.weights.safetensors")), metadata=settings)
    x = io["x"]
    g1, g2 = layer.routing(x)
    assert off(g1, io["g1"]) < 1e-5 and off(g2, io["g2"]) < 1e-5
    domains = fmoe.ExpertDomains(9, 2)
    domains.add(g1[:2], g2[:2], 0)
    domains.add(g1[2:], g2[2:], 1)
    probability = np.einsum("tpi,tpj->tij", g1, g2)
    first, second = probability[:2].mean(0), probability[2:].mean(0)
    assert domains.tokens(1) == 3 and abs(domains.mean_probability(0, (4, 7)) - first[4, 7]) < 1e-6
    experts = domains.experts_of(0)
    assert [tuple(e) for e in experts] == [tuple(e) for e in np.argwhere((first > 0) & (first >= 2 * second)).tolist()]
    without = layer.ablated(experts)
    settings["deleted"] = ";".join(f"{i},{j}" for i, j in experts)
    assert (without(x) == fmoe.from_arrays(layer.arrays(), metadata=settings)(x)).all() and not (without(x) == layer(x)).all()
    without.save(tmp_path / "unlearned.safetensors")
    assert (fmoe.load(tmp_path / "unlearned.safetensors")(x) == without(x)).all()
    assert layer.ablated([]) is layer
    with pytest.raises(fmoe.ShapeError, match="token, head, half"):
        domains.add(g1[0], g2[0], 0)
    with pytest.raises(fmoe.DomainError, match="Monet alone"):
        fmoe.load(DATA + "minilm_l3_mxd_bf16.safetensors").ablated([(1, 2)])


def test_saved_layers_are_equal(minilm, rows, tmp_path):
    minilm.save(tmp_path / "copy.safetensors")
    x = rows["x"][:4]
    assert (fmoe.load(tmp_path / "copy.safetensors")(x) == minilm(x)).all()
    again = fmoe.from_arrays(minilm.arrays(), metadata=minilm.settings)
    assert (again(x) == minilm(x)).all()


def test_files_are_mappings(rows):
    assert "x" in rows and "y" * 40 not in rows and len(rows) == len(list(rows))
    assert rows.metadata["words"]
    with pytest.raises(KeyError):
        rows["nothing"]
    with pytest.raises(fmoe.FileError, match="nothing.safetensors"):
        fmoe.read("nothing.safetensors")
    with pytest.raises(fmoe.FileError, match="holds no layer"):
        fmoe.load(DATA + "minilm_l3_rows.safetensors")


def test_files_of_ggml_and_weights_with_scales_are_read():
    blocks = fmoe.read("tests/io/blocks.gguf")
    assert blocks.metadata["a.i8"] == "-100"
    names = [name[:-5] for name in blocks if name.endswith(".want")]
    assert len(names) == 23
    for name in names:
        assert blocks[name].dtype == np.float32 and np.array_equal(blocks[name].view(np.uint32), blocks[name + ".want"].view(np.uint32))
    scaled = fmoe.read("tests/io/scaled.safetensors")
    assert np.array_equal(scaled["fp8.weight"][[0, 1, 127, 128, 129]], scaled["fp8.want"])
    assert np.array_equal(scaled["mxfp4_blocks"], scaled["mxfp4.want"])
    with pytest.raises(fmoe.FileError, match="F8_E4M3"):
        scaled["codes"]
    compressed = fmoe.read("tests/io/compressed.safetensors")
    forms = [name[:-5] for name in compressed if name.endswith(".want") and name != "e8m0.want"]
    assert len(forms) == 12
    for form in forms:
        name = next(form + ending for ending in (".weight", ".weight_packed") if form + ending in compressed)
        assert np.array_equal(compressed[name].view(np.uint32), compressed[form + ".want"].view(np.uint32))


def test_weights_of_a_mapped_file_are_written_in_a_copy(tmp_path):
    file = tmp_path / "layer.safetensors"
    fmoe.load("examples/data/minilm_l3_mxd_bf16.safetensors", type="float32").save(file)
    before, x = file.read_bytes(), np.random.default_rng(1).standard_normal((3, 384)).astype(np.float32)
    mapped, own = fmoe.load(file, mapped=True), fmoe.load(file)
    wanted = own(x)
    assert (mapped(x) == wanted).all()
    for layer in (mapped, own):
        next(iter(layer.parameters.values()))[...] *= 2
    assert (mapped(x) == own(x)).all() and not (own(x) == wanted).all()
    assert file.read_bytes() == before
    with pytest.raises(TypeError, match="mapped is True or False"):
        fmoe.load(file, mapped=1.5)


def test_blocks_that_nothing_decodes_are_refused_by_their_type(tmp_path):
    q8_k, bytes_of_256 = 15, 292
    header = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0)
    tensor = struct.pack("<Q1sIQIQ", 1, b"w", 1, 256, q8_k, 0)
    at = len(header) + len(tensor)
    file = tmp_path / "w.gguf"
    file.write_bytes(header + tensor + bytes(-at % 32 + bytes_of_256))
    with pytest.raises(fmoe.FileError, match="is Q8_K, blocks that fmoe does not decode"):
        fmoe.read(file)["w"]


def test_other_threads_run_meanwhile(minilm, rows):
    x = rows["x"]
    forward, wanted, wrong = minilm.compile(256, threads=1), minilm(x), []

    def work():
        for _ in range(3):
            if not (forward(x) == wanted).all():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_call_releases_the_interpreter_lock(minilm, rows):
    # While nobody is asked to give the lock back, another thread goes on only if a call releases it.
    forward, steps, done = minilm.compile(256, threads=1), [0], threading.Event()

    def others():
        while not done.is_set():
            steps[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=others)
    interval = sys.getswitchinterval()
    y = forward(rows["x"])
    x = rows["x"]
    thread.start()
    sys.setswitchinterval(1000)
    try:
        for _ in range(200):
            before = steps[0]
            forward(x, out=y)
            if steps[0] != before:
                return
        raise AssertionError("no other thread ran during 200 calls")
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()


def test_each_call_of_few_tokens_ends(minilm, rows):
    # Threads share the steps of such a call. Their wait once had no end, in one call of some thousands.
    faulthandler.dump_traceback_later(120, exit=True)
    assert minilm.statistics(itertools.repeat(rows["x"][:16], 3000), progress=False).tokens == 48000
    faulthandler.cancel_dump_traceback_later()


def test_statistics_of_a_stream(minilm, rows):
    x = rows["x"]
    a = minilm.coefficients(x)
    statistics = minilm.statistics([x[:100], x[100:].reshape(4, 39, 384)], progress=False)
    assert statistics.tokens == 256
    assert (np.array(statistics.counts) == (a != 0).sum(0)).all()
    assert off(statistics.frequency(), (a != 0).mean(0)) < 1e-12
    assert off(statistics.mean_coefficients(), a.astype(float).mean(0)) < 1e-12
    assert (statistics.largest() == a.max(0)).all()
    some = fmoe.ExpertStatistics(a.shape[1])
    some.add(a, members=[t % 2 == 0 for t in range(256)])
    assert some.tokens == 128 and (np.array(some.counts) == (a[::2] != 0).sum(0)).all()
    with pytest.raises(ValueError, match="no batch"):
        minilm.statistics([])
    with pytest.raises(fmoe.ShapeError, match="there are 4096 experts"):
        minilm.statistics([x], into=some).add(a[:, :7])


def test_ctrl_c_ends_a_stream(minilm, rows):
    statistics, x, end = fmoe.ExpertStatistics(4096), rows["x"][:16], time.monotonic() + 60

    def stream():
        while time.monotonic() < end:
            yield x

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            minilm.statistics(stream(), into=statistics, progress=False)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert statistics.tokens % 16 == 0 and len(statistics.counts) == 4096


def test_arrays_outlive_their_expressions():
    x = np.ones((2, 3), np.float32)
    forward = fmoe.compile(fmoe.input() * fmoe.parameter(np.full(3, 7, np.float32)), 2)
    gc.collect()
    assert (forward(x) == 7).all()


@pytest.mark.parametrize("name", ["deepseek_v3", "gpt_oss_mxfp4", "qwen3_moe_q4_0.gguf"])
def test_mixtures_of_released_models(name):
    want = fmoe.read(f"tests/mixtures/{name.split('.')[0]}.io.safetensors")
    layer = fmoe.load_mixture(f"tests/mixtures/{name}", 1)
    assert np.abs(layer(want["x"]) - want["y64"]).max() <= 2e-6 * np.abs(want["y64"]).max()
    with pytest.raises(fmoe.FileError, match="no mixture of experts"):
        fmoe.load_mixture(f"tests/mixtures/{name}", 0)


def test_layers_of_8_bits(minilm, rows, tmp_path):
    x, y = rows["x"][:8], minilm(rows["x"][:8])
    for type in ("q8", "q8c"):
        small = minilm.quantize(type)
        assert 0 < np.median(np.abs(small(x) - y).max(1) / np.abs(y).max(1)) < 0.05
        assert small.explain(1).memory.packed < minilm.explain(1).memory.packed
        small.save(tmp_path / "small.safetensors")
        assert (tmp_path / "small.safetensors").stat().st_size < sum(a.nbytes for a in minilm.arrays().values()) / 3.5
        assert off(fmoe.load(tmp_path / "small.safetensors")(x), small(x)) < 1e-5
    with pytest.raises(fmoe.DomainError, match="quantize the original layer"):
        minilm.ablated([3]).quantize()
    with pytest.raises(fmoe.DomainError, match="no type int4"):
        minilm.quantize("int4")


@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16", "q8", "q8c"])
def test_a_token_has_the_experts_of_the_file_in_every_type(type):
    want = fmoe.read("tests/mixtures/deepseek_v3_bf16.io.safetensors")
    layer = fmoe.load_mixture("tests/mixtures/deepseek_v3_bf16", 0, type=type, narrow=type == "float16")
    chosen = np.zeros((200, 32), bool)
    np.put_along_axis(chosen, want["chosen"], True, 1)
    assert ((layer.coefficients(want["x"]) != 0) == chosen).all()
    assert off(layer(want["x"]), want["y"]) < (0.03 if type.startswith("q8") else 2e-6)
    if not type.startswith("q8"):
        assert ((layer.quantize().coefficients(want["x"]) != 0) == chosen).all()
    assert layer.arrays()["router"].dtype == layer.arrays()["balance"].dtype == np.float32


@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16", "q8", "q8c"])
def test_mixtures_of_released_models_in_narrow_types(type):
    x = fmoe.read("tests/mixtures/qwen3_moe_q8_0.io.safetensors")["x"]
    wide = fmoe.load_mixture("tests/mixtures/qwen3_moe_q8_0.gguf", 1)
    layer = fmoe.load_mixture("tests/mixtures/qwen3_moe_q8_0.gguf", 1, type=type, narrow=True)
    if type.startswith("q8"):
        assert (layer(x) == wide.quantize(type)(x)).all()
    assert 0 <= np.median(np.abs(layer(x) - wide(x)).max(1)) / np.abs(wide(x)).max() < 0.05
    if type.endswith("16"):
        with pytest.raises(fmoe.FileError, match="would round"):
            fmoe.load_mixture("tests/mixtures/qwen3_moe_q8_0.gguf", 1, type=type)


def test_a_layer_keeps_the_sixteen_bits_of_its_file(minilm, rows):
    x = rows["x"]
    layer = fmoe.load(FILE, type="bfloat16")
    assert layer.explain(128).memory.weights < 0.6 * minilm.explain(128).memory.weights
    assert layer.settings == minilm.settings
    assert off(layer(x), minilm(x)) < 1e-5
    assert "rounds its rows" in layer.explain(128, bf16_products=True).text
    with pytest.raises(fmoe.FileError, match="is BF16, which float16 would round"):
        fmoe.load(FILE, type="float16")
    with pytest.raises(ValueError, match="there is no type float8"):
        fmoe.load(FILE, type="float8")


def test_paths_are_texts_bytes_and_of_pathlib(minilm, rows, tmp_path):
    x, file = rows["x"][:2], tmp_path / "wörter.safetensors"
    for name in (file, str(file), bytes(file)):
        minilm.save(name)
        assert (fmoe.load(name)(x) == minilm(x)).all()
        fmoe.write(name, {"x": x})
        assert (fmoe.read(name)["x"] == x).all()
        file.unlink()


def test_files_that_are_missing_are_named(tmp_path):
    with pytest.raises(fmoe.FileError, match='model.safetensors": is not there; the folder has no file of tensors'):
        fmoe.load(tmp_path)
    fmoe.write(tmp_path / "sae_weights.safetensors", {"x": np.ones(3, np.float32)})
    with pytest.raises(fmoe.FileError, match='sae_weights.safetensors": holds no layer that takes x alone; it has "x"'):
        fmoe.load(tmp_path)
    fmoe.write(tmp_path / "b.safetensors", {"x": np.ones(3, np.float32)})
    with pytest.raises(fmoe.FileError, match='the folder has "b.safetensors", "sae_weights.safetensors", each to be opened'):
        fmoe.load(tmp_path)
    with pytest.raises(fmoe.FileError, match='config.json": is not there: the settings of the model are expected in it'):
        fmoe.load_mixture(tmp_path / "sae_weights.safetensors", 0)
    with pytest.raises(fmoe.FileError, match='holds no layer that takes x alone; it has "x"'):
        fmoe.load(tmp_path / "sae_weights.safetensors")
    with pytest.raises(fmoe.FileError, match='holds no tensors behind "model.layers.3."; it has "W_cond", "W_dec", "W_enc" and'):
        fmoe.load(FILE, "model.layers.3.")


def test_out_of_a_layer_in_double_and_of_written_weights(minilm, rows):
    x = rows["x"][:3]
    out = np.empty((3, 384))
    assert minilm(x.astype(float), out=out) is out and (out == minilm(x.astype(float))).all()
    written, out = copy.copy(minilm), np.empty((3, 384), np.float32)
    written.parameters["b_dec_out"] += 1
    assert written(x, out=out) is out and (out == written(x)).all() and off(out, minilm(x) + 1) < 1e-5


def test_another_k(minilm, rows):
    x = rows["x"][:8]
    few = minilm.with_active(8)
    forward = minilm.compile(8)
    forward.keep(8)
    assert (few(x) == forward(x)).all() and not (few(x) == minilm(x)).all()
    assert few.settings["K"] == "8" and minilm.settings["K"] == "32"
    assert ((minilm.with_active(None).coefficients(x) > 0).sum(1) > 32).any()
    few.parameters["b_dec_out"] += 1
    assert off(few(x), forward(x) + 1) < 1e-5 and (minilm.with_active(8)(x) == forward(x)).all()
    for k, sentence in ((0, "at least 1"), (4097, "K is 4097"), (-1, "k is -1"), (2.0, "a whole number")):
        with pytest.raises((TypeError, ValueError), match=sentence):
            minilm.with_active(k)
    with pytest.raises(fmoe.DomainError, match="this kind of layer has none"):
        minilm.ablated([3]).with_active(8)
    with pytest.raises(fmoe.FileError, match="call layer.with_active"):
        fmoe.load(DATA + "minilm_l3_mxd_bf16.safetensors", active=8)


@pytest.mark.parametrize("make", [lambda m: m, lambda m: m.compile(4), lambda m: m.compile_gradients(4), lambda m: fmoe.read(FILE)])
def test_attributes_that_are_not_there_are_refused(minilm, make):
    made = make(minilm)
    for name in ("active", "K", "thread", "weight"):
        with pytest.raises(AttributeError, match=name):
            setattr(made, name, 8)
    if made is minilm:
        with pytest.raises(AttributeError, match=r"does not change: with_active\(k\) returns one with another K"):
            minilm.active = 8


def test_layers_are_copied_and_pickled(minilm, rows):
    x = rows["x"][:8]
    for layer in (minilm, minilm.with_active(8)):
        made = [copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
        for other in made:
            assert (other(x) == layer(x)).all() and other.settings == layer.settings
    edit = minilm.ablated([3]).steered(4, 2)
    assert (copy.deepcopy(edit)(x) == edit(x)).all()
    with pytest.raises(fmoe.DomainError, match="save the original layer"):
        pickle.dumps(edit)
    layer = fmoe.from_arrays(minilm.arrays(), metadata=minilm.settings)
    weights = layer.parameters
    copies, edits = [copy.copy(layer), copy.deepcopy(layer)], [layer.ablated([4095]), copy.copy(layer.ablated([4095]))]
    before, edited = layer(x), edits[0](x)
    assert (edits[1](x) == edited).all()
    weights["b_dec_out"] += 1
    assert not (layer(x) == before).all() and all((other(x) == before).all() for other in copies)
    for other in edits:  # which share the weights
        assert off(other(x), edited + 1) < 1e-5
    for compiled in (minilm.compile(4), minilm.compile_gradients(4)):
        for give in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="pickle the layer, and compile it again"):
                give(compiled)


@pytest.mark.parametrize("type", ["float32", "bfloat16", "float16", "q8", "q8c"])
def test_a_pickled_layer_keeps_the_type_of_its_weights(minilm, type):
    mixture = fmoe.load_mixture("tests/mixtures/deepseek_v3_bf16", 0, type=type, narrow=True)
    decoders = fmoe.from_arrays(minilm.arrays(), metadata=minilm.settings, type=type, narrow=True)
    of_mixture = fmoe.read("tests/mixtures/deepseek_v3_bf16.io.safetensors")["x"][:8]
    for layer, x in (decoders, np.ones((8, 384), np.float32)), (mixture, of_mixture):
        for other in (copy.copy(layer), pickle.loads(pickle.dumps(layer)), pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(layer))))):
            assert other.type == layer.type == type
            assert other.explain(8).memory.weights == layer.explain(8).memory.weights
            assert (other(x) == layer(x)).all()


def test_a_file_is_closed():
    with fmoe.read(FILE) as f:
        names = list(f)
        assert names and repr(f) == f"<fmoe.File of {len(names)} arrays>"
    for call in (lambda: f[names[0]], lambda: len(f), lambda: f.metadata):
        with pytest.raises(ValueError, match="the file is closed"):
            call()
    f.close()


def test_messages_of_from_arrays_name_no_file(minilm):
    for arrays in ({"W_enc": np.ones((2, 3), np.float32)}, {n: a.astype(float) for n, a in minilm.arrays().items()}):
        with pytest.raises(fmoe.FileError) as raised:
            fmoe.from_arrays(arrays)
        assert "safetensors" not in str(raised.value) and "/" not in str(raised.value)
    wide = {n: a.astype(float) for n, a in minilm.arrays().items()}
    x = np.ones((2, 384), np.float32)
    assert (fmoe.from_arrays(wide, metadata=minilm.settings, narrow=True)(x) == minilm(x)).all()

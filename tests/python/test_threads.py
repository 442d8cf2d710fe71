# SPDX-License-Identifier: MIT
"""Many threads use the package at once, also of an interpreter without the lock."""
import subprocess
import sys
import sysconfig
import threading

import numpy as np
import pytest

import fmoe

DATA = "examples/data/"
THREADS, ROUNDS = 6, 8


def at_once(work):
    """Runs work(i) on threads that begin together, and raises what one of them raised."""
    begin, raised = threading.Barrier(THREADS), []

    def run(i):
        try:
            begin.wait()
            work(i)
        except BaseException as e:
            raised.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if raised:
        raise raised[0]


@pytest.fixture(scope="module")
def x():
    return fmoe.read(DATA + "minilm_l3_rows.safetensors")["x"]


def small_layer(seed):
    rng = np.random.default_rng(seed)
    sizes = {"W_enc": (32, 64), "gate": (200, 32), "W_cond": (48, 200), "W_dec": (64, 48)}
    arrays = {name: rng.normal(size=s).astype(np.float32) for name, s in sizes.items()}
    return fmoe.from_arrays(arrays, active=4, metadata={"activation": "gelu"})


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter always has the lock")
def test_the_interpreter_stays_without_its_lock():
    subprocess.run([sys.executable, "-c", "import sys, fmoe; sys.exit(sys._is_gil_enabled())"], check=True)


def test_one_executable_and_one_layer(x):
    layer = fmoe.load(DATA + "minilm_l3_mxd_bf16.safetensors")
    forward, wanted, planned = layer.compile(64), layer(x), fmoe.load(DATA + "minilm_l3_mxd_bf16.safetensors")

    def work(i):
        for r in range(ROUNDS):
            rows = slice(16 * i + r, 16 * i + r + 40)
            assert (forward(x[rows]) == wanted[rows]).all()
            assert (planned(x[: 1 << r]) == wanted[: 1 << r]).all()  # each thread may find the plan too small

    at_once(work)


def test_layers_are_made_and_read_by_all_threads(tmp_path):
    rows = np.random.default_rng(1).normal(size=(30, 32)).astype(np.float32)
    layers = [small_layer(i) for i in range(THREADS)]
    wanted = [layer(rows) for layer in layers]
    weight = np.ones((48, 5), np.float32)
    shared = fmoe.parameter(weight)  # its packed form is made by the first thread that needs it

    def work(i):
        for r in range(ROUNDS):
            n = (i + r) % THREADS
            layers[i].save(tmp_path / f"{i}.safetensors")
            assert (fmoe.load(tmp_path / f"{i}.safetensors").compile(30, threads=1)(rows) == wanted[i]).all()
            assert (layers[n](rows) == wanted[n]).all()
            assert (layers[n].ablated([0]).coefficients(rows)[:, 0] == 0).all()
            made = fmoe.evaluate(fmoe.einsum("ti,io->to", wanted[n], shared))
            assert np.allclose(made, wanted[n] @ weight, rtol=1e-4, atol=1e-3)
            with pytest.raises(fmoe.ShapeError):
                layers[n](rows[:, :3])

    at_once(work)


def test_calls_of_one_step_wait_for_each_other():
    layer = small_layer(0)
    step = layer.compile_gradients(64)
    rows = [np.random.default_rng(i).normal(size=(64, 80)).astype(np.float32) for i in range(THREADS)]
    given = [(r[:, :32], r[:, 32:]) for r in rows]
    wanted = [step(*g) for g in given]

    def work(i):
        for _ in range(ROUNDS):
            made = step(*given[i])
            assert (made.y == wanted[i].y).all() and (made.dx == wanted[i].dx).all()
            assert all((made.parameters[name] == g).all() for name, g in wanted[i].parameters.items())

    at_once(work)


def test_statistics_are_added_by_all_threads():
    rng = np.random.default_rng(0)
    a = np.maximum(rng.normal(size=(500, 40)), 0).astype(np.float32)
    g = np.abs(rng.normal(size=(100, 2, 9))).astype(np.float32)
    statistics, domains = fmoe.ExpertStatistics(40), fmoe.ExpertDomains(9, 2)

    def work(i):
        for _ in range(ROUNDS):
            statistics.add(a)
            domains.add(g, g, i % 2)
            assert statistics.tokens % 500 == 0

    at_once(work)
    assert statistics.tokens == 500 * THREADS * ROUNDS
    assert (np.array(statistics.counts) == (a != 0).sum(0) * THREADS * ROUNDS).all()
    assert domains.tokens(0) + domains.tokens(1) == 100 * THREADS * ROUNDS
    mean = np.einsum("tpi,tpj->ij", g, g) / 100
    assert abs(domains.mean_probability(1, (3, 4)) - mean[3, 4]) < 1e-6


CALLS = {
    "layer": "layer(x)",
    "executable": "forward(x)",
    "evaluate": "fmoe.evaluate(fmoe.einsum('ti,io->to', x, w))",
    "compile": "fmoe.compile(fmoe.einsum('ti,io->to', fmoe.input(), w), 64)",
    "explain": "layer.explain(64)",
    "gradients": "step(x, x)",
    "load": f"fmoe.load('{DATA}minilm_l3_mxd_bf16.safetensors')",
    "quantize": "layer.quantize()",
}


@pytest.mark.parametrize("call", CALLS)
def test_daemon_threads_end_with_the_process(call):
    program = f"""
import threading, time
import numpy as np
import fmoe
rng = np.random.default_rng(0)
sizes = {{"W_enc": (32, 64), "gate": (200, 32), "W_cond": (32, 200), "W_dec": (64, 32)}}
arrays = {{name: rng.normal(size=s).astype(np.float32) for name, s in sizes.items()}}
layer = fmoe.from_arrays(arrays, active=4, metadata={{"activation": "gelu"}})
x, w = rng.normal(size=(64, 32)).astype(np.float32), np.ones((32, 300), np.float32)
forward, step, begun = layer.compile(64), layer.compile_gradients(64), threading.Barrier(4)

def work():
    begun.wait()
    while True:
        {CALLS[call]}

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.1)
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and done.stderr == ""

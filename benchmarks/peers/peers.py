# SPDX-License-Identifier: MIT
"""Compares fmoe with other libraries, each composed by hand into the factorized layer; scripts/peers starts it.

usage: peers.py PROGRAMS FOLDER [--filter=REGEX] [--tokens=1,16,128,1024] [--threads=1,2] [--only=mkl,jax] [--rounds=5]
                [--gradients]

With --gradients, a call is the forward and the backward pass with the gradients of all weights, of 512 and of 1,024 tokens.
"sparse" is fmoe with sparse_gradients, beside fmoe with gradients as large as the weights.

Every contestant is a process that holds the same weights. Before it is timed, its result is compared with fmoe's. Then they take
turns, round by round; those that wait are stopped, so that their idle threads take no processor. The medians are written to
FOLDER/table.csv or FOLDER/gradients.csv, which keeps the rows of earlier runs; the whole table is printed as Markdown.
"""
import argparse
import csv
import datetime
import math
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

import numpy
from safetensors import safe_open

import layers

HERE = pathlib.Path(__file__).parent
# The contestants whose weights are rounded: only their typical row is compared.
NARROW = ("fmoe bf16", "fmoe bf16 products", "fmoe q8", "fmoe q8 products", "ggml bf16", "ggml q8_0", "ggml q4_0", "ggml q4_k",
          "transformers bf16")
TRANSFORMERS = "transformers_peer.py"
# Contestants that are no peers with weights of float.
BESIDE = (*NARROW, "sparse")


def commands(programs, gradients):
    """{name: (program, variant)} of those that are here."""
    found = {
        "fmoe": (programs / "fmoe_peer", ["gradients"]),
        "dense": (HERE / "torch_peer.py", ["gradients", "dense"]),
        "PyTorch": (HERE / "torch_peer.py", ["gradients"]),
        "compiled": (HERE / "torch_peer.py", ["gradients", "compiled"]),
        "JAX": (HERE / "jax_peer.py", ["gradients"]),
        "sparse": (programs / "fmoe_peer", ["gradients", "sparse"]),
    } if gradients else {
        "fmoe": (programs / "fmoe_peer", []),
        "MKL": (programs / "mkl_peer", []),
        "OpenBLAS": (programs / "openblas_peer", []),
        "oneDNN": (programs / "onednn_peer", []),
        "ggml": (programs / "ggml_peer", []),
        "PyTorch": (HERE / "torch_peer.py", []),
        "compiled": (HERE / "torch_peer.py", ["compiled"]),
        "JAX": (HERE / "jax_peer.py", []),
        "transformers": (HERE / TRANSFORMERS, []),
        "fmoe bf16": (programs / "fmoe_peer", ["bf16"]),
        "fmoe bf16 products": (programs / "fmoe_peer", ["bf16", "products"]),
        "fmoe q8": (programs / "fmoe_peer", ["q8"]),
        "fmoe q8 products": (programs / "fmoe_peer", ["q8", "products"]),
        "ggml bf16": (programs / "ggml_peer", ["bf16"]),
        "ggml q8_0": (programs / "ggml_peer", ["q8_0"]),
        "ggml q4_0": (programs / "ggml_peer", ["q4_0"]),
        "ggml q4_k": (programs / "ggml_peer", ["q4_k"]),
        "transformers bf16": (HERE / TRANSFORMERS, ["bf16"]),
    }
    return {name: command for name, command in found.items()
            if command[0].exists() and (command[0].name != TRANSFORMERS or "TRANSFORMERS" in os.environ)}


def interpreter(program):
    """What starts a contestant: transformers has an environment of its own."""
    if program.suffix != ".py":
        return []
    return [os.environ["TRANSFORMERS"] if program.name == TRANSFORMERS else sys.executable]


class Contestant:
    """A process that runs only while it is asked."""

    def __init__(self, name, command, threads):
        self.name = name
        program, variant = command
        self.process = subprocess.Popen(
            [*interpreter(program), program, str(threads), *variant], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads]))
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        self.process.send_signal(signal.SIGCONT)
        answer = self.process.stdout.readline().strip()
        self.stop()
        if not answer:
            raise SystemExit(f"{self.name} ended")
        if answer.startswith("error"):
            print(f"{self.name}: {answer}", file=sys.stderr)
        return answer

    def end(self):
        self.process.kill()
        self.process.wait()


def agrees(name, y, expected, tokens):
    """True if the result is fmoe's. Rounding may exchange a choice between nearly equal scores, and with it a row."""
    if y.shape != expected.shape:
        return False
    y, expected = y.reshape(tokens, -1), expected.reshape(tokens, -1)
    if name in NARROW:
        errors = numpy.linalg.norm(y - expected, axis=1) / numpy.linalg.norm(expected, axis=1)
        return bool(numpy.median(errors) < (0.25 if "q4" in name else 0.05))
    wrong = ~(numpy.abs(y - expected).max(1) < 1e-4 * numpy.abs(expected).max())
    return bool(wrong.sum() <= (0 if tokens == 1 else max(1, tokens // 128)))


def parts_of(file, tokens, y):
    """The result of both passes as a list: y, dx, and the gradients by name."""
    with safe_open(file, framework="numpy") as arrays:
        shapes = {name: arrays.get_slice(name).get_shape() for name in arrays.keys()}
    sizes = [tokens * shapes[name][1] for name in ("dy", "x")]
    sizes += [math.prod(shapes[name]) for name in sorted(shapes) if name not in ("x", "dy")]
    return numpy.split(y, numpy.cumsum(sizes)[:-1]) if y.size == sum(sizes) else []


def gradients_agree(file, tokens, y, expected):
    """True if all gradients are fmoe's. An exchanged choice changes the gradients of few experts by much, and of weights that all
    rows share by little."""
    pairs = list(zip(parts_of(file, tokens, y), parts_of(file, tokens, expected)))
    return bool(pairs) and all(numpy.median(numpy.abs(g - e)) < 1e-3 * numpy.abs(e).max() and
                               numpy.linalg.norm(g - e) < 0.05 * numpy.linalg.norm(e) for g, e in pairs)


def measure(contestants, file, tokens, options):
    """Returns {name: seconds} of those that have the layer and agree, the share of the roof, and the names that disagree."""
    held, wrong, expected = [], [], None
    for c in contestants:
        answer = c.ask("rows", tokens, options.folder / "result")
        if answer != "ok":
            wrong += [c.name] if answer != "none" else []
            continue
        y = numpy.fromfile(options.folder / "result", dtype=numpy.float32)
        expected = y if expected is None else expected
        right = gradients_agree(file, tokens, y, expected) if options.gradients else agrees(c.name, y, expected, tokens)
        if right:
            held.append(c)
        else:
            print(f"{c.name} disagrees with fmoe", file=sys.stderr)
            wrong.append(c.name)
    times, shares, start = {c.name: [] for c in held}, [], time.monotonic()
    for done in range(options.rounds):
        for c in held:
            times[c.name].append(float(c.ask("time")))
        flops, size, peak, bandwidth = map(float, held[0].ask("roof").split())
        shares.append(max(flops / peak, size / bandwidth) / times["fmoe"][-1])
        if done >= 2 and time.monotonic() - start > 6:
            break
    return {name: statistics.median(t) for name, t in times.items()}, statistics.median(shares), wrong


def columns(names):
    return ["layer", "tokens", "threads", "fmoe ms", "of_roof", *names[1:], "date", "machine"]


def read_table(path):
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(row["layer"], row["tokens"], row["threads"]): row for row in csv.DictReader(file)}


def write_table(path, table, names):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns(names), restval="")
        writer.writeheader()
        writer.writerows(table.values())


def print_table(table, names):
    order = list(layers.LAYERS)
    if not table:
        return
    last = list(table.values())[-1]
    print(f"{last['machine']}; {last['date']}\n")
    shown = columns(names)[:-2]
    print("| " + " | ".join(shown) + " |\n" + "|---" * len(shown) + "|")
    for key in sorted(table, key=lambda key: (order.index(key[0]), int(key[2]), int(key[1]))):
        print("| " + " | ".join(table[key].get(name) or "-" for name in shown) + " |")
    print_rows_behind(table, names)


def print_rows_behind(table, names):
    """Prints the rows in which a peer with weights of float is ahead, the farthest first."""
    behind = []
    for (layer, tokens, threads), row in table.items():
        peers = [(float(row[name]), name) for name in names if name not in BESIDE and row.get(name) not in (None, "", "wrong")]
        if peers and min(peers)[0] < 1:
            behind.append((*min(peers), layer, tokens, threads))
    print(f"\nBehind the best peer with weights of float in {len(behind)} of {len(table)} rows:\n")
    for ratio, name, layer, tokens, threads in sorted(behind):
        print(f"* {layer}, tokens {tokens}, threads {threads}: {name} takes {ratio:.2f} of fmoe's time")


def numbers(text):
    return [int(n) for n in text.split(",")]


def parsed():
    options = argparse.ArgumentParser()
    options.add_argument("programs", type=pathlib.Path)
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("--gradients", action="store_true")
    options.add_argument("--filter", default="")
    options.add_argument("--tokens", type=numbers, default=[])
    options.add_argument("--threads", type=numbers, default=[1, 2])
    options.add_argument("--only", default="")
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    chosen.tokens = chosen.tokens or ([512, 1024] if chosen.gradients else [1, 16, 128, 1024])
    return chosen


def main():
    options = parsed()
    path = options.folder / ("gradients.csv" if options.gradients else "table.csv")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # which ends the contestants, too
    every = commands(options.programs, options.gradients)
    only = options.only.lower().split(",") if options.only else [name.lower() for name in every]
    chosen = {name: command for name, command in every.items() if name == "fmoe" or name.lower() in only}
    table, failed = read_table(path), []
    alone = Contestant("fmoe", chosen["fmoe"], os.cpu_count())
    machine = alone.ask("machine")
    alone.end()
    for threads in options.threads:
        contestants = [Contestant(name, command, threads) for name, command in chosen.items()]
        try:
            for layer in filter(lambda name: re.search(options.filter, name), layers.LAYERS):
                file = options.folder / "layer.safetensors"
                layers.write(layer, file)
                for c in contestants:
                    c.ask("layer", layers.kind_of(layer), file)
                for tokens in options.tokens:
                    seconds, share, wrong = measure(contestants, file, tokens, options)
                    failed += [(layer, tokens, threads, name) for name in wrong]
                    key = (layer, str(tokens), str(threads))
                    row = {name: f"{t / seconds['fmoe']:.2f}" for name, t in seconds.items() if name != "fmoe"}
                    row |= {name: "wrong" for name in wrong}
                    row |= dict(zip(("layer", "tokens", "threads"), key))
                    row |= {"fmoe ms": f"{1e3 * seconds['fmoe']:.3g}", "of_roof": f"{share:.2f}", "machine": machine,
                            "date": datetime.date.today().isoformat()}
                    table = read_table(path) | {key: row}
                    write_table(path, table, list(every))
                    print(" ".join(f"{name}:{value}" for name, value in row.items() if name != "machine"), file=sys.stderr)
        finally:
            for c in contestants:
                c.end()
    print_table(table, list(every))
    for what in failed:
        print("wrong or failed:", *what, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""Compares fmoe with PyTorch, eager and torch.compile, on the same shapes and threads; scripts/peers starts it.

usage: peers.py BENCH TABLE [--filter=REGEX] [--tokens=1,16,128,1024] [--threads=1,2] [--compile-only]

Each row is measured in rounds: fmoe, eager, compiled, fmoe, eager, compiled. The medians are added to TABLE, a CSV file, which
keeps the rows of earlier runs; the whole table is printed as Markdown. --compile-only fills torch's cache, so that a
later run spends its time on timing.
"""
import argparse
import csv
import json
import pathlib
import re
import statistics
import subprocess
import time

import torch

from layers import LAYERS

ROUNDS = 2
COLUMNS = ("row", "fmoe_us", "eager_us", "compiled_us", "eager/fmoe", "compiled/fmoe")


def fmoe_seconds(bench, row):
    command = [bench, "--no-naive", f"--benchmark_filter=^{re.escape(row)}/", "--benchmark_format=json"]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    measured = json.loads(result.stdout)["benchmarks"][0]
    if measured.get("error_occurred"):
        raise SystemExit(f"{row}: {measured['error_message']}")
    return 1e-6 * measured["real_time"]


def torch_seconds(forward, x, threads):
    """Returns the median of calls for 0.3 s, at least three; one thread is timed by its own time, as in fmoe_bench."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    times = []
    while len(times) < 3 or sum(times) < 0.3:
        start = clock()
        forward(x)
        times.append(clock() - start)
    return statistics.median(times)


def compiled_form(forward, x):
    """Returns the function of torch.compile, after it has agreed with `forward` on x."""
    torch.compiler.reset()
    compiled = torch.compile(forward, dynamic=False)
    y, z = forward(x), compiled(x)
    error = ((y - z).abs().amax(-1) > 1e-3 * y.abs().max()).float().mean().item()
    if error > 0.01:  # rows: a choice between near equals may differ
        raise SystemExit("torch.compile disagrees with eager")
    return compiled


def measure(bench, row, forward, x, threads):
    torch.set_num_threads(threads)
    compiled = compiled_form(forward, x)
    rounds = []
    for _ in range(ROUNDS):
        times = [fmoe_seconds(bench, row)]
        times += [torch_seconds(form, x, threads) for form in (forward, compiled)]
        rounds.append(times)
    fmoe, eager, compiled = (1e6 * statistics.median(column) for column in zip(*rounds))
    return [row, *(f"{us:.0f}" for us in (fmoe, eager, compiled)), f"{eager / fmoe:.2f}", f"{compiled / fmoe:.2f}"]


def read_table(path):
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {line[0]: line for line in list(csv.reader(file))[1:]}


def write_table(path, table):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *table.values()])


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("bench")
    options.add_argument("table", type=pathlib.Path)
    options.add_argument("--filter", default="")
    options.add_argument("--tokens", type=numbers, default=[1, 16, 128, 1024])
    options.add_argument("--threads", type=numbers, default=[1, 2])
    options.add_argument("--compile-only", action="store_true")
    options = options.parse_args()
    torch.manual_seed(1)
    with torch.inference_mode():
        for layer, make in LAYERS.items():
            if not re.search(options.filter, layer):
                continue
            forward, width = make()
            for tokens in options.tokens:
                x = torch.randn(1, tokens, width)
                for threads in options.threads:
                    if options.compile_only:
                        torch.set_num_threads(threads)
                        compiled_form(forward, x)
                        continue
                    row = f"{layer}/float/tokens:{tokens}/threads:{threads}"
                    line = measure(options.bench, row, forward, x, threads)
                    table = read_table(options.table) | {row: line}
                    write_table(options.table, table)
    for line in (COLUMNS, ["---"] * len(COLUMNS), *read_table(options.table).values()):
        print("| " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()

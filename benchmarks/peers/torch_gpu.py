# SPDX-License-Identifier: MIT
"""usage: torch_gpu.py FOLDER [--csv=FILE] [--seconds=N] [--forms=eager,compiled]

Times the layers that `fmoe_bench --cuda --save=FOLDER` wrote, in PyTorch: eager and by torch.compile, in fp32 and tf32, on the GPU or,
where there is none, on the CPU. The results of each layer are compared with fmoe's first; a wrong one makes the script fail. After
N seconds no other row is begun. --forms=compiled leaves out the rows of eager.
"""
import pathlib
import statistics
import sys
import time

import torch
from safetensors import safe_open

from torch_layers import LAYERS

LIMIT = 1e-4  # of the greatest number
TOKENS = [1, 16, 128, 1024, 16384]


def read(path):
    with safe_open(path, framework="pt") as file:
        numbers = {key: float(value) for key, value in (file.metadata() or {}).items()}
        return {name: file.get_tensor(name) for name in file.keys()}, numbers


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(call, device):
    """The median of five measurements of about 20 ms, by the clock of the host around calls that follow each other."""
    def of(calls):
        wait(device)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait(device)
        return (time.perf_counter() - start) / calls

    once = min(of(3), of(3))
    calls = max(2, min(2000, int(0.02 / once)))
    return statistics.median(of(calls) for _ in range(5))


def is_right(made, expected, selects):
    """Rounding may exchange a choice between nearly equal scores in one row of 64."""
    errors = (made - expected).abs().amax(1) / expected.abs().max()
    wrong = int((~(errors <= LIMIT)).sum())
    return wrong <= (len(errors) // 64 if selects else 0), float(errors.max())


def main(arguments):
    folder = pathlib.Path(arguments[0])
    options = dict(a.split("=", 1) for a in arguments[1:])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    deadline = time.monotonic() + float(options.get("--seconds", "inf"))
    tiny = device == "cpu"
    csv = open(options["--csv"], "w") if "--csv" in options else None
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name() if device == 'cuda' else 'the CPU'}")
    if csv:
        print("layer,form,math,tokens,us,device", file=csv)
    failed = left_out = 0
    made, rows_of = {}, {}
    for path in sorted(folder.glob("*.safetensors")):
        weights, numbers = read(path)
        x, y = weights.pop("x"), weights.pop("y")
        kind = path.stem
        layer = LAYERS[kind](weights, numbers).eval().to(device)
        with torch.no_grad():
            right, error = is_right(layer(x.to(device)).cpu(), y, kind not in ("cp", "tr"))
        print(f"{kind:10} {'agrees with fmoe' if right else 'IS WRONG'}, greatest difference {error:.1e}", flush=True)
        failed += not right
        made[kind] = layer
        rows_of[kind] = x
    print(f"{'layer':10} {'form':8} {'math':5} {'tokens':>6} {'us':>12}")
    # What takes long to compile comes last, because the time may end.
    for form in options.get("--forms", "eager,compiled").split(","):
        for kind, layer in made.items():
            for precision, tf32 in [("fp32", False), ("tf32", True)]:
                torch.backends.cuda.matmul.allow_tf32 = tf32
                if tiny and (tf32 or form == "compiled"):
                    continue
                for tokens in TOKENS[:2] if tiny else TOKENS if form == "eager" else TOKENS[::2]:
                    if time.monotonic() > deadline:
                        left_out += 1
                        continue
                    x = torch.randn(tokens, rows_of[kind].shape[1], device=device)
                    try:
                        if form == "compiled":
                            torch.compiler.reset()
                        run = torch.compile(layer, dynamic=False) if form == "compiled" else layer
                        with torch.no_grad():
                            run(x)
                            us = 1e6 * seconds_of(lambda: run(x), device)
                    except Exception as problem:  # a form that torch cannot compile, or too little memory: the others go on
                        print(f"{kind:10} {form:8} {precision:5} {tokens:6} {type(problem).__name__}", flush=True)
                        continue
                    print(f"{kind:10} {form:8} {precision:5} {tokens:6} {us:12.1f}", flush=True)
                    if csv:
                        print(f"{kind},{form},{precision},{tokens},{us:.2f},{device}", file=csv, flush=True)
    if left_out:
        print(f"{left_out} rows were left out: the time was up")
    return 1 if failed or not made else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

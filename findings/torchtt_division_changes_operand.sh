#!/usr/bin/env bash
# torchTT 0.5.0 with torch 2.15.0: x / 2 of a tensor train x also halves x. TT.__truediv__ (_tt_base.py) copies the list of cores and not
# the cores, and then divides the first one in place. Each further x / 2 halves x again; a tensor that was made of the same core tensor
# is changed, too. x * 2, -x and x + 1 leave x as it is.
#
# expected: x is the same after each operation
# seen: x after x / 2 is 0.50 of what it was, after two more 0.12; after x * 2, -x and x + 1: 1.00; x / 2 itself 0.50
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile torch==2.15.0 numpy==2.4.6 opt-einsum==3.4.0 scipy
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile --no-deps torchTT==0.5.0
cat >"$folder/half.py" <<'PYTHON'
import numpy as np
import torch
import torchtt

rng = np.random.default_rng(0)
cores = [rng.uniform(1, 2, shape) for shape in ((1, 3, 2), (2, 4, 3), (3, 5, 1))]
dense = np.einsum("aib,bjc,ckd->ijk", *cores)
x = torchtt.TT([torch.tensor(core) for core in cores])


def part(t):
    ratio = t.full().numpy() / dense
    assert np.ptp(ratio) < 1e-12
    return f"{ratio.mean():.2f}"


x * 2, -x, x + 1
others = part(x)
half = x / 2
result, once = part(half), part(x)
x / 2, x / 2
print(f"x after x / 2 is {once} of what it was, after two more {part(x)}; after x * 2, -x and x + 1: {others}; x / 2 itself {result}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore half.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "x after x / 2 is 0.50 of what it was, after two more 0.12; after x * 2, -x and x + 1: 1.00; x / 2 itself 0.50" ]

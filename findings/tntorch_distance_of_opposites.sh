#!/usr/bin/env bash
# tntorch 1.1.2 with torch 2.15.0: tn.dist of two compressed tensors is too small where their inner product is below 0, and r_squared, which
# uses it, is too great. dist computes sqrt(a.a + b.b - 2 max(a.b, 0)): the clamp, which is to keep rounding from a root of a number below
# 0, is applied to a.b and not to the whole. relative_error has it around the whole and is right, as is dist where a.b is above 0.
#
# expected: what torch.dist gives for the decompressed tensors, which tn.norm(a - b) gives, too
# seen: a.b = 0.44: dist 1.063 (right 1.063), r_squared -1.04 (-1.04); -b: dist 1.414 (right 1.694), r_squared -2.62 (-4.19); -a: dist
#       1.414 (right 2.000), r_squared -2.62 (-6.24)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile tntorch==1.1.2 torch==2.15.0 numpy==2.4.6 scipy
cat >"$folder/distance.py" <<'PYTHON'
import tntorch as tn
import torch

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
a, b = tn.rand([4, 5, 6], ranks_tt=3) - 0.5, tn.rand([4, 5, 6], ranks_tt=2)
a, b = a / tn.norm(a), b / tn.norm(b)
if tn.dot(a, b) < 0:
    b = -b


def compared(b):
    dense_a, dense_b = a.torch(), b.torch()
    right = torch.dist(dense_a, dense_b)
    assert torch.isclose(tn.norm(a - b), right) and torch.isclose(tn.relative_error(a, b) * tn.norm(a), right)
    squared = 1 - right**2 / torch.dist(dense_a, dense_a.mean()) ** 2
    return f"dist {tn.dist(a, b):.3f} (right {right:.3f}), r_squared {tn.r_squared(a, b):.2f} ({squared:.2f})"


print(f"a.b = {tn.dot(a, b):.2f}: {compared(b)}; -b: {compared(-b)}; -a: {compared(-a)}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore distance.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "a.b = 0.44: dist 1.063 (right 1.063), r_squared -1.04 (-1.04); -b: dist 1.414 (right 1.694), r_squared -2.62 (-4.19); -a: dist 1.414 (right 2.000), r_squared -2.62 (-6.24)" ]

#!/usr/bin/env bash
# ttglow 0.1.3 with torch 2.15.0: a TensorTrain of one mode, which flatten(), reshape and slices such as x[:, 0, 0] give, has wrong elements
# and sums. x[(i,)] is the square of the element: _get_element multiplies the first core with the last, and here both are one. x + y
# stacks the two: add takes the only core for the first of several and joins along the rank, which to_dense then gives as a second
# dimension. Nothing is raised. to_dense and hadamard of the same trains are right, as are elements and sums of two modes.
#
# expected: the element and the sum of the dense tensors
# seen: element of flatten(): 0.204, right -0.452, its square 0.204; of a slice: 0.110, right -0.331; shape of a sum: (3, 2), right (3,)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile ttglow==0.1.3 torch==2.15.0 numpy==2.4.6
cat >"$folder/mode.py" <<'PYTHON'
import torch
from ttglow import TensorTrain, hadamard

torch.manual_seed(0)
x = TensorTrain.random([3, 4, 5], [2, 2])
dense = x.to_dense()
flat, row, other = x.flatten(), x[:, 0, 0], x[:, 1, 0]
assert torch.allclose(flat.to_dense(), dense.flatten()) and torch.allclose(row.to_dense(), dense[:, 0, 0])
assert torch.allclose(hadamard(row, other).to_dense(), dense[:, 0, 0] * dense[:, 1, 0])
two, two_more = x[:, :, 0], x[:, :, 1]
assert torch.allclose(two[1, 2], dense[1, 2, 0]) and torch.allclose((two + two_more).to_dense(), dense[:, :, 0] + dense[:, :, 1])
element, right = flat[(7,)], dense.flatten()[7]
print(f"element of flatten(): {element:.3f}, right {right:.3f}, its square {right**2:.3f}; of a slice: {row[(1,)]:.3f}, right "
      f"{dense[1, 0, 0]:.3f}; shape of a sum: {tuple((row + other).to_dense().shape)}, right {tuple(dense[:, 0, 0].shape)}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore mode.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "element of flatten(): 0.204, right -0.452, its square 0.204; of a slice: 0.110, right -0.331; shape of a sum: (3, 2), right (3,)" ]

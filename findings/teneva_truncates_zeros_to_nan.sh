#!/usr/bin/env bash
# teneva 0.14.11: truncate of a tensor train of zeros gives NaN everywhere. The default, is_eigh=True, takes the singular vectors from
# matrix_svd (svd.py), which keeps at least one singular value and divides by it: 1 / 0 * 0. numpy prints warnings; nothing is raised.
# With is_eigh=False the zeros stay zeros, and matrix_svd of more rows than columns is right. Zeros come from x * 0, from a product with a
# mask, and from const(n, 0.) of teneva itself.
#
# expected: zeros
# seen: NaN: const(0) 625 of 625, x * 0 625 of 625, x * mask 625 of 625, with is_eigh=False 0 of 625; matrix_svd of zeros of 3 x 4: 4 NaN,
#       of 4 x 3: 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile teneva==0.14.11 numpy==2.4.6 scipy==1.17.1 opt-einsum==3.4.0
cat >"$folder/zeros.py" <<'PYTHON'
import numpy as np
import teneva

shape = [5, 5, 5, 5]
x = teneva.rand(shape, 3, seed=1)
mask = teneva.const(shape, 0.0)


def nans(train, **settings):
    assert not np.any(teneva.full(train))
    dense = teneva.full(teneva.truncate(train, **settings))
    return f"{np.isnan(dense).sum()} of {dense.size}"


rounded = teneva.full(teneva.truncate(teneva.add(x, x)))
assert np.allclose(rounded, 2 * teneva.full(x))
wide, high = teneva.matrix_svd(np.zeros((3, 4))), teneva.matrix_svd(np.zeros((4, 3)))
print(f"NaN: const(0) {nans(mask)}, x * 0 {nans(teneva.mul(x, 0.0))}, x * mask {nans(teneva.mul(x, mask))}, with is_eigh=False "
      f"{nans(mask, is_eigh=False)}; matrix_svd of zeros of 3 x 4: {np.isnan(wide[1]).sum()} NaN, of 4 x 3: {np.isnan(high[1]).sum()}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore zeros.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "NaN: const(0) 625 of 625, x * 0 625 of 625, x * mask 625 of 625, with is_eigh=False 0 of 625; matrix_svd of zeros of 3 x 4: 4 NaN, of 4 x 3: 0" ]

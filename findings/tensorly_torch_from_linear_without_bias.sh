#!/usr/bin/env bash
# tensorly-torch 0.5.0 with tensorly 0.10.0 and torch 2.15.0: FactorizedLinear.from_linear of a torch.nn.Linear that has no bias, as those of
# Llama and Mixtral, gives a layer with a random one, since bias=True is the default and the new bias, drawn by reset_parameters, is only
# replaced if the linear layer has one. The weights are factorised exactly here, so that all of the error is this bias.
#
# expected: the outputs of the linear layer, or no bias
# seen: from_linear: weights off by 0.000, outputs by 0.2 (the bias: 0.2); with bias=False: outputs by 0.000; of a linear layer with
#       a bias: outputs by 0.000
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile tensorly-torch==0.5.0 tensorly==0.10.0 \
  torch==2.15.0 numpy==2.4.6 packaging
cat >"$folder/bias.py" <<'PYTHON'
import numpy as np
import torch
from tltorch import FactorizedLinear

torch.manual_seed(0)
x = torch.randn(5, 16)
plain, other = torch.nn.Linear(16, 16, bias=False), torch.nn.Linear(16, 16)


def off(layer, linear):
    w = linear.weight.detach().numpy().astype(float)
    right = x.numpy().astype(float) @ w.T + (0 if linear.bias is None else linear.bias.detach().numpy())
    return np.abs(layer(x).detach().numpy() - right).max()


full = dict(factorization="Tucker", rank=(4, 4, 4, 4))
one = FactorizedLinear.from_linear(plain, n_tensorized_modes=2, **full)
none = FactorizedLinear.from_linear(plain, n_tensorized_modes=2, bias=False, **full)
both = FactorizedLinear.from_linear(other, n_tensorized_modes=2, **full)
weights = (one.weight.to_matrix() - plain.weight).abs().max()
print(f"from_linear: weights off by {weights:.3f}, outputs by {off(one, plain):.1f} (the bias: {one.bias.abs().max():.1f}); with bias=False: "
      f"outputs by {off(none, plain):.3f}; of a linear layer with a bias: outputs by {off(both, other):.3f}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore bias.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "from_linear: weights off by 0.000, outputs by 0.2 (the bias: 0.2); with bias=False: outputs by 0.000; of a linear layer with a bias: outputs by 0.000" ]

#!/usr/bin/env bash
# deeplens-sae 0.1.1 with torch 2.15.0: unit_norm_decoder=True, the default, which "constrains decoder weight columns to unit norm", gives
# unit norm to the rows. The columns of decoder.weight, [inputs, features], are the directions of the features; _renorm_decoder takes the
# norm along dim=1, so that it scales each coordinate of all features together. Directions of features have any length: the scale between
# code and direction, which the setting is to remove, stays, and one feature can shrink its codes, and so its L1 loss, for nothing.
#
# expected: norms of the columns of 1 before and after a step with post_step; a feature that grows in the decoder is scaled back
# seen: new: columns 0.4 to 0.6, rows 1.0 to 1.0; after 20 steps: columns 0.4 to 0.6, rows 1.0 to 1.0; a column of 5.0 after
#       post_step: 3.9
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile torch==2.15.0 numpy==2.4.6
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile --no-deps deeplens-sae==0.1.1
cat >"$folder/norms.py" <<'PYTHON'
import importlib.util

import torch

folder = importlib.util.find_spec("deeplens").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("sae", folder + "/sae.py")  # this file alone: the package imports data sets and wandb
sae = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sae)


def norms(layer):
    w = layer.decoder.weight.detach()
    return f"columns {w.norm(dim=0).min():.1f} to {w.norm(dim=0).max():.1f}, rows {w.norm(dim=1).min():.1f} to {w.norm(dim=1).max():.1f}"


torch.manual_seed(0)
layer = sae.SparseAutoencoder(input_dims=64, n_features=256, beta_l1=1e-3, unit_norm_decoder=True)
new = norms(layer)
optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)
for _ in range(20):
    loss, _ = layer.loss(torch.randn(32, 64))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    layer.post_step()
trained = norms(layer)
with torch.no_grad():
    layer.decoder.weight[:, 7] *= 10
before = layer.decoder.weight[:, 7].norm().item()
layer.post_step()
print(f"new: {new}; after 20 steps: {trained}; a column of {before:.1f} after post_step: {layer.decoder.weight[:, 7].norm():.1f}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore norms.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "new: columns 0.4 to 0.6, rows 1.0 to 1.0; after 20 steps: columns 0.4 to 0.6, rows 1.0 to 1.0; a column of 5.0 after post_step: 3.9" ]

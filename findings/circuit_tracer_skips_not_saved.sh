#!/usr/bin/env bash
# circuit-tracer 0.5.0 with torch 2.15.0: a cross-layer transcoder with skip_connection=True loses its skips on the way through its own
# files. to_safetensors writes W_enc, W_dec, biases and thresholds, but no W_skip; load_clt then makes a transcoder without skips, and
# nothing warns. Its forward() cannot be called with skips at all: it calls decode without the input that decode asserts.
#
# seen: tensors of 3 layers saved: W_dec, W_enc, b_dec, b_enc; outputs off by 0.33 of the greatest; forward raises AssertionError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile circuit-tracer==0.5.0 torch==2.15.0
cat >"$folder/clt.py" <<'PYTHON'
import pathlib

import torch
from circuit_tracer.transcoder.cross_layer_transcoder import CrossLayerTranscoder, load_clt
from safetensors import safe_open

torch.manual_seed(0)
how = dict(dtype=torch.float32, device=torch.device("cpu"))
clt = CrossLayerTranscoder(3, 16, 8, skip_connection=True, lazy_decoder=False, **how)
x = torch.randn(3, 5, 8)  # layer, token, input
with torch.no_grad():
    for p in clt.parameters():
        p.copy_(torch.randn_like(p))
    clt.to_safetensors("saved")
    again = load_clt("saved", **how)
    y, z = (c.decode(c.encode(x).to_sparse(), x) for c in (clt, again))
names = {name[:-2] for file in pathlib.Path("saved").iterdir() for name in safe_open(file, "pt").keys()}
try:
    clt(x)
    forward = "works"
except Exception as e:
    forward = f"raises {type(e).__name__}"
print(f"tensors of 3 layers saved: {', '.join(sorted(names))}; outputs off by {(y - z).abs().max() / y.abs().max():.2f} of the greatest; "
      f"forward {forward}")
PYTHON
found=$(cd "$folder" && HF_HUB_OFFLINE=1 HOME=$folder venv/bin/python -W ignore clt.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "tensors of 3 layers saved: W_dec, W_enc, b_dec, b_enc; outputs off by 0.33 of the greatest; forward raises AssertionError" ]

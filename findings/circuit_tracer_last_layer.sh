#!/usr/bin/env bash
# circuit-tracer 0.5.0 with torch 2.15.0: load_gemma_scope_2_clt, which reads cross-layer transcoders of Gemma Scope 2, reads the files
# of all layers but the last one, so that the decoders of the others, which write to every layer, fit no more. It raises for each set of
# files whose layers are numbered from 0; with a further name for the last number, whose file it never opens, it reads them all.
#
# seen: files of 3 layers: RuntimeError; with the key 3 for a file that is not there: 3 layers
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile circuit-tracer==0.5.0 torch==2.15.0
cat >"$folder/clt.py" <<'PYTHON'
import torch
from circuit_tracer.transcoder.cross_layer_transcoder import load_gemma_scope_2_clt
from safetensors.torch import save_file

d, h, layers = 8, 16, 3
shapes = {"w_enc": (d, h), "w_dec": (h, layers, d), "b_enc": (h,), "b_dec": (d,), "threshold": (h,)}
paths = {n: f"layer_{n}.safetensors" for n in range(layers)}
for path in paths.values():
    save_file({name: torch.rand(shape) for name, shape in shapes.items()}, path)


def read(files):
    try:
        return f"{load_gemma_scope_2_clt(files, device=torch.device('cpu'), dtype=torch.float32).n_layers} layers"
    except Exception as e:
        return type(e).__name__


print(f"files of 3 layers: {read(paths)}; with the key 3 for a file that is not there: {read(paths | {3: 'none'})}")
PYTHON
found=$(cd "$folder" && HF_HUB_OFFLINE=1 HOME=$folder venv/bin/python -W ignore clt.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "files of 3 layers: RuntimeError; with the key 3 for a file that is not there: 3 layers" ]

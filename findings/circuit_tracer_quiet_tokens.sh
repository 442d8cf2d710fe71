#!/usr/bin/env bash
# circuit-tracer 0.5.0 with torch 2.15.0: the output of a cross-layer transcoder has no rows for the last tokens in which no feature is
# active, in any layer. decode takes the number of tokens from the last one that has an active feature, in place of that of the input,
# so that 5 tokens become 3 here and the bias of the output is lost for the others. With no active feature at all it raises ValueError.
#
# seen: 5 tokens in, all active: 5 out; the last two without an active feature: 3 out; none: ValueError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile circuit-tracer==0.5.0 torch==2.15.0
cat >"$folder/clt.py" <<'PYTHON'
import torch
from circuit_tracer.transcoder.cross_layer_transcoder import CrossLayerTranscoder

torch.manual_seed(0)
clt = CrossLayerTranscoder(3, 16, 8, lazy_decoder=False, dtype=torch.float32, device=torch.device("cpu"))
with torch.no_grad():
    for p in clt.parameters():
        p.copy_(torch.randn_like(p))
    clt.b_enc.fill_(-0.1)


def tokens_out(active):
    x = torch.randn(3, 5, 8)  # layer, token, input
    x[:, active:] = 0
    try:
        with torch.no_grad():
            return f"{clt(x).shape[1]} out"
    except Exception as e:
        return type(e).__name__


print(f"5 tokens in, all active: {tokens_out(5)}; the last two without an active feature: {tokens_out(3)}; none: {tokens_out(0)}")
PYTHON
found=$(cd "$folder" && HF_HUB_OFFLINE=1 HOME=$folder venv/bin/python -W ignore clt.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "5 tokens in, all active: 5 out; the last two without an active feature: 3 out; none: ValueError" ]

#!/usr/bin/env bash
# overcomplete 0.3.0 with torch 2.15.0: an autoencoder that is in eval mode when load_state_dict is called keeps its old dictionary. The
# codes are those of the file, and decode multiplies them with random vectors. DictionaryLayer.train(False) makes the dictionary that
# eval mode uses, _fused_dictionary, once; loading does not change it, nor does a second eval(), which takes the old one again.
# train() and eval() after loading help. For BatchTopKSAE the file also lacks the threshold, without which eval mode raises.
#
# expected: the loaded autoencoder gives the outputs of the saved one
# seen: load, eval: off by 0.00; eval, load: codes off by 0.00, outputs by 0.98 of the greatest; a second eval: 0.98; train, eval: 0.00;
#       BatchTopKSAE: saved encoder.final_block.0.weight, encoder.final_block.0.bias, dictionary._weights, dictionary.multiplier; AssertionError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile overcomplete==0.3.0 torch==2.15.0 matplotlib==3.8.4
cat >"$folder/load.py" <<'PYTHON'
import torch
from overcomplete.sae import BatchTopKSAE, TopKSAE

torch.manual_seed(0)
x = torch.randn(5, 8)
make = lambda: TopKSAE(8, 32, top_k=4, encoder_module="linear")
saved = make().eval()
torch.save(saved.state_dict(), "sae.pt")
y, z = saved.encode(x)[1], saved(x)[2]


def off(sae):
    return f"{(sae(x)[2] - z).abs().max() / z.abs().max():.2f}"


good, sae = make(), make().eval()
good.load_state_dict(torch.load("sae.pt"))
sae.load_state_dict(torch.load("sae.pt"))
line = f"load, eval: off by {off(good.eval())}; eval, load: codes off by {(sae.encode(x)[1] - y).abs().max():.2f}, outputs by {off(sae)} of the "
line += f"greatest; a second eval: {off(sae.eval())}; train, eval: {off(sae.train().eval())}"
batch, again = (BatchTopKSAE(8, 32, top_k=20, encoder_module="linear") for _ in range(2))
batch(x)
again.load_state_dict(batch.state_dict())
try:
    again.eval()(x)
    what = "works"
except Exception as e:
    what = type(e).__name__
print(f"{line}; BatchTopKSAE: saved {', '.join(batch.state_dict())}; {what}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore load.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "load, eval: off by 0.00; eval, load: codes off by 0.00, outputs by 0.98 of the greatest; a second eval: 0.98; train, eval: 0.00; BatchTopKSAE: saved encoder.final_block.0.weight, encoder.final_block.0.bias, dictionary._weights, dictionary.multiplier; AssertionError" ]

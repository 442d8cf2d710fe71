#!/usr/bin/env bash
# st-moe-pytorch 0.1.8 with torch 2.15.0: the balance loss hardly sees a router that sends all tokens to one expert. It is meant to be the
# mean over experts of (part of the tokens whose first choice the expert is) * (mean gate) * experts^2: 1 where tokens are spread evenly, 16
# where one of 16 experts has them all. TopNGating.forward keeps the first choices as mask_1 = mask[0], a view, and then takes tokens
# beyond the capacity out of mask in place, so that no expert counts with more than its capacity, 1.25 / 16 of the tokens. The slope that
# should spread the tokens is too small by the same factor. mixture-of-experts 0.2.3, whose gates have the same formula, is right.
#
# expected: what numpy computes in float64 from the gates
# seen: all tokens to one expert: st-moe-pytorch 1.25, mixture-of-experts 16.00, numpy 16.00; random router: 0.77, 8.91, 8.91
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile st-moe-pytorch==0.1.8 mixture-of-experts==0.2.3 \
  torch==2.15.0 numpy==2.4.6
cat >"$folder/balance.py" <<'PYTHON'
import numpy as np
import torch
from mixture_of_experts import MoE as Other
from st_moe_pytorch import MoE

torch.manual_seed(0)
experts, width, tokens = 16, 8, 256
x = torch.rand(2, tokens, width) + 0.1


def losses(weight):
    moe, other = MoE(dim=width, num_experts=experts), Other(dim=width, num_experts=experts)
    with torch.no_grad():
        moe.gate.to_gates.weight.copy_(weight)
        other.gate.w_gating.copy_(weight.T)
    logits = x.numpy().astype(float) @ weight.numpy().astype(float).T
    gates = np.exp(logits - logits.max(-1, keepdims=True))
    gates /= gates.sum(-1, keepdims=True)
    first = np.eye(experts)[gates.argmax(-1)]
    right = (first.mean(1) * gates.mean(1)).mean() * experts**2
    return [moe(x).balance_loss.item(), other(x)[1].item() / other.loss_coef, right]


one, spread = torch.zeros(experts, width), torch.randn(experts, width)
one[0] = 30
names = "st-moe-pytorch", "mixture-of-experts", "numpy"
print(f"all tokens to one expert: {', '.join(f'{n} {v:.2f}' for n, v in zip(names, losses(one)))}; "
      f"random router: {', '.join(f'{v:.2f}' for v in losses(spread))}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore balance.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "all tokens to one expert: st-moe-pytorch 1.25, mixture-of-experts 16.00, numpy 16.00; random router: 0.77, 8.91, 8.91" ]

#!/usr/bin/env bash
# PEER-pytorch 0.2.2 with torch 2.15.0: num_experts_per_head of PEER, which the README sets to 16 ("he settled on 16"), with a width of heads *
# num_experts_per_head, has no effect: each head takes one expert, and for each value of it the output has the same bits.
# __init__ sets num_experts_per_head_topk to 1 wherever non_competing_scores is true, which is the default and is not in the README;
# a remark in the source hints at more heads for this case. PEERLora does the same, and its lora_k still says 4 heads * 4 = 16, where 4
# are used. With non_competing_scores=False both take what was asked.
#
# expected: 16 experts a head, that is 128 a token, and other outputs for other numbers
# seen: 16 a head: 8 experts a token, 1 a head: 8, same bits: True; PEERLora: lora_k 16, used 4; non_competing_scores=False: 128 and 8, same
#       bits: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile PEER-pytorch==0.2.2 torch==2.15.0 einops==0.8.2 einx==0.4.3 numpy==2.4.6
cat >"$folder/experts.py" <<'PYTHON'
import torch
from PEER_pytorch import PEER, PEERLora


def run(kind, **settings):
    torch.manual_seed(0)
    layer, used = kind(dim=32, num_experts=64**2, **settings), []
    table = layer.weight_down_embed if kind is PEER else layer.proj_in_lora_a
    table.register_forward_hook(lambda module, inputs, output: used.append(inputs[0][0, 0].numel()))
    y = layer(torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1)))
    return layer, y, used[0]


_, y16, used16 = run(PEER, heads=8, num_experts_per_head=16)
_, y1, used1 = run(PEER, heads=8, num_experts_per_head=1)
lora, _, ranks = run(PEERLora)
_, soft16, used_soft16 = run(PEER, heads=8, num_experts_per_head=16, non_competing_scores=False)
_, soft1, used_soft1 = run(PEER, heads=8, num_experts_per_head=1, non_competing_scores=False)
print(f"16 a head: {used16} experts a token, 1 a head: {used1}, same bits: {torch.equal(y16, y1)}; PEERLora: lora_k {lora.lora_k}, used "
      f"{ranks}; non_competing_scores=False: {used_soft16} and {used_soft1}, same bits: {torch.equal(soft16, soft1)}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore experts.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "16 a head: 8 experts a token, 1 a head: 8, same bits: True; PEERLora: lora_k 16, used 4; non_competing_scores=False: 128 and 8, same bits: False" ]

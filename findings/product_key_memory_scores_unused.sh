#!/usr/bin/env bash
# product-key-memory 0.3.0 with torch 2.15.0: with concat_values_and_combine=True the values that a memory finds are added up without their
# scores. PKM.forward makes weights of the scores of the best keys (softmax), and only its branch without this setting multiplies the
# values by them. With the setting, the scores decide which values are found, and nothing else: keys and queries have no gradient and
# are never trained, and attn_dropout and non_competitive_gates do nothing.
#
# expected: the output of numpy in float64 with scores; a gradient for each parameter
# seen: with scores off by 2.88 of the greatest, without scores by 0.00; without gradient: keys, to_queries.weight, norm.weight, norm.bias;
#       without the setting: with scores off by 0.00, all parameters have a gradient
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile product-key-memory==0.3.0 torch==2.15.0 numpy==2.4.6
cat >"$folder/scores.py" <<'PYTHON'
import numpy as np
import torch
from product_key_memory import PKM

heads, keys, best, size, width = 2, 8, 4, 8, 16


def compare(combines):
    torch.manual_seed(0)
    pkm = PKM(width, heads=heads, num_keys=keys, topk=best, dim_head=size, concat_values_and_combine=combines)
    with torch.no_grad():
        pkm.keys.mul_(8)  # scores that differ
    x = torch.randn(1, 5, width)
    y = pkm(x)
    y.square().sum().backward()
    p = {name: v.detach().numpy().astype(float) for name, v in pkm.named_parameters()}
    q = (x[0].numpy().astype(float) @ p["to_queries.weight"].T).reshape(5, 2, heads, size)  # token, half, head, width
    q = (q - q.mean(-1, keepdims=True)) / np.sqrt(q.var(-1, keepdims=True) + 1e-5) * p["norm.weight"] + p["norm.bias"]
    half = np.einsum("tphd,hnpd->pthn", q, p["keys"])
    scores = (half[0][..., :, None] + half[1][..., None, :]).reshape(5, heads, keys * keys)
    chosen = np.argsort(-scores, -1)[..., :best]
    weight = np.exp(np.take_along_axis(scores, chosen, -1))
    weight /= weight.sum(-1, keepdims=True)
    off = []
    for w in (weight, np.ones_like(weight)):
        found = np.einsum("thk,thkd->thd", w, p["values.weight"][chosen])
        right = found.reshape(5, -1) @ p["maybe_concat_combine.2.weight"].T if combines else found.sum(1)
        off.append(np.abs(y[0].detach().numpy() - right).max() / np.abs(right).max())
    return off, [name for name, v in pkm.named_parameters() if v.grad is None]


off, lost = compare(True)
off2, lost2 = compare(False)
print(f"with scores off by {off[0]:.2f} of the greatest, without scores by {off[1]:.2f}; without gradient: {', '.join(lost)}; "
      f"without the setting: with scores off by {off2[0]:.2f}, {'all' if not lost2 else 'not all'} parameters have a gradient")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore scores.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "with scores off by 2.88 of the greatest, without scores by 0.00; without gradient: keys, to_queries.weight, norm.weight, norm.bias; without the setting: with scores off by 0.00, all parameters have a gradient" ]

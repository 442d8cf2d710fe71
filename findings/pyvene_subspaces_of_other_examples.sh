#!/usr/bin/env bash
# pyvene 0.1.8 with transformers 5.24.0 and torch 2.15.0: an interchange at one position whose subspaces differ from example to example
# writes the subspaces of all examples of the batch into each of them, if each has equally many dimensions. [[0], [1], [2]] replaces the
# dimensions 0, 1 and 2 in all three. With numbers of dimensions that differ, or with one example a call, it does what was asked.
# _do_intervention_by_swap (intervention_utils.py) indexes base[..., positions, dimensions], where the list of the examples stands at the
# place of the positions. With as many positions as examples each position gets the dimensions of another example; with other numbers
# of positions it raises.
#
# expected: the same logits for the batch as for its examples one at a time
# seen: difference, as a part of the greatest logit: [[0], [1], [2]] 0.41, [[0, 1], [2, 3], [4, 5]] 0.64, [[0], [1], [2, 3]] 0.00,
#       [[0], [0], [0]] 0.00; ones into zeros at [[0], [1], [2]]: the first example is [1, 1, 1, 0]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile transformers==5.24.0 torch==2.15.0 numpy==2.4.6 \
  matplotlib networkx
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile --no-deps pyvene==0.1.8
cat >"$folder/subspaces.py" <<'PYTHON'
import pyvene
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)).eval()
intervene = pyvene.IntervenableModel(pyvene.IntervenableConfig([pyvene.RepresentationConfig(0, "block_output", "pos", 1)],
                                                               pyvene.VanillaIntervention), model)
base, source = torch.arange(15).reshape(3, 5), torch.arange(15, 30).reshape(3, 5)


def logits(subspaces, rows):
    inputs = {"input_ids": base[rows]}, [{"input_ids": source[rows]}]
    with torch.no_grad():
        return intervene(*inputs, {"sources->base": 2}, subspaces=[subspaces[rows]])[1].logits


def difference(subspaces):
    alone = torch.cat([logits(subspaces, slice(n, n + 1)) for n in range(3)])
    return f"{subspaces} {(logits(subspaces, slice(3)) - alone).abs().max() / alone.abs().max():.2f}"


swap = pyvene.VanillaIntervention(embed_dim=4)
row = swap(torch.zeros(3, 1, 4), torch.ones(3, 1, 4), subspaces=[[0], [1], [2]])[0, 0].int().tolist()
print(f"difference, as a part of the greatest logit: {difference([[0], [1], [2]])}, {difference([[0, 1], [2, 3], [4, 5]])}, "
      f"{difference([[0], [1], [2, 3]])}, {difference([[0], [0], [0]])}; ones into zeros at [[0], [1], [2]]: the first example is {row}")
PYTHON
found=$(cd "$folder" && HF_HUB_OFFLINE=1 HOME=$folder venv/bin/python -W ignore subspaces.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "difference, as a part of the greatest logit: [[0], [1], [2]] 0.41, [[0, 1], [2, 3], [4, 5]] 0.64, [[0], [1], [2, 3]] 0.00, [[0], [0], [0]] 0.00; ones into zeros at [[0], [1], [2]]: the first example is [1, 1, 1, 0]" ]

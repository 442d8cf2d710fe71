#!/usr/bin/env bash
# transformers 5.24.0: a Hunyuan 4 model (hy_v4) that is loaded and saved again has other names than before. Loading turns
# "linear_gate", the name that attention's gate has in files, into "gate_proj". Saving turns every "gate_proj" back, so that the gates of
# dense and of shared experts, which were "gate_proj" in the file, become "linear_gate", too. transformers reads both; other readers of
# the first file do not find the gates in the second.
#
# seen: loaded: mlp.gate_proj, mlp.shared_experts.gate_proj, self_attn.linear_gate; saved: mlp.linear_gate,
#       mlp.shared_experts.linear_gate, self_attn.linear_gate; logits differ by 0.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile transformers==5.24.0 torch==2.15.0
cat >"$folder/gates.py" <<'PYTHON'
import torch
from safetensors.torch import load_file, save_file
from transformers import HYV4Config, HYV4ForCausalLM

torch.manual_seed(0)
sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=24, moe_intermediate_size=8, num_hidden_layers=2, hc_mult=2)
heads = dict(num_attention_heads=2, num_key_value_heads=2, head_dim=8, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4,
             qk_nope_head_dim=4, v_head_dim=4, index_n_heads=2, index_head_dim=8, index_topk=4)
experts = dict(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2)
HYV4ForCausalLM(HYV4Config(**sizes, **heads, **experts, pad_token_id=0, bos_token_id=1, eos_token_id=2)).save_pretrained("model")


def gates():
    names = {name.split(".", 3)[3].removesuffix(".weight") for name in load_file("model/model.safetensors") if ".layers." in name}
    return ", ".join(sorted(name for name in names if name.endswith(("linear_gate", "gate_proj"))))


def logits():
    model = HYV4ForCausalLM.from_pretrained("model")
    with torch.no_grad():
        return model, model(torch.arange(8)[None]).logits


tensors = load_file("model/model.safetensors")
renamed = {name if "self_attn" in name else name.replace("linear_gate", "gate_proj"): t for name, t in tensors.items()}
save_file(renamed, "model/model.safetensors", {"format": "pt"})
before = gates()
model, y = logits()
model.save_pretrained("model")
print(f"loaded: {before}; saved: {gates()}; logits differ by {float((logits()[1] - y).abs().max())}")
PYTHON
found=$(cd "$folder" && HF_HUB_OFFLINE=1 HOME=$folder venv/bin/python -W ignore gates.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "loaded: mlp.gate_proj, mlp.shared_experts.gate_proj, self_attn.linear_gate; saved: mlp.linear_gate, mlp.shared_experts.linear_gate, self_attn.linear_gate; logits differ by 0.0" ]

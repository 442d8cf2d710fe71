#!/usr/bin/env bash
# transformers 5.24.0 with gguf 0.19.0: from_pretrained of a GGUF file of gpt-oss, one of its GGUF architectures, gives a model whose
# experts and attention sinks are random numbers, others for each load. The class for these experts looks for ffn_gate_projs, where gguf
# and llama.cpp write ffn_gate_exps, and is registered for "gpt_oss", where the file says "gpt-oss". A report of missing names is logged;
# nothing is raised. A file that also has settings of YaRN, as gpt-oss uses them, raises.
# seen: 15 of 20 tensors as in the file; missing: experts.down_proj, experts.down_proj_bias, experts.gate_up_proj,
#       experts.gate_up_proj_bias, sinks; deviation of the experts 0.02, in the file 0.20; two loads differ; with YaRN: TypeError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile transformers==5.24.0 gguf==0.19.0 torch==2.15.0 accelerate
cat >"$folder/read.py" <<'PYTHON'
import torch
from gguf import GGUFWriter, RopeScalingType
from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM

torch.manual_seed(0)
model = GptOssForCausalLM(GptOssConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
                                       head_dim=64, num_experts_per_tok=2, num_local_experts=4, intermediate_size=48))
model.apply(lambda m: [p.data.normal_(std=0.2) for p in m.parameters(recurse=False)])
layer = lambda m: {name.removeprefix("model.layers.0."): t for name, t in m.state_dict().items()}
state = layer(model)
gate_up, gate_up_bias = state["mlp.experts.gate_up_proj"].mT, state["mlp.experts.gate_up_proj_bias"]  # one gate, one up, and so on
parts = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "attn_norm": "input_layernorm",
         "post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router"}
parts |= {f"attn_{name}": f"self_attn.{name[0]}_proj" for name in ("q", "k", "v", "output")}
tensors = {f"{g}.{kind}": state[f"{h}.{kind}"] for g, h in parts.items() for kind in ("weight", "bias") if f"{h}.{kind}" in state}
tensors |= {"ffn_gate_exps.weight": gate_up[:, ::2], "ffn_up_exps.weight": gate_up[:, 1::2], "ffn_gate_exps.bias": gate_up_bias[:, ::2],
            "ffn_up_exps.bias": gate_up_bias[:, 1::2], "ffn_down_exps.weight": state["mlp.experts.down_proj"].mT,
            "ffn_down_exps.bias": state["mlp.experts.down_proj_bias"], "attn_sinks.weight": state["self_attn.sinks"]}


def read(yarn):
    w = GGUFWriter("model.gguf", "gpt-oss")
    for key, value in (("embedding_length", 32), ("block_count", 1), ("feed_forward_length", 48), ("vocab_size", 64), ("expert_count", 4),
                       ("expert_used_count", 2), ("attention.head_count", 4), ("attention.head_count_kv", 2)):
        w.add_uint32(f"gpt-oss.{key}", value)
    if yarn:
        w.add_rope_scaling_type(RopeScalingType.YARN), w.add_rope_scaling_factor(32.0), w.add_rope_scaling_orig_ctx_len(4096)
    for name, t in tensors.items():
        w.add_tensor(name if name.startswith(("token", "output")) else f"blk.0.{name}", t.contiguous().numpy())
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    return layer(AutoModelForCausalLM.from_pretrained(".", gguf_file="model.gguf"))


one, two, experts = read(False), read(False), "mlp.experts.down_proj"
lost = sorted(name.split(".", 1)[1] for name, t in state.items() if not torch.equal(one[name], t))
try:
    scaled = f"{len(read(True))} tensors"
except Exception as e:
    scaled = type(e).__name__
print(f"{len(state) - len(lost)} of {len(state)} tensors as in the file; missing: {', '.join(lost)}; deviation of the experts "
      f"{one[experts].std():.2f}, in the file {state[experts].std():.2f}; two loads "
      f"{'agree' if torch.equal(one[experts], two[experts]) else 'differ'}; with YaRN: {scaled}")
PYTHON
found=$(cd "$folder" && HF_HUB_OFFLINE=1 HOME=$folder venv/bin/python -W ignore read.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "15 of 20 tensors as in the file; missing: experts.down_proj, experts.down_proj_bias, experts.gate_up_proj, experts.gate_up_proj_bias, sinks; deviation of the experts 0.02, in the file 0.20; two loads differ; with YaRN: TypeError" ]

#!/usr/bin/env bash
# mlx-lm 0.32.2 with mlx 0.32.4 (CPU), transformers 5.24.0 and torch 2.15.0: three mixtures give other outputs than in transformers.
# ERNIE 4.5 ranks its experts by softmax + e_score_correction_bias; sanitize() of mlx-lm deletes this tensor of the checkpoint, so that the
# largest softmax decides. Jamba's weights are parts of the softmax over all experts; mlx-lm takes it over the k chosen ones, so that they
# sum to 1. Qwen2-MoE's norm_topk_prob is no field of its ModelArgs there, so that true has no effect.
#
# expected: 0.00, rounding alone, everywhere
# seen: greatest difference of log-probabilities: ERNIE 4.5 3.12, with a bias of 0 0.00, Jamba 0.95, with k = 4, all 0.00, Qwen2-MoE
#       with norm_topk_prob 1.49, without 0.00, Mixtral 0.00
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile "mlx[cpu]==0.32.4" mlx-lm==0.32.2 transformers==5.24.0 \
  torch==2.15.0 numpy==2.4.6
cat >"$folder/routes.py" <<'PYTHON'
import json
import pathlib

import mlx.core as mx
import numpy as np
import torch
from mlx_lm.utils import load_model
from transformers import AutoConfig, AutoModelForCausalLM

sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, max_position_embeddings=64, tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2)
tokens = np.arange(20)[None]


def difference(kind, bias=0.0, **settings):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **settings)).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not name.endswith(("A_log", "dt_bias")):
                p.copy_(torch.randn_like(p) * (bias if "correction" in name else 0.2) + (1 if "norm" in name else 0))
        y = model(torch.tensor(tokens)).logits.double().log_softmax(-1).numpy()
    model.save_pretrained(kind)
    path = pathlib.Path(kind, "config.json")
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"rope_theta": (config.get("rope_parameters") or {}).get("rope_theta")}))  # as in released files
    z = torch.tensor(np.array(load_model(pathlib.Path(kind))[0](mx.array(tokens)))).double().log_softmax(-1).numpy()
    return f"{np.abs(y - z).max():.2f}"


ernie = dict(moe_num_experts=8, moe_k=3, moe_intermediate_size=16, moe_num_shared_experts=1, moe_layer_start_index=0)
jamba = dict(num_experts=4, attn_layer_period=2, expert_layer_period=1, expert_layer_offset=0, attn_layer_offset=1, use_mamba_kernels=False)
qwen = dict(num_experts=8, moe_intermediate_size=16, shared_expert_intermediate_size=24, num_experts_per_tok=3)
results = {"ERNIE 4.5": difference("ernie4_5_moe", 0.1, **ernie), "with a bias of 0": difference("ernie4_5_moe", **ernie),
           "Jamba": difference("jamba", num_experts_per_tok=2, **jamba), "with k = 4, all": difference("jamba", num_experts_per_tok=4, **jamba),
           "Qwen2-MoE with norm_topk_prob": difference("qwen2_moe", norm_topk_prob=True, **qwen), "without": difference("qwen2_moe", **qwen),
           "Mixtral": difference("mixtral", num_local_experts=8)}
print(f"greatest difference of log-probabilities: {', '.join(f'{name} {value}' for name, value in results.items())}")
PYTHON
found=$(cd "$folder" && HF_HUB_OFFLINE=1 HOME=$folder venv/bin/python -W ignore routes.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "greatest difference of log-probabilities: ERNIE 4.5 3.12, with a bias of 0 0.00, Jamba 0.95, with k = 4, all 0.00, Qwen2-MoE with norm_topk_prob 1.49, without 0.00, Mixtral 0.00" ]

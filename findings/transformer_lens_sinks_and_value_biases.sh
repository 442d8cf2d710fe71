#!/usr/bin/env bash
# transformer-lens 4.3.0 with transformers 5.24.0 and torch 2.15.0: enable_compatibility_mode, which is to change no output but for a
# constant in the logits, changes what a gpt-oss model computes. It moves the biases of the values through W_O into one bias of the
# output (ProcessWeights.fold_value_biases), "because attention patterns add up to 1". Those of gpt-oss do not: each head has a sink, which
# takes a part of the softmax and has no value, so that a bias counts less than once. Both released sizes have sinks and such biases.
# Without this step, or where the sinks are so low that they take nothing, the outputs are the same; Mixtral has neither.
#
# expected: 0.00, rounding alone, everywhere
# seen: greatest difference of log-probabilities from transformers: as loaded 0.00; compatibility mode 0.72; with
#       fold_value_biases=False 0.00; sinks of -10000 0.00
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile transformer-lens==4.3.0 transformers==5.24.0 torch==2.15.0
cat >"$folder/sinks.py" <<'PYTHON'
import torch
from tokenizers import Tokenizer, models
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM, PreTrainedTokenizerFast

words = {f"t{n}": n for n in range(62)} | {"<unk>": 62, "<end>": 63}
PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, "<unk>")), unk_token="<unk>", bos_token="<end>",
                        eos_token="<end>", pad_token="<end>").save_pretrained("model")
tokens = torch.arange(17)[None]


def make(sinks):
    torch.manual_seed(0)
    model = GptOssForCausalLM(GptOssConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=8,
                                           num_attention_heads=4, num_key_value_heads=4, num_local_experts=4, num_experts_per_tok=2,
                                           pad_token_id=63, bos_token_id=63, eos_token_id=63))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.15 + (1 if name.endswith("norm.weight") else 0))
            if sinks is not None and name.endswith("sinks"):
                p.fill_(sinks)
    model.save_pretrained("model")


def difference(sinks=None, compatible=True, **settings):
    make(sinks)
    bridge = TransformerBridge.boot_transformers("model", device="cpu")
    if compatible:
        bridge.enable_compatibility_mode(disable_warnings=True, **settings)
    with torch.no_grad():
        y, z = (f(tokens).log_softmax(-1) for f in (lambda t: AutoModelForCausalLM.from_pretrained("model")(t).logits, bridge))
    return f"{(y - z).abs().max():.2f}"


print(f"greatest difference of log-probabilities from transformers: as loaded {difference(compatible=False)}; compatibility mode "
      f"{difference()}; with fold_value_biases=False {difference(fold_value_biases=False)}; sinks of -10000 {difference(-1e4)}")
PYTHON
found=$(cd "$folder" && HF_HUB_OFFLINE=1 HOME=$folder venv/bin/python -W ignore sinks.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "greatest difference of log-probabilities from transformers: as loaded 0.00; compatibility mode 0.72; with fold_value_biases=False 0.00; sinks of -10000 0.00" ]

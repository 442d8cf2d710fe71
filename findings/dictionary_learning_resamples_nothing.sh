#!/usr/bin/env bash
# dictionary-learning 0.1.0 with torch 2.15.0: PAnnealTrainer with resample_steps prints "resampling 18 neurons" and changes no weight of
# them. resample_neurons assigns to encoder.weight[deads][:n], where the first index is a mask and makes a copy, and to the decoder and the
# bias in the same way; only Adam's averages of these neurons are reset. The README promises dead neurons that are resampled for each
# trainer that is given this setting, and StandardTrainer, which PAnnealTrainer extends, does it.
#
# expected: all of 16 neurons that were made dead have another encoder, decoder and bias
# seen: dead neurons with another encoder, decoder, bias: PAnnealTrainer 0 0 0; StandardTrainer 16 16 16
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile torch==2.15.0 transformers==5.24.0 numpy==2.4.6 \
  nnsight==0.3.7 einops
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile --no-deps dictionary-learning==0.1.0
cat >"$folder/dead.py" <<'PYTHON'
import torch
from dictionary_learning.trainers import PAnnealTrainer, StandardTrainer

dead = torch.arange(64) < 16


def resampled(kind):
    trainer = kind(steps=100, activation_dim=8, dict_size=64, layer=0, lm_name="none", resample_steps=10, warmup_steps=1,
                   sparsity_warmup_steps=None, seed=0, device="cpu")
    with torch.no_grad():
        trainer.ae.encoder.bias[dead] = -100  # these are never active
    torch.manual_seed(0)
    for step in range(10):
        trainer.update(step, torch.randn(256, 8))
    assert (trainer.steps_since_active[dead] == 10).all()
    before = [p.detach().clone() for p in (trainer.ae.encoder.weight, trainer.ae.decoder.weight.T, trainer.ae.encoder.bias[:, None])]
    trainer.resample_neurons(trainer.steps_since_active > 5, torch.randn(256, 8))
    after = trainer.ae.encoder.weight, trainer.ae.decoder.weight.T, trainer.ae.encoder.bias[:, None]
    return " ".join(str(int((a != b).any(1)[dead].sum())) for a, b in zip(after, before))


print(f"dead neurons with another encoder, decoder, bias: PAnnealTrainer {resampled(PAnnealTrainer)}; StandardTrainer "
      f"{resampled(StandardTrainer)}")
PYTHON
found=$(cd "$folder" && HF_HUB_OFFLINE=1 HOME=$folder venv/bin/python -W ignore dead.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "dead neurons with another encoder, decoder, bias: PAnnealTrainer 0 0 0; StandardTrainer 16 16 16" ]

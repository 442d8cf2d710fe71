#!/usr/bin/env bash
# torchao 0.18.0 with torch 2.15.0: NVFP4 without a scale for the tensor, use_dynamic_per_tensor_scale=False of NVFP4WeightOnlyConfig and
# what NVFP4Tensor.to_nvfp4 does if it is given none, uses no scale of a block below 2^-6. The scales are E4M3, which goes down to
# 2^-9: nvfp4_quantize clamps them to torch.finfo(torch.float8_e4m3fn).tiny, the smallest normal number, and not the smallest number.
# Blocks whose greatest number is below 6 * 2^-6 = 0.094 use a part of the codes only, as most blocks of weights with the deviation 0.02,
# with which transformers initialises Llama and Mixtral. With 0.005 the error is almost 4 times that of all scales. Nothing warns.
#
# expected: the errors that the same rounding gives with scales from 2^-9 on
# seen: deviation 1: error 0.10, right 0.10, with a scale for the tensor 0.10; deviation 0.02: error 0.13, right 0.10, with a scale for the
#       tensor 0.10; deviation 0.005: error 0.45, right 0.12, with a scale for the tensor 0.10; least scale of a block 0.01562
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile torchao==0.18.0 torch==2.15.0 numpy==2.4.6
cat >"$folder/scales.py" <<'PYTHON'
import torch
from torchao.prototype.mx_formats.inference_workflow import NVFP4WeightOnlyConfig
from torchao.quantization import quantize_

codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def error(found, right):
    return f"{torch.dist(found, right) / right.norm():.2f}"


def with_all_scales(w):
    block = w.reshape(-1, 16)
    scale = (block.abs().amax(1, keepdim=True) / 6).to(torch.float8_e4m3fn).float().clamp(min=2**-9)
    nearest = ((block / scale).abs().unsqueeze(-1) - codes).abs().argmin(-1)
    return (codes[nearest] * block.sign() * scale).reshape(w.shape)


said = []
for deviation in (1, 0.02, 0.005):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256, bias=False) for _ in range(2)]
    w = torch.randn(256, 256) * deviation
    for layer, scaled in zip(layers, (False, True)):
        layer.weight.data = w.clone()
        quantize_(layer, NVFP4WeightOnlyConfig(use_dynamic_per_tensor_scale=scaled))
    without, scaled = (layer.weight for layer in layers)
    said.append(f"deviation {deviation}: error {error(without.dequantize(torch.float32), w)}, right {error(with_all_scales(w), w)}, "
                f"with a scale for the tensor {error(scaled.dequantize(torch.float32), w)}")
print("; ".join(said) + f"; least scale of a block {without.scale.float().min():.5f}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore scales.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "deviation 1: error 0.10, right 0.10, with a scale for the tensor 0.10; deviation 0.02: error 0.13, right 0.10, with a scale for the tensor 0.10; deviation 0.005: error 0.45, right 0.12, with a scale for the tensor 0.10; least scale of a block 0.01562" ]

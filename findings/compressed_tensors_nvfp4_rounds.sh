#!/usr/bin/env bash
# compressed-tensors 0.20.1 with torch 2.15.0: the compressor of nvfp4-pack-quantized decompresses to bfloat16, whatever the types of its
# scales are. A number of NVFP4 is a code of E2M1 times weight_scale / weight_global_scale, which takes more than the 8 bits of bfloat16. The
# compressors of float-quantized and pack-quantized in the same package give float32 for scales of float32.
#
# seen: nvfp4 torch.bfloat16, 221 of 256 numbers rounded, by up to 0.17 % of the greatest; fp8 torch.float32; int4 torch.float32
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile compressed-tensors==0.20.1 torch==2.15.0
cat >"$folder/weights.py" <<'PYTHON'
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme


def decompressed(form, state, **settings):
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(symmetric=True, **settings))
    return BaseCompressor.load_from_registry(form).decompress(state, scheme)["weight"]


torch.manual_seed(0)
packed = torch.randint(0, 256, (4, 32), dtype=torch.uint8)  # two codes a byte
scale, whole = (torch.rand(4, 4) * 100 + 1).to(torch.float8_e4m3fn), torch.tensor([1234.5])
fp4 = decompressed("nvfp4-pack-quantized", {"weight_packed": packed, "weight_scale": scale, "weight_global_scale": whole},
                   num_bits=4, type="float", strategy="tensor_group", group_size=16)
e2m1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
codes = e2m1[torch.stack([packed & 15, packed >> 4], -1).reshape(4, 64).long()]
exact = codes * (scale.float() / whole).repeat_interleave(16, 1)
off = (fp4.float() - exact).abs()
fp8 = decompressed("float-quantized", {"weight": torch.randn(4, 64).to(torch.float8_e4m3fn), "weight_scale": torch.rand(4, 1)},
                   num_bits=8, type="float", strategy="channel")
words = torch.randint(-(2**31), 2**31, (4, 8), dtype=torch.int64).to(torch.int32)  # eight codes each
int4 = decompressed("pack-quantized", {"weight_packed": words, "weight_scale": torch.rand(4, 1), "weight_shape": torch.tensor([4, 64])},
                    num_bits=4, type="int", strategy="channel")
print(f"nvfp4 {fp4.dtype}, {(off > 0).sum()} of {off.numel()} numbers rounded, by up to {100 * off.max() / exact.abs().max():.2f} % of the "
      f"greatest; fp8 {fp8.dtype}; int4 {int4.dtype}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore weights.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "nvfp4 torch.bfloat16, 221 of 256 numbers rounded, by up to 0.17 % of the greatest; fp8 torch.float32; int4 torch.float32" ]

# SPDX-License-Identifier: MIT
"""Weights [o, i] in the arrays that compressed-tensors makes of them, for scripts/make_block_formats and scripts/make_mixture_cases."""
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

WHOLE = None
# A format of compressed-tensors, the blocks that share a scale (WHOLE: all of an axis), and what else is to be said of the weights.
FORMATS = {
    "fp8_tensor": ("float-quantized", (WHOLE, WHOLE), {"type": "float", "strategy": "tensor"}),
    "fp8_channel": ("float-quantized", (1, WHOLE), {"type": "float", "strategy": "channel"}),
    "fp8_block": ("float-quantized", (8, 16), {"type": "float", "strategy": "block", "block_structure": [8, 16]}),
    "int8_channel": ("int-quantized", (1, WHOLE), {"type": "int", "strategy": "channel"}),
    "int8_zeros": ("int-quantized", (1, WHOLE), {"type": "int", "strategy": "channel", "symmetric": False}),
    "int4": ("pack-quantized", (1, 32), {"type": "int", "strategy": "group", "group_size": 32, "num_bits": 4}),
    "int4_zeros": ("pack-quantized", (1, 16), {"type": "int", "strategy": "group", "group_size": 16, "num_bits": 4, "symmetric": False}),
    "int4_channel": ("pack-quantized", (1, WHOLE), {"type": "int", "strategy": "channel", "num_bits": 4}),
    "nvfp4": ("nvfp4-pack-quantized", (1, 16), {"type": "float", "strategy": "tensor_group", "group_size": 16, "num_bits": 4}),
    "mxfp4": ("mxfp4-pack-quantized", (1, 32), {"type": "float", "strategy": "group", "group_size": 32, "num_bits": 4, "scale_dtype": torch.uint8}),
    "mxfp8": ("mxfp8-quantized", (1, 32), {"type": "float", "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8}),
}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def e2m1_numbers(packed):
    """The numbers of codes of four bits, the low ones first."""
    codes = torch.stack([packed & 15, packed >> 4], -1)
    return E2M1[codes.reshape(packed.shape[0], -1).long()]


def compressed(weight, name):
    """Returns the arrays by what they are called ("weight_packed", ...), and the float32 numbers that they stand for."""
    form, sizes, settings = FORMATS[name]
    rows, columns = (size or length for size, length in zip(sizes, weight.shape))
    args = QuantizationArgs(**{"num_bits": 8, "symmetric": True, **settings})
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    blocks = weight.reshape(weight.shape[0] // rows, rows, weight.shape[1] // columns, columns)
    whole = torch.tensor([448 * 6 / weight.abs().max()]) if name == "nvfp4" else None
    scale, zero = calculate_qparams(blocks.amin((1, 3)), blocks.amax((1, 3)), args, whole)
    if name == "fp8_tensor":
        scale, zero = scale.reshape(1), zero.reshape(1)
    if args.type == "int":
        scale = scale.to(torch.bfloat16)
    state = {"weight": weight, "weight_scale": scale.float(), "weight_zero_point": zero.to(torch.int8)}
    if whole is not None:
        state["weight_global_scale"] = whole
    compressor = BaseCompressor.load_from_registry(form)
    stored = compressor.compress(state, scheme)
    wide = {k: v.float() if k == "weight_scale" and v.dtype != torch.uint8 else v for k, v in stored.items()}
    numbers = compressor.decompress(wide, scheme)["weight"].float()
    if name == "nvfp4":  # whose decompress() rounds to bfloat16 on the way
        exact = e2m1_numbers(stored["weight_packed"]) * (wide["weight_scale"] / whole).repeat_interleave(16, 1)
        assert (numbers - exact).abs().max() < 0.01 * exact.abs().max()
        numbers = exact
    if args.type == "int":
        stored["weight_scale"] = scale
    return {k: v.clone().contiguous() for k, v in stored.items()}, numbers

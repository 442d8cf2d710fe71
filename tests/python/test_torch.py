# SPDX-License-Identifier: MIT
"""Tensors of PyTorch go in and come out."""
import pytest

import fmoe

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

DATA = "examples/data/"


def test_torch_tensors_come_back_as_torch():
    minilm = fmoe.load(DATA + "minilm_l3_mxd_bf16.safetensors")
    rows = fmoe.read(DATA + "minilm_l3_rows.safetensors")
    x = torch.from_numpy(rows["x"])
    y = minilm(x)
    assert isinstance(y, torch.Tensor) and (y.numpy() == minilm(rows["x"])).all()
    assert isinstance(minilm.coefficients(x), torch.Tensor)
    assert (minilm(x.bfloat16()) == minilm(x.bfloat16().float())).all()
    assert (minilm(x.T.contiguous().T) == y).all()
    with pytest.raises(TypeError, match="detach"):
        minilm(x.requires_grad_())

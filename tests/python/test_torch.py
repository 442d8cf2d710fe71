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


w = torch.linspace(-1, 1, 15).reshape(3, 5)


def negated(t):
    """The numbers of t in a tensor that PyTorch negates when they are read."""
    made = torch.complex(torch.zeros_like(t), -t).conj().imag
    assert made.is_neg() and (made == t).all()
    return made


def test_a_tensor_that_is_negated_lazily_has_its_sign():
    x = torch.tensor([[1.0, -2, 3], [0.5, 0, 7]])
    forward = fmoe.compile(fmoe.einsum("ti,io->to", fmoe.input(), w), 4)
    wanted = forward(x)
    assert (forward(negated(x)) == wanted).all()
    assert (fmoe.evaluate(fmoe.einsum("ti,io->to", negated(x), w), like=x) == wanted).all()
    assert (fmoe.evaluate(negated(x) + fmoe.Expression(x), like=x) == 2 * x).all()
    assert (fmoe.evaluate(fmoe.Expression(x) - negated(x)) == 0).all()
    base = torch.complex(torch.zeros_like(w), -w)
    forward = fmoe.compile(fmoe.einsum("ti,io->to", fmoe.input(), fmoe.parameter(base.conj().imag)), 4)
    assert (forward(x) == wanted).all()
    base *= 2
    forward.refresh()
    assert (forward(x) == 2 * wanted).all()
    with pytest.raises(TypeError, match="the negative of other numbers"):
        forward(x, out=negated(torch.empty(2, 5).zero_()))
    layer = fmoe.load(DATA + "minilm_l3_mxd_bf16.safetensors")
    rows = torch.from_numpy(fmoe.read(DATA + "minilm_l3_rows.safetensors")["x"][:4])
    step = layer.compile_gradients(4)
    assert (layer(negated(rows)) == layer(rows)).all()
    assert (layer.coefficients(negated(rows)) == layer.coefficients(rows)).all()
    assert (step(negated(rows), negated(rows)).dx == step(rows, rows).dx).all()


@pytest.mark.parametrize("operand", [lambda t: t, fmoe.Expression, fmoe.parameter])
def test_operands_are_read_where_they_are(operand):
    v, x = w.clone(), torch.ones(2, 3)
    y = fmoe.einsum("ti,io->to", fmoe.input(), operand(v))
    of_x = fmoe.einsum("ti,io->to", x, operand(v))
    forward = fmoe.compile(y, 4)
    wanted = forward(x)
    v.share_memory_()  # which frees the memory that was
    dirt = [torch.full((3, 5), 1e34) for _ in range(20)]
    assert (forward(x) == wanted).all()
    forward.refresh()
    assert (forward(x) == wanted).all() and (fmoe.compile(y, 4)(x) == wanted).all()
    assert (fmoe.evaluate(of_x, like=x) == wanted).all()
    v *= 2
    forward.refresh()
    assert (forward(x) == 2 * wanted).all() and (fmoe.evaluate(of_x, like=x) == 2 * wanted).all()
    v.set_((4 * w).contiguous())
    forward.refresh()
    assert (forward(x) == 4 * wanted).all()
    v.resize_(2, 5)
    with pytest.raises(fmoe.ShapeError, match="another shape, type or order of elements"):
        forward.refresh()
    with pytest.raises(fmoe.ShapeError, match="another shape, type or order of elements"):
        fmoe.evaluate(of_x)
    del dirt


@pytest.mark.parametrize(
    "given, sentence",
    [
        (torch.ones(3, 3, device="meta"), "the tensor is on meta, and fmoe reads memory of the CPU: it has no numbers yet"),
        (torch.ones(3, 3).to_sparse(), r"the tensor is sparse, and fmoe reads all of its numbers: pass x.to_dense\(\)"),
        (torch.ones(3, 3, dtype=torch.complex64), "convert it first"),
        (torch.ones(3, 3, dtype=torch.int64), "convert it first"),
        (torch.ones(3, 3, requires_grad=True), "pass x.detach"),
    ],
)
def test_tensors_that_fmoe_cannot_read_are_refused(given, sentence, tmp_path):
    forward = fmoe.compile(fmoe.einsum("ti,io->to", fmoe.input(), w), 4)
    for call in (
        lambda: forward(given),
        lambda: fmoe.relu(given),
        lambda: fmoe.Expression(w) + given,
        lambda: fmoe.write(tmp_path / "a.safetensors", {"a": given}),
        lambda: fmoe.from_arrays({"W_enc": given}),
        lambda: fmoe.ExpertStatistics(3).add(given),
    ):
        with pytest.raises(TypeError, match=sentence):
            call()

# SPDX-License-Identifier: MIT
"""What users write, with types: scripts/python has it judged by mypy --strict."""

from __future__ import annotations

import pathlib

import numpy
from numpy.typing import NDArray

import fmoe

FILE = "examples/data/minilm_l3_mxd_bf16.safetensors"
ROWS = fmoe.read("examples/data/minilm_l3_rows.safetensors")
x: NDArray[numpy.float32] = ROWS["x"][:8]


def test_a_layer_of_a_file() -> None:
    layer: fmoe.Layer = fmoe.load(pathlib.Path(FILE))
    forward = layer.compile(8, threads=1)
    y: NDArray[numpy.float32] = forward(x)
    assert forward.output_shape() == y.shape[1:]
    plan: str = layer.explain(8).text
    adds: float = layer.cost().factorized.multiply_adds
    assert plan and 0 < adds < layer.cost().naive_multiply_adds
    used = layer.statistics([x], progress=False)
    own = fmoe.ExpertStatistics(experts=layer.coefficients(x).shape[1])
    own.add(layer.coefficients(x), members=[True] * 8)
    assert own.tokens == used.tokens and layer.with_active(4).settings["K"] == "4"
    product: fmoe.Expression = fmoe.Expression(x) * x
    assert product.ndim == 2
    assert used.tokens == 8 and used.frequency().max() <= 1
    assert layer.quantize("q8").ablated([0, 1])(x, out=y) is y


def test_gradients(tmp_path: pathlib.Path) -> None:
    layer = fmoe.load(FILE)
    step: fmoe.CompiledGradients = layer.compile_gradients(8)
    step.keep(None)
    y, dx, gradients = step(x, numpy.ones_like(layer(x)))
    assert y.shape == dx.shape
    settings: dict[str, str] = fmoe.read(FILE).metadata
    fmoe.write(tmp_path / "gradients.safetensors", gradients, settings)
    names: set[str] = set(fmoe.read(tmp_path / "gradients.safetensors"))
    assert names == set(gradients)


def test_an_equation() -> None:
    rng = numpy.random.default_rng(0)
    gate = rng.normal(size=(x.shape[1], 6)).astype(numpy.float32)
    bias: NDArray[numpy.float32] = gate[0]
    token: fmoe.Expression = fmoe.input()
    a: fmoe.Expression = fmoe.top_k(fmoe.relu(fmoe.einsum("ti,in->tn", token, fmoe.parameter(gate)) + bias), 2)
    y: fmoe.Expression = bias - 2 * a / 3
    forward: fmoe.Executable = fmoe.compile((y, fmoe.kept(a).indices), tokens=8)
    out, chosen = forward(x)
    assert chosen.shape == (8, 2)
    forward.refresh()
    assert fmoe.cost(y, 8).factorized.flops > 0
    s = x @ gate + bias
    kept = numpy.take_along_axis(numpy.maximum(s, 0), chosen.astype(int), 1)
    numpy.testing.assert_allclose((bias - out).max(1) * 1.5, kept.max(1), rtol=1e-4, atol=1e-4)

# SPDX-License-Identifier: MIT
"""Expressions are functions of tensors with gradients."""
import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fmoe
import fmoe.torch


@fmoe.torch.function
def mixture(x, router, experts):
    weights = fmoe.top_k(fmoe.einsum("ti,in->tn", x, router), 2, "softmax")
    return fmoe.relu(fmoe.einsum("tn,ti,nio->to", weights, x, experts))


def plain_mixture(x, router, experts):
    kept = (x @ router).topk(2, -1)
    weights = torch.zeros(len(x), router.shape[1], dtype=x.dtype).scatter(-1, kept.indices, kept.values.softmax(-1))
    return torch.einsum("tn,ti,nio->to", weights, x, experts).relu()


def tensors(*shapes, dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.randn(*s, dtype=dtype).requires_grad_() for s in shapes]


def test_a_function_has_the_values_and_gradients_of_pytorch():
    given = tensors((5, 4), (4, 6), (6, 4, 3))
    y, wanted = mixture(*given), plain_mixture(*given)
    assert y.dtype == torch.float64 and torch.allclose(y, wanted, rtol=1e-12, atol=1e-13)
    dy = torch.randn_like(y)
    for made, right in zip(torch.autograd.grad(y, given, dy), torch.autograd.grad(wanted, given, dy)):
        assert right.abs().max() > 0 and torch.allclose(made, right, rtol=1e-11, atol=1e-12)
    assert torch.autograd.gradcheck(mixture, given)


def test_several_results_have_gradients_together():
    def both(x, w, unused):
        a = fmoe.softmax(fmoe.einsum("ti,in->tn", x, w))
        return a, fmoe.norm("l2", x)

    x, w, unused = tensors((5, 4), (4, 6), (2,))
    a, n = fmoe.torch.function(both)(x, w, unused)
    (a.square().sum() + (3 * n).sum()).backward()
    made = x.grad, w.grad
    assert unused.grad is None
    x.grad = w.grad = None
    ((x @ w).softmax(-1).square().sum() + (3 * x.norm(dim=-1)).sum()).backward()
    for g, right in zip(made, (x.grad, w.grad)):
        assert torch.allclose(g, right, rtol=1e-11, atol=1e-12)
    # Of one of them alone, and of what needs none.
    a, n = fmoe.torch.function(both)(x, w.detach(), unused)
    (g,) = torch.autograd.grad(n.sum(), x)
    assert torch.allclose(g, (x / x.norm(dim=-1, keepdim=True)).detach())


def test_numbers_of_16_bits_are_computed_in_float32():
    x, router, experts = tensors((5, 4), (4, 6), (6, 4, 3), dtype=torch.bfloat16)
    y = mixture(x, router, experts)
    wanted = plain_mixture(*(t.float() for t in (x, router, experts)))
    assert y.dtype == torch.bfloat16 and torch.allclose(y.float(), wanted, rtol=1e-2, atol=1e-2)
    y.float().sum().backward()
    assert all(t.grad.dtype == torch.bfloat16 for t in (x, router, experts))
    assert mixture(x.float(), router, experts).dtype == torch.float32


def test_strided_and_negated_tensors_are_read_as_they_are():
    x, router, experts = tensors((4, 5), (6, 4), (6, 4, 3))
    negated = torch.imag(torch.complex(torch.zeros_like(x), x.detach()).conj())
    assert negated.is_neg()
    y = mixture(negated.T, router.T, experts)
    assert torch.allclose(y, plain_mixture(-x.T, router.T, experts), rtol=1e-12)
    (g,) = torch.autograd.grad(y.sum(), router)
    assert torch.allclose(g, torch.autograd.grad(plain_mixture(-x.T, router.T, experts).sum(), router)[0], rtol=1e-10)


def dense(x, w, b):
    return fmoe.gelu(fmoe.einsum("ti,io->to", x, w) + b)


def test_an_expression_is_a_module():
    torch.manual_seed(0)
    module = fmoe.torch.Function(dense, w=torch.randn(4, 3), b=torch.zeros(3))
    assert [name for name, _ in module.named_parameters()] == ["w", "b"]
    x = torch.randn(7, 4)
    right = torch.nn.functional.gelu(x @ module.w + module.b)
    assert torch.allclose(module(x), right, rtol=1e-5, atol=1e-6)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    first = module(x).square().mean()
    for _ in range(20):
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
    assert loss < 0.5 * first
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), module(x))
    module.load_state_dict({"w": torch.zeros(4, 3), "b": torch.ones(3)})
    assert torch.allclose(module(x), torch.nn.functional.gelu(torch.ones(7, 3)))


def test_what_a_function_does_not_do_is_refused():
    given = tensors((5, 4), (4, 6), (6, 4, 3))
    (g,) = torch.autograd.grad(mixture(*given).sum(), given[0], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        g.sum().backward()
    with pytest.raises(RuntimeError, match="torch.func.grad"):
        torch.func.grad(lambda x: mixture(x, *given[1:]).sum())(given[0])
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.vmap(lambda x: mixture(x, *given[1:]))(given[0][:, None])
    with pytest.raises(RuntimeError, match="forward-mode"):
        torch.func.jvp(lambda x: mixture(x, *given[1:]), (given[0].detach(),), (given[0].detach(),))
    with pytest.raises(TypeError, match="argument 1 is of type ndarray"):
        mixture(given[0], np.zeros((4, 6)), given[2])
    with pytest.raises(TypeError, match="an expression or a tuple of them"):
        fmoe.torch.function(lambda x: 3)(given[0])
    with pytest.raises(TypeError, match="takes a function of expressions"):
        fmoe.torch.function(3)
    with pytest.raises(fmoe.ShapeError):
        mixture(given[0], given[2], given[1])
    with pytest.raises(TypeError, match="has no numbers yet"):
        mixture(given[0].to("meta"), *given[1:])


def test_a_compiled_function_runs_as_it_is():
    given = tensors((5, 4), (4, 6), (6, 4, 3))
    compiled = torch.compile(lambda *t: mixture(*t) * 2, backend="eager")
    assert torch.equal(compiled(*given), mixture(*given) * 2)

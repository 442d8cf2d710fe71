# SPDX-License-Identifier: MIT
"""A group of Monet layers shares the routing of its first one, and trains with its router."""
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import fmoe.torch as ft
from fmoe.torch import losses
from test_torch_modules import filled, off, routing, squared_relu

SIZES = dict(hidden_size=10, moe_dim=4, moe_experts=9)


def plain_experts(m, form, x, g1, g2):
    moe = m.moe
    if form == "horizontal":
        u = squared_relu(x @ moe.u.weight.T + moe.u.bias).unflatten(-1, (9, -1))
        return torch.einsum("tim,thi,thj->tjm", u, g1, g2).flatten(-2) @ moe.v.weight.T + g2.sum(-2) @ moe.b
    u1 = squared_relu(x @ moe.u1.weight.T + moe.u1.bias).unflatten(-1, (9, -1))
    u2 = squared_relu(x @ moe.u2.weight.T + moe.u2.bias).unflatten(-1, (9, -1))
    straight = [torch.einsum("tim,thi->tim", u, g).flatten(-2) for u, g in ((u1, g1), (u2, g2))]
    crossed1 = torch.einsum("tjm,thj,thi->tim", u2, g2, g1).flatten(-2)
    crossed2 = torch.einsum("tim,thi,thj->tjm", u1, g1, g2).flatten(-2)
    first = straight[0] @ moe.v11.weight.T + crossed1 @ moe.v12.weight.T + g1.sum(-2) @ moe.b1
    second = crossed2 @ moe.v21.weight.T + straight[1] @ moe.v22.weight.T + g2.sum(-2) @ moe.b2
    return torch.cat([first, second], -1)


@pytest.mark.parametrize("training", [False, True])
def test_a_router_is_the_authors(training):
    torch.manual_seed(0)
    router = filled(ft.MonetRouter(10, 3, 9, 2)).train(training)
    x = torch.randn(2, 20, 10, requires_grad=True)
    wanted = [routing(SimpleNamespace(router=router, training=training), x.flatten(0, 1), i) for i in (1, 2)]
    made = router(x)
    for g, right in zip(made, wanted):
        assert g.shape == (2, 20, 3, 9) and off(g.flatten(0, 1), right) < 1e-5 and (g == 0).any()
    dy = torch.randn_like(wanted[0])
    for weight in (x, router.w1.weight):
        (a,), (b,) = (torch.autograd.grad((g.flatten(0, -3) * dy).sum(), weight, retain_graph=True) for g in (made[0], wanted[0]))
        assert off(a, b) < 1e-5
    # The router of a whole layer gives the same, and moves its statistics in the same way.
    whole = ft.Monet(**SIZES, moe_heads=3, moe_topk=2).train(training)
    fresh = ft.MonetRouter(10, 3, 9, 2).train(training)
    fresh.load_state_dict({name.removeprefix("router."): a for name, a in whole.state_dict().items() if name.startswith("router.")})
    for g, right in zip(fresh(x), whole.routing(x)):
        assert off(g, right) < 1e-5
    assert torch.allclose(fresh.norm1.running_mean, whole.router.norm1.running_mean, atol=1e-6)
    assert torch.allclose(fresh.norm2.running_var, whole.router.norm2.running_var, rtol=1e-5)
    assert (ft.MonetRouter(10, 3, 9, 9)(x)[0] > 0).all()
    with pytest.raises(ValueError, match="moe_topk is 10"):
        ft.MonetRouter(10, 3, 9, 10)


@pytest.mark.parametrize("form", ["vertical", "horizontal"])
def test_a_group_trains_with_the_router_of_its_first_layer(form):
    torch.manual_seed(0)
    router = filled(ft.MonetRouter(10, 3, 9, 2))
    group = [filled(ft.MonetExperts(**SIZES, moe_decompose=form)) for _ in range(4)]
    x = [torch.randn(3, 8, 10, requires_grad=True) for _ in group]
    operands = [*router.parameters(), *x, *(p for layer in group for p in layer.parameters())]

    def gradients(experts):
        g1, g2 = router(x[0])
        y = [experts(layer, rows, g1, g2) for layer, rows in zip(group, x)]
        loss = sum(a.square().mean() for a in y) + 1e-3 * (losses.uniformity(g1, g2) + losses.ambiguity(g1, g2))
        return y, torch.autograd.grad(loss, operands)

    made, right = gradients(lambda layer, *rows: layer(*rows)), gradients(
        lambda layer, rows, g1, g2: plain_experts(layer, form, *(a.flatten(0, 1) for a in (rows, g1, g2))).reshape(3, 8, 10)
    )
    for a, b in zip(made[0] + list(made[1]), right[0] + list(right[1])):
        assert a.shape == b.shape and off(a, b) < 5e-5


def test_the_first_layer_of_a_group_shows_its_routing():
    torch.manual_seed(0)
    first = filled(ft.Monet(**SIZES, moe_heads=3, moe_topk=2)).eval()
    second = filled(ft.MonetExperts(**SIZES))
    x = torch.randn(6, 10)
    y, g1, g2 = first(x, ("y", "g1", "g2"))
    assert torch.equal(y, first(x)) and off(second(x, g1, g2), plain_experts(second, "vertical", x, g1, g2)) < 1e-5
    # With a routing of another layer it does not ask its own router.
    assert off(first(x, routing=(g2, g1)), plain_experts(first, "vertical", x, g2, g1)) < 1e-5
    with pytest.raises(ValueError, match="with the leading axes of x"):
        second(x[:5], g1, g2)
    with pytest.raises(TypeError, match="two tensors g1 and g2"):
        first(x, routing=[g1])

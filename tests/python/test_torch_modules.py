# SPDX-License-Identifier: MIT
"""Modules of fmoe.torch give what the authors' equations give in plain PyTorch, forward and backward."""
import copy
import io
import multiprocessing.reduction
import pickle
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import fmoe
from golden import CASES, load

torch = pytest.importorskip("torch", reason="PyTorch is not installed: TORCH=1 scripts/test --python installs it")
F = torch.nn.functional

import fmoe.torch as ft  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def off(made, wanted):
    return ((made - wanted).abs().max() / wanted.abs().max()).item()


def filled(module):
    """The module with weights that are not the initial ones."""
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(std=0.5)
        for name, b in module.named_buffers():
            if "running" in name:
                b.uniform_(0.3, 2)
    return module


def read_parameters(m):
    """Those that the module reads: as the authors', an MxD and a transcoder have a b_dec that is none of them."""
    return {name: p for name, p in m.named_parameters() if name != "b_dec" or not hasattr(m, "b_dec_out")}


def kept(scores, k):
    top = torch.topk(scores, k)
    return torch.zeros_like(scores).scatter(-1, top.indices, top.values)


def mxd(m, x):
    z = F.gelu(x @ m.W_enc + m.b_enc)
    a = kept(torch.relu(x @ m.gate.T + m.gate_bias), 4)
    return (z @ m.W_dec) * (a @ m.W_cond.T) + m.b_dec_out


def mxd_glu(m, x):
    z = F.gelu(x @ m.W_enc + m.b_enc, approximate="tanh") * (x @ m.W_glu.weight.T + m.W_glu.bias)
    a = torch.relu(x @ m.gate.T + m.gate_bias)
    return (z @ m.W_dec) * (a @ m.W_cond.T) + x @ m.W_skip.weight.T + m.b_dec_out


def transcoder(m, x):
    return kept(torch.relu(x @ m.W_enc + m.b_enc), 5) @ m.W_dec + x @ m.W_skip.weight.T + m.b_dec_out


def one_appended(x):
    return torch.cat([x, torch.ones(*x.shape[:-1], 1)], -1)


def gate_scores(m, e, x):
    """A batch norm of PyTorch, which takes statistics of the tokens in training and moves the running ones."""
    scores = x @ getattr(m.projs, str(e))
    if not hasattr(m, "bn"):
        return F.layer_norm(scores, scores.shape[-1:])
    bn = getattr(m.bn, str(e))
    flat = scores.flatten(0, -2)
    flat = F.batch_norm(flat, bn.running_mean.clone(), bn.running_var.clone(), training=m.training)
    return flat.reshape(scores.shape)


def gate(m, e, x):
    return gate_scores(m, e, x).softmax(-1)


def cp(m, x):
    f = m.MuMoE.factors._parameters
    x = x.unsqueeze(1)
    made = [gate(m, 0, x) @ f["0"], gate(m, 1, x) @ f["1"], one_appended(x) @ f["2"]]
    return (made[0] * made[1] * made[2]) @ f["3"].T


def tr_block(m, x):
    a, z = gate(m, 0, x), F.layer_norm(x, x.shape[-1:], m.input_ln.weight, m.input_ln.bias)
    for part in (m.MuMoE, m.MuMoE2):
        f = part.factors._parameters
        z = torch.einsum("btn,anc,bti,cid,doa->bto", a, f["0"], z, f["1"], f["2"])
        z = F.gelu(z) if part is m.MuMoE else z
    return z


def routing(m, x, i):
    s = (x @ getattr(m.router, f"w{i}").weight.T).unflatten(-1, (3, -1))
    norm = getattr(m.router, f"norm{i}")
    flat = s.detach().transpose(-1, -2).reshape(-1, 3)
    c = F.batch_norm(flat, norm.running_mean.clone(), norm.running_var.clone(), training=m.training)
    c = c.reshape(*x.shape[:-1], -1, 3).transpose(-1, -2)
    sigma = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(1 - 2 / 9))
    return s.masked_fill(c < c.amax(-1, keepdim=True).clamp(max=sigma), -1e10).softmax(-1)


def squared_relu(x):
    return torch.relu(x) ** 2


def monet_hd(m, x):
    g1, g2, moe = routing(m, x, 1), routing(m, x, 2), m.moe
    u = squared_relu(x @ moe.u.weight.T + moe.u.bias).unflatten(-1, (9, -1))
    return torch.einsum("tim,thi,thj->tjm", u, g1, g2).flatten(-2) @ moe.v.weight.T + g2.sum(-2) @ moe.b


def monet_vd(m, x):
    g1, g2, moe = routing(m, x, 1), routing(m, x, 2), m.moe
    u1 = squared_relu(x @ moe.u1.weight.T + moe.u1.bias).unflatten(-1, (9, -1))
    u2 = squared_relu(x @ moe.u2.weight.T + moe.u2.bias).unflatten(-1, (9, -1))
    straight = [torch.einsum("tim,thi->tim", u, g).flatten(-2) for u, g in ((u1, g1), (u2, g2))]
    crossed1 = torch.einsum("tjm,thj,thi->tim", u2, g2, g1).flatten(-2)
    crossed2 = torch.einsum("tim,thi,thj->tjm", u1, g1, g2).flatten(-2)
    first = straight[0] @ moe.v11.weight.T + crossed1 @ moe.v12.weight.T + g1.sum(-2) @ moe.b1
    second = crossed2 @ moe.v21.weight.T + straight[1] @ moe.v22.weight.T + g2.sum(-2) @ moe.b2
    return torch.cat([first, second], -1)


def aoe(m, x):
    acts = (x @ m.wg).unflatten(-1, (6, -1))
    a = kept(acts.norm(dim=-1).softmax(-1), 2)
    wup, v1, w2 = (getattr(m.experts.mlp, n).unflatten(0, (6, -1)) for n in ("wup", "v1", "w2"))
    hidden = F.silu(torch.einsum("tnl,nwl->tnw", acts, wup)) * torch.einsum("td,nwd->tnw", x, v1)
    return torch.einsum("tn,tnw,nwd->td", a, hidden, w2) + m.experts.bias


def moe(m, x):
    a = torch.softmax((x @ m.router).masked_fill(kept((x @ m.router).exp(), 2) == 0, -torch.inf), -1)
    hidden = F.silu(torch.einsum("td,ndw->tnw", x, m.W_g)) * torch.einsum("td,ndw->tnw", x, m.W_p)
    shared = (F.silu(x @ m.shared.W_g) * (x @ m.shared.W_p)) @ m.shared.W_o
    return torch.einsum("tn,tnw,nwd->td", a, hidden, m.W_o) + shared


def moe_ungated(m, x):
    a = kept((x @ m.router).softmax(-1), 2)
    return torch.einsum("tn,tnw,nwd->td", a, F.gelu(torch.einsum("td,ndw->tnw", x, m.W_g)), m.W_o)


def peer(m, x):
    q = (x @ getattr(m.to_queries, "0").weight.T).unflatten(-1, (2, 3, 5))
    s = torch.einsum("tphd,hkpd->tphk", q, m.keys)
    sums = (s[:, 0, :, :, None] + s[:, 1, :, None, :]).flatten(-2)  # of all 16 pairs: 3 candidates have the 2 best
    top = sums.topk(2, -1)
    down, up = (e.weight[top.indices] for e in (m.weight_down_embed, m.weight_up_embed))
    return torch.einsum("thk,thkd->td", F.gelu(torch.einsum("td,thkd->thk", x, down)) * top.values.softmax(-1), up)


def sae(m, x):
    return kept(torch.relu((x - m.b_dec) @ m.W_enc + m.b_enc), 5) @ m.W_dec + m.b_dec


def tucker(m, x):
    f, a, b = m.MuMoE.factors._parameters, gate(m, 0, x), gate(m, 1, x)
    return torch.einsum("tn,np,tm,mq,ti,ir,os,pqrs->to", a, f["0"], b, f["1"], one_appended(x), f["2"], f["3"], m.MuMoE.core)


CP = dict(MuMoE_layer="cp", input_dim=10, output_dim=7, expert_dims=[6, 4], ranks=5, act="softmax", hierarchy=2)
TR = dict(
    MuMoE_layer="tr", input_dim=10, output_dim=8, expert_dims=[6], ranks=[[3, 0, 2], [2, 0, 4], [4, 0, 3]], second_dim=7,
    normalization="ln", act="softmax", use_bias=False, apply_ln=True,
)  # fmt: skip
MONET = dict(hidden_size=10, moe_dim=4, moe_heads=3, moe_experts=9, moe_topk=2)

KINDS = {
    "mxd": (lambda: ft.MxD(10, 12, 30, 7, topk=4), mxd),
    "mxd_glu": (lambda: ft.MxD(10, 12, 30, topk=0, mlp_activation_fn="gelu_pytorch_tanh", use_glu=True, use_skip=True), mxd_glu),
    "transcoder": (lambda: ft.Transcoder(10, 30, topk=5, use_skip=True), transcoder),
    "cp": (lambda: ft.MuMoE(**CP), cp),
    "tr_block": (lambda: ft.MuMoE(**TR), lambda m, x: tr_block(m, x.unsqueeze(1))),
    "monet_hd": (lambda: ft.Monet(**MONET, moe_decompose="horizontal"), monet_hd),
    "monet_vd": (lambda: ft.Monet(**MONET), monet_vd),
    "aoe": (lambda: ft.AoE(10, 11, 6, 3, moe_top_k=2), aoe),
    "moe": (lambda: ft.MoE(10, 11, 6, 2, shared_size=4), moe),
    "moe_ungated": (lambda: ft.MoE(10, 11, 6, 2, gated=False, activation="gelu", weights="released"), moe_ungated),
    "peer": (lambda: ft.PEER(10, heads=3, num_experts=16, num_experts_per_head=2, product_key_topk=3), peer),
    "sae": (lambda: ft.SAE(10, 30, topk=5), sae),
    "tucker": (lambda: ft.TuckerMuMoE(10, 7, [6, 4], [3, 2, 5, 4], act="softmax"), tucker),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_both_passes_are_those_of_plain_torch(kind, training):
    make, plain = KINDS[kind]
    m = filled(make()).train(training)
    x = torch.randn(40, 10, requires_grad=True)
    wanted = plain(m, x)
    y = m(x)
    dy = torch.randn_like(y)
    assert y.shape == wanted.shape and off(y, wanted) < 1e-5
    named = read_parameters(m)
    operands = [x, *named.values()]
    for name, made, right in zip(["x", *named], torch.autograd.grad(y, operands, dy), torch.autograd.grad(wanted, operands, dy)):
        assert off(made, right) < 2e-5, name
        assert made.stride() == (x if name == "x" else named[name]).stride(), name


# What modules show beside y, in plain PyTorch.
SHOWN = {
    "mxd": {
        "scores": lambda m, x: x @ m.gate.T + m.gate_bias,
        "coefficients": lambda m, x: kept(torch.relu(x @ m.gate.T + m.gate_bias), 4),
        "hidden": lambda m, x: F.gelu(x @ m.W_enc + m.b_enc),
    },
    "transcoder": {
        "preactivations": lambda m, x: x @ m.W_enc + m.b_enc,
        "coefficients": lambda m, x: kept(torch.relu(x @ m.W_enc + m.b_enc), 5),
    },
    "cp": {
        "coefficients": lambda m, x: gate(m, 0, x),
        "coefficients[1]": lambda m, x: gate(m, 1, x),
        "scores[1]": lambda m, x: gate_scores(m, 1, x),
    },
    "monet_hd": {"g1": lambda m, x: routing(m, x, 1), "g2": lambda m, x: routing(m, x, 2)},
    "aoe": {"scores": lambda m, x: (x @ m.wg).unflatten(-1, (6, -1)).norm(dim=-1)},
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", SHOWN)
def test_what_a_module_shows_has_gradients(kind, training):
    make, plain = KINDS[kind]
    m = filled(make()).train(training)
    x = torch.randn(4, 10, 10, requires_grad=True)
    functions = {"y": plain, **SHOWN[kind]}
    shown = m(x, tuple(functions))
    assert isinstance(shown, tuple) and all(a.shape[:2] == (4, 10) for a in shown)
    wanted = [f(m, x.flatten(0, 1)).reshape(a.shape) for f, a in zip(functions.values(), shown)]
    for name, a, b in zip(functions, shown, wanted):
        assert off(a, b) < 1e-5, name
    weights = [torch.randn_like(a) for a in wanted]
    operands = [x, *read_parameters(m).values()]

    def gradients(results):
        return torch.autograd.grad(sum((a * w).sum() for a, w in zip(results, weights)), operands, allow_unused=True, retain_graph=True)

    for made, right in zip(gradients(shown), gradients(wanted)):
        assert off(made, right) < 5e-5
    for k, (a, b) in enumerate(zip(m(x, list(functions)), wanted)):  # of one result, where the others are not read
        (made,), (right,) = (torch.autograd.grad(r.sin().sum(), x, retain_graph=True) for r in (a, b))
        assert off(made, right) < 5e-5, k


def test_what_a_selection_keeps_stays_sparse():
    m = filled(KINDS["mxd"][0]())
    x = torch.randn(4, 10, 10, requires_grad=True)
    indices, weights, a = m(x, ("indices", "weights", "coefficients"))
    assert indices.dtype == torch.int64 and not indices.requires_grad and indices.shape == weights.shape == (4, 10, 4)
    there = indices >= 0
    assert there.any() and (weights[~there] == 0).all()
    assert torch.equal(torch.zeros_like(a).scatter_add(-1, indices.clamp_min(0), weights), a)
    dw = torch.randn_like(weights)
    (made,) = torch.autograd.grad((weights * dw).sum(), x)
    dense = m.coefficients(x)
    assert torch.equal(dense, a)
    (right,) = torch.autograd.grad((dense.gather(-1, indices.clamp_min(0)) * dw * there).sum(), x)
    assert off(made, right) < 1e-5
    monet = filled(KINDS["monet_vd"][0]()).eval()
    g1, g2 = monet.routing(x)
    for g, i in ((g1, 1), (g2, 2)):
        assert off(g.flatten(0, 1), routing(monet, x.flatten(0, 1), i)) < 1e-5 and g.requires_grad


def test_a_result_that_a_module_does_not_have_is_named():
    m = filled(KINDS["mxd"][0]())
    x = torch.randn(3, 10)
    with pytest.raises(fmoe.DomainError, match="the layer has y, coefficients, weights, indices, scores, hidden, .*, and no gates"):
        m(x, ("y", "gates"))
    with pytest.raises(TypeError, match="outputs is a list"):
        m(x, "y")


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_begins_as_the_authors(kind):
    m = KINDS[kind][0]()
    assert all(torch.isfinite(p).all() for p in m.parameters())
    state = m.state_dict()
    again = KINDS[kind][0]()
    assert again.load_state_dict(state, strict=True).missing_keys == []
    x = torch.randn(3, 10)
    assert (again.eval()(x) == m.eval()(x)).all()


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_the_authors(case):
    c = load(case)
    m = ft.Layer(fmoe.from_arrays(c.weights, metadata=c.settings), c.weights).eval()
    assert {name for name in m.state_dict() if "tracked" not in name} == set(c.weights)
    x = torch.from_numpy(c.x).requires_grad_()
    y = m(x)
    y.backward(torch.from_numpy(c.dy))
    assert off(y, torch.from_numpy(c.y)) < 2e-6
    assert off(x.grad, torch.from_numpy(c.dx)) < 1e-5
    assert {name for name, _ in m.named_parameters()} == set(c.gradients)
    for name, p in m.named_parameters():
        assert off(p.grad, torch.from_numpy(c.gradients[name])) < 1e-5, name


def test_weights_lie_where_fmoe_reads_them():
    m = ft.MxD(10, 12, 30, 7, topk=4)
    for w in m._runner.weights:
        assert m.get_parameter(w.name).data_ptr() == w.held.data_ptr()
    state = ft.MxD(10, 12, 30, 7, topk=4).state_dict()
    m.load_state_dict(state)
    for w in m._runner.weights:
        assert m.get_parameter(w.name).data_ptr() == w.held.data_ptr() and (m.state_dict()[w.name] == state[w.name]).all()


@pytest.mark.parametrize("kind", ["mxd", "cp", "monet_vd", "aoe"])
def test_training_follows_plain_torch(kind):
    make, plain = KINDS[kind]
    ours = filled(make())
    theirs = copy.deepcopy(ours)
    assert theirs._handle != ours._handle
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (ours, theirs)]
    x, target = torch.randn(40, 10), torch.randn(40, 10)[:, :7] if kind in ("mxd", "cp") else torch.randn(40, 10)
    losses = []
    for _ in range(5):
        for m, run, optimizer in zip((ours, theirs), (ours, lambda x: plain(theirs, x)), optimizers):
            optimizer.zero_grad()
            loss = F.mse_loss(run(x).flatten(0, -2), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-2] < losses[0]
    for made, right in zip(losses[::2], losses[1::2]):
        assert made == pytest.approx(right, rel=1e-4)


def test_running_statistics_move_as_batch_norms_of_torch_do():
    m = filled(ft.MuMoE(**CP))
    norms = [torch.nn.BatchNorm1d(n, affine=False) for n in (6, 4)]
    for e, norm in enumerate(norms):
        norm.load_state_dict({k.removeprefix(f"bn.{e}."): v for k, v in m.state_dict().items() if k.startswith(f"bn.{e}.")})
    for x in torch.randn(3, 40, 10):
        m(x)
        for e, norm in enumerate(norms):
            norm(x @ getattr(m.projs, str(e)))
    for e, norm in enumerate(norms):
        for key, value in norm.state_dict().items():
            assert torch.allclose(m.state_dict()[f"bn.{e}.{key}"], value, rtol=1e-5, atol=1e-6), key
    before = m.state_dict()["bn.0.running_mean"].clone()
    y = m.eval()(x)
    assert (m.state_dict()["bn.0.running_mean"] == before).all()
    assert off(y, cp(m, x)) < 1e-5  # the statistics have moved here, too


def test_torch_compile_lets_a_layer_through():
    for kind in ("mxd", "cp"):
        m = filled(KINDS[kind][0]())
        x = torch.randn(8, 10, requires_grad=True)
        wanted = torch.autograd.grad(m.eval()(x).sin().sum(), [x, *list(m.parameters())[:2]])
        for training in (False, True):
            m.train(training)
            step = torch.compile(lambda x: m(x).sin().sum(), backend="aot_eager", fullgraph=True)
            made = torch.autograd.grad(step(x), [x, *list(m.parameters())[:2]])
            if not training:
                assert all((a == b).all() for a, b in zip(made, wanted))
        step(torch.randn(5, 10))
    weights, statistics = m._weights()
    plain = [w.detach() for w in weights]
    torch.library.opcheck(torch.ops.fmoe.layer.default, (x, [], weights, statistics, m._handle, False, 0, "y,coefficients"))
    dy = [torch.randn(8, 1, 7)]
    given = dy, x.detach().unsqueeze(1), [], plain, statistics, m._handle, False, 0, "y"
    torch.library.opcheck(torch.ops.fmoe.layer_gradients.default, given)
    torch.library.opcheck(torch.ops.fmoe.update_statistics.default, (x.detach(), plain, statistics, m._handle, 0.1))


def test_inductor_compiles_what_surrounds_a_layer():
    m = filled(KINDS["mxd"][0]()).eval()
    x = torch.randn(8, 10, requires_grad=True)

    def loss(x):
        return (2 * m(x.cos()).sin()).relu().sum()

    inputs = [x, *list(m.parameters())[:2]]
    wanted = torch.autograd.grad(loss(x), inputs)
    made = torch.autograd.grad(torch.compile(loss, fullgraph=True)(x), inputs)
    assert all(off(a, b) < 1e-5 for a, b in zip(made, wanted))


def test_weights_may_change_in_any_way():
    m = filled(ft.MxD(10, 12, 30, 7, topk=4))
    x = torch.randn(6, 10)

    def agrees(m=m, tolerance=1e-5):
        return off(m(x), mxd(m, x)) < tolerance

    assert agrees()
    with torch.no_grad():
        m.gate.mul_(0.5)
        assert agrees()
        m.W_cond[:, 3] = 7
        assert agrees()
    m.W_dec = torch.nn.Parameter(torch.randn(12, 7))
    assert agrees()
    m.gate.data = torch.randn(30, 10)  # in another order of memory
    assert agrees()
    m.load_state_dict({n: torch.randn_like(p) for n, p in m.state_dict().items()}, assign=True)
    assert agrees()
    m.float()
    assert m._runner.weights[0].held.data_ptr() == m.W_enc.data_ptr() and agrees()
    m.W_enc.data.mul_(2)  # which PyTorch does not count
    m.refresh()
    assert agrees()
    for options in ({}, {"foreach": True}, {"fused": True}):
        optimizer = torch.optim.AdamW(m.parameters(), lr=0.1, **options)
        m(x).sum().backward()
        optimizer.step()
        assert agrees()
    plain = copy.deepcopy(m)
    for _ in range(5):  # temporary tensors, which may have the address of the last ones
        other = {n: torch.randn_like(p) for n, p in m.named_parameters()}
        y = torch.func.functional_call(m, other, (x,))
        plain.load_state_dict(other)
        del other
        assert (y == plain(x)).all()
    assert agrees()
    stream = io.BytesIO()
    torch.save(m, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    assert (loaded(x) == m(x)).all() and (pickle.loads(pickle.dumps(m))(x) == m(x)).all()


def sent(module):
    """The module as another process receives it through torch.multiprocessing: its parameters are the same memory."""
    return pickle.loads(multiprocessing.reduction.ForkingPickler.dumps(module))


MOVES = {
    "share_memory": lambda m: m.share_memory(),
    "the storages of a state_dict are shared": lambda m: [t.untyped_storage().share_memory_() for t in m.state_dict().values()],
    "one of them is": lambda m: m.gate.data.share_memory_(),
    "data": lambda m: setattr(m.gate, "data", m.gate.data.clone()),
    "another order": lambda m: setattr(m.gate, "data", m.gate.data.clone().T.contiguous().T),
    "set_": lambda m: m.gate.set_(m.gate.detach().clone()),
    "assign": lambda m: m.load_state_dict({n: t.clone() for n, t in m.state_dict().items()}, assign=True),
    "assign and share": lambda m: m.load_state_dict({n: t.clone().share_memory_() for n, t in m.state_dict().items()}, assign=True),
    "to another type and back": lambda m: m.double().float(),
    "swap_tensors": lambda m: torch.utils.swap_tensors(m.gate, torch.nn.Parameter(m.gate.detach().clone())),
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("move", MOVES)
def test_weights_are_read_where_they_are(move, again):
    m = filled(ft.MxD(10, 12, 30, 7, topk=4))
    x = torch.randn(6, 10)
    wanted = m(x).detach()
    for _ in range(1 + again):
        with torch.no_grad():
            MOVES[move](m)
        dirt = [torch.full((30, 10), 1e34) for _ in range(20)]  # where what was freed may have been
        assert (m(x) == wanted).all()
        m.refresh()
        assert (m(x) == wanted).all() and (m.layer()(x) == wanted).all() and (copy.deepcopy(m)(x) == wanted).all()
        del dirt
    with torch.no_grad():
        m.W_dec.mul_(2)
        m.b_dec_out.mul_(2)
    assert (m(x) == 2 * wanted).all()
    m(x).sum().backward()
    torch.optim.SGD(m.parameters(), lr=0.1).step()
    assert off(m(x), mxd(m, x)) < 1e-5


def test_what_another_process_writes_is_read():
    m = filled(ft.MxD(10, 12, 30, 7, topk=4))
    x = torch.randn(6, 10)
    m.share_memory()
    y = m(x)
    assert all(p.is_shared() for p in m.parameters())
    m.W_dec.data.numpy()[...] *= 2  # which PyTorch does not count, as it does not count what other processes write
    assert not (m(x) == y).all() and off(m(x), mxd(m, x)) < 1e-5
    other = sent(m)
    assert all(p.is_shared() for p in other.parameters()) and (other(x) == m(x)).all()
    with torch.no_grad():
        other.gate.mul_(0.5)
    assert off(m(x), mxd(m, x)) < 1e-5 and (other(x) == m(x)).all()


def test_another_shape_is_refused_and_another_order_read():
    m = filled(ft.MxD(10, 12, 30, 10, topk=4, use_skip=True))
    x = torch.randn(6, 10)
    y = m(x)
    square = m.get_parameter("W_skip.weight")
    square.data = torch.randn(10, 10)
    first = m(x)
    square.data = square.data.T  # the same memory, in another order
    assert not (m(x) == first).all() and off(m(x), mxd(m, x) + x @ square.T) < 1e-5
    m.gate.data = m.gate.data.reshape(10, 30)
    with pytest.raises(fmoe.ShapeError, match=r"gate is \[10, 30\], and the layer's is \[30, 10\]"):
        m(x)
    assert y.isfinite().all()


def test_weights_on_meta_are_refused():
    x = torch.randn(6, 10)
    m = filled(ft.MuMoE(**CP)).eval()
    state = m.state_dict()
    wanted = m(x)
    for away in (copy.deepcopy(m).to("meta"), copy.deepcopy(copy.deepcopy(m).to("meta"))):
        for call in (away, lambda x: torch.ops.fmoe.layer(x, [], *away._weights(), away._handle, False, 0, "y")):
            with pytest.raises(ValueError, match="weights are on meta: they have no numbers"):
                call(x)
        with pytest.raises(ValueError, match="weights are on meta"):
            torch.func.functional_call(m, {"projs.0": torch.empty(10, 6, device="meta")}, (x,))
        away.to_empty(device="cpu")
        away.load_state_dict(state)
        assert (away(x) == wanted).all()
    with torch.device("meta"):
        away = ft.MuMoE(**CP).eval()
    assert all(t.is_meta for n, t in away.state_dict().items() if "tracked" not in n)
    away.load_state_dict(state, assign=True)
    assert (away(x) == wanted).all()


def test_transforms_that_do_not_see_the_operators_are_refused():
    m = filled(ft.MxD(10, 12, 30, 7, topk=4))
    x = torch.randn(10)
    names = dict(m.named_parameters())

    def dual(x):
        with torch.autograd.forward_ad.dual_level():
            return m(torch.autograd.forward_ad.make_dual(x, x))

    for call in (
        dual,
        torch.func.jacfwd(m),
        lambda x: torch.func.jvp(m, (x,), (x,)),
        lambda x: torch.func.jvp(lambda p: torch.func.functional_call(m, p, (x,)), (names,), (names,)),
    ):
        with pytest.raises(RuntimeError, match="fmoe has no forward-mode derivatives"):
            call(x)
    for call in (torch.func.vmap(m), torch.func.grad(lambda x: m(x).sum()), torch.func.jacrev(m)):
        with pytest.raises(RuntimeError, match="use torch.autograd.grad and torch.autograd.functional.jacobian"):
            call(x.repeat(3, 1))
    with torch.autograd.forward_ad.dual_level():
        assert off(m(x), mxd(m, x)) < 1e-5  # nothing is differentiated
    jacobian = torch.autograd.functional.jacobian(m, x)
    assert off(jacobian, torch.autograd.functional.jacobian(lambda x: mxd(m, x), x)) < 1e-5


def test_a_batch_norm_refuses_one_token_before_anything_is_written():
    m = filled(ft.MuMoE(**CP))
    x = torch.randn(6, 10)
    m(x)
    before = copy.deepcopy(m.state_dict())
    norm = torch.nn.BatchNorm1d(6, affine=False)
    with pytest.raises(ValueError, match="more than 1 value"):
        norm(x[:1, :6])
    for call in (lambda: m(x[:1]), lambda: m(x[:1].unsqueeze(0)), lambda: m._runner.update_statistics(x[:1], m._weights(), 0.1)):
        with pytest.raises(ValueError, match="more than 1 number|at least 2"):
            call()
        assert all((t == before[n]).all() for n, t in m.state_dict().items())
    assert norm(x[:0, :6]).shape == (0, 6) and m(x[:0]).shape == (0, 1, 7)  # no token changes nothing, as in PyTorch
    assert all((t == before[n]).all() for n, t in m.state_dict().items() if "tracked" not in n)
    assert m.eval()(x[:1]).isfinite().all()
    monet = filled(ft.Monet(**MONET))
    monet(x[:1])  # the scores of nine experts
    assert all(t.isfinite().all() for t in monet.state_dict().values())


def test_two_forward_passes_come_before_a_backward_pass():
    m = filled(ft.MxD(10, 12, 30, 7, topk=4))
    a, b = torch.randn(6, 10, requires_grad=True), torch.randn(9, 2, 10, requires_grad=True)
    (m(a).sum() + m(b).sum()).backward()
    made = [p.grad.clone() for n, p in m.named_parameters() if n != "b_dec"]
    m.zero_grad()
    (mxd(m, a).sum() + mxd(m, b).sum()).backward()
    for p, right in zip(made, [p.grad for n, p in m.named_parameters() if n != "b_dec"]):
        assert off(p, right) < 1e-5
    y = ft.MxD(10, 12, 30, 7, topk=4)(a)  # the module goes before its graph
    y.sum().backward()
    y = m(a)
    with torch.no_grad():
        m.W_enc.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_narrow_types():
    m = filled(ft.MxD(10, 12, 30, 7, topk=4)).bfloat16()
    x = torch.randn(6, 10).bfloat16().requires_grad_()
    wide = copy.deepcopy(m).float()
    y, wanted = m(x), wide(x.float())
    assert y.dtype == torch.bfloat16 and (y == wanted.bfloat16()).all()
    dy = torch.randn_like(y)
    y.backward(dy)
    wanted.backward(dy.float())
    assert m.gate.grad.dtype == torch.bfloat16 and (m.gate.grad == wide.gate.grad.bfloat16()).all()


def test_k_may_change_between_calls():
    m = filled(ft.MxD(10, 12, 30, 7, topk=8))
    x = torch.randn(6, 10)
    m.keep(4)
    assert off(m(x), mxd(m, x)) < 1e-5
    m.keep(None)
    assert off(m(x), mxd(m, x)) > 1e-3
    m.keep(9)
    with pytest.raises(fmoe.DomainError, match="compiled for 1 to 8"):
        m(x)


def test_a_module_is_taken_apart():
    m = filled(ft.MxD(10, 12, 30, 7, topk=4))
    x = torch.randn(6, 10)
    layer = m.layer()
    a = layer.coefficients(x)
    assert ((a > 0).sum(1) <= 4).all() and off(a, kept(torch.relu(x @ m.gate.T + m.gate_bias), 4)) < 1e-5
    with torch.no_grad():
        m.gate.mul_(2)
    assert (m.layer()(x) == m(x)).all()
    for module in (m, KINDS["aoe"][0](), KINDS["cp"][0]().eval()):
        taken = module.layer()
        before = taken(x)
        with torch.no_grad():
            for p in module.parameters():
                p.add_(1)
        assert (taken(x) == before).all()
        assert not (module(x).flatten(0, -2) == before).all() and (taken(x) == before).all()
        assert (module.layer()(x) == module(x).flatten(0, -2)).all()
    file = ft.load("examples/data/minilm_l3_mxd_bf16.safetensors")
    rows = torch.from_numpy(fmoe.read("examples/data/minilm_l3_rows.safetensors")["x"][:4])
    assert (file(rows) == fmoe.load("examples/data/minilm_l3_mxd_bf16.safetensors")(rows)).all()


class Theirs(torch.nn.Module):
    """Has the attributes of a module of the authors, and the weights of one of ours."""

    def __init__(self, weights, **attributes):
        super().__init__()
        for name, part in weights.named_children():
            self.add_module(name, part)
        for name, p in weights.named_parameters(recurse=False):
            self.register_parameter(name, p)
        for name, value in attributes.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    "kind, attributes",
    [
        ("mxd", {"cfg": SimpleNamespace(topk=4, mlp_activation_fn="gelu")}),
        ("mxd_glu", {"cfg": SimpleNamespace(topk=0, mlp_activation_fn="gelu_pytorch_tanh")}),
        ("transcoder", {"cfg": SimpleNamespace(topk=5, mlp_activation_fn="relu")}),
        ("cp", {"act": torch.softmax, "normalization": "bn"}),
        ("monet_vd", {}),
        ("aoe", {"args": SimpleNamespace(moe_top_k=2, activation_fn=F.silu)}),
        ("aoe", {"args": SimpleNamespace(moe_top_k=2, activation_fn=torch.nn.SiLU())}),
    ],
)
def test_modules_of_the_authors_become_layers(kind, attributes):
    m = filled(KINDS[kind][0]()).eval()
    theirs = Theirs(m, **attributes)
    if kind == "monet_vd":
        theirs.router.config = SimpleNamespace(moe_topk=2, moe_heads=3, hidden_act="relu2")
        theirs.self_attn = torch.nn.Linear(2, 2)
    x = torch.randn(6, 10)
    layer = fmoe.from_torch(theirs)
    assert (layer(x) == m(x).reshape(6, -1)).all()
    assert (fmoe.from_torch(m)(x) == layer(x)).all()
    again = ft.Layer(layer, theirs.state_dict())
    assert {n for n in again.state_dict()} == {n for n in m.state_dict() if n != "b_dec"}
    with pytest.raises(TypeError, match="the settings of Linear"):
        fmoe.from_torch(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_dict_is_a_mapping_of_arrays(kind, tmp_path):
    m = filled(KINDS[kind][0]()).eval()
    layer, x = m.layer(), torch.randn(6, 10)
    again = fmoe.from_arrays(m.state_dict(), metadata=layer.settings)
    assert (again(x) == layer(x)).all() and again.settings == layer.settings
    layer.save(tmp_path / "layer.safetensors")
    assert (ft.load(tmp_path / "layer.safetensors").eval()(x) == layer(x)).all()


def test_a_module_of_a_file_is_told_what_the_file_does_not_say(tmp_path):
    m = filled(KINDS["mxd"][0]()).eval()
    fmoe.write(tmp_path / "layer.safetensors", {**m.state_dict(), "more": torch.ones(2)})
    extra = []
    made = ft.load(tmp_path / "layer.safetensors", active=4, metadata={"activation": "gelu"}, extra=extra).eval()
    x = torch.randn(6, 10)
    assert extra == ["more"] and (made(x) == m(x)).all()


def test_a_module_of_the_authors_without_a_norm():
    m = filled(ft.MuMoE(**{**CP, "normalization": None})).eval()
    layer, x = fmoe.from_torch(Theirs(m, act=torch.softmax, normalization=None)), torch.randn(6, 10)
    assert layer.settings["norm"] == "none" and (layer(x) == m(x).reshape(6, -1)).all()


@pytest.mark.parametrize(
    "function, name",
    [
        (partial(F.gelu, approximate="tanh"), "gelu_tanh"),  # the default of megablocks
        (partial(F.gelu), "gelu"),
        (F.gelu, "gelu"),
        (torch.nn.GELU("tanh"), "gelu_tanh"),
        (torch.nn.GELU(), "gelu"),
        (torch.nn.ReLU(), "relu"),
        ("silu", "silu"),
    ],
)
def test_functions_of_torch_have_names(function, name):
    m = filled(ft.AoE(10, 11, 6, 3, moe_top_k=2, activation=function))
    theirs = Theirs(m, args=SimpleNamespace(moe_top_k=2, activation_fn=function))
    layer, x = fmoe.from_torch(theirs), torch.randn(6, 10)
    assert layer.settings.get("activation", "silu") == name == m.layer().settings.get("activation", "silu")
    f = getattr(F, name, None) or getattr(torch, name, None) or (lambda v: F.gelu(v, approximate="tanh"))
    acts = (x @ m.wg).unflatten(-1, (6, -1))
    a = kept(acts.norm(dim=-1).softmax(-1), 2)
    wup, v1, w2 = (getattr(m.experts.mlp, n).unflatten(0, (6, -1)) for n in ("wup", "v1", "w2"))
    hidden = f(torch.einsum("tnl,nwl->tnw", acts, wup)) * torch.einsum("td,nwd->tnw", x, v1)
    assert off(layer(x), torch.einsum("tn,tnw,nwd->td", a, hidden, w2) + m.experts.bias) < 1e-5


def test_a_function_with_settings_that_fmoe_does_not_have_is_refused():
    with pytest.raises(ValueError, match="does not know the function"):
        ft.AoE(10, 11, 6, 3, activation=partial(F.leaky_relu, negative_slope=0.3))


@pytest.mark.parametrize(
    "error, sentence, provoke",
    [
        (TypeError, "pass torch.as_tensor", lambda m: m(np.ones((2, 10), np.float32))),
        (TypeError, "takes an fmoe.Layer", lambda m: ft.Layer(fmoe.input())),
        (TypeError, "k is a whole number, and not 2.5", lambda m: m.keep(2.5)),
        (TypeError, "pass x.float", lambda m: m(torch.randn(2, 10, dtype=torch.float64))),
        (ValueError, "runs on the CPU", lambda m: m(torch.empty(2, 10, device="meta"))),
        (fmoe.ShapeError, "axis 0 of the rows", lambda m: m(torch.randn(2, 11))),
        (ValueError, '"cp" or "tr"', lambda m: ft.MuMoE("tucker", 10, 7, [3], 5)),
        (ValueError, '"bn", "ln" or None', lambda m: ft.MuMoE("cp", 10, 7, [3], 5, normalization="batch")),
        (TypeError, "topk is a whole number, and not 1.5", lambda m: ft.MxD(10, 12, 30, 7, topk=1.5)),
        (fmoe.DomainError, "moe_topk is 0, and must be at least 1", lambda m: ft.Monet(10, 4, 3, 9, 0)),
        (fmoe.DomainError, "moe_top_k is 0, and must be at least 1", lambda m: ft.AoE(10, 11, 6, 3, moe_top_k=0)),
        (fmoe.DomainError, "active is -1", lambda m: ft.load("layer.safetensors", active=-1)),
        (ValueError, '"vertical" or "horizontal"', lambda m: ft.Monet(10, 4, 3, 9, 2, moe_decompose="hd")),
    ],
)
def test_errors_are_sentences(error, sentence, provoke):
    with pytest.raises(error, match=sentence):
        provoke(ft.MxD(10, 12, 30, 7, topk=4))

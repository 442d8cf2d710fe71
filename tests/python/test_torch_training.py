# SPDX-License-Identifier: MIT
"""What PyTorch offers around a module in training: it works, or is refused in a sentence."""
import copy
import os
import socket

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import fmoe.torch as ft
from test_torch_modules import filled, mxd, off


def module():
    torch.manual_seed(0)
    return filled(ft.MxD(10, 12, 30, 7, topk=4))


def gradients(m, x, target):
    m.zero_grad(set_to_none=True)
    F.mse_loss(m(x).float(), target).backward()
    return {n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}


def test_autocast_leaves_a_module_in_float32():
    m, x, target = module(), torch.randn(6, 10), torch.randn(6, 7)
    right = gradients(m, x, target)
    with torch.autocast("cpu", torch.bfloat16):
        y = m(x)
        made = gradients(m, x, target)
        after = m(torch.nn.functional.linear(x, torch.eye(10)))  # bfloat16, as autocast makes it
    assert y.dtype == torch.float32 and torch.equal(y, m(x))
    assert all(torch.equal(made[n], g) for n, g in right.items())
    assert after.dtype == torch.bfloat16 and torch.equal(after, m(x.bfloat16()))


@pytest.mark.parametrize("type", [torch.float16, torch.bfloat16])
def test_weights_and_results_of_16_bits(type):
    m = module().to(type)
    x = torch.randn(6, 10).to(type).requires_grad_()
    wide = copy.deepcopy(m).float()
    y, wanted = m(x), wide(x.float())
    assert y.dtype == type and torch.equal(y, wanted.to(type))
    y.float().sum().backward()
    wanted.to(type).float().sum().backward()
    assert x.grad.dtype == type
    for (n, p), q in zip(m.named_parameters(), wide.parameters()):
        if p.grad is not None:
            assert p.grad.dtype == type and torch.equal(p.grad, q.grad.to(type)), n
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    before = m.gate.detach().clone()
    optimizer.step()
    assert not torch.equal(before, m.gate) and torch.equal(m(x), copy.deepcopy(m)(x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant):
    m = module()
    x, target = torch.randn(6, 10, requires_grad=True), torch.randn(6, 7)
    right = gradients(m, x, target)
    (dx,) = torch.autograd.grad(F.mse_loss(m(x), target), x)
    m.zero_grad(set_to_none=True)
    x.grad = None
    y = torch.utils.checkpoint.checkpoint(m, x, use_reentrant=reentrant)
    F.mse_loss(y, target).backward()
    assert torch.equal(x.grad, dx)
    assert all(torch.equal(p.grad, right[n]) for n, p in m.named_parameters() if n in right)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=["plain", "foreach", "fused"])
@pytest.mark.parametrize("rule", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizers_train_it_as_plain_torch(rule, options):
    m = module()
    plain = copy.deepcopy(m)
    optimizers = [rule(each.parameters(), lr=1e-2, **options) for each in (m, plain)]
    for _ in range(5):
        x, target = torch.randn(40, 10), torch.randn(40, 7)
        for each, optimizer, call in zip((m, plain), optimizers, (m, lambda x: mxd(plain, x))):
            optimizer.zero_grad()
            F.mse_loss(call(x), target).backward()
            optimizer.step()
    for (n, p), q in zip(m.named_parameters(), plain.parameters()):
        assert off(p.detach(), q.detach()) < 1e-4 if n != "b_dec" else torch.equal(p, q), n


def test_clipping_and_accumulation():
    m, x, target = module(), torch.randn(6, 10), torch.randn(6, 7)
    F.mse_loss(m(x), target).backward()
    once = m.gate.grad.clone()
    F.mse_loss(m(x), target).backward()
    assert torch.allclose(m.gate.grad, 2 * once)
    norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    assert norm > 0.1 and sum(p.grad.square().sum() for p in m.parameters() if p.grad is not None).sqrt() <= 0.1001


def work(rank, port, queue):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    m = torch.nn.parallel.DistributedDataParallel(module(), find_unused_parameters=True)
    torch.manual_seed(1)
    x, target = torch.randn(8, 10), torch.randn(8, 7)
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(m(x[4 * rank : 4 * rank + 4]), target[4 * rank : 4 * rank + 4]).backward()
        optimizer.step()
    queue.put((rank, {n: p.detach().numpy() for n, p in m.module.named_parameters()}))
    torch.distributed.destroy_process_group()


def test_two_processes_train_one_module():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    processes = [context.Process(target=work, args=(rank, port, queue)) for rank in range(2)]
    for p in processes:
        p.start()
    made = dict(queue.get() for _ in processes)
    for p in processes:
        p.join()
        assert p.exitcode == 0
    alone = module()
    torch.manual_seed(1)
    x, target = torch.randn(8, 10), torch.randn(8, 7)
    optimizer = torch.optim.SGD(alone.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(alone(x), target).backward()
        optimizer.step()
    for n, p in alone.named_parameters():
        assert (made[0][n] == made[1][n]).all(), n
        assert torch.allclose(torch.from_numpy(made[0][n]), p.detach(), rtol=1e-4, atol=1e-6), n

# SPDX-License-Identifier: MIT
"""The layers in PyTorch, as the papers' einsums and their released code order the work, at the sizes of fmoe_bench.

Each function takes a size and makes (forward, width): forward maps [1, t, width], and its weights are in its closure.
"""
import math
import statistics

import torch
import torch.nn.functional as F
from einops import einsum
from entmax import entmax15


def weight(*shape, fan_in):
    return torch.randn(*shape) / math.sqrt(fan_in)


def mxd(i, h, n, o, k):
    encoder, encoder_bias = weight(i, h, fan_in=i), 0.1 * torch.randn(h)
    gate, gate_bias = weight(n, i, fan_in=i), 0.1 * torch.randn(n)
    scales, decoder, bias = torch.randn(o, n), weight(h, o, fan_in=h), 0.1 * torch.randn(o)

    def forward(x):
        z = F.gelu(einsum(x, encoder, "b t i, i h -> b t h") + encoder_bias)
        y = einsum(z, decoder, "b t h, h o -> b t o")
        scores = torch.relu(einsum(x, gate, "b t i, n i -> b t n") + gate_bias)
        best = torch.topk(scores, k=k, dim=-1)
        a = torch.zeros_like(scores).scatter_(-1, best.indices, best.values)
        return y * einsum(scales, a, "o n, b t n -> b t o") + bias

    return forward, i


def gated(n, i):
    projection = weight(i, n, fan_in=i)
    return lambda x: entmax15(F.layer_norm(x @ projection, (n,)))


def cp(n, i, o, r):
    gate, u, v, w = gated(n, i), torch.randn(n, r), weight(i, r, fan_in=i), weight(o, r, fan_in=r)

    def forward(x):
        mixed = einsum(gate(x), u, "b t n, n r -> b t r")
        z = einsum(x, v, "b t i, i r -> b t r")
        return einsum(mixed, z, w, "b t r, b t r, o r -> b t o")

    return forward, i


def tr(n, i, o, p, q, r):
    gate, u = gated(n, i), weight(p, n, q, fan_in=q)
    v, w = weight(q, i, r, fan_in=i), weight(r, o, p, fan_in=r * p)

    def forward(x):
        mixed = einsum(gate(x), u, "b t n, p n q -> b t p q")
        z = einsum(x, v, "b t i, q i r -> b t q r")
        joined = einsum(z, mixed, "b t q r, b t p q -> b t p r")
        return einsum(w, joined, "r o p, b t p r -> b t o")

    return forward, i


def monet_router(d, p, s, k):
    keys = [weight(p * s, d, fan_in=d) for _ in range(2)]
    mean, variance = torch.zeros(p), torch.ones(p)
    sigma = statistics.NormalDist().inv_cdf(1 - k / s)

    def gates(x, w):
        scores = F.linear(x, w).unflatten(-1, (p, s))
        normed = F.batch_norm(scores.transpose(2, 3).flatten(0, -2), mean, variance)
        normed = normed.view(scores.size(0), scores.size(1), s, p).transpose(2, 3)
        bound = normed.amax(-1, keepdim=True).clamp_max(sigma)
        return torch.softmax(torch.where(normed >= bound, scores, -1e10), dim=-1)

    return lambda x: (gates(x, keys[0]), gates(x, keys[1]))


def squared_relu(x):
    return torch.relu(x) ** 2


def monet_hd(d, m, p, s=512, k=32):
    router, h = monet_router(d, p, s, k), s * m
    u, c, v, b = weight(h, d, fan_in=d), 0.1 * torch.randn(h), weight(d, h, fan_in=h), torch.randn(s, d)

    def forward(x):
        g1, g2 = router(x)
        z = squared_relu(F.linear(x, u, c).unflatten(-1, (s, -1)))
        mixed = torch.einsum("btim,bthi,bthj->btjm", z, g1, g2)
        return F.linear(mixed.flatten(-2), v) + torch.einsum("bthj,jd->btd", g2, b)

    return forward, d


def monet_vd(d, m, p, s=512, k=32):
    router, h, o = monet_router(d, p, s, k), s * m // 2, d // 2
    u1, u2 = (weight(h, d, fan_in=d) for _ in range(2))
    c1, c2 = (0.1 * torch.randn(h) for _ in range(2))
    v11, v12, v21, v22 = (weight(o, h, fan_in=h) for _ in range(4))
    b1, b2 = (torch.randn(s, o) for _ in range(2))

    def forward(x):
        g1, g2 = router(x)
        x1 = squared_relu(F.linear(x, u1, c1).unflatten(-1, (s, -1)))
        x2 = squared_relu(F.linear(x, u2, c2).unflatten(-1, (s, -1)))
        y1 = F.linear(torch.einsum("btim,bthi->btim", x1, g1).flatten(-2), v11)
        y1 = y1 + F.linear(torch.einsum("btjm,bthj,bthi->btim", x2, g2, g1).flatten(-2), v12)
        y2 = F.linear(torch.einsum("btim,bthi,bthj->btjm", x1, g1, g2).flatten(-2), v21)
        y2 = y2 + F.linear(torch.einsum("btjm,bthj->btjm", x2, g2).flatten(-2), v22)
        y1 = y1 + torch.einsum("bthi,id->btd", g1, b1)
        y2 = y2 + torch.einsum("bthj,jd->btd", g2, b2)
        return torch.cat((y1, y2), dim=-1)

    return forward, d


def aoe(d, n, l, w, k):
    down = weight(d, n * l, fan_in=d)
    up, linear, output = weight(n, l, w, fan_in=l), weight(n, d, w, fan_in=d), weight(n, w, d, fan_in=w)

    def forward(x):
        rows = x.flatten(0, 1)
        cache = (rows @ down).unflatten(-1, (n, l))
        best = torch.topk(cache.norm(dim=-1), k=k, dim=-1)
        a = torch.softmax(best.values, dim=-1)
        y = torch.zeros_like(rows)
        for e in range(n):
            token, slot = torch.where(best.indices == e)
            if token.numel() == 0:
                continue
            hidden = F.silu(cache[token, e] @ up[e]) * (rows[token] @ linear[e])
            y.index_add_(0, token, a[token, slot, None] * (hidden @ output[e]))
        return y.view_as(x)

    return forward, d


LAYERS = {
    "mxd/gpt2": lambda: mxd(768, 3072, 21490, 768, 32),
    "mxd/pythia410m": lambda: mxd(1024, 4096, 28658, 1024, 32),
    "mumoe/cp": lambda: cp(512, 768, 768, 512),
    "mumoe/tr": lambda: tr(512, 768, 768, 4, 4, 512),
    "monet/850m_hd": lambda: monet_hd(1536, 12, 6),
    "monet/850m_vd": lambda: monet_vd(1536, 12, 6),
    "monet/1.4b_hd": lambda: monet_hd(2048, 16, 8),
    "monet/1.4b_vd": lambda: monet_vd(2048, 16, 8),
    "aoe/2of8": lambda: aoe(768, 8, 256, 3840, 2),
    "aoe/3of64": lambda: aoe(768, 64, 64, 512, 3),
}

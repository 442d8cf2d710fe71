# SPDX-License-Identifier: MIT
"""usage: torch_peer.py THREADS [compiled] [gradients] [dense]

The layers in PyTorch, in the factorized order; eager, or compiled with frozen weights, which Inductor packs; or both passes with
the gradients of all weights. An MxD that is dense multiplies all coefficients, of which all but K are 0.
"""
import math
import sys

import torch
import torch.nn.functional as F
from entmax import entmax15

import contestant


class Layer(torch.nn.Module):
    """A layer whose weights, as `forward` reads them, are parameters; or functions of the weights of the file, if `arranges`."""

    def __init__(self, weights, numbers, learns=False, arranges=False):
        super().__init__()
        self.learns, self.arranges, self.used = learns, arranges, []
        for name, array in weights.items():
            self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(array), requires_grad=learns))
        self.active = int(numbers.get("active", 0))
        self.numbers = numbers
        self.prepare()

    def prepare(self):
        pass

    def own(self, weight):
        weight = weight.contiguous()
        if self.arranges:
            return weight
        self.used.append(torch.nn.Parameter(weight.detach(), requires_grad=self.learns))
        return self.used[-1]

    def side_by_side(self, *weights):
        """A weight [i, o], or several side by side, as F.linear reads it fastest: [o, i]."""
        return self.own(torch.cat([w.flatten(1) for w in weights], 1).t())

    def columns(self, name, *weights):
        setattr(self, name, self.side_by_side(*weights))


class Mxd(Layer):
    def prepare(self):
        self.columns("gate_t", self.gate)
        self.columns("encoder_t", self.encoder)
        self.columns("decoder_t", self.decoder)

    def forward(self, x):
        z = F.gelu(F.linear(x, self.encoder_t, self.encoder_bias))
        values, indices = torch.topk(torch.relu(F.linear(x, self.gate_t, self.gate_bias)), self.active, dim=-1, sorted=False)
        mixed = torch.nn.functional.embedding_bag(indices, self.scales, per_sample_weights=values, mode="sum")
        return F.linear(z, self.decoder_t) * mixed + self.bias


class DenseMxd(Mxd):
    def forward(self, x):
        z = F.gelu(F.linear(x, self.encoder_t, self.encoder_bias))
        values, indices = torch.topk(torch.relu(F.linear(x, self.gate_t, self.gate_bias)), self.active, dim=-1, sorted=False)
        coefficients = torch.zeros(x.shape[0], self.gate.shape[1]).scatter(1, indices, values)
        return F.linear(z, self.decoder_t) * (coefficients @ self.scales) + self.bias


class Cp(Layer):
    def prepare(self):
        self.columns("first", self.gate, self.input)
        self.columns("experts_t", self.experts)

    def forward(self, x):
        n = self.gate.shape[1]
        both = F.linear(x, self.first)
        a = entmax15(F.layer_norm(both[:, :n], (n,)))
        return F.linear(F.linear(a, self.experts_t) * both[:, n:], self.output)


class Tr(Layer):
    def prepare(self):
        self.columns("first", self.gate, self.input.permute(1, 0, 2))
        self.columns("experts_t", self.experts.permute(1, 0, 2))
        self.columns("output_t", self.output.permute(2, 0, 1).flatten(0, 1))

    def forward(self, x):
        n, p, q = self.gate.shape[1], self.experts.shape[0], self.experts.shape[2]
        both = F.linear(x, self.first)
        a = entmax15(F.layer_norm(both[:, :n], (n,)))
        joined = torch.bmm(F.linear(a, self.experts_t).unflatten(1, (p, q)), both[:, n:].unflatten(1, (q, -1)))
        return F.linear(joined.flatten(1), self.output_t)


class Monet(Layer):
    def prepare(self):
        self.columns("first", self.keys1, self.keys2, self.encoder)
        self.columns("last", torch.cat((self.decoder, self.bias)))
        self.heads, self.bound = int(self.numbers["heads"]), self.numbers["bound"]

    def gates(self, scores):
        scores = scores.unflatten(1, (self.heads, -1))
        least = scores.amax(-1, keepdim=True).clamp_max(self.bound)
        return torch.softmax(scores.masked_fill(scores < least, -math.inf), -1)

    def forward(self, x):
        s, keys = self.bias.shape[0], self.keys1.shape[1]
        both = F.linear(x, self.first)
        g1, g2 = self.gates(both[:, :keys]), self.gates(both[:, keys:2 * keys])
        u = torch.relu(both[:, 2 * keys:] + self.encoder_bias).square().unflatten(1, (s, -1))
        mixed = torch.bmm(g2.transpose(1, 2), torch.bmm(g1, u))
        return F.linear(torch.cat((mixed.flatten(1), g2.sum(1)), 1), self.last)


class Mixture(Layer):
    """AoE or the sparse mixture: tokens by expert."""

    def prepare(self):
        if hasattr(self, "down"):
            self.columns("down_t", self.down)
            self.first = [self.side_by_side(w) for w in self.linear]
            self.ups = [self.side_by_side(w) for w in self.up]
        else:
            self.columns("router_t", self.router)
            self.first = [self.side_by_side(*pair) for pair in zip(self.activated, self.linear)]
        self.last = [self.side_by_side(w) for w in self.output]

    def forward(self, x):
        n, k = self.output.shape[0], self.active
        if hasattr(self, "down"):
            cache = F.linear(x, self.down_t).unflatten(1, (n, -1))
            scores = cache.norm(dim=-1)
        else:
            scores = F.linear(x, self.router_t)
        best = torch.topk(scores, k, dim=-1)
        weights = torch.softmax(best.values, -1).flatten()
        order = torch.argsort(best.indices.flatten())
        token = torch.div(order, k, rounding_mode="floor")
        counts = torch.bincount(best.indices.flatten(), minlength=n).tolist()
        own, weights, y, at = x[token], weights[order, None], torch.zeros_like(x), 0
        for e, rows in enumerate(counts):
            if rows == 0:
                continue
            part = slice(at, at + rows)
            at += rows
            if hasattr(self, "down"):
                hidden = F.silu(F.linear(cache[token[part], e], self.ups[e])) * F.linear(own[part], self.first[e])
            else:
                activated, linear = F.linear(own[part], self.first[e]).chunk(2, 1)
                hidden = F.silu(activated) * linear
            y.index_add_(0, token[part], weights[part] * F.linear(hidden, self.last[e]))
        return y


class Peer(Layer):
    def prepare(self):
        self.columns("queries_t", self.queries)
        self.columns_of_keys = self.own(self.keys.permute(2, 0, 3, 1))

    def forward(self, x):
        lists, h, width, s = self.columns_of_keys.shape
        q = F.linear(x, self.queries_t).view(-1, lists, h, width)
        scores = torch.einsum("tlhk,lhks->lths", q, self.columns_of_keys)
        values, indices = torch.topk(scores, self.active, dim=-1)
        sums = (values[0][..., :, None] + values[1][..., None, :]).flatten(-2)
        best, at = torch.topk(sums, self.active, dim=-1)
        experts = s * indices[0].gather(-1, at // self.active) + indices[1].gather(-1, at % self.active)
        experts = experts.flatten(1)
        hidden = F.gelu(torch.bmm(F.embedding(experts, self.down), x[:, :, None]).squeeze(-1))
        return F.embedding_bag(experts, self.up, per_sample_weights=hidden * torch.softmax(best, -1).flatten(1), mode="sum")


LAYERS = {"mxd": Mxd, "cp": Cp, "tr": Tr, "monet": Monet, "aoe": Mixture, "moe": Mixture, "peer": Peer}


class Torch:
    def __init__(self, compiled):
        self.compiled = compiled

    def layer(self, kind, weights, numbers):
        made = LAYERS[kind](weights, numbers).eval()
        return self.compile(made) if self.compiled else made

    def compile(self, made):
        torch.compiler.reset()
        return torch.compile(made, dynamic=False)

    def rows(self, x, _):
        return torch.from_numpy(x.copy())

    def call(self, layer, x):
        with torch.no_grad():
            return layer(x).numpy()

    def run(self, layer, x):
        with torch.no_grad():
            layer(x)


class Gradients(Torch):
    """A layer is a pair here: one for timing, and one whose gradients are those of the weights of the file."""

    def layer(self, kind, weights, numbers):
        if "dense" in sys.argv[2:] and kind != "mxd":
            return None
        made = DenseMxd if "dense" in sys.argv[2:] else LAYERS[kind]
        checked = made(weights, numbers, learns=True, arranges=True)
        timed = made(weights, numbers, learns=True)
        names = dict(timed.named_parameters(recurse=False))
        used = timed.used + [names[name] for name in weights]
        return (self.compile(timed) if self.compiled else timed), used, checked, [getattr(checked, n) for n in sorted(weights)]

    def rows(self, x, dy):
        return torch.from_numpy(x.copy()).requires_grad_(), torch.from_numpy(dy.copy())

    def call(self, layer, rows):
        self.run(layer, rows)  # compiles it
        _, _, checked, weights = layer
        x, dy = rows
        y = checked(x)
        found = torch.autograd.grad(y, [x, *weights], dy)
        return torch.cat([y.detach().flatten(), *(g.flatten() for g in found)]).numpy()

    def run(self, layer, rows):
        timed, used, _, _ = layer
        x, dy = rows
        torch.autograd.grad(timed(x), [x, *used], dy, allow_unused=True)


torch.set_num_threads(int(sys.argv[1]))
compiled = "compiled" in sys.argv[2:]
learns = "gradients" in sys.argv[2:]
if compiled and not learns:
    import torch._inductor.config

    torch._inductor.config.freezing = True
contestant.serve((Gradients if learns else Torch)(compiled))

# SPDX-License-Identifier: MIT
"""The layers in PyTorch, in the factorized order."""
import math

import torch
import torch.nn.functional as F

try:
    from entmax import entmax15
except ImportError:  # a machine with PyTorch alone
    def entmax15(scores):
        """The threshold tau of Peters et al. (2019) by sorting: the sum of (s/2 - tau)^2 over what exceeds it is 1."""
        s = (scores - scores.amax(-1, keepdim=True)) / 2
        ordered = s.sort(-1, descending=True).values
        count = torch.arange(1, s.shape[-1] + 1, device=s.device, dtype=s.dtype)
        mean = ordered.cumsum(-1) / count
        spread = count * (ordered.square().cumsum(-1) / count - mean.square())
        tau = mean - ((1 - spread) / count).clamp_min(0).sqrt()
        kept = (tau <= ordered).sum(-1, keepdim=True)
        return (s - tau.gather(-1, kept - 1)).clamp_min(0).square()


class Layer(torch.nn.Module):
    """A layer whose weights, as `forward` reads them, are parameters; or functions of the weights of the file, if `arranges`."""

    def __init__(self, weights, numbers, learns=False, arranges=False):
        super().__init__()
        self.learns, self.arranges = learns, arranges
        for name, array in weights.items():
            self.register_parameter(name, torch.nn.Parameter(array, requires_grad=learns))
        self.active = int(numbers.get("active", 0))
        self.numbers = numbers
        self.prepare()

    def prepare(self):
        pass

    def own(self, weight):
        weight = weight.contiguous()
        return weight if self.arranges else torch.nn.Parameter(weight.detach(), requires_grad=self.learns)

    def columns(self, name, *weights):
        """A weight [i, o], or several side by side, as F.linear reads it fastest: [o, i]."""
        setattr(self, name, self.own(torch.cat([w.flatten(1) for w in weights], 1).t()))

    def by_expert(self, weights):
        """Weights [e, i, o] as a list that F.linear reads: e times [o, i]."""
        all_own = [self.own(w.t()) for w in weights]
        return all_own if self.arranges else torch.nn.ParameterList(all_own)


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


def gates(scores, heads, bound):
    """For each head the softmax over the scores that reach the bound, or over the greatest one."""
    scores = scores.unflatten(1, (heads, -1))
    least = scores.amax(-1, keepdim=True).clamp_max(bound)
    return torch.softmax(scores.masked_fill(scores < least, -math.inf), -1)


class Monet(Layer):
    def prepare(self):
        self.columns("first", self.keys1, self.keys2, self.encoder)
        self.columns("last", torch.cat((self.decoder, self.bias)))
        self.heads, self.bound = int(self.numbers["heads"]), self.numbers["bound"]

    def forward(self, x):
        s, keys = self.bias.shape[0], self.keys1.shape[1]
        both = F.linear(x, self.first)
        g1, g2 = (gates(g, self.heads, self.bound) for g in (both[:, :keys], both[:, keys:2 * keys]))
        u = torch.relu(both[:, 2 * keys:] + self.encoder_bias).square().unflatten(1, (s, -1))
        mixed = torch.bmm(g2.transpose(1, 2), torch.bmm(g1, u))
        return F.linear(torch.cat((mixed.flatten(1), g2.sum(1)), 1), self.last)


class MonetVertical(Layer):
    def prepare(self):
        self.columns("first", self.keys1, self.keys2, self.encoder1, self.encoder2)
        self.columns("last1", torch.cat((self.decoder11, self.decoder12, self.bias1)))
        self.columns("last2", torch.cat((self.decoder22, self.decoder21, self.bias2)))
        self.heads, self.bound = int(self.numbers["heads"]), self.numbers["bound"]

    def forward(self, x):
        s, keys, h = self.bias1.shape[0], self.keys1.shape[1], self.encoder1.shape[1]
        both = F.linear(x, self.first)
        g1, g2 = (gates(g, self.heads, self.bound) for g in (both[:, :keys], both[:, keys:2 * keys]))
        at = 2 * keys
        u1 = torch.relu(both[:, at:at + h] + self.encoder_bias1).square().unflatten(1, (s, -1))
        u2 = torch.relu(both[:, at + h:] + self.encoder_bias2).square().unflatten(1, (s, -1))
        mass1, mass2 = g1.sum(1), g2.sum(1)
        crossed1 = torch.bmm(g1.transpose(1, 2), torch.bmm(g2, u2))
        crossed2 = torch.bmm(g2.transpose(1, 2), torch.bmm(g1, u1))
        halves = ((u1 * mass1[..., None], crossed1, mass1, self.last1), (u2 * mass2[..., None], crossed2, mass2, self.last2))
        return torch.cat([F.linear(torch.cat((own.flatten(1), crossed.flatten(1), mass), 1), last)
                          for own, crossed, mass, last in halves], 1)


class Mixture(Layer):
    """AoE or the sparse mixture: tokens by expert."""

    def prepare(self):
        if hasattr(self, "down"):
            self.columns("down_t", self.down)
            self.first = self.by_expert(self.linear)
            self.ups = self.by_expert(self.up)
        else:
            self.columns("router_t", self.router)
            self.first = self.by_expert(torch.cat((self.activated, self.linear), 2))
        self.last = self.by_expert(self.output)

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


LAYERS = {"mxd": Mxd, "cp": Cp, "tr": Tr, "monet": Monet, "monet_vd": MonetVertical, "aoe": Mixture, "moe": Mixture, "peer": Peer}

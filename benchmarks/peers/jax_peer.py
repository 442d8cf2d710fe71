# SPDX-License-Identifier: MIT
"""usage: jax_peer.py THREADS [gradients]

The layers in JAX, in the factorized order. XLA's threads are as many as the processors that the process may use. XLA knows the
number of a mixture's rows only in blocks: each block of rows, sorted by expert, meets the weights of one expert. A loop over blocks
has no gradient, so both passes multiply ragged rows.
"""
import functools
import math
import sys

import jax
import jax.numpy as jnp

import contestant

jax.config.update("jax_default_matmul_precision", "float32")


@jax.custom_vjp
def entmax_of_halves(v):
    """Alpha 1.5 of 2 v: Newton's steps from below."""
    v = v - v.max(-1, keepdims=True)

    def step(_, tau):
        above = jnp.maximum(v - tau, 0)
        return tau + (jnp.square(above).sum(-1, keepdims=True) - 1) / (2 * above.sum(-1, keepdims=True))

    tau = jax.lax.fori_loop(0, 10, step, jnp.full_like(v[:, :1], -1))
    return jnp.square(jnp.maximum(v - tau, 0))


def entmax_forward(v):
    y = entmax_of_halves(v)
    return y, y


def entmax_backward(y, c):
    root = jnp.sqrt(y)
    return (2 * root * (c - (root * c).sum(-1, keepdims=True) / root.sum(-1, keepdims=True)),)


entmax_of_halves.defvjp(entmax_forward, entmax_backward)


def entmax(v):
    """Alpha 1.5 of the layer norm of v."""
    v = v - v.mean(-1, keepdims=True)
    return entmax_of_halves(v * (0.5 * jax.lax.rsqrt(jnp.square(v).mean(-1, keepdims=True) + 1e-5)))


def mxd(w, numbers, x):
    z = jax.nn.gelu(x @ w["encoder"] + w["encoder_bias"], approximate=False)
    values, indices = jax.lax.top_k(jax.nn.relu(x @ w["gate"] + w["gate_bias"]), numbers["active"])
    mixed = jnp.einsum("tk,tko->to", values, w["scales"][indices])
    return z @ w["decoder"] * mixed + w["bias"]


def cp(w, numbers, x):
    both, n = x @ w["first"], w["experts"].shape[0]
    return (entmax(both[:, :n]) @ w["experts"] * both[:, n:]) @ w["output"]


def tr(w, numbers, x):
    both, (n, p, q) = x @ w["first"], w["experts"].shape
    a = (entmax(both[:, :n]) @ w["experts"].reshape(n, p * q)).reshape(-1, p, q)
    joined = jnp.einsum("tpq,tqr->tpr", a, both[:, n:].reshape(x.shape[0], q, -1))
    return joined.reshape(x.shape[0], -1) @ w["output"]


def monet(w, numbers, x):
    s, heads = w["bias"].shape[0], numbers["heads"]
    both = x @ w["first"]

    def gates(scores):
        scores = scores.reshape(-1, heads, s)
        least = jnp.minimum(scores.max(-1, keepdims=True), numbers["bound"])
        return jax.nn.softmax(jnp.where(scores >= least, scores, -math.inf), -1)

    g1, g2 = gates(both[:, :heads * s]), gates(both[:, heads * s:2 * heads * s])
    u = jnp.square(jax.nn.relu(both[:, 2 * heads * s:] + w["encoder_bias"])).reshape(x.shape[0], s, -1)
    mixed = jnp.einsum("tpj,tpm->tjm", g2, jnp.einsum("tpi,tim->tpm", g1, u))
    return mixed.reshape(x.shape[0], -1) @ w["decoder"] + g2.sum(1) @ w["bias"]


def mixture(w, numbers, x):
    (tokens, d), k, n = x.shape, numbers["active"], len(w["experts"])
    if "down" in w:
        cache = (x @ w["down"].reshape(d, -1)).reshape(tokens, n, -1)
        scores = jnp.sqrt(jnp.square(cache).sum(-1))
    else:
        scores = x @ w["router"]
    best, chosen = jax.lax.top_k(scores, k)
    weights, chosen = jax.nn.softmax(best, -1).reshape(-1), chosen.reshape(-1)

    def expert(e, token):
        def of(number, token):
            rows, own = x[token], w["experts"][number]
            activated = cache[token, number] @ own["up"] if "down" in w else rows @ own["activated"]
            return (jax.nn.silu(activated) * (rows @ own["linear"])) @ own["output"]

        return jax.lax.switch(e, [functools.partial(of, number) for number in range(n)], token)

    if tokens == 1:
        return sum(weights[c] * expert(chosen[c], jnp.zeros(1, int)) for c in range(k))
    # Each expert's rows begin at a multiple of `block`; the places between are empty.
    block = max(1, 2 ** round(math.log2(max(1, tokens * k / n))))
    blocks = min(tokens * k, tokens * k // block + n)
    counts = jnp.bincount(chosen, length=n)
    ends = jnp.cumsum((counts + block - 1) // block)
    order = jnp.argsort(chosen)
    of = chosen[order]
    place = (ends - (counts + block - 1) // block)[of] * block + jnp.arange(tokens * k) - (jnp.cumsum(counts) - counts)[of]
    token = jnp.zeros(blocks * block, int).at[place].set(order // k)
    share = jnp.zeros(blocks * block).at[place].set(weights[order])

    def one(b, y):
        own = jax.lax.dynamic_slice_in_dim(token, b * block, block)
        made = expert(jnp.searchsorted(ends, b, side="right"), own)
        return y.at[own].add(jax.lax.dynamic_slice_in_dim(share, b * block, block)[:, None] * made)

    return jax.lax.fori_loop(0, ends[-1], one, jnp.zeros_like(x))


def peer(w, numbers, x):
    (h, s, _, width), k = w["keys"].shape, numbers["active"]
    q = (x @ w["queries"]).reshape(-1, 2, h, width)
    values, indices = jax.lax.top_k(jnp.einsum("tlhk,hslk->lths", q, w["keys"]), k)
    sums = (values[0][..., :, None] + values[1][..., None, :]).reshape(-1, h, k * k)
    best, at = jax.lax.top_k(sums, k)
    experts = s * jnp.take_along_axis(indices[0], at // k, -1) + jnp.take_along_axis(indices[1], at % k, -1)
    experts = experts.reshape(-1, h * k)
    hidden = jax.nn.gelu(jnp.einsum("td,ted->te", x, w["down"][experts]), approximate=False)
    return jnp.einsum("te,ted->td", hidden * jax.nn.softmax(best, -1).reshape(-1, h * k), w["up"][experts])


def ragged_mixture(w, numbers, x):
    (tokens, d), k, n = x.shape, numbers["active"], w["output"].shape[0]
    if "down" in w:
        cache = (x @ w["down"].reshape(d, -1)).reshape(tokens, n, -1)
        scores = jnp.sqrt(jnp.square(cache).sum(-1))
    else:
        scores = x @ w["router"]
    best, chosen = jax.lax.top_k(scores, k)
    weights, chosen = jax.nn.softmax(best, -1).reshape(-1), chosen.reshape(-1)
    order, counts = jnp.argsort(chosen), jnp.bincount(chosen, length=n)
    token = order // k
    rows = x[token]
    if "down" in w:
        activated = jax.lax.ragged_dot(cache[token, chosen[order]], w["up"], counts)
    else:
        activated = jax.lax.ragged_dot(rows, w["activated"], counts)
    hidden = jax.nn.silu(activated) * jax.lax.ragged_dot(rows, w["linear"], counts)
    made = jax.lax.ragged_dot(hidden, w["output"], counts)
    return jnp.zeros_like(x).at[token].add(weights[order, None] * made)


LAYERS = {"mxd": mxd, "cp": cp, "tr": tr, "monet": monet, "aoe": mixture, "moe": mixture, "peer": peer}


def arranged(kind, w):
    """Weights that meet the same rows side by side, and the axes of a product in its order."""
    if kind == "cp":
        return {"first": jnp.concatenate((w["gate"], w["input"]), 1), "experts": w["experts"], "output": w["output"].T}
    if kind == "tr":
        q, i, r = w["input"].shape
        first = jnp.concatenate((w["gate"], w["input"].transpose(1, 0, 2).reshape(i, q * r)), 1)
        output = w["output"].transpose(2, 0, 1)
        return {"first": first, "experts": w["experts"].transpose(1, 0, 2), "output": output.reshape(-1, output.shape[2])}
    if kind == "monet":
        return w | {"first": jnp.concatenate((w["keys1"], w["keys2"], w["encoder"]), 1)}
    if kind in ("aoe", "moe"):
        of_all = {name: w[name] for name in ("down", "router") if name in w}
        names = w.keys() - of_all.keys()
        return of_all | {"experts": [{name: w[name][n] for name in names} for n in range(w["output"].shape[0])]}
    return w


def whole(numbers):
    return {name: int(n) if n == int(n) else n for name, n in numbers.items()}


class Jax:
    def layer(self, kind, weights, numbers):
        w = jax.block_until_ready(arranged(kind, {name: jnp.asarray(array) for name, array in weights.items()}))
        compiled = jax.jit(lambda w, x: LAYERS[kind](w, whole(numbers), x))
        return lambda x: compiled(w, x)

    def rows(self, x, _):
        return jnp.asarray(x)

    def call(self, layer, x):
        return layer(x)

    def run(self, layer, x):
        layer(x).block_until_ready()


class Gradients:
    """A layer is a pair here: one for timing, and one whose gradients are those of the weights of the file."""

    def layer(self, kind, weights, numbers):
        is_mixture = kind in ("aoe", "moe")
        of = ragged_mixture if is_mixture else LAYERS[kind]
        order = (lambda _, w: w) if is_mixture else arranged

        def passes(function, w):
            def both(w, x, dy):
                y, backward = jax.vjp(lambda w, x: function(w, whole(numbers), x), w, x)
                return y, backward(dy)

            compiled = jax.jit(both)
            return lambda rows: compiled(w, *rows)

        w = {name: jnp.asarray(array) for name, array in weights.items()}
        return passes(of, jax.block_until_ready(order(kind, w))), passes(lambda w, n, x: of(order(kind, w), n, x), w)

    def rows(self, x, dy):
        return jnp.asarray(x), jnp.asarray(dy)

    def call(self, layer, rows):
        self.run(layer, rows)  # compiles it
        y, (dw, dx) = layer[1](rows)
        return jnp.concatenate([y.ravel(), dx.ravel(), *(dw[name].ravel() for name in sorted(dw))])

    def run(self, layer, rows):
        jax.block_until_ready(layer[0](rows))


contestant.serve(Gradients() if "gradients" in sys.argv[2:] else Jax())

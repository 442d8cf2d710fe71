# SPDX-License-Identifier: MIT
"""The layers that scripts/peers compares, at the sizes of fmoe_bench: their weights and rows, for all contestants the same."""
import math
import statistics

import numpy
from safetensors.numpy import save_file

ROWS = 1024


class Maker:
    """Makes random weights; the axes of each are those of fmoe's layers."""

    def __init__(self):
        self.random = numpy.random.default_rng(1)
        self.arrays = {}

    def weight(self, name, *shape, fan_in):
        self.arrays[name] = self.random.standard_normal(shape, dtype=numpy.float32) / numpy.float32(math.sqrt(fan_in))

    def bias(self, name, size):
        self.weight(name, size, fan_in=100)


def mxd(m, i, h, n, o, active):
    m.weight("encoder", i, h, fan_in=i)
    m.bias("encoder_bias", h)
    m.weight("gate", i, n, fan_in=i)
    m.bias("gate_bias", n)
    m.weight("scales", n, o, fan_in=1)
    m.weight("decoder", h, o, fan_in=h)
    m.bias("bias", o)
    return i, {"active": active}


def cp(m, n, i, o, r):
    m.weight("gate", i, n, fan_in=i)
    m.weight("experts", n, r, fan_in=1)
    m.weight("input", i, r, fan_in=i)
    m.weight("output", o, r, fan_in=r)
    return i, {}


def tr(m, n, i, o, p, q, r):
    m.weight("gate", i, n, fan_in=i)
    m.weight("experts", p, n, q, fan_in=q)
    m.weight("input", q, i, r, fan_in=i)
    m.weight("output", r, o, p, fan_in=r * p)
    return i, {}


def monet(m, d, m_units, heads, s, active):
    h = s * m_units
    m.weight("keys1", d, heads * s, fan_in=d)
    m.weight("keys2", d, heads * s, fan_in=d)
    m.weight("encoder", d, h, fan_in=d)
    m.bias("encoder_bias", h)
    m.weight("decoder", h, d, fan_in=h)
    m.weight("bias", s, d, fan_in=1)
    # The running statistics are mean 0 and variance 1.
    bound = statistics.NormalDist().inv_cdf(1 - active / s) * math.sqrt(1 + 1e-5)
    return d, {"heads": heads, "active": active, "bound": bound}


def aoe(m, d, n, l, w, active):
    m.weight("down", d, n, l, fan_in=d)
    m.weight("up", n, l, w, fan_in=l)
    m.weight("linear", n, d, w, fan_in=d)
    m.weight("output", n, w, d, fan_in=w)
    return d, {"active": active}


def moe(m, d, n, w, active):
    m.weight("router", d, n, fan_in=d)
    m.weight("activated", n, d, w, fan_in=d)
    m.weight("linear", n, d, w, fan_in=d)
    m.weight("output", n, w, d, fan_in=w)
    return d, {"active": active}


def peer(m, d, heads, s, width, active):
    m.weight("queries", d, 2 * heads * width, fan_in=d)
    m.weight("keys", heads, s, 2, width, fan_in=width)
    m.weight("down", s * s, d, fan_in=d)
    m.weight("up", s * s, d, fan_in=active)
    return d, {"active": active}


# Name: the kind, and the numbers of its function.
LAYERS = {
    "mxd/gpt2": (mxd, 768, 3072, 21490, 768, 32),
    "mxd/minilm": (mxd, 384, 1536, 4096, 384, 32),
    "mumoe/cp": (cp, 512, 768, 768, 512),
    "mumoe/tr": (tr, 512, 768, 768, 4, 4, 512),
    "monet/1.4b_hd": (monet, 2048, 16, 8, 512, 32),
    "aoe/2of8": (aoe, 768, 8, 256, 3840, 2),
    "aoe/3of64": (aoe, 768, 64, 64, 512, 3),
    "moe/2of8": (moe, 768, 8, 2048, 2),
    "moe/8of64": (moe, 2048, 64, 1024, 8),  # OLMoE's
    "moe/8of128": (moe, 2048, 128, 768, 8),  # Qwen3-30B-A3B's
    "peer/65536": (peer, 768, 8, 256, 128, 16),
}


def kind_of(name):
    return LAYERS[name][0].__name__


def write(name, path):
    """Writes weights, rows x, the gradients dy of a loss with respect to their results, and the numbers that no shape tells."""
    make, *sizes = LAYERS[name]
    maker = Maker()
    width, numbers = make(maker, *sizes)
    maker.weight("x", ROWS, width, fan_in=1)
    maker.weight("dy", ROWS, width, fan_in=1)
    save_file(maker.arrays, path, metadata={key: str(value) for key, value in numbers.items()})

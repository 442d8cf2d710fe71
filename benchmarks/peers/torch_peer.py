# SPDX-License-Identifier: MIT
"""usage: torch_peer.py THREADS [compiled] [gradients] [dense]

The layers of torch_layers.py in PyTorch; eager, or compiled with frozen weights, which Inductor packs; or both passes with
the gradients of all weights. An MxD that is dense multiplies all coefficients, of which all but K are 0.
"""
import sys

import torch

import contestant
from torch_layers import LAYERS, DenseMxd


def tensors(weights):
    return {name: torch.from_numpy(w) for name, w in weights.items()}


class Torch:
    def __init__(self, compiled):
        self.compiled = compiled

    def layer(self, kind, weights, numbers):
        made = LAYERS[kind](tensors(weights), numbers).eval()
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
        checked = made(tensors(weights), numbers, learns=True, arranges=True)
        timed = made(tensors(weights), numbers, learns=True)
        used = list(timed.parameters())
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

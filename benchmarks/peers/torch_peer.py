# SPDX-License-Identifier: MIT
"""usage: torch_peer.py THREADS [compiled]

The layers of torch_layers.py in PyTorch; eager, or compiled with frozen weights, which Inductor packs.
"""
import sys

import torch

import contestant
from torch_layers import LAYERS


class Torch:
    def __init__(self, compiled):
        self.compiled = compiled

    def layer(self, kind, weights, numbers):
        made = LAYERS[kind]({name: torch.from_numpy(w) for name, w in weights.items()}, numbers).eval()
        if not self.compiled:
            return made
        torch.compiler.reset()
        return torch.compile(made, dynamic=False)

    def rows(self, x):
        return torch.from_numpy(x.copy())

    def call(self, layer, x):
        with torch.no_grad():
            return layer(x).numpy()

    def run(self, layer, x):
        with torch.no_grad():
            layer(x)


torch.set_num_threads(int(sys.argv[1]))
compiled = "compiled" in sys.argv[2:]
if compiled:
    import torch._inductor.config

    torch._inductor.config.freezing = True
contestant.serve(Torch(compiled))

# SPDX-License-Identifier: MIT
"""usage: transformers_peer.py THREADS [bf16]

The sparse mixture as the block of Qwen3-MoE in transformers, eager, with weights of float or bf16. For each number of rows the
block computes its experts in the quickest of transformers' ways on a CPU: a loop over the experts, or grouped or batched products.
"""
import sys

import torch
from transformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

import contestant

WAYS = ("eager", "grouped_mm", "batched_mm")


class Transformers:
    def __init__(self, dtype):
        self.dtype = dtype

    def layer(self, kind, weights, numbers):
        if kind != "moe":
            return None
        d, n = weights["router"].shape
        config = Qwen3MoeConfig(hidden_size=d, num_experts=n, num_experts_per_tok=int(numbers["active"]), norm_topk_prob=True,
                                moe_intermediate_size=weights["output"].shape[1], hidden_act="silu")
        config._experts_implementation = "eager"
        with torch.device("meta"):
            block = Qwen3MoeSparseMoeBlock(config)
        block = block.to(self.dtype).to_empty(device="cpu").requires_grad_(False)
        block.gate.weight.copy_(torch.from_numpy(weights["router"]).t())
        for e in range(n):
            both = (torch.from_numpy(weights[name][e]).t() for name in ("activated", "linear"))
            block.experts.gate_up_proj[e].copy_(torch.cat(tuple(both)))
            block.experts.down_proj[e].copy_(torch.from_numpy(weights["output"][e]).t())
        return block, config

    def rows(self, x, _):
        return torch.from_numpy(x.copy())[None].to(self.dtype)

    def call(self, layer, x):
        _, config = layer
        took = {}
        for way in WAYS:
            if way == "batched_mm" and x.shape[1] > 16:  # it copies the weights of each row
                continue
            config._experts_implementation = way
            self.run(layer, x)
            took[way] = contestant.seconds_of_call(lambda: self.run(layer, x))
        config._experts_implementation = min(took, key=took.get)
        return self.run(layer, x)[0].float().numpy()

    def run(self, layer, x):
        with torch.no_grad():
            return layer[0](x)


torch.set_num_threads(int(sys.argv[1]))
contestant.serve(Transformers(torch.bfloat16 if "bf16" in sys.argv[2:] else torch.float32))

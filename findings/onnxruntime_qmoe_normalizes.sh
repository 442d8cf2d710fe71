#!/usr/bin/env bash
# onnxruntime 1.32.0 (CPU) with onnx 1.23.2: the operator QMoE of com.microsoft, a mixture of experts with weights of 4 or 8 bits, ignores
# its attribute normalize_routing_weights. The weights of the k experts of a token always sum to 1, as for Mixtral, also with 0, the
# default, which Qwen2-MoE, OLMoE and DeepSeek-V2 need: there they are the softmax over all experts. The operator MoE, for weights that
# are not quantised, obeys the same attribute. In QMoECPU::ComputeCommon (contrib_ops/cpu/moe/moe_quantization_cpu.cc) only the branch
# that has the optional input router_weights reads the setting; the other one divides by the sum of the k always.
#
# expected: differences of rounding alone from float64, for both values
# seen: normalize 0: MoE off by 0.00, QMoE off by 0.32 of the greatest; normalize 1: MoE off by 0.00, QMoE off by 0.00
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cat >"$folder/qmoe.py" <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import helper

experts, tokens, width, hidden, k = 4, 5, 32, 32, 2
rng = np.random.default_rng(1)
x, logits = (rng.standard_normal(shape, dtype=np.float32) for shape in ((tokens, width), (tokens, experts)))
codes = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((experts, hidden, width), (experts, width, hidden))]
scales = [rng.uniform(0.005, 0.01, c.shape[:2]).astype(np.float32) for c in codes]
w1, w2 = ((c.astype(np.float32) - 128) * s[..., None] for c, s in zip(codes, scales))  # as the operator's documentation has it


def run(kind, inputs, **attributes):
    feeds = {f"i{n}": a for n, a in enumerate(inputs) if a is not None}
    node = helper.make_node(kind, [f"i{n}" if a is not None else "" for n, a in enumerate(inputs)], ["y"], domain="com.microsoft",
                            k=k, activation_type="silu", **attributes)
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in feeds.items()]
    graph = helper.make_graph([node], "layer", infos, [helper.make_tensor_value_info("y", 1, x.shape)])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def off(y, normalize):
    p = np.exp(logits.astype(float))
    p /= p.sum(1, keepdims=True)
    p *= p >= np.sort(p, 1)[:, -k, None]
    if normalize:
        p /= p.sum(1, keepdims=True)
    h = np.einsum("ti,nhi->tnh", x.astype(float), w1)
    right = np.einsum("tn,tnh,noh->to", p, h / (1 + np.exp(-h)), w2)
    return f"off by {np.abs(y - right).max() / np.abs(right).max():.2f}"


quantised = [x, logits, codes[0], scales[0], None, codes[1], scales[1]]
moe = [off(run("MoE", [x, logits, w1, None, w2], normalize_routing_weights=n), n) for n in (0, 1)]
qmoe = [off(run("QMoE", quantised, normalize_routing_weights=n, expert_weight_bits=8, weights_prepacked=0), n) for n in (0, 1)]
print(f"normalize 0: MoE {moe[0]}, QMoE {qmoe[0]} of the greatest; normalize 1: MoE {moe[1]}, QMoE {qmoe[1]}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore qmoe.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "normalize 0: MoE off by 0.00, QMoE off by 0.32 of the greatest; normalize 1: MoE off by 0.00, QMoE off by 0.00" ]

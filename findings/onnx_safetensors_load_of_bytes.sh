#!/usr/bin/env bash
# onnx-safetensors 1.6.0 with onnx 1.23.2: load(model, save(model)) gives another model than it was given, for types that save writes as U8:
# float8 of the kinds FNUZ, and integers of 4 and 2 bits. load, unlike load_file, never asks the model for the type, so that the weights
# become UINT8: a code of float8 is taken for its number, and packed integers keep their packed shape. FLOAT4E2M1 keeps its type and is
# flattened. Nothing is raised. load_file of a file with the same bytes is right. The README counts float8, float4 and integers of 4 bits
# among the types that work.
#
# expected: the type, the shape [3, 4] and the sum 7.0 of each model
# seen: FLOAT: FLOAT [3, 4], sum 7.0; FLOAT8E4M3FN: FLOAT8E4M3FN [3, 4], sum 7.0; FLOAT8E4M3FNUZ: UINT8 [3, 4], sum 1280.0; INT4:
#       UINT8 [6], sum 611.0; FLOAT4E2M1: FLOAT4E2M1 [12], sum 7.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile onnx-safetensors==1.6.0 onnx==1.23.2 safetensors==0.8.0 \
  ml_dtypes==0.6.0 numpy==2.4.6
cat >"$folder/weights.py" <<'PYTHON'
import numpy as np
import onnx_safetensors
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

numbers = np.array([[1, -2, 3, 0], [2, 2, -1, 4], [-3, 1, 1, -1]])


def made(kind):
    weights = helper.make_tensor("w", kind, numbers.shape, numbers.astype(float).ravel().tolist())
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), helper.make_node("ReduceSum", ["f"], ["y"], keepdims=0)]
    graph = helper.make_graph(nodes, "sum", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])


def told(model):
    w = model.graph.initializer[0]
    return f"{TensorProto.DataType.Name(w.data_type)} {list(w.dims)}, sum {ReferenceEvaluator(model).run(None, {})[0]}"


def from_file(model):
    with open("w.safetensors", "wb") as file:
        file.write(onnx_safetensors.save(model))
    return onnx_safetensors.load_file(model, "w.safetensors")


names = "FLOAT", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "INT4", "FLOAT4E2M1"
found = {}
for name in names:
    model = made(TensorProto.DataType.Value(name))
    assert told(from_file(model)) == told(model) == f"{name} [3, 4], sum 7.0"
    found[name] = told(onnx_safetensors.load(model, onnx_safetensors.save(model)))
print("; ".join(f"{name}: {text}" for name, text in found.items()))
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore weights.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "FLOAT: FLOAT [3, 4], sum 7.0; FLOAT8E4M3FN: FLOAT8E4M3FN [3, 4], sum 7.0; FLOAT8E4M3FNUZ: UINT8 [3, 4], sum 1280.0; INT4: UINT8 [6], sum 611.0; FLOAT4E2M1: FLOAT4E2M1 [12], sum 7.0" ]

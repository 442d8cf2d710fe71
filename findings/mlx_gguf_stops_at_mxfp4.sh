#!/usr/bin/env bash
# mlx 0.32.4 (CPU) with gguf 0.19.0: mx.load of a GGUF file ends at the first tensor of MXFP4, the type of the experts of gpt-oss. This
# tensor and all that follow it, whatever their types are, are missing in the result; nothing is raised and nothing warns. gguf's own
# reader lists them all. Types that mlx knows and cannot decode, such as Q5_0, raise. The function that gives the next tensor to
# load_arrays (mlx/io/gguf.cpp) answers 0 for a type beyond its table, which ends at 30, as it does where no tensor is left.
#
# expected: all 5 tensors, or an error that names the type
# seen: gguf lists 5 tensors, mlx returns 1: blk.0.ffn_gate_inp.weight; without MXFP4 mlx returns 5, equal to what was written;
#       with Q5_0 in its place: RuntimeError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q --disable-pip-version-check install --no-compile "mlx[cpu]==0.32.4" gguf==0.19.0 numpy==2.4.6
cat >"$folder/lost.py" <<'PYTHON'
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFWriter
from gguf.quants import quantize

rng = np.random.default_rng(0)
shapes = {"blk.0.ffn_gate_inp.weight": (4, 64), "blk.0.ffn_gate_exps.weight": (4, 32, 64), "blk.0.ffn_up_exps.weight": (4, 32, 64),
          "blk.0.ffn_norm.weight": (64,), "output.weight": (8, 64)}
numbers = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def read(experts):
    writer = GGUFWriter("model.gguf", "gpt-oss")
    for name, array in numbers.items():
        kind = experts if "exps" in name else Type.F32
        writer.add_tensor(name, quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return [tensor.name for tensor in GGUFReader("model.gguf").tensors], mx.load("model.gguf")


names, loaded = read(Type.MXFP4)
plain = read(Type.F32)[1]
equal = all(np.array_equal(np.array(plain[name]), array) for name, array in numbers.items())
try:
    other = f"{len(read(Type.Q5_0)[1])} tensors"
except Exception as e:
    other = type(e).__name__
print(f"gguf lists {len(names)} tensors, mlx returns {len(loaded)}: {', '.join(loaded)}; without MXFP4 mlx returns {len(plain)}, "
      f"{'equal to' if equal else 'other than'} what was written; with Q5_0 in its place: {other}")
PYTHON
found=$(cd "$folder" && HOME=$folder venv/bin/python -W ignore lost.py 2>/dev/null | tail -n 1)
echo "$found"
[ "$found" = "gguf lists 5 tensors, mlx returns 1: blk.0.ffn_gate_inp.weight; without MXFP4 mlx returns 5, equal to what was written; with Q5_0 in its place: RuntimeError" ]

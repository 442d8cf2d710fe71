# SPDX-License-Identifier: MIT
"""The golden cases of tests/golden that have gradients."""
import pathlib
from types import SimpleNamespace

import numpy as np

import fmoe

GOLDEN = pathlib.Path("tests/golden")
CASES = sorted(str(f.relative_to(GOLDEN)).removesuffix(".grad.safetensors") for f in GOLDEN.glob("*/*.grad.safetensors"))

# What a file of the layer says; the cases have more in their metadata.
SETTINGS = ["K", "k", "P", "activation", "capacity_factor", "heads", "norm", "phi", "selection", "strategy", "weighting"]


def load(case):
    """The arrays of a case, float32 but for what the authors' code computed in double, and the settings of its layer."""
    at = GOLDEN / case
    io, grad = fmoe.read(f"{at}.io.safetensors"), fmoe.read(f"{at}.grad.safetensors")
    said = io.metadata
    weights = fmoe.read(at.parent / said.get("weights_file", f"{at.name}.weights.safetensors"))
    settings = {key: said[key] for key in SETTINGS if key in said}
    if said["family"] == "monet":
        settings = {"K": said["k"], "heads": said["p"], "activation": said["activation"]}
    if said["family"] == "peer":
        settings = {"K": said["k"], "weighting": said["score_activation"], "candidates": said["product_key_topk"]}
    return SimpleNamespace(
        weights=dict(weights),
        settings=settings,
        x=io["x"],
        y=io["y64"],
        dy=grad["dy"].astype(np.float32),
        dx=grad["dx64"],
        gradients={name.removeprefix("grad64."): grad[name] for name in grad if name.startswith("grad64.")},
    )

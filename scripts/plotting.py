# SPDX-License-Identifier: MIT
"""Imports matplotlib. If it is missing, it is installed in a virtual environment in build/plots and the script restarts."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"

try:
    import matplotlib
except ModuleNotFoundError:
    venv = ROOT / "build" / "plots"
    if not (venv / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "--quiet", "matplotlib"], check=True)
    os.execv(venv / "bin" / "python", [venv / "bin" / "python", *sys.argv])

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "fmoe", "svg.fonttype": "none", "font.size": 9})
import matplotlib.pyplot as plt  # noqa: E402


def tidy(panel):
    panel.grid(alpha=0.25)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})

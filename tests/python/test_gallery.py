# SPDX-License-Identifier: MIT
"""The notebooks of docs/gallery run, and what they claim is true. With their outputs they are in build/gallery, for the site."""
import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

GALLERY = pathlib.Path("docs/gallery")
MADE = pathlib.Path("build/gallery")
NOTEBOOKS = sorted(f.stem for f in GALLERY.glob("*.ipynb"))

# What a notebook says about its values, by its name.
CLAIMS = {
    "run_a_layer": """
        assert difference < 1e-5
        assert 0 < missed < 0.1
        assert (again == y).all()
    """,
    "find_an_expert": """
        assert (a > 0).sum(axis=1).max() == 32
        assert n == 4080 and set(words[tokens]) == {"can", "able", "may"}
        assert np.median(frequency) < 0.01 and (frequency > 0.5).sum() in range(1, 6)
    """,
    "steer_an_expert": """
        assert added[:, output].min() > 0
        assert (np.diff(values, axis=0) > 0).all() and (values[4] == y[:, output]).all()
        assert (changed == fires).all() and 0 < changed.sum() < len(x) / 10
    """,
    "delete_a_domain": """
        assert len(experts) > 100
        assert uses_deleted(chemistry).all() and change(chemistry).min() > 0.01
        assert 0 < len(others) < len(law) and change(others).max() < 1e-6
        assert change(chemistry).mean() > 5 * change(law).mean()
    """,
    "train_a_layer": """
        assert losses[-1] < losses[0] / 20
        assert test_error < one_map / 20
        assert len(set(use.argmax(axis=1))) == clusters
    """,
    "naive_against_factorized": """
        assert 0 < difference < 1e-5  # another order of products
        ratios = [work[n].naive_multiply_adds / work[n].factorized.multiply_adds for n in counts]
        assert (np.diff(ratios) > 0).all() and ratios[-1] > 20
        assert all(work[n].factorized.parameters - work[n // 2].factorized.parameters == 128 * n // 2 for n in counts[1:])
    """,
}

DRAWINGS = """
%config InlineBackend.figure_formats = ["svg"]
%config InlineBackend.rc = {"svg.fonttype": "none", "svg.hashsalt": "fmoe", "axes.spines.top": False, "axes.spines.right": False}
"""


def test_each_notebook_has_claims():
    assert NOTEBOOKS == sorted(CLAIMS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(name):
    notebook = nbformat.read(GALLERY / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells), "clear the outputs"
    claims = "\n".join(line.removeprefix(" " * 8) for line in CLAIMS[name].splitlines())
    notebook.cells.insert(0, nbformat.v4.new_code_cell(DRAWINGS))
    notebook.cells.append(nbformat.v4.new_code_cell(claims))
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(GALLERY)}}).execute()
    notebook.cells = notebook.cells[1:-1]
    MADE.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, MADE / f"{name}.ipynb")

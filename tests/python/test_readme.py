# SPDX-License-Identifier: MIT
"""The lines of README.md print the numbers of examples/quickstart.cpp."""
import pathlib
import re


def test_the_lines_of_readme_give_the_numbers_of_the_quickstart(capsys):
    text = pathlib.Path("README.md").read_text()
    lines = re.search(r"```python\n(import fmoe\n.*?)```", text, re.DOTALL)[1]
    exec(lines, {})
    printed = capsys.readouterr().out
    assert "multiply-adds a token: 2.76e+06, naive 2.42e+09\n" in printed
    assert float(re.search(r"off the authors' output by (\S+) of its largest", printed)[1]) < 1e-6
    assert "off the MLP's t: mean |y-t|^2/|t|^2 0.0746\n" in printed
    assert "screened" in printed

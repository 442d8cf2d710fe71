# SPDX-License-Identifier: MIT
"""build.py RECIPE FOLDER: builds a recipe with rattler-build, runs its tests, and prints the files of the package.

A channel in FOLDER stands for conda-forge: its packages are empty, so that programs and headers are those of this machine.
"""
import pathlib
import sys

from rattler_build import Package, Stage0Recipe, ToolConfiguration, VariantConfig

path, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
channel = folder / "channel"


def build(recipe, **options):
    (variant,) = Stage0Recipe.from_file(recipe).render(VariantConfig())
    return variant.run_build(output_dir=channel, **options).packages[0]


for name in ("cmake", "gxx_linux-64", "ninja", "nlohmann_json", "tbb-devel", "xsimd"):
    (folder / name).mkdir(parents=True)
    (folder / name / "recipe.yaml").write_text(f"package: {{name: {name}, version: '9999'}}\nbuild: {{noarch: generic}}\n")
    build(folder / name / "recipe.yaml", channels=[])
package = build(path, channels=[channel.as_uri()], tool_config=ToolConfiguration(test_strategy="native"))
print(*Package.from_file(package).files, sep="\n")

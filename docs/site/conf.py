# SPDX-License-Identifier: MIT
# Makes the site from the Markdown that GitHub shows, unchanged, and the API from the comments of the headers.
# scripts/docs makes the source folder, whose index.md is README.md, and runs Sphinx on it.
import csv
import itertools
import pathlib
import re

root = pathlib.Path(__file__).resolve().parents[2]

project = "fmoe"
numbers = (root / "include/fmoe/version.hpp").read_text()
release = ".".join(re.search(rf"{part} = (\d+)", numbers)[1] for part in ("major", "minor", "patch"))

extensions = ["myst_nb", "breathe"]
nb_execution_mode = "off"  # scripts/docs has run the notebooks
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
html_math_renderer = "mathml"
exclude_patterns = ["docs/site", "examples", "include", "tests"]
myst_heading_anchors = 4
breathe_projects = {"fmoe": str(root / "build/site/xml")}
breathe_default_project = "fmoe"
breathe_show_include = False
# Each header declares its part of namespace fmoe again.
suppress_warnings = ["duplicate_declaration.cpp"]

html_theme = "furo"
html_title = f"fmoe {release}"
html_static_path = [str(root / "docs/site/style.css")]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
pygments_style = "friendly"
highlight_language = "text"
smartquotes = False

LAYERS = ["mumoe", "mxd", "monet", "aoe", "moe", "peer"]

# The headers of the public interface; each group is a page.
API = {
    "Layers": [f"layers/{layer}.hpp" for layer in [*LAYERS, "sparse_mlp", "cross_layer_transcoder", "soft_moe", "mov", "routing", "glu_expert", "expert_gate", "experts",
                                                     "monet_expert", "initialise"]],
    "Analysis": [f"analysis/{what}.hpp" for what in ("expert_load", "expert_statistics", "top_tokens", "polysemanticity", "expert_domains",
                                                     "expert_correlation", "expert_page", "routed_rows", "edit", "rank")],
    "Expressions": ["expr/einsum.hpp", "expr/pointwise.hpp", "expr/pointwise_function.hpp", "expr/rows.hpp", "expr/selection.hpp", "expr/concat.hpp", "expr/all_except.hpp", "expr/sized.hpp",
                    "expr/expression.hpp", "base/functions.hpp", "base/checked.hpp"],
    "Running": ["run/evaluate.hpp", "run/compile.hpp", "run/model.hpp", "run/explain.hpp", "run/cost.hpp", "planner/cost_figures.hpp",
                "planner/machine.hpp", "planner/machine_text.hpp", "run/this_machine.hpp", "planner/options.hpp", "planner/tuned_shapes.hpp", "backend/backend.hpp", "backend/reference/reference.hpp", "backend/cuda/machines.hpp", "backend/cuda/device.hpp", "backend/cuda/tensor.hpp"],
    "At run time": ["expr/operations.hpp", *(f"dynamic/{what}.hpp" for what in ("executable", "layer", "gradients", "load", "names"))],
    "Gradients": ["gradients/gradient.hpp", "gradients/layer_gradients.hpp", "gradients/both_passes.hpp", "gradients/sparse_gradient.hpp"],
    "Optimizers": [f"optimizers/{what}.hpp" for what in ("sgd", "adam", "clip", "running_statistics", "unit_norm")],
    "Ranks": [f"distributed/{what}.hpp" for what in ("communicator", "thread_communicator", "mpi_communicator", "sharded", "network_costs", "measure_network", "load_shard", "save_shard", "compiled_shard", "shard_costs", "shard_gradients", "clip_shard", "gradient_sum")],
    "Tensors and errors": ["arrays/tensor.hpp", "arrays/storage.hpp", "arrays/print.hpp", "arrays/viewed.hpp", "arrays/sliced.hpp", "arrays/interop.hpp", "arrays/eigen.hpp", "arrays/xtensor.hpp",
                           "arrays/place.hpp", "arrays/array_view.hpp", "base/dtype.hpp", "base/error.hpp", "base/random.hpp", "base/pairs.hpp", "version.hpp"],
    "Weights": ["io/safetensors.hpp", "io/checkpoint.hpp", "io/gguf.hpp", "io/gguf_value.hpp", "io/named_arrays.hpp", "io/scaled_arrays.hpp", "io/npy.hpp", "io/load.hpp", "io/layers_in.hpp", "models/load_model.hpp", "models/load_mixture.hpp", "models/quantize.hpp", "arrays/quantized.hpp", "io/array.hpp", "io/error.hpp", "arrays/released.hpp"],
}

# Pages by their part of the navigation; pages that are not named come last.
PARTS = {
    "Using fmoe": ["guide", "headers", "formats", "install", "platforms", "operators", "gradients", "training", "training_mumoe", "training_language", "serving", "determinism", "interpretability", "python", "c", "errors", "interop", "cuda", "distributed", "performance", "measurements", "gallery"],
    "Layers": LAYERS,
    "Inside": ["architecture", "adding_a_layer", "add_an_operation", "screening", "gpu_kernels"],
}

NOTEBOOKS = ["run_a_layer", "find_an_expert", "steer_an_expert", "delete_a_domain", "train_a_layer", "naive_against_factorized"]


def headers():
    return [f"include/fmoe/{header}" for group in API.values() for header in group]


def tree(caption, pages):
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"


def navigation(source):
    present = {p.stem for p in (source / "docs").glob("*.md")}
    for caption, names in PARTS.items():
        if caption == "Inside":
            names = names + sorted(present - {name for part in PARTS.values() for name in part})
        yield tree(caption, [f"docs/{name}" for name in names if name in present])
    yield tree("Notebooks", [f"docs/gallery/{name}" for name in NOTEBOOKS])
    yield tree("API", [f"api/{page_of(group)}" for group in API])
    yield tree("Project", ["CONTRIBUTING", "CHANGELOG"])


def page_of(group):
    return group.lower().replace(" ", "_")


def concepts(header):
    """Yields the entries of a header's concepts, which Doxygen lists in no file."""
    for name in re.findall(r"^concept (\w+)", (root / "include/fmoe" / header).read_text(), re.M):
        if (root / "build/site/xml" / f"conceptfmoe_1_1{name.replace('_', '__')}.xml").exists():  # it is for users
            yield f".. doxygenconcept:: fmoe::{name}"


def name_files_by_paths():
    """Doxygen's list calls files by their last names, which several folders may have, and Breathe looks files up there."""
    xml = root / "build/site/xml"

    def named(entry):
        path = re.findall(r'<location file="([^"]*)"', (xml / f"{entry[2]}.xml").read_text())[-1]
        return f"{entry[1]}<name>{path}"

    index = xml / "index.xml"
    index.write_text(re.sub(r'(<compound refid="(\w+)" kind="file">)<name>[^<]*', named, index.read_text()))


def write_api(app):
    name_files_by_paths()
    folder = pathlib.Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    for group, names in API.items():
        parts = [f"{group}\n{'=' * len(group)}\n"]
        for name in names:
            title = f"fmoe/{name}"
            parts += [title, "-" * len(title), "", f".. doxygenfile:: {title}", *concepts(name), ""]
        text = "\n".join(parts)
        page = folder / f"{page_of(group)}.rst"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def tidy_api(app, doctree):
    """Takes from a page of the API what its readers need not see, and says once what holds for several declarations in a row."""
    from docutils import nodes
    from sphinx import addnodes

    if not app.env.docname.startswith("api/"):
        return
    # Each header opens namespace fmoe again, which need not be said and indented for.
    for node in list(doctree.findall(addnodes.desc)):
        if node[0].astext() == "namespace fmoe" or node[0].astext().startswith("namespace ") and not node[-1].children:
            at = node.parent.index(node)
            node.parent["ids"] += [name for signature in node[:-1] for name in signature["ids"]]
            node.parent[at - 1:at + 1] = node[-1].children  # and not its entry in the index
    # Overloads stand once in the table of contents.
    name = ""
    for signature in doctree.findall(addnodes.desc_signature):
        name, before = signature["_toc_name"].removeprefix("fmoe::"), name
        signature["_toc_name"] = name if name != before else ""
    # Words without a meaning for the reader.
    for paragraph in list(doctree.findall(nodes.paragraph)):
        if paragraph.astext().startswith("Subclassed by "):
            paragraph.parent.remove(paragraph)
    for rubric in doctree.findall(nodes.rubric):
        rubric[:] = [nodes.Text(rubric.astext().removeprefix("Public "))]
    for word in list(doctree.findall(addnodes.desc_sig_keyword)):
        if word.astext() == "inline":
            at = word.parent.index(word)
            del word.parent[at:at + 2]  # with the space behind it
    # Declarations with one comment become one entry.
    for node in list(doctree.findall(addnodes.desc)):
        at = node.parent.index(node)
        above = next((other for other in reversed(node.parent[:at]) if not isinstance(other, addnodes.index)), None)
        if isinstance(above, addnodes.desc) and above["objtype"] == node["objtype"] and above[-1].astext() == node[-1].astext() != "":
            above[-1:-1] = node[:-1]
            node.parent.remove(node)
    # Doxygen leaves the examples as they are: of those that it colours, Breathe loses the spaces at the beginning of a line.
    for block in doctree.findall(nodes.literal_block):
        block["language"] = "cpp"


# The columns that say where and how a row was measured.
RUN = ("machine", "date", "command")


def markdown_table(columns, rows):
    cells = [columns, ["---"] * len(columns), *([row[column] for column in columns] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in cells)


def tables_of(file):
    """Yields the tables of a CSV file: one of all rows, or, where runs have many rows, one of each run below a line that says which."""
    with open(file, newline="", encoding="utf-8") as lines:
        first, *lines = csv.reader(line for line in lines if not line.startswith("#"))
    if any(len(line) != len(first) for line in lines):
        raise ValueError(f"{file}: a row has not as many cells as the first one")
    rows = [dict(zip(first, line)) for line in lines]
    run = [column for column in RUN if column in first]
    runs = [(of_run, list(group)) for of_run, group in itertools.groupby(rows, lambda row: [row[column] for column in run])]
    if len(rows) < 4 * len(runs):
        runs, run = [([], rows)], []
    for of_run, group in runs:
        said = [f"`{text}`" if column == "command" else text for column, text in zip(run, of_run) if text]
        table = markdown_table([column for column in first if column not in run and any(row[column] for row in group)], group)
        yield "; ".join(said) + f"\n\n{table}"


def with_tables(app, page, content):
    """Puts the tables of a CSV file behind each line of a page that is a link to the file and nothing else."""
    folder = (pathlib.Path(app.srcdir) / page).parent
    content[0] = re.sub(r"(?m)^\[[^\]]+\]\(([^)#:]+\.csv)\)$",
                        lambda link: "\n\n".join([link[0], *tables_of(folder / link[1])]), content[0])


def as_mathml(display):
    """Returns what writes a formula as MathML, which browsers show without scripts and without the network."""
    def visit(translator, node):
        import docutils.nodes
        import latex2mathml.converter

        made = latex2mathml.converter.convert(node.astext(), display=display)
        if re.search(r"[\\]|&(?!#)", made):  # what the converter does not know comes out as it is
            raise ValueError(f"{node.source}: not a formula for latex2mathml: {node.astext()}")
        # Infinity and bars of a norm are no operators, which would stand apart from what is beside them.
        translator.body.append(re.sub(r"<mo[^>]*>(&#x0(?:221E|007C);)</mo>", r"<mi>\1</mi>", made))
        raise docutils.nodes.SkipNode

    return visit, None


def setup(app):
    app.connect("builder-inited", write_api)
    app.connect("doctree-read", tidy_api, priority=100)  # before the tables of contents

    from sphinx.domains.cpp import CPPDomain

    class Names(CPPDomain):
        """What a search finds, without parameters and the namespaces of each header, which would fill the results."""

        def get_objects(self):
            return (entry for entry in super().get_objects() if not entry[2].endswith("Param") and entry[0] not in ("fmoe", "fmoe::io"))

    app.add_domain(Names, override=True)
    app.add_html_math_renderer("mathml", as_mathml("inline"), as_mathml("block"))

    def with_navigation(_, page, content):
        if page == "index":
            content[0] += "".join(navigation(pathlib.Path(app.srcdir)))

    app.connect("source-read", with_navigation)
    app.connect("source-read", with_tables)


if __name__ == "__main__":  # for the Doxyfile
    print(" ".join(headers()))

# SPDX-License-Identifier: MIT
"""Arrays of all kinds come in and go out, and what is no array of numbers is refused in a sentence."""
import array
import ctypes
import re

import numpy as np
import pytest

import fmoe
from fmoe._arrays import readable

rng = np.random.default_rng(0)
x = rng.normal(size=(7, 12)).astype(np.float32)
w = rng.normal(size=(12, 5)).astype(np.float32)
PRODUCT = fmoe.einsum("ti,io->to", fmoe.input(), w)
forward = fmoe.compile(PRODUCT, 8)
wanted = forward(x)
packed = np.zeros(3, dtype=[("tag", "u1"), ("x", "f4", (12,))])["x"]


class OnlyBuffer:
    """Offers the buffer protocol alone, from Python 3.12 on."""

    def __init__(self, a):
        self.a = a

    def __buffer__(self, flags):
        return memoryview(self.a)


BUFFERS = {
    "memoryview": memoryview,
    "a field of ctypes": lambda a: (ctypes.c_float * 12 * 7).from_buffer_copy(a),
    "a class of Python": pytest.param(OnlyBuffer, marks=pytest.mark.skipif("sys.version_info < (3, 12)")),
}


@pytest.mark.parametrize("kind", BUFFERS.values(), ids=BUFFERS)
def test_buffers_are_read(kind):
    given = kind(x)
    assert type(readable(given)) is np.ndarray  # the binding sees arrays of numpy alone
    assert (forward(given) == wanted).all()
    assert (fmoe.evaluate(fmoe.einsum("ti,io->to", given, w)) == wanted).all()
    assert (fmoe.evaluate(fmoe.Expression(given) + x) == 2 * x).all()
    assert (fmoe.evaluate(x + fmoe.Expression(given)) == 2 * x).all()
    assert (fmoe.evaluate(fmoe.Expression(x) + given) == 2 * x).all()
    statistics = fmoe.ExpertStatistics(12)
    statistics.add(given)
    assert statistics.tokens == 7


def test_a_row_of_the_module_array(tmp_path):
    row = array.array("f", x[0])
    assert (forward(row) == wanted[0]).all() and forward(row).shape == (5,)
    fmoe.write(tmp_path / "row.safetensors", {"row": row})
    assert (fmoe.read(tmp_path / "row.safetensors")["row"] == x[0]).all()
    y = fmoe.einsum("i,io->o", row, w)
    before = fmoe.evaluate(y)
    for i in range(12):
        row[i] *= 2
    assert (fmoe.evaluate(y) == 2 * before).all()


@pytest.mark.parametrize(
    "given, sentence",
    [
        (np.ones((3, 12), np.int64), "the array is int64, and fmoe takes arrays of float32, float64, float16 or bfloat16"),
        (np.ones((3, 12), bool), "the array is bool, and fmoe takes"),
        (np.ones((3, 12), complex), "the array is complex128, and fmoe takes"),
        (np.full((3, 12), "a"), "the array is <U1, and fmoe takes"),
        (np.full((3, 12), None), "the array is object, and fmoe takes"),
        (np.zeros((3, 12), [("a", "f4")]), "fmoe takes"),
        (x.astype(">f4"), 'the byte order of other machines: pass x.astype(x.dtype.newbyteorder("="))'),
        (packed, "not a whole number of elements apart: pass x.copy()"),
        (memoryview(b"ab"), "the array is uint8, and fmoe takes"),
        (b"ab", "the array is uint8, and fmoe takes"),
        ("ab", "this is a str, and an array of numpy, of PyTorch or with DLPack is expected"),
        (None, "this is a NoneType, and an array"),
        (object(), "this is an object, and an array"),
        (np.ma.masked_array(x, x > 0), "some numbers of the array are masked, and fmoe reads all of them: pass x.filled(0)"),
        ([1, "a"], "list is no array of numbers"),
        ([[1, 2], [3]], "list is no array of numbers"),
        (lambda x: x, "this is a function, and an array"),
        ({"a": 1}, "this is a dict, and an array"),
    ],
)
def test_what_is_no_array_is_refused_everywhere(given, sentence, tmp_path):
    layer = fmoe.load("examples/data/minilm_l3_mxd_bf16.safetensors")
    for call in (
        lambda: forward(given),
        lambda: fmoe.einsum("ti,io->to", given, w),
        lambda: fmoe.parameter(given),
        lambda: fmoe.Expression(given),
        lambda: fmoe.relu(given),
        lambda: fmoe.top_k(given, 1),
        lambda: fmoe.write(tmp_path / "a.safetensors", {"a": given}),
        lambda: fmoe.ExpertStatistics(12).add(given),
        lambda: fmoe.ExpertDomains(9, 2).add(given, given, 0),
        lambda: layer(given),
        lambda: layer.coefficients(given),
        lambda: layer.compile_gradients(4)(given, given),
    ):
        with pytest.raises(TypeError, match=re.escape(sentence)):
            call()


def test_operators_leave_what_is_no_array_to_python():
    for other in ("text", None, object()):
        for call in (lambda: PRODUCT + other, lambda: other - PRODUCT, lambda: PRODUCT / other):
            with pytest.raises(TypeError, match="unsupported operand"):
                call()
    with pytest.raises(TypeError, match="the array is int64"):
        PRODUCT * np.arange(5)
    assert (fmoe.evaluate(fmoe.einsum("ti,io->to", x, w) * np.float32(2)) == 2 * wanted).all()


def test_what_cannot_be_written_is_refused():
    y = np.empty((7, 5), np.float32)
    y.flags.writeable = False
    for out, sentence in (
        (y, "the array to write to is read-only"),
        (b"ab", "this is a bytes"),
        ([1.0], "this is a float"),
        ("text", "this is a str"),
        (memoryview(np.empty((7, 5), np.float32)), "this is a memoryview"),
    ):
        with pytest.raises(TypeError, match=sentence):
            forward(x, out=out)
    assert (forward(x, out=[np.empty((7, 5), np.float32)]) == wanted).all()


def test_bfloat16_of_numpy(tmp_path):
    bfloat16 = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed").bfloat16
    narrow, wide = x.astype(bfloat16), x.astype(bfloat16).astype(np.float32)
    assert (forward(narrow) == forward(wide)).all() and forward(narrow).dtype == np.float32
    assert (forward(narrow[:, None]) == forward(wide[:, None])).all()
    weight = w.astype(bfloat16)
    for lies in (weight, np.asfortranarray(weight), np.repeat(weight, 2, 0)[::2]):
        y = fmoe.einsum("ti,io->to", fmoe.input(), fmoe.parameter(lies))
        made = fmoe.compile(y, 8)
        first = made(x)
        assert (first == fmoe.compile(fmoe.einsum("ti,io->to", fmoe.input(), lies.astype(np.float32)), 8)(x)).all()
        lies *= 2
        made.refresh()
        assert (made(x) == 2 * first).all()
    assert fmoe.explain(y, 8).memory.weights == w.size * 2
    assert "rounds its rows" in fmoe.explain(y, 8, bf16_products=True).text
    fmoe.write(tmp_path / "a.safetensors", {"x": narrow, "strided": narrow[::2, ::3]})
    back = fmoe.read(tmp_path / "a.safetensors")
    assert (back["x"] == wide).all() and (back["strided"] == wide[::2, ::3]).all()
    assert b'"BF16"' in (tmp_path / "a.safetensors").read_bytes()
    layer = fmoe.load("examples/data/minilm_l3_mxd_bf16.safetensors")
    arrays = {name: a.astype(bfloat16) for name, a in layer.arrays().items()}
    rows = rng.normal(size=(4, 384)).astype(np.float32)
    again = fmoe.from_arrays(arrays, metadata=layer.settings)
    assert (again(rows) == layer(rows)).all()  # of a file of bfloat16
    assert (again(rows.astype(bfloat16)) == layer(rows.astype(bfloat16).astype(np.float32))).all()


def test_jax_arrays_come_back_as_jax():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    layer = fmoe.load("examples/data/minilm_l3_mxd_bf16.safetensors")
    rows = rng.normal(size=(4, 384)).astype(np.float32)
    given = jax.numpy.asarray(rows)
    step = layer.compile_gradients(4)
    made, right = step(given, given), step(rows, rows)
    for y, plain in (
        (layer(given), layer(rows)),
        (layer.compile(4)(given), layer(rows)),
        (layer.coefficients(given), layer.coefficients(rows)),
        (forward(given[:, :12]), forward(rows[:, :12])),
        (made.y, right.y),
        (made.dx, right.dx),
        *((made.parameters[name], g) for name, g in right.parameters.items()),
    ):
        assert isinstance(y, jax.Array) and (np.asarray(y) == plain).all()
    with pytest.raises(TypeError, match="fmoe does not write to an ArrayImpl"):
        forward(given[:, :12], out=jax.numpy.empty((4, 5)))
    narrow = given.astype(jax.numpy.bfloat16)
    assert isinstance(layer(narrow), jax.Array)


FILE = "examples/data/minilm_l3_mxd_bf16.safetensors"
MIXTURE = "tests/mixtures/infinity_in_config"
EXPERTS = fmoe.load(FILE)
ROWS = np.ones((1, 384), np.float32)
scores = fmoe.input()


@pytest.mark.parametrize(
    "sentence, provoke",
    [
        ("k is a whole number, and not 2.0", lambda: fmoe.top_k(x, 2.0)),
        ("k is a whole number, and not '2'", lambda: fmoe.top_k(x, "2")),
        ("k is a whole number, and not True", lambda: fmoe.top_k(x, True)),
        ("k is -1, and must be at least 0", lambda: fmoe.top_k(x, -1)),
        ("weights is a text, and not 3", lambda: fmoe.top_k(x, 3, 3)),
        ("groups is a whole number", lambda: fmoe.best_groups(x, 2.5, 1)),
        ("active is -2", lambda: fmoe.best_groups(x, 2, -2)),
        ("score is a text", lambda: fmoe.best_groups(x, 2, 1, None)),
        ("mass is a number, and not 'most'", lambda: fmoe.top_p(x, "most", "score")),
        ("capacity is a whole number", lambda: fmoe.expert_choice(x, x, "score", 1.5)),
        ("factor is a number", lambda: fmoe.expert_choice(x, x, "score", factor="two")),
        ("each is a whole number", lambda: fmoe.product_top_k(x, 2, 2.5)),
        ("axis is -1, and must be at least 0", lambda: fmoe.concat([x, x], -1)),
        ("a length of shape is -3", lambda: fmoe.sized(x, [-3, None])),
        ("index is a whole number", lambda: fmoe.input(0.5)),
        ("ndim is -1", lambda: fmoe.input(0, -1)),
        ("bound is a number, and not None", lambda: fmoe.threshold(x, None)),
        ("epsilon is a number", lambda: fmoe.layer_norm(x, "small")),
        ("alpha is a number", lambda: fmoe.entmax(x, "a")),
        ("which is a text", lambda: fmoe.norm(2, x)),
        ("the first argument of einsum is a text such as", lambda: fmoe.einsum(x, "ti->t")),
        ("tokens is a whole number, and not 2.5", lambda: fmoe.compile(PRODUCT, 2.5)),
        ("tokens is -4", lambda: fmoe.compile(PRODUCT, -4)),
        ("threads is a whole number", lambda: fmoe.compile(PRODUCT, 4, threads="all")),
        ("None sets no limit", lambda: fmoe.compile(PRODUCT, 4, threads=0)),
        ("naive is True or False, and not 'no'", lambda: fmoe.compile(PRODUCT, 4, naive="no")),
        ("there is no option 'thread': threads, callers, naive", lambda: fmoe.compile(PRODUCT, 4, thread=2)),
        ("there is no option 'tokens'", lambda: fmoe.evaluate(PRODUCT, tokens=3)),
        ("tokens is a whole number", lambda: fmoe.explain(PRODUCT, "4")),
        ("tokens is a whole number", lambda: fmoe.cost(PRODUCT, 1.5)),
        ("this is a function", lambda: fmoe.compile(lambda x: x, 4)),
        ("k is a whole number", lambda: forward.keep("2")),
        ("i is a whole number", lambda: forward.input_shape("0")),
        ("n is a whole number, and not 1.5", lambda: EXPERTS.expert(1.5)),
        ("n is a whole number, and not True", lambda: EXPERTS.expert(True)),
        ("n is -1, and must be at least 0", lambda: EXPERTS.expert(-1)),
        ("n is a whole number", lambda: EXPERTS.expert_output(np.ones((1, 384), np.float32), 1.5)),
        ("an expert is a whole number, and not 1.5", lambda: EXPERTS.ablated([1.5])),
        ("an expert is a whole number, and not 0.5", lambda: EXPERTS.ablated([(0.5, 1)])),
        ("level is a whole number", lambda: EXPERTS.ablated([1], level="0")),
        ("level is -1", lambda: EXPERTS.coefficients(np.ones((1, 384), np.float32), -1)),
        ("n is a whole number, and not (1, 2)", lambda: EXPERTS.steered((1, 2), 1)),
        ("strength is a number", lambda: EXPERTS.steered(1, "2")),
        ("head is a whole number", lambda: EXPERTS.rewritten(1.0, [0], 1)),
        ("an entry of mean is a number", lambda: EXPERTS.rewritten(1, ["a"], 1)),
        ("tokens is a whole number", lambda: EXPERTS.compile_gradients(4.5)),
        ("type is a text", lambda: EXPERTS.quantize(8)),
        ('metadata["K"] is a text, and not 3', lambda: fmoe.from_arrays(EXPERTS.arrays(), metadata={"K": 3})),
        ("the name of an array is a text", lambda: fmoe.write("/dev/null", {3: x})),
        ("arrays are a mapping from names", lambda: fmoe.from_arrays([x])),
        ("experts is -1, and must be at least 0", lambda: fmoe.ExpertStatistics(-1)),
        ("experts is a whole number, and not 2.5", lambda: fmoe.ExpertStatistics(2.5)),
        ("domains is a whole number, and not '2'", lambda: fmoe.ExpertDomains(9, "2")),
        ("domain is -1", lambda: fmoe.ExpertDomains(9, 2).tokens(-1)),
        ("domain is a whole number", lambda: fmoe.ExpertDomains(9, 2).add(np.ones((2, 1, 9)), np.ones((2, 1, 9)), 0.5)),
        ("x is a single number, and rows", lambda: EXPERTS(np.float32(3))),
        ("pass narrow=True to allow it", lambda: fmoe.from_arrays({n: a.astype(float) for n, a in EXPERTS.arrays().items()})),
        ("None keeps every score", lambda: fmoe.evaluate(fmoe.top_k(x, 13))),
        ("active is a whole number, and not 1.5", lambda: fmoe.load(FILE, active=1.5)),
        ('active is -1, and must be at least 1: metadata={"K": "-1"} keeps all', lambda: fmoe.load(FILE, active=-1)),
        ('active is -1, and must be at least 1: metadata={"K": "-1"} keeps all', lambda: fmoe.from_arrays({"a": x}, active=np.int64(-1))),
        (f"active is {2**70}, and must be at most {2**63 - 1}", lambda: fmoe.load(FILE, active=2**70)),
        ("call layer.with_active", lambda: fmoe.load(FILE, active=8)),
        ("narrow is True or False, and not 'yes'", lambda: fmoe.load(FILE, narrow="yes")),
        ('metadata is a mapping from texts to texts, such as {"K": "32"}, and not [\'K\']', lambda: fmoe.load(FILE, metadata=["K"])),
        ('metadata["K"] is a text, and not 32', lambda: fmoe.load(FILE, metadata={"K": 32})),
        ("a key of metadata is a text, and not 3", lambda: fmoe.load(FILE, metadata={3: "K"})),
        ("extra is a list, to which names of tensors are added, and not True", lambda: fmoe.load(FILE, extra=True)),
        ("prefix is a text, and not None", lambda: fmoe.load(FILE, None)),
        ("file is the name of a file, as text or pathlib.Path, and not 3", lambda: fmoe.load(3)),
        ("path is the name of a file, as text or pathlib.Path, and not of type dict", lambda: fmoe.read({})),
        ("path is the name of a file, as text or pathlib.Path, and not None", lambda: fmoe.write(None, {"x": x})),
        ("file is the name of a file, as text or pathlib.Path, and not of type Layer", lambda: EXPERTS.save(EXPERTS)),
        ("prefix is a text, and not 3", lambda: EXPERTS.save("/dev/null", 3)),
        ("whose names are UTF-8: rename it", lambda: fmoe.load(b"\xff.safetensors")),
        ("no name of a file has a null character", lambda: fmoe.load("layer\0.safetensors")),
        ("layer is a whole number, and not 1.5", lambda: fmoe.load_mixture(MIXTURE, 1.5)),
        ("layer is -1, and must be at least 0", lambda: fmoe.load_mixture(MIXTURE, -1)),
        ("model is the name of a file", lambda: fmoe.load_mixture(None, 0)),
        ("type is a text, and not 8", lambda: fmoe.load_mixture(MIXTURE, 0, type=8)),
        ("there is no type bf16: float32, bfloat16, float16, q8 and q8c are types", lambda: fmoe.load_mixture(MIXTURE, 0, type="bf16")),
        ("active is -1, and must be at least 1", lambda: fmoe.load_mixture(MIXTURE, 0, active=-1)),
        ("experts, and K = 99 is asked for", lambda: fmoe.load_mixture(MIXTURE, 0, active=99)),
        ("prefix is a text, and not 0", lambda: fmoe.load_mixture(MIXTURE, 0, prefix=0)),
        ("narrow is True or False", lambda: fmoe.load_mixture(MIXTURE, 0, narrow=1)),
        ("extra is a list, to which names of tensors are added, and not 'a'", lambda: fmoe.load_mixture(MIXTURE, 0, extra="a")),
        ("the mapping holds no tensors", lambda: fmoe.from_arrays({})),
        ('the mapping holds no layer that takes x alone; it has "a"', lambda: fmoe.from_arrays({"a": x})),
        ("experts is a list, and not 3", lambda: EXPERTS.ablated(3)),
        ("an expert is a pair (i, j), and not (1, 2, 3)", lambda: EXPERTS.ablated([(1, 2, 3)])),
        ("mean is a list, and not 3", lambda: EXPERTS.rewritten(1, 3, 1)),
        ("routing is a list, and not 3", lambda: EXPERTS(ROWS, routing=3)),
        ("batches are a list or another iterable of arrays, and not 3", lambda: EXPERTS.statistics(3)),
        ("into is an fmoe.ExpertStatistics, and not 3", lambda: EXPERTS.statistics([ROWS], into=3)),
        ("members is a list, and not 3", lambda: fmoe.ExpertStatistics(12).add(x, 3)),
        ("experts is a whole number, and not None", lambda: fmoe.ExpertStatistics()),
        ("domains is a whole number, and not None", lambda: fmoe.ExpertDomains(9)),
        ("domain is a whole number, and not '0'", lambda: fmoe.ExpertDomains(9, 2).experts_of("0")),
        ("ratio is a number, and not '2'", lambda: fmoe.ExpertDomains(9, 2).experts_of(0, "2")),
        ("expert is a list, and not 3", lambda: fmoe.ExpertDomains(9, 2).mean_probability(0, 3)),
        ("expert is a pair (i, j), and not [1]", lambda: fmoe.ExpertDomains(9, 2).mean_probability(0, [1])),
        ("parts is a list, and not 3", lambda: fmoe.concat(3, 0)),
        ("shape is a list, and not 3", lambda: fmoe.sized(x, 3)),
        ("k is a whole number, and not of type ndarray", lambda: fmoe.top_k(3, x)),
        ("operand 0 of \"tib,io->to\" has 2 axes, and 'tib' are 3", lambda: fmoe.einsum("tib,io->to", x, w)),
        ("this is a NoneType, and an array", lambda: fmoe.Expression()),
        ('expressions have no @: fmoe.einsum("ti,io->to", x, w) is x @ w', lambda: fmoe.input() @ w),
        ('expressions have no @: fmoe.einsum("ti,io->to", x, w) is x @ w', lambda: w @ fmoe.input()),
        ("i is 1, and the executable has 1 input, counted from 0", lambda: forward.input_shape(1)),
        ("i is 7, and the executable has 1 result, counted from 0", lambda: forward.output_shape(7)),
        ("the executable takes 1 input, and not 2", lambda: forward(x, x)),
        ("the output is of float32 and the layer computes in float64", lambda: EXPERTS(ROWS.astype(float), out=np.empty((1, 384), np.float32))),
        ("the output is [2, 384] and [1, 384] is expected", lambda: EXPERTS(ROWS.astype(float), out=np.empty((2, 384)))),
        ("this is a str, and an array", lambda: EXPERTS(ROWS.astype(float), out="y")),
        ("the array to write to is read-only", lambda: EXPERTS(ROWS.astype(float), out=np.broadcast_to(0.0, (1, 384)))),
        ("fmoe.load, fmoe.load_mixture, fmoe.from_arrays and fmoe.from_torch make layers", lambda: fmoe.Layer(3)),
        ("fmoe.compile(y, tokens) and layer.compile(tokens) make executables", lambda: fmoe.Executable(3, True)),
        ('load a mixture with type="bfloat16", or pass arrays of bfloat16, or leave', lambda: EXPERTS.compile(4, bf16_products=True)),
        ('call layer.quantize(), or load a mixture with type="q8", or leave', lambda: EXPERTS.explain(4, int8_products=True)),
        ('load a mixture with type="bfloat16", or pass arrays of bfloat16, or leave', lambda: fmoe.evaluate(fmoe.einsum("ti,io->to", x, w), bf16_products=True)),
    ],
)
def test_mistakes_have_sentences(sentence, provoke):
    with pytest.raises((TypeError, ValueError, OSError), match=re.escape(sentence)) as raised:
        provoke()
    told = str(raised.value)
    assert not re.search("incompatible function|fmoe::|nanobind|/tmp|\"layer.safetensors\"", told)


def test_whole_numbers_of_numpy_are_taken():
    y = fmoe.evaluate(fmoe.top_k(x, np.int64(3)))
    assert (y == fmoe.evaluate(fmoe.top_k(x, 3))).all()
    assert (EXPERTS.expert(np.uint8(3)) == EXPERTS.expert(3)).all()
    members = np.array([True, False] * 3 + [True])
    statistics = fmoe.ExpertStatistics(12)
    statistics.add(x, members=members)
    assert statistics.tokens == 4


def test_errors_belong_to_the_package():
    assert {e.__module__ for e in (fmoe.ShapeError, fmoe.DomainError, fmoe.FileError)} == {"fmoe"}
    with pytest.raises(fmoe.DomainError) as raised:
        fmoe.evaluate(fmoe.top_k(x, 13))
    assert type(raised.value) is fmoe.DomainError


def test_costs_of_plain_arrays_are_those_of_parameters():
    e, g, c, d = (rng.normal(size=s).astype(np.float32) for s in [(12, 16), (12, 40), (40, 5), (16, 5)])

    def mixture(own):
        i = fmoe.input()
        a = fmoe.top_k(fmoe.relu(fmoe.einsum("ti,in->tn", i, own(g))), 4)
        return fmoe.einsum("tn,no,th,ho->to", a, own(c), fmoe.gelu(fmoe.einsum("ti,ih->th", i, own(e))), own(d))

    plain, own = fmoe.cost(mixture(lambda a: a), 1), fmoe.cost(mixture(fmoe.parameter), 1)
    assert plain.naive_multiply_adds == 40 * 16 * 5 + 12 * 40 + 12 * 16 == own.naive_multiply_adds
    assert plain.naive.parameters == own.naive.parameters > plain.factorized.parameters
    assert fmoe.explain(mixture(lambda a: a), 8, naive=True).text == fmoe.explain(mixture(fmoe.parameter), 8, naive=True).text


def test_nan_stays_beyond_a_threshold():
    made = fmoe.evaluate(fmoe.threshold(np.array([np.nan, 0, 0.5, 1], np.float32), 0.5))
    assert np.isnan(made[0]) and (made[1:] == [0, 0.5, 1]).all()

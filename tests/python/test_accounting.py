# SPDX-License-Identifier: MIT
"""Files lose no tensor and no setting without a word: what a layer does not read is refused, and so is what nothing says."""
import json
import pathlib
import pickle

import numpy as np
import pytest

import fmoe

GOLDEN = sorted(pathlib.Path("tests/golden").glob("*/*.weights.safetensors"))
MONET = [file for file in GOLDEN if file.parent.name == "monet"]


def needed(file, arrays, said):
    """The settings that a layer of this golden file cannot do without. Those of muMoE are in the file."""
    family, k = file.parent.name, {"K": "2"}
    if family == "aoe":
        return {**k, "weighting": "released", "activation": "silu"}
    if family == "moe":
        return {} if "G" in arrays else k
    if family == "mxd":
        return {**k, "activation": "gelu"} if "gate" in arrays or "b_dec_out" in arrays or "b_dec" not in arrays else k
    if family == "peer":
        return {**k, "weighting": "softmax"}
    if family == "monet":
        k = {**k, "activation": "squared_relu"}
        return k if "router.norm1.running_mean" in arrays else {**k, "heads": "2"}
    return {"activation": said["activation"]} | ({} if "bn.0.running_mean" in arrays else {"norm": said["norm"]})


def given(file):
    """The arrays of a golden file, and what a file of such a layer says."""
    stored = fmoe.read(file)
    arrays, said = dict(stored), stored.metadata
    own = {"norm": said["norm"]} if file.parent.name == "mumoe" else {}
    return arrays, {**own, **needed(file, arrays, said)}


def case_of(file):
    return file.stem.split(".")[0]


@pytest.mark.parametrize("file", GOLDEN, ids=case_of)
def test_a_planted_tensor_is_refused_or_listed(file, tmp_path):
    arrays, metadata = given(file)
    whole = fmoe.from_arrays(arrays, metadata=metadata)
    planted = "moe.planted.weight" if file in MONET else "planted.weight"
    arrays[planted] = np.ones(3, np.float32)
    with pytest.raises(fmoe.FileError, match=f'tensor "{planted}" is not read'):
        fmoe.from_arrays(arrays, metadata=metadata)
    extra = ["another"]
    left = fmoe.from_arrays(arrays, metadata=metadata, extra=extra)
    assert extra == ["another", planted] and left.settings == whole.settings
    whole.save(tmp_path / "layer.safetensors")
    assert fmoe.load(tmp_path / "layer.safetensors").settings == whole.settings  # which says all that it needs


@pytest.mark.parametrize("type", ["bfloat16", "float16", "q8", "q8c"])
@pytest.mark.parametrize("file", GOLDEN, ids=case_of)
def test_every_kind_of_layer_has_narrow_types(file, type):
    arrays, metadata = given(file)
    whole = fmoe.from_arrays(arrays, metadata=metadata)
    layer = fmoe.from_arrays(arrays, metadata=metadata, type=type, narrow=True)
    assert layer.settings == whole.settings
    pickled = pickle.loads(pickle.dumps(layer))
    assert pickled.settings == layer.settings and pickled.type == layer.type == type
    assert all((a == pickled.arrays()[name]).all() for name, a in layer.arrays().items())
    if type.startswith("q8"):
        wide, kept = whole.quantize(type).arrays(), layer.arrays()
        assert kept.keys() == wide.keys() and all((kept[name] == wide[name]).all() for name in kept)
        return
    wide, kept = whole.arrays(), layer.arrays()
    assert kept.keys() == wide.keys()
    assert any(a.dtype != np.float32 or (a != wide[name]).any() for name, a in kept.items())
    for name, a in kept.items():
        assert np.abs(a.astype(np.float32) - wide[name]).max() <= 0.01 * np.abs(wide[name]).max()


@pytest.mark.parametrize("file", [f for f in GOLDEN if f not in MONET], ids=case_of)
def test_behind_a_prefix_a_planted_tensor_is_refused_and_other_layers_are_left(file, tmp_path):
    arrays, metadata = given(file)
    model = {"layers.3." + name: a for name, a in arrays.items()} | {"layers.4.planted.weight": np.ones(3, np.float32)}
    fmoe.write(tmp_path / "model.safetensors", model, metadata)
    fmoe.load(tmp_path, "layers.3.")
    model["layers.3.planted.weight"] = np.ones(3, np.float32)
    fmoe.write(tmp_path / "model.safetensors", model, metadata)
    with pytest.raises(fmoe.FileError, match='tensor "layers.3.planted.weight" is not read'):
        fmoe.load(tmp_path, "layers.3.")


@pytest.mark.parametrize("file", MONET, ids=case_of)
@pytest.mark.parametrize("prefix", ["", "model.layers.4."])
def test_attention_and_norms_beside_a_monet_layer_are_left(file, prefix, tmp_path):
    arrays, metadata = given(file)
    for name in ("self_attn.q_proj.weight", "input_layernorm.weight", "post_attention_layernorm.weight"):
        arrays[name] = np.ones(3, np.float32)
    model = {prefix + name: a for name, a in arrays.items()}
    fmoe.write(tmp_path / "model.safetensors", model, metadata)
    layer = fmoe.load(tmp_path, prefix)
    for planted in ("moe.planted", "router.planted.weight"):
        fmoe.write(tmp_path / "model.safetensors", {**model, prefix + planted: np.ones(3, np.float32)}, metadata)
        with pytest.raises(fmoe.FileError, match=f'tensor "{prefix}{planted}" is not read'):
            fmoe.load(tmp_path, prefix)
        extra = []
        assert fmoe.load(tmp_path, prefix, extra=extra).settings == layer.settings and extra == [prefix + planted]


def test_a_tensor_in_no_module_of_a_monet_layer_is_refused():
    arrays, metadata = given(MONET[0])
    with pytest.raises(fmoe.FileError, match='tensor "planted" is not read'):
        fmoe.from_arrays({**arrays, "planted": np.ones(3, np.float32)}, metadata=metadata)


@pytest.mark.parametrize("file", GOLDEN, ids=case_of)
def test_a_setting_that_nothing_says_is_refused(file, tmp_path):
    arrays, metadata = given(file)
    saved = tmp_path / "layer.safetensors"
    for key, text in needed(file, arrays, metadata).items():
        less = {k: v for k, v in metadata.items() if k != key}
        with pytest.raises(fmoe.FileError, match=f'the mapping does not say "{key}", which the layer needs: pass') as raised:
            fmoe.from_arrays(arrays, metadata=less)
        assert "`active`" in str(raised.value) if key == "K" else "`metadata`" in str(raised.value)
        fmoe.write(saved, arrays, less)
        with pytest.raises(fmoe.FileError, match=f'layer.safetensors": does not say "{key}"'):
            fmoe.load(saved)
        assert fmoe.load(saved, metadata={key: text}).settings == fmoe.from_arrays(arrays, metadata=metadata).settings
        fmoe.write(saved, arrays, metadata)
        other = {"K": "7", "heads": "7", "activation": "relu", "weighting": "relu", "norm": "batch"}[key]
        with pytest.raises(fmoe.FileError, match=f'has {key} = "{text}" in its metadata, and "{other}" is asked for'):
            fmoe.load(saved, metadata={key: other})


@pytest.mark.parametrize("strategy, key, text", [("topp", "P", "0.5"), ("expert_choice", "capacity_factor", "2")])
def test_each_way_to_choose_experts_needs_its_own_setting(strategy, key, text):
    for name in ("aoe/aoe_ec", "moe/moe_ec"):
        arrays = dict(fmoe.read(f"tests/golden/{name}.weights.safetensors"))
        told = {"strategy": strategy, "weighting": "paper", "activation": "silu"}
        with pytest.raises(fmoe.FileError, match=f'does not say "{key}"'):
            fmoe.from_arrays(arrays, metadata=told)
        made = fmoe.from_arrays(arrays, metadata={**told, key: text})
        assert float(made.settings[key]) == float(text)


def test_active_is_k_that_nothing_else_says():
    arrays, metadata = given(pathlib.Path("tests/golden/mxd/mxd_mlp_gelu_k4.weights.safetensors"))
    del metadata["K"]
    assert fmoe.from_arrays(arrays, active=3, metadata=metadata).settings["K"] == "3"
    assert fmoe.from_arrays(arrays, metadata={**metadata, "K": "-1"}).settings["K"] == "-1"
    with pytest.raises(fmoe.DomainError, match='active is -1, and must be at least 1: metadata={"K": "-1"} keeps all'):
        fmoe.from_arrays(arrays, active=-1, metadata=metadata)


def saelens(folder, config, **more):
    """A folder as SAELens writes it, its arrays, and rows."""
    random = np.random.default_rng(1)
    d, h = 6, 20
    arrays = {"W_enc": random.standard_normal((d, h)), "b_enc": random.standard_normal(h), "W_dec": random.standard_normal((h, d)),
              "b_dec": random.standard_normal(d), **{name: random.standard_normal(shape) for name, shape in more.items()}}
    fmoe.write(folder / "sae_weights.safetensors", {n: a.astype(np.float32) for n, a in arrays.items()})
    (folder / "cfg.json").write_text(json.dumps({"d_in": d, "d_sae": h, "dtype": "float32", "normalize_activations": "none", **config}))
    x = random.standard_normal((5, d))
    return arrays, x, folder / "sae_weights.safetensors"


def off(layer, x, wanted):
    return np.abs(layer(x.astype(np.float32)) - wanted).max() / np.abs(wanted).max()


DICTIONARIES = sorted(p for p in pathlib.Path("tests/dictionaries").iterdir() if p.is_dir() and not p.name.startswith("learned"))
LEARNED = sorted(p for p in pathlib.Path("tests/dictionaries").glob("learned*") if p.is_dir())


@pytest.mark.parametrize("folder", DICTIONARIES, ids=lambda p: p.name)
def test_a_dictionary_of_a_folder_has_its_numbers(folder, tmp_path):
    io, layer = fmoe.read(folder.with_name(folder.name + ".io.safetensors")), fmoe.load(folder)
    assert off(layer, io["x"], io["y"]) < 2e-6
    z = layer.coefficients(io["x"])
    assert np.abs(z - io["z"]).max() < 2e-6 * np.abs(io["z"]).max()
    layer.save(tmp_path / "own.safetensors")
    assert (fmoe.load(tmp_path / "own.safetensors")(io["x"]) == layer(io["x"])).all()
    if layer.settings["kind"] == "sae" and not folder.name.endswith(("_norm", "gated")):  # the edit of a unit, and its statistics
        n = int(np.abs(z[0]).argmax())
        assert (layer.ablated([n])(io["x"])[0] != layer(io["x"])[0]).any()
        assert np.abs(layer.steered(n, 2)(io["x"]) - layer(io["x"]) - 2 * layer.expert(n)).max() < 1e-5
    if folder.name in ("batchtopk", "matryoshka", "sparsify_skip_transcoder", "sparsify_groupmax", "traced_jumprelu_skip"):
        with pytest.raises(fmoe.FileError, match="no architecture of SAELens has that"):
            layer.save(tmp_path / "again", form="saelens")
        return
    layer.save(tmp_path / "again", form="saelens")
    assert (fmoe.load(tmp_path / "again")(io["x"]) == layer(io["x"])).all()
    if not (folder / "sae_weights.safetensors").exists():  # a dictionary of another library
        return
    said, wanted = (json.loads((f / "cfg.json").read_text()) for f in (tmp_path / "again", folder))
    if folder.name == "standard_unsubtracted":  # a transcoder, which computes the same
        assert said.pop("architecture") == "transcoder" and said.pop("d_out") == wanted["d_in"]
    assert {key: wanted[key] for key in said if key != "metadata"} == {key: value for key, value in said.items() if key != "metadata"}


@pytest.mark.parametrize("folder", LEARNED, ids=lambda p: p.name)
def test_a_dictionary_of_dictionary_learning_has_its_numbers(folder):
    state, io = fmoe.read(folder / "ae.safetensors"), fmoe.read(folder.with_name(folder.name + ".io.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    layer = fmoe.from_arrays(state, config=config)
    assert off(layer, io["x"], io["y"]) < 2e-6
    if "k" in config["trainer"]:
        with pytest.raises(fmoe.FileError, match='does not say "dict_class"'):
            fmoe.load(folder)
        assert off(fmoe.load(folder, metadata={"dict_class": config["trainer"]["dict_class"]}), io["x"], io["y"]) < 2e-6


def test_a_config_is_that_of_the_folder(tmp_path):
    for name in ("jumprelu", "sparsify_skip_transcoder"):
        folder = pathlib.Path("tests/dictionaries") / name
        state, config = fmoe.read(next(folder.glob("*.safetensors"))), json.loads((folder / "cfg.json").read_text())
        io = fmoe.read(folder.with_name(folder.name + ".io.safetensors"))
        assert off(fmoe.from_arrays(state, config=config), io["x"], io["y"]) < 2e-6
    with pytest.raises(TypeError, match="config is a mapping"):
        fmoe.from_arrays(state, config="cfg.json")
    io = fmoe.read("tests/dictionaries/traced_square.io.safetensors")
    state = fmoe.read("tests/dictionaries/traced_square/layer_0.safetensors")
    assert off(fmoe.from_arrays(state, config={"model_kind": "transcoder_set"}), io["x"], io["y"]) < 2e-6


CROSS_LAYER = {"relu": "W_enc_{}", "jump_relu": "W_enc_{}", "gemma_scope_2": "layer_{}"}  # one file of each layer


@pytest.mark.parametrize("name", CROSS_LAYER)
def test_a_cross_layer_transcoder_has_its_numbers(name, tmp_path):
    folder = pathlib.Path("tests/cross_layer") / name
    io = fmoe.read(folder.with_name(name + ".io.safetensors"))
    layers = [fmoe.load(folder / (CROSS_LAYER[name].format(n) + ".safetensors")) for n in range(3)]
    y = np.zeros(io["y"].shape)
    for n, (layer, x, z) in enumerate(zip(layers, io["x"], io["z"])):
        y[n:] += layer(x).swapaxes(0, 1)  # [token, layer, output]
        assert np.abs(layer.coefficients(x) - z).max() < 2e-6 * np.abs(z).max()
        assert layer.settings["kind"] == "cross_layer_transcoder"
    assert np.abs(y - io["y"]).max() < 2e-6 * np.abs(y).max()
    layer, x = layers[1], io["x"][1]
    assert layer.expert(3).shape == (2, 12)
    assert layer(x.reshape(1, 17, 12)).shape == (1, 17, 2, 12)
    n = int(layer.coefficients(x)[0].argmax())
    part = (layer(x) - layer.ablated([n])(x))[0]
    assert np.abs(part - layer.coefficients(x)[0, n] * layer.expert(n)).max() < 1e-5
    assert np.abs(layer.steered(n, 2)(x) - layer(x) - 2 * layer.expert(n)).max() < 1e-5
    layer.save(tmp_path / "own.safetensors")
    assert (fmoe.load(tmp_path / "own.safetensors")(x) == layer(x)).all()


def test_gemma_scope_is_told_that_no_bias_is_subtracted(tmp_path):
    random = np.random.default_rng(1)
    a = {"W_enc": (6, 20), "b_enc": (20,), "W_dec": (20, 6), "b_dec": (6,), "threshold": (20,)}
    np.savez(tmp_path / "params.npz", **{name: random.standard_normal(shape).astype(np.float32) for name, shape in a.items()})
    params, x = dict(np.load(tmp_path / "params.npz")), random.standard_normal((5, 6))
    with pytest.raises(fmoe.FileError, match='does not say "apply_b_dec_to_input", which the layer needs: pass it in `metadata`'):
        fmoe.from_arrays(params)
    p = x @ params["W_enc"] + params["b_enc"]
    wanted = (np.maximum(p, 0) * (p > params["threshold"])) @ params["W_dec"] + params["b_dec"]
    assert off(fmoe.from_arrays(params, metadata={"apply_b_dec_to_input": "false"}), x, wanted) < 2e-6


def test_a_form_that_is_none_is_refused(tmp_path):
    with pytest.raises(fmoe.DomainError, match='"fmoe" or "saelens" is expected'):
        fmoe.load(DICTIONARIES[0]).save(tmp_path / "x", form="sparsify")


@pytest.mark.parametrize("config, message", [
    ({"architecture": "temporal"}, "which fmoe does not compute; it computes standard"),
    ({"architecture": "jumprelu"}, 'tensor "threshold": is missing|tensor "threshold" is missing'),
    ({"architecture": "standard", "normalize_activations": "expected_average_only_in"}, "fold it into the weights"),
    ({"architecture": "transcoder", "apply_b_dec_to_input": True}, "subtracts no bias"),
    ({"architecture": "topk"}, 'does not say "K"'),
])
def test_what_the_cfg_says_and_fmoe_does_not_compute_is_refused(tmp_path, config, message):
    *_, file = saelens(tmp_path, config)
    with pytest.raises(fmoe.FileError, match=message):
        fmoe.load(file)


def test_an_autoencoder_without_a_cfg_needs_k(tmp_path):
    *_, file = saelens(tmp_path, {})
    (tmp_path / "cfg.json").unlink()
    with pytest.raises(fmoe.FileError, match='does not say "K"'):
        fmoe.load(file)
    assert fmoe.load(file, active=3).settings["K"] == "3"


MIXTURES = pathlib.Path("tests/mixtures")


@pytest.mark.parametrize("case, model", [
    ("shared_expert_beside_joined_experts", ""), ("biases_of_joined_experts", "model.gguf"), ("index_of_an_earlier_save", ""),
    ("infinity_in_config", ""), ("number_for_each_layer", "model.gguf"), ("architecture_in_gguf", "glm4moe.gguf"),
    ("architecture_in_gguf", "deepseek2.gguf"),
])
def test_a_mixture_has_its_right_numbers(case, model):
    io = fmoe.read(MIXTURES / case / "io.safetensors")
    assert off(fmoe.load_mixture(MIXTURES / case / model, 0), io["x"], io["y"]) < 1e-5


def test_names_behind_a_wrapper_are_told():
    folder = MIXTURES / "names_behind_a_wrapper"
    with pytest.raises(fmoe.FileError, match=r'layer 0 has one behind "_orig_mod.model.layers."'):
        fmoe.load_mixture(folder, 0)
    io = fmoe.read(folder / "io.safetensors")
    assert off(fmoe.load_mixture(folder, 0, prefix="_orig_mod.model.layers."), io["x"], io["y"]) < 1e-5


def test_a_pointer_of_git_lfs_is_told():
    with pytest.raises(fmoe.FileError, match="git lfs pull"):
        fmoe.load_mixture(MIXTURES / "pointer_instead_of_a_file", 0)


def changed(folder, to, config=(), **more):
    """A copy of the folder of a model, with other settings and with more tensors of its mixture."""
    arrays = dict(fmoe.read(folder))
    arrays.update({"model.layers.0." + name.replace("__", "."): np.zeros(shape, np.float32) for name, shape in more.items()})
    fmoe.write(to / "model.safetensors", arrays)
    (to / "config.json").write_text(json.dumps({**json.loads((folder / "config.json").read_text()), **dict(config)}))
    return to


def test_what_a_mixture_does_not_read_is_refused(tmp_path):
    folder = MIXTURES / "shared_expert_beside_joined_experts"
    model = changed(folder, tmp_path, mlp__planted=(3,), self_attn__q_proj__weight=(3, 3), input_layernorm__weight=(3,))
    with pytest.raises(fmoe.FileError, match='tensor "model.layers.0.mlp.planted" is not read'):
        fmoe.load_mixture(model, 0)
    extra = []
    fmoe.load_mixture(model, 0, extra=extra)
    assert extra == ["model.layers.0.mlp.planted"]
    (tmp_path / "more").mkdir()
    model = changed(folder, tmp_path / "more", self_attn__q_proj__weight=(3, 3), input_layernorm__weight=(3,))
    fmoe.load_mixture(model, 0)


@pytest.mark.parametrize("setting, value, message", [("num_experts", 16, "is not the number of its router's"),
                                                     ("num_experts_per_tok", 99, "is more than the number of its experts")])
def test_settings_that_the_tensors_contradict_are_refused(tmp_path, setting, value, message):
    with pytest.raises(fmoe.FileError, match=message):
        fmoe.load_mixture(changed(MIXTURES / "shared_expert_beside_joined_experts", tmp_path, {setting: value}), 0)


def test_a_setting_that_the_layer_does_not_have_is_refused(tmp_path):
    arrays, metadata = given(pathlib.Path("tests/golden/mxd/mxd_mlp_gelu_k4.weights.safetensors"))
    fmoe.write(tmp_path / "layer.safetensors", arrays, metadata)
    with pytest.raises(fmoe.FileError, match='is loaded with norms = "8" into a layer that has no such setting'):
        fmoe.load(tmp_path / "layer.safetensors", metadata={"norms": "8"})

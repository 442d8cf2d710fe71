// SPDX-License-Identifier: MIT
// Published dictionaries: what the names of their tensors and the cfg.json beside them make.
#include <algorithm>
#include <filesystem>

#include <fmoe/evaluate.hpp>
#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/layers_in.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

#include "../support/agree.hpp"
#include "../support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using io::errc;

constexpr extent inputs = 6, units = 20;
using rows = tensor<float, 2>;

// The tensors of SAELens, whose decoder has rows of the norm 1.
io::arrays_by_name saelens_arrays() {
  rows decoder = random<rows>({units, inputs}, 3);
  for (extent h = 0; h < units; ++h) {
    float squares = 0;
    for (extent o = 0; o < inputs; ++o) squares += decoder(h, o) * decoder(h, o);
    for (extent o = 0; o < inputs; ++o) decoder(h, o) /= std::sqrt(squares);
  }
  return {{"W_enc", random<rows>({inputs, units}, 1)},
          {"b_enc", random<tensor<float, 1>>({units}, 2)},
          {"W_dec", decoder},
          {"b_dec", random<tensor<float, 1>>({inputs}, 4)}};
}

// z and y by the formulas of SAELens 6, in double.
struct formula {
  bool subtracts = true;
  extent active = units;  // after ReLU
  bool absolute = false;  // without ReLU
  bool rescales = false;
  std::string scaling = "none";
  bool scales_back = true;

  struct results {
    std::vector<double> z, y;
  };

  results of(const io::arrays_by_name& arrays, const rows& x) const {
    const auto encoder = arrays.at("W_enc").get<double, 2>(),
               decoder = arrays.at("W_dec").get<double, 2>();
    const auto vector = [&](const char* name, extent length) {
      return arrays.contains(name) ? arrays.at(name).get<double, 1>() : tensor<double, 1>({length});
    };
    const auto b_enc = vector("b_enc", units), b_dec = vector("b_dec", inputs),
               b_gate = vector("b_gate", units), r_mag = vector("r_mag", units),
               b_mag = vector("b_mag", units);
    results r;
    for (extent t = 0; t < x.shape()[0]; ++t) {
      std::vector<double> row(inputs);
      double mean = 0, squares = 0;
      for (extent i = 0; i < inputs; ++i) mean += x(t, i) / double{inputs};
      if (scaling != "layer_norm") mean = 0;
      for (extent i = 0; i < inputs; ++i) squares += (x(t, i) - mean) * (x(t, i) - mean);
      const double scale =
          scaling == "layer_norm" ? std::sqrt(squares / (inputs - 1)) : std::sqrt(squares / inputs);
      for (extent i = 0; i < inputs; ++i) {
        row[i] = scaling == "none"         ? x(t, i)
                 : scaling == "layer_norm" ? (x(t, i) - mean) / (scale + 1e-5)
                                           : x(t, i) / scale;
        row[i] -= subtracts ? b_dec(i) : 0;
      }
      std::vector<double> hidden(units), rank(units);
      for (extent h = 0; h < units; ++h) {
        double p = 0, norm = 0;
        for (extent i = 0; i < inputs; ++i) p += row[i] * encoder(i, h);
        for (extent o = 0; o < inputs; ++o) norm += decoder(h, o) * decoder(h, o);
        double m = p * std::exp(r_mag(h)) + b_mag(h) + b_enc(h);
        if (rescales) m *= std::sqrt(norm);
        hidden[h] = absolute ? m : std::max(m, 0.0);
        if (arrays.contains("threshold") && !(m > vector("threshold", units)(h))) hidden[h] = 0;
        if (arrays.contains("topk_threshold") &&
            !(m > arrays.at("topk_threshold").get<double, 0>()()))
          hidden[h] = 0;
        if (arrays.contains("b_gate") && !(p + b_gate(h) > 0)) hidden[h] = 0;
        rank[h] = std::abs(hidden[h]);
      }
      std::vector<double> sorted = rank;
      std::ranges::sort(sorted, std::greater());
      for (extent h = 0; h < units; ++h) {
        if (rank[h] < sorted[active - 1]) hidden[h] = 0;
        r.z.push_back(hidden[h]);
      }
      for (extent o = 0; o < inputs; ++o) {
        double sum = b_dec(o);
        for (extent h = 0; h < units; ++h) {
          double norm = 0;
          for (extent i = 0; i < inputs; ++i) norm += decoder(h, i) * decoder(h, i);
          sum += hidden[h] * decoder(h, o) / (rescales ? std::sqrt(norm) : 1);
        }
        if (scaling != "none" && scales_back) sum = sum * scale + mean;
        if (arrays.contains("W_skip"))
          for (extent i = 0; i < inputs; ++i)
            sum += x(t, i) * arrays.at("W_skip").get<double, 2>()(o, i);
        r.y.push_back(sum);
      }
    }
    return r;
  }
};

// The file of the tensors in the folder, and cfg.json beside it.
std::filesystem::path saved(const temporary_folder& folder, const io::arrays_by_name& arrays,
                            const std::string& config, const io::strings_by_name& metadata = {}) {
  io::safetensors::write(folder / "sae_weights.safetensors", arrays, metadata);
  put(folder / "cfg.json", config);
  return folder / "sae_weights.safetensors";
}

// An architecture, its tensors beside those of `standard`, and its formula.
struct architecture {
  std::string config;
  io::arrays_by_name more;
  formula wanted;
  bool has_b_enc = true;
};

tensor<float, 1> numbers(unsigned seed, float scale = 1) {
  auto t = random<tensor<float, 1>>({units}, seed);
  for (float& v : t) v *= scale;
  return t;
}

std::vector<architecture> architectures() {
  tensor<float, 1> threshold = numbers(11);
  for (float& v : threshold) v = std::abs(v);
  const io::arrays_by_name skip{{"W_skip", random<rows>({inputs, inputs}, 5)}},
      thresholds{{"threshold", threshold}},
      gates{{"b_gate", numbers(12)}, {"r_mag", numbers(13, 0.3f)}, {"b_mag", numbers(14)}};
  io::arrays_by_name both = skip;
  both.insert(thresholds.begin(), thresholds.end());
  tensor<double, 0> one(std::array<extent, 0>{});
  one() = 0.75;
  return {
      {R"("architecture": "standard")", {}, {}},
      {R"("activation_fn_str": "relu")", {}, {}},  // version 3 names no architecture
      {R"("architecture": "standard", "apply_b_dec_to_input": false)", {}, {.subtracts = false}},
      {R"("architecture": "standard", "activation_fn_str": "topk", "activation_fn_kwargs": {"k": 3})",
       {},
       {.active = 3}},
      {R"("architecture": "topk", "k": 3)", {}, {.active = 3}},
      {R"("architecture": "topk", "k": 3, "rescale_acts_by_decoder_norm": true)",
       {},
       {.active = 3, .rescales = true}},
      {R"("architecture": "abstopk", "k": 4)", {}, {.active = 4, .absolute = true}},
      {R"("architecture": "abstopk", "k": 4, "rescale_acts_by_decoder_norm": true)",
       {},
       {.active = 4, .absolute = true, .rescales = true}},
      {R"("architecture": "jumprelu")", thresholds, {}},
      {R"("architecture": "gated")", gates, {}, false},
      {R"("architecture": "batchtopk", "k": 2.5, "rescale_acts_by_decoder_norm": true)",
       {{"topk_threshold", one}},
       {.rescales = true}},
      {R"("architecture": "matryoshka_batchtopk", "k": 2.5, "rescale_acts_by_decoder_norm": false)",
       {{"topk_threshold", one}},
       {}},
      {R"("architecture": "standard", "normalize_activations": "constant_norm_rescale")",
       {},
       {.scaling = "constant_norm"}},
      {R"("architecture": "standard", "normalize_activations": "layer_norm")",
       {},
       {.scaling = "layer_norm"}},
      {R"("architecture": "jumprelu", "normalize_activations": "layer_norm", "apply_b_dec_to_input": false)",
       thresholds,
       {.subtracts = false, .scaling = "layer_norm"}},
      {R"("architecture": "transcoder")", {}, {.subtracts = false}},
      {R"("architecture": "transcoder", "normalize_activations": "layer_norm")",
       {},
       {.subtracts = false, .scaling = "layer_norm", .scales_back = false}},
      {R"("architecture": "skip_transcoder")", skip, {.subtracts = false}},
      {R"("architecture": "jumprelu_transcoder")", thresholds, {.subtracts = false}},
      {R"("architecture": "jumprelu_skip_transcoder")", both, {.subtracts = false}},
  };
}

// The tensors of an architecture, beside a decoder whose rows have other norms than 1.
io::arrays_by_name arrays_of(const architecture& a) {
  io::arrays_by_name arrays = saelens_arrays();
  arrays.insert_or_assign("W_dec", random<rows>({units, inputs}, 3));
  if (!a.has_b_enc) arrays.erase("b_enc");
  arrays.insert(a.more.begin(), a.more.end());
  return arrays;
}

TEST_CASE("each architecture of SAELens has its numbers", "[io][dictionary]") {
  const rows x = random<rows>({5, inputs}, 9);
  for (const architecture& a : architectures()) {
    INFO(a.config);
    const temporary_folder folder;
    const io::arrays_by_name arrays = arrays_of(a);
    saved(folder, arrays, "{" + a.config + "}");
    const auto layer = load<sparse_mlp<>>(folder / "sae_weights.safetensors");
    const auto wanted = a.wanted.of(arrays, x);
    const auto y = evaluate(layer(x)), z = evaluate(layer.coefficients(x));
    CHECK(relative_error(y.data(), wanted.y) < 2e-6);
    CHECK(relative_error(z.data(), wanted.z) < 2e-6);
    const auto again = evaluate(load<sparse_mlp<>>(io::checkpoint::open(folder.path()))(x));
    CHECK(std::ranges::equal(y, again));

    save(layer,
         folder / "own.safetensors");  // with all settings, which the cfg.json does not change
    CHECK(std::ranges::equal(y, evaluate(load<sparse_mlp<>>(folder / "own.safetensors")(x))));
  }
}

// What the caller says of a dictionary_learning: its config.json lies beside a pickle.
io::strings_by_name said_of(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "config.json")) return {};
  const std::string config = content(folder / "config.json");
  for (const char* name :
       {"AutoEncoderTopK", "MatryoshkaBatchTopKSAE", "BatchTopKSAE", "JumpReluAutoEncoder"})
    if (config.find(name) != std::string::npos) return {{"dict_class", name}};
  return {};
}

TEST_CASE("dictionaries have the outputs of their libraries", "[io][dictionary]") {
  extent count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/dictionaries")) {
    if (!entry.is_directory()) continue;
    INFO(entry.path().string());
    ++count;
    const bool in_double = entry.path().filename().string().find("sparsify") != 0;
    const auto want = io::safetensors::read(entry.path().string() + ".io.safetensors");
    const auto x = want.get<float, 2>("x");
    const auto check = [&](const auto& made, const char* name, double tolerance) {
      const auto expected = want.get<double, 2>(name);
      const auto found = evaluate(made);
      REQUIRE(found.shape() == expected.shape());
      CHECK(relative_error(found.data(), {expected.begin(), expected.end()}) < tolerance);
    };
    const auto from = io::checkpoint::open(entry.path());
    const load_options options{.metadata = said_of(entry.path())};
    const auto layer = load<sparse_mlp<>>(from, options);
    check(layer(x), "y", 2e-6);
    check(layer.coefficients(x), "z", 2e-6);
    const auto twice = load<sparse_mlp<double>>(from, options);
    check(twice(x), "y", in_double ? 1e-12 : 2e-6);
    const auto half =
        load<sparse_mlp<bf16>>(from, {.narrow = io::narrow, .metadata = options.metadata});
    CHECK(std::ranges::equal(half.threshold, layer.threshold));  // which are exact
    CHECK(std::ranges::equal(half.gate_bias, layer.gate_bias));
    check(half(x), "y", 0.2);
    const auto found = io::layers_in<sparse_mlp<>>(from);
    REQUIRE(found.size() == 1);
    CHECK(found[0].prefix.empty());
  }
  CHECK(count == 33);
}

TEST_CASE("a unit contributes its z times its row of the decoder", "[io][dictionary]") {
  const rows x = random<rows>({5, inputs}, 9);
  for (const architecture& a : architectures()) {
    INFO(a.config);
    const temporary_folder folder;
    const auto layer = load<sparse_mlp<>>(saved(folder, arrays_of(a), "{" + a.config + "}"));
    const auto z = evaluate(layer.coefficients(x)), with = evaluate(layer.contribution_norms(x));
    auto without = z;
    for (extent t = 0; t < 5; ++t) without(t, 7) = 0;
    const auto y = evaluate(layer.mixed(x, z)), less = evaluate(layer.mixed(x, without));
    for (extent t = 0; t < 5; ++t) {
      double squares = 0;
      for (extent o = 0; o < inputs; ++o)
        squares += std::pow(double{y(t, o)} - double{less(t, o)}, 2);
      CHECK(std::abs(std::sqrt(squares) - with(t, 7)) < 1e-5);
    }
    if (layer.scaling != row_scaling::none) continue;  // y is scaled by the row of x, too
    const auto row = evaluate(layer.expert(7));
    for (extent o = 0; o < inputs; ++o)
      CHECK(std::abs(y(0, o) - less(0, o) - z(0, 7) * row(o)) < 1e-5);
  }
}

TEST_CASE("a unit at its threshold is 0, and NaN stays NaN", "[io][dictionary]") {
  sparse_mlp<> layer;
  layer.encoder = rows({1, 3}, {1, 1, 1});
  layer.decoder = rows({3, 1}, {1, 10, 100});
  layer.active = all;
  layer.threshold = tensor<float, 1>({3}, {2, std::nextafter(2.f, 0.f), std::nextafter(2.f, 3.f)});
  const auto z_of = [&](float x) { return evaluate(layer.coefficients(rows({1, 1}, {x}))); };
  CHECK(std::ranges::equal(z_of(2), std::array{0.f, 2.f, 0.f}));
  CHECK(std::ranges::equal(z_of(3), std::array{3.f, 3.f, 3.f}));
  for (const float v : z_of(std::numeric_limits<float>::quiet_NaN())) CHECK(std::isnan(v));
  layer.gate_bias = tensor<float, 1>({3}, {-3, -2, 0});
  layer.threshold = {};
  CHECK(std::ranges::equal(z_of(3), std::array{0.f, 3.f, 3.f}));
  for (const float v : z_of(std::numeric_limits<float>::quiet_NaN())) CHECK(std::isnan(v));
}

// In sae-lens 6.54.12 such a row makes all outputs NaN, folded or not:
// findings/saelens_row_of_zeros.sh.
TEST_CASE("a dead unit, whose row of the decoder is zeros, adds nothing", "[io][dictionary]") {
  const rows x = random<rows>({5, inputs}, 9);
  for (const bool absolute : {false, true}) {
    sparse_mlp<> layer;
    layer.encoder = random<rows>({inputs, units}, 1);
    layer.decoder = random<rows>({units, inputs}, 3);
    for (extent o = 0; o < inputs; ++o) layer.decoder(3, o) = 0;
    layer.in_decoder_norms = true;
    layer.of_absolute_values = absolute;
    layer.active = 4;
    const auto z = evaluate(layer.coefficients(x));
    for (extent t = 0; t < 5; ++t) CHECK(z(t, 3) == 0);
    for (const float y : evaluate(layer(x))) CHECK(std::isfinite(y));
    for (const float v : evaluate(layer.expert(3))) CHECK(v == 0);
  }
}

TEST_CASE("a layer is saved as SAELens has it", "[io][dictionary]") {
  const rows x = random<rows>({5, inputs}, 9);
  for (const architecture& a : architectures()) {
    INFO(a.config);
    const temporary_folder folder;
    const auto layer = load<sparse_mlp<>>(saved(folder, arrays_of(a), "{" + a.config + "}"));
    const auto copy = folder / "copy";
    if (!layer.threshold.empty() && layer.in_decoder_norms) {  // SAELens folds the norms at first
      CHECK(caught([&] { save(layer, copy, {.form = file_form::saelens}); }).code ==
            errc::conflict);
      continue;
    }
    save(layer, copy, {.form = file_form::saelens});
    const auto again = load<sparse_mlp<>>(io::checkpoint::open(copy));
    CHECK(std::ranges::equal(evaluate(layer(x)), evaluate(again(x))));
    CHECK(again.active == layer.active);
    const std::string config = content(copy / "cfg.json");
    for (const char* key : {"architecture", "d_in", "d_sae", "dtype", "apply_b_dec_to_input",
                            "normalize_activations", "device", "reshape_activations"})
      CHECK(config.find(key) != std::string::npos);
  }
}

TEST_CASE("a layer that SAELens has not is not saved as its own", "[io][dictionary]") {
  const temporary_folder folder;
  const auto refused = [&](const auto& change, const char* why) {
    sparse_mlp<> layer;
    layer.encoder = random<rows>({inputs, units}, 1);
    layer.decoder = random<rows>({units, inputs}, 2);
    layer.active = all;
    change(layer);
    const io::error e = caught([&] { save(layer, folder / "x", {.form = file_form::saelens}); });
    CHECK(e.code == errc::conflict);
    INFO(e.what());
    CHECK(std::string(e.what()).find(why) != std::string::npos);
    CHECK(folder.entries() == 0);
  };
  refused([](auto& l) { l.activation = pointwise::gelu; }, "the activation");
  refused([](auto& l) { l.threshold = numbers(1), l.active = 3; }, "in two ways");
  refused([](auto& l) { l.gate_bias = numbers(1), l.encoder_bias = numbers(2); }, "beside a bias");
  refused([](auto& l) { l.in_decoder_norms = true; }, "does not select");
  refused([](auto& l) { l.active = 3, l.skip = random<rows>({inputs, inputs}, 3); }, "a skip");
  refused([](auto& l) { l.active = 3, l.decoder = random<rows>({units, 4}, 3); }, "other outputs");
  refused([](auto& l) { l.active = 3, l.scaling = row_scaling::layer_norm, l.scales_back = false; },
          "does not scale y back");
  const auto of_experts = load<mxd<>>("tests/golden/mxd/mxd_mlp_gelu_skip_k4.weights.safetensors",
                                      {.active = 4, .activation = pointwise::gelu});
  CHECK(std::string(
            caught([&] { save(of_experts, folder / "x", {.form = file_form::saelens}); }).what())
            .find("is no autoencoder and no transcoder") != std::string::npos);
}

TEST_CASE("what cfg.json says and fmoe does not compute is refused", "[io][dictionary]") {
  const temporary_folder folder;
  io::arrays_by_name arrays = saelens_arrays();
  const auto refused = [&](const std::string& config, const io::strings_by_name& metadata = {}) {
    const auto file = saved(folder, arrays, config, metadata);
    return caught([&] { load<sparse_mlp<>>(file); });
  };
  for (const char* config :
       {R"({"architecture": "temporal"})", R"({"architecture": "matching_pursuit"})",
        R"({"architecture": "standard", "activation_fn_str": "tanh-relu"})",
        R"({"architecture": "standard", "normalize_activations": "expected_average_only_in"})",
        R"({"architecture": "transcoder", "apply_b_dec_to_input": true})"}) {
    INFO(config);
    const io::error e = refused(config);
    CHECK(e.code == errc::schema);
    CHECK(e.file == folder / "cfg.json");
  }
  CHECK(std::string(refused(R"({"architecture": "temporal"})").what()).find("gated, batchtopk") !=
        std::string::npos);
  CHECK(refused(R"({"architecture": "topk"})").code == errc::missing_setting);
  CHECK(refused(R"({"architecture": "topk", "k": 3})", {{"K", "4"}}).code == errc::conflict);
  CHECK(refused(R"({"architecture": "standard"})", {{"activation", "gelu"}}).code ==
        errc::conflict);
  CHECK(refused("{").code == errc::json);
  const io::error missing = refused(R"({"architecture": "jumprelu"})");
  CHECK(missing.code == errc::missing_tensor);
  CHECK(missing.tensor == "threshold");
  for (const char* name : {"threshold", "b_gate", "r_mag", "W_skip"}) {
    arrays = saelens_arrays();
    arrays.emplace(name, random<rows>({inputs, inputs}, 5));
    const io::error e = refused(R"({"architecture": "transcoder"})");
    CHECK(e.code == errc::extra_tensor);
    CHECK(e.tensor == name);
  }
}

// Gemma Scope's params.npz and dictionary_learning's JumpReluAutoEncoder have the names of SAELens.
TEST_CASE("thresholds without a cfg.json need to be told whether b_dec is subtracted", "[io]") {
  const temporary_folder folder;
  const rows x = random<rows>({5, inputs}, 9);
  io::arrays_by_name arrays = saelens_arrays();
  arrays.emplace("threshold", numbers(11));
  const auto file = folder / "params.safetensors";
  io::safetensors::write(file, arrays);
  const io::error e = caught([&] { load<sparse_mlp<>>(file); });
  CHECK(e.code == errc::missing_setting);
  CHECK(std::string(e.what()).find("apply_b_dec_to_input") != std::string::npos);
  for (const bool subtracts : {false, true}) {
    const auto layer = load<sparse_mlp<>>(
        file, {.metadata = {{"apply_b_dec_to_input", subtracts ? "true" : "false"}}});
    const auto y = evaluate(layer(x));
    CHECK(relative_error(y.data(), formula{.subtracts = subtracts}.of(arrays, x).y) < 2e-6);
    save(layer, folder / "own.safetensors");
    CHECK(std::ranges::equal(y, evaluate(load<sparse_mlp<>>(folder / "own.safetensors")(x))));
  }
}

TEST_CASE("K beside a threshold needs the class of dictionary_learning", "[io][dictionary]") {
  const io::error e =
      caught([] { load<sparse_mlp<>>("tests/dictionaries/learned_topk/ae.safetensors"); });
  CHECK(e.code == errc::missing_setting);
  CHECK(std::string(e.what()).find("\"dict_class\"") != std::string::npos);
}

TEST_CASE("what another library does and fmoe does not compute is refused", "[io][dictionary]") {
  CHECK(caught([] {
          load<sparse_mlp<>>("tests/dictionaries/sparsify/sae.safetensors",
                             {.metadata = {{"K", "3"}}});
        }).code == errc::conflict);  // of its cfg.json
  const temporary_folder folder;
  std::filesystem::copy("tests/dictionaries/sparsify/sae.safetensors", folder / "sae.safetensors");
  put(folder / "cfg.json", R"({"num_latents": 40, "k": 5, "activation": "median"})");
  CHECK(caught([&] { load<sparse_mlp<>>(folder / "sae.safetensors"); }).code == errc::schema);
  std::filesystem::copy("tests/dictionaries/gemma_scope_2/params.safetensors",
                        folder / "params.safetensors");
  put(folder / "config.json", R"({"architecture": "topk"})");
  CHECK(caught([&] { load<sparse_mlp<>>(folder / "params.safetensors"); }).code == errc::schema);
}

TEST_CASE("a cfg.json of another library is passed over", "[io][dictionary]") {
  const temporary_folder folder;
  const auto file = saved(folder, saelens_arrays(), R"({"k": 3})");
  CHECK(caught([&] { load<sparse_mlp<>>(file); }).code == errc::missing_setting);
  CHECK(load<sparse_mlp<>>(file, {.active = 3}).active == 3);
}

}  // namespace

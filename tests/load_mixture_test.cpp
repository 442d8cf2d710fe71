// SPDX-License-Identifier: MIT
// Mixtures of released architectures, in the files that transformers and gguf write, have the
// outputs of transformers. scripts/make_mixture_cases and make_mixture_ggufs make tests/mixtures.
#include <filesystem>

#include <fmoe/io/gguf.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/load_mixture.hpp>
#include <fmoe/quantize.hpp>
#include <fmoe/reference.hpp>

#include "support/agree.hpp"
#include "support/allocations.hpp"
#include "support/files.hpp"
#include "support/gguf_file.hpp"
#include "support/watched.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

const std::filesystem::path home = "tests/mixtures";

template <class T>
double error_of(const tensor<T, 2>& y, const io::safetensors& want) {
  const auto expected = want.get<double, 2>("y64", {all, all});
  return relative_error(y.data(), {expected.data(), expected.data() + expected.size()});
}

constexpr auto cases = {"mixtral",
                        "qwen2_moe",
                        "qwen3_moe",
                        "olmoe",
                        "deepseek_v2",
                        "deepseek_v2_groups",
                        "deepseek_v3",
                        "glm4_moe",
                        "llama4",
                        "gpt_oss",
                        "deepseek_v3_fp8",
                        "deepseek_v3_fp8_tensor",
                        "deepseek_v3_fp8_channel",
                        "qwen3_moe_int8_channel",
                        "kimi_k2_int4",
                        "qwen3_moe_int4_zeros",
                        "qwen3_moe_nvfp4",
                        "gpt_oss_mxfp4",
                        "qwen3_moe_q8_0.gguf",
                        "qwen3_moe_q4_0.gguf",
                        "qwen3_moe_nvfp4_factors.gguf",
                        "deepseek_v2_f32.gguf",
                        "deepseek_v2_groups_f32.gguf",
                        "deepseek_v3_f32.gguf",
                        "glm4_moe_f32.gguf",
                        "llama4.gguf",
                        "gpt_oss.gguf",
                        "gpt_oss_mxfp4.gguf"};

// Rows of mixture_families: each folder has one of FAMILIES in scripts/make_mixture_cases.
std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(home)) {
    const std::string name = entry.path().filename().string(), ending = "_joined";
    if (!name.ends_with(ending)) continue;
    names.push_back(name);
    names.push_back(name.substr(0, name.size() - ending.size()));
  }
  return names;
}

TEST_CASE("each family has the outputs of transformers, in both of its layouts", "[load_mixture]") {
  extent count = 0;
  for (const std::string& name : families()) {
    INFO(name);
    const std::string of = name.ends_with("_joined") ? name.substr(0, name.size() - 7) : name;
    const auto want = io::safetensors::read(home / (of + ".io.safetensors"));
    const auto x = want.get<float, 2>("x", {all, all});
    const auto single = load_mixture(home / name, 1);
    CHECK(error_of(evaluate(single(x)), want) < 2e-6);
    CHECK(error_of(evaluate(single(x), {.on = reference()}), want) < 2e-6);
    const auto twice = load_mixture<double>(home / name, 1);
    // LFM2 adds 1e-6 to what divides weights, and LongCat's logits are floats in any type.
    const double most = of == "lfm2_moe" ? 1e-6 : of == "longcat_flash" ? 5e-7 : 2e-7;
    CHECK(error_of(evaluate(twice(want.get<double, 2>("x", {all, all}))), want) < most);
    const auto half = load_mixture<bf16>(home / name, 1, {.narrow = io::narrow});
    CHECK(error_of(evaluate(half(x)), want) < 0.05);
    CHECK(std::ranges::equal(evaluate(half.chosen(x)), evaluate(single.chosen(x))));
    ++count;
  }
  CHECK(count == 102);
}

// transformers 5.24.0 saves a Hunyuan 4 whose shared expert had a gate_proj with a linear_gate.
TEST_CASE("a Hunyuan 4 that transformers has saved is read, too", "[load_mixture]") {
  const auto a = load_mixture(home / "hy_v4", 1), b = load_mixture(home / "hy_v4_saved", 1);
  REQUIRE(!a.shared.activated.empty());
  CHECK(std::ranges::equal(a.shared.activated, b.shared.activated));
  CHECK(std::ranges::equal(a.shared.linear, b.shared.linear));
  const auto x =
      io::safetensors::read(home / "hy_v4.io.safetensors").get<float, 2>("x", {all, all});
  CHECK(std::ranges::equal(evaluate(a(x)), evaluate(b(x))));
}

TEST_CASE("the sparse mixer of Phi-3.5-MoE has its jitter, and two experts", "[load_mixture]") {
  const auto weights_of = [](const char* name) {
    const auto x = io::safetensors::read(home / (std::string(name) + ".io.safetensors"))
                       .get<float, 2>("x", {all, all});
    return evaluate(load_mixture(home / name, 1).coefficients(x));
  };
  CHECK(load_mixture(home / "phimoe.gguf", 1).route.jitter == 0.01);
  CHECK(load_mixture(home / "phimoe_jitter", 1).route.jitter == 0.2);
  // With the small one three scores are near each other, and the third only to the second.
  for (const float a : weights_of("phimoe")) CHECK((a == 0 || std::abs(a - 0.5f) < 0.02f));
  extent alone = 0, shared = 0;
  for (const float a : weights_of("phimoe_jitter")) {
    alone += a == 1;
    shared += a > 0 && a < 0.9f;
  }
  CHECK(alone > 5);
  CHECK(shared > 5);
  const temporary_folder folder;  // transformers' jitter where the file says none
  std::filesystem::copy_file(home / "phimoe/model.safetensors", folder / "model.safetensors");
  put(folder / "config.json", R"({"model_type": "phimoe", "num_experts_per_tok": 2})");
  CHECK(load_mixture(folder.path(), 1).route.jitter == 0.01);
  CHECK_NOTHROW(load_mixture(folder.path(), 1, {.active = 2}));
  const io::error e = caught([&] { load_mixture(folder.path(), 1, {.active = 3}); });
  CHECK(e.code == io::errc::conflict);
}

// The released files have the inputs of a matrix first, and transformers saves it the other way.
TEST_CASE("the shape tells the order of axes of Qwen3-VL", "[load_mixture]") {
  const auto want = io::safetensors::read(home / "qwen3_vl_moe.io.safetensors");
  const auto x = want.get<float, 2>("x", {all, all});
  CHECK(error_of(evaluate(load_mixture(home / "qwen3_vl_moe_released", 1)(x)), want) < 2e-6);
  const temporary_folder folder;
  std::filesystem::copy_file(home / "qwen3_vl_moe/config.json", folder / "config.json");
  const std::string layer = "model.language_model.layers.1.mlp.";
  io::safetensors::write(
      folder / "model.safetensors",
      {{layer + "gate.weight", random<tensor<float, 2>>({8, 20}, 1)},
       {layer + "experts.gate_up_proj", random<tensor<float, 3>>({8, 20, 20}, 2)},
       {layer + "experts.down_proj", random<tensor<float, 3>>({8, 20, 10}, 3)}});
  const io::error e = caught([&] { load_mixture(folder.path(), 1); });
  CHECK(e.code == io::errc::shape);
  CHECK(std::string(e.what()).find("whose order nothing tells") != std::string::npos);
}

TEST_CASE("a setting may be an array with a number for each layer", "[load_mixture]") {
  const temporary_folder folder;
  std::filesystem::copy_file(home / "hunyuan_v1_moe/model.safetensors",
                             folder / "model.safetensors");
  put(folder / "config.json",
      R"({"model_type": "hunyuan_v1_moe", "moe_topk": [2, 3], "num_experts": [4, 8]})");
  CHECK(load_mixture(folder.path(), 1).route.active == 3);
}

TEST_CASE("a family says what its settings leave unsaid", "[load_mixture]") {
  const temporary_folder folder;
  const auto weights_of = [&](const std::string& family, const std::string& config) {
    std::filesystem::copy_file(home / family / "model.safetensors", folder / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    put(folder / "config.json", config);
    return load_mixture(folder.path(), 1).route.weights;
  };
  CHECK(weights_of("qwen2_moe", R"({"model_type": "qwen2_moe", "num_experts_per_tok": 3})") ==
        weighting::softmax_of_all);
  CHECK(weights_of("qwen3_next", R"({"model_type": "qwen3_next", "num_experts_per_tok": 3})") ==
        weighting::softmax);
  CHECK(weights_of("dots1", R"({"model_type": "dots1", "num_experts_per_tok": 3})") ==
        weighting::score);
  CHECK(weights_of("dots1", R"({"model_type": "solar_open", "num_experts_per_tok": 3})") ==
        weighting::normalized);
  CHECK(weights_of("dots1", R"({"model_type": "dots1", "num_experts_per_tok": 3,
                             "scoring_func": "noaux_tc"})") == weighting::score);
  // Released files have the usual names, and those of transformers have the family's own.
  CHECK(weights_of("bailing_hybrid", R"({"model_type": "bailing_hybrid", "num_experts_per_tok": 3,
                                      "norm_topk_prob": false})") == weighting::score);
}

TEST_CASE("Qwen3-Omni has its mixtures in its thinker", "[load_mixture]") {
  const temporary_folder folder;
  put(folder / "config.json",
      R"({"model_type": "qwen3_omni_moe", "thinker_config": {"model_type": "thinker", "text_config":
          {"model_type": "qwen3_omni_moe_text", "num_experts_per_tok": 3}}})");
  io::arrays_by_name arrays;
  const auto file = io::safetensors::read(home / "qwen3_omni_moe/model.safetensors");
  for (const io::array& a : file.arrays()) arrays.emplace("thinker." + a.name(), a);
  io::safetensors::write(folder / "model.safetensors", arrays);
  const auto want = io::safetensors::read(home / "qwen3_omni_moe.io.safetensors");
  const auto x = want.get<float, 2>("x", {all, all});
  CHECK(error_of(evaluate(load_mixture(folder.path(), 1)(x)), want) < 2e-6);
}

TEST_CASE("the last experts of LongCat return x", "[load_mixture]") {
  const auto layer = load_mixture(home / "longcat_flash", 1);
  CHECK(layer.output.shape()[0] == 8);
  CHECK(layer.zero_router.shape()[1] == 5);
  CHECK(layer.zero_balance.size() == 5);
  const auto want = io::safetensors::read(home / "longcat_flash.io.safetensors");
  const auto x = want.get<float, 2>("x", {all, all});
  const auto a = evaluate(layer.coefficients(x));
  CHECK(a.shape()[1] == 13);
  const auto chosen = evaluate(layer.chosen(x));
  extent zeros = 0, own = 0;
  for (extent t = 0; t < x.shape()[0]; ++t)
    for (extent n = 0; n < 13; ++n) {
      (n < 8 ? own : zeros) += a(t, n) != 0;
      CHECK(chosen(t, n) == (a(t, n) != 0 ? 1 : 0));
    }
  CHECK(zeros + own == 4 * x.shape()[0]);
  CHECK(zeros > 5);
  CHECK(own > 5);
  CHECK(load_mixture(home / "longcat_flash", 1, {.active = 13}).route.active == 13);
  // Released files have no weights of zero experts.
  const temporary_folder folder;
  io::arrays_by_name arrays;
  const auto file = io::safetensors::read(home / "longcat_flash/model.safetensors");
  for (const io::array& array : file.arrays()) {
    const std::string rest = array.name().substr(array.name().find(".experts.") + 9);
    if (array.name().find(".experts.") == std::string::npos || std::stoi(rest) < 8)
      arrays.emplace(array.name(), array);
  }
  CHECK(arrays.size() == 3 * 8 + 2);
  io::safetensors::write(folder / "model.safetensors", arrays);
  const std::string config = content(home / "longcat_flash/config.json");
  put(folder / "config.json", config);
  CHECK(std::ranges::equal(evaluate(load_mixture(folder.path(), 1)(x)), evaluate(layer(x))));
  const auto with = [&](const std::string& setting, const std::string& text) {
    std::string changed = config;
    const auto at = changed.find(setting);
    REQUIRE(at != changed.npos);
    put(folder / "config.json", changed.replace(at, setting.size(), text));
    return caught([&] { load_mixture(folder.path(), 1); });
  };
  const io::error other =
      with("\"zero_expert_num\"", "\"zero_expert_type\": \"drop\", \"zero_expert_num\"");
  CHECK(std::string(other.what()).find("is no kind of zero experts that fmoe has") !=
        std::string::npos);
  const io::error more = with("\"zero_expert_num\": 5", "\"zero_expert_num\": 13");
  CHECK(std::string(more.what()).find("has 13 rows, of which 13 are zero experts") !=
        std::string::npos);
  const io::error another = with("\"zero_expert_num\": 5", "\"zero_expert_num\": 4");
  CHECK(std::string(another.what()).find("is not the number of its router's, 9") !=
        std::string::npos);
  const io::error family =
      with("\"model_type\": \"longcat_flash\"", "\"model_type\": \"hunyuan_v1_moe\"");
  CHECK(std::string(family.what()).find("\"zero_expert_num\" = \"5\", which is no part of") !=
        std::string::npos);
}

TEST_CASE("a limit of the shared expert is saved in its own form", "[load_mixture]") {
  const temporary_folder folder;
  auto layer = load_mixture(home / "step3p5_limits", 1);
  layer.limit_form = glu_limit::before_activation;
  save(layer, folder / "moe.safetensors");
  const auto again = load<moe<>>(folder / "moe.safetensors");
  CHECK(again.limit_form == glu_limit::before_activation);
  CHECK(again.shared.limit_form == glu_limit::after_activation);
  CHECK(again.limit == 0.7);
  CHECK(again.shared.limit == 0.4);
}

TEST_CASE("a family says the form of limits, and a layer its own", "[load_mixture]") {
  const auto step = load_mixture(home / "step3p5_limits", 1);
  CHECK(step.limit == 0.7);
  CHECK(step.shared.limit == 0.4);
  CHECK(step.limit_form == glu_limit::after_activation);
  CHECK(load_mixture(home / "step3p5", 1).limit == 0);
  CHECK(load_mixture(home / "hy_v4", 1).shared.limit == 0);
  const temporary_folder folder;
  const auto said = [&](const char* family, const char* config) {
    std::filesystem::copy_file(home / family / "model.safetensors", folder / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    put(folder / "config.json", config);
    return load_mixture(folder.path(), 1);
  };
  CHECK(said("glm5_next", R"({"model_type": "glm5_next_text", "num_experts_per_tok": 2})")
            .shared.limit == 10);
  const auto text = said("hy_v4", R"({"model_type": "hy_v4_vl_text", "num_experts_per_tok": 2})");
  CHECK(text.limit == 10);
  CHECK(text.shared.limit == 0);
  CHECK(text.limit_form == glu_limit::before_activation);
  const auto oai = said("minimax_m3", R"({"model_type": "minimax_m3_vl_text", "hidden_act":
                                       "swigluoai", "num_experts_per_tok": 2})");
  CHECK(oai.limit == 7);
  CHECK(oai.shared.limit == 7);
  CHECK(oai.limit_form == glu_limit::swiglu_oai);
}

TEST_CASE("what a family does not do is refused", "[load_mixture]") {
  const temporary_folder folder;
  const auto refused = [&](const std::string& family, const std::string& config) {
    std::filesystem::copy_file(home / family / "model.safetensors", folder / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    put(folder / "config.json", config);
    const io::error e = caught([&] { load_mixture(folder.path(), 1); });
    CHECK(e.code == io::errc::schema);
    return std::string(e.what());
  };
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != text.npos);
  };
  has(refused("mixtral", R"({"model_type": "dbrx", "num_experts_per_tok": 2})"),
      "\"dbrx\", which is no architecture whose mixtures fmoe knows; it knows mixtral, "
      "minimax, ");
  has(refused("qwen3_5_moe", R"({"model_type": "qwen3_5_moe_text", "num_experts_per_tok": 2,
                              "norm_topk_prob": false})"),
      "which is true in this architecture");
  has(refused("deepseek_v2", R"({"model_type": "deepseek_v2", "num_experts_per_tok": 2,
                              "norm_topk_prob": true})"),
      "which is false in this architecture");
  has(refused("dots1", R"({"model_type": "dots1", "num_experts_per_tok": 2,
                        "scoring_func": "softmax"})"),
      "which is no function of scores that this architecture has: sigmoid is expected");
  has(refused("laguna", R"({"model_type": "laguna", "num_experts_per_tok": 2,
                         "moe_router_logit_softcapping": 30.0})"),
      "\"moe_router_logit_softcapping\" = \"30.0\", which is no part of fmoe's mixtures");
  has(refused("nemotron_h", R"({"model_type": "nemotron_h", "num_experts_per_tok": 2,
                             "moe_latent_size": 8})"),
      "\"moe_latent_size\" = \"8\", which is not the width of its experts' latent, of which there "
      "is "
      "none");
  has(refused("nemotron_h_latent", R"({"model_type": "nemotron_h", "num_experts_per_tok": 2,
                                    "moe_latent_size": 8})"),
      "\"moe_latent_size\" = \"8\", which is not the width of its experts' latent, 12");
  has(refused("deepseek_v3", R"({"model_type": "deepseek_v3", "num_experts_per_tok": 2,
                              "swiglu_limit": 10.0})"),
      "\"swiglu_limit\" = \"10.0\", which is no part of fmoe's mixtures");
  has(refused("phimoe", R"({"model_type": "phimoe", "num_experts_per_tok": 3})"),
      "\"num_experts_per_tok\" = \"3\", which is not 2, as many as a sparse mixer has");
  has(refused("phimoe", R"({"model_type": "phimoe", "num_experts_per_tok": 2,
                         "router_jitter_noise": 1.0})"),
      "\"router_jitter_noise\" = \"1.0\", which is not at least 0 and below 1");
  has(refused("phimoe", R"({"model_type": "phimoe", "num_experts_per_tok": 2,
                         "router_jitter_noise": -0.01})"),
      "\"router_jitter_noise\" = \"-0.01\", which is not at least 0 and below 1");
  has(refused("step3p5", R"({"model_type": "step3p5", "num_experts_per_tok": 2,
                          "swiglu_limits": [null, -7]})"),
      "\"swiglu_limits\" = \"-7\", which is no limit of hidden units");
  has(refused("glm5_next", R"({"model_type": "glm5_next_text", "num_experts_per_tok": 2,
                            "swiglu_limit": 0})"),
      "\"swiglu_limit\" = \"0\", which is no limit of hidden units");
  has(refused("minimax_m3", R"({"model_type": "minimax_m3_vl_text", "num_experts_per_tok": 2,
                             "swiglu_alpha": 1.5})"),
      "\"swiglu_alpha\" = \"1.5\", which is 1.702 in fmoe");
  has(refused("glm5_next", R"({"model_type": "glm5_next_text", "num_experts_per_tok": 2,
                            "hidden_act": "swigluoai"})"),
      "\"hidden_act\" = \"swigluoai\", which is no activation of fmoe's experts");
  has(refused("axk2", R"({"model_type": "axk2", "num_experts_per_tok": 2, "n_group": 4})"),
      "\"n_group\" = \"4\", which is no part of this architecture's mixtures in fmoe");
  has(refused("deepseek_v3", R"({"model_type": "deepseek_v4", "num_experts_per_tok": 2})"),
      "is no architecture whose mixtures fmoe knows");
}

TEST_CASE("mixtures of released models have the outputs of transformers", "[load_mixture]") {
  for (const char* name : cases) {
    INFO(name);
    const std::filesystem::path file = home / name;
    const auto want = io::safetensors::read(home / (file.stem().string() + ".io.safetensors"));
    const auto single = load_mixture(file, 1);
    CHECK(is_watched(single));
    const auto twice = load_mixture<double>(file, 1);
    const auto x = want.get<float, 2>("x", {all, all});
    const auto wide = want.get<double, 2>("x", {all, all});
    CHECK(error_of(evaluate(single(x)), want) < 2e-6);
    CHECK(error_of(evaluate(single(x), {.on = reference()}), want) < 2e-6);
    CHECK(error_of(evaluate(twice(wide)), want) < 2e-7);  // transformers' softmax is in float
    // A token has K experts.
    const auto a = evaluate(single.coefficients(x));
    for (extent t = 0; t < a.shape()[0]; ++t)
      CHECK(std::ranges::count_if(std::span(&a(t, 0), a.shape()[1]), [](float v) {
              return v != 0;
            }) == static_cast<std::ptrdiff_t>(single.route.active));
  }
}

// Each is one of CONVERTED or RELEASED in scripts/make_mixture_ggufs.
TEST_CASE("a GGUF file of a model has the layer of its safetensors", "[load_mixture]") {
  extent count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(home)) {
    const std::filesystem::path file = entry.path(), folder = home / file.stem();
    if (file.extension() != ".gguf" || !std::filesystem::is_directory(folder)) continue;
    INFO(file.string());
    const auto want = io::safetensors::read(folder.string() + ".io.safetensors");
    const auto layer = load_mixture(file, 1), wanted = load_mixture(folder, 1);
    const auto x = want.get<float, 2>("x", {all, all});
    const auto y = evaluate(layer(x));
    CHECK(error_of(y, want) < 2e-6);
    CHECK(std::ranges::equal(y, evaluate(wanted(x))));
    ++count;
  }
  CHECK(count == 33);
}

// Files of llama.cpp's converter have it without an ending, and those of others have one.
TEST_CASE("a GGUF file of Hy3 has its balance by either name", "[load_mixture]") {
  const auto from = io::gguf::read(home / "hy_v3.gguf");
  const auto saved = [&](const std::filesystem::path& file, std::vector<std::string> balances) {
    gguf_file f;
    f.value("general.architecture", gguf_text, counted_text("hy_v3"));
    f.value("hy_v3.expert_used_count", 3);
    f.value("hy_v3.expert_weights_scale", gguf_f32, little(2.826f));
    for (const io::array& a : from.arrays()) {
      const std::vector<std::uint64_t> dimensions(a.shape().rbegin(), a.shape().rend());
      const std::string bytes(reinterpret_cast<const char*>(a.bytes().data()), a.bytes().size());
      if (a.shape().size() > 1) f.tensor(a.name(), dimensions, ggml_f32, bytes);
      else
        for (const std::string& name : balances) f.tensor(name, dimensions, ggml_f32, bytes);
    }
    put(file, f.bytes());
    return file;
  };
  const temporary_folder folder;
  const std::string bare = "blk.1.exp_probs_b", ended = "blk.1.exp_probs_b.bias";
  const auto x =
      io::safetensors::read(home / "hy_v3.io.safetensors").get<float, 2>("x", {all, all});
  const auto y = [&](const char* name, std::vector<std::string> balances) {
    return evaluate(load_mixture(saved(folder / name, std::move(balances)), 1)(x));
  };
  const auto wanted = evaluate(load_mixture(home / "hy_v3", 1)(x));
  CHECK(std::ranges::equal(y("bare.gguf", {bare}), wanted));
  CHECK(std::ranges::equal(y("ended.gguf", {ended}), wanted));
  CHECK(!std::ranges::equal(y("none.gguf", {}), wanted));
  CHECK(caught([&] { y("both.gguf", {bare, ended}); }).code == io::errc::extra_tensor);
}

// A GGUF file of qwen3moe or deepseek2 with this setting more, of the tensors of Qwen3-MoE.
moe<> with_gguf_setting(const std::string& architecture, const char* name, std::uint32_t type,
                        const std::string& value) {
  const auto from = io::gguf::read(home / "qwen3_vl_moe.gguf");
  gguf_file f;
  f.value("general.architecture", gguf_text, counted_text(architecture));
  f.value(architecture + ".expert_used_count", 3);
  f.value(architecture + '.' + name, type, value);
  for (const auto& [part, shape] : {std::pair{"ffn_gate_inp", std::vector<std::uint64_t>{24, 8}},
                                    {"ffn_gate_exps", {24, 10, 8}},
                                    {"ffn_up_exps", {24, 10, 8}},
                                    {"ffn_down_exps", {10, 24, 8}}}) {
    const std::string name_in_file = std::string("blk.1.") + part + ".weight";
    const auto bytes = from.at(name_in_file).bytes();
    f.tensor(name_in_file, shape, ggml_f32,
             std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  const temporary_folder folder;
  put(folder / "model.gguf", f.bytes());
  return load_mixture(folder / "model.gguf", 1);
}

TEST_CASE("a GGUF file may say a factor and what is divided by its sum", "[load_mixture]") {
  const std::string one_and_a_half("\0\0\xc0\x3f", 4), yes("\1", 1);
  CHECK(with_gguf_setting("qwen3moe", "expert_weights_scale", gguf_f32, one_and_a_half).scale ==
        1.5);
  CHECK(with_gguf_setting("llama", "expert_weights_scale", gguf_f32, one_and_a_half).scale == 1.5);
  // Mistral Large 3 is a deepseek2 with softmaxes over their sum.
  CHECK(with_gguf_setting("deepseek2", "expert_weights_norm", gguf_bool, yes).route.weights ==
        weighting::softmax);
  CHECK(with_gguf_setting("deepseek2", "expert_weights_scale", gguf_f32, one_and_a_half)
            .route.weights == weighting::softmax_of_all);
}

TEST_CASE("a GGUF file may hold the gate and the linear part in one tensor", "[load_mixture]") {
  const auto apart = io::gguf::read(home / "qwen3_moe_q8_0.gguf");
  const auto bytes_of_expert = [&](const std::string& name, extent e) {
    const auto bytes = apart.at("blk.1." + name + ".weight").rows(e, 1).bytes();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const extent experts = 5, in = 64, hidden = 32;
  std::string router, joined, output;
  for (extent e = 0; e < experts; ++e) {
    router += bytes_of_expert("ffn_gate_inp", e);
    joined += bytes_of_expert("ffn_gate_exps", e) + bytes_of_expert("ffn_up_exps", e);
    output += bytes_of_expert("ffn_down_exps", e);
  }
  gguf_file f;
  f.value("general.architecture", gguf_text, counted_text("qwen3moe"));
  f.value("qwen3moe.expert_used_count", 3).value("qwen3moe.expert_count", experts);
  f.tensor("blk.1.ffn_gate_inp.weight", {in, experts}, ggml_f32, router);
  f.tensor("blk.1.ffn_gate_up_exps.weight", {in, 2 * hidden, experts}, ggml_q8_0, joined);
  f.tensor("blk.1.ffn_down_exps.weight", {hidden, in, experts}, ggml_q8_0, output);
  const temporary_folder folder;
  put(folder / "joined.gguf", f.bytes());
  const auto layer = load_mixture<q8>(folder / "joined.gguf", 1);
  const auto wanted = load_mixture<q8>(home / "qwen3_moe_q8_0.gguf", 1);
  const auto x = random<tensor<float, 2>>({9, in}, 1);
  CHECK(std::ranges::equal(evaluate(layer(x)), evaluate(wanted(x))));
}

// The integers and scales of a tensor, or its floats.
std::span<const std::byte> bytes_of(const detail::any_tensor& t) {
  if (t.empty()) return {};
  const detail::stored_numbers n = t.numbers();
  return {static_cast<const std::byte*>(n.data), n.bytes()};
}

template <class Q>
void check_quantized(const std::filesystem::path& file) {
  auto loaded = load_mixture<Q>(file, 1);
  CHECK(is_watched(loaded));
  auto wanted = quantize<Q>(load_mixture(file, 1));
  const auto made = detail::released_parameters(loaded), want = detail::released_parameters(wanted);
  for (extent i = 0; i < made.size(); ++i) {
    INFO(made[i].name.name);
    const detail::any_tensor a = made[i].parameter.value(), b = want[i].parameter.value();
    CHECK(a.type == b.type);
    CHECK(a.shape == b.shape);
    CHECK(a.axis == b.axis);
    CHECK(std::ranges::equal(bytes_of(a), bytes_of(b)));
  }
  const auto x = random<tensor<float, 2>>({5, loaded.router.shape()[0]}, 1);
  CHECK(std::ranges::equal(evaluate(loaded(x)), evaluate(wanted(x))));
}

// Their files have integers and scales that q8 has, too.
constexpr auto kept_in_8_bits = {"qwen3_moe_q8_0.gguf", "qwen3_moe_q4_0.gguf", "gpt_oss_mxfp4",
                                 "gpt_oss_mxfp4.gguf", "kimi_k2_int4"};

TEST_CASE("experts of integers and scales are kept in 8 bits", "[load_mixture]") {
  for (const char* name : kept_in_8_bits) {
    INFO(name);
    const auto kept = load_mixture<q8>(home / name, 1);
    const auto wide = load_mixture(home / name, 1);
    CHECK(std::ranges::equal(widened(kept.activated), wide.activated));
    CHECK(std::ranges::equal(widened(kept.linear), wide.linear));
    CHECK(std::ranges::equal(widened(kept.output), wide.output));
  }
}

TEST_CASE("a mixture is loaded in 8 bits as quantize makes it", "[load_mixture]") {
  for (const char* name : cases) {
    INFO(name);
    check_quantized<q8c>(home / name);
    if (std::ranges::count(kept_in_8_bits, std::string_view(name)) != 0) continue;
    check_quantized<q8>(home / name);
  }
  for (const char* name : {"nemotron_h_latent", "longcat_flash"}) {
    INFO(name);
    check_quantized<q8c>(home / name);
    check_quantized<q8>(home / name);
  }
}

TEST_CASE("blocks of Q8_0 are kept, also those without an integer of 127", "[load_mixture]") {
  const temporary_folder folder;
  const io::checkpoint original = io::checkpoint::open(home / "qwen3_moe_q8_0.gguf");
  const io::array blocks = original.at("blk.1.ffn_down_exps.weight");
  REQUIRE(blocks.type() == io::element_type::q8_0);
  std::string text = content(home / "qwen3_moe_q8_0.gguf");
  const std::string_view bytes(reinterpret_cast<const char*>(blocks.bytes().data()),
                               blocks.bytes().size());
  const auto start = text.find(bytes);
  REQUIRE(start != text.npos);
  for (std::size_t i = 0; i < bytes.size(); ++i)  // integers behind a scale of two bytes
    if (i % 34 >= 2) text[start + i] = static_cast<char>(text[start + i] / 2);
  put(folder / "halved.gguf", text);
  const auto kept = load_mixture<q8>(folder / "halved.gguf", 1);
  const auto wide = load_mixture(folder / "halved.gguf", 1);
  CHECK(std::ranges::equal(widened(kept.output), wide.output));
  CHECK_FALSE(std::ranges::equal(widened(quantize(wide).output), wide.output));
}

TEST_CASE("weights are rounded to 16 bits with leave alone", "[load_mixture]") {
  for (const char* name : {"qwen3_moe", "deepseek_v3_fp8", "gpt_oss_mxfp4"}) {
    INFO(name);
    CHECK_THROWS_WITH(load_mixture<bf16>(home / name, 1), containing("fmoe::io::narrow"));
    const auto rounded = load_mixture<bf16>(home / name, 1, {.narrow = io::narrow});
    const auto wide = load_mixture(home / name, 1);
    CHECK(std::ranges::equal(rounded.output, wide.output, {}, {}, [](float v) { return bf16(v); }));
  }
}

TEST_CASE("a mixture of 8 bits never holds a tensor of floats", "[load_mixture]") {
  for (const char* name : {"qwen3_moe", "qwen3_moe_q8_0.gguf", "qwen3_moe_q4_0.gguf"}) {
    INFO(name);
    const io::checkpoint model = io::checkpoint::open(home / name);
    moe<q8> layer;
    const std::size_t largest = largest_allocation_of([&] { layer = load_mixture<q8>(model, 1); });
    CHECK(largest <= layer.output.numbers().bytes() + detail::cache_line);
    CHECK(largest < layer.output.size() * sizeof(float) / 3);
  }
}

TEST_CASE("Kimi K2 is DeepSeek-V3 by another name", "[load_mixture]") {  // as in transformers
  const temporary_folder folder;
  std::string config = content(home / "deepseek_v3/config.json");
  const std::string_view name = "\"model_type\": \"deepseek_v3\"";
  const auto at = config.find(name);
  REQUIRE(at != config.npos);
  put(folder / "config.json", config.replace(at, name.size(), "\"model_type\": \"kimi_k2\""));
  std::filesystem::copy_file(home / "deepseek_v3/model.safetensors", folder / "model.safetensors");
  const auto want = io::safetensors::read(home / "deepseek_v3.io.safetensors");
  const auto x = want.get<float, 2>("x", {all, all});
  CHECK(error_of(evaluate(load_mixture(folder.path(), 1)(x)), want) < 2e-6);
  // Kimi K2.5 has it inside of a model that sees.
  put(folder / "config.json",
      "{\"model_type\": \"kimi_k25\", \"text_config\": " + content(folder / "config.json") + "}");
  io::arrays_by_name arrays;
  const auto file = io::safetensors::read(home / "deepseek_v3/model.safetensors");
  for (const io::array& array : file.arrays())
    arrays.emplace("language_model." + array.name(), array);
  io::safetensors::write(folder / "model.safetensors", arrays);
  CHECK(error_of(evaluate(load_mixture(folder.path(), 1)(x)), want) < 2e-6);
}

TEST_CASE("the page of mixtures runs", "[load_mixture]") {
  const auto layer = load_mixture("tests/mixtures/deepseek_v3", 1);  // its layer 1, counted from 0
  auto forward = compile(layer, 64);
  CHECK(forward.output_shape()[0] == 24);
}

TEST_CASE("a mixture is saved and loaded in fmoe's names", "[load_mixture]") {
  const temporary_folder folder;
  for (const char* name :
       {"deepseek_v2_groups", "deepseek_v3", "qwen2_moe", "llama4", "gpt_oss", "nemotron_h",
        "step3p5_limits", "glm5_next", "minimax_m3", "nemotron_h_latent", "longcat_flash"}) {
    INFO(name);
    const auto layer = load_mixture(home / name, 1);
    save(layer, folder / "moe.safetensors");
    const auto again = load<moe<>>(folder / "moe.safetensors");
    const auto x = random<tensor<float, 2>>({9, layer.router.shape()[0]}, 1);
    const auto y = evaluate(layer(x)), z = evaluate(again(x));
    CHECK(std::ranges::equal(y, z));
  }
}

TEST_CASE("experts without a gate are said in a file, so that W_p is not lost", "[load_mixture]") {
  const temporary_folder folder;
  const auto load_without = [&](const char* family, const char* name,
                                const io::strings_by_name& metadata) {
    save(load_mixture(home / family, 1), folder / "whole.safetensors");
    const auto whole = io::safetensors::read(folder / "whole.safetensors");
    io::arrays_by_name arrays;
    for (const io::array& a : whole.arrays())
      if (a.name() != name) arrays.emplace(a.name(), a);
    io::safetensors::write(folder / "less.safetensors", arrays, metadata);
    return caught([&] { load<moe<>>(folder / "less.safetensors"); });
  };
  const io::error lost = load_without("mixtral", "W_p", {{"K", "2"}});
  CHECK(lost.code == io::errc::missing_setting);
  CHECK(std::string(lost.what()).find("experts") != std::string::npos);
  const io::error gated = load_without("nemotron_h", "", {{"K", "2"}, {"experts", "gated"}});
  CHECK(gated.code == io::errc::conflict);
  CHECK(std::string(gated.what()).find("gated experts have W_p") != std::string::npos);
}

TEST_CASE("tensors of a model that disagree on its experts are refused", "[load_mixture]") {
  const temporary_folder folder;
  const auto with_less_of = [&](const char* model, const char* name) {
    io::arrays_by_name arrays;
    const auto file = io::safetensors::read(home / model / "model.safetensors");
    for (const io::array& a : file.arrays()) arrays.emplace(a.name(), a);
    io::array& a = arrays.at(std::string("model.layers.1.") + name);
    a = a.shape()[0] > 1 ? a.rows(0, a.shape()[0] - 1) : a.reshaped({a.shape()[1]}).rows(0, 5);
    io::safetensors::write(folder / "model.safetensors", arrays);
    put(folder / "config.json", content(home / model / "config.json"));
    return caught([&] { load_mixture(folder.path(), 1); });
  };
  CHECK(with_less_of("gpt_oss", "mlp.router.weight").code == io::errc::schema);  // of config.json
  for (const auto& [model, name] : {std::pair{"gpt_oss", "mlp.router.bias"},
                                    {"gpt_oss", "mlp.experts.gate_up_proj"},
                                    {"gpt_oss", "mlp.experts.gate_up_proj_bias"},
                                    {"deepseek_v3", "mlp.gate.e_score_correction_bias"},
                                    {"qwen2_moe", "mlp.shared_expert_gate.weight"}}) {
    INFO(model << ' ' << name);
    const io::error e = with_less_of(model, name);
    CHECK(e.code == io::errc::shape);
  }
}

TEST_CASE("what a model does not have is told", "[load_mixture]") {
  CHECK_THROWS_WITH(load_mixture(home / "mixtral", 0), containing("has no mixture of experts"));
  CHECK_THROWS_WITH(load_mixture(home / "llama4.gguf", 0), containing("has no mixture of experts"));
  CHECK(load_mixture(home / "mixtral", 1, {.active = 3}).route.active == 3);
  CHECK(load_mixture(home / "mixtral", 1, {.prefix = "model.layers."}).route.active == 2);
  const temporary_folder folder;
  const auto with = [&](const char* config) {
    std::filesystem::copy_file(home / "mixtral/model.safetensors", folder / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    put(folder / "config.json", config);
    load_mixture(folder.path(), 1);
  };
  CHECK_NOTHROW(with(R"({"model_type": "mixtral", "num_experts_per_tok": 2})"));
  CHECK_NOTHROW(
      with(R"({"text_config": {"model_type": "mixtral", "num_experts_per_tok": 2}, "a": []})"));
  CHECK_THROWS_WITH(with(R"({"model_type": "gpt2"})"), containing("\"model_type\" = \"gpt2\""));
  CHECK_THROWS_WITH(with(R"({"model_type": "mixtral"})"), containing("num_experts_per_tok"));
  CHECK_THROWS_WITH(with(R"({"model_type": "mixtral", "num_experts_per_tok": 1.5})"),
                    containing("positive integer"));
  CHECK_THROWS_WITH(with(R"({"model_type": "mixtral", "num_experts_per_tok": "2x"})"),
                    containing("is no number"));
  CHECK_THROWS_WITH(
      with(R"({"model_type": "qwen3_moe", "num_experts_per_tok": 2, "norm_topk_prob": 1})"),
      containing("neither true nor false"));
  CHECK_THROWS_WITH(
      with(R"({"model_type": "deepseek_v3", "num_experts_per_tok": 2, "scoring_func": "softmax"})"),
      containing("scoring_func"));
  CHECK_THROWS_WITH(
      with(R"({"model_type": "deepseek_v2", "num_experts_per_tok": 2, "scoring_func": "sigmoid"})"),
      containing("scoring_func"));
  CHECK_THROWS_WITH(
      with(R"({"model_type": "deepseek_v2", "num_experts_per_tok": 2, "norm_topk_prob": true})"),
      containing("norm_topk_prob"));
  CHECK_THROWS_WITH(
      with(R"({"model_type": "deepseek_v2", "num_experts_per_tok": 2, "topk_method": "noaux_tc"})"),
      containing("topk_method"));
  CHECK_THROWS_WITH(
      with(R"({"model_type": "mixtral", "num_experts_per_tok": 2, "hidden_act": "mish"})"),
      containing("hidden_act"));
  CHECK_THROWS_WITH(with("[1"), containing("is no JSON, as a config.json is"));
  CHECK_THROWS_WITH(with("[1]"), containing("is no JSON object"));
  CHECK_THROWS_WITH(
      with(R"({"model_type": "mixtral", "num_experts_per_tok": 2, "num_local_experts": 16})"),
      containing("\"num_local_experts\" = \"16\", which is not the number of its router's"));
  CHECK_THROWS_WITH(with(R"({"model_type": "mixtral", "num_experts_per_tok": 99})"),
                    containing("is more than the number of its experts"));
  CHECK_THROWS_WITH(load_mixture(home / "mixtral", 0), containing("; layer 1 has one (missing"));
  CHECK_THROWS_WITH(load_mixture(home / "mixtral", 1, {.active = 99}),
                    containing("and K = 99 is asked for"));
  for (const load_options& unused :
       {load_options{.activation = pointwise::gelu}, load_options{.metadata = {{"K", "3"}}}})
    CHECK_THROWS_WITH(load_mixture(home / "mixtral", 1, unused),
                      containing("is loaded with an activation or metadata"));
}

// What tools beside transformers write; scripts of this project do not make these.
TEST_CASE("mixtures in unusual files have their outputs, too", "[load_mixture]") {
  for (const auto& [folder, file] :
       {std::pair{"shared_expert_beside_joined_experts", ""},
        {"biases_of_joined_experts", "model.gguf"},
        {"index_of_an_earlier_save", ""},  // transformers takes model.safetensors
        {"infinity_in_config", ""},        // Python's json writes Infinity
        {"number_for_each_layer", "model.gguf"},
        {"architecture_in_gguf", "glm4moe.gguf"},
        {"architecture_in_gguf", "deepseek2.gguf"}}) {
    INFO(folder << ' ' << file);
    const auto want = io::safetensors::read(home / folder / "io.safetensors");
    const auto layer = load_mixture(home / folder / file, 0);
    const auto y = evaluate(layer(want.get<float, 2>("x", {all, all})));
    const auto expected = want.get<double, 2>("y", {all, all}, io::narrow);
    CHECK(relative_error(y.data(), {expected.data(), expected.data() + expected.size()}) < 1e-5);
  }
}

TEST_CASE("a mixture accounts for each tensor of its own", "[load_mixture]") {
  const temporary_folder folder;
  std::filesystem::copy_file(home / "mixtral/config.json", folder / "config.json");
  const auto with = [&](const char* name) {
    io::arrays_by_name arrays;
    const auto file = io::safetensors::read(home / "mixtral/model.safetensors");
    for (const io::array& a : file.arrays()) arrays.emplace(a.name(), a);
    arrays.emplace(name, tensor<float, 1>({3}));
    io::safetensors::write(folder / "model.safetensors", arrays);
    std::vector<std::string> extra;
    load_mixture(folder.path(), 1, {.extra = &extra});
    return extra;
  };
  const std::string layer = "model.layers.1.";
  for (const char* name : {"self_attn.q.weight", "input_layernorm.weight"}) {
    CHECK(with((layer + name).c_str()).empty());
    CHECK_NOTHROW(load_mixture(folder.path(), 1));
  }
  for (const char* name : {"block_sparse_moe.experts.9.w1.weight", "block_sparse_moe.planted",
                           "mlp.gate.bias", "feed_forward.router.scale"}) {
    INFO(name);
    CHECK(with((layer + name).c_str()) == std::vector{layer + name});
    const io::error e = caught([&] { load_mixture(folder.path(), 1); });
    CHECK(e.code == io::errc::extra_tensor);
    CHECK(e.tensor == layer + name);
  }
  CHECK(with("model.layers.0.block_sparse_moe.planted").empty());  // another layer's
}

TEST_CASE("a balance of experts beside a softmax is refused", "[load_mixture]") {
  const temporary_folder folder;
  std::filesystem::copy_file(home / "deepseek_v3/model.safetensors", folder / "model.safetensors");
  put(folder / "config.json", R"({"model_type": "deepseek_v2", "num_experts_per_tok": 2})");
  const io::error e = caught([&] { load_mixture(folder.path(), 1); });
  CHECK(e.code == io::errc::conflict);
  CHECK(std::string(e.what()).find("has a balance of experts") != std::string::npos);
  put(folder / "config.json", R"({"model_type": "qwen3_moe", "num_experts_per_tok": 2})");
  CHECK(caught([&] { load_mixture(folder.path(), 1); }).code == io::errc::extra_tensor);
}

}  // namespace

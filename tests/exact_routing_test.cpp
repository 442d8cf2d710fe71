// SPDX-License-Identifier: MIT
// Mixtures of 16 and 8 bits give a token the experts that the file gives it: routers, their biases,
// balances and gates of shared experts are not rounded. The models are made here, but for
// tests/mixtures/deepseek_v3_bf16, which has random weights of bf16 beside a balance of float, and
// what numpy computes from them in double by the equations of the model.
#include <fmoe/cuda.hpp>
#include <fmoe/dynamic.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/load_mixture.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/quantize.hpp>
#include <fmoe/reference.hpp>

#include "support/agree.hpp"
#include "support/files.hpp"
#include "support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using rows = tensor<float, 2>;

constexpr extent experts = 64, inputs = 32, hidden = 8;

// Tensors of a model, by name.
class model_tensors {
 public:
  template <class T, std::size_t Rank>
  void add(const std::string& name, const std::array<extent, Rank>& shape) {
    put(name, random<tensor<T, Rank>>(shape, static_cast<unsigned>(all_.size()), 0.3f));
  }
  void put(const std::string& name, const io::array& a) {
    all_.emplace("model.layers.0." + name, a);
  }
  // Adds a gated linear unit, with these endings of its three matrices.
  template <class T>
  void add_expert(const std::string& name, const std::array<const char*, 3>& endings) {
    add<T, 2>(name + endings[0], {hidden, inputs});
    add<T, 2>(name + endings[1], {hidden, inputs});
    add<T, 2>(name + endings[2], {inputs, hidden});
  }
  template <class T>
  void add_experts(const std::string& name, const std::array<const char*, 3>& endings) {
    for (extent e = 0; e < experts; ++e)
      add_expert<T>(name + ".experts." + std::to_string(e), endings);
  }
  void write(const std::filesystem::path& file) const { io::safetensors::write(file, all_); }

 private:
  io::arrays_by_name all_;
};

constexpr std::array projections{".gate_proj.weight", ".up_proj.weight", ".down_proj.weight"};

// Writes a model with weights of type W, and of type R what chooses experts and gates them.
template <class W, class R>
void put_model(const std::filesystem::path& folder, const std::string& type) {
  model_tensors t;
  std::string settings;
  if (type == "mixtral") {
    t.add<R, 2>("block_sparse_moe.gate.weight", {experts, inputs});
    t.add_experts<W>("block_sparse_moe", {".w1.weight", ".w3.weight", ".w2.weight"});
  } else if (type == "gpt_oss") {
    t.add<R, 2>("mlp.router.weight", {experts, inputs});
    t.add<R, 1>("mlp.router.bias", {experts});
    t.add<W, 3>("mlp.experts.gate_up_proj", {experts, inputs, 2 * hidden});
    t.add<W, 2>("mlp.experts.gate_up_proj_bias", {experts, 2 * hidden});
    t.add<W, 3>("mlp.experts.down_proj", {experts, hidden, inputs});
    t.add<W, 2>("mlp.experts.down_proj_bias", {experts, inputs});
  } else {
    t.add<R, 2>("mlp.gate.weight", {experts, inputs});
    t.add_experts<W>("mlp", projections);
    if (type == "qwen2_moe") {
      t.add_expert<W>("mlp.shared_expert", projections);
      t.add<R, 2>("mlp.shared_expert_gate.weight", {1, inputs});
    } else {
      t.add_expert<W>("mlp.shared_experts", projections);
      tensor<float, 1> balance({experts});  // near 7, as in releases
      for (extent e = 0; e < experts; ++e)
        balance(e) = 7 + 1e-3f * static_cast<float>(e * 37 % experts);
      t.put("mlp.gate.e_score_correction_bias", balance);
      settings = R"(, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5)";
    }
  }
  t.write(folder / "model.safetensors");
  put(folder / "config.json",
      R"({"num_experts_per_tok": 4, "model_type": ")" + type + '"' + settings + '}');
}

constexpr auto families = {"mixtral", "qwen2_moe", "deepseek_v3", "gpt_oss"};

// Calls f<T>() for the types of weights that are narrower than float.
void for_each_type(const auto& f) {
  f.template operator()<bf16>();
  f.template operator()<f16>();
  f.template operator()<q8>();
  f.template operator()<q8c>();
}

extent tokens_with_other_experts(const rows& chosen, const rows& expected) {
  extent count = 0;
  for (extent t = 0; t < chosen.shape()[0]; ++t)
    count +=
        !std::ranges::equal(std::span(&chosen(t, 0), experts), std::span(&expected(t, 0), experts));
  return count;
}

std::vector<float> numbers_of(const auto& layer, std::string_view name) {
  for (const auto& p : detail::released_parameters(detail::only_listed(layer))) {
    const detail::any_tensor value = p.parameter.value();
    if (p.name.name != name || value.empty()) continue;
    const detail::any_tensor floats = detail::as_floats(value);
    const auto* const first = static_cast<const float*>(floats.elements->data());
    return {first, first + detail::element_count(value.shape)};
  }
  return {};
}

// Checks that a layer chooses experts, and weighs them, as that of floats does.
void check_same_experts(const auto& narrow, const moe<>& wide) {
  const auto x = random<rows>({1000, inputs}, 1);
  const rows expected = evaluate(wide.chosen(x));
  CHECK(tokens_with_other_experts(evaluate(narrow.chosen(x)), expected) == 0);
  // The experts' products are rounded beside them.
  constexpr dtype type = detail::dtype_of<typename decltype(narrow.output)::value_type>;
  const compile_options rounding{.bf16_products = type == dtype::bfloat16,
                                 .int8_products = type == dtype::q8};
  const rows rounded = evaluate(concat<1>(narrow.chosen(x), narrow(x)), rounding);
  CHECK(tokens_with_other_experts(rounded, expected) == 0);
  CHECK(same_bits(evaluate(narrow.coefficients(x)), evaluate(wide.coefficients(x))));
  for (const char* name : {"router", "router_bias", "balance", "shared.gate"})
    CHECK(numbers_of(narrow, name) == numbers_of(wide, name));
}

TEST_CASE("a token has the experts of the file, whatever type the weights are loaded in") {
  const temporary_folder folder;
  for (const char* family : families) {
    INFO(family);
    put_model<float, float>(folder.path(), family);
    const auto wide = load_mixture(folder.path(), 0);
    for_each_type([&]<class T>() {
      INFO(name_of(detail::dtype_of<T>));
      const auto narrow = load_mixture<T>(folder.path(), 0, {.narrow = io::narrow});
      check_same_experts(narrow, wide);
      const auto x = random<rows>({40, inputs}, 2);
      for (const compile_options& how :
           {compile_options{.on = reference()}, compile_options{.on = cuda::gpu_or_emulated()}}) {
        CHECK(tokens_with_other_experts(evaluate(narrow.chosen(x), how),
                                        evaluate(wide.chosen(x), how)) == 0);
        const rows y = evaluate(narrow(x)), elsewhere = evaluate(narrow(x), how);
        CHECK(relative_error(elsewhere.data(), {y.begin(), y.end()}) < 1e-5);
      }
    });
  }
}

TEST_CASE("a balance of float beside weights of bf16 chooses the right experts") {
  const std::filesystem::path file = "tests/mixtures/deepseek_v3_bf16";
  const auto want = io::safetensors::read("tests/mixtures/deepseek_v3_bf16.io.safetensors");
  const auto x = want.get<float, 2>("x");
  const auto y = want.get<double, 2>("y");
  const auto chosen = want.at("chosen").integers<extent>();
  const extent active = want.at("chosen").shape()[1];
  const auto check = [&](const auto& layer, double tolerance) {
    const rows a = evaluate(layer.coefficients(x));
    const auto [tokens, count] = a.shape();
    rows expected({tokens, count});
    for (extent i = 0; i < tokens * active; ++i) expected(i / active, chosen[i]) = 1;
    extent others = 0;
    for (extent t = 0; t < tokens; ++t)
      for (extent e = 0; e < count; ++e) others += (a(t, e) != 0) != (expected(t, e) != 0);
    CHECK(others == 0);
    CHECK(relative_error(evaluate(layer(x)).data(), {y.begin(), y.end()}) < tolerance);
  };
  check(load_mixture(file, 0), 2e-6);
  check(load_mixture<bf16>(file, 0), 2e-6);  // nothing is narrowed, which needs no leave
  check(load_mixture<f16>(file, 0, {.narrow = io::narrow}), 2e-6);
  check(load_mixture<q8>(file, 0), 0.02);
  check(load_mixture<q8c>(file, 0), 0.03);
}

TEST_CASE("a model of bf16 with a router of float is loaded as it is, saved so and loaded again") {
  const temporary_folder folder;
  const auto saved = folder / "moe.safetensors";
  const auto x = random<rows>({20, inputs}, 1);
  for (const char* family : families) {
    INFO(family);
    put_model<bf16, float>(folder.path(), family);
    const auto wide = load_mixture(folder.path(), 0);
    const auto narrow = load_mixture<bf16>(folder.path(), 0);
    check_same_experts(narrow, wide);
    const rows y = evaluate(narrow(x));
    CHECK(same_bits(y, evaluate(wide(x))));
    const auto check_saved = [&](const auto& layer) {
      layer(saved);
      const auto arrays = io::safetensors::read(saved);
      for (const char* name : {"router", "router_bias", "balance", "shared.gate"})
        if (arrays.contains(name)) CHECK(arrays.at(name).type() == io::element_type::f32);
      for (const char* name : {"W_g", "W_p", "W_o"})
        CHECK(arrays.at(name).type() == io::element_type::bf16);
      CHECK(same_bits(evaluate(load<moe<bf16>>(saved)(x)), y));
    };
    const save_options in_16_bits{.type = dtype::bfloat16};
    check_saved([&](const auto& file) { save(narrow, file); });
    check_saved([&](const auto& file) { save(narrow, file, in_16_bits); });
    check_saved([&](const auto& file) { save(wide, file, in_16_bits); });
    check_saved([&](const auto& file) { dynamic::layer(wide).save(file, in_16_bits); });
    save(load_mixture<double>(folder.path(), 0), saved, {.type = dtype::float32});
    CHECK(io::safetensors::read(saved).at("router").type() == io::element_type::f64);
    save(wide, saved, {.type = dtype::float64});  // a wider type rounds nothing
    CHECK(io::safetensors::read(saved).at("router").type() == io::element_type::f64);
  }
}

TEST_CASE("a token keeps its experts when a layer of floats is read into 16 bits or quantized") {
  const temporary_folder folder;
  const auto saved = folder / "moe.safetensors";
  for (const char* family : families) {
    INFO(family);
    put_model<float, float>(folder.path(), family);
    const auto wide = load_mixture(folder.path(), 0);
    save(wide, saved);
    check_same_experts(load<moe<bf16>>(saved, {.narrow = io::narrow}), wide);
    check_same_experts(load<moe<f16>>(saved, {.narrow = io::narrow}), wide);
    const auto check = [&]<class Q>(Q) {
      const auto small = quantize<Q>(wide);
      check_same_experts(small, wide);
      check_same_experts(quantize<Q>(load_mixture<bf16>(folder.path(), 0, {.narrow = io::narrow})),
                         wide);
      save(small, saved);
      check_same_experts(load<moe<Q>>(saved), wide);
      save(small, saved, {.type = dtype::float16});
      check_same_experts(load<moe<>>(saved), wide);
      const auto x = random<rows>({40, inputs}, 2);
      const auto dynamic_small = dynamic::layer(wide).quantize(detail::dtype_of<Q>);
      const auto a = dynamic_small.coefficients(dynamic::expression(x));
      CHECK(same_bits(evaluate(expr<float, 2>(a)), evaluate(wide.coefficients(x))));
    };
    check(q8());
    check(q8c());
  }
}

TEST_CASE("PEER of 8 bits has the experts that floats choose") {
  const auto x = random<rows>({200, inputs}, 1);
  peer<> layer;
  layer.scale = random<tensor<float, 1>>({inputs}, 2);
  layer.queries = random<rows>({inputs, 2 * 3 * 8}, 3);
  layer.keys = random<tensor<float, 4>>({3, 16, 2, 8}, 4);
  layer.down = random<rows>({256, inputs}, 5);
  layer.up = random<rows>({256, inputs}, 6);
  layer.active = 4;
  const auto expected = evaluate(layer.coefficients(x));
  CHECK(same_bits(evaluate(quantize<q8>(layer).coefficients(x)), expected));
  CHECK(same_bits(evaluate(quantize<q8c>(layer).coefficients(x)), expected));
}

TEST_CASE("a file whose router has 8 bits is loaded with the numbers that these stand for") {
  const temporary_folder folder;
  const auto saved = folder / "moe.safetensors";
  put_model<float, float>(folder.path(), "mixtral");
  const auto wide = load_mixture(folder.path(), 0);
  const auto router = quantized<q8>(wide.router, 0);
  io::layer_arrays made = io::arrays_of(quantize(wide), saved, {});
  auto [integers, scales] = io::arrays_of(detail::any_of(router));
  made.arrays.insert_or_assign("router", integers);
  made.arrays.insert_or_assign("router.scale", scales);
  io::safetensors::write(saved, made.arrays, made.metadata);
  std::vector<std::string> extra;
  const auto again = load<moe<q8>>(saved, {.extra = &extra});
  CHECK(extra.empty());
  const auto expected = widened(router);
  CHECK(numbers_of(again, "router") == std::vector(expected.begin(), expected.end()));
}

}  // namespace

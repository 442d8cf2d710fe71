// SPDX-License-Identifier: MIT
// The cfg.json that SAELens writes beside the tensors decides what they make, since an autoencoder
// and a transcoder have the same names.
#include <algorithm>
#include <filesystem>

#include <fmoe/evaluate.hpp>
#include <fmoe/io/checkpoint.hpp>
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

// y by the formula of SAELens, in double.
struct formula {
  bool subtracts = true;
  extent active = units;  // after ReLU
  bool skips = false;

  std::vector<double> of(const io::arrays_by_name& arrays, const rows& x) const {
    const auto encoder = arrays.at("W_enc").get<double, 2>(),
               decoder = arrays.at("W_dec").get<double, 2>();
    const auto b_enc = arrays.at("b_enc").get<double, 1>(),
               b_dec = arrays.at("b_dec").get<double, 1>();
    std::vector<double> y;
    for (extent t = 0; t < x.shape()[0]; ++t) {
      std::vector<double> hidden(units);
      for (extent h = 0; h < units; ++h) {
        hidden[h] = b_enc(h);
        for (extent i = 0; i < inputs; ++i)
          hidden[h] += (x(t, i) - (subtracts ? b_dec(i) : 0)) * encoder(i, h);
        hidden[h] = std::max(hidden[h], 0.0);
      }
      std::vector<double> sorted = hidden;
      std::ranges::sort(sorted, std::greater());
      for (double& v : hidden) v = v >= sorted[active - 1] ? v : 0;
      for (extent o = 0; o < inputs; ++o) {
        double sum = b_dec(o);
        for (extent h = 0; h < units; ++h) sum += hidden[h] * decoder(h, o);
        if (skips)
          for (extent i = 0; i < inputs; ++i)
            sum += x(t, i) * arrays.at("W_skip").get<double, 2>()(o, i);
        y.push_back(sum);
      }
    }
    return y;
  }
};

// The file of the tensors in the folder, and cfg.json beside it.
std::filesystem::path saved(const temporary_folder& folder, const io::arrays_by_name& arrays,
                            const std::string& config, const io::strings_by_name& metadata = {}) {
  io::safetensors::write(folder / "sae_weights.safetensors", arrays, metadata);
  put(folder / "cfg.json", config);
  return folder / "sae_weights.safetensors";
}

TEST_CASE("cfg.json of SAELens decides what the tensors make", "[io][saelens]") {
  const temporary_folder folder;
  const rows x = random<rows>({5, inputs}, 9);
  io::arrays_by_name arrays = saelens_arrays();
  const auto error_of = [&](const std::string& config, const formula& wanted) {
    const auto file = saved(folder, arrays, config);
    const auto y = evaluate(load<sparse_mlp<>>(file)(x));
    const auto again = evaluate(load<sparse_mlp<>>(io::checkpoint::open(file))(x));
    CHECK(std::ranges::equal(y, again));
    return relative_error(y.data(), wanted.of(arrays, x));
  };
  CHECK(error_of(R"({"architecture": "standard"})", {}) < 1e-6);
  CHECK(error_of(R"({"activation_fn_str": "relu"})", {}) <
        1e-6);  // version 3 names no architecture
  CHECK(error_of(R"({"architecture": "standard", "apply_b_dec_to_input": false})",
                 {.subtracts = false}) < 1e-6);
  CHECK(error_of(R"({"architecture": "topk", "k": 3})", {.active = 3}) < 1e-6);
  CHECK(error_of(R"({"architecture": "topk", "k": 3, "rescale_acts_by_decoder_norm": true})",
                 {.active = 3}) < 1e-6);
  CHECK(error_of(R"({"architecture": "transcoder"})", {.subtracts = false}) < 1e-6);
  arrays.emplace("W_skip", random<rows>({inputs, inputs}, 5));
  CHECK(error_of(R"({"architecture": "skip_transcoder"})", {.subtracts = false, .skips = true}) <
        1e-6);
  const io::error e = caught([&] { error_of(R"({"architecture": "transcoder"})", {}); });
  CHECK(e.code == errc::extra_tensor);
  CHECK(e.tensor == "W_skip");
}

TEST_CASE("what cfg.json says and fmoe does not compute is refused", "[io][saelens]") {
  const temporary_folder folder;
  io::arrays_by_name arrays = saelens_arrays();
  const auto refused = [&](const std::string& config, const io::strings_by_name& metadata = {}) {
    const auto file = saved(folder, arrays, config, metadata);
    return caught([&] { load<sparse_mlp<>>(file); });
  };
  for (const char* config :
       {R"({"architecture": "jumprelu"})",
        R"({"architecture": "standard", "activation_fn_str": "tanh-relu"})",
        R"({"architecture": "standard", "normalize_activations": "layer_norm"})",
        R"({"architecture": "transcoder", "apply_b_dec_to_input": true})"}) {
    INFO(config);
    const io::error e = refused(config);
    CHECK(e.code == errc::schema);
    CHECK(e.file == folder / "cfg.json");
  }
  CHECK(refused(R"({"architecture": "topk"})").code == errc::missing_setting);
  CHECK(refused(R"({"architecture": "topk", "k": 3})", {{"K", "4"}}).code == errc::conflict);
  CHECK(refused(R"({"architecture": "standard"})", {{"activation", "gelu"}}).code ==
        errc::conflict);
  CHECK(refused("{").code == errc::json);
  arrays.insert_or_assign("W_dec", random<rows>({units, inputs}, 3));
  const io::error e =
      refused(R"({"architecture": "topk", "k": 3, "rescale_acts_by_decoder_norm": true})");
  CHECK(e.code == errc::schema);
  CHECK(std::string(e.what()).find("fold_W_dec_norm") != std::string::npos);
}

TEST_CASE("a cfg.json of another library is passed over", "[io][saelens]") {
  const temporary_folder folder;
  const auto file = saved(folder, saelens_arrays(), R"({"k": 3})");
  CHECK(caught([&] { load<sparse_mlp<>>(file); }).code == errc::missing_setting);
  CHECK(load<sparse_mlp<>>(file, {.active = 3}).active == 3);
}

}  // namespace

// SPDX-License-Identifier: MIT
// The MLP of a real model and its trained replacements, on 2,048 rows that training did not use.
// ../shared/real is not part of the project; without it the test is skipped.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

#include <cmath>
#include <cstdint>
#include <set>

#include "support/catch.hpp"
#include "support/same_bits.hpp"
#include "support/skip.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

const std::filesystem::path real = "../shared/real";
const std::string no_real = "there is no " + real.string();

bool has_real() { return std::filesystem::exists(real / "minilm_l3_tokens.safetensors"); }

io::safetensors real_file(const char* name) {
  return io::safetensors::read(real / (std::string(name) + ".safetensors"));
}

struct deviation {
  double tensor = 0, row = 0;
};

// max |y - expected| / max |expected|, over the tensor and over the worst row.
template <class T, class U>
deviation deviation_of(const tensor<T, 2>& y, const tensor<U, 2>& expected) {
  REQUIRE(y.shape() == expected.shape());
  deviation result;
  double worst = 0, largest = 0;
  for (extent t = 0; t < y.shape()[0]; ++t) {
    double error = 0, norm = 0;
    for (extent o = 0; o < y.shape()[1]; ++o) {
      const double wanted = static_cast<double>(expected(t, o)),
                   off = std::abs(static_cast<double>(y(t, o)) - wanted);
      if (!(off <= error)) error = off;  // a NaN stays
      norm = std::max(norm, std::abs(wanted));
    }
    if (!(error / norm <= result.row)) result.row = error / norm;
    if (!(error <= worst)) worst = error;
    largest = std::max(largest, norm);
  }
  result.tensor = worst / largest;
  return result;
}

// The means of |y - t|^2 / |t|^2 and of |y - t|^2 / |t|.
template <class T>
std::pair<double, double> losses(const tensor<T, 2>& y, const tensor<float, 2>& target) {
  double relative = 0, loss = 0;
  for (extent t = 0; t < y.shape()[0]; ++t) {
    double missed = 0, whole = 0;
    for (extent o = 0; o < y.shape()[1]; ++o) {
      missed += std::pow(static_cast<double>(y(t, o)) - static_cast<double>(target(t, o)), 2);
      whole += std::pow(static_cast<double>(target(t, o)), 2);
    }
    relative += missed / whole;
    loss += missed / std::sqrt(whole);
  }
  const auto tokens = static_cast<double>(y.shape()[0]);
  return {relative / tokens, loss / tokens};
}

// Returns the number of rows whose nonzero coefficients are not those of the experts in `index`,
// [t, k].
template <class T>
extent rows_of_other_experts(const tensor<T, 2>& coefficients,
                             const std::vector<std::int64_t>& index) {
  const auto [tokens, experts] = coefficients.shape();
  const extent k = index.size() / tokens;
  extent rows = 0;
  for (extent t = 0; t < tokens; ++t) {
    const std::set<std::int64_t> wanted(index.begin() + static_cast<std::ptrdiff_t>(t * k),
                                        index.begin() + static_cast<std::ptrdiff_t>(t * k + k));
    std::set<std::int64_t> found;
    for (extent n = 0; n < experts; ++n)
      if (coefficients(t, n) != 0) found.insert(static_cast<std::int64_t>(n));
    rows += found != wanted;
  }
  return rows;
}

template <class T>
tensor<float, 2> compiled_output(const T& layer, const tensor<float, 2>& x, extent outputs) {
  tensor<float, 2> y({x.shape()[0], outputs});
  compile(layer, x.shape()[0])(x, y);
  return y;
}

TEST_CASE("a trained MxD in float is the authors' own") {
  if (!has_real()) return skip_case(no_real);
  const auto tokens = real_file("minilm_l3_tokens");
  const auto x = tokens.get<float, 2>("x"), target = tokens.get<float, 2>("target");
  REQUIRE(x.shape() == std::array<extent, 2>{2048, 384});
  std::vector<std::string> extra;
  const auto layer = load<mxd<>>(real / "minilm_l3_mxd.safetensors", {.extra = &extra});
  CHECK(extra.empty());
  CHECK(layer.active == 32);
  CHECK(layer.activation == pointwise::gelu);

  const auto y = evaluate(layer(x));
  const auto off = deviation_of(y, tokens.get<double, 2>("y64"));
  CAPTURE(off.tensor, off.row);
  CHECK(off.tensor <= 2e-6);
  CHECK(off.row <= 6e-6);
  CHECK(same_bits(compiled_output(layer, x, 384), y));
  CHECK(rows_of_other_experts(evaluate(layer.coefficients(x)),
                              tokens.integers<std::int64_t>("indices")) == 0);
  CHECK(std::abs(losses(y, target).first - 0.0667695406500661) < 1e-6);
}

TEST_CASE("a trained MxD in double is the authors' own") {
  if (!has_real()) return skip_case(no_real);
  const auto tokens = real_file("minilm_l3_tokens");
  const auto x = tokens.get<double, 2>("x");
  const auto layer = load<mxd<double>>(real / "minilm_l3_mxd.safetensors");
  CHECK(deviation_of(evaluate(layer(x)), tokens.get<double, 2>("y64")).tensor <= 1e-12);
  CHECK(rows_of_other_experts(evaluate(layer.coefficients(x)),
                              tokens.integers<std::int64_t>("indices")) == 0);
}

// The weights are widened when they are loaded or, in mxd<bf16>, in the kernels.
TEMPLATE_TEST_CASE("bf16 weights are computed with in float", "", float, bf16) {
  if (!has_real()) return skip_case(no_real);
  const auto tokens = real_file("minilm_l3_tokens");
  const auto x = tokens.get<float, 2>("x");
  const auto layer = load<mxd<TestType>>(real / "minilm_l3_mxd_bf16.safetensors");
  const auto y = evaluate(layer(x));
  const auto off = deviation_of(y, tokens.get<float, 2>("y_bf16"));
  CAPTURE(off.tensor, off.row);
  CHECK(off.tensor <= 2e-6);
  CHECK(off.row <= 6e-6);
  const auto coefficients = evaluate(layer.coefficients(x));
  CHECK(rows_of_other_experts(coefficients, tokens.integers<std::int64_t>("indices_bf16")) == 0);
  CHECK(rows_of_other_experts(coefficients, tokens.integers<std::int64_t>("indices")) > 0);
  CHECK(std::abs(losses(y, tokens.get<float, 2>("target")).first - 0.06679373716083532) < 1e-6);
}

TEST_CASE("trained transcoders are the authors' own") {
  if (!has_real()) return skip_case(no_real);
  const auto tokens = real_file("minilm_l3_tokens"),
             outputs = real_file("minilm_l3_transcoder_tokens");
  const auto x = tokens.get<float, 2>("x"), target = tokens.get<float, 2>("target");
  const auto check = [&](const char* weights, const std::string& name, double relative) {
    const auto layer = load<sparse_mlp<>>(real / weights);
    CHECK(layer.input_bias.empty());  // b_dec is there and unused
    const auto y = evaluate(layer(x));
    const auto off = deviation_of(y, outputs.get<double, 2>(name + ".y64"));
    CAPTURE(name, off.tensor, off.row);
    CHECK(off.tensor <= 2e-6);
    CHECK(off.row <= 6e-6);
    CHECK(same_bits(compiled_output(layer, x, 384), y));
    CHECK(rows_of_other_experts(evaluate(layer.coefficients(x)),
                                outputs.integers<std::int64_t>(name + ".indices")) == 0);
    CHECK(std::abs(losses(y, target).first - relative) < 1e-6);
  };
  check("minilm_l3_transcoder.safetensors", "transcoder", 0.19385905169010775);
  check("minilm_l3_skip_transcoder.safetensors", "skip", 0.14164167275595996);
}

}  // namespace

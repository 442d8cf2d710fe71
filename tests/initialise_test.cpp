// SPDX-License-Identifier: MIT
#include <fmoe/layers/initialise.hpp>

#include <cstring>

#include "support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

struct moments {
  double mean = 0, deviation = 0, least = 0, most = 0;
};

template <class T, std::size_t Rank>
moments moments_of(const tensor<T, Rank>& t) {
  moments m{0, 0, static_cast<double>(t.data()[0]), static_cast<double>(t.data()[0])};
  const double n = static_cast<double>(t.size());
  for (extent i = 0; i < t.size(); ++i) {
    const double x = static_cast<double>(t.data()[i]);
    m.mean += x / n;
    m.least = std::min(m.least, x);
    m.most = std::max(m.most, x);
  }
  for (extent i = 0; i < t.size(); ++i)
    m.deviation += std::pow(static_cast<double>(t.data()[i]) - m.mean, 2) / n;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

// Checks that the numbers are from U[-bound, bound].
template <class T, std::size_t Rank>
void check_uniform(const tensor<T, Rank>& t, double k) {
  const auto m = moments_of(t);
  const double bound = std::sqrt(k);
  CHECK(std::abs(m.mean) < 0.02 * bound);
  CHECK(std::abs(m.deviation - bound / std::sqrt(3.0)) < 0.01 * bound);
  CHECK(m.least >= -bound);
  CHECK(m.most <= bound);
  CHECK(m.most > 0.99 * bound);
}

TEST_CASE("CP: U[-sqrt k, sqrt k] for input and output, N(1, 1) and ones for the experts",
          "[initialise]") {
  const expert_sizes<2> sizes{{256, 2}, 100, 150};
  random_stream random(7);
  const auto e = initial_cp(sizes, 128, random);
  for (const auto* p : {&e.experts[0], &e.input, &e.output})
    CHECK_FALSE(p->shared_storage()->is_unwatched());  // they are packed once
  REQUIRE(e.input.shape() == std::array<extent, 2>{101, 128});
  REQUIRE(e.output.shape() == std::array<extent, 2>{150, 128});
  check_uniform(e.input, 1 / 100.);
  check_uniform(e.output, 1 / 128.);
  const auto first = moments_of(e.experts[0]), second = moments_of(e.experts[1]);
  CHECK(std::abs(first.mean - 1) < 0.02);
  CHECK(std::abs(first.deviation - 1) < 0.02);
  CHECK(second.least == 1);
  CHECK(second.most == 1);
  const auto gate = initial_gate(sizes);
  CHECK(moments_of(gate.projections[0]).deviation == 0);
  CHECK(gate.projections[1].shape() == std::array<extent, 2>{100, 2});
  CHECK(initial_cp(expert_sizes<1>{{4}, 10, 5, false}, 3, random).inputs() == 10);
}

TEST_CASE("a layer to train, as docs/mumoe.md makes it", "[initialise]") {
  constexpr extent seed = 1;
  const expert_sizes<2> sizes{{128, 2}, 768, 1000};
  random_stream random(seed);
  const cp_mumoe<2> layer{initial_gate(sizes), {}, initial_cp(sizes, 512, random)};
  CHECK(layer.gate.inputs() == 768);
  CHECK(layer.experts.outputs() == 1000);
}

TEST_CASE("tensor ring: diagonal slices, k = 1 / (R3 R1) for the output", "[initialise]") {
  const expert_sizes<2> sizes{{64, 3}, 50, 70};
  random_stream random(7);
  const auto e = initial_tr<double>(sizes, {16, 16, 8, 32}, random);
  check_uniform(e.input, 1 / 50.);
  check_uniform(e.output, 1 / (32. * 16));
  tensor<double, 1> diagonal({64 * 16});
  for (extent p = 0; p < 16; ++p)
    for (extent n = 0; n < 64; ++n)
      for (extent q = 0; q < 16; ++q) {
        if (p == q) diagonal(n * 16 + p) = e.experts[0](p, n, q);
        else CHECK(e.experts[0](p, n, q) == 0);
      }
  const auto m = moments_of(diagonal);
  CHECK(std::abs(m.mean - 1) < 0.1);
  CHECK(std::abs(m.deviation - 1) < 0.1);
  for (extent p = 0; p < 16; ++p)
    for (extent q = 0; q < 8; ++q) CHECK(e.experts[1](p, 2, q) == (p == q));
}

TEST_CASE("a seed gives the same bits, and layers that run", "[initialise]") {
  const expert_sizes<1> sizes{{3}, 2, 2};
  random_stream a(1), b(1), c(2);
  const auto x = initial_cp(sizes, 2, a), y = initial_cp(sizes, 2, b), z = initial_cp(sizes, 2, c);
  const auto same = [](const auto& l, const auto& r) {
    return std::memcmp(l.data(), r.data(), l.size() * sizeof(float)) == 0;
  };
  CHECK(same(x.input, y.input));
  CHECK(!same(x.input, z.input));
  CHECK(x.experts[0](0, 0) == 0x1.20c924p-1f);
  CHECK(x.experts[0](2, 1) == 0x1.bc7302p+0f);
  CHECK(x.input(0, 0) == 0x1.4e7a4ap-1f);
  CHECK(x.output(1, 1) == -0x1.23789ep-1f);

  const cp_mumoe<> layer{initial_gate(sizes), {}, x};
  const tensor<float, 2> in({1, 2}, std::array{1.f, 2.f});
  const auto weights = evaluate(layer.coefficients(in));
  for (extent n = 0; n < 3; ++n) CHECK(std::abs(weights(0, n) - 1.f / 3) < 1e-6f);
  CHECK(std::isfinite(evaluate(layer(in))(0, 0)));
}

TEMPLATE_TEST_CASE("weights of 16 bits are those of float, rounded", "[initialise]", bf16, f16) {
  const auto rounded = [](const auto& narrow, const auto& wide) {
    REQUIRE(narrow.shape() == wide.shape());
    return std::equal(narrow.data(), narrow.data() + narrow.size(), wide.data(),
                      [](TestType n, float w) { return n == TestType(w); });
  };
  const expert_sizes<1> sizes{{3}, 2, 4};
  const auto check = [&](auto make) {
    random_stream a(1), b(1);
    const auto narrow = make(TestType(), a);
    const auto wide = make(float(), b);
    CHECK(rounded(narrow.experts[0], wide.experts[0]));
    CHECK(rounded(narrow.input, wide.input));
    CHECK(rounded(narrow.output, wide.output));
  };
  check([&](auto type, random_stream& r) { return initial_cp<decltype(type)>(sizes, 2, r); });
  check(
      [&](auto type, random_stream& r) { return initial_tr<decltype(type)>(sizes, {2, 2, 2}, r); });
}

}  // namespace

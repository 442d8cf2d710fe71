// SPDX-License-Identifier: MIT
// Checks the numbers of MxD's Table 2 and of AoE's Eq. 5, as the layers themselves give them, and
// those of the mixtures that the papers compare with. No tensor here has elements.
#include <fmoe/aoe.hpp>
#include <fmoe/cost.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/mxd.hpp>

#include "support/catch.hpp"
#include "support/pages.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <std::size_t Rank>
parameter<float, Rank> w(const std::array<extent, Rank>& shape) {
  return tensor<float, Rank>(shape, std::make_shared<storage>(extent{0}));
}

cost_report cost_of(const auto& layer, extent inputs, extent tokens = 1) {
  return cost(layer(tensor<float, 2>(w<2>({tokens, inputs}))));
}

mxd<> mxd_of(extent i, extent h, extent n, bool glu) {
  mxd<> l;
  l.encoder = w<2>({i, h});
  l.encoder_bias = w<1>({h});
  if (glu) {
    l.linear = w<2>({i, h});
    l.linear_bias = w<1>({h});
    l.activation = pointwise::silu;
  }
  l.gate = w<2>({i, n});
  l.gate_bias = w<1>({n});
  l.scales = w<2>({n, i});
  l.decoder = w<2>({h, i});
  l.bias = w<1>({i});
  return l;
}

TEST_CASE("MxD's Table 2", "[mxd][cost]") {
  struct row {
    extent i, h, n;
    bool glu;
    double parameters, multiply_adds, naive;
  };
  const row rows[] = {
      {768, 3072, 21490, false, 37752562, 21247488, 50720134656},       // GPT-2: 37.7M
      {1024, 4096, 28658, false, 67113970, 37767168, 120233904128},     // Pythia-410m: 67.1M
      {2048, 8192, 57330, false, 268445682, 151031808, 961971982336},   // Pythia-1.4b: 268.4M
      {3072, 8202, 86015, true, 604171283, 339926016, 2167595363328}};  // Llama-3.2-3B: 604M
  for (const row& r : rows) {
    INFO("N " << r.n);
    const double i = static_cast<double>(r.i), h = static_cast<double>(r.h),
                 n = static_cast<double>(r.n), branches = r.glu ? 2 : 1;
    const cost_report c = cost_of(mxd_of(r.i, r.h, r.n, r.glu), r.i);
    CHECK(c.factorized.parameters == branches * (i * h + h) + i * n + n + n * i + h * i + i);
    CHECK(c.factorized.multiply_adds == branches * i * h + i * n + h * i + 32 * i);
    CHECK(c.naive_multiply_adds == n * h * i + i * n + branches * i * h);
    CHECK(c.factorized.parameters == r.parameters);
    CHECK(c.factorized.multiply_adds == r.multiply_adds);
    CHECK(c.naive_multiply_adds == r.naive);
  }
}

constexpr extent experts = 8, active = 2;

// Eq. 5: the width of an expert that gives AoE as many parameters as a mixture of experts of width
// `ffn`.
double width_of(double d, double ffn, double l) { return (3 * d * ffn - l * d) / (l + 2 * d); }

aoe<> aoe_of(extent d, extent l, extent width, extent n = experts) {
  aoe<> layer;
  layer.down = w<3>({d, n, l});
  layer.up = w<3>({n, l, width});
  layer.linear = w<3>({n, d, width});
  layer.output = w<3>({n, width, d});
  layer.route.active = active;
  return layer;
}

// W_g has rank l unless l is 0.
moe<> moe_of(extent d, extent width, extent n = experts, extent l = 0) {
  moe<> layer;
  layer.router = w<2>({d, n});
  if (l == 0) {
    layer.activated = w<3>({n, d, width});
  } else {
    layer.down = w<3>({d, n, l});
    layer.up = w<3>({n, l, width});
  }
  layer.linear = w<3>({n, d, width});
  layer.output = w<3>({n, width, d});
  layer.route.active = active;
  return layer;
}

TEST_CASE("AoE's Eq. 5", "[aoe][cost]") {
  CHECK(std::abs(width_of(1280, 5120, 400) - 6469.1892) < 1e-4);  // used as 6470
  CHECK(std::abs(width_of(768, 3072, 64) - 4392.96) < 1e-9);
  CHECK(std::abs(width_of(768, 3072, 128) - 4194.4615) < 1e-4);
  CHECK(width_of(768, 3072, 256) == 3840);
  CHECK(width_of(768, 3072, 512) == 3264);
  // AoE has as many parameters as the sparse mixture without its router, except for the rounding of
  // the width: for each expert the difference is less than the l + 2 d parameters of one unit.
  for (const extent l : {extent{64}, extent{128}, extent{256}, extent{512}}) {
    const auto width = static_cast<extent>(std::ceil(width_of(768, 3072, static_cast<double>(l))));
    const double more = cost_of(aoe_of(768, l, width), 768).factorized.parameters -
                        (cost_of(moe_of(768, 3072), 768).factorized.parameters - 768 * 8);
    CHECK(more >= 0);
    CHECK(more < 8 * static_cast<double>(l + 2 * 768));
    CHECK((l > 128) == (more == 0));
  }
}

// The router of the sparse mixture counts, too: without it the ratios would be 1.021, 1.042, 1.083
// and 1.167.
TEST_CASE("AoE's multiply-adds against those of a sparse mixture of its size", "[aoe][moe][cost]") {
  struct row {
    extent l, width;
    double multiply_adds, ratio;
  };
  const row rows[] = {{64, 4393, 14450816, 1.020},
                      {128, 4195, 14747392, 1.041},
                      {256, 3840, 15335424, 1.083},
                      {512, 3264, 16515072, 1.166}};
  const double sparse = cost_of(moe_of(768, 3072), 768).factorized.multiply_adds;
  CHECK(sparse == 768. * 8 + 2 * 3. * 768 * 3072);
  for (const row& r : rows) {
    INFO("l " << r.l);
    CHECK(static_cast<double>(r.width) == std::ceil(width_of(768, 3072, static_cast<double>(r.l))));
    const double l = static_cast<double>(r.l), width = static_cast<double>(r.width);
    const double found = cost_of(aoe_of(768, r.l, r.width), 768).factorized.multiply_adds;
    CHECK(found == 768. * 8 * l + 2 * (l * width + 2 * 768 * width));
    CHECK(found == r.multiply_adds);
    CHECK(std::abs(found / sparse - r.ratio) < 5e-4);
    // The cache is smaller than the hidden layer of one expert up to l = 256.
    CHECK((experts * r.l < r.width) == (r.l <= 256));
  }
}

TEST_CASE("the experts that are not chosen cost nothing but their scores", "[aoe][moe][cost]") {
  const double few = cost_of(aoe_of(768, 64, 4393), 768).factorized.multiply_adds;
  const double many = cost_of(aoe_of(768, 64, 4393, 64), 768).factorized.multiply_adds;
  CHECK(many - few == 768. * 56 * 64);
  CHECK(cost_of(moe_of(768, 3072, 64), 768).factorized.multiply_adds -
            cost_of(moe_of(768, 3072), 768).factorized.multiply_adds ==
        768. * 56);
  // One more chosen expert costs one expert more; a batch of any size costs the same for each
  // token.
  auto aoe_layer = aoe_of(768, 64, 4393);
  auto moe_layer = moe_of(768, 3072);
  const double sparse = cost_of(moe_layer, 768).factorized.multiply_adds;
  aoe_layer.route.active = moe_layer.route.active = 3;
  CHECK(cost_of(aoe_layer, 768).factorized.multiply_adds - few == 64. * 4393 + 2 * 768. * 4393);
  CHECK(cost_of(moe_layer, 768).factorized.multiply_adds - sparse == 3. * 768 * 3072);
  CHECK(cost_of(moe_layer, 768, 500).factorized.multiply_adds ==
        cost_of(moe_layer, 768).factorized.multiply_adds);
  // With all experts chosen, the cost is the naive figure and the weighted sum of the n outputs.
  aoe_layer.route.active = moe_layer.route.active = experts;
  const cost_report all_of_aoe = cost_of(aoe_layer, 768), all_of_moe = cost_of(moe_layer, 768);
  CHECK(all_of_aoe.factorized.multiply_adds == all_of_aoe.naive_multiply_adds + 8 * 768);
  CHECK(all_of_moe.factorized.multiply_adds == all_of_moe.naive_multiply_adds + 8 * 768);
}

TEST_CASE("the sparse mixture's own cost, with W_g of full and of low rank", "[moe][cost]") {
  constexpr double d = 768, n = 8, k = 2, width = 3072, l = 64;
  const cost_report full = cost_of(moe_of(768, 3072), 768),
                    low = cost_of(moe_of(768, 3072, 8, 64), 768);
  CHECK(full.factorized.parameters == d * n + n * 3 * d * width);
  CHECK(full.factorized.parameters == 56629248);
  CHECK(full.factorized.multiply_adds == d * n + k * 3 * d * width);
  CHECK(full.factorized.once == 0);
  CHECK(full.naive_multiply_adds == d * n + n * 3 * d * width);
  CHECK(low.factorized.parameters == d * n + n * (d * l + l * width + 2 * d * width));
  CHECK(low.factorized.multiply_adds == d * n + k * (d * l + l * width + 2 * d * width));
  CHECK(low.naive_multiply_adds == full.naive_multiply_adds);  // W_g materialised is of full rank
}

TEST_CASE("the dense mixture takes every expert of every token, weighted where a row is shorter",
          "[moe][cost]") {
  const auto dense = [](extent o) {
    soft_moe<> layer;
    layer.router = w<2>({768, 8});
    layer.experts = w<3>({8, 768, o});
    return cost_of(layer, 768);
  };
  CHECK(dense(1000).factorized.parameters == 8 * 768. * 1000 + 768 * 8);
  CHECK(dense(1000).naive_multiply_adds == 8 * 768. * 1000 + 768 * 8);
  CHECK(dense(1000).factorized.multiply_adds == dense(1000).naive_multiply_adds + 8 * 768);
  CHECK(dense(500).factorized.multiply_adds == dense(500).naive_multiply_adds + 8 * 500);
}

// Returns all lines but the first three, which have the machine, and the tile and the memory for
// it.
std::vector<std::string> plan_of(const auto& layer) {
  auto lines = test::lines_of(test::without_times(
      explain(layer(tensor<float, 2>(w<2>({30, 768}))), {.shape = plan_shape{}}).text));
  lines.erase(lines.begin(), lines.begin() + 3);
  return lines;
}

TEST_CASE("the pages of AoE and of the baselines show their plans", "[aoe][moe]") {
  const auto of_aoe = test::blocks_of("docs/aoe.md", ""),
             of_moe = test::blocks_of("docs/moe.md", "");
  REQUIRE((of_aoe.size() == 1 && of_moe.size() == 1));
  CHECK(of_aoe.front() == plan_of(aoe_of(768, 64, 4393)));
  CHECK(of_moe.front() == plan_of(moe_of(768, 3072)));
}

}  // namespace

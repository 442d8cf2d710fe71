// SPDX-License-Identifier: MIT
// Compiles layers with several results: each result has the bits that it has alone, wherever it is
// written.
#include <fmoe/expr/sized.hpp>
#include <fmoe/mxd.hpp>

#include "support/agree.hpp"
#include "support/allocations.hpp"
#include "support/autonomous.hpp"
#include "support/plans.hpp"
#include "support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 24, hidden = 200, experts = 300, outputs = 40, tokens = 150;

mxd<float> mixture() {
  mxd<float> l;
  l.encoder = random<parameter<float, 2>>({inputs, hidden}, 1, 0.3f);
  l.gate = random<parameter<float, 2>>({inputs, experts}, 2, 0.3f);
  l.scales = random<parameter<float, 2>>({experts, outputs}, 3);
  l.decoder = random<parameter<float, 2>>({hidden, outputs}, 4, 0.1f);
  l.active = 7;
  return l;
}

TEST_CASE("what a layer is made of, beside its output", "[several_results]") {
  const auto layer = mixture();
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 9);
  const auto parts = [&](const auto& in) {
    return std::tuple(layer(in), layer.coefficients(in), layer.hidden(in));
  };
  const auto forward = compile(parts, tokens);
  tensor<float, 2> y({tokens, outputs}), a({tokens, experts}), z({tokens, hidden});
  forward(x, y, a, z);
  CHECK(same_bits(y, evaluate(layer(x))));
  CHECK(same_bits(a, evaluate(layer.coefficients(x))));
  CHECK(same_bits(z, evaluate(layer.hidden(x))));
  CHECK(allocates_nothing([&] { forward(x, y, a, z); }));
}

TEST_CASE("experts of a group beside its output", "[several_results]") {
  const auto layer = autonomous<float>(inputs);
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 9);
  const auto forward = compile(
      [&](const auto& in) { return std::tuple(layer.cache(in), layer(in), layer.chosen(in)); },
      tokens);
  tensor<float, 3> cache({tokens, 6, 5});
  tensor<float, 2> y({tokens, inputs}), chosen({tokens, 6});
  forward(x, cache, y, chosen);
  CHECK(same_bits(cache, evaluate(layer.cache(x))));
  CHECK(same_bits(y, evaluate(layer(x))));
  CHECK(same_bits(chosen, evaluate(layer.chosen(x))));
}

TEST_CASE("one value twice, an argument and a constant are results, too", "[several_results]") {
  const auto x = random<tensor<float, 2>>({9, 4}, 1);
  const auto bias = random<parameter<float, 1>>({4}, 2);
  const auto forward = compile(
      [&](const auto& in) { return std::tuple(relu(in), in, relu(in), relu(in) + bias); }, 9);
  std::array<tensor<float, 2>, 4> y;
  for (auto& part : y) part = tensor<float, 2>({9, 4});
  forward(x, y[0], y[1], y[2], y[3]);
  CHECK(same_bits(y[0], evaluate(relu(x))));
  CHECK(same_bits(y[1], x));
  CHECK(same_bits(y[2], y[0]));
  CHECK(same_bits(y[3], evaluate(relu(x) + bias)));
}

TEST_CASE("results take no room in the arena", "[several_results]") {
  const auto both = [&](const auto& in) { return std::tuple(relu(sized(in, {all, 64})), 2 * in); };
  CHECK(plan_of<float>(both, arguments<2>{}, 9).arena == 0);
}

TEST_CASE("results behind a barrier", "[several_results]") {
  auto layer = autonomous<float>(inputs);
  layer.route.how = routing::by::expert_choice;
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 9);
  const auto forward = compile(
      [&](const auto& in) {
        return std::tuple(layer.scores(in), layer(in), layer.coefficients(in));
      },
      tokens);
  tensor<float, 2> scores({tokens, 6}), y({tokens, inputs}), a({tokens, 6});
  forward(x, scores, y, a);
  CHECK(same_bits(scores, evaluate(layer.scores(x))));
  CHECK(same_bits(y, evaluate(layer(x))));
  CHECK(same_bits(a, evaluate(layer.coefficients(x))));
}

TEST_CASE("twenty results", "[several_results]") {
  constexpr extent count = 20;
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 9);
  const auto scaled = [&](const auto& in) {
    return [&]<extent... I>(std::index_sequence<I...>) {
      return std::tuple(relu(static_cast<float>(I) * in)...);
    }(std::make_index_sequence<count>());
  };
  const auto forward =
      compile([&](const auto& in) { return scaled(sized(in, {all, inputs})); }, tokens);
  std::array<tensor<float, 2>, count> y;
  for (auto& part : y) part = tensor<float, 2>({tokens, inputs});
  std::apply([&](auto&... parts) { forward(x, parts...); }, y);
  const bool same = [&]<extent... I>(std::index_sequence<I...>) {
    return (same_bits(y[I], evaluate(std::get<I>(scaled(x)))) && ...);
  }(std::make_index_sequence<count>());
  CHECK(same);
  CHECK(allocates_nothing([&] { std::apply([&](auto&... parts) { forward(x, parts...); }, y); }));
}

template <extent Rank>
struct columns {  // column-major
  float* first;
  std::array<extent, Rank> lengths;
  std::array<extent, Rank> steps;
  float* data() const { return first; }
  const auto& shape() const { return lengths; }
  const auto& strides() const { return steps; }
};

TEST_CASE("each result has its own strides and leading axes, and is checked", "[several_results]") {
  const auto layer = mixture();
  const auto x = random<tensor<float, 2>>({30, inputs}, 9);
  const auto forward =
      compile([&](const auto& in) { return std::tuple(layer(in), layer.hidden(in)); }, 30);
  std::vector<float> across(30 * outputs);
  tensor<float, 3> z({5, 6, hidden});
  forward(x, columns<2>{across.data(), {30, outputs}, {1, 30}}, z);
  const auto y = evaluate(layer(x));
  bool same = true;
  for (extent t = 0; t < 30; ++t)
    for (extent o = 0; o < outputs; ++o) same &= across[o * 30 + t] == y(t, o);
  CHECK(same);
  CHECK(std::memcmp(z.data(), evaluate(layer.hidden(x)).data(), z.size() * sizeof(float)) == 0);

  std::vector<float> units_across(30 * hidden);
  forward(x, tensor<float, 2>({30, outputs}),
          columns<2>{units_across.data(), {30, hidden}, {1, 30}});
  for (extent t = 0; t < 30; ++t)
    for (extent h = 0; h < hidden; ++h)
      same &= units_across[h * 30 + t] == z.data()[t * hidden + h];
  CHECK(same);

  tensor<float, 2> out({30, outputs}), units({30, hidden});
  CHECK_THROWS_WITH(forward(x, out, tensor<float, 2>({30, hidden + 1})),
                    "[forward] axis 0 of the rows of output 1 is 201 and the layer's is 200");
  CHECK_THROWS_WITH(forward(x, out, tensor<float, 2>({29, hidden})),
                    "[forward] 't' is 29 in output 1 and 30 in output 0");
  CHECK_THROWS_WITH(forward(x, out, columns<2>{units.data(), {30, hidden}, {0, 1}}),
                    "[forward] an axis of output 1 has stride 0");
  std::vector<float> both(30 * (outputs + hidden));
  const columns<2> one{both.data(), {30, outputs}, {outputs, 1}},
      other{both.data() + 30 * outputs - 1, {30, hidden}, {hidden, 1}};
  CHECK_THROWS_WITH(forward(x, one, other), "[forward] output 1 overlaps output 0");
}

}  // namespace

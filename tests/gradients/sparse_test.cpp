// SPDX-License-Identifier: MIT
// Sparse gradients: the rows that tokens selected, with the bits of gradients that are not sparse.
#include <cmath>
#include <functional>
#include <map>

#include <fmoe/gradients.hpp>

#include <fmoe/mxd.hpp>
#include <fmoe/optimizers.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/reference.hpp>

#include "../support/allocations.hpp"
#include "../support/catch.hpp"
#include "../support/oracle.hpp"
#include "../support/same_bits.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 24, hidden = 20, experts = 700, tokens = 600;

const auto x = random<tensor<float, 2>>({tokens, inputs}, 8),
           dy = random<tensor<float, 2>>({tokens, inputs}, 9);

tensor<float, 2> some(const tensor<float, 2>& from, extent first, extent count) {
  const extent columns = from.shape()[1];
  return {{count, columns}, std::span<const float>(from.data() + first * columns, count * columns)};
}

// The gradient of the gate is one of columns, that of C one of rows.
template <class T = float>
mxd<T> decoders() {
  mxd<T> l;
  l.encoder = random<parameter<T, 2>>({inputs, hidden}, 1, 0.3f);
  l.gate = random<parameter<T, 2>>({inputs, experts}, 3, 0.3f);
  l.gate_bias = random<parameter<T, 1>>({experts}, 4, 0.3f);
  l.scales = random<parameter<T, 2>>({experts, inputs}, 5, 0.3f);
  l.decoder = random<parameter<T, 2>>({hidden, inputs}, 6, 0.3f);
  l.active = 2;
  return l;
}
peer<> retrieval(extent tables) {
  peer<> l;
  l.queries = random<parameter<float, 2>>({inputs, 2 * 2 * 6}, 1, 0.3f);
  l.keys = random<parameter<float, 4>>({2, 40, 2, 6}, 2, 0.3f);
  l.down = random<parameter<float, 2>>({tables * 1600, inputs}, 3, 0.3f);
  l.up = random<parameter<float, 2>>({tables * 1600, inputs}, 4, 0.3f);
  l.active = 3;
  return l;
}

// The gradients of a step by name, the sparse ones made whole.
template <class Step>
std::map<std::string, tensor<float, 2>> matrices(Step& step) {
  std::map<std::string, tensor<float, 2>> found;
  for (const auto& p : released_parameters(step.gradients())) {
    const any_tensor value = p.parameter.value();
    if (value.shape.size() != 2 || value.empty()) continue;
    const auto now = tensor_of<float, 2>(value);
    found.emplace(p.name.name,
                  tensor<float, 2>(now.shape(), std::span<const float>(now.data(), now.size())));
  }
  for (const auto& g : step.gradients().sparse) found.emplace(g.name(), g.template dense<2>());
  return found;
}

bool are_same(const std::map<std::string, tensor<float, 2>>& a,
              const std::map<std::string, tensor<float, 2>>& b) {
  return std::ranges::equal(a, b, [](const auto& one, const auto& other) {
    return one.first == other.first && same_bits(one.second, other.second);
  });
}

// Rows ascend, and only those that some token selected are there.
template <class T>
bool are_selected(const sparse_gradient<T>& g, const tensor<T, 2>& whole) {
  const auto rows = g.rows();
  if (std::ranges::adjacent_find(rows, std::greater_equal()) != rows.end()) return false;
  extent others = 0;
  for (extent n = 0; n < g.shape()[g.axis()]; ++n) {
    bool is_zero = true;
    for (extent i = 0; i < g.width(); ++i)
      is_zero = is_zero && (g.axis() == 0 ? whole(n, i) : whole(i, n)) == 0;
    others += !is_zero && !std::ranges::binary_search(rows, n);
  }
  return others == 0 && g.values().size() == rows.size() * g.width();
}

const std::vector<std::string> tables_of_mxd{"W_cond", "gate"};
const std::vector<std::string> tables_of_peer{"weight_down_embed.weight", "weight_up_embed.weight"};

template <class Gradients>
std::vector<std::string> sparse_names(const Gradients& g) {
  std::vector<std::string> names;
  for (const auto& s : g.sparse) names.push_back(s.name());
  std::ranges::sort(names);
  return names;
}

TEST_CASE("sparse gradients have the bits of dense ones, for any calls and threads",
          "[gradients]") {
  const auto check = [](const auto& layer, const std::vector<std::string>& names) {
    auto dense = compile_gradients(layer, tokens);
    tensor<float, 2> y({tokens, inputs}), dx({tokens, inputs}), few({40, inputs}),
        dx_of_few({40, inputs});
    dense(x, dy, y, dx);
    const auto expected = matrices(dense);
    dense(some(x, 0, 40), some(dy, 0, 40), few, dx_of_few);
    const auto expected_of_few = matrices(dense);
    for (const int threads : {1, 3})
      on_threads(threads, [&] {
        auto step = compile_gradients(layer, tokens, {.sparse_gradients = all});
        CHECK(sparse_names(step.gradients()) == names);
        for (const std::vector<extent>& counts :
             {std::vector<extent>{tokens}, {256, 344}, {256, 256, 88}}) {
          extent first = 0;
          for (const extent count : counts) {
            tensor<float, 2> y_of({count, inputs}), dx_of({count, inputs});
            step(some(x, first, count), some(dy, first, count), y_of, dx_of, first > 0);
            CHECK(same_bits(y_of, some(y, first, count)));
            first += count;
          }
          CHECK(are_same(matrices(step), expected));
          for (const auto& g : step.gradients().sparse)
            CHECK(are_selected(g, expected.at(g.name())));
        }
        step(some(x, 0, 40), some(dy, 0, 40), few, dx_of_few);
        CHECK(are_same(matrices(step), expected_of_few));
        for (const auto& g : step.gradients().sparse) {
          CHECK(g.rows().size() <= 40 * 6);
          CHECK(are_selected(g, expected_of_few.at(g.name())));
        }
      });
  };
  check(decoders(), tables_of_mxd);
  check(retrieval(1), tables_of_peer);
  check(retrieval(2), tables_of_peer);
}

TEST_CASE("a step lists its sparse gradients", "[gradients]") {
  const auto layer = retrieval(1);
  tensor<float, 2> y({tokens, inputs}), dx({tokens, inputs});
  std::string text;
  auto step = compile_gradients(layer, tokens, {.sparse_gradients = all});
  step(x, dy, y, dx);
  for (const sparse_gradient<float>& g : step.gradients().sparse)
    text += g.name() + ": " + std::to_string(g.rows().size()) + " rows\n";
  const std::string rows = std::to_string(step.gradients().sparse[0].rows().size()) + " rows\n";
  CHECK(text == tables_of_peer[0] + ": " + rows + tables_of_peer[1] + ": " + rows);
}

TEST_CASE("sparse gradients take memory for what a call can select, and a call none",
          "[gradients]") {
  const auto layer = decoders();
  auto step = compile_gradients(layer, 64, {.sparse_gradients = all});
  REQUIRE(step.gradients().sparse.size() == 2);
  for (const auto& g : step.gradients().sparse) {
    CHECK(g.room() == 64 * layer.active);
    CHECK(g.rows().empty());
  }
  CHECK(step.gradients().gate.empty());
  CHECK(step.gradients().scales.empty());
  CHECK(step.explain().text.find("only the selected") != std::string::npos);
  const auto in = some(x, 0, 64), others = some(x, 64, 64), slopes = some(dy, 0, 64);
  tensor<float, 2> y({64, inputs}), dx({64, inputs});
  CHECK(allocates_nothing([&] { step(in, slopes, y, dx); }));
  CHECK_THROWS_WITH(step(in, slopes, y, dx, true),
                    "[gradients] the sums of 128 tokens have rows for 64: say more in "
                    "sparse_gradients");
  auto longer = compile_gradients(layer, 64, {.sparse_gradients = 256});
  CHECK(longer.gradients().sparse[0].room() == 256 * layer.active);
  CHECK(allocates_nothing([&] {
    longer(in, slopes, y, dx);
    longer(others, slopes, y, dx, true);
  }));
  auto enough = compile_gradients(layer, 64, {.sparse_gradients = experts});
  for (int i = 0; i < 20; ++i) enough(in, slopes, y, dx, i > 0);
  CHECK(enough.gradients().sparse[0].room() == experts);
  const tensor<float, 2> none({0, inputs});
  tensor<float, 2> no_y({0, inputs}), no_dx({0, inputs});
  step(none, none, no_y, no_dx);
  CHECK(step.gradients().sparse[0].rows().empty());
}

TEST_CASE("what no token selects, and what other backends make, is not sparse", "[gradients]") {
  const auto count = [](const auto& layer, const compile_options& options) {
    return compile_gradients(layer, 64, options).gradients().sparse.size();
  };
  CHECK(count(decoders(), {}) == 0);
  CHECK(count(decoders(), {.on = reference(), .sparse_gradients = all}) == 0);
  auto dense = decoders();
  dense.active = all;
  CHECK(count(dense, {.sparse_gradients = all}) == 0);
  CHECK(gradients(decoders(), x, dy, {.sparse_gradients = all}).parameters.gate.size() ==
        inputs * experts);
}

// What an optimizer makes of a layer by the gradients of two batches of 40 tokens.
template <class Optimizer, class Layer>
Layer trained(Layer layer, const Optimizer& fresh, std::size_t sparse) {
  Optimizer optimizer = fresh;
  auto step = compile_gradients(layer, 40, {.sparse_gradients = sparse});
  tensor<float, 2> y({40, inputs}), dx({40, inputs});
  for (const extent first : {extent{0}, extent{40}, extent{0}}) {
    step(some(x, first, 40), some(dy, first, 40), y, dx);
    optimizer(layer, step.gradients());
    step.refresh();
  }
  return layer;
}

template <class Layer>
bool are_same(Layer a, Layer b) {
  const auto left = released_parameters(a), right = released_parameters(b);
  return std::ranges::equal(left, right, [](const auto& p, const auto& q) {
    const any_tensor v = p.parameter.value(), w = q.parameter.value();
    return v.empty() == w.empty() &&
           (v.empty() ||
            std::memcmp(v.elements->data(), w.elements->data(), v.numbers().bytes()) == 0);
  });
}

TEST_CASE("optimizers have the same bits with sparse gradients", "[gradients][optimizers]") {
  const auto check = [](const auto& optimizer) {
    for (const int threads : {1, 3})
      on_threads(threads, [&] {
        const auto is_same = [&](const auto& layer) {
          return are_same(trained(layer, optimizer, 0), trained(layer, optimizer, all));
        };
        CHECK(is_same(decoders()));
        CHECK(is_same(decoders<bf16>()));
        CHECK(is_same(retrieval(1)));
      });
  };
  check(sgd({.rate = 0.1}));
  check(sgd({.rate = 0.1, .lazy = true}));
  check(sgd({.rate = 0.1, .momentum = 0.9, .weight_decay = 0.1}));
  check(adam({.rate = 0.01}));
  check(adamw({.rate = 0.01}));
}

// Against AdamW in double, row by row: a row that a batch does not select stays as it is.
TEST_CASE("lazy optimizers leave the rows alone that no token selected",
          "[gradients][optimizers]") {
  auto layer = decoders();
  auto narrow = decoders<bf16>();
  auto step = compile_gradients(layer, 8, {.sparse_gradients = all});
  auto narrow_step = compile_gradients(narrow, 8, {.sparse_gradients = all});
  adamw optimizer({.rate = 0.01, .weight_decay = 0.1, .lazy = true}), of_narrow(optimizer);
  tensor<float, 2> y({8, inputs}), dx({8, inputs});
  std::map<std::string, tensor<double, 3>> expected;  // weights and averages
  const auto weights = [&](const std::string& name) -> const tensor<float, 2>& {
    return name == "gate" ? layer.gate : layer.scales;
  };
  for (const auto& g : step.gradients().sparse) {
    tensor<double, 3> all_of({3, g.shape()[0], g.shape()[1]});
    const auto& w = weights(g.name());
    std::copy_n(w.data(), w.size(), all_of.data());
    expected.emplace(g.name(), all_of);
  }
  const auto before = narrow;
  for (const extent t : {extent{1}, extent{2}, extent{3}}) {
    step(some(x, 8 * t, 8), some(dy, 8 * t, 8), y, dx);
    for (const auto& g : step.gradients().sparse) {
      auto& e = expected.at(g.name());
      for (extent p = 0; p < g.rows().size(); ++p)
        for (extent i = 0; i < g.width(); ++i) {
          const extent a = g.axis() == 0 ? g.rows()[p] : i, b = g.axis() == 0 ? i : g.rows()[p];
          const double slope = static_cast<double>(g.values()[p * g.width() + i]);
          double &w = e(0, a, b), &m = e(1, a, b), &v = e(2, a, b);
          m = 0.9 * m + 0.1 * slope;
          v = 0.999 * v + 0.001 * slope * slope;
          const auto power = static_cast<double>(t);
          w = w * (1 - 0.001) - 0.01 * m / (1 - std::pow(0.9, power)) /
                                    (std::sqrt(v / (1 - std::pow(0.999, power))) + 1e-8);
        }
    }
    optimizer(layer, step.gradients());
    step.refresh();
    narrow_step(some(x, 8 * t, 8), some(dy, 8 * t, 8), y, dx);
    of_narrow(narrow, narrow_step.gradients());
    narrow_step.refresh();
    if (t > 1) continue;
    const auto& columns =
        *std::ranges::find(narrow_step.gradients().sparse, "gate", &sparse_gradient<float>::name);
    for (extent n = 0; n < experts; ++n)
      for (extent i = 0; i < inputs; ++i)
        REQUIRE((std::as_const(narrow.gate)(i, n) == before.gate(i, n) ||
                 std::ranges::binary_search(columns.rows(), n)));
  }
  for (const auto& [name, e] : expected) {
    const auto& w = weights(name);
    for (extent i = 0; i < w.size(); ++i)
      REQUIRE(std::abs(static_cast<double>(w.data()[i]) - e.data()[i]) <= 2e-6);
  }
}

TEST_CASE("the global norm counts sparse gradients", "[gradients][optimizers]") {
  const auto layer = decoders();
  auto dense = compile_gradients(layer, tokens),
       step = compile_gradients(layer, tokens, {.sparse_gradients = all});
  tensor<float, 2> y({tokens, inputs}), dx({tokens, inputs});
  dense(x, dy, y, dx);
  step(x, dy, y, dx);
  const double norm = global_norm(dense.gradients());
  CHECK(std::abs(clip_norm(norm / 2, step.gradients()) / norm - 1) < 1e-12);
  CHECK(std::abs(global_norm(step.gradients()) / norm - 0.5) < 1e-6);
  const auto alone = static_cast<const mxd<>&>(step.gradients());
  CHECK_THROWS_WITH(sgd()(*std::make_unique<mxd<>>(layer), alone),
                    "[optimizer] gate has no gradient");
}

}  // namespace

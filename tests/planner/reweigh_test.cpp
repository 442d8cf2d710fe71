// SPDX-License-Identifier: MIT
// Selections of the same scores with different weightings: one selection, and the bits of several.
#include <fmoe/evaluate.hpp>
#include <fmoe/gradients.hpp>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"
#include "../support/plans.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// Every weighting of scores, some of which are 0, beside all others and alone.
template <class Select>
void check(const Select& select) {
  using enum weighting;
  const auto all = [&](auto... w) { return evaluate(std::tuple(select(w)...)); };
  const auto [by_score, by_softmax, by_all, by_one, by_relu] =
      all(score, softmax, softmax_of_all, one, relu);
  CHECK(same_bits(by_score, evaluate(select(score))));
  CHECK(same_bits(by_softmax, evaluate(select(softmax))));
  CHECK(same_bits(by_all, evaluate(select(softmax_of_all))));
  CHECK(same_bits(by_one, evaluate(select(one))));
  CHECK(same_bits(by_relu, evaluate(select(relu))));
}

TEST_CASE("selections that share their choice have the bits of selections alone", "[planner]") {
  auto x = random<tensor<float, 2>>({9, 70}, 1);
  for (extent i = 0; i < x.size(); i += 3) x.data()[i] = 0;
  std::fill_n(x.data(), 140, 0.f);  // two rows of zeros
  check([&](weighting w) { return top_k(x, 5, w); });
  check([&](weighting w) { return top_k(x, 60, w); });
  check([&](weighting w) { return top_p(x, 0.7, w); });
  check([&](weighting w) { return expert_choice(x, x, w); });
}

TEST_CASE("pairs of product keys that share their choice have the bits of pairs alone",
          "[planner]") {
  const auto lists = random<tensor<float, 4>>({5, 2, 2, 9}, 2);
  const auto select = [&](weighting w) { return product_top_k(lists, 6, 4, w); };
  const auto [by_softmax, by_score, by_one] = evaluate(
      std::tuple(select(weighting::softmax), select(weighting::score), select(weighting::one)));
  CHECK(same_bits(by_softmax, evaluate(select(weighting::softmax))));
  CHECK(same_bits(by_score, evaluate(select(weighting::score))));
  CHECK(same_bits(by_one, evaluate(select(weighting::one))));
}

TEST_CASE("selections of other scores or of other entries stay by themselves", "[planner]") {
  const auto selections = [](const auto& results) {
    ir::graph g;
    std::vector<ir::node_id> roots;
    std::apply([&](const auto&... e) { (roots.push_back(e.lower(g)), ...); }, results);
    const auto plan = describe(make_plan(g, ir::node_list(roots), 9, on_this_cpu<float>({})));
    return std::ranges::count_if(
        plan, [](const std::string& line) { return line.find("top_k") != std::string::npos; });
  };
  const auto x = random<tensor<float, 2>>({9, 70}, 1), z = random<tensor<float, 2>>({9, 70}, 2);
  CHECK(selections(std::tuple(top_k(x, 5), top_k(x, 5, weighting::one))) == 1);
  CHECK(selections(std::tuple(top_k(x, 5), top_k(z, 5, weighting::one))) == 2);
  CHECK(selections(std::tuple(top_k(x, 5), top_k(x, 6, weighting::one))) == 2);
}

// A kept score of 0 has a slope, too: a row of zeros, such as padding, keeps its first entries.
TEST_CASE("the gradient of a kept score of 0 is that of any other", "[planner]") {
  tensor<float, 2> x({2, 4});
  x(0, 2) = 1;
  const tensor<float, 2> dy({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto [y, dx] = evaluate(std::tuple(top_k(x, 2), gradient(top_k(x, 2), x, dy)));
  CHECK(same_bits(y, x));
  CHECK(std::ranges::equal(dx, std::vector<float>{1, 0, 3, 0, 5, 6, 0, 0}));
}

TEST_CASE("a screened selection with two weightings has the bits of one alone", "[planner]") {
  const auto gate = random<parameter<float, 2>>({64, 2048}, 1);
  auto x = random<tensor<float, 2>>({40, 64}, 3);
  std::fill_n(x.data(), 64, 0.f);
  const auto table = random<parameter<float, 2>>({2048, 24}, 2);
  const auto dy = random<tensor<float, 2>>({40, 24}, 4);
  const auto y = einsum<"tn,no->to">(top_k(einsum<"ti,in->tn">(x, gate), 8), table);
  const auto all = std::tuple(y, gradient(y, x, dy), gradient(y, gate, dy));
  const auto [screened, dx, dgate] = evaluate(all);
  compile_options plain;
  plain.screen = false;
  const auto [unscreened, plain_dx, plain_dgate] = evaluate(all, plain);
  CHECK(same_bits(screened, evaluate(y)));
  CHECK(same_bits(screened, unscreened));
  CHECK(same_bits(dx, plain_dx));
  CHECK(same_bits(dgate, plain_dgate));
}

}  // namespace

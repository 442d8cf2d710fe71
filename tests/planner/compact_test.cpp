// SPDX-License-Identifier: MIT
// Both passes of selected experts: which values have places of kept entries instead of experts,
// which stay dense, and that the numbers are those of the reference backend.
#include <fmoe/evaluate.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/reference.hpp>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"
#include "../support/plans.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent tokens = 40, inputs = 12, experts = 8, width = 20, outputs = 6, active = 2;

const auto x = random<tensor<float, 2>>({tokens, inputs}, 1),
           dy = random<tensor<float, 2>>({tokens, outputs}, 2);
const auto router = random<parameter<float, 2>>({inputs, experts}, 3);
const auto encoder = random<parameter<float, 3>>({experts, inputs, width}, 4),
           decoder = random<parameter<float, 3>>({experts, width, outputs}, 5);

auto scores() { return einsum<"ti,in->tn">(x, router); }
// Experts of one layer of hidden units with these coefficients.
auto mixture(const auto& a, const auto& f) {
  return einsum<"tn,tnw,nwo->to">(a, f(einsum<"ti,niw->tnw">(x, encoder)), decoder);
}
auto mixture(const auto& a) {
  return mixture(a, [](const auto& e) { return silu(e); });
}
auto gradients_of(const auto& y) {
  return std::tuple(y, gradient(y, x, dy), gradient(y, router, dy), gradient(y, encoder, dy),
                    gradient(y, decoder, dy));
}

planner::program program_of(const auto& results) {
  ir::graph g;
  std::vector<ir::node_id> roots;
  std::apply([&](const auto&... e) { (roots.push_back(e.lower(g)), ...); }, results);
  return make_program(g, ir::node_list(roots), on_this_cpu<float>({}));
}

template <class Kind>
extent count(const planner::program& p) {
  return static_cast<extent>(std::ranges::count_if(
      p.operations, [](const planner::operation& o) { return planner::is<Kind>(o); }));
}
// True if a value of each token has hidden units of every expert.
bool makes_all_experts(const planner::program& p) {
  return std::ranges::any_of(p.operations, [&](const planner::operation& o) {
    const planner::value& v = p[o.out.value];
    return v.per_token() && !v.selection && v.size() >= experts * width;
  });
}

// The numbers of the CPU are those of the reference backend, which makes all experts.
void check_numbers(const auto& results, double tolerance = 1e-5) {
  const auto made = evaluate(results), wanted = evaluate(results, {.on = reference()});
  const auto check = [&](const auto& a, const auto& b) {
    double worst = 0, largest = 0;
    for (extent i = 0; i < a.size(); ++i) {
      const double error = std::abs(static_cast<double>(a.data()[i]) - b.data()[i]);
      worst = std::isfinite(a.data()[i]) ? std::max(worst, error) : INFINITY;
      largest = std::max(largest, std::abs(static_cast<double>(b.data()[i])));
    }
    CAPTURE(worst, largest);
    CHECK(worst <= tolerance * largest);
  };
  [&]<extent... I>(std::index_sequence<I...>) {
    (check(std::get<I>(made), std::get<I>(wanted)), ...);
  }(std::make_index_sequence<std::tuple_size_v<std::remove_cvref_t<decltype(results)>>>());
}

TEST_CASE("values of both passes have places of kept entries", "[planner]") {
  for (const weighting w :
       {weighting::softmax, weighting::softmax_of_all, weighting::relu, weighting::score}) {
    INFO("weighting " << static_cast<int>(w));
    const auto y = mixture(top_k(scores(), active, w));
    const auto both = gradients_of(y);
    const planner::program p = program_of(both);
    for (const auto& o : p.operations) UNSCOPED_INFO(planner::text_of(p, o));
    check_numbers(both);
    if (w != weighting::score) {  // which leaves out entries of 0, so that places would differ
      CHECK_FALSE(makes_all_experts(p));
      CHECK(count<planner::expert_sum_op>(p) == 2);
      CHECK(count<planner::keep_op>(p) == 4);  // two products forward and two backward
      CHECK(count<planner::put_op>(p) == 0);
      CHECK(same_bits(std::get<0>(evaluate(both)), evaluate(y)));
    }
  }
}

TEST_CASE("the forward pass alone has no places: its experts are a group", "[planner]") {
  const planner::program p = program_of(std::tuple(mixture(top_k(scores(), active))));
  CHECK(count<planner::keep_op>(p) == 0);
  CHECK(count<planner::expert_sum_op>(p) == 0);
  CHECK(count<planner::put_op>(p) == 1);
}

TEST_CASE("a selection that keeps all experts is left as it is", "[planner]") {
  const auto both = gradients_of(mixture(top_k(scores(), experts, weighting::softmax)));
  const planner::program p = program_of(both);
  CHECK(makes_all_experts(p));
  CHECK(count<planner::expert_sum_op>(p) == 0);
  check_numbers(both);
}

TEST_CASE("hidden units that something else needs are made for every expert", "[planner]") {
  const auto hidden = silu(einsum<"ti,niw->tnw">(x, encoder));
  const auto y =
      einsum<"tn,tnw,nwo->to">(top_k(scores(), active, weighting::softmax), hidden, decoder);
  const auto results = std::tuple(y, gradient(y, encoder, dy), gradient(y, decoder, dy), hidden);
  CHECK(makes_all_experts(program_of(results)));
  check_numbers(results);
  CHECK(same_bits(std::get<0>(evaluate(results)), evaluate(y)));
}

// ReLU may keep fewer entries than there are places. What is infinite at 0 must not be computed
// for the places that a token does not use.
TEST_CASE("places that a token does not use stay finite", "[planner]") {
  const auto few = top_k(scores() - 1.0, active, weighting::relu);
  const auto log_of = [](const auto& e) { return log(abs(e)); };
  const auto inverse_of = [](const auto& e) { return 1.0 / (e * e + 0.5); };
  check_numbers(gradients_of(mixture(few, log_of)), 1e-3);  // 1 / e is great where e is small
  check_numbers(gradients_of(mixture(few, inverse_of)));
  check_numbers(gradients_of(mixture(few)));
}

TEST_CASE("coefficients may be results", "[planner]") {
  const auto a = top_k(scores(), active, weighting::softmax);
  const auto y = mixture(a);
  const auto results = std::tuple(y, a, gradient(y, router, dy), gradient(y, encoder, dy));
  check_numbers(results);
  const planner::program p = program_of(results);
  for (const auto& o : p.operations) UNSCOPED_INFO(planner::text_of(p, o));
  CHECK(count<planner::expert_sum_op>(p) == 1);
}

// [t, n, h] in which each head has its own experts; the pairs of product keys are selected.
TEST_CASE("numbers of heads have places, too", "[planner]") {
  constexpr extent heads = 2, list = 16;
  const auto keys = random<parameter<float, 4>>({heads, 2, list, inputs}, 6);
  const auto u = random<parameter<float, 2>>({list * list, inputs}, 7),
             v = random<parameter<float, 2>>({list * list, outputs}, 8);
  const auto w = product_top_k(einsum<"ti,hlsi->thls">(x, keys), 3, 3, weighting::softmax);
  const auto y = einsum<"the,te,eo->to">(w, gelu(einsum<"ti,ei->te">(x, u)), v);
  const auto results = std::tuple(y, gradient(y, x, dy), gradient(y, keys, dy), gradient(y, u, dy),
                                  gradient(y, v, dy));
  const planner::program p = program_of(results);
  for (const auto& o : p.operations) {
    INFO(planner::text_of(p, o));
    const planner::value& made = p[o.out.value];
    if (made.per_token() && !made.selection) CHECK(made.size() < list * list);
  }
  CHECK(count<planner::sample_op>(p) == 2);
  check_numbers(results);
  CHECK(same_bits(std::get<0>(evaluate(results)), evaluate(y)));
}

}  // namespace

// SPDX-License-Identifier: MIT
// The reference backend against the oracle and against the CPU, layer by layer.
#include <fmoe/explain.hpp>
#include <fmoe/expr/all_except.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/planner/program.hpp>
#include <fmoe/reference.hpp>

#include <optional>

#include "support/agree.hpp"
#include "support/autonomous.hpp"
#include "support/mixture.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

const compile_options by_reference{.on = reference()};

template <operand E>
bool agrees_in_double(const E& e) {
  const double error = error_of(e, by_reference);
  CAPTURE(error);
  const double tolerance = std::is_same_v<typename expression_t<E>::scalar, double> ? 1e-15 : 1e-7;
  CHECK(error <= tolerance);
  return error <= tolerance;
}

TEMPLATE_TEST_CASE("the reference runs every kind of operation", "[reference]", float, double) {
  using T = TestType;
  const auto x = random<tensor<T, 2>>({9, 12}, 1), y = random<tensor<T, 2>>({9, 12}, 2);
  const auto w = random<parameter<T, 2>>({12, 7}, 3), v = random<parameter<T, 2>>({7, 12}, 4);
  const auto bias = random<parameter<T, 1>>({7}, 5);
  agrees_in_double(gelu(einsum<"ti,io->to">(x, w) + bias));
  agrees_in_double(einsum<"ti,io,oj,tj->to">(x, w, v, y));
  agrees_in_double(concat<1>(softmax(x), entmax(y, 1.5), layer_norm(x), rms_norm(y)));
  agrees_in_double(einsum<"tn,no->to">(top_k(x, 3), w));
  agrees_in_double(einsum<"tn,no->to">(top_k(x, 3, weighting::softmax), w));
  agrees_in_double(top_p(x, 0.6, weighting::score) + nonzeros(relu(y)));
  agrees_in_double(expert_choice(x, x, weighting::softmax));
  agrees_in_double(einsum<"ti,tj->ij">(x, y));
  agrees_in_double(append_one(x));
  const std::vector<index_pair> pairs{{0, 1}, {5, 7}};
  agrees_in_double(einsum<"ti,tj,ij->tj">(x, y, all_except(pairs, 12, 12)));
}

TEST_CASE("experts that select themselves, on the reference", "[reference]") {
  const auto layer = autonomous<double>(24);
  agrees_in_double(layer(random<tensor<double, 2>>({31, 24}, 9)));
}

TEST_CASE("the reference compiles layers for calls of any size", "[reference]") {
  mxd<float> l;
  l.encoder = random<parameter<float, 2>>({12, 20}, 1);
  l.gate = random<parameter<float, 2>>({12, 40}, 2);
  l.scales = random<parameter<float, 2>>({40, 9}, 3);
  l.decoder = random<parameter<float, 2>>({20, 9}, 4);
  l.active = 5;
  const auto forward = compile(l, 16, by_reference);
  for (const extent tokens : {extent{16}, extent{3}, extent{0}}) {
    const auto x = random<tensor<float, 2>>({tokens, 12}, 7);
    tensor<float, 2> y({tokens, 9});
    forward(x, y);
    CHECK(relative_error(y.data(), test::reference(l(x))) <= 1e-7);
  }
}

TEST_CASE("explain names the backend and its machine", "[reference][explain]") {
  const auto x = random<tensor<float, 2>>({9, 12}, 1);
  const auto w = random<parameter<float, 2>>({12, 7}, 3);
  const std::string text = explain(relu(einsum<"ti,io->to">(x, w)), by_reference).text;
  INFO(text);
  CHECK(text.starts_with("reference, plain loops in double\n84 multiply-adds a token"));
  CHECK(text.find("  gemm  ti,io->to\n") != std::string::npos);
}

// A backend that runs no selection.
struct partial : backend {
  std::string name() const override { return "partial"; }
  fmoe::machine machine(dtype) const override { return {}; }
  std::optional<std::string> refusal(const planner::operation& o) const override {
    if (!is<planner::select_op>(o)) return {};
    return "selections do not run here";
  }

 private:
  std::unique_ptr<executable> compiled(const job&) const override { return nullptr; }
  description explained(const job&) const override { return {}; }
};

TEST_CASE("a backend says what it does not run, and where it is", "[reference]") {
  const auto x = random<tensor<float, 2>>({9, 12}, 1);
  CHECK_THROWS_WITH(evaluate(top_k(x, 3), {.on = std::make_shared<partial>()}),
                    "[partial] selections do not run here, in \"tb->tb\"");
}

}  // namespace

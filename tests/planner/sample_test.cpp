// SPDX-License-Identifier: MIT
#include <fmoe/planner/sample.hpp>

#include "../support/agree.hpp"
#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 21, experts = 3000, heads = 3, outputs = 18;

template <class T>
struct neurons {  // single-neuron experts, k of each head
  parameter<T, 3> keys = random<parameter<T, 3>>({inputs, heads, experts}, 1);
  parameter<T, 2> down = random<parameter<T, 2>>({experts, inputs}, 2),
                  up = random<parameter<T, 2>>({experts, outputs}, 3);
  parameter<T, 3> own_down = random<parameter<T, 3>>({heads, experts, inputs}, 4),
                  own_up = random<parameter<T, 3>>({heads, experts, outputs}, 5);

  auto chosen(const auto& x) const {
    return top_k(einsum<"td,dhe->the">(x, keys), 4, weighting::softmax);
  }
  auto shared(const auto& x) const {
    return einsum<"the,te,ed->td">(chosen(x), gelu(einsum<"td,ed->te">(x, down)), up);
  }
  auto separate(const auto& x) const {
    return einsum<"the,the,hed->td">(chosen(x), gelu(einsum<"td,hed->the">(x, own_down)), own_up);
  }
  auto one_head(const auto& x) const {
    const auto scores = einsum<"tde->te">(einsum<"td,dhe->tde">(x, keys));
    return einsum<"te,te,ed->td">(top_k(scores, 5), sigmoid(einsum<"td,ed->te">(x, down)), up);
  }
};

template <class E>
lines steps(const E& e) {
  ir::graph g;
  const ir::node_id y = e.lower(g);
  return describe(make_plan(g, y, 30, machine_options()));
}

TEMPLATE_TEST_CASE("only the numbers of selected experts are made", "[sample]", float, double) {
  const neurons<TestType> layer;
  const auto x = random<tensor<TestType, 2>>({20, inputs}, 7);
  CHECK(agrees(layer.shared(x)));
  CHECK(agrees(layer.separate(x)));
  CHECK(agrees(layer.one_head(x)));
  CHECK(steps(layer.shared(x)) == lines{"gemm td,dhe->the", "top_k the->the",
                                        "sample tAe,td,ed->tAe | gelu", "gather tae,ed->td"});
  CHECK(steps(layer.separate(x)) == lines{"gemm td,dhe->the", "top_k the->the",
                                          "sample the,td,hed->the | gelu", "gather the,hed->td"});
}

TEST_CASE("experts that are not few of many are made by one product", "[sample]") {
  const auto weight = random<parameter<float, 2>>({inputs, 40}, 1),
             down = random<parameter<float, 2>>({40, inputs}, 2);
  const auto x = random<tensor<float, 2>>({20, inputs}, 7);
  const auto y = einsum<"te,te,ed->td">(top_k(einsum<"td,de->te">(x, weight), 5),
                                        relu(einsum<"td,ed->te">(x, down)), down);
  CHECK(agrees(y));
  for (const std::string& line : steps(y)) CHECK(line.find("sample") == std::string::npos);
}

}  // namespace

// SPDX-License-Identifier: MIT
// Checks that a layer computes the same bits whether it is streamed or not.
#include <cstring>

#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>

#include "support/agree.hpp"
#include "support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent width = 24, tokens = 30, heads = 3, halves = 40, units = 6;

template <class T, std::size_t Rank>
void fill(parameter<T, Rank>& p, const std::array<extent, Rank>& shape, unsigned seed) {
  p = random<parameter<T, Rank>>(shape, seed, 0.4f);
}

// The steps that run in loops.
lines looped(const plan::step_plan& p) {
  lines r;
  for (const std::string& s : describe(p))
    if (s.starts_with("  ")) r.push_back(s.substr(2));
  return r;
}

template <class T, class Layer, class... X>
void check(const Layer& layer, auto ranks, const lines& in_loops, const X&... x) {
  planner::plan_options whole, streamed;
  whole.shape.streamed = extent{1} << 40;
  whole.sum_block = streamed.sum_block = 16;
  streamed.shape.streamed = 1;
  for (const extent chunk : {extent{1}, extent{20}}) {
    streamed.shape.chunk = chunk;
    CHECK(looped(plan_of<T>(layer, ranks, tokens, whole)).empty());
    CHECK(looped(plan_of<T>(layer, ranks, tokens, streamed)) == in_loops);
    const auto one = compile(layer, ranks, tokens, limited<T>(whole)),
               other = compile(layer, ranks, tokens, limited<T>(streamed));
    tensor<T, 2> y({tokens, width}), z({tokens, width});
    one(x..., y);
    other(x..., z);
    CHECK(std::memcmp(y.data(), z.data(), y.size() * sizeof(T)) == 0);
  }
}

TEMPLATE_TEST_CASE("Monet HD has the same bits in chunks", "[streamed]", float, double) {
  monet_hd<TestType> l;
  fill(l.encoder, {width, halves * units}, 1);
  fill(l.decoder, {halves * units, width}, 2);
  fill(l.bias, {halves, width}, 3);
  l.heads = heads;
  const auto g1 = random<tensor<TestType, 3>>({tokens, heads, halves}, 4),
             g2 = random<tensor<TestType, 3>>({tokens, heads, halves}, 5);
  check<TestType>(
      l, arguments<2, 3, 3>{},
      {"gemm td,dim->tim | squared_relu", "batched tpi,tim->tpm", "batched tpj,tpm->tjm",
       "gemm tjm,jmd->td +=", "batched tp,tpj->tj", "gemm tj,jd->td +="},
      random<tensor<TestType, 2>>({tokens, width}, 6), g1, g2);
}

TEMPLATE_TEST_CASE("Monet VD has the same bits in chunks", "[streamed]", float, double) {
  constexpr extent m = units / 2, half = width / 2;
  monet_vd<TestType> l;
  fill(l.encoder1, {width, halves * m}, 1);
  fill(l.encoder2, {width, halves * m}, 2);
  fill(l.decoder11, {halves * m, half}, 3);
  fill(l.decoder12, {halves * m, half}, 4);
  fill(l.decoder21, {halves * m, half}, 5);
  fill(l.decoder22, {halves * m, half}, 6);
  fill(l.bias1, {halves, half}, 7);
  fill(l.bias2, {halves, half}, 8);
  l.heads = heads;
  const auto g1 = random<tensor<TestType, 3>>({tokens, heads, halves}, 4),
             g2 = random<tensor<TestType, 3>>({tokens, heads, halves}, 5);
  check<TestType>(l, arguments<2, 3, 3>{},
                  {"gemm td,dim->tim | squared_relu", "batched tpj,tjm->tpm", "batched ts,tsm->tsm",
                   "gemm tsm,smo->to +=", "gemm td,dim->tim | squared_relu", "batched ts,tsm->tsm",
                   "gemm tsm,smo->to +=", "batched tpi,tim->tpm", "batched tpi,tpm->tim",
                   "gemm tsm,smo->to +=", "batched tpj,tpm->tjm", "gemm tsm,smo->to +="},
                  random<tensor<TestType, 2>>({tokens, width}, 6), g1, g2);
}

TEMPLATE_TEST_CASE("a tensor ring has the same bits in chunks", "[streamed]", float, double) {
  tr_mumoe<1, TestType> l;
  fill(l.gate.projections[0], {width, 9}, 1);
  fill(l.experts.experts[0], {3, 9, 4}, 2);
  fill(l.experts.input, {4, width, 64}, 3);
  fill(l.experts.output, {64, width, 3}, 4);
  check<TestType>(l, arguments<2>{}, {"gemm ti,qir->tqr", "batched tqp,tqr->tpr"},
                  random<tensor<TestType, 2>>({tokens, width}, 5));
}

}  // namespace

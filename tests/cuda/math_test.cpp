// SPDX-License-Identifier: MIT
// Arithmetic as a policy: what rounds, what never does, and that no tile and no split of a call
// changes a bit.
#include <fmoe/aoe.hpp>
#include <fmoe/cuda.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>

#include <sstream>

#include "../support/agree.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using cuda::math;

compile_options with(math how) {
  return {.on = cuda::emulated({.math = how, .order = cuda::thread_order::shuffled})};
}

TEST_CASE("each policy has its own error", "[cuda][math]") {
  const auto x = random<tensor<float, 2>>({21, 300}, 1);
  const auto w = random<parameter<float, 2>>({300, 140}, 2);
  const auto product = einsum<"ti,io->to">(x, w);
  const auto error = [&](math how) { return error_of(product, with(how)); };
  CHECK(same_bits(evaluate(product, with(math::exact)), evaluate(product, {.on = cuda::emulated()})));
  CHECK(error(math::exact) < 1e-6);
  CHECK(error(math::tf32x3) < 2e-6);
  CHECK((error(math::tf32) > 1e-5 && error(math::tf32) < 1e-3));
  CHECK((error(math::bf16) > 1e-4 && error(math::bf16) < 1e-2));
}

TEST_CASE("products of any sizes run on tensor cores, with batches, sums and passes",
          "[cuda][math]") {
  const auto near = [](const auto& e) {
    CHECK(error_of(e, with(math::tf32x3)) < 1e-6);
    CHECK(error_of(e, with(math::bf16)) < 2e-2);
  };
  for (const auto& [tokens, depth, columns] :
       {std::array<extent, 3>{1, 1, 1}, {5, 33, 131}, {17, 64, 4}, {3, 259, 24}}) {
    INFO(tokens << " tokens, " << depth << " by " << columns);
    const auto x = random<tensor<float, 2>>({tokens, depth}, 1);
    const auto w = random<parameter<float, 2>>({depth, columns}, 2);
    const auto bias = random<parameter<float, 1>>({columns}, 3);
    const auto other = random<tensor<float, 2>>({tokens, columns}, 4);
    near(gelu(einsum<"ti,io->to">(x, w) + bias) * other);
    near(einsum<"ti,io->to">(x, w) + einsum<"ti,io->to">(x + 1.0, w));
  }
  const auto heads = random<tensor<float, 3>>({6, 4, 30}, 1);
  near(einsum<"thi,hio->tho">(heads, random<parameter<float, 3>>({4, 30, 70}, 3)));
  near(einsum<"thi,oi->tho">(heads, random<parameter<float, 2>>({70, 30}, 4)));
}

// The tokens of x from `first` on.
tensor<float, 2> some(const tensor<float, 2>& x, extent first, extent count) {
  tensor<float, 2> y({count, x.shape()[1]});
  std::copy_n(x.data() + first * x.shape()[1], y.size(), y.data());
  return y;
}

TEST_CASE("no tile and no split of a call changes a bit", "[cuda][math]") {
  const extent width = 40;
  const auto x = random<tensor<float, 2>>({150, width}, 1);
  const auto w = random<parameter<float, 2>>({width, 2100}, 2);
  const auto gate = random<parameter<float, 2>>({width, 3}, 3);
  const auto first = random<parameter<float, 3>>({3, width, 33}, 4);
  const auto experts = [&](const auto& a) {
    return einsum<"tn,tnh->th">(top_k(einsum<"ti,in->tn">(a, gate), 2),
                                relu(einsum<"ti,nih->tnh">(a, first)));
  };
  for (const math how : {math::tf32x3, math::tf32, math::bf16}) {
    INFO(cuda::name_of(how));
    const auto check = [&](const auto& layer, extent tokens) {
      const auto all = evaluate(layer(x), with(how));
      for (extent at = 0; at < 150; at += tokens) {
        const extent count = std::min(tokens, 150 - at);
        CHECK(same_bits(evaluate(layer(some(x, at, count)), with(how)), some(all, at, count)));
      }
    };
    const auto wide = [&](const auto& a) {  // 150 tokens take tiles of 128 rows
      return einsum<"ti,io->to">(a, w);
    };
    check(wide, 70);
    check([&](const auto& a) { return experts(a); }, 47);
    check([&](const auto& a) { return experts(a); }, 9);
  }
}

TEST_CASE("blocks of a sum may have any length", "[cuda][math]") {
  const auto product = einsum<"ti,io->to">(random<tensor<float, 2>>({3, 100}, 1),
                                           random<parameter<float, 2>>({100, 40}, 2));
  for (const extent block : {extent{1}, extent{10}, extent{36}, extent{1000}}) {
    compile_options options = with(math::tf32x3);
    options.sum_block = block;
    CHECK(error_of(product, options) < 1e-6);
  }
}

}  // namespace

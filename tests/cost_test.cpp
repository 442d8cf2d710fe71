// SPDX-License-Identifier: MIT
// Checks costs that the papers print, exactly. Nothing is run, so no tensor here has elements.
#include <fmoe/cost.hpp>
#include <fmoe/mxd.hpp>

#include "support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <extent N>
using lengths = std::array<extent, N>;

template <std::size_t Rank>
tensor<float, Rank> x(const std::array<extent, Rank>& shape) {
  return {shape, std::make_shared<storage>(extent{0})};
}
template <std::size_t Rank>
parameter<float, Rank> w(const std::array<extent, Rank>& shape) {
  return x(shape);
}

mxd<> layer_of(extent i, extent h, extent n, extent o) {
  mxd<> l;
  l.encoder = w(lengths<2>{i, h});
  l.encoder_bias = w(lengths<1>{h});
  l.gate = w(lengths<2>{i, n});
  l.gate_bias = w(lengths<1>{n});
  l.scales = w(lengths<2>{n, o});
  l.decoder = w(lengths<2>{h, o});
  l.bias = w(lengths<1>{o});
  return l;
}

TEST_CASE("MxD of GPT-2's size", "[cost]") {
  const auto layer = layer_of(768, 3072, 21490, 768);
  const cost_report c = cost(layer(x(lengths<2>{1, 768})));
  CHECK(c.factorized.parameters == 37752562);
  CHECK(c.factorized.multiply_adds == 768. * 21490 + 768. * 3072 + 3072. * 768 + 32. * 768);
  CHECK(c.factorized.once == 0);
  CHECK(c.factorized.flops() == 2 * c.factorized.multiply_adds);
  CHECK(c.naive_multiply_adds == 21490. * 3072 * 768 + 768. * 21490 + 768. * 3072);
  // The naive plan keeps W: it makes the N H O numbers of W once.
  CHECK(c.naive.once == 21490. * 3072 * 768);
  CHECK(c.naive.parameters ==
        21490. * 3072 * 768 + 768. * 21490 + 21490 + 768. * 3072 + 3072 + 768);
  CHECK(cost(layer(x(lengths<2>{128, 768}))).factorized.multiply_adds ==
        c.factorized.multiply_adds);
}

TEST_CASE("K counts in a gather; without top-k every expert does", "[cost]") {
  auto layer = layer_of(768, 3072, 21490, 768);
  const auto base = cost(layer(x(lengths<2>{1, 768}))).factorized.multiply_adds;
  layer.active = 64;
  CHECK(cost(layer(x(lengths<2>{1, 768}))).factorized.multiply_adds == base + 32. * 768);
  layer.active = 0;
  CHECK(cost(layer(x(lengths<2>{1, 768}))).factorized.multiply_adds == base - 32. * 768);
  layer.active = all;
  CHECK(cost(layer(x(lengths<2>{1, 768}))).factorized.multiply_adds == base + (21490. - 32) * 768);
}

TEST_CASE("a dense mixture is its own materialised form", "[cost]") {
  const auto a = softmax(einsum<"ti,in->tn">(x(lengths<2>{1, 30}), w(lengths<2>{30, 20})));
  const auto c = cost(einsum<"tn,ti,nio->to">(a, x(lengths<2>{1, 30}), w(lengths<3>{20, 30, 40})));
  CHECK(c.naive.multiply_adds == c.factorized.multiply_adds);
  CHECK(c.naive_multiply_adds == 20. * 30 * 40 + 30. * 20);
  CHECK(c.naive.once == 0);
}

TEST_CASE("Hadamard products, sums of one operand, bias and functions are free", "[cost]") {
  const auto in = x(lengths<2>{5, 30});
  CHECK(cost(in * in).factorized.multiply_adds == 0);
  CHECK(cost(gelu(in + w(lengths<1>{30}))).factorized.multiply_adds == 0);
  CHECK(cost(gelu(in + w(lengths<1>{30}))).factorized.parameters == 30);
  CHECK(cost(einsum<"ti->t">(in)).factorized.multiply_adds == 0);
  CHECK(cost(softmax(in)).factorized.multiply_adds == 0);
  CHECK(cost(einsum<"ti,tj->tij">(in, in)).factorized.multiply_adds == 900);
  const auto p = w(lengths<2>{30, 40});
  const auto twice = einsum<"ti,io->to">(in, p) + einsum<"ti,io->to">(relu(in), p);
  CHECK(cost(twice).factorized.multiply_adds == 2 * 1200);
  CHECK(cost(twice).factorized.parameters == 1200);
}

TEST_CASE("bytes: weights once, of a gather the rows it can touch, and rows in and out", "[cost]") {
  const auto in = x(lengths<2>{5, 30});
  const auto p = w(lengths<2>{30, 40});
  CHECK(cost(einsum<"ti,io->to">(in, p)).factorized.bytes == 4. * (5 * 30 + 30 * 40 + 5 * 40));
  const parameter<bf16, 2> narrow(tensor<bf16, 2>({30, 40}, std::make_shared<storage>(extent{0})));
  CHECK(cost(einsum<"ti,io->to">(in, narrow)).factorized.bytes ==
        4. * (5 * 30 + 5 * 40) + 2. * 30 * 40);
  CHECK(cost(einsum<"ti,io->to">(top_k(in, 3), p)).factorized.bytes ==
        4. * (5 * 30 + 15 * 40 + 5 * 40));
  CHECK(cost(einsum<"ti,io->to">(top_k(in, 20), p)).factorized.bytes ==
        4. * (5 * 30 + 30 * 40 + 5 * 40));
  const tensor<double, 2> wide({5, 30}, std::make_shared<storage>(extent{0}));
  CHECK(cost(einsum<"ti,io->to">(wide, p)).factorized.bytes == 8. * (5 * 30 + 30 * 40 + 5 * 40));
}

TEST_CASE("beside an argument tensors count as parameters do", "[cost]") {
  const argument<0, 2> in(1);
  const auto of = [&](const auto& encoder, const auto& gate, const auto& scales,
                      const auto& decoder) {
    const auto z = gelu(einsum<"ti,ih->th">(in, encoder));
    const auto a = top_k(relu(einsum<"ti,in->tn">(in, gate)), 4);
    return cost(einsum<"tn,no,th,ho->to">(a, scales, z, decoder));
  };
  const auto plain = of(x(lengths<2>{30, 50}), x(lengths<2>{30, 70}), x(lengths<2>{70, 20}),
                        x(lengths<2>{50, 20}));
  const auto own = of(w(lengths<2>{30, 50}), w(lengths<2>{30, 70}), w(lengths<2>{70, 20}),
                      w(lengths<2>{50, 20}));
  CHECK(plain.naive_multiply_adds == 70. * 50 * 20 + 30. * 70 + 30. * 50);
  CHECK(plain.naive_multiply_adds == own.naive_multiply_adds);
  CHECK(plain.naive.parameters == own.naive.parameters);
  CHECK(plain.naive.parameters > plain.factorized.parameters);
  CHECK(plain.factorized.parameters == own.factorized.parameters);
}

TEST_CASE("a parameter that is the input counts as an input", "[cost]") {
  const auto layer = layer_of(768, 3072, 21490, 768);
  const auto same = [](const cost_figures& a, const cost_figures& b) {
    return a.multiply_adds == b.multiply_adds && a.parameters == b.parameters && a.once == b.once &&
           a.bytes == b.bytes;
  };
  const cost_report of_tensor = cost(layer(x(lengths<2>{128, 768}))),
                    of_parameter = cost(layer(w(lengths<2>{128, 768})));
  CHECK(same(of_parameter.factorized, of_tensor.factorized));
  CHECK(same(of_parameter.naive, of_tensor.naive));
  CHECK(of_parameter.naive_multiply_adds == of_tensor.naive_multiply_adds);

  // Rows of parameters beside other rows, as those of positions.
  const auto in = x(lengths<2>{5, 30}), positions = x(lengths<2>{5, 30});
  const auto p = w(lengths<2>{30, 40});
  CHECK(same(cost(einsum<"ti,io->to">(in + w(lengths<2>{5, 30}), p)).factorized,
             cost(einsum<"ti,io->to">(in + positions, p)).factorized));

  // A result of weights alone, beside an input that it does not have.
  const auto square = w(lengths<2>{30, 30});
  CHECK(cost(einsum<"ti,ij,jo->ot">(in, square, p)).factorized.parameters == 900 + 1200);
  CHECK(cost(einsum<"ti,oi->ot">(in, w(lengths<2>{40, 30}))).factorized.parameters == 1200);
}

TEST_CASE("a sum over tokens and a shape that does not fit", "[cost]") {
  const auto in = x(lengths<2>{5, 30});
  CHECK(cost(einsum<"ti,tj->ij">(in, in)).factorized.multiply_adds == 900);
  CHECK_THROWS_AS(cost(einsum<"ti,io->to">(in, w(lengths<2>{31, 40}))), shape_error);
  CHECK_THROWS_AS(cost(top_k(in, 31)), value_error);
}

}  // namespace

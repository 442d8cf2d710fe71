// SPDX-License-Identifier: MIT
// docs/guide.md quotes this code and its output. With a folder as its argument the program writes
// the drawings of the guide to that folder, for scripts/plot_diagrams.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <vector>

#include <fmoe/cost.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/optimizers.hpp>
#include <fmoe/quantize.hpp>

using namespace fmoe;

void first_einsum() {
  const tensor<float, 2> x({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});  // 2 tokens of 3 numbers
  const tensor<float, 2> w({3, 2}, std::vector<float>{1, 0, 0, 1, 1, 1});
  const tensor<float, 2> y = evaluate(einsum<"ti,io->to">(x, w));
  std::cout << y(0, 0) << ' ' << y(0, 1) << '\n' << y(1, 0) << ' ' << y(1, 1) << '\n';
}

void lazy_expressions() {
  const tensor<float, 2> x({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 8});
  const tensor<float, 2> w({3, 2}, std::vector<float>{1, -1, 0, 0, -1, 1});
  const auto hidden = relu(einsum<"ti,ih->th">(x, w));         // nothing is computed
  const auto y = hidden * hidden + 0.5;                        // nor here
  const tensor<float, 1> sums = evaluate(einsum<"th->t">(y));  // but here
  std::cout << sums(0) << ' ' << sums(1) << '\n';
}

void mistakes() {
  const tensor<float, 2> x({2, 3}), w({4, 2});
  try {
    evaluate(einsum<"ti,io->to">(x, w));
  } catch (const shape_error& error) {
    std::cout << error.what() << '\n';
  }
}

// These weights have no meaning: they are the same small numbers on every machine.
template <std::size_t Rank>
parameter<float, Rank> weights(const std::array<std::size_t, Rank>& shape) {
  tensor<float, Rank> w(shape);
  for (std::size_t i = 0; i < w.size(); ++i)
    w.data()[i] = static_cast<float>(i * 2654435761u % 1024) / 8192 - 0.0625f;
  return w;
}

// A mixture of decoders with 512 experts; expert n decodes with D diag(c_n).
const auto G = weights<2>({64, 512});  // the gate
const auto E = weights<2>({64, 256});  // the encoder
const auto C = weights<2>({512, 64});  // row n is c_n
const auto D = weights<2>({256, 64});  // the decoder

auto mixture(const operand_of<2> auto& x) {
  const auto a = top_k(relu(einsum<"ti,in->tn">(x, G)), 8);
  const auto z = gelu(einsum<"ti,ih->th">(x, E));
  return einsum<"tn,no,th,ho->to">(a, C, z, D);
}

void look_at_it() {
  const tensor<float, 2> x = weights<2>({16, 64});
  std::cout << explain(mixture(x));
}

void count_it() {
  const tensor<float, 2> x = weights<2>({16, 64});
  const cost_report work = cost(mixture(x));
  std::printf("%.0f multiply-adds a token, naive %.0f\n", work.factorized.multiply_adds,
              work.naive_multiply_adds);
}

void select() {
  const tensor<float, 2> scores({1, 4}, std::vector<float>{0.5, 3, -1, 2});
  const auto kept = evaluate(top_k(scores, 2));
  const auto mixed = evaluate(top_k(scores, 2, weighting::softmax));
  for (std::size_t n = 0; n < 4; ++n) std::cout << kept(0, n) << ' ';
  for (std::size_t n = 0; n < 4; ++n) std::cout << std::round(100 * mixed(0, n)) << "% ";
  std::cout << '\n';
}

void compile_it() {
  const auto forward =
      compile([](const auto& x) { return mixture(x); }, 1024);  // for up to 1,024 tokens a call
  const tensor<float, 2> x = weights<2>({16, 64});
  const auto made = forward(x);  // a tensor of its own
  tensor<float, 2> y({16, 64});
  forward(x, y);  // allocates nothing

  const auto once = evaluate(mixture(x));
  const bool same = std::ranges::equal(y, once) && std::ranges::equal(made, once);
  std::cout << (same ? "the same bits\n" : "other bits\n");
}

void read_weights() {
  const auto layer = load<mxd<>>("examples/data/minilm_l3_mxd_bf16.safetensors");
  const auto rows = io::safetensors::read("examples/data/minilm_l3_rows.safetensors");
  const auto y = evaluate(layer(rows.get<float, 2>("x")));
  std::cout << layer.gate.shape()[1] << " experts, " << layer.active << " active; " << y.shape()[0]
            << " x " << y.shape()[1] << '\n';
  std::vector<std::string> left_out;  // receives names of tensors
  const load_options options{.active = 32, .activation = pointwise::gelu, .extra = &left_out};
  const auto as_told = load<mxd<>>("examples/data/minilm_l3_mxd_bf16.safetensors", options);
  const mxd<q8> small = quantize(layer);
  const auto x = rows.get<float, 2>("x");
  std::cout << explain(small(x)).memory.weights << " bytes of weights in place of "
            << explain(layer(x)).memory.weights << '\n';
}

void fine_tune() {
  auto tuned = load<mxd<>>("examples/data/minilm_l3_mxd_bf16.safetensors");
  const auto pairs = io::safetensors::read("examples/data/minilm_l3_rows.safetensors");
  const auto x = pairs.get<float, 2>("x"), target = pairs.get<float, 2>("target");
  tensor<float, 2> y(target.shape()), dx(x.shape());
  const auto slope = [](const auto& made, const auto& wanted) { return (made - wanted) / 256; };
  auto step = compile_gradients(tuned, 256, slope);
  adamw optimizer({.rate = 1e-4, .weight_decay = 0});
  for (int i = 0; i < 5; ++i) {
    step(x, target, y, dx);
    clip_norm(1.0, step.gradients());
    optimizer(tuned, step.gradients());
    step.refresh();
  }

  const auto error = [&](const mxd<>& layer) {
    const auto missed = layer(x) - target;
    return evaluate(einsum<"to,to->t">(missed, missed));
  };
  const auto before = error(load<mxd<>>("examples/data/minilm_l3_mxd_bf16.safetensors")),
             after = error(tuned);
  std::cout << (std::accumulate(after.begin(), after.end(), 0.f) <
                        std::accumulate(before.begin(), before.end(), 0.f)
                    ? "a smaller error\n"
                    : "no smaller error\n");
}

void draw(const std::filesystem::path& folder) {
  const explanation drawn = explain(mixture(tensor<float, 2>({16, 64})));
  std::ofstream(folder / "mixture_graph.dot") << drawn.graph;
  std::ofstream(folder / "mixture_plan.dot") << drawn.dot;
}

int main(int argc, char** argv) {
  if (argc > 1) {
    draw(argv[1]);
    return 0;
  }
  for (const auto part : {first_einsum, lazy_expressions, mistakes, look_at_it, count_it, select,
                          compile_it, read_weights, fine_tune})
    part();
}

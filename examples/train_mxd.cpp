// SPDX-License-Identifier: MIT
// Trains an MxD, a transcoder and a skip transcoder (Oldfield et al. 2025, Sec. 3.1) to replace an
// MLP, from the authors' initial weights, with their loss, mean |y - t|^2 / |t|, and with a random
// K (their Sec. C.2). docs/training.md shows what it measured.
//
// Call: train_mxd [--rows FILE --mlp FILE] [--held-out FILE] [--experts 4096] [--hidden 1536]
//                 [--steps N] [--kind mxd|transcoder|skip_transcoder] [--checkpoints FOLDER]
//
// FILE has the inputs of the MLP, x [t, i], and its outputs, target [t, o], or --mlp holds the
// MLP's weights, which compute them. Without arguments a small layer learns from examples/data.
// A run that finds a checkpoint goes on with it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/optimizers.hpp>

#include "training.hpp"

using namespace fmoe;

struct pairs {
  tensor<float, 2> x, target;
};

// The MLP that is replaced: gelu(x W1' + b1) W2' + b2.
struct dense_mlp {
  parameter<float, 2> up, down;  // h i, o h
  parameter<float, 1> up_bias, down_bias;

  auto operator()(const operand_of<2> auto& x) const {
    const auto z = gelu(einsum<"ti,hi->th">(x, up) + up_bias);
    return einsum<"th,oh->to">(z, down) + down_bias;
  }
  static dense_mlp read(const std::string& file) {
    const auto weights = io::safetensors::read(file);
    dense_mlp mlp;
    for (const io::array& a : weights.arrays()) {
      const bool is_up = a.name().find("intermediate") != std::string::npos;
      if (a.shape().size() == 2) (is_up ? mlp.up : mlp.down) = a.get<float, 2>();
      else (is_up ? mlp.up_bias : mlp.down_bias) = a.get<float, 1>();
    }
    return mlp;
  }
};

// Returns the rows [first, first + count) of a matrix.
tensor<float, 2> part(const tensor<float, 2>& all, std::size_t first, std::size_t count) {
  const std::size_t width = all.shape()[1];
  return {{count, width}, std::span(all.data() + first * width, count * width)};
}

tensor<float, 1> mean_row(const tensor<float, 2>& all) {
  return evaluate(einsum<"to->o">(all) / static_cast<double>(all.shape()[0]));
}

// The initial weights of torch.nn.Linear with so many inputs, U[-1/sqrt(inputs), 1/sqrt(inputs)].
parameter<float, 2> linear(std::size_t rows, std::size_t columns, std::size_t inputs,
                           random_stream& random) {
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  tensor<float, 2> w({rows, columns});
  for (float& v : w) v = static_cast<float>(random.uniform() * bound);
  return w;
}

// The authors' initial weights: the decoder of an MxD and of a skip transcoder is 0, and the output
// bias is the mean target (Sec. 3.1).
mxd<> initial_mxd(const pairs& rows, std::size_t hidden, std::size_t experts) {
  random_stream random(1);
  const std::size_t i = rows.x.shape()[1], o = rows.target.shape()[1];
  mxd<> l;
  l.encoder = linear(i, hidden, i, random);
  l.encoder_bias = tensor<float, 1>({hidden});
  l.gate = linear(i, experts, i, random);
  l.gate_bias = tensor<float, 1>({experts});
  l.scales = linear(experts, o, experts, random);
  l.decoder = tensor<float, 2>({hidden, o});
  l.bias = mean_row(rows.target);
  return l;
}
sparse_mlp<> initial_transcoder(const pairs& rows, std::size_t units, bool skips) {
  random_stream random(1);
  const std::size_t i = rows.x.shape()[1], o = rows.target.shape()[1];
  sparse_mlp<> l;
  l.encoder = linear(i, units, i, random);
  l.encoder_bias = tensor<float, 1>({units});
  l.decoder = skips ? parameter<float, 2>({units, o}) : linear(units, o, units, random);
  if (skips) l.skip = tensor<float, 2>({i, o});
  l.bias = mean_row(rows.target);
  return l;
}

// mean |y - t|^2 / |t|^p.
double error_of(const tensor<float, 2>& y, const tensor<float, 2>& target, double p) {
  const auto missed = evaluate(einsum<"to,to->t">(y - target, y - target)),
             whole = evaluate(einsum<"to,to->t">(target, target));
  double sum = 0;
  for (std::size_t t = 0; t < whole.size(); ++t)
    sum += static_cast<double>(missed(t)) / std::pow(static_cast<double>(whole(t)), p / 2);
  return sum / static_cast<double>(whole.size());
}

struct settings {
  std::size_t steps, batch, active;
  double rate;
  std::string checkpoints;
};

// Trains a layer and prints how it does on rows that it never sees.
template <class Layer>
void train(const std::string& name, Layer layer, const pairs& rows, const pairs& held_out,
           const settings& s, double error_of_mean) {
  const std::size_t inputs = rows.x.shape()[1], outputs = rows.target.shape()[1],
                    several = std::max<std::size_t>(s.steps / 20, 1);
  // The gradient of the loss: 2 (y - t) / |t|, over the tokens.
  const auto slope = [&](const auto& y, const auto& t) {
    return einsum<"to,t->to">((2.0 / static_cast<double>(s.batch)) * (y - t),
                              1 / norm(row_norm::l2, t));
  };
  const training::checkpoints saved(s.checkpoints, name);
  adamw optimizer({.rate = s.rate, .weight_decay = 0});
  saved.resume(layer, optimizer);
  const std::size_t first = optimizer.steps();

  layer.active = 3 * s.active / 2;  // the largest K of a step
  auto step = compile_gradients(layer, s.batch, slope);
  layer.active = s.active;

  tensor<float, 2> x({s.batch, inputs}), target({s.batch, outputs}), y(target.shape()),
      dx(x.shape());
  const training::progress bar(name, first, s.steps);
  for (std::size_t i = first; i < s.steps; ++i) {
    auto random = training::drawn(7, i);
    auto* const to_x = x.data();
    auto* const to_target = target.data();
    for (std::size_t t = 0; t < s.batch; ++t) {
      const std::size_t row = training::below(rows.x.shape()[0], random);
      training::copy_row(rows.x, row, to_x + t * inputs);
      training::copy_row(rows.target, row, to_target + t * outputs);
    }
    step.keep(s.active / 2 + training::below(s.active + 1, random));
    step.refresh();
    step(x, target, y, dx);
    optimizer.options.rate = training::warmed_up(s.rate, i, s.steps);
    optimizer(layer, step.gradients());
    if ((i + 1) % several != 0 && i + 1 != s.steps) continue;
    const auto made = evaluate(layer(held_out.x));
    const double paper = error_of(made, held_out.target, 1),
                 relative = error_of(made, held_out.target, 2);
    bar.report(i + 1, "held out " + std::to_string(relative));
    std::printf("| %s | %zu | %.3f | %.3f | %.3f | %.0f |\n", name.c_str(), i + 1,
                error_of(y, target, 1), paper, relative, bar.seconds());
    std::fflush(stdout);
    saved.save(layer, optimizer);
  }
  const double last = error_of(evaluate(layer(held_out.x)), held_out.target, 2);
  std::printf("%s: %s the mean target\n", name.c_str(),
              last < error_of_mean ? "closer than" : "not closer than");
}

int main(int argc, char** argv) {
  const auto given = [&](const char* option, const char* otherwise) {
    return training::argument(argc, argv, option, otherwise);
  };
  const auto number = [&](const char* option, const char* otherwise) {
    return static_cast<std::size_t>(std::stoull(given(option, otherwise)));
  };
  const std::string file = given("--rows", "examples/data/minilm_l3_rows.safetensors"),
                    mlp = given("--mlp", ""), held = given("--held-out", "");
  const bool is_small = held.empty();
  const auto read = io::safetensors::read(file);
  pairs rows{read.get<float, 2>("x"), {}}, held_out;
  rows.target = mlp.empty() ? read.get<float, 2>("target") : evaluate(dense_mlp::read(mlp)(rows.x));
  if (is_small) {  // the last quarter of the rows
    const std::size_t count = rows.x.shape()[0], kept = 3 * count / 4;
    held_out = {part(rows.x, kept, count - kept), part(rows.target, kept, count - kept)};
    rows = {part(rows.x, 0, kept), part(rows.target, 0, kept)};
  } else {
    const auto other = io::safetensors::read(held);
    held_out = {other.get<float, 2>("x"), other.get<float, 2>("target")};
  }
  const std::size_t hidden = number("--hidden", is_small ? "128" : "1536"),
                    experts = number("--experts", is_small ? "256" : "4096");
  const settings s{number("--steps", is_small ? "40" : "1000"),
                   is_small ? std::size_t{64} : std::size_t{1024},
                   is_small ? std::size_t{8} : std::size_t{32}, is_small ? 3e-3 : 1e-3,
                   given("--checkpoints", "")};

  const std::size_t i = rows.x.shape()[1];
  // Units of the transcoders, for as many parameters as the MxD has.
  const std::size_t units = (2 * i * hidden + (2 * i + 1) * experts + hidden) / (2 * i + 1),
                    skipped = units - i * i / (2 * i + 1);
  std::printf("%zu rows, %zu held out; %zu experts and %zu hidden units, %zu units, %zu units\n",
              rows.x.shape()[0], held_out.x.shape()[0], experts, hidden, units, skipped);
  tensor<float, 2> constant(held_out.target.shape());
  const auto mean = mean_row(rows.target);
  for (std::size_t t = 0; t < constant.shape()[0]; ++t)
    for (std::size_t o = 0; o < mean.size(); ++o) constant(t, o) = mean(o);
  const double error_of_mean = error_of(constant, held_out.target, 2);
  std::printf("the mean target alone: %.3f\n", error_of_mean);
  std::puts("| layer | steps | loss | held-out loss | held-out mean abs(y-t)^2/abs(t)^2 | s |");
  std::puts("|---|---|---|---|---|---|");
  const std::string kind = given("--kind", "");
  if (kind.empty() || kind == "mxd")
    train("mxd", initial_mxd(rows, hidden, experts), rows, held_out, s, error_of_mean);
  if (kind.empty() || kind == "transcoder")
    train("transcoder", initial_transcoder(rows, units, false), rows, held_out, s, error_of_mean);
  if (kind.empty() || kind == "skip_transcoder")
    train("skip_transcoder", initial_transcoder(rows, skipped, true), rows, held_out, s,
          error_of_mean);
}

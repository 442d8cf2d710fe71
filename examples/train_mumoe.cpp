// SPDX-License-Identifier: MIT
// Trains classifiers of images: a hidden layer, and behind it a muMoE (Oldfield et al. 2024), CP or
// a tensor ring, for several numbers of experts. Beside them are networks of dense layers with as
// many parameters. Then it ablates each expert and prints how far the experts are from serving one
// class (their Eq. 4). docs/training_mumoe.md shows what it measured.
//
// Call: train_mumoe [--images FILE] [--kind cp|tr|dense] [--experts N] [--hidden 256] [--rank 128]
//                   [--steps N] [--seed 1] [--checkpoints FOLDER]
//
// FILE is from scripts/make_training_glyphs: train.x and held_out.x [t, i], train.class and
// held_out.class [t]. Without it the images are stripes that the program draws. A run that finds a
// checkpoint goes on with it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include <fmoe/analysis.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/layers/initialise.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/optimizers.hpp>

#include "training.hpp"

using namespace fmoe;

struct images {
  tensor<float, 2> x;                // t i
  std::vector<std::int64_t> labels;  // the class of each, counted from 0

  static images read(const io::safetensors& file, const std::string& part) {
    return {file.get<float, 2>(part + ".x"), file.at(part + ".class").integers<std::int64_t>()};
  }
  // Stripes of 8 directions, each at a random place and with noise: 12 x 12 numbers.
  static images drawn(std::size_t count, std::size_t seed) {
    auto random = training::drawn(seed, 0);
    images all{tensor<float, 2>({count, 144}), std::vector<std::int64_t>(count)};
    for (std::size_t t = 0; t < count; ++t) {
      const double angle = std::numbers::pi / 8 * static_cast<double>(all.labels[t] = t % 8),
                   phase = std::numbers::pi * random.uniform();
      for (std::size_t i = 0; i < 144; ++i)
        all.x(t, i) =
            static_cast<float>(std::cos(std::cos(angle) * static_cast<double>(i % 12) +
                                        std::sin(angle) * static_cast<double>(i / 12) + phase) +
                               random.uniform() / 2);
    }
    return all;
  }
};

struct dense {
  parameter<float, 2> weight;  // i o
  parameter<float, 1> bias;    // o

  auto operator()(const operand_of<2> auto& x) const {
    return einsum<"ti,io->to">(x, weight) + bias;
  }

  static void released(auto& layer, auto&& visit) {
    visit(released_name{"weight", presence::required, "io"}, layer.weight);
    visit(released_name{"bias", presence::required, "o"}, layer.bias);
  }
  // The initial weights of torch.nn.Linear.
  static dense initial(std::size_t inputs, std::size_t outputs, random_stream& random) {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    tensor<float, 2> weight({inputs, outputs});
    tensor<float, 1> bias({outputs});
    for (float& w : weight) w = static_cast<float>(random.uniform() * bound);
    for (float& b : bias) b = static_cast<float>(random.uniform() * bound);
    return {weight, bias};
  }
};

// A hidden layer with ReLU, and the layer `last` that gives a score for each class.
template <class Last>
struct network {
  dense hidden;
  Last last;

  auto features(const operand_of<2> auto& x) const { return relu(hidden(x)); }
  auto operator()(const operand_of<2> auto& x) const { return last(features(x)); }

  static void released(auto& n, auto&& visit) {
    n.hidden.released(n.hidden, detail::released_within("hidden.", visit, ""));
    n.last.released(n.last, visit);
  }
  static void describe(auto& n, auto& file) {
    if constexpr (requires { n.last.gate; }) n.last.describe(n.last, file);
  }
};

// A muMoE with the authors' initial weights, and batch norm as they have it for images.
template <class Experts>
mumoe<Experts> with_gate(const expert_sizes<1>& sizes, const Experts& experts) {
  mumoe<Experts> layer{initial_gate(sizes), {}, experts};
  tensor<float, 1> means(sizes.experts), variances(sizes.experts);
  std::ranges::fill(variances, 1.f);
  layer.gate.means = {means};
  layer.gate.variances = {variances};
  return layer;
}

struct settings {
  std::size_t steps, batch, classes, seed;
  double rate;
  std::string checkpoints;
};

// The share of right answers for each class; the last number is that of all images.
std::vector<double> accuracies(const tensor<float, 2>& y, const std::vector<std::int64_t>& labels) {
  const std::size_t classes = y.shape()[1];
  std::vector<double> right(classes + 1), count(classes + 1);
  for (std::size_t t = 0; t < labels.size(); ++t) {
    const float* const row = y.data() + t * classes;
    const auto label = static_cast<std::size_t>(labels[t]);
    const bool is_right = std::max_element(row, row + classes) == row + label;
    for (const std::size_t c : {label, classes}) {
      ++count[c];
      right[c] += is_right;
    }
  }
  for (std::size_t c = 0; c <= classes; ++c) right[c] /= std::max(count[c], 1.0);
  return right;
}

// mean -log softmax(y) of the right class.
double cross_entropy(const tensor<float, 2>& y, const tensor<float, 2>& target) {
  const std::size_t count = y.shape()[0];
  double sum = 0;
  for (std::size_t t = 0; t < count; ++t) {
    double most = -INFINITY, all = 0, right = 0;
    for (std::size_t c = 0; c < y.shape()[1]; ++c)
      most = std::max(most, static_cast<double>(y(t, c)));
    for (std::size_t c = 0; c < y.shape()[1]; ++c) {
      all += std::exp(static_cast<double>(y(t, c)) - most);
      right += static_cast<double>(y(t, c) * target(t, c));
    }
    sum += most + std::log(all) - right;
  }
  return sum / static_cast<double>(count);
}

// What each expert does, as the cells of a table: how many experts change the accuracy of a class
// when they are ablated, and means over these experts: Eq. 4, the largest loss max d of a class,
// and its share in the losses of all classes.
std::string specialisation(const auto& network, const images& held_out) {
  if constexpr (requires { network.last.gate; }) {
    const auto features = evaluate(network.features(held_out.x));
    const auto of = [&](const auto& layer) {
      auto right = accuracies(evaluate(layer(features)), held_out.labels);
      right.pop_back();
      return right;
    };
    const auto before = of(network.last);
    std::vector<std::vector<double>> changed;
    double most = 0, share = 0;
    for (std::size_t n = 0; n < network.last.gate.experts()[0]; ++n) {
      const auto d = accuracy_loss(before, of(ablated(network.last, {n})));
      double all = 0;
      for (const double v : d) all += std::abs(v);
      if (all == 0) continue;
      changed.push_back(d);
      most += std::ranges::max(d);
      share += std::ranges::max(d) / all;
    }
    const auto count = static_cast<double>(changed.size());
    std::array<char, 100> cells{};
    if (count > 0)
      std::snprintf(cells.data(), cells.size(), "%.0f | %.3f | %.3f | %.3f", count,
                    mean_polysemanticity(changed), most / count, share / count);
    return cells.data();
  }
  return "| | |";
}

template <class Last>
void train(const std::string& name, network<Last> layer, const images& rows, const images& held_out,
           const settings& s, std::size_t parameters) {
  constexpr bool has_gate = requires { layer.last.gate; };
  const std::size_t inputs = rows.x.shape()[1], several = std::max<std::size_t>(s.steps / 10, 1);
  const training::checkpoints saved(s.checkpoints, name);
  adamw optimizer({.rate = s.rate, .weight_decay = 1e-4});
  saved.resume(layer, optimizer);
  const std::size_t first = optimizer.steps();

  // The gradient of the mean cross entropy.
  const auto slope = [&](const auto& y, const auto& target) {
    return (softmax(y) - target) / static_cast<double>(s.batch);
  };
  const auto training_is = [&](bool yes) {
    if constexpr (has_gate) layer.last.gate.training = yes;
  };
  training_is(true);  // batch norm takes the statistics of the batch
  auto step = compile_gradients(layer, s.batch, slope);
  training_is(false);

  tensor<float, 2> x({s.batch, inputs}), target({s.batch, s.classes}), y(target.shape()),
      dx(x.shape());
  const training::progress bar(name, first, s.steps);
  const auto accuracy = [&] {
    return accuracies(evaluate(layer(held_out.x)), held_out.labels).back();
  };
  for (std::size_t i = first; i < s.steps; ++i) {
    auto random = training::drawn(s.seed, i);
    std::ranges::fill(target, 0.f);
    for (std::size_t t = 0; t < s.batch; ++t) {
      const std::size_t row = training::below(rows.x.shape()[0], random);
      training::copy_row(rows.x, row, x.data() + t * inputs);
      target(t, static_cast<std::size_t>(rows.labels[row])) = 1;
    }
    step.refresh();
    step(x, target, y, dx);
    if constexpr (has_gate) update_statistics(layer.last.gate, layer.features(x));
    optimizer.options.rate = training::warmed_up(s.rate, i, s.steps);
    optimizer(layer, step.gradients());
    if ((i + 1) % several != 0 && i + 1 != s.steps) continue;
    const double right = accuracy();
    bar.report(i + 1, "held out " + std::to_string(right));
    std::printf("| %s | %zu | %.3f | %.4f | %.0f |\n", name.c_str(), i + 1,
                cross_entropy(y, target), right, bar.seconds());
    std::fflush(stdout);
    saved.save(layer, optimizer);
  }
  std::puts(
      "| network | parameters | held-out accuracy | experts that matter | Eq. 4 | max d | its "
      "share |");
  std::puts("|---|---|---|---|---|---|---|");
  std::printf("| %s | %zu | %.4f | %s |\n", name.c_str(), parameters, accuracy(),
              specialisation(layer, held_out).c_str());
  std::printf("%s: %s half of the held-out images are right\n", name.c_str(),
              accuracy() > 0.5 ? "more than" : "at most");
}

int main(int argc, char** argv) {
  const auto given = [&](const char* option, const char* otherwise) {
    return training::argument(argc, argv, option, otherwise);
  };
  const auto number = [&](const char* option, const char* otherwise) {
    return static_cast<std::size_t>(std::stoull(given(option, otherwise)));
  };
  const std::string file = given("--images", ""), kind = given("--kind", "");
  const bool is_small = file.empty();
  const auto of = [&](const std::string& part, std::size_t count, std::size_t seed) {
    return is_small ? images::drawn(count, seed) : images::read(io::safetensors::read(file), part);
  };
  const images rows = of("train", 2048, 1), held_out = of("held_out", 512, 2);
  const auto classes = static_cast<std::size_t>(std::ranges::max(rows.labels)) + 1;
  const settings s{number("--steps", is_small ? "100" : "6000"),
                   is_small ? 64u : 256u,
                   classes,
                   number("--seed", "1"),
                   is_small ? 3e-3 : 1e-3,
                   given("--checkpoints", "")};
  const std::size_t i = rows.x.shape()[1], hidden = number("--hidden", is_small ? "32" : "256"),
                    rank = number("--rank", is_small ? "16" : "128"),
                    n = number("--experts", is_small ? "8" : "64");

  // The muMoE's gate and experts, with a bias row; the tensor ring and the dense network have as
  // many parameters as CP has.
  const std::size_t cp = rank * (n + hidden + 1 + classes),
                    ring = (cp - 16 * n) / (4 * (hidden + 1 + classes)),
                    all = (i + 1) * hidden + hidden * n + cp,
                    wide = (all - classes) / (i + 1 + classes);
  std::printf(
      "%zu images, %zu held out, %zu classes; CP of rank %zu, a ring of ranks 4, 4, %zu, "
      "%zu dense hidden units\n",
      rows.labels.size(), held_out.labels.size(), classes, rank, ring, wide);
  std::puts("| network | steps | loss | held-out accuracy | s |\n|---|---|---|---|---|");
  const expert_sizes<1> sizes{{n}, hidden, classes};
  const auto name = [&](const char* network) {
    return network + std::string("_") + std::to_string(n);
  };
  const auto start = [&](const char* network, const auto& make) {
    random_stream random(s.seed);
    if (kind.empty() || kind == network) train(name(network), make(random), rows, held_out, s, all);
  };
  start("cp", [&](random_stream& random) {
    const auto first = dense::initial(i, hidden, random);
    return network<cp_mumoe<>>{first, with_gate(sizes, initial_cp(sizes, rank, random))};
  });
  start("tr", [&](random_stream& random) {
    const auto first = dense::initial(i, hidden, random);
    return network<tr_mumoe<>>{first, with_gate(sizes, initial_tr(sizes, {4, 4, ring}, random))};
  });
  start("dense", [&](random_stream& random) {
    const auto first = dense::initial(i, wide, random);
    return network<dense>{first, dense::initial(wide, classes, random)};
  });
}

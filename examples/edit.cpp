// SPDX-License-Identifier: MIT
// This program takes an expert out of a trained mixture of decoders, steers the mixture towards
// another expert, and measures how the output changes.
#include <cmath>
#include <cstdio>
#include <numeric>

#include <fmoe/analysis.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/io/safetensors.hpp>

using namespace fmoe;

// |a - b|_2 of each row.
std::vector<double> distances(const tensor<float, 2>& a, const tensor<float, 2>& b) {
  const auto squares = evaluate(einsum<"to,to->t">(a - b, a - b));
  std::vector<double> d(squares.size());
  std::ranges::transform(std::span(squares.data(), squares.size()), d.data(),
                         [](float s) { return std::sqrt(s); });
  return d;
}

int main(int argc, char** argv) {
  const std::filesystem::path data = argc > 1 ? argv[1] : "examples/data";
  const auto layer = load<mxd<>>(data / "minilm_l3_mxd_bf16.safetensors");
  const auto x = io::safetensors::read(data / "minilm_l3_rows.safetensors").get<float, 2>("x");
  const std::size_t tokens = x.shape()[0], outputs = layer.bias.shape()[0],
                    experts = expert_count(layer);

  // To see more than the output of a layer, compile a function that returns more results.
  tensor<float, 2> y({tokens, outputs}), a({tokens, experts});
  compile([&](const auto& in) { return std::tuple(layer(in), layer.coefficients(in)); }, tokens)(
      x, y, a);

  constexpr std::size_t good = 4042, can = 4080;  // fire on well, good, better; on can, able, may
  const auto report = [&](const char* what, const tensor<float, 2>& edited) {
    const auto d = distances(edited, y);
    double of_good = 0, of_others = 0, changed = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      (a(t, good) > 0 ? of_good : of_others) += d[t];
      changed += d[t] > 0;
    }
    std::printf(
        "%-34s changes %3.0f rows of %zu: by %6.2f in all where expert %zu fires, by %7.2f "
        "elsewhere\n",
        what, changed, tokens, of_good, good, of_others);
  };
  const auto without = ablated(layer, {good});
  report("without expert 4042", evaluate(without(x)));
  report("towards expert 4080", evaluate(steered(layer, can, 1)(x)));
  report("without 4042, towards 4080", evaluate(steered(without, can, 1)(x)));

  // A file holds no edit, but a copy of the layer in which the weights of the expert are 0.
  const auto file = std::filesystem::temp_directory_path() / "fmoe_pruned.safetensors";
  mxd<> pruned = layer;
  for (std::size_t o = 0; o < outputs; ++o) pruned.scales(good, o) = 0;
  save(pruned, file);
  report("saved without 4042, and loaded", evaluate(load<mxd<>>(file)(x)));
  std::filesystem::remove(file);

  // y_0 rises by lambda times the similarity of a row's experts to those of the rows where 4042
  // fires.
  expert_statistics population(experts);
  std::vector<bool> fires(tokens);
  for (std::size_t t = 0; t < tokens; ++t) fires[t] = a(t, good) > 0;
  population.add(a, fires);
  const auto raised = evaluate(rewritten(layer, 0, population.mean_coefficients(), 1)(x));
  double inside = 0, outside = 0;
  for (std::size_t t = 0; t < tokens; ++t) (fires[t] ? inside : outside) += raised(t, 0) - y(t, 0);
  const double members = static_cast<double>(population.tokens());
  std::printf(
      "head 0, rewritten for the %zu rows of expert %zu, rises by %.2f there and by %.2f "
      "elsewhere\n",
      population.tokens(), good, inside / members,
      outside / (static_cast<double>(tokens) - members));
}

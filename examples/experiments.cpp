// SPDX-License-Identifier: MIT
// These are experiments of the papers that need no training, as tables: how well sparse layers
// replace a dense MLP as K changes (Oldfield et al. 2025, Sec. 3.1), how much the loudest experts
// contribute, what weights of fewer bits cost, and the rank of an expert (its Sec. B.4; Oldfield et
// al. 2024, Table 5).
//
// Call: experiments [FOLDER]. The folder holds minilm_l3_mxd.safetensors, the transcoders and
// minilm_l3_tokens.safetensors; without them the program takes examples/data.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include <fmoe/analysis.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/layers/initialise.hpp>
#include <fmoe/quantize.hpp>
#include <fmoe/rank.hpp>

using namespace fmoe;

struct rows {
  tensor<float, 2> x, target;
};

struct loss {
  double paper = 0, relative = 0;  // mean |y - t|^2 / |t|, mean |y - t|^2 / |t|^2
};

loss loss_of(const tensor<float, 2>& y, const tensor<float, 2>& target) {
  const auto missed = evaluate(einsum<"to,to->t">(y - target, y - target)),
             whole = evaluate(einsum<"to,to->t">(target, target));
  loss l;
  for (std::size_t t = 0; t < whole.size(); ++t) {
    l.paper += missed(t) / std::sqrt(whole(t));
    l.relative += missed(t) / whole(t);
  }
  const double count = static_cast<double>(whole.size());
  return {l.paper / count, l.relative / count};
}

template <class Layer>
void replacement_error(const char* name, const std::filesystem::path& weights,
                       const rows& held_out) {
  if (!exists(weights)) return;
  auto layer = load<Layer>(weights);
  for (const std::size_t k : std::array<std::size_t, 9>{1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    layer.active = k;
    const auto [paper, relative] = loss_of(evaluate(layer(held_out.x)), held_out.target);
    std::printf("| %s | %zu | %.4f | %.4f |\n", name, k, paper, relative);
  }
}

// Returns the experts by the summed norm of their contributions, the loudest first.
std::vector<std::size_t> by_loudness(const mxd<>& layer, const tensor<float, 2>& x) {
  expert_statistics added(expert_count(layer));
  added.add(evaluate(layer.contribution_norms(x)));
  const auto sums = added.mean_coefficients();
  std::vector<std::size_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t l, std::size_t r) { return sums[l] > sums[r]; });
  return order;
}

// Prints the error without the loudest experts, without those that follow the two that nearly all
// rows share, and without as many quiet ones.
void ablation(const mxd<>& layer, const rows& held_out) {
  const auto experts = by_loudness(layer, held_out.x);
  const auto off = [&](std::span<const std::size_t> gone) {
    return loss_of(evaluate(ablated(layer, gone)(held_out.x)), held_out.target).relative;
  };
  for (const std::size_t count : std::array<std::size_t, 9>{1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    const std::span all_of(experts);
    std::printf("| %zu | %.4f | %.4f | %.4f |\n", count, off(all_of.first(count)),
                off(all_of.subspan(2, count)), off(all_of.subspan(512, count)));
  }
}

// Returns the mean of |y - exact| / |exact| over the rows.
double mean_error(const tensor<float, 2>& y, const tensor<float, 2>& exact) {
  const auto missed = evaluate(norm(row_norm::l2, y - exact)),
             whole = evaluate(norm(row_norm::l2, exact));
  double sum = 0;
  for (std::size_t t = 0; t < whole.size(); ++t) sum += missed(t) / whole(t);
  return sum / static_cast<double>(whole.size());
}

// Prints the error of the layer with narrower weights, with the experts that the exact layer
// selects and with its own, the share of rows that select another set, and the error off the MLP.
template <class Layer>
void narrow_weights(const char* name, const Layer& narrow, const mxd<>& layer,
                    const rows& held_out) {
  const auto& x = held_out.x;
  const auto [y, chosen] = evaluate(std::tuple(layer(x), layer.coefficients(x)));
  const auto [own, own_chosen] = evaluate(std::tuple(narrow(x), narrow.coefficients(x)));
  std::size_t others = 0;
  const std::size_t tokens = x.shape()[0], experts = chosen.shape()[1];
  for (std::size_t t = 0; t < tokens; ++t) {
    bool is_same = true;
    for (std::size_t n = 0; n < experts; ++n)
      is_same = is_same && (chosen(t, n) != 0) == (own_chosen(t, n) != 0);
    others += !is_same;
  }
  std::printf("| %s | %.4f | %.4f | %.3f | %.4f |\n", name,
              mean_error(evaluate(narrow.mixed(x, chosen)), y), mean_error(own, y),
              static_cast<double>(others) / static_cast<double>(tokens),
              loss_of(own, held_out.target).relative);
}

void ranks(const mxd<>& layer) {
  constexpr std::size_t inputs = 96, outputs = 64, experts = 8;
  random_stream random(1);
  const expert_sizes<1> sizes{{experts}, inputs, outputs, false};
  const auto print = [](const char* name, const auto& expert, std::size_t bound) {
    std::printf("| %s | %zu | %zu |\n", name, numerical_rank(evaluate(expert)), bound);
  };
  print("CP, R = 24", initial_cp(sizes, 24, random).expert(3),
        std::min({inputs, outputs, std::size_t{24}}));
  print("CP, R = 512", initial_cp(sizes, 512, random).expert(3),
        std::min({inputs, outputs, std::size_t{512}}));
  print("TR, ranks 4, 4, 12", initial_tr(sizes, {4, 4, 12}, random).expert(3),
        std::min({inputs, outputs, std::size_t{4 * 12}}));
  print("TR, ranks 2, 2, 12", initial_tr(sizes, {2, 2, 12}, random).expert(3),
        std::min({inputs, outputs, std::size_t{2 * 12}}));
  double sum = 0;
  constexpr std::size_t first = 64;
  for (std::size_t n = 0; n < first; ++n) sum += normalised_rank(evaluate(layer.expert(n)));
  std::printf("mean normalised rank of the MxD's first %zu experts: %.3f\n", first, sum / first);
}

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : "../shared/real",
                              small = "examples/data";
  const bool whole = exists(folder / "minilm_l3_tokens.safetensors");
  const auto weights =
      whole ? folder / "minilm_l3_mxd.safetensors" : small / "minilm_l3_mxd_bf16.safetensors";
  const auto file = io::safetensors::read(whole ? folder / "minilm_l3_tokens.safetensors"
                                                : small / "minilm_l3_rows.safetensors");
  const rows held_out{file.get<float, 2>("x"), file.get<float, 2>("target")};
  const auto layer = load<mxd<>>(weights);

  std::printf(
      "Off the MLP on %zu rows\n| layer | K | mean abs(y-t)^2/abs(t) | mean abs(y-t)^2/abs(t)^2 "
      "|\n|---|---|---|---|\n",
      held_out.x.shape()[0]);
  replacement_error<mxd<>>("MxD", weights, held_out);
  replacement_error<sparse_mlp<>>("skip transcoder",
                                  folder / "minilm_l3_skip_transcoder.safetensors", held_out);
  replacement_error<sparse_mlp<>>("transcoder", folder / "minilm_l3_transcoder.safetensors",
                                  held_out);
  std::puts(
      "\nWithout some experts, mean abs(y-t)^2/abs(t)^2\n| ablated | the loudest | from the third "
      "on | from the 513th on |\n|---|---|---|---|");
  ablation(layer, held_out);
  std::puts(
      "\nWeights of fewer bits, mean abs(y-exact)/abs(exact)\n| type | same experts | own experts "
      "| "
      "rows of other experts | mean abs(y-t)^2/abs(t)^2 |\n|---|---|---|---|---|");
  narrow_weights("bf16", load<mxd<bf16>>(weights, {.narrow = io::narrow}), layer, held_out);
  narrow_weights("q8", quantize(layer), layer, held_out);
  narrow_weights("q8c", quantize<q8c>(layer), layer, held_out);
  std::puts("\nThe rank of an expert\n| experts | rank | bound |\n|---|---|---|");
  ranks(layer);
}

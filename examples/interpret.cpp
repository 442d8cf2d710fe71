// SPDX-License-Identifier: MIT
// This program shows the experts of a layer at work, from your own files: interpret
// LAYER.safetensors X.npy, where X is [token, input]. Without arguments it reads the layer and the
// rows of examples/data.
#include <algorithm>
#include <cstdio>

#include <fmoe/analysis.hpp>
#include <fmoe/io/npy.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main(int argc, char** argv) {
  const auto layer =
      load<mxd<>>(argc > 1 ? argv[1] : "examples/data/minilm_l3_mxd_bf16.safetensors");
  const tensor<float, 2> x =
      argc > 2
          ? io::npy::read(argv[2]).get<float, 2>()
          : io::safetensors::read("examples/data/minilm_l3_rows.safetensors").get<float, 2>("x");
  const auto [tokens, inputs] = x.shape();
  const extent experts = layer.gate.shape()[1], outputs = layer.decoder.shape()[1];

  constexpr extent batch = 64;
  const auto observed = [&](const auto& in) {
    return std::tuple(layer(in), layer.coefficients(in), layer.contribution_norms(in));
  };
  const auto forward = compile(observed, batch);
  expert_statistics usage(experts), norms(experts);
  top_tokens loudest(experts, 5);
  for (extent first = 0; first < tokens; first += batch) {
    const extent count = std::min(batch, tokens - first);
    const tensor<float, 2> rows({count, inputs},
                                std::span(x.data() + first * inputs, count * inputs));
    tensor<float, 2> y({count, outputs}), a({count, experts}), added({count, experts});
    forward(rows, y, a, added);
    usage.add(a);
    norms.add(added);
    loudest.add(added, first);
  }

  const auto frequency = usage.frequency(), mean_norm = norms.mean_coefficients();
  std::vector<extent> order;
  for (extent n = 0; n < experts; ++n)
    if (frequency[n] > 0 && frequency[n] < 0.05) order.push_back(n);
  std::ranges::sort(order, [&](extent l, extent r) { return mean_norm[l] > mean_norm[r]; });
  std::printf("%zu of %zu experts are active on some of %zu tokens, but on under 5%%\n",
              order.size(), experts, tokens);
  for (const extent n : std::span(order).first(std::min<extent>(5, order.size()))) {
    std::printf("expert %zu: frequency %.3f, adds %.2f a token; loudest on tokens", n, frequency[n],
                mean_norm[n]);
    for (const auto& [token, norm] : loudest.of(n)) std::printf(" %zu (%.1f)", token, norm);
    std::puts("");
  }
}

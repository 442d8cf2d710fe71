// SPDX-License-Identifier: MIT
// A layer of every type is made from a safetensors file and run. Where that is refused, it is by an
// io::error, shape_error or value_error. Compiled and evaluated it gives the same bits.

#include <fmoe/compile.hpp>
#include <fmoe/io/safetensors.hpp>

#include "../support/same_bits.hpp"
#include "fuzz.hpp"
#include "layer_types.hpp"

namespace fmoe::fuzz {
namespace {

using test::same_bits;

constexpr std::size_t tokens = 3, most_numbers = std::size_t{1} << 20;

template <std::size_t Rank>
tensor<float, Rank> numbers(const std::vector<std::size_t>& row) {
  std::array<std::size_t, Rank> shape{tokens};
  for (std::size_t i = 1; i < Rank; ++i) shape[i] = row.at(i - 1);
  tensor<float, Rank> x(shape);
  float next = -1.5f;
  for (float& v : x) v = next = next > 2 ? next - 3.7f : next + 0.37f;
  return x;
}

// Empty weights can have axes of any length, and a file of few bytes results of any size.
bool is_small(const std::vector<std::size_t>& row) {
  double n = 1;
  for (const std::size_t e : row) n *= static_cast<double>(e);
  return n <= static_cast<double>(most_numbers);
}

template <class Forward, std::size_t... Ranks>
void run(const Forward& forward, arguments<Ranks...> ranks) {
  const auto ready = compile(forward, ranks, tokens);
  for (std::size_t i = 0; i < sizeof...(Ranks); ++i)
    if (!is_small(ready.input_shape(i))) return;
  if (!is_small(ready.output_shape())) return;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::tuple x{numbers<Ranks>(ready.input_shape(I))...};
    expects(same_bits(ready(std::get<I>(x)...), evaluate(forward(std::get<I>(x)...))),
            "compiled, the same bits");
  }(std::make_index_sequence<sizeof...(Ranks)>());
}

template <class Layer>
void run_layer(const Layer& layer) {
  if constexpr (requires(const tensor<float, 2>& x) { layer.g1(x); }) {
    run([&](const auto& x) { return layer.g1(x); }, arguments<2>{});
  } else if constexpr (requires { layer.deleted; }) {
    Layer with_heads = layer;
    with_heads.heads = 2;
    run([&](const auto& x, const auto& g1, const auto& g2) { return with_heads(x, g1, g2); },
        arguments<2, 3, 3>{});
  } else {
    run([&](const auto& x) { return layer(x); }, arguments<2>{});
  }
}

}  // namespace

void judge(bytes input) {
  std::optional<io::safetensors> file;
  if (!only_throws<io::error>([&] { file = io::safetensors::parse(input); })) return;
  for_each_layer_type([&]<class Layer>(Layer*) {
    // The settings are those of the file, or for files without any, these.
    std::vector<std::string> extra;
    const std::map<std::string, std::string> of_gate{{"norm", "none"}, {"activation", "entmax15"}},
        of_peer{{"weighting", "softmax"}};
    for (const load_options& options :
         {load_options{}, load_options{.active = 2, .extra = &extra},
          load_options{.activation = pointwise::gelu, .extra = &extra},
          load_options{.active = 2, .activation = pointwise::gelu, .extra = &extra},
          load_options{.active = 2, .extra = &extra, .metadata = of_peer},
          load_options{.extra = &extra, .metadata = of_gate}}) {
      std::optional<Layer> layer;
      if (!only_throws<io::error, shape_error, value_error>(
              [&] { layer = load<Layer>(*file, options); }))
        continue;
      only_throws<shape_error, value_error>([&] { run_layer(*layer); });
    }
  });
}

}  // namespace fmoe::fuzz

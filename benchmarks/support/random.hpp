// SPDX-License-Identifier: MIT
// Weights and inputs of benchmarks. They are fast to make and the same on every machine.
#pragma once

#include <cmath>

#include <fmoe/quantize.hpp>

#include "names.hpp"

namespace fmoe::bench {

// Uniform numbers of mean 0 and standard deviation `scale`, rounded to Stored.
template <class T, class Stored = T, std::size_t Rank>
tensor<T, Rank> random(const std::array<extent, Rank>& shape, std::uint64_t seed, float scale) {
  tensor<T, Rank> t(shape);
  std::uint64_t state = seed;
  const float unit = scale * std::sqrt(12.0f) / 16777216.0f;
  for (T *p = t.data(), *end = p + t.size(); p != end; ++p) {
    std::uint64_t bits = state += 0x9e3779b97f4a7c15u;  // splitmix64
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    const float number = (static_cast<float>((bits ^ bits >> 31) >> 40) - 8388608.0f) * unit;
    *p = convert<T>(convert<Stored>(number));
  }
  return t;
}

// The parameters of one layer, each from its own seed. T is the type in the layer, Stored the type
// in its file.
template <class T, class Stored>
class parameters {
 public:
  // The standard deviation is 1 / sqrt(fan_in).
  template <std::size_t Rank>
  parameter<T, Rank> weight(const std::array<extent, Rank>& shape, extent fan_in) {
    return random<T, Stored>(shape, ++seed_ << 32, 1 / std::sqrt(static_cast<float>(fan_in)));
  }
  parameter<T, 1> bias(extent size) {
    return random<T, Stored>(std::array{size}, ++seed_ << 32, 0.1f);
  }

 private:
  std::uint64_t seed_ = 0;
};

inline tensor<float, 2> random_rows(extent tokens, extent width) {
  return random<float>(std::array{tokens, width}, 99, 1);
}

// Returns the layer with weights of 8 bits, and the layer of floats with the same numbers.
template <class Layer>
auto in_8_bits(const Layer& layer) {
  std::pair both(quantize(layer), layer);
  const auto narrow = detail::released_parameters(both.first),
             wide = detail::released_parameters(both.second);
  for (extent i = 0; i < wide.size(); ++i)
    if (const auto numbers = narrow[i].parameter.value(); !numbers.empty())
      wide[i].parameter.assign(detail::as_floats(numbers));
  return both;
}

// Returns make(parameters) twice: a layer with the element type T, and the same numbers as float.
template <class T, class Make>
auto layer_and_plain(const Make& make) {
  if constexpr (std::is_same_v<T, q8>) {
    return in_8_bits(make(parameters<float, float>()));
  } else {
    const auto plain = make(parameters<float, T>());
    if constexpr (std::is_same_v<T, float>) return std::pair(plain, plain);
    else return std::pair(make(parameters<T, T>()), plain);
  }
}

}  // namespace fmoe::bench

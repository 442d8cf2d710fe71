// SPDX-License-Identifier: MIT
// The arrays of a file make the weights that stand in several of them, or are refused by an
// io::error. The numbers of such a weight are there as a whole, in part, and as integers.
#include <algorithm>
#include <bit>
#include <cmath>

#include <fmoe/io/safetensors.hpp>
#include <fmoe/io/scaled_arrays.hpp>

#include "fuzz.hpp"

namespace fmoe::fuzz {

namespace {

std::span<const float> numbers_of(const detail::any_tensor& t) {
  const std::size_t count = detail::element_count(t.shape);
  return {count == 0 ? nullptr : static_cast<const float*>(t.elements->data()), count};
}

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

void take_numbers(const io::array& a) {
  const auto all = a.elements_as(dtype::float32, a.shape(), io::narrowing::refuse);
  const auto whole = numbers_of(all);
  if (whole.empty() || a.shape().empty()) return;
  const io::array last = a.rows(a.shape()[0] - 1, 1);
  const auto of_last = last.elements_as(dtype::float32, last.shape(), io::narrowing::refuse);
  const auto part = numbers_of(of_last);
  expects(std::ranges::equal(part, whole.last(part.size()), same), "a part has the same numbers");
  if (!a.has_integers_and_scales()) return;
  std::int8_t integers[32];
  for (std::size_t first = 0; first < whole.size(); first += 32) {
    const float scale = a.integers_at(first, integers);
    for (std::size_t i = 0; i < 32; ++i)
      expects(integers[i] == 0 || same(static_cast<float>(integers[i]) * scale, whole[first + i]),
              "integers and a scale make the numbers");
  }
}

}  // namespace

void judge(bytes input) {
  only_throws<io::error>([&] {
    io::arrays_by_name arrays;
    const auto file = io::safetensors::parse(input);
    for (const io::array& a : file.arrays()) arrays.emplace(a.name(), a);
    for (const auto& [name, a] : io::with_scales(arrays))
      if (a.is_scaled()) take_numbers(a);
  });
}

}  // namespace fmoe::fuzz

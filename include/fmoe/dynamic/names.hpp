// SPDX-License-Identifier: MIT
// The functions that dynamic expressions apply, by the names that C and Python use.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmoe/dynamic/operations.hpp>

namespace fmoe::detail {

template <class T>
struct named_value {
  std::string_view name;
  T value;
};

// Returns what a name stands for. Throws value_error, which lists the names.
template <class T>
T value_named(const char* what, std::string_view name, std::span<const named_value<T>> values) {
  std::string names;
  for (const auto& v : values) {
    if (v.name == name) return v.value;
    names += (names.empty() ? "" : ", ") + std::string(v.name);
  }
  fail<value_error>("[", what, "] there is no \"", name, "\" among ", names);
}

}  // namespace fmoe::detail

namespace fmoe::dynamic {

// Each throws value_error for a name that it does not know.
inline pointwise pointwise_named(std::string_view name) {
  constexpr std::size_t count = static_cast<std::size_t>(pointwise::power) + 1;
  std::array<detail::named_value<pointwise>, count> known;
  for (std::size_t i = 0; i < count; ++i) {
    const auto f = static_cast<pointwise>(i);
    known[i] = {name_of(f), f};
  }
  return detail::value_named<pointwise>("apply", name, known);
}
inline row_function row_function_named(std::string_view name) {
  using enum row_function;
  constexpr detail::named_value<row_function> known[] = {{"softmax", softmax},
                                                         {"entmax", entmax},
                                                         {"layer_norm", layer_norm},
                                                         {"rms_norm", rms_norm},
                                                         {"clamped_rms_norm", clamped_rms_norm},
                                                         {"group_max", group_max},
                                                         {"sparse_mixer", sparse_mixer}};
  return detail::value_named<row_function>("map_rows", name, known);
}
inline row_norm row_norm_named(std::string_view name) {
  using enum row_norm;
  constexpr detail::named_value<row_norm> known[] = {
      {"l1", l1}, {"l2", l2}, {"max", row_norm::max}, {"mean", mean}};
  return detail::value_named<row_norm>("norm", name, known);
}
inline weighting weighting_named(std::string_view name) {
  using enum weighting;
  constexpr detail::named_value<weighting> known[] = {
      {"score", score}, {"softmax", softmax}, {"softmax_of_all", softmax_of_all},
      {"one", one},     {"relu", relu},       {"normalized", normalized}};
  return detail::value_named<weighting>("weighting", name, known);
}
inline group_score group_score_named(std::string_view name) {
  using enum group_score;
  constexpr detail::named_value<group_score> known[] = {{"sum_of_two", sum_of_two},
                                                        {"greatest", greatest}};
  return detail::value_named<group_score>("group_score", name, known);
}

// An operation on two operands, element by element.
using join = expression (*)(const expression& a, const expression& b);
inline join join_named(std::string_view name) {
  const detail::named_value<join> known[] = {{"add", add},           {"subtract", subtract},
                                             {"multiply", multiply}, {"divide", divide},
                                             {"max", max},           {"min", min}};
  return detail::value_named<join>("join", name, known);
}

}  // namespace fmoe::dynamic

// SPDX-License-Identifier: MIT
// The functions that expressions apply, by the names that C and Python use.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <fmoe/expr/operations.hpp>

namespace fmoe::detail {

// Returns the place of a name among `count` ones. Throws value_error, which lists them.
inline extent place_of_name(const char* what, std::string_view name,
                            std::span<const char* const> names) {
  std::string known;
  for (extent i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
    known += (known.empty() ? "" : ", ") + std::string(names[i]);
  }
  fail<value_error>("[", what, "] there is no \"", name, "\" among ", known);
}

template <class E>
E enumerator_named(const char* what, std::string_view name) {
  return static_cast<E>(place_of_name(what, name, identifiers<E>));
}

}  // namespace fmoe::detail

namespace fmoe::dynamic {

// Each throws value_error for a name that it does not know.
inline pointwise pointwise_named(std::string_view name) {
  const auto with_derivatives = std::span(detail::identifiers<pointwise>);
  const auto count = static_cast<std::size_t>(pointwise::power) + 1;
  return static_cast<pointwise>(
      detail::place_of_name("apply", name, with_derivatives.first(count)));
}
inline row_function row_function_named(std::string_view name) {
  return detail::enumerator_named<row_function>("map_rows", name);
}
inline row_norm row_norm_named(std::string_view name) {
  return detail::enumerator_named<row_norm>("norm", name);
}
inline weighting weighting_named(std::string_view name) {
  return detail::enumerator_named<weighting>("weighting", name);
}
inline group_score group_score_named(std::string_view name) {
  return detail::enumerator_named<group_score>("group_score", name);
}

// An operation on two operands, element by element.
using join = expression (*)(const expression& a, const expression& b);
inline join join_named(std::string_view name) {
  constexpr const char* names[] = {"add", "subtract", "multiply", "divide", "max", "min"};
  constexpr join joins[] = {add, subtract, multiply, divide, max, min};
  return joins[detail::place_of_name("join", name, names)];
}

}  // namespace fmoe::dynamic

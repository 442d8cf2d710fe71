// SPDX-License-Identifier: MIT
// What a layer makes of x beside its output, by names that are known when the program runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/analysis/edit.hpp>
#include <fmoe/dynamic/any_layer.hpp>

namespace fmoe::detail {

// The results of one name: "scores", and "scores[1]" of a second level.
inline std::string of_level(const char* name, extent level) {
  return level == 0 ? name : name + ("[" + std::to_string(level) + "]");
}

// The result of a layer with this name: that of the member of its class. Throws value_error for a
// name that it does not have.
template <class Layer>
dynamic::expression named_result(const Layer& layer, const any_layer& same, std::string_view name,
                                 const dynamic::expression& x) {
  std::string known;
  std::optional<dynamic::expression> made;
  const auto offer = [&](const std::string& own, const auto& make) {
    known += (known.empty() ? "" : ", ") + own;
    if (name == own) made = dynamic::expression(make());
  };
  const auto rows = expr<float, 2>(x);
  offer("y", [&] { return same.output(x); });
  for (extent level = 0; level < same.levels(); ++level) {
    const auto coefficients = [&] { return same.coefficients(x, level); };
    offer(of_level("coefficients", level), coefficients);
    offer(of_level("weights", level), [&] { return dynamic::kept_values(coefficients()); });
    offer(of_level("indices", level), [&] { return dynamic::kept_indices(coefficients()); });
  }
  if constexpr (requires { layer.scores(rows); })
    offer("scores", [&] { return layer.scores(rows); });
  else if constexpr (requires { layer.gate.template scores<0>(rows); })
    [&]<extent... Level>(std::index_sequence<Level...>) {
      (offer(of_level("scores", Level), [&] { return layer.gate.template scores<Level>(rows); }),
       ...);
    }(std::make_index_sequence<levels_of<Layer>>());
  if constexpr (requires { layer.preactivations(rows); })
    offer("preactivations", [&] { return layer.preactivations(rows); });
  if constexpr (requires { layer.hidden(rows); })
    offer("hidden", [&] { return layer.hidden(rows); });
  if constexpr (has_released_names<Layer>)  // an edit has norms only where its layer has some
    if constexpr (requires { layer.contribution_norms(rows); })
      offer("contribution_norms", [&] { return layer.contribution_norms(rows); });
  if constexpr (requires { layer.router.keys1; }) {  // Monet's
    offer("g1", [&] { return same.routing(x).first; });
    offer("g2", [&] { return same.routing(x).second; });
  }
  expects<value_error>(made.has_value(), "[result] the layer has ", known, ", and no ", name);
  return *made;
}

}  // namespace fmoe::detail

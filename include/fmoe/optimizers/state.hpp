// SPDX-License-Identifier: MIT
// What every optimizer keeps beside the weights: averages of gradients, and float masters of
// weights of 16 bits, by the names of the parameters.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/arrays/released.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/gradients/sparse_gradient.hpp>
#include <fmoe/optimizers/update.hpp>

namespace fmoe::detail {

// A sparse gradient of any type.
struct sparse_part {
  std::string name;
  std::vector<extent> shape;  // of the parameter
  extent axis;
  std::span<const std::uint32_t> rows;
  number_array values;
};

// Returns those that stand beside the layer that holds the others.
template <class Layer, class T>
std::vector<sparse_part> sparse_parts(const step_gradients<Layer, T>& gradients) {
  std::vector<sparse_part> parts;
  for (const sparse_gradient<T>& g : gradients.sparse)
    parts.push_back({g.name(),
                     g.shape(),
                     g.axis(),
                     g.rows(),
                     {dtype_of<T>, g.values().data(), g.values().size()}});
  return parts;
}
template <class Layer>
std::vector<sparse_part> sparse_parts(const Layer&) {
  return {};
}

// A parameter or a gradient, by the parameter's name in files.
using named_tensor = std::pair<std::string, any_tensor>;

// Returns all parameters, or those that hold something and are trained, each under its first name.
std::vector<named_tensor> named_tensors(const std::vector<released_parameter>& all);
std::vector<named_tensor> trained_tensors(const std::vector<released_parameter>& all);

// A parameter that a step changes, and its gradient, which somebody else holds.
struct weight_gradient {
  std::string name;
  any_tensor weight;
  dtype type;
  const void* gradient;
  std::optional<row_update> sparse{};
};

// Pairs trained parameters with their gradients. Throws value_error if a parameter has no gradient,
// or one of another shape or type: weights of 16 bits have gradients of float, and others of their
// own type; or if it has 8 bits.
std::vector<weight_gradient> paired(const std::vector<named_tensor>& weights,
                                    const std::vector<named_tensor>& gradients,
                                    const std::vector<sparse_part>& sparse);
// The same of dense gradients alone. Throws value_error, too, if one has the name of no parameter.
std::vector<weight_gradient> paired_by_name(const std::vector<named_tensor>& weights,
                                            const std::vector<named_tensor>& gradients);

// The numbers that a rule needs for each element of a parameter.
struct weight_state {
  std::string name;
  any_tensor master;         // of a parameter of 16 bits
  any_tensor first, second;  // empty if the rule has none
};

class optimizer_state {
 public:
  // The names of the averages in a file; empty ones are not kept.
  optimizer_state(std::string kind, std::string first, std::string second)
      : kind_(std::move(kind)),
        first_(std::move(first)),
        second_(std::move(second)) {}

  std::size_t steps() const { return steps_; }
  // False until a step keeps the first average.
  bool has_first() const { return !states_.empty() && !states_.front().first.empty(); }

  // Counts a step and calls update(arrays) for each parameter. The first step makes the state,
  // zeros and masters, and the first step that keeps the first average makes that. If it
  // `leaves_others`, a sparse gradient changes its own rows alone. Throws value_error if a
  // parameter does not fit the state, before any weight is changed.
  void step(std::vector<weight_gradient> pairs, bool keeps_first, bool leaves_others,
            const std::function<void(const weight_update&)>& update);

  void save(const std::filesystem::path& file) const;
  void load(const std::filesystem::path& file);

 private:
  void make(const std::vector<weight_gradient>& pairs);
  void check(const std::vector<weight_gradient>& pairs) const;

  std::string kind_, first_, second_;
  std::size_t steps_ = 0;
  std::vector<weight_state> states_;
};

// Throws value_error unless a setting is at least 0 and finite, and, if it `is_part`, less than 1.
void check_setting(const char* optimizer, const char* name, double value, bool is_part);

template <has_released_names Layer, has_released_names Gradients>
std::vector<weight_gradient> weight_gradients(Layer& layer, const Gradients& gradients) {
  return paired(trained_tensors(released_parameters(layer)),
                named_tensors(released_parameters(only_listed(gradients))),
                sparse_parts(gradients));
}

// The same for a layer whose kind is known at run time, which lists its parameters itself.
template <class Layer>
  requires requires(const Layer& l) { l.parameters().front().trained; }
std::vector<weight_gradient> weight_gradients(const Layer& layer,
                                              const std::vector<named_tensor>& gradients) {
  std::vector<named_tensor> trained;
  for (const auto& p : layer.parameters()) {
    const auto is_it = [&](const named_tensor& t) { return t.second.elements == p.value.elements; };
    if (p.trained && std::ranges::none_of(trained, is_it)) trained.emplace_back(p.name, p.value);
  }
  return paired_by_name(trained, gradients);
}

// A layer that a step changes by these gradients.
template <class Layer, class Gradients>
concept trained_by = requires(Layer& l, const Gradients& g) { weight_gradients(l, g); };

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/optimizers/state-inl.hpp>
#endif

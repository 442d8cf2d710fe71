// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmoe/gradients/gradient_run.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/optimizers/state.hpp>

namespace fmoe::detail {

// The type in which a parameter is trained.
inline dtype trained_type(dtype stored) {
  return stored == dtype::float64 ? dtype::float64 : dtype::float32;
}

inline any_tensor zeros_like(const any_tensor& t, dtype type) {
  return {type, t.shape, std::make_shared<storage>(element_count(t.shape) * size_of(type))};
}

FMOE_INLINE std::vector<named_tensor> named_tensors(const std::vector<released_parameter>& all) {
  std::vector<named_tensor> named;
  for (const released_parameter& p : all) named.emplace_back(p.name.name, p.parameter.value());
  return named;
}

FMOE_INLINE std::vector<named_tensor> trained_tensors(const std::vector<released_parameter>& all) {
  return named_tensors(trained_parameters(all));
}

FMOE_INLINE std::vector<weight_gradient> paired(const std::vector<named_tensor>& weights,
                                                const std::vector<named_tensor>& gradients,
                                                const std::vector<sparse_part>& sparse) {
  std::vector<weight_gradient> pairs;
  for (const auto& [name, value] : weights) {
    const auto found = std::ranges::find(gradients, name, &named_tensor::first);
    const any_tensor gradient = found == gradients.end() ? any_tensor{} : found->second;
    const auto rows = std::ranges::find(sparse, name, &sparse_part::name);
    const bool is_sparse = rows != sparse.end();
    expects<value_error>(!is_quantized_type(value.type), "[optimizer] ", name, " is ",
                         name_of(value.type), ", and weights of 8 bits are not trained");
    expects<value_error>(is_sparse || !gradient.empty(), "[optimizer] ", name, " has no gradient");
    expects<shape_error>((is_sparse ? rows->shape : gradient.shape) == value.shape,
                         "[optimizer] the gradient of ", name,
                         " has another shape than the parameter");
    const dtype type = is_sparse ? rows->values.type : gradient.type;
    expects<value_error>(type == trained_type(value.type), "[optimizer] the gradient of ", name,
                         " is ", name_of(type), " and must be ", name_of(trained_type(value.type)));
    if (!is_sparse) {
      pairs.push_back({name, value, type, gradient.elements->data(), {}});
      continue;
    }
    const std::span<const extent> shape = rows->shape;
    const extent inner = element_count(shape.subspan(rows->axis + 1)),
                 width = element_count(shape.first(rows->axis)) * inner;
    pairs.push_back({name, value, type, rows->values.elements,
                     row_update{rows->rows, shape[rows->axis], width, inner, false}});
  }
  return pairs;
}

FMOE_INLINE std::vector<weight_gradient> paired_by_name(
    const std::vector<named_tensor>& weights, const std::vector<named_tensor>& gradients) {
  for (const named_tensor& g : gradients)
    expects<value_error>(std::ranges::count(weights, g.first, &named_tensor::first) > 0,
                         "[optimizer] the layer trains no parameter ", g.first);
  return paired(weights, gradients, {});
}

FMOE_INLINE void optimizer_state::make(const std::vector<weight_gradient>& pairs) {
  for (const weight_gradient& p : pairs) {
    const any_tensor& value = p.weight;
    const dtype type = trained_type(value.type);
    weight_state s{p.name, {}, {}, {}};
    if (value.type != type) s.master = as_floats(value);
    if (!second_.empty()) s.second = zeros_like(value, type);
    states_.push_back(std::move(s));
  }
}

FMOE_INLINE void optimizer_state::check(const std::vector<weight_gradient>& pairs) const {
  for (const weight_gradient& p : pairs) {
    const std::string& name = p.name;
    const any_tensor& value = p.weight;
    const auto found = std::ranges::find(states_, name, &weight_state::name);
    expects<value_error>(found != states_.end(), "[optimizer] the state has no numbers for ", name,
                         ": an optimizer belongs to one layer");
    const dtype type = trained_type(value.type);
    expects<value_error>(found->master.empty() == (value.type == type), "[optimizer] ", name,
                         " is ", name_of(value.type),
                         ", and the state is of a layer of another type");
    for (const any_tensor* t : {&found->master, &found->first, &found->second})
      expects<value_error>(t->empty() || (t->shape == value.shape && t->type == type),
                           "[optimizer] the state of ", name,
                           " has another shape or type than the parameter");
  }
}

FMOE_INLINE void optimizer_state::step(std::vector<weight_gradient> pairs, bool keeps_first,
                                       bool leaves_others,
                                       const std::function<void(const weight_update&)>& update) {
  if (states_.empty()) make(pairs);
  check(pairs);
  const auto state_of = [&](const weight_gradient& p) -> weight_state& {
    return *std::ranges::find(states_, p.name, &weight_state::name);
  };
  for (const weight_gradient& p : pairs)
    if (weight_state& s = state_of(p); keeps_first && s.first.empty())
      s.first = zeros_like(p.weight, p.type);
  ++steps_;
  const auto written = [](const any_tensor& t) -> void* {
    return t.empty() ? nullptr : t.elements->written();
  };
  for (weight_gradient& p : pairs) {
    if (p.sparse) p.sparse->leaves_others = leaves_others;
    const weight_state& s = state_of(p);
    void* const weights = written(p.weight);
    void* const master = written(s.master);
    update({p.type, p.weight.type, master == nullptr ? weights : master,
            master == nullptr ? nullptr : weights, p.gradient, written(s.first), written(s.second),
            element_count(p.weight.shape), p.sparse});
  }
}

FMOE_INLINE void optimizer_state::save(const std::filesystem::path& file) const {
  io::arrays_by_name arrays;
  const auto add = [&](const std::string& name, const std::string& what, const any_tensor& t) {
    if (!t.empty()) arrays.insert_or_assign(name + "." + what, io::array(t));
  };
  for (const weight_state& s : states_) {
    add(s.name, "master", s.master);
    add(s.name, first_, s.first);
    add(s.name, second_, s.second);
  }
  std::string names;
  for (const weight_state& s : states_) names += (names.empty() ? "" : " ") + s.name;
  io::safetensors::write(
      file, arrays,
      {{"optimizer", kind_}, {"steps", std::to_string(steps_)}, {"parameters", names}});
}

FMOE_INLINE void optimizer_state::load(const std::filesystem::path& file) {
  const auto from = io::safetensors::read(file);
  const io::strings_by_name metadata = from.metadata();
  const auto text = [&](const char* key) -> std::string {
    const auto found = metadata.find(key);
    if (found == metadata.end())
      throw io::error(io::errc::schema,
                      std::string("the metadata have no ") + io::in_quotes(key) +
                          ", so this is not the state of an optimizer",
                      0, {}, file);
    return found->second;
  };
  if (text("optimizer") != kind_)
    throw io::error(io::errc::conflict,
                    "is the state of " + io::in_quotes(text("optimizer")) + " and not of " + kind_,
                    0, {}, file);
  const std::string steps = text("steps");
  const bool is_number =
      !steps.empty() && steps.size() < 19 && steps.find_first_not_of("0123456789") == steps.npos;
  if (!is_number)
    throw io::error(io::errc::schema, "the metadata count " + io::in_quotes(steps) + " steps", 0,
                    {}, file);
  std::vector<weight_state> states;
  const auto tensor_at = [&](const std::string& name, const std::string& what) -> any_tensor {
    const io::array* const found = what.empty() ? nullptr : from.find(name + "." + what);
    if (found == nullptr) return {};
    const dtype type = found->type() == io::element_type::f64 ? dtype::float64 : dtype::float32;
    return found->elements_as(type, found->shape(), io::narrowing::refuse);
  };
  const std::string names = text("parameters");
  for (extent at = 0; at < names.size();) {
    const extent end = std::min(names.find(' ', at), names.size());
    const std::string name = names.substr(at, end - at);
    weight_state s{name, tensor_at(name, "master"), tensor_at(name, first_),
                   tensor_at(name, second_)};
    if (!second_.empty() && (s.first.empty() || s.second.empty()))
      throw io::error(io::errc::missing_tensor, "the state of " + kind_ + " has no averages", 0,
                      name, file);
    states.push_back(std::move(s));
    at = end + 1;
  }
  states_ = std::move(states);
  steps_ = std::stoull(steps);
}

FMOE_INLINE void check_setting(const char* optimizer, const char* name, double value,
                               bool is_part) {
  expects<value_error>(std::isfinite(value) && value >= 0, "[", optimizer, "] ", name, " is ",
                       value, " and must be a number that is at least 0");
  expects<value_error>(!is_part || value < 1, "[", optimizer, "] ", name, " is ", value,
                       " and must be less than 1");
}

}  // namespace fmoe::detail

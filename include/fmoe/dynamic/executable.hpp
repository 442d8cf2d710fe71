// SPDX-License-Identifier: MIT
// Dynamic expressions are computed, compiled for many calls, explained and costed.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include <fmoe/expr/operations.hpp>
#include <fmoe/gradients/gradient.hpp>
#include <fmoe/run/checked_executable.hpp>
#include <fmoe/run/cost.hpp>
#include <fmoe/run/explain.hpp>

namespace fmoe::dynamic {

// An array of the caller. Strides count elements; without them it is row-major.
struct array {
  void* data = nullptr;
  dtype type = dtype::float32;
  std::vector<std::size_t> shape;
  std::vector<std::size_t> strides = {};
};

}  // namespace fmoe::dynamic

namespace fmoe::detail {

inline array_view view_of_dynamic(const dynamic::array& a) {
  auto* const data = static_cast<any_number*>(a.data);
  array_view v =
      a.strides.empty() ? view_at<all>(data, a.shape) : view_at<all>(data, a.shape, a.strides);
  v.type = a.type;
  return v;
}

// Lowers results, for calls of up to `tokens` rows if they have inputs.
inline lowered_graph lowered_dynamic(const std::vector<dynamic::expression>& results,
                                     extent tokens) {
  expects<value_error>(!results.empty(), "[compile] there is no result");
  return lowered_graph(results, tokens);
}

// Calls f with a null pointer to float or double.
template <class F>
decltype(auto) in_arithmetic(dtype type, const F& f) {
  if (type == dtype::float64) return f(static_cast<double*>(nullptr));
  return f(static_cast<float*>(nullptr));
}

}  // namespace fmoe::detail

namespace fmoe::dynamic {

// Expressions that are ready for many calls; see fmoe::compiled.
class executable {
 public:
  explicit executable(detail::checked_executable e) : executable_(std::move(e)) {}

  std::size_t inputs() const { return executable_.arguments(); }
  std::size_t outputs() const { return executable_.results(); }
  std::size_t tokens() const { return executable_.tokens(); }
  dtype type() const { return executable_.type(); }  // of results

  // The shapes without the token axis, and whether an output has one.
  const std::vector<std::size_t>& input_shape(std::size_t i = 0) const {
    return executable_.row(i);
  }
  const std::vector<std::size_t>& output_shape(std::size_t i = 0) const {
    return executable_.row(inputs() + i);
  }
  bool has_tokens(std::size_t output) const { return executable_.has_tokens(inputs() + output); }

  // Takes the inputs, then the outputs, which it writes. Throws as fmoe::compiled does.
  void operator()(std::span<const array> arrays) const {
    detail::expects<value_error>(arrays.size() == inputs() + outputs(), "[forward] takes ",
                                 inputs(), " inputs and ", outputs(), " outputs, and not ",
                                 arrays.size(), " arrays");
    std::vector<detail::bound_array> bound(arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i)
      bound[i].array = detail::view_of_dynamic(arrays[i]);
    executable_.call(bound, {});
  }

  // As those of fmoe::compiled.
  void refresh() { executable_.refresh(); }
  void keep(std::size_t k) { executable_.keep(k); }

 private:
  detail::checked_executable executable_;
};

// Plans expressions for calls of up to `tokens` rows of their inputs. Throws as fmoe::compile does.
//
//   const auto y = dynamic::einsum("ti,io->to", {dynamic::input(0), dynamic::expression(w)});
//   const auto forward = dynamic::compile({y}, 128);
template <class Level = cpu::native>
executable compile(const std::vector<expression>& results, std::size_t tokens,
                   const compile_options& options = {}) {
  const auto made = detail::lowered_dynamic(results, tokens);
  const dtype type = detail::joint_type(results);
  return detail::in_arithmetic(type, [&]<class T>(T*) {
    cpu::use_weights<T, Level, fmoe::detail::all_types>();
    const std::size_t inputs = made.arguments(), most = inputs == 0 ? all : tokens;
    auto compiled = detail::compile_graph<T, Level>(made.nodes(), made.roots(), most, options);
    const std::size_t rows = inputs == 0 ? compiled.tokens : tokens;
    return executable(
        detail::checked_executable(made.nodes(), std::move(compiled), inputs, type, rows));
  });
}

// The values of expressions without inputs. Throws as fmoe::evaluate does.
template <class Level = cpu::native>
std::vector<tensor> evaluate(const std::vector<expression>& results,
                             const compile_options& options = {}) {
  const auto made = detail::lowered_dynamic(results, all);
  detail::expects<value_error>(made.arguments() == 0,
                               "[evaluate] an expression has inputs: compile it and call it");
  const dtype type = detail::joint_type(results);
  return detail::in_arithmetic(type, [&]<class T>(T*) {
    cpu::use_weights<T, Level, fmoe::detail::all_types>();
    const auto compiled = detail::compile_graph<T, Level>(made.nodes(), made.roots(), all, options,
                                                          {}, detail::calls::one);
    std::vector<tensor> values;
    std::vector<detail::bound_array> bound;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto shape = made.shape(i);
      values.push_back(
          {type, shape, std::make_shared<storage>(detail::element_count(shape) * sizeof(T))});
      bound.push_back({detail::view_of_dynamic({values.back().elements->data(), type, shape}),
                       compiled.results[i].shape.size()});
    }
    compiled.program->run({{}, bound, compiled.tokens});
    return values;
  });
}

// The plan for calls of up to `tokens` rows of the inputs, or of as many as the expressions have.
template <class Level = cpu::native>
explanation explain(const std::vector<expression>& results, std::size_t tokens = all,
                    const compile_options& options = {}) {
  const auto made = detail::lowered_dynamic(results, tokens);
  return detail::in_arithmetic(detail::joint_type(results), [&]<class T>(T*) {
    cpu::use_weights<T, Level, fmoe::detail::all_types>();
    return detail::explain_graph<T, Level>(made.nodes(), made.roots(), tokens, options);
  });
}

// The costs of an expression, for `tokens` rows of its inputs or as many as it has.
template <class Level = cpu::native>
cost_report cost(const expression& e, std::size_t tokens = all) {
  return detail::cost_of_result<Level>(detail::lowered_dynamic({e}, tokens),
                                       detail::size_of(e.type()));
}

}  // namespace fmoe::dynamic

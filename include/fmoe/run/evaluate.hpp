// SPDX-License-Identifier: MIT
// The value of an expression, once.
#pragma once

#include <fmoe/arrays/overlap.hpp>
#include <fmoe/arrays/print.hpp>
#include <fmoe/backend/cpu/use_weights.hpp>
#include <fmoe/expr/concat.hpp>
#include <fmoe/expr/einsum.hpp>
#include <fmoe/expr/lowered_graph.hpp>
#include <fmoe/expr/pointwise.hpp>
#include <fmoe/expr/pointwise_function.hpp>
#include <fmoe/expr/rows.hpp>
#include <fmoe/expr/selection.hpp>
#include <fmoe/expr/sized.hpp>
#include <fmoe/run/call_check.hpp>
#include <fmoe/run/compile_graph.hpp>

namespace fmoe::detail {

// One expression or a tuple of expressions, whose common parts are computed once.
template <class E>
struct result_list {
  using scalar = typename E::scalar;
  using ranks = std::index_sequence<E::rank>;
  static constexpr type_set types = E::types;
  static std::array<dynamic::expression, 1> untyped(const E& e) { return {e.untyped()}; }
};
template <operand... Es>
struct result_list<std::tuple<Es...>> {
  using scalar = arithmetic_t<typename expression_t<Es>::scalar...>;
  using ranks = std::index_sequence<expression_t<Es>::rank...>;
  static constexpr type_set types = (type_set{} | ... | expression_t<Es>::types);
  static auto untyped(const std::tuple<Es...>& results) {
    return std::apply([](const auto&... e) { return std::array{as_expression(e).untyped()...}; },
                      results);
  }
};

template <class E>
inline constexpr bool is_kept = false;
template <expression E>
inline constexpr bool is_kept<kept_pair<E>> = true;

// Refuses a member of a tuple of results; compilers print which.
template <std::size_t Member, class E>
consteval void expects_result() {
  constexpr bool pair = is_kept<E>, layer = uncalled<E>;
  static_assert(!pair,
                "kept gives two results: kept(selection).values and kept(selection).indices");
  static_assert(!layer, "a tuple of results: one is a layer that was not called: write layer(x)");
  static_assert(pair || layer || operand<E>,
                "a tuple of results: each is a tensor or an expression");
}

// Refuses what is no result, and returns true, if it knows why.
template <class E>
inline constexpr bool refuses_result = false;
template <expression E>
inline constexpr bool refuses_result<kept_pair<E>> = (expects_result<0, kept_pair<E>>(), true);
template <class... Es>
inline constexpr bool refuses_result<std::tuple<Es...>> =
    []<std::size_t... Member>(std::index_sequence<Member...>) {
      (expects_result<Member, Es>(), ...);
      return !(operand<Es> && ...);
    }(std::index_sequence_for<Es...>());

// Lowers one expression, or several in a tuple, for the kernels of Level.
template <class Level, class E>
lowered_graph lowered_for(const E& e) {
  using results = result_list<E>;
  cpu::use_weights<typename results::scalar, Level, results::types>();
  return lowered_graph(results::untyped(e));
}

// Writes the values of results to arrays, one for each.
template <class T, class Level>
void evaluate(const lowered_graph& e, const compile_options& options,
              const std::derived_from<array_view> auto&... results) {
  const compiled_graph compiled =
      compile_graph<T, Level>(e.nodes(), e.roots(), all, options, {}, calls::one);
  std::size_t i = 0;
  const std::array bound{bound_array{results, compiled.results[i++].shape.size()}...};
  compiled.program->run({{}, bound, compiled.tokens});
}

// Makes a tensor of the shape of a result.
template <class T, std::size_t Rank>
tensor<T, Rank> tensor_of(const lowered_graph& e, extent result) {
  std::array<std::size_t, Rank> shape;
  // The rank limits the copy: g++ 16 would warn of a shape of more axes.
  std::copy_n(e.shape(result).begin(), Rank, shape.begin());
  return tensor<T, Rank>(shape);
}

// Throws shape_error or value_error if an array cannot hold the value of the one result.
void expects_output(const lowered_graph& e, dtype type, const array_view& y);

}  // namespace fmoe::detail

namespace fmoe {

// The value of an expression, in its arithmetic type: double if a leaf is double, else float. The
// first axis, where rows are independent of each other, is cut into tiles for the threads of the
// current arena. Throws shape_error and value_error as the operations say. Packed weights stay with
// their parameters for the next time.
//
//   const tensor<float, 2> made = evaluate(relu(einsum<"ti,io->to">(x, w)));
template <class Level = cpu::native, operand E>  // Level is that of the translation unit
auto evaluate(const E& e, const compile_options& options = {}) {
  using X = expression_t<E>;
  using T = typename X::scalar;
  const auto made = detail::lowered_for<Level>(as_expression(e));
  auto y = detail::tensor_of<T, X::rank>(made, 0);
  detail::evaluate<T, Level>(made, options, detail::view_of(y));
  return y;
}

// The values of several expressions, whose common parts are computed once, as a tuple of tensors.
// If one of them is computed in double, all are.
//
//   const auto [scores, best] = evaluate(std::tuple(softmax(x), top_k(x, 2)));
template <class Level = cpu::native, operand... Es>
auto evaluate(const std::tuple<Es...>& e, const compile_options& options = {}) {
  using results = detail::result_list<std::tuple<Es...>>;
  using T = typename results::scalar;
  const auto made = detail::lowered_for<Level>(e);
  return [&]<std::size_t... I, std::size_t... Ranks>(std::index_sequence<I...>,
                                                     std::index_sequence<Ranks...>) {
    std::tuple<tensor<T, Ranks>...> y{detail::tensor_of<T, Ranks>(made, I)...};
    detail::evaluate<T, Level>(made, options, detail::view_of(std::get<I>(y))...);
    return y;
  }(std::index_sequence_for<Es...>(), typename results::ranks());
}

// Writes to an array of the caller in place; it has the shape and the arithmetic type of the
// expression, and any strides. Throws before an element is written, also if the array overlaps an
// operand.
template <class Level = cpu::native, operand E, class Y>
  requires(!std::is_same_v<std::remove_cvref_t<Y>, compile_options>)
void evaluate(const E& e, Y&& y, const compile_options& options = {}) {
  using T = typename expression_t<E>::scalar;
  constexpr bool fits = detail::writable_array<std::remove_reference_t<Y>, T>;
  static_assert(fits,
                "evaluate writes an array of the expression's arithmetic type that is not const");
  if constexpr (fits) {
    const auto made = detail::lowered_for<Level>(as_expression(e));
    const detail::array_view view = detail::view_of(y);
    detail::expects_output(made, detail::dtype_of<T>, view);
    detail::evaluate<T, Level>(made, options, view);
  }
}

template <class Level = cpu::native, class E, class... More>
  requires(!operand<E>)
tensor<float, 2> evaluate(const E&, const More&...) {
  static_assert(detail::refuses_result<E>,
                "evaluate takes a tensor or an expression; for a layer write evaluate(layer(x))");
  return {};
}

template <class Level = cpu::native, class E>
tensor<float, 2> evaluate(const E&, const detail::misnamed_options_of_threads&) {
  static_assert(detail::never<E>,
                "evaluate: the option is .threads, as in fmoe::evaluate(layer(x), {.threads = 2})");
  return {};
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/run/evaluate-inl.hpp>
#endif

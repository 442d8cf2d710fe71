// SPDX-License-Identifier: MIT
// The gradients of a layer: a layer of the same type holds one for each parameter.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmoe/arrays/released.hpp>
#include <fmoe/base/stored_as.hpp>
#include <fmoe/gradients/both_passes.hpp>
#include <fmoe/io/load.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe::detail {

// The type of a layer's gradients, which are T: the layer itself, if its type does not say what it
// stores.
template <class T, class Layer>
struct gradients_as {
  using type = Layer;
};
template <class T, class Layer>
  requires requires { typename stored_as<T, Layer>::type; }
struct gradients_as<T, Layer> : stored_as<T, Layer> {};

// Returns a layer with the settings of another, and zeros for its parameters, but for some.
template <class Gradients, class Layer>
Gradients zeros_of(const Layer& layer, const std::vector<std::string>& without) {
  Gradients zeros;
  if constexpr (std::is_same_v<Gradients, Layer>) zeros = layer;
  make_zeros(released_parameters(only_listed(layer)), released_parameters(zeros), without);
  if constexpr (!std::is_same_v<Gradients, Layer>)
    io::copy_settings(io::released_layer(only_listed(layer)), io::released_layer(zeros));
  return zeros;
}

}  // namespace fmoe::detail

namespace fmoe {

// A layer whose forward and backward pass are ready for many calls. It holds the gradients.
template <class Layer, class T, class Level>
class compiled_gradients {
 public:
  // A layer of the same form with weights of T, float or double.
  using gradient_layer = typename detail::gradients_as<T, Layer>::type;

  template <class Slope>
  compiled_gradients(const Layer& layer, std::size_t tokens, const Slope& slope,
                     const compile_options& options) {
    const argument<0, 2> x(tokens);
    const argument<1, 2> target(tokens);
    const auto y = detail::applied(layer, x);
    ir::graph g;
    const detail::gradient_inputs in{x.lower(g), y.lower(g), target.lower(g),
                                     as_expression(slope(y, target)).lower(g)};
    auto own = detail::released_parameters(detail::only_listed(layer));
    passes_.emplace(std::move(g), in, detail::trained_parameters(own), tokens, options);
    hold(layer);
  }

  // Computes y = layer(x), the gradient dx of sum(y dy) with respect to x, and those with respect
  // to the parameters, which `gradients` returns; if `accumulates`, they are added to what that
  // holds. Arrays have two axes, [token, ...]; x and dy have any floating type (double only if the
  // layer's is double), y and dx that of the layer. Allocates nothing. Throws shape_error or
  // value_error before an element is written. Calls follow each other.
  template <class X, class D, class Y, class G>
  void operator()(const X& x, const D& dy, Y&& y, G&& dx, bool accumulates = false) {
    constexpr bool readable = detail::readable_array<const X> && detail::readable_array<const D>;
    constexpr bool writable = detail::writable_array<std::remove_reference_t<Y>, T> &&
                              detail::writable_array<std::remove_reference_t<G>, T>;
    static_assert(readable, "gradients read arrays of float, double, fmoe::bf16 or fmoe::f16");
    static_assert(writable,
                  "gradients write y and dx of the layer's arithmetic type that are not const");
    if constexpr (readable && writable) {
      static_assert(sizeof(detail::element_of<const X>) <= sizeof(T) &&
                        sizeof(detail::element_of<const D>) <= sizeof(T),
                    "gradients take no double into a layer of float: convert it first");
      passes_->run().call(detail::view_of(x), detail::view_of(dy), detail::view_of(y),
                          detail::view_of(dx), accumulates);
    }
  }

  // The gradients of the last call, or the sums of several. Running statistics have zeros.
  const step_gradients<gradient_layer, T>& gradients() const { return gradients_; }
  step_gradients<gradient_layer, T>& gradients() { return gradients_; }

  // The numbers of a row of x and of y.
  std::size_t inputs() const { return passes_->run().inputs(); }
  std::size_t outputs() const { return passes_->run().outputs(); }
  // Tokens that go through both passes at a time; a call has memory for so many.
  std::size_t span() const { return passes_->run().span(); }

  // Reads the weights of the layer again, after they were written.
  void refresh() { passes_->run().refresh(); }

  // From now on each top_k and product_top_k keeps k entries, in both passes; with `all`, as many
  // as it is compiled for. Throws value_error unless 0 < k <= the compiled one.
  void keep(std::size_t k) { passes_->run().keep(k); }

  // The plan of both passes for a span of tokens, as `explain` prints that of a layer: steps,
  // predicted times, and memory. Memory of a call counts the gradients of a span, and not those
  // that the step holds.
  //
  //   std::cout << compile_gradients(layer, 1024).explain();
  explanation explain() const { return passes_->explain(); }
  step_costs cost() const { return passes_->cost(); }

 private:
  // Makes the layer that holds the gradients.
  void hold(const Layer& layer) {
    std::vector<std::string> sparse;
    auto& results = passes_->run().parameters();
    for (std::size_t k = 0; k < results.size(); ++k)
      if (const auto table = passes_->run().table(k)) {
        sparse.push_back(results[k].name);
        const auto& shape = results[k].parameter_shape;
        gradients_.sparse.emplace_back(results[k].name,
                                       std::vector<std::size_t>(shape.begin(), shape.end()), table);
      }
    static_cast<gradient_layer&>(gradients_) = detail::zeros_of<gradient_layer>(layer, sparse);
    const auto made = detail::released_parameters(gradients_);
    for (detail::gradient_result& r : results)
      r.to = detail::elements_of(made, r.name, detail::dtype_of<T>);
  }

  step_gradients<gradient_layer, T> gradients_;
  using result = std::remove_cvref_t<decltype(detail::applied(std::declval<const Layer&>(),
                                                              std::declval<argument<0, 2>>()))>;

  std::optional<detail::both_passes<T, Level, result::types>> passes_;
};

// The same where dy follows from y: slope(y, target) is the expression of the gradient of a loss
// with respect to y. The second input of a call is the target then.
//
//   auto step = compile_gradients(layer, 1024, [](const auto& y, const auto& t) { return y - t; });
//   tensor<float, 2> target({x.shape()[0], step.outputs()}), y(target.shape()), dx(x.shape());
//   step(x, target, y, dx);
template <class Level = cpu::native, detail::has_released_names Layer, class Slope>
  requires(!std::is_same_v<Slope, compile_options>)
auto compile_gradients(const Layer& layer, std::size_t tokens, const Slope& slope,
                       const compile_options& options = {}) {
  using results = std::remove_cvref_t<decltype(detail::applied(layer, argument<0, 2>(0)))>;
  return compiled_gradients<Layer, typename results::scalar, Level>(layer, tokens, slope, options);
}

// Plans the forward and the backward pass of a layer for calls of up to `tokens` rows. The bits of
// y, dx and the gradients depend neither on threads and tiles nor on how tokens are split into
// calls at multiples of 256 that accumulate. Where rows depend on each other (expert choice), all
// tokens of a call go through together. Weights of 16 or 8 bits have gradients of float, in a layer
// of the same form. Throws value_error if a function has no derivative, if two parameters share
// their elements, or if the layer cannot hold gradients of the arithmetic type.
//
//   auto step = compile_gradients(layer, 1024);
//   tensor<float, 2> dy({x.shape()[0], step.outputs()}), y(dy.shape()), dx(x.shape());
//   step(x, dy, y, dx);
//   const auto& d = step.gradients().decoder;
template <class Level = cpu::native, detail::has_released_names Layer>
auto compile_gradients(const Layer& layer, std::size_t tokens,
                       const compile_options& options = {}) {
  const auto given = [](const auto&, const auto& dy) { return dy; };
  return compile_gradients<Level>(layer, tokens, given, options);
}

template <class Level = cpu::native, class Layer>
  requires(!detail::has_released_names<Layer>)
detail::refused compile_gradients(const Layer&, std::size_t, const compile_options& = {}) {
  static_assert(detail::never<Layer>,
                "compile_gradients takes a layer that lists its parameters in released");
  return {};
}

// What `gradients` returns. Layer has parameters of T.
template <class Layer, class T>
struct layer_gradients {
  tensor<T, 2> y;    // layer(x)
  tensor<T, 2> dx;   // the gradient with respect to x
  Layer parameters;  // the gradients with respect to the parameters
};

// The gradients of sum(layer(x) dy), once. The bits are those of compile_gradients.
//
//   const tensor<float, 2> dy({x.shape()[0], layer.decoder.shape()[1]});
//   const auto g = gradients(layer, x, dy);
//   save(g.parameters, "gradients.safetensors");
template <class Level = cpu::native, detail::has_released_names Layer, class X, class D>
auto gradients(const Layer& layer, const X& x, const D& dy, compile_options options = {}) {
  options.sparse_gradients = 0;
  const auto rows = detail::view_of(x);
  auto step = compile_gradients<Level>(layer, rows.rank == 0 ? 0 : rows.shape[0], options);
  using results = std::remove_cvref_t<decltype(detail::applied(layer, argument<0, 2>(0)))>;
  using T = typename results::scalar;
  using held = typename decltype(step)::gradient_layer;
  layer_gradients<held, T> g{tensor<T, 2>({rows.shape[0], step.outputs()}),
                             tensor<T, 2>({rows.shape[0], step.inputs()}),
                             {}};
  step(x, dy, g.y, g.dx);
  g.parameters = std::move(step.gradients());
  return g;
}

}  // namespace fmoe

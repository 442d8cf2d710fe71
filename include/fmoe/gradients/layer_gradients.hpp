// SPDX-License-Identifier: MIT
// The gradients of a layer: a layer of the same type holds one for each parameter.
#pragma once

#include <algorithm>
#include <array>
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

// What a layer returns, and the slope of a loss: one expression, or several in a tuple.
template <class Layer>
using results_of = std::remove_cvref_t<decltype(applied(std::declval<const Layer&>(),
                                                        std::declval<argument<0, 2>>()))>;

// The cotangents of the results are the other arguments of a call.
struct given_cotangents {
  template <extent... Rank, extent... I>
  static auto arguments(extent tokens, std::index_sequence<Rank...>, std::index_sequence<I...>) {
    return std::tuple(argument<static_cast<int>(1 + I), Rank>(tokens)...);
  }
};

// What a function of the results and the target returns: a slope has two axes or more.
template <class E>
inline constexpr bool is_loss = false;
template <expression E>
inline constexpr bool is_loss<E> = E::rank <= 1;

// Adds several expressions to a graph.
template <class E>
vector<ir::node_id> lower_all(const E& e, ir::graph& g) {
  vector<ir::node_id> nodes;
  for (const dynamic::expression& one : result_list<E>::untyped(e)) nodes.push_back(one.lower(g));
  return nodes;
}

// The arrays that stand for one result, or for several in a tuple.
template <class A>
struct arrays_of_call {
  static constexpr extent count = 1;
  template <class T>
  static constexpr bool are_readable = readable_array<const A>;
  template <class T>
  static constexpr bool are_writable = writable_array<A, T>;
  template <class T>
  static constexpr bool fit = sizeof(element_of<const A>) <= sizeof(T);
  static std::array<array_view, 1> to_read(const A& a) { return {view_of(a)}; }
  static std::array<array_view, 1> to_write(A& a) { return {view_of(a)}; }
};
template <class... As>
struct arrays_of_call<std::tuple<As...>> {
  static constexpr extent count = sizeof...(As);
  template <class T>
  static constexpr bool are_readable = (readable_array<const std::remove_reference_t<As>> && ...);
  template <class T>
  static constexpr bool are_writable = (writable_array<std::remove_reference_t<As>, T> && ...);
  template <class T>
  static constexpr bool fit =
      ((sizeof(element_of<const std::remove_reference_t<As>>) <= sizeof(T)) && ...);
  static std::array<array_view, count> to_read(const std::tuple<As...>& all) {
    return std::apply([](const auto&... a) { return std::array<array_view, count>{view_of(a)...}; },
                      all);
  }
  static std::array<array_view, count> to_write(std::tuple<As...>& all) {
    return std::apply([](auto&... a) { return std::array<array_view, count>{view_of(a)...}; }, all);
  }
};

}  // namespace fmoe::detail

namespace fmoe {

// A layer whose forward and backward pass are ready for many calls. It holds the gradients. Slope
// makes a loss of its results, or their cotangents.
template <class Layer, class T, class Level, class Slope>
class compiled_gradients {
  using results = detail::results_of<Layer>;
  static constexpr std::size_t count = detail::result_list<results>::ranks::size(),
                               taken = std::is_same_v<Slope, detail::given_cotangents> ? count : 1;

 public:
  // A layer of the same form with weights of T, float or double.
  using gradient_layer = typename detail::gradients_as<T, Layer>::type;

  compiled_gradients(const Layer& layer, std::size_t tokens, const Slope& slope,
                     const compile_options& options) {
    const argument<0, 2> x(tokens);
    const auto y = detail::applied(layer, x);
    ir::graph g;
    detail::gradient_inputs in{.x = {x.lower(g)}, .y = detail::lower_all(y, g)};
    if constexpr (std::is_same_v<Slope, detail::given_cotangents>) {
      using ranks = typename detail::result_list<results>::ranks;
      in.given = in.dy = detail::lower_all(
          slope.arguments(tokens, ranks(), std::make_index_sequence<ranks::size()>()), g);
    } else {
      const argument<1, 2> target(tokens);
      const auto dy = slope(y, target);
      using made = std::remove_const_t<decltype(dy)>;
      in.given = {target.lower(g)};
      if constexpr (detail::is_loss<made>) {
        in.loss = detail::add_loss(g, dy.untyped(), 2, tokens);
      } else {
        in.dy = detail::lower_all(dy, g);
        static_assert(
            detail::result_list<made>::ranks::size() == count,
            "compile_gradients: the slope returns a gradient for each result of the layer");
      }
    }
    auto own = detail::released_parameters(detail::only_listed(layer));
    passes_.emplace(std::move(g), in, detail::trained_parameters(own), tokens, options);
    hold(layer);
  }

  // Computes y = layer(x), the gradient dx of sum(y dy) with respect to x, and those with respect
  // to the parameters, which `gradients` returns; if `accumulates`, they are added to what that
  // holds. Arrays are [token, ...]; x and dy have any floating type (double only if the layer's is
  // double), y and dx that of the layer. For a layer of several results, dy and y are tuples of
  // arrays, and dx and the others are gradients of the sum over all of them. Allocates nothing.
  // Throws shape_error or value_error before an element is written. Calls follow each other.
  template <class X, class D, class Y, class G>
  void operator()(const X& x, const D& dy, Y&& y, G&& dx, bool accumulates = false) {
    using given = detail::arrays_of_call<std::remove_cvref_t<D>>;
    using outputs = detail::arrays_of_call<std::remove_reference_t<Y>>;
    constexpr bool readable = detail::readable_array<const X> && given::template are_readable<T>;
    constexpr bool writable =
        outputs::template are_writable<T> && detail::writable_array<std::remove_reference_t<G>, T>;
    static_assert(readable, "gradients read arrays of float, double, fmoe::bf16 or fmoe::f16");
    static_assert(writable,
                  "gradients write y and dx of the layer's arithmetic type that are not const");
    if constexpr (readable && writable) {
      static_assert(sizeof(detail::element_of<const X>) <= sizeof(T) && given::template fit<T>,
                    "gradients take no double into a layer of float: convert it first");
      static_assert(given::count == taken && outputs::count == count,
                    "gradients of a layer of several results take and write a tuple of arrays, "
                    "one for each result");
      const auto to_read = given::to_read(dy);
      const auto to_write = outputs::to_write(y);
      const std::array<detail::array_view, 1> to_x{detail::view_of(x)}, to_dx{detail::view_of(dx)};
      passes_->run().call({to_x, to_read, to_write, to_dx}, accumulates);
    }
  }

  // The gradients of the last call, or the sums of several. Running statistics have zeros.
  const step_gradients<gradient_layer, T>& gradients() const { return gradients_; }
  step_gradients<gradient_layer, T>& gradients() { return gradients_; }

  // The loss of the last call, the mean of those of its tokens. With a slope instead it is 0.
  double loss() const { return passes_->run().loss(); }

  // The numbers of a row of x and of a result.
  std::size_t inputs() const { return passes_->run().inputs(); }
  std::size_t outputs(std::size_t result = 0) const { return passes_->run().outputs(result); }
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
    auto& parameters = passes_->run().parameters();
    for (std::size_t k = 0; k < parameters.size(); ++k)
      if (const auto table = passes_->run().table(k)) {
        sparse.push_back(parameters[k].name);
        const auto& shape = parameters[k].parameter_shape;
        gradients_.sparse.emplace_back(parameters[k].name,
                                       std::vector<std::size_t>(shape.begin(), shape.end()), table);
      }
    static_cast<gradient_layer&>(gradients_) = detail::zeros_of<gradient_layer>(layer, sparse);
    const auto made = detail::released_parameters(gradients_);
    for (detail::gradient_result& r : parameters)
      r.to = detail::elements_of(made, r.name, detail::dtype_of<T>);
  }

  step_gradients<gradient_layer, T> gradients_;
  std::optional<detail::both_passes<T, Level, detail::result_list<results>::types>> passes_;
};

// The same where dy follows from y and a target [t, o], which is the second input of a call then:
// loss(y, target) is the expression of a loss, one for each token, [t], whose mean counts, or one
// number of all tokens, which then go through together. Of a layer of several results the function
// takes a tuple of them. It may return the slope of a loss instead, the gradient with respect to y,
// or a tuple of them. fmoe/losses.hpp has losses.
//
//   auto step = compile_gradients(layer, 1024, [](const auto& y, const auto& target) {
//     return losses::mse(y, target);
//   });
//   tensor<float, 2> target({x.shape()[0], step.outputs()}), y(target.shape()), dx(x.shape());
//   step(x, target, y, dx);
//   std::cout << step.loss();
template <class Level = cpu::native, detail::has_released_names Layer, class Slope>
  requires(!std::is_same_v<Slope, compile_options>)
auto compile_gradients(const Layer& layer, std::size_t tokens, const Slope& slope,
                       const compile_options& options = {}) {
  using T = typename detail::result_list<detail::results_of<Layer>>::scalar;
  return compiled_gradients<Layer, T, Level, Slope>(layer, tokens, slope, options);
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
//
// A layer that returns several results has gradients of all of them together, and its step takes
// tuples: step(x, std::tie(dy, da), std::tie(y, a), dx).
template <class Level = cpu::native, detail::has_released_names Layer>
auto compile_gradients(const Layer& layer, std::size_t tokens,
                       const compile_options& options = {}) {
  return compile_gradients<Level>(layer, tokens, detail::given_cotangents(), options);
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
  requires expression<detail::results_of<Layer>>
auto gradients(const Layer& layer, const X& x, const D& dy, compile_options options = {}) {
  options.sparse_gradients = 0;
  const auto rows = detail::view_of(x);
  auto step = compile_gradients<Level>(layer, rows.rank == 0 ? 0 : rows.shape[0], options);
  using T = typename detail::results_of<Layer>::scalar;
  using held = typename decltype(step)::gradient_layer;
  layer_gradients<held, T> g{tensor<T, 2>({rows.shape[0], step.outputs()}),
                             tensor<T, 2>({rows.shape[0], step.inputs()}),
                             {}};
  step(x, dy, g.y, g.dx);
  g.parameters = std::move(step.gradients());
  return g;
}
template <class Level = cpu::native, detail::has_released_names Layer, class X, class D>
  requires(!expression<detail::results_of<Layer>>)
detail::refused gradients(const Layer&, const X&, const D&, const compile_options& = {}) {
  static_assert(detail::never<Layer>,
                "gradients: the layer returns several results: write compile_gradients, whose step "
                "takes a tuple of arrays");
  return {};
}

}  // namespace fmoe

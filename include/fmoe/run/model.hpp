// SPDX-License-Identifier: MIT
// A compiled layer of any type: what a program keeps that runs different layers in one list.
#pragma once

#include <memory>

#include <fmoe/run/compile.hpp>

namespace fmoe {

// A layer of one input [token, input] and one result [token, output], compiled in float. The type
// says nothing of the layer, so that models stand in a std::vector, in a std::function, or in a
// class that is compiled once. Copies share the compiled layer. A layer of other inputs becomes a
// model with a lambda: model([=](const auto& x) { return layer(x, r.g1(x), r.g2(x)); }, tokens).
//
//   const aoe<> other;
//   const std::vector<model> layers{model(layer, 128), model(other, 128)};
//   for (const model& m : layers) std::cout << m(x);
class model {
 public:
  // Compiles the layer, as compile(layer, tokens, options) does.
  template <class Layer>
  model(const Layer& layer, std::size_t tokens, const compile_options& options = {})
      : model(compile(layer, tokens, options)) {}

  // Takes a layer that is compiled for this program's instruction set.
  template <class T, class Level, std::size_t Arguments, class Ranks>
  explicit model(compiled<T, Level, Arguments, Ranks> layer) {
    constexpr bool fits =
        std::is_same_v<compiled<T, Level, Arguments, Ranks>, compiled<float, cpu::native, 1>>;
    static_assert(fits, "model: the layer has one input and one result of two axes, in float");
    if constexpr (fits)
      layer_ = std::make_shared<compiled<float, cpu::native, 1>>(std::move(layer));
  }

  // As those of a compiled layer: y = m(x), or m(x, y), which allocates nothing.
  template <class X>
  tensor<float, 2> operator()(const X& x) const {
    return layer()(x);
  }
  template <class X, class Y>
  void operator()(const X& x, Y&& y) const {
    layer()(x, y);
  }

  // The most tokens of a call, and the lengths of a row of the input and of the result.
  std::size_t tokens() const { return layer().tokens(); }
  std::size_t inputs() const { return layer().input_shape()[0]; }
  std::size_t outputs() const { return layer().output_shape()[0]; }

  // Reads the weights again, for all copies of this model: see compiled::refresh.
  void refresh() { layer().refresh(); }

 private:
  compiled<float, cpu::native, 1>& layer() const {
    detail::expects<value_error>(layer_ != nullptr,
                                 "[model] it was moved: use the one that it was moved to");
    return *layer_;
  }

  std::shared_ptr<compiled<float, cpu::native, 1>> layer_;
};

}  // namespace fmoe

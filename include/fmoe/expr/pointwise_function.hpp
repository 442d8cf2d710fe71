// SPDX-License-Identifier: MIT
// Functions of one number that are the user's own.
#pragma once

#include <span>
#include <string>

#include <fmoe/expr/operations.hpp>

namespace fmoe::detail {

// `of_number` is called with a float or a double and returns a number.
template <class OfNumber>
struct scalar_function : own_function {
  scalar_function(std::string n, OfNumber f, std::shared_ptr<const own_function> s = nullptr)
      : own_function(std::move(n), std::move(s)),
        of_number(std::move(f)) {}

  void apply(float* x, extent n) const override { each(x, n); }
  void apply(double* x, extent n) const override { each(x, n); }

  template <class T>
  void each(T* x, extent n) const {
    for (extent i = 0; i < n; ++i) x[i] = static_cast<T>(of_number(x[i]));
  }

  OfNumber of_number;
};

// `of_numbers` is called with a std::span of floats or of doubles and changes them in place.
template <class OfNumbers>
struct vector_function : own_function {
  vector_function(std::string n, OfNumbers f, std::shared_ptr<const own_function> s = nullptr)
      : own_function(std::move(n), std::move(s)),
        of_numbers(std::move(f)) {}

  void apply(float* x, extent n) const override { of_numbers(std::span(x, n)); }
  void apply(double* x, extent n) const override { of_numbers(std::span(x, n)); }

  OfNumbers of_numbers;
};

}  // namespace fmoe::detail

namespace fmoe {

// A function of one number that fmoe does not have, fused into other work like fmoe's own:
//
//   const pointwise_function mish("mish", [](auto x) {
//     return x * std::tanh(std::log1p(std::exp(x)));
//   });
//   const auto y = mish(einsum<"ti,io->to">(x, w));
//
// The function must give the same result for the same number, and must not throw; several threads
// call it at once. `name` stands in plans. Each pointwise_function is another function to the
// planner, its copies are the same one.
class pointwise_function {
 public:
  // `of_number` takes a float and a double, and returns a number.
  template <class OfNumber>
  pointwise_function(std::string name, OfNumber of_number)
      : function_(std::make_shared<const detail::scalar_function<OfNumber>>(
            std::move(name), std::move(of_number))) {}
  // `derivative` is the function's derivative, of the same form: gradients go through it.
  //
  //   const pointwise_function cubed("cubed", [](auto x) { return x * x * x; },
  //                                  [](auto x) { return 3 * x * x; });
  template <class OfNumber, class Derivative>
  pointwise_function(const std::string& name, OfNumber of_number, Derivative derivative)
      : function_(std::make_shared<const detail::scalar_function<OfNumber>>(
            name, std::move(of_number),
            std::make_shared<const detail::scalar_function<Derivative>>(name + "'",
                                                                        std::move(derivative)))) {}

  // Returns a function of many numbers at a time: `of_numbers` takes a std::span of floats and one
  // of doubles, and changes the numbers in place. Spans have any length. The result of a number
  // must not depend on its place.
  template <class OfNumbers>
  static pointwise_function of_spans(std::string name, OfNumbers of_numbers) {
    return pointwise_function(std::make_shared<const detail::vector_function<OfNumbers>>(
        std::move(name), std::move(of_numbers)));
  }
  // `derivative` changes numbers to the derivative there.
  template <class OfNumbers, class Derivative>
  static pointwise_function of_spans(const std::string& name, OfNumbers of_numbers,
                                     Derivative derivative) {
    return pointwise_function(std::make_shared<const detail::vector_function<OfNumbers>>(
        name, std::move(of_numbers),
        std::make_shared<const detail::vector_function<Derivative>>(name + "'",
                                                                    std::move(derivative))));
  }

  template <operand E>
  auto operator()(const E& e) const {
    return detail::typed<expression_t<E>::rank>(
        [&](const dynamic::expression& x) { return detail::apply(function_, x); }, e);
  }

 private:
  explicit pointwise_function(std::shared_ptr<const detail::own_function> f)
      : function_(std::move(f)) {}

  std::shared_ptr<const detail::own_function> function_;
};

}  // namespace fmoe

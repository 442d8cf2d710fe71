// SPDX-License-Identifier: MIT
// Layers of the same form that store their weights in another type.
#pragma once

#include <cstddef>

#include <fmoe/base/dtype.hpp>

namespace fmoe::detail {

// The type of a layer with its weights stored as Q: the last parameter of its template is their
// type, or a part of the layer that has them.
template <class Q, class Layer>
struct stored_as {};
template <class Q, template <class> class Layer, class T>
  requires is_storable<T> || is_quantized<T>
struct stored_as<Q, Layer<T>> {
  using type = Layer<Q>;
};
template <class Q, template <class> class Layer, class Part>
  requires requires { typename stored_as<Q, Part>::type; }
struct stored_as<Q, Layer<Part>> {
  using type = Layer<typename stored_as<Q, Part>::type>;
};
template <class Q, template <std::size_t, class> class Layer, std::size_t Levels, class T>
  requires is_storable<T> || is_quantized<T>
struct stored_as<Q, Layer<Levels, T>> {
  using type = Layer<Levels, Q>;
};

}  // namespace fmoe::detail

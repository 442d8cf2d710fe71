// SPDX-License-Identifier: MIT
// Tensors of 8-bit weights.
#pragma once

#include <cmath>

#include <fmoe/arrays/quantized_layout.hpp>
#include <fmoe/arrays/tensor.hpp>

namespace fmoe {

// Weights of 8 bits: fmoe::q8 has a scale for each block of 32 weights along one axis, fmoe::q8c
// one for the whole axis. Their integers and scales are made by `quantized` and not written
// afterwards; the tensor can be replaced as a whole. A layer computes with exactly these weights,
// as floats, and widens them in registers.
template <class Q, std::size_t Rank>
  requires detail::is_quantized<Q>
class tensor<Q, Rank> : public detail::shaped_storage<Rank> {
  using base = detail::shaped_storage<Rank>;

 public:
  using value_type = Q;
  using base::empty, base::rank, base::shape, base::shared_storage, base::size;

  tensor() = default;

  // Makes a handle on existing storage, laid out as `axis` says.
  tensor(const std::array<std::size_t, Rank>& extents, std::shared_ptr<fmoe::storage> s,
         detail::block_axis axis)
      : base(extents, detail::element_count(extents), std::move(s), axis) {}

  // The weight at an index for each axis.
  template <class... Index>
  float operator()(Index... i) const {
    static_assert(sizeof...(Index) == Rank, "fmoe::tensor: an element has one index for each axis");
    std::size_t at = 0;
    [[maybe_unused]] std::size_t axis = 0;
    ((at = at * shape()[axis++] + static_cast<std::size_t>(i)), ...);
    float weight = 0;
    detail::with_numbers<float>(numbers(), [&](const auto& number) { weight = number(at); });
    return weight;
  }

  detail::block_axis blocks() const { return base::axis(); }
  detail::stored_numbers numbers() const {
    return {detail::dtype_of<Q>, empty() ? nullptr : shared_storage()->data(), size(), blocks()};
  }
};

}  // namespace fmoe

namespace fmoe::detail {

// Returns the storage of numbers in 8 bits. Throws value_error for a number that is not finite, and
// for q8 if a block needs a scale beyond f16's 65504.
template <class Q>
std::shared_ptr<storage> quantized_storage(const stored_numbers& from, block_axis axis) {
  using scale_type = typename Q::scale;
  const quantized_layout layout(dtype_of<Q>, from.size, axis);
  auto result = std::make_shared<storage>(layout.bytes());
  if (from.size == 0) return result;
  auto* const integers = static_cast<std::int8_t*>(result->data());
  auto* const scales = reinterpret_cast<scale_type*>(integers + layout.first_scale());
  with_numbers<float>(from, [&](const auto& number) {
    std::vector<float> largest(layout.scales());
    layout.for_each_run([&](extent first, extent count, extent scale, extent step) {
      for (extent i = 0; i < count; ++i) {
        const float x = std::fabs(number(first + i));
        expects<value_error>(std::isfinite(x), "[quantized] weight ", first + i, " is not finite");
        float& most = largest[scale + i * step];
        most = std::max(most, x);
      }
    });
    for (extent s = 0; s < largest.size(); ++s) {
      scales[s] = convert<scale_type>(largest[s] / 127);
      expects<value_error>(std::isfinite(convert<float>(scales[s])), "[quantized] a weight of ",
                           largest[s], " is too large for the scales of q8: take q8c");
    }
    layout.for_each_run([&](extent first, extent count, extent at, extent step) {
      for (extent i = 0; i < count; ++i) {
        const float scale = convert<float>(scales[at + i * step]);
        const float q = scale == 0 ? 0 : std::nearbyint(number(first + i) / scale);
        integers[first + i] = static_cast<std::int8_t>(std::clamp(q, -127.f, 127.f));
      }
    });
  });
  return result;
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns the tensor in 8 bits, with blocks along `axis`: each weight is rounded to the nearest
// multiple of its block's scale, which is the greatest magnitude of the block over 127, as in
// ggml's Q8_0. Throws value_error for a weight that is not finite, and for q8 where a weight is
// beyond 127 * 65504.
//
//   const tensor<float, 2> encoder({768, 64});  // [i, o], and i is summed
//   const parameter<q8, 2> small = quantized<q8>(encoder, 0);
template <class Q, class T, std::size_t Rank>
  requires detail::is_quantized<Q>
tensor<Q, Rank> quantized(const tensor<T, Rank>& weights, std::size_t axis) {
  detail::expects<value_error>(axis < Rank, "[quantized] there is no axis ", axis, " among ", Rank);
  if (weights.empty()) return {};
  const auto& shape = weights.shape();
  const detail::block_axis along{shape[axis],
                                 detail::element_count(std::span(shape).subspan(axis + 1))};
  const detail::stored_numbers from{detail::dtype_of<T>, weights.data(), weights.size(), {}};
  return {shape, detail::quantized_storage<Q>(from, along), along};
}

// Returns the weights as floats.
template <class Q, std::size_t Rank>
  requires detail::is_quantized<Q>
tensor<float, Rank> widened(const tensor<Q, Rank>& weights) {
  if (weights.empty()) return {};
  tensor<float, Rank> result(weights.shape());
  detail::copy_numbers(weights.numbers(), detail::elements_to_write(result));
  return result;
}

}  // namespace fmoe

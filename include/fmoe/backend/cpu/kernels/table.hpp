// SPDX-License-Identifier: MIT
// Places in the table of a gather: pointers to the numbers, or for weights of 8 bits, which have
// their scales elsewhere, values that act like pointers.
#pragma once

#include <cstddef>

#include <fmoe/arrays/quantized_layout.hpp>
#include <fmoe/backend/cpu/kernels/simd.hpp>

namespace fmoe::cpu {

// Weights whose blocks lie along rows: weight i has scale i / block, where `block` divides the
// length of a row, or is that length.
template <class Q>
class int8_pointer {
 public:
  int8_pointer(const void* data, const quantized_layout& layout)
      : integers_(static_cast<const std::int8_t*>(data)),
        scales_(reinterpret_cast<const scale*>(integers_ + layout.first_scale())),
        reciprocal_(~std::uint64_t{0} / layout.block + 1) {}

  // Can a table be read so?
  static bool can_read(const quantized_layout& layout) {
    return layout.axis.stride == 1 && layout.axis.length % layout.block == 0 && layout.block > 1;
  }

  int8_pointer operator+(extent n) const {
    int8_pointer p = *this;
    p.at_ += n;
    return p;
  }
  const std::int8_t* address() const { return integers_ + at_; }

  // The factor of the weights that begin here and end with the block.
  float scale_here() const { return convert<float>(scales_[block_of(at_)]); }

 private:
  using scale = typename Q::scale;

  // i / block, exactly: tables have less than 2^64 / block weights.
  extent block_of(extent i) const { return upper_product(i, reciprocal_); }

  const std::int8_t* integers_;
  const scale* scales_;
  std::uint64_t reciprocal_;
  extent at_ = 0;
};

// The address of the numbers, which prefetches ask for.
template <class S>
const void* address_of(const S* p) {
  return p;
}
template <class Q>
const void* address_of(const int8_pointer<Q>& p) {
  return p.address();
}

template <class P>
inline constexpr extent bytes_of_number = 1;
template <class S>
inline constexpr extent bytes_of_number<const S*> = sizeof(S);
template <class S>
inline constexpr extent bytes_of_number<S*> = sizeof(S);

// Loads a vector of 8-bit weights, which have one scale.
template <class T, class Arch, class Q>
vec<T, Arch> load_as(const int8_pointer<Q>& p) {
  static_assert(std::is_same_v<T, float>);
  return load_as<T, Arch>(p.address()) * vec<T, Arch>(p.scale_here());
}

// Loads the first n lanes of 8-bit weights, which have one scale, and sets the others to 0.
template <class T, class Arch, class Q>
vec<T, Arch> load_part_as(const int8_pointer<Q>& p, extent n) {
  static_assert(std::is_same_v<T, float>);
  return load_part_as<T, Arch>(p.address(), n) * vec<T, Arch>(p.scale_here());
}

}  // namespace fmoe::cpu

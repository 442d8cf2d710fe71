// SPDX-License-Identifier: MIT
// Tensors and parameters whose type and rank are known only when the program runs, so that code
// which treats all of them alike is compiled once.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <fmoe/arrays/quantized.hpp>

namespace fmoe::detail {

// A tensor of any type and rank. It shares its elements; without a storage it holds nothing.
struct any_tensor {
  dtype type;
  std::vector<extent> shape;
  std::shared_ptr<storage> elements;
  block_axis axis{};  // of weights of 8 bits

  bool empty() const { return elements == nullptr; }
  stored_numbers numbers() const {
    return {type, empty() ? nullptr : elements->data(), element_count(shape), axis};
  }
};

template <class T, std::size_t Rank>
any_tensor any_of(const tensor<T, Rank>& t) {
  any_tensor any{dtype_of<T>, {t.shape().begin(), t.shape().end()}, t.shared_storage()};
  if constexpr (is_quantized<T>) any.axis = t.blocks();
  return any;
}

// An axis of this shape.
inline block_axis axis_of(std::span<const extent> shape, extent axis) {
  return {shape[axis], element_count(shape.subspan(axis + 1))};
}

// The axis along which the blocks of 8-bit weights lie.
inline extent axis_of_blocks(const any_tensor& t) {
  extent axis = 0;
  while (axis + 1 < t.shape.size() && axis_of(t.shape, axis) != t.axis) ++axis;
  return axis;
}

// Returns the numbers as floats.
inline any_tensor as_floats(const any_tensor& t) {
  if (t.type == dtype::float32) return t;
  const stored_numbers from = t.numbers();
  any_tensor result{dtype::float32, t.shape, std::make_shared<storage>(from.size * sizeof(float))};
  copy_numbers(from, static_cast<float*>(result.elements->data()));
  return result;
}

// The reverse of any_of. The tensor must have this type and rank.
template <class T, std::size_t Rank>
tensor<T, Rank> tensor_of(const any_tensor& t) {
  std::array<extent, Rank> shape{};
  std::copy_n(t.shape.begin(), Rank, shape.begin());
  if constexpr (is_quantized<T>) return {shape, t.elements, t.axis};
  else return {shape, t.elements};
}

// Refers to a parameter of any type and rank, which must outlive the reference.
class parameter_reference {
 public:
  template <class T, std::size_t Rank>
  parameter_reference(parameter<T, Rank>& p) : parameter_(&p),
                                               functions_(&functions_of<T, Rank>) {}

  dtype type() const { return functions_->type; }
  std::size_t rank() const { return functions_->rank; }
  any_tensor value() const { return functions_->value(parameter_); }
  bool is(const parameter_reference& other) const { return parameter_ == other.parameter_; }

  // The value must have the parameter's type and rank.
  void assign(const any_tensor& value) const { functions_->assign(parameter_, value); }
  // The same, but the parameter has the value's own storage then; nothing was made of its own one.
  void refer_to(const any_tensor& value) const { functions_->refer_to(parameter_, value); }

 private:
  struct functions {
    dtype type;
    std::size_t rank;
    any_tensor (*value)(const void* parameter);
    void (*assign)(void* parameter, const any_tensor& value);
    void (*refer_to)(void* parameter, const any_tensor& value);
  };

  template <class T, std::size_t Rank>
  using stored_as = typename parameter<T, Rank>::value_type;  // floats, for vectors beside 8 bits

  template <class T, std::size_t Rank>
  static any_tensor value_of(const void* p) {
    return any_of(*static_cast<const tensor<stored_as<T, Rank>, Rank>*>(
        static_cast<const parameter<T, Rank>*>(p)));
  }
  template <class T, std::size_t Rank>
  static void assign_to(void* p, const any_tensor& value) {
    *static_cast<parameter<T, Rank>*>(p) = tensor_of<stored_as<T, Rank>, Rank>(value);
  }
  template <class T, std::size_t Rank>
  static void let_refer(void* p, const any_tensor& value) {
    static_cast<parameter<T, Rank>*>(p)->refer_to(tensor_of<stored_as<T, Rank>, Rank>(value));
  }
  template <class T, std::size_t Rank>
  static constexpr functions functions_of{dtype_of<stored_as<T, Rank>>, Rank, value_of<T, Rank>,
                                          assign_to<T, Rank>, let_refer<T, Rank>};

  void* parameter_;
  const functions* functions_;
};

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// Makes tensors from arrays of other libraries: Eigen's with eigen.hpp, xtensor's with xtensor.hpp;
// spans, vectors, C arrays and mdspans need no other header.
#pragma once

#include <fmoe/arrays/array_view.hpp>
#include <fmoe/arrays/tensor.hpp>

namespace fmoe::detail {

// The element type of an array, const if the elements may only be read, and its rank. For a lazy
// array they are those of its value.
template <class A>
using element_of = typename decltype(view_of(in_memory(std::declval<A&>())))::element;
template <class A>
inline constexpr extent rank_of = decltype(view_of(in_memory(std::declval<A&>())))::fixed_rank;

template <class A>
concept array_operand = array_like<A> || lazy_array<A>;

// An array of floating-point numbers, or an expression of another library that becomes one.
template <class A>
concept readable_array = array_operand<A> && is_storable<std::remove_const_t<element_of<A>>>;

// The same, or an array whose element type is known when the program runs.
template <class A>
concept bindable_array =
    array_operand<A> && (readable_array<A> || std::is_same_v<element_of<A>, any_number>);

// An array that a result of type T can be written to.
template <class A, class T>
concept writable_array = array_like<A> && (std::is_same_v<element_of<A>, T> ||
                                           std::is_same_v<element_of<A>, any_number>);

template <extent Rank, class A>
inline constexpr extent tensor_rank = Rank != all         ? Rank
                                      : rank_of<A> != all ? rank_of<A>
                                                          : 0;
template <extent Rank, class A>
using tensor_like =
    tensor<std::conditional_t<readable_array<A>, std::remove_const_t<element_of<A>>, float>,
           tensor_rank<Rank, A>>;
template <extent Rank, class A>
using borrowed_tensor = std::conditional_t<std::is_const_v<element_of<A>>,
                                           const tensor_like<Rank, A>, tensor_like<Rank, A>>;

// Reports as a compile error the first reason why an array cannot become a tensor.
template <extent Rank, class A>
consteval bool becomes_tensor() {
  constexpr bool is_readable = readable_array<A>;  // of a concept, compilers would tell every part
  static_assert(is_readable,
                "an array is of float, double, fmoe::bf16 or fmoe::f16: cast integers first");
  constexpr bool has_rank = Rank != all || rank_of<A> != all;
  static_assert(has_rank,
                "this array's type does not tell its rank: to_tensor<2>(x) or borrow<2>(x) does");
  return is_readable && has_rank;
}

template <std::size_t Rank>
std::array<extent, Rank> shape_of(const array_view& v) {
  expects<shape_error>(v.rank == Rank, "[tensor] an array has ", v.rank, " axes, not ", Rank);
  std::array<extent, Rank> shape;
  for (extent i = 0; i < Rank; ++i)
    shape[i] = v.shape[i];  // no copy_n: g++ 14 -O1 would warn about it in users' code
  return shape;
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns a copy of the elements, or the value of a lazy expression. Give Rank if the type of the
// array does not tell it. Throws shape_error if the array has another rank.
template <std::size_t Rank = all, detail::array_operand A>
detail::tensor_like<Rank, const A> to_tensor(const A& a) {
  detail::tensor_like<Rank, const A> t;
  if constexpr (detail::becomes_tensor<Rank, const A>()) {
    const auto& elements = detail::in_memory(a);
    const auto v = detail::host_view_of(elements);
    t = detail::tensor_like<Rank, const A>(detail::shape_of<t.rank>(v));
    const auto* from = static_cast<detail::element_of<const A>*>(v.data);
    const std::size_t line = v.rank == 0 ? 1 : v.shape[v.rank - 1],
                      step = v.rank == 0 ? 1 : v.strides[v.rank - 1];
    auto* to = detail::elements_to_write(t);
    for (std::size_t row = 0; row * line < t.size(); ++row)
      for (std::size_t i = 0, at = v.row_offset(v.rank == 0 ? 0 : 1, row); i < line;
           ++i, at += step)
        *to++ = from[at];
  }
  return t;
}

// Returns a tensor on the elements of an array, which must outlive it; the tensor is const if the
// elements are. A temporary is refused unless, as a span, it owns nothing. Nothing is copied, so
// the elements must be row-major without gaps; otherwise it throws value_error. Give Rank as for
// to_tensor.
template <std::size_t Rank = all, class A>
  requires detail::array_like<std::remove_reference_t<A>>
auto borrow(A&& a) -> detail::borrowed_tensor<Rank, std::remove_reference_t<A>> {
  using result = detail::borrowed_tensor<Rank, std::remove_reference_t<A>>;
  static_assert(detail::outlives<A>,
                "borrow: a temporary ends before the tensor on its elements: name it, or copy it "
                "by to_tensor");
  if constexpr (detail::outlives<A> && detail::becomes_tensor<Rank, std::remove_reference_t<A>>()) {
    const auto v = detail::host_view_of(a);
    detail::expects<value_error>(
        v.has_plain_rows(v.rank),
        "[borrow] the array's rows do not follow each other: to_tensor copies it");
    auto* const first = static_cast<detail::element_of<std::remove_reference_t<A>>*>(v.data);
    return result(detail::shape_of<result::rank>(v),
                  std::make_shared<storage>(first, v.span_bytes()));
  }
  return result();
}

}  // namespace fmoe

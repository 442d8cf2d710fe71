// SPDX-License-Identifier: MIT
// xtensor's lazy expressions can be inputs with this header. Its containers, adaptors and strided
// views have data(), shape() and strides(), and are inputs and outputs in place without it. The
// type of an xarray does not tell its rank.
#pragma once

#if __has_include(<xtensor/containers/xadapt.hpp>)  // from 0.26 on
#include <xtensor/containers/xadapt.hpp>
#include <xtensor/containers/xarray.hpp>
#include <xtensor/containers/xtensor.hpp>
#else
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xtensor.hpp>
#endif

#include <fmoe/arrays/interop.hpp>

namespace fmoe {

template <class A>
  requires(xt::is_xexpression<std::remove_const_t<A>>::value && !detail::has_shape<A>)
struct array_traits<A> {
  // xt::eval would not do: in C++20 that of 0.24 makes tensors of four axes from expressions of
  // xarrays.
  static auto evaluated(const A& a) {
    constexpr std::size_t rank = detail::fixed_size<typename A::shape_type>;
    using value = std::remove_cv_t<typename A::value_type>;
    if constexpr (rank == all) return xt::xarray<value>(a);
    else return xt::xtensor<value, rank>(a);
  }
};

// For an adaptor of a const container, whose own data() compiles only if the adaptor is const, too.
template <class A>
  requires(xt::is_xexpression<A>::value && detail::has_shape<A> && !std::is_const_v<A> &&
           std::is_const_v<std::remove_reference_t<typename A::storage_type>>)
struct array_traits<A> : array_traits<const A> {};

// Returns an xtensor adaptor of the elements of a tensor, read only if the tensor is const. The
// tensor must outlive it.
template <class Tensor>
auto as_xtensor(Tensor&& t) {
  static_assert(std::is_lvalue_reference_v<Tensor>,
                "as_xtensor: a temporary ends before the adaptor of its elements: name it");
  return xt::adapt(t.data(), t.size(), xt::no_ownership(), t.shape());
}

}  // namespace fmoe

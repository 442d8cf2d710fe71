// SPDX-License-Identifier: MIT
// Eigen's matrices, arrays, vectors, maps, references, blocks and expressions can be inputs; those
// that lie in memory can be outputs. An object whose type is a vector has one axis, [n], whether it
// is a row or a column; all others have two, [rows, columns].
#pragma once

#include <Eigen/Core>

#include <fmoe/arrays/interop.hpp>

namespace fmoe {

template <class Derived>
void as_eigen_dense(const Eigen::DenseBase<Derived>&);

template <class A>
concept eigen_dense = requires(const A& a) { as_eigen_dense(a); };

// The type of a itself, where a function received it as a MatrixBase.
template <eigen_dense A>
using eigen_derived = std::remove_reference_t<decltype(std::declval<A&>().derived())>;

// Objects that are read and written in place: matrices, and their maps, references, blocks, rows,
// diagonals and transposes.
template <class A>
concept eigen_in_memory = (A::Flags & Eigen::DirectAccessBit) != 0 && requires(A& a) { *a.data(); };

template <eigen_dense A>
struct array_traits<A> {
  static auto view(A& a)
    requires eigen_in_memory<eigen_derived<A>>
  {
    auto& m = a.derived();
    if constexpr (A::IsVectorAtCompileTime) {
      return view_at<1>(m.data(), std::array{m.size()}, std::array{m.innerStride()});
    } else {
      const auto down = A::IsRowMajor ? m.outerStride() : m.innerStride(),
                 along = A::IsRowMajor ? m.innerStride() : m.outerStride();
      return view_at<2>(m.data(), std::array{m.rows(), m.cols()}, std::array{down, along});
    }
  }
  static auto evaluated(const A& a) { return a.eval(); }
};

// Returns an Eigen Map of the elements of a tensor of one or two axes: a column, or a row-major
// matrix; read only if the tensor is const. The tensor must outlive it.
template <class Tensor>
auto as_eigen(Tensor&& t) {
  static_assert(std::is_lvalue_reference_v<Tensor>,
                "as_eigen: a temporary ends before the Map of its elements: name it");
  using element = std::remove_pointer_t<decltype(t.data())>;
  using scalar = std::remove_const_t<element>;
  constexpr extent rank = std::remove_cvref_t<Tensor>::rank;
  static_assert(std::is_floating_point_v<scalar>, "as_eigen: Eigen computes with float and double");
  static_assert(rank == 1 || rank == 2, "as_eigen: Eigen's arrays have one or two axes");
  using matrix = Eigen::Matrix<scalar, Eigen::Dynamic, rank == 1 ? 1 : Eigen::Dynamic,
                               rank == 1 ? Eigen::ColMajor : Eigen::RowMajor>;
  using map = Eigen::Map<std::conditional_t<std::is_const_v<element>, const matrix, matrix>>;
  const auto length = [&](extent axis) { return static_cast<Eigen::Index>(t.shape()[axis]); };
  if constexpr (rank == 1) return map(t.data(), length(0));
  else return map(t.data(), length(0), length(1));
}

}  // namespace fmoe

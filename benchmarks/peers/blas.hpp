// SPDX-License-Identifier: MIT
// A product by a library with the interface of BLAS, in the form that is quickest for its rows:
// plain, transposed or packed, by gemm or, for one row, by gemv. Blas has gemm and gemv and, if
// can_pack, pack_size, pack and packed.
#pragma once

#include <limits>

#include "layers.hpp"

namespace fmoe::peers {

template <class Blas>
class blas_product {
 public:
  blas_product(const float* w, extent depth, extent columns, extent rows,
               const blas_product* like = nullptr, extent ldx = 0, extent ldy = 0)
      : depth_(depth),
        columns_(columns),
        packed_rows_(rows) {
    if (like) {
      set(like->form_, w);
      return;
    }
    double least = std::numeric_limits<double>::infinity();
    form best{};
    if (ldx == 0) ldx = depth;
    if (ldy == 0) ldy = columns;
    const floats x(rows * ldx);
    floats y(rows * ldy), other(extent{1} << 20);
    for (const form& f : forms(rows)) {
      set(f, w);
      double took = std::numeric_limits<double>::infinity();
      for (int run = 0; run < 4; ++run) {
        std::fill_n(other.data(), other.size(), static_cast<float>(run));  // instead of w in L2
        const double start = now();
        (*this)(rows, x.data(), ldx, y.data(), ldy);
        if (run > 0) took = std::min(took, now() - start);
      }
      if (took < least) {
        least = took;
        best = f;
      }
    }
    set(best, w);
  }

  void operator()(extent rows, const float* x, extent ldx, float* y, extent ldy) const {
    const bool across = form_.layout == storage::transposed;
    if constexpr (Blas::can_pack)
      if (form_.layout == storage::packed)
        return Blas::packed(rows, columns_, depth_, x, ldx, weight_.data(), y, ldy);
    if (rows == 1 && form_.gemv) return Blas::gemv(across, depth_, columns_, weight_.data(), x, y);
    Blas::gemm(across, rows, columns_, depth_, x, ldx, weight_.data(), y, ldy);
  }

 private:
  enum class storage { plain, transposed, packed };
  struct form {
    storage layout;
    bool gemv;
  };

  static std::vector<form> forms(extent rows) {
    std::vector<form> all{{storage::plain, false}, {storage::transposed, false}};
    if (rows == 1) all.insert(all.end(), {{storage::plain, true}, {storage::transposed, true}});
    if (Blas::can_pack) all.push_back({storage::packed, false});
    return all;
  }

  void set(const form& f, const float* w) {
    form_ = f;
    if (f.layout == storage::plain) {
      weight_ = floats(depth_ * columns_);
      std::copy_n(w, depth_ * columns_, weight_.data());
    } else if (f.layout == storage::transposed) {
      weight_ = transposed(w, depth_, columns_);
    } else if constexpr (Blas::can_pack) {
      weight_ = floats(Blas::pack_size(packed_rows_, columns_, depth_) / sizeof(float) + 1);
      Blas::pack(packed_rows_, columns_, depth_, w, weight_.data());
    }
  }

  extent depth_, columns_, packed_rows_;
  form form_{};
  floats weight_;
};

}  // namespace fmoe::peers

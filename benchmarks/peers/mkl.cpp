// SPDX-License-Identifier: MIT
// usage: mkl_peer THREADS
//
// The layers by MKL: sgemm, sgemv and packed weights, with the threads of GNU's OpenMP.
#include <omp.h>

#include <mkl.h>

#include "blas.hpp"

namespace fmoe::peers {
namespace {

MKL_INT to_int(extent n) { return static_cast<MKL_INT>(n); }

struct mkl {
  static constexpr bool can_pack = true;
  using product = blas_product<mkl>;

  static void gemm(bool across, extent m, extent n, extent k, const float* x, extent ldx,
                   const float* w, float* y, extent ldy) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, across ? CblasTrans : CblasNoTrans, to_int(m),
                to_int(n), to_int(k), 1, x, to_int(ldx), w, to_int(across ? k : n), 0, y,
                to_int(ldy));
  }

  static void gemv(bool across, extent k, extent n, const float* w, const float* x, float* y) {
    cblas_sgemv(CblasRowMajor, across ? CblasNoTrans : CblasTrans, to_int(across ? n : k),
                to_int(across ? k : n), 1, w, to_int(across ? k : n), x, 1, 0, y, 1);
  }

  static extent pack_size(extent m, extent n, extent k) {
    return cblas_sgemm_pack_get_size(CblasBMatrix, to_int(m), to_int(n), to_int(k));
  }
  static void pack(extent m, extent n, extent k, const float* w, float* to) {
    cblas_sgemm_pack(CblasRowMajor, CblasBMatrix, CblasNoTrans, to_int(m), to_int(n), to_int(k), 1,
                     w, to_int(n), to);
  }
  static void packed(extent m, extent n, extent k, const float* x, extent ldx, const float* w,
                     float* y, extent ldy) {
    cblas_sgemm_compute(CblasRowMajor, CblasNoTrans, CblasPacked, to_int(m), to_int(n), to_int(k),
                        x, to_int(ldx), w, to_int(n), 0, y, to_int(ldy));
  }

  static void parallel(extent count, const auto& f) {
#pragma omp parallel for schedule(static) if (count > 1)
    for (extent i = 0; i < count; ++i) f(i);
  }
};

}  // namespace
}  // namespace fmoe::peers

int main(int, char** argv) {
  const int threads = std::atoi(argv[1]);
  mkl_set_threading_layer(MKL_THREADING_GNU);
  omp_set_num_threads(threads);
  mkl_set_num_threads(threads);
  mkl_set_dynamic(0);
  return fmoe::peers::serve(fmoe::peers::make_layer<fmoe::peers::mkl>);
}

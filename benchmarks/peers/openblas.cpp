// SPDX-License-Identifier: MIT
// usage: openblas_peer THREADS
//
// The layers by the OpenBLAS of PyPI's scipy-openblas32, whose names begin with scipy_. OpenMP runs
// its work, so that it shares threads with the loops between products.
#include <omp.h>

#include <cblas.h>

#include "blas.hpp"

namespace fmoe::peers {
namespace {

blasint to_int(extent n) { return static_cast<blasint>(n); }

struct openblas {
  static constexpr bool can_pack = false;
  using product = blas_product<openblas>;

  static void gemm(bool across, extent m, extent n, extent k, const float* x, extent ldx,
                   const float* w, float* y, extent ldy) {
    scipy_cblas_sgemm(CblasRowMajor, CblasNoTrans, across ? CblasTrans : CblasNoTrans, to_int(m),
                      to_int(n), to_int(k), 1, x, to_int(ldx), w, to_int(across ? k : n), 0, y,
                      to_int(ldy));
  }

  static void gemv(bool across, extent k, extent n, const float* w, const float* x, float* y) {
    scipy_cblas_sgemv(CblasRowMajor, across ? CblasNoTrans : CblasTrans, to_int(across ? n : k),
                      to_int(across ? k : n), 1, w, to_int(across ? k : n), x, 1, 0, y, 1);
  }

  static void parallel(extent count, const auto& f) {
#pragma omp parallel for schedule(static) if (count > 1)
    for (extent i = 0; i < count; ++i) f(i);
  }

  static void run_jobs(int, openblas_dojob_callback job, int jobs, std::size_t size, void* data,
                       int pool) {
#pragma omp parallel for schedule(static, 1)
    for (int j = 0; j < jobs; ++j)
      job(j, static_cast<char*>(data) + static_cast<std::size_t>(j) * size, pool);
  }
};

}  // namespace
}  // namespace fmoe::peers

int main(int, char** argv) {
  const int threads = std::atoi(argv[1]);
  omp_set_num_threads(threads);
  scipy_openblas_set_num_threads(threads);
  scipy_openblas_set_threads_callback_function(fmoe::peers::openblas::run_jobs);
  return fmoe::peers::serve(fmoe::peers::make_layer<fmoe::peers::openblas>);
}

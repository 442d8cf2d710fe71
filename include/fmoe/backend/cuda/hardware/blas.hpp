// SPDX-License-Identifier: MIT
// Products of floats, or of bf16 numbers whose sums are floats, by cuBLASLt. Its kernels are chosen
// when a layer is compiled, and need no memory of their own, so that a call allocates nothing and
// can be captured. nvcc alone compiles this, and only where the build has found the library.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <optional>

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/kernels/rows.hpp>

namespace fmoe::cuda {

class blas {
 public:
  // c [rows, columns] (+)= a [rows, depth] w [depth, columns]; rows of a and w are so many of their
  // elements apart.
  struct product {
    const void* a;
    extent a_stride;
    const void* w;
    extent w_stride;
    rows_at<float> c;
    extent rows, depth, columns;
    bool accumulate = false;
    dtype numbers = dtype::float32;  // of a and w
  };
  using kernel = cublasLtMatmulAlgo_t;

  blas() {
    cublasLtHandle_t made = nullptr;
    expects(cublasLtCreate(&made), "cuBLASLt");
    handle_.reset(made);
  }

  // Returns a kernel for products of these sizes, if there is one.
  std::optional<kernel> kernel_for(const product& p) const {
    call of(p);
    cublasLtMatmulPreference_t preference = nullptr;
    expects(cublasLtMatmulPreferenceCreate(&preference), "a preference of cuBLASLt");
    const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, destroy> owner(preference);
    const std::uint64_t no_memory = 0;
    const std::uint32_t alignment = 16;
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, no_memory);
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(preference, operand, alignment);
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), &of.how, &of.w, &of.a, &of.c, &of.c, preference, 1, &best, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) return {};
    return best.algo;
  }

  // Returns false if the kernel does not take so many rows, or operands that lie there.
  bool run(const product& p, const kernel& k, cudaStream_t stream) const {
    for (const void* const x : {p.a, p.w, static_cast<const void*>(p.c.data)})
      if (reinterpret_cast<std::uintptr_t>(x) % 16 != 0) return false;
    call of(p);
    const float one = 1, start = p.accumulate ? 1 : 0;
    return cublasLtMatmul(handle_.get(), &of.how, &one, p.w, &of.w, p.a, &of.a, &start, p.c.data,
                          &of.c, p.c.data, &of.c, &k, nullptr, 0, stream) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  struct destroy {
    void operator()(cublasLtContext* h) const { static_cast<void>(cublasLtDestroy(h)); }
    void operator()(cublasLtMatmulPreferenceOpaque_t* p) const {
      static_cast<void>(cublasLtMatmulPreferenceDestroy(p));
    }
  };

  // cuBLASLt has columns where the rows are here: it computes the transposes.
  struct call {
    cublasLtMatmulDescOpaque_t how;
    cublasLtMatrixLayoutOpaque_t w, a, c;

    explicit call(const product& p) {
      expects(cublasLtMatmulDescInit(&how, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cuBLASLt's product");
      const auto type = p.numbers == dtype::bfloat16 ? CUDA_R_16BF : CUDA_R_32F;
      set_matrix(w, type, p.columns, p.depth, p.w_stride);
      set_matrix(a, type, p.depth, p.rows, p.a_stride);
      set_matrix(c, CUDA_R_32F, p.columns, p.rows, p.c.stride);
    }
    static void set_matrix(cublasLtMatrixLayoutOpaque_t& m, cudaDataType type, extent rows,
                           extent columns, extent stride) {
      expects(cublasLtMatrixLayoutInit(&m, type, rows, columns,
                                       static_cast<std::int64_t>(stride < rows ? rows : stride)),
              "cuBLASLt's matrix");
    }
  };

  template <class Value>
  static void set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t what,
                  const Value& value) {
    expects(cublasLtMatmulPreferenceSetAttribute(p, what, &value, sizeof value),
            "a preference of cuBLASLt");
  }
  static void expects(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw error(std::string("[cuda] ") + what + ": " + cublasLtGetStatusName(status));
  }

  std::unique_ptr<cublasLtContext, destroy> handle_;
};

}  // namespace fmoe::cuda

// SPDX-License-Identifier: MIT
// usage: onednn_peer THREADS
//
// The layers by oneDNN's matmul: weights in the format that it asks for, plain or transposed,
// whichever is quickest, and one primitive for each number of rows, kept. Its threads are those of
// OpenMP.
#include <limits>
#include <map>
#include <stdexcept>
#include <string_view>

#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "layers.hpp"

namespace fmoe::peers {
namespace {

dnnl_dim_t to_dim(extent n) { return static_cast<dnnl_dim_t>(n); }

dnnl::memory::desc matrix(extent rows, extent columns, extent stride) {
  return {{to_dim(rows), to_dim(columns)}, dnnl::memory::data_type::f32, {to_dim(stride), 1}};
}

struct onednn {
  class product;

  static dnnl::engine& engine() {
    static dnnl::engine e(dnnl::engine::kind::cpu, 0);
    return e;
  }
  static dnnl::stream& stream() {
    static dnnl::stream s(engine());
    return s;
  }

  static void parallel(extent count, const auto& f) {
#pragma omp parallel for schedule(static) if (count > 1)
    for (extent i = 0; i < count; ++i) f(i);
  }
};

class onednn::product {
 public:
  product(const float* w, extent depth, extent columns, extent rows, const product* like = nullptr,
          extent ldx = 0, extent ldy = 0)
      : depth_(depth),
        columns_(columns) {
    if (like) {
      set(like->weight_.get_desc(), w);
      return;
    }
    using tag = dnnl::memory::format_tag;
    double least = std::numeric_limits<double>::infinity();
    dnnl::memory::desc best;
    if (ldx == 0) ldx = depth;
    if (ldy == 0) ldy = columns;
    const floats x(rows * ldx);
    floats y(rows * ldy), other(extent{1} << 20);
    for (const tag t : {tag::any, tag::ab, tag::ba}) {
      const dnnl::memory::desc wanted(dims(), dnnl::memory::data_type::f32, t);
      const auto d = description(rows, ldx, ldy, wanted);
      if (plain_loop(d)) continue;
      set(d.weights_desc(), w);
      double took = std::numeric_limits<double>::infinity();
      for (int run = 0; run < 4; ++run) {
        std::fill_n(other.data(), other.size(), static_cast<float>(run));  // instead of w in L2
        const double start = now();
        (*this)(rows, x.data(), ldx, y.data(), ldy);
        if (run > 0) took = std::min(took, now() - start);
      }
      if (took < least) {
        least = took;
        best = weight_.get_desc();
      }
    }
    set(best, w);
  }

  void operator()(extent rows, const float* x, extent ldx, float* y, extent ldy) {
    call& c = calls_[{rows, ldx, ldy}];
    if (!c.run) {
      const auto d = description(rows, ldx, ldy, weight_.get_desc());
      if (plain_loop(d)) throw std::runtime_error("oneDNN has only a plain loop for this product");
      c = {dnnl::matmul(d), {d.src_desc(), engine(), nullptr}, {d.dst_desc(), engine(), nullptr}};
      c.arguments = {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_WEIGHTS, weight_}, {DNNL_ARG_DST, c.y}};
    }
    c.x.set_data_handle(const_cast<float*>(x));
    c.y.set_data_handle(y);
    c.run.execute(stream(), c.arguments);
    stream().wait();
  }

 private:
  struct call {
    dnnl::matmul run;
    dnnl::memory x, y;
    std::unordered_map<int, dnnl::memory> arguments = {};
  };

  dnnl::memory::dims dims() const { return {to_dim(depth_), to_dim(columns_)}; }

  dnnl::matmul::primitive_desc description(extent rows, extent ldx, extent ldy,
                                           const dnnl::memory::desc& weights) const {
    return {engine(), matrix(rows, depth_, ldx), weights, matrix(rows, columns_, ldy)};
  }

  // The implementation of last resort, a hundred times slower.
  static bool plain_loop(const dnnl::matmul::primitive_desc& d) {
    return std::string_view(d.impl_info_str()).find("ref") != std::string_view::npos;
  }

  void set(const dnnl::memory::desc& format, const float* w) {
    calls_.clear();
    held_ = floats(format.get_size() / sizeof(float) + 1);
    weight_ = dnnl::memory(format, engine(), held_.data());
    dnnl::memory plain(matrix(depth_, columns_, columns_), engine(), const_cast<float*>(w));
    dnnl::reorder(plain, weight_).execute(stream(), plain, weight_);
    stream().wait();
  }

  extent depth_, columns_;
  floats held_;
  dnnl::memory weight_;
  std::map<std::array<extent, 3>, call> calls_;
};

}  // namespace
}  // namespace fmoe::peers

int main(int, char** argv) {
  omp_set_num_threads(std::atoi(argv[1]));
  return fmoe::peers::serve(fmoe::peers::make_layer<fmoe::peers::onednn>);
}

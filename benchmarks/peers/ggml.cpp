// SPDX-License-Identifier: MIT
// usage: ggml_peer THREADS [bf16|q8_0|q4_0|q4_k]
//
// The layers by ggml, as graphs like llama.cpp's, with weights of float or of the type named. ggml
// has neither entmax nor what Monet and PEER need, so it has MxD, AoE and the sparse mixture only.
#include <algorithm>
#include <string_view>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "contestant.hpp"

namespace fmoe::peers {
namespace {

int64_t to_int(extent n) { return static_cast<int64_t>(n); }

// A graph with its weights. ggml's shapes begin with the innermost axis, and a product sums over
// the innermost axes of both operands, so [depth, columns] of fmoe is transposed.
class graph {
 public:
  graph(const io::safetensors& file, extent tokens, ggml_backend_t backend, ggml_type type)
      : file_(file),
        backend_(backend),
        type_(type),
        tokens_(to_int(tokens)),
        width_(to_int(file.at("x").shape()[1])),
        weights_(new_context()),
        steps_(new_context()) {
    x_ = ggml_new_tensor_2d(steps_, GGML_TYPE_F32, width_, tokens_);
    ggml_set_input(x_);
  }
  ~graph() {
    ggml_gallocr_free(allocator_);
    ggml_backend_buffer_free(buffer_);
    ggml_free(steps_);
    ggml_free(weights_);
  }
  graph(const graph&) = delete;

  void build(const std::string& kind) {
    y_ = kind == "mxd" ? mxd() : mixture(kind == "aoe");
    ggml_set_output(y_);
    buffer_ = ggml_backend_alloc_ctx_tensors(weights_, backend_);
    for (const auto& fill : fills_) fill();
    fills_.clear();
    order_ = ggml_new_graph_custom(steps_, 4096, false);
    ggml_build_forward_expand(order_, y_);
    allocator_ = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_));
    ggml_gallocr_alloc_graph(allocator_, order_);
  }

  void run(const float* x, float* y) {
    ggml_backend_tensor_set(x_, x, 0, ggml_nbytes(x_));
    ggml_backend_graph_compute(backend_, order_);
    ggml_backend_tensor_get(y_, y, 0, ggml_nbytes(y_));
  }

 private:
  static ggml_context* new_context() {
    return ggml_init(
        {ggml_tensor_overhead() * 4096 + ggml_graph_overhead_custom(4096, false), nullptr, true});
  }

  // fmoe's [..., depth, columns], as [depth, columns, experts]; joined axes have the extents given.
  ggml_tensor* weight(const char* name, extent experts, extent depth, extent columns) {
    return weight(name, experts, depth, columns, type_);
  }
  ggml_tensor* weight(const char* name, extent experts, extent depth, extent columns,
                      ggml_type type) {
    ggml_tensor* w =
        ggml_new_tensor_3d(weights_, type, to_int(depth), to_int(columns), to_int(experts));
    fills_.push_back([=, this] {
      const auto* from = reinterpret_cast<const float*>(file_.at(name).bytes().data());
      std::vector<float> across(depth * columns);
      std::vector<std::byte> bytes(ggml_row_size(type, to_int(depth)) * columns);
      for (extent e = 0; e < experts; ++e, from += depth * columns) {
        for (extent first = 0; first < depth; first += 16)  // a line of the cache at a time
          for (extent j = 0; j < columns; ++j)
            for (extent k = first; k < std::min(first + 16, depth); ++k)
              across[j * depth + k] = from[k * columns + j];
        ggml_quantize_chunk(type, across.data(), bytes.data(), 0, to_int(columns), to_int(depth),
                            nullptr);
        ggml_backend_tensor_set(w, bytes.data(), e * bytes.size(), bytes.size());
      }
    });
    return w;
  }

  // Numbers as they are: [rows, columns] becomes [columns, rows].
  ggml_tensor* plain(const char* name, extent rows, extent columns) {
    ggml_tensor* w = ggml_new_tensor_2d(weights_, GGML_TYPE_F32, to_int(columns), to_int(rows));
    fills_.push_back([=, this] {
      ggml_backend_tensor_set(w, file_.at(name).bytes().data(), 0, ggml_nbytes(w));
    });
    return w;
  }

  extent size(const char* name, extent axis) const { return file_.at(name).shape()[axis]; }
  int active() const { return std::stoi(file_.metadata().at("active")); }

  // The k greatest of each row of v [n, t]: their indices [k, t] and values [k, t].
  std::pair<ggml_tensor*, ggml_tensor*> selected(ggml_tensor* v) {
    ggml_tensor* indices = ggml_top_k(steps_, v, active());
    ggml_tensor* values =
        ggml_get_rows(steps_, ggml_reshape_3d(steps_, v, 1, v->ne[0], tokens_), indices);
    return {indices, ggml_reshape_2d(steps_, values, active(), tokens_)};
  }

  ggml_tensor* mxd() {
    const extent i = size("gate", 0), h = size("encoder", 1), n = size("gate", 1),
                 o = size("decoder", 1);
    ggml_context* c = steps_;
    ggml_tensor* z = ggml_mul_mat(c, weight("encoder", 1, i, h), x_);
    z = ggml_gelu_erf(c, ggml_add(c, z, plain("encoder_bias", 1, h)));
    ggml_tensor* scores = ggml_mul_mat(c, weight("gate", 1, i, n), x_);
    scores = ggml_relu(c, ggml_add(c, scores, plain("gate_bias", 1, n)));
    const auto [indices, values] = selected(scores);
    const int k = active();
    ggml_tensor* flat = ggml_reshape_1d(c, indices, k * tokens_);
    ggml_tensor* rows = ggml_get_rows(c, plain("scales", n, o), flat);
    rows = ggml_reshape_3d(c, rows, to_int(o), k, tokens_);
    ggml_tensor* mixed = ggml_mul_mat(c, ggml_cont(c, ggml_transpose(c, rows)),
                                      ggml_reshape_3d(c, values, k, 1, tokens_));
    ggml_tensor* y = ggml_mul_mat(c, weight("decoder", 1, h, o), z);
    y = ggml_mul(c, y, ggml_reshape_2d(c, mixed, to_int(o), tokens_));
    return ggml_add(c, y, plain("bias", 1, o));
  }

  ggml_tensor* mixture(bool by_norm) {
    const extent n = size("output", 0), w = size("output", 1), d = size("output", 2);
    ggml_context* c = steps_;
    ggml_tensor *rows = ggml_reshape_3d(c, x_, to_int(d), 1, tokens_), *scores = nullptr,
                *activated = nullptr, *weights = nullptr, *indices = nullptr;
    const auto route = [&] {
      const auto [at, values] = selected(scores);
      indices = at;
      weights = ggml_reshape_3d(c, ggml_soft_max(c, values), 1, active(), tokens_);
    };
    if (by_norm) {
      const extent l = size("down", 2);
      ggml_tensor* cache = ggml_mul_mat(c, weight("down", 1, d, n * l), x_);
      cache = ggml_reshape_3d(c, cache, to_int(l), to_int(n), tokens_);
      scores = ggml_sqrt(c, ggml_sum_rows(c, ggml_sqr(c, cache)));
      scores = ggml_reshape_2d(c, scores, to_int(n), tokens_);
      route();
      activated =
          ggml_mul_mat_id(c, weight("up", n, l, w), ggml_get_rows(c, cache, indices), indices);
    } else {
      // llama.cpp keeps routers in floats; in 4 bits they would choose other experts.
      const bool of_4_bits = type_ == GGML_TYPE_Q4_0 || type_ == GGML_TYPE_Q4_K;
      scores = ggml_mul_mat(c, weight("router", 1, d, n, of_4_bits ? GGML_TYPE_F32 : type_), x_);
      route();
      activated = ggml_mul_mat_id(c, weight("activated", n, d, w), rows, indices);
    }
    ggml_tensor* linear = ggml_mul_mat_id(c, weight("linear", n, d, w), rows, indices);
    ggml_tensor* hidden = ggml_swiglu_split(c, activated, linear);
    ggml_tensor* made = ggml_mul_mat_id(c, weight("output", n, w, d), hidden, indices);
    made = ggml_mul(c, made, weights);
    ggml_tensor* y = nullptr;
    for (int e = 0; e < active(); ++e) {
      ggml_tensor* one = ggml_view_2d(c, made, to_int(d), tokens_, made->nb[2],
                                      static_cast<extent>(e) * made->nb[1]);
      y = y ? ggml_add(c, y, one) : one;
    }
    return y;
  }

  const io::safetensors& file_;
  ggml_backend_t backend_;
  ggml_type type_;
  int64_t tokens_, width_;
  ggml_context *weights_, *steps_;
  ggml_backend_buffer_t buffer_ = nullptr;
  ggml_gallocr_t allocator_ = nullptr;
  ggml_cgraph* order_ = nullptr;
  ggml_tensor *x_ = nullptr, *y_ = nullptr;
  std::vector<std::function<void()>> fills_;
};

}  // namespace
}  // namespace fmoe::peers

int main(int count, char** arguments) {
  using namespace fmoe::peers;
  const std::string_view variant = count > 2 ? arguments[2] : "";
  const ggml_type type = variant == "q8_0"   ? GGML_TYPE_Q8_0
                         : variant == "q4_0" ? GGML_TYPE_Q4_0
                         : variant == "q4_k" ? GGML_TYPE_Q4_K
                         : variant == "bf16" ? GGML_TYPE_BF16
                                             : GGML_TYPE_F32;
  const int threads = std::atoi(arguments[1]);
  ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_threadpool_params how = ggml_threadpool_params_default(threads);
  ggml_backend_cpu_set_threadpool(backend, ggml_threadpool_new(&how));
  ggml_backend_cpu_set_n_threads(backend, threads);
  return serve(
      [=](const std::string& kind, const fmoe::io::safetensors& file, extent tokens) -> forward {
        if (kind != "mxd" && kind != "aoe" && kind != "moe") return {};
        auto g = std::make_shared<graph>(file, tokens, backend, type);
        g->build(kind);
        return {[g](const float* x, float* y) { g->run(x, y); }};
      });
}

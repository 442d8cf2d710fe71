// SPDX-License-Identifier: MIT
// Runs the steps of a plan on a device, a launch or a few for each step. It knows steps and
// kernels, but no layer.
#pragma once

#include <exception>

#include <fmoe/backend/cuda/blas_products.hpp>
#include <fmoe/backend/cuda/kernels/exclude.hpp>
#include <fmoe/backend/cuda/kernels/gemm.hpp>
#include <fmoe/backend/cuda/kernels/select.hpp>
#include <fmoe/backend/cuda/kernels/token_sum.hpp>
#include <fmoe/backend/cuda/policy.hpp>
#include <fmoe/backend/cuda/screens.hpp>
#include <fmoe/backend/cuda/step_lists.hpp>
#include <fmoe/backend/cuda/tensor_products.hpp>
#include <fmoe/backend/cuda/weights.hpp>

namespace fmoe::cuda {

// What a call binds: the first row of each argument and result, and the memory of its caller.
template <class T, class Queue>
struct binding {
  Queue& queue;
  std::span<const rows_at<const T>> arguments{};
  std::span<const rows_at<T>> results{};
  T* arena = nullptr;
  T* call = nullptr;  // memory of all tokens, of `call_rows`
  extent call_rows = 0;
  index* lists = nullptr;  // of groups
};

template <class T, class Device>
class executor {
 public:
  using queue = typename Device::queue;
  using binding = cuda::binding<T, queue>;

  // Uploads the weights and computes the plan's constants, exactly.
  executor(cpu::plan p, std::span<const ir::leaf_node> leaves, const Device& on, queue& q, math how)
      : plan_(std::move(p)),
        lists_(plan_, on, q),
        weights_(plan_, leaves, on, q) {
    weights_.make_matrices(false);
    const binding none{q};
    for (const cpu::step& s : plan_.prologue) visit(s, {none, 0, 1});
    q.wait();
    weights_.make_matrices(true);
    policy_ = how;
    if constexpr (std::is_same_v<T, float>)
      screens_ = std::make_unique<screens<Device>>(plan_, weights_, on, q);
    if constexpr (Device::has_blas && std::is_same_v<T, float>)
      if (how == math::fp32) {
        blas_ = std::make_unique<typename blas_products_of<Device>::type>();
        blas_->choose_kernels(plan_);
      }
  }

  executor(const executor&) = delete;

  const cpu::plan& steps() const { return plan_; }
  const step_lists<Device>& lists() const { return lists_; }

  // Runs a stage on `count` rows, the first of which is row `first` of the call.
  void run(const binding& bound, extent first, extent count, const cpu::stage& stage) const {
    for (extent i = stage.first; i < stage.end; ++i) visit(plan_.steps[i], {bound, first, count});
  }

 private:
  struct frame {
    const binding& bound;
    extent first, count;  // in a group as many rows as there may be
    group_rows group{};
    group_tiles tiles{};
    extent most_tiles = 0;
    const sort_lists* sorted = nullptr;
  };

  void visit(const cpu::step& s, const frame& f) const {
    detail::visit([&](const auto& x) { run(x, f); }, s);
  }

  rows_at<T> rows(const cpu::view& v, const frame& f) const {
    using enum cpu::storage_row::kind;
    const cpu::storage_row& s = plan_.storages[v.storage];
    rows_at<T> r{nullptr, s.stride, v.expert};
    const auto& bound = f.bound;
    switch (s.where) {
      case arena: r.data = bound.arena + s.offset; break;
      case call: r.data = bound.call + s.offset * bound.call_rows + f.first * s.stride; break;
      case once: r.data = bound.call + plan_.call * bound.call_rows + s.offset; break;
      case constant: r.data = weights_.computed() + s.offset; break;
      case leaf:
      case input: r.data = const_cast<T*>(weights_.leaf(v.storage)) + f.first * s.stride; break;
      case output: r.data = bound.results[s.source].data + f.first * s.stride; break;
      case argument: r.data = const_cast<T*>(bound.arguments[s.source].data) + f.first * s.stride;
    }
    r.data += v.offset;
    return r;
  }
  rows_at<const T> read(const cpu::view& v, const frame& f) const {
    const rows_at<T> r = rows(v, f);
    return {r.data, r.stride, r.expert};
  }
  selections_at<T> selections(const cpu::view& v, extent keep, const frame& f) const {
    return {rows(v, f), keep};
  }

  passes<T> finish(const std::vector<cpu::epilogue>& all, const frame& f) const {
    passes<T> made;
    for (const cpu::epilogue& e : all) {
      pass<T>& p = made.of[made.count++];
      p = {.what = e.what, .f = e.f.fn, .parameter = static_cast<T>(e.f.parameter)};
      if (e.what == pass_kind::map) continue;
      const rows_at<const T> other = read(e.other, f);
      p.other = other.data;
      p.stride = other.stride;
      p.expert = other.expert;
      p.period = e.period;
    }
    return made;
  }

  static nest_loops<T> loops(const std::vector<cpu::nest_axis>& axes) {
    nest_loops<T> made;
    for (const cpu::nest_axis& a : axes) made.add({a.length, a.a, a.b, a.c});
    return made;
  }

  // Calls a thread for each of n numbers of each row.
  template <class F>
  static void each(const char* step, const F& f, const frame& at, extent n) {
    at.bound.queue.each(step, f, at.count * n);
  }

  void run(const cpu::gemm_step& s, const frame& f) const {
    if constexpr (std::is_same_v<T, float>) {
      const math how = math_of(s, policy_);
      if (how == math::tf32x3) return on_tensor_cores<math::tf32x3>(s, f);
      if (how == math::tf32) return on_tensor_cores<math::tf32>(s, f);
      if (how == math::bf16) return on_tensor_cores<math::bf16>(s, f);
      if constexpr (Device::has_blas)
        if (how == math::fp32 && blas_product(s, f)) return;
    }
    exact_product(s, f);
  }
  // Passes run behind the product. Returns false if cuBLASLt does not compute the step.
  bool blas_product(const cpu::gemm_step& s, const frame& f) const {
    const rows_at<T> c = rows(s.c, f);
    const bool is_done = blas_->run(s,
                                    {.a = read(s.a, f),
                                     .w = weights_.matrices(s.weight),
                                     .c = c,
                                     .rows = f.count,
                                     .depth = s.K,
                                     .columns = s.N,
                                     .accumulate = s.accumulate},
                                    f.bound.queue);
    if (!is_done || s.epilogues.empty()) return is_done;
    const nest_numbers<T> kernel{.a = {c.data, c.stride},
                                 .c = c,
                                 .out = loops({{s.N, 1, 0, 1}}),
                                 .is_copy = true,
                                 .finish = finish(s.epilogues, f)};
    each("passes", kernel, f, s.N);
    return true;
  }
  template <math How>
  void on_tensor_cores(const cpu::gemm_step& s, const frame& f) const {
    tensor_product<How>(gemm<4>(s, f), f.most_tiles, f.bound.queue);
  }
  void exact_product(const cpu::gemm_step& s, const frame& f) const {
    constexpr extent few = 24;
    if (f.count <= few && f.group.count == nullptr) product<1>(s, f);
    else product<4>(s, f);
  }
  template <unsigned Own>
  gemm_kernel<T, Own> gemm(const cpu::gemm_step& s, const frame& f) const {
    return {.a = read(s.a, f),
            .c = rows(s.c, f),
            .weights = weights_.matrices(s.weight),
            .positions = lists_.positions(s),
            .position_count = s.rows.size(),
            .rows = f.count,
            .depth = s.K,
            .columns = s.N,
            .sum_block = plan_.sum_block,
            .expert_weights = s.expert_step,
            .accumulate = s.accumulate,
            .group = f.group,
            .tiles = f.tiles,
            .finish = finish(s.epilogues, f)};
  }
  template <unsigned Own>
  void product(const cpu::gemm_step& s, const frame& f) const {
    launch_product(gemm<Own>(s, f), f.count, f.most_tiles, f.bound.queue);
  }
  void run(const cpu::batched_step& s, const frame& f) const {
    const nest_numbers<T> kernel{.a = read(s.a, f),
                                 .b = read(s.b, f),
                                 .c = rows(s.c, f),
                                 .out = loops(s.out),
                                 .summed = loops(s.summed),
                                 .group = f.group,
                                 .finish = finish(s.epilogues, f)};
    each("batched", kernel, f, kernel.out.places);
  }

  void run(const cpu::reduce_step& s, const frame& f) const {
    const nest_numbers<T> kernel{.a = read(s.a, f),
                                 .c = rows(s.c, f),
                                 .out = loops(s.out),
                                 .summed = loops(s.summed),
                                 .group = f.group,
                                 .finish = finish(s.epilogues, f)};
    each("reduce", kernel, f, kernel.out.places);
  }

  void run(const cpu::pointwise_step& s, const frame& f) const {
    const nest_numbers<T> kernel{.a = read(s.a, f),
                                 .c = rows(s.c, f),
                                 .out = loops({{s.columns, 1, 0, 1}}),
                                 .is_copy = true,
                                 .group = f.group,
                                 .finish = finish(s.epilogues, f)};
    each("pointwise", kernel, f, s.columns);
  }

  void run(const cpu::pick_step& s, const frame& f) const {
    const nest_numbers<T> kernel{
        .a = read(s.a, f), .c = rows(s.c, f), .out = loops(s.out), .picks = true, .group = f.group};
    each("pick", kernel, f, kernel.out.places);
  }

  void run(const cpu::append_step& s, const frame& f) const {
    each("append", append_numbers<T>{read(s.a, f), rows(s.c, f), s.rows, s.columns}, f,
         s.rows * (s.columns + 1));
  }

  void run(const cpu::gather_step& s, const frame& f) const {
    const gather_rows<T> kernel{.from = selections(s.selection, s.keep, f),
                                .table = read(s.table, f).data,
                                .c = rows(s.c, f),
                                .rows = s.rows,
                                .columns = s.N,
                                .table_row = s.table_row,
                                .finish = finish(s.epilogues, f)};
    each("gather", kernel, f, s.N);
  }

  void run(const cpu::rescale_step& s, const frame& f) const {
    const rescale_rows<T> kernel{.from = selections(s.selection, s.keep, f),
                                 .to = selections(s.c, s.keep, f),
                                 .factors = read(s.factors, f).data,
                                 .rows = s.rows,
                                 .table_row = s.table_row};
    each("rescale", kernel, f, s.rows);
  }

  void run(const cpu::sample_step& s, const frame& f) const {
    const sample_rows<T> kernel{.from = selections(s.selection, s.keep, f),
                                .to = selections(s.c, s.keep, f),
                                .x = read(s.x, f),
                                .table = read(s.table, f).data,
                                .rows = s.rows,
                                .depth = s.K,
                                .table_row = s.table_row,
                                .finish = finish(s.epilogues, f)};
    each("sample", kernel, f, s.rows * std::max<extent>(1, s.keep));
  }

  void run(const cpu::row_function_step& s, const frame& f) const {
    const row_function_kernel<T> kernel{
        .f = s.fn,
        .parameter = s.parameter,
        .a = read(s.a, f),
        .bound = s.bounds != 0 ? read(s.bound, f) : rows_at<const T>{},
        .c = rows(s.c, f),
        .tokens = f.count,
        .rows = s.rows,
        .columns = s.columns,
        .bounds = s.bounds};
    f.bound.queue.launch(name_of(s.fn), kernel, warps::blocks(f.count * s.rows));
  }

  void run(const cpu::row_norm_step& s, const frame& f) const {
    const row_norm_kernel<T> kernel{.which = s.which,
                                    .a = read(s.a, f),
                                    .c = rows(s.c, f),
                                    .tokens = f.count,
                                    .rows = s.rows,
                                    .columns = s.columns};
    f.bound.queue.launch(name_of(s.which), kernel, warps::blocks(f.count * s.rows));
  }

  void run(const cpu::select_step& s, const frame& f) const {
    using enum selection_rule::kind;
    const selections_at<T> to = selections(s.selection, s.keep, f);
    const rows_at<const T> a = read(s.a, f);
    const weighting weights = s.rule.weights;
    const extent blocks = f.count * s.rows;
    const char* const name = detail::name_of(s.rule.what);
    if (s.rule.what == product_top_k) {
      const product_select_kernel<T> kernel{a,      to,          s.rows,
                                            s.list, s.rule.each, zeros_count(weights)};
      f.bound.queue.launch(name, kernel, blocks);
    } else if (s.rule.what == top_p) {
      each(name, mass_rows<T>{a, to, s.rows, s.columns, s.rule.mass}, f, s.rows);
    } else {
      const bool takes_all = s.rule.what == nonzero;
      const select_kernel<T> kernel{a,         to,        s.rows,
                                    s.columns, takes_all, !takes_all && zeros_count(weights)};
      f.bound.queue.launch(name, kernel, blocks);
    }
    if (s.rule.what == nonzero || (weights == weighting::score && s.rule.what != top_p)) return;
    const extent columns = s.rule.what == product_top_k ? 0 : s.columns;
    each("weights of a selection", weigh_rows<T>{to, a, s.rows, columns, weights}, f, s.rows);
  }

  void run(const cpu::expert_choice_step& s, const frame& f) const {
    const selections_at<T> to = selections(s.selection, s.experts, f);
    const rows_at<const T> scores = read(s.scores, f);
    const choose_kernel<T> kernel{read(s.ranked, f), to, f.count,
                                  capacity_of(s.rule, f.count, s.experts)};
    f.bound.queue.launch("expert_choice", kernel, s.experts);
    each("expert_choice", gather_choices<T>{scores, to}, f, 1);
    each("weights of a selection", weigh_rows<T>{to, scores, 1, s.experts, s.rule.weights}, f, 1);
  }

  void run(const cpu::kept_step& s, const frame& f) const {
    const kept_numbers<T> kernel{selections(s.selection, s.keep, f), rows(s.c, f), s.rows, s.keep,
                                 s.what};
    each("kept", kernel, f, s.rows * s.keep);
  }

  void run(const cpu::expand_step& s, const frame& f) const {
    const expand_rows<T> kernel{selections(s.selection, s.keep, f), rows(s.c, f), s.rows,
                                s.columns};
    each("expand", kernel, f, s.rows);
  }

  void run(const cpu::token_sum_step& s, const frame& f) const {
    const token_sums<T> kernel{.a = read(s.a, f),
                               .b = s.b.exists() ? read(s.b, f) : rows_at<const T>{},
                               .c = rows(s.c, f).data,
                               .out = loops(s.out),
                               .summed = loops(s.summed),
                               .tokens = f.count,
                               .block = s.block};
    f.bound.queue.each("token sum", kernel, kernel.out.places);
  }

  void run(const cpu::selection_sum_step& s, const frame& f) const {
    const selections_at<T> from = selections(s.selection, s.keep, f);
    const selection_sums<T> kernel{.lists = sorted(from, s.experts, f),
                                   .selections = from,
                                   .b = s.b.exists() ? read(s.b, f) : rows_at<const T>{},
                                   .c = rows(s.c, f).data,
                                   .columns = s.N,
                                   .block = s.block};
    f.bound.queue.each("token sum", kernel, s.experts * s.N);
  }

  // Sorts the entries of the frame's tokens by expert.
  sort_lists sorted(const selections_at<T>& from, extent experts, const frame& f) const {
    const sort_lists lists{{f.count, from.keep, experts, group_tile_rows}, f.bound.lists};
    const extent parts = experts * lists.of.chunks();
    f.bound.queue.each("sort", count_entries<T>{lists, from}, parts);
    f.bound.queue.each("sort", add_chunks{lists}, experts);
    f.bound.queue.each("sort", add_experts{lists}, 1);
    f.bound.queue.each("sort", place_entries<T>{lists, from}, parts);
    return lists;
  }

  // Each step of the body runs once for the rows of all experts.
  void run(const cpu::group_step& s, const frame& outer) const {
    const sort_lists lists = sorted(selections(s.selection, s.keep, outer), s.experts, outer);
    frame f = outer;
    f.count = lists.of.rows();
    f.group = {lists.row_count(), lists.tokens(), lists.experts()};
    f.tiles = {lists.tile_count(), lists.first(), lists.end()};
    f.most_tiles = lists.of.most_tiles();
    for (const cpu::step& inner : s.body)
      if (const auto* put = get_if<cpu::put_step>(&inner)) run(*put, s, lists, outer);
      else visit(inner, f);
  }

  // The last step of a group, which ends with the passes of the group.
  void run(const cpu::put_step& s, const cpu::group_step& group, const sort_lists& lists,
           const frame& f) const {
    const put_rows<T> kernel{.a = read(s.a, f),
                             .c = rows(s.c, f),
                             .selections = selections(s.selection, s.keep, f),
                             .rows = lists.rows(),
                             .columns = s.columns,
                             .finish = finish(group.epilogues, f)};
    each("put", kernel, f, s.columns);
  }

  void run(const cpu::exclude_step& s, const frame& f) const {
    const auto [groups, ends, left_out] = lists_.pairs(s);
    exclude_numbers<T> kernel{.c = rows(s.c, f),
                              .count = static_cast<int>(s.operands.size()),
                              .factors = static_cast<int>(s.factors),
                              .group = loop(s.group),
                              .other = loop(s.other),
                              .inner = loops(s.inner),
                              .outer = loops(s.outer),
                              .free = loops(s.free),
                              .groups = groups,
                              .ends = ends,
                              .left_out = left_out,
                              .group_count = s.groups.size(),
                              .is_row = s.is_row};
    for (extent k = 0; k < s.operands.size(); ++k) kernel.operands[k] = read(s.operands[k], f);
    each("exclude", kernel, f, kernel.numbers());
  }

  static exclude_loop loop(const cpu::exclude_step::axis& a) {
    exclude_loop made{a.length, a.c};
    std::ranges::copy(a.strides, made.of);
    return made;
  }
  static exclude_loops loops(const std::vector<cpu::exclude_step::axis>& axes) {
    exclude_loops made;
    for (const auto& a : axes) {
      made.of[made.count++] = loop(a);
      made.places *= a.length;
    }
    return made;
  }

  // Scores by tensor cores, then a selection that makes few of them again.
  void run(const cpu::screen_step& s, const frame& f) const {
    if constexpr (std::is_same_v<T, float>) {
      const gemm_kernel<float, 4> scores{.a = read(s.a, f),
                                         .c = rows(s.scratch, f),
                                         .weights = weights_.matrices(s.weight),
                                         .positions = lists_.positions(s),
                                         .position_count = 1,
                                         .rows = f.count,
                                         .depth = s.K,
                                         .columns = s.N,
                                         .sum_block = plan_.sum_block,
                                         .expert_weights = 0,
                                         .accumulate = false,
                                         .group = {},
                                         .tiles = {},
                                         .finish = {}};
      tensor_product<math::bf16>(scores, f.most_tiles, f.bound.queue);
      const auto [by_column, by_norm, by_rounding] = screens_->of(plan_, s.weight);
      const selections_at<float> to = selections(s.selection, s.keep, f);
      const weighting weights = s.rule.weights;
      f.bound.queue.launch("screened selection",
                           screen_kernel{.a = scores.a,
                                         .scratch = scores.c,
                                         .to = to,
                                         .matrix = scores.weights,
                                         .rows = by_column,
                                         .by_norm = by_norm,
                                         .by_rounding = by_rounding,
                                         .depth = s.K,
                                         .columns = s.N,
                                         .sum_block = plan_.sum_block,
                                         .takes_zeros = zeros_count(weights),
                                         .finish = finish(s.epilogues, f)},
                           f.count);
      if (weights == weighting::score) return;
      each("weights of a selection", weigh_rows<float>{to, {}, 1, 0, weights}, f, 1);
    } else {
      std::terminate();
    }
  }

  // The plan has none of these: nothing is streamed, and a group runs its put.
  [[noreturn]] void run(const cpu::loop_step&, const frame&) const { std::terminate(); }
  [[noreturn]] void run(const cpu::put_step&, const frame&) const { std::terminate(); }

  cpu::plan plan_;
  step_lists<Device> lists_;
  device_weights<T, Device> weights_;
  std::unique_ptr<const screens<Device>> screens_;  // of floats
  math policy_ = math::exact;
  std::unique_ptr<typename blas_products_of<Device>::type> blas_;  // of fp32
};

}  // namespace fmoe::cuda

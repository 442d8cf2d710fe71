// SPDX-License-Identifier: MIT
// Runs the steps of a plan on a device, a launch or a few for each step. It knows steps and
// kernels, but no layer.
#pragma once

#include <exception>
#include <type_traits>

#include <fmoe/backend/cuda/blas_products.hpp>
#include <fmoe/backend/cuda/kernels/exclude.hpp>
#include <fmoe/backend/cuda/kernels/nest_columns.hpp>
#include <fmoe/backend/cuda/kernels/sort_kernel.hpp>
#include <fmoe/backend/cuda/operands.hpp>
#include <fmoe/backend/cuda/policy.hpp>
#include <fmoe/backend/cuda/product_steps.hpp>
#include <fmoe/backend/cuda/screens.hpp>
#include <fmoe/backend/cuda/select_steps.hpp>
#include <fmoe/backend/cuda/token_sum_steps.hpp>

namespace fmoe::cuda {

template <class T, class Device>
class executor : operands<T, Device> {
  using base = operands<T, Device>;
  using base::finish, base::lists_, base::loops, base::plan_, base::read, base::rows,
      base::selections, base::weights_;
  using frame = typename base::frame;

 public:
  using queue = typename Device::queue;
  using binding = cuda::binding<T, queue>;

  // Uploads the weights and computes the plan's constants, exactly.
  executor(step_plan p, std::span<const ir::leaf_node> leaves, const Device& on, queue& q, math how)
      : base(std::move(p), leaves, on, q) {
    weights_.make_matrices(false);
    const binding none{q};
    for (const step& s : plan_.prologue) visit(s, {none, 0, 1});
    q.wait();
    weights_.make_matrices(true);
    policy_ = how;
    if constexpr (std::is_same_v<T, float>)
      screens_ = std::make_unique<screens<Device>>(plan_, weights_, on, q);
    if constexpr (Device::has_blas && std::is_same_v<T, float>)
      blas_ = std::make_unique<typename blas_products_of<Device>::type>(plan_, how);
  }

  executor(const executor&) = delete;

  const step_plan& steps() const { return plan_; }
  const step_lists<Device>& lists() const { return lists_; }

  // Runs a stage on `count` rows, the first of which is row `first` of the call.
  void run(const binding& bound, extent first, extent count, const stage& stage) const {
    for (extent i = stage.first; i < stage.end; ++i) visit(plan_.steps[i], {bound, first, count});
  }

 private:
  // The kinds of steps that plans for GPUs have: nothing is streamed or compact, a group runs its
  // put, and only floats are screened.
  template <class Step>
  static constexpr bool takes = !is_one_of<Step, take_step, weigh_step, reweigh_step, unpair_step,
                                           keep_step, expert_sum_step, loop_step, put_step> &&
                                (std::is_same_v<T, float> || !std::is_same_v<Step, screen_step>);

  void visit(const step& s, const frame& f) const {
    detail::visit(
        [&]<class Step>(const Step& x) {
          if constexpr (takes<Step>) run(x, f);
          else std::terminate();
        },
        s);
  }

  // Calls a thread for each of n numbers of each row.
  template <class F>
  static void each(const char* step, const F& f, const frame& at, extent n) {
    at.bound.queue.each(step, f, at.count * n);
  }

  // Neighbours are one thread's where there are enough of them for all threads of a GPU.
  static void nest(const char* step, const nest_numbers<T>& k, const frame& f) {
    constexpr unsigned own = numbers_each<T>;
    constexpr extent many = 256 * multiprocessors * own;
    if (f.count * k.out.places >= many && has_whole_accesses(k))
      each(step, nest_columns<T, own>{k}, f, k.out.places / own);
    else each(step, nest_columns<T, 1>{k}, f, k.out.places);
  }

  void run(const gemm_step& s, const frame& f) const {
    product<T> p = product_of(s, read(s.a, f), rows(s.c, f), f);
    p.expert_weights = s.expert_step;
    p.accumulate = s.accumulate;
    p.finish = finish(s.epilogues, f);
    const dtype stored = weights_.matrices(s.weight).stored;
    const math how = math_of(s, policy_);
    if constexpr (Device::has_blas && std::is_same_v<T, float>)
      if (how == math::fp32 && stored == dtype_of<T> && blas_product(s, p, f)) return;
    launch(p, stored, how, f);
  }

  // Passes run behind the product. Returns false if cuBLASLt does not compute the step.
  bool blas_product(const gemm_step& s, const product<T>& p, const frame& f) const {
    const bool is_done = blas_->run(s,
                                    {.a = p.a.data,
                                     .a_stride = p.a.stride,
                                     .w = p.weights,
                                     .w_stride = p.pitch,
                                     .c = p.c,
                                     .rows = f.count,
                                     .depth = s.K,
                                     .columns = s.N,
                                     .accumulate = s.accumulate},
                                    f.bound.queue);
    if (!is_done || s.epilogues.empty()) return is_done;
    nest("passes",
         {.a = {p.c.data, p.c.stride},
          .c = p.c,
          .out = loops({{s.N, 1, 0, 1}}),
          .is_copy = true,
          .finish = p.finish},
         f);
    return true;
  }

  // A product without what only some of them have.
  template <class Step>
  product<T> product_of(const Step& s, const rows_at<const T>& a, const rows_at<T>& c,
                        const frame& f) const {
    const auto positions = lists_.positions(s);
    const auto whole = [](extent n) { return n % numbers_each<T> == 0; };
    const auto to_index = [](extent n) { return static_cast<index>(n); };
    const auto matrices = weights_.matrices(s.weight);
    product<T> p{.a = a,
                 .c = c,
                 .weights = matrices.data,
                 .pitch = to_index(matrices.pitch),
                 .scales = matrices.scales,
                 .scale_pitch = to_index(matrices.scale_pitch),
                 .positions = positions.list,
                 .position_count = to_index(positions.count),
                 .rows = to_index(f.count),
                 .depth = to_index(s.K),
                 .columns = to_index(s.N),
                 .sum_block = to_index(plan_.sum_block),
                 .group = f.group,
                 .tiles = f.tiles};
    p.aligned_a = is_aligned(a.data, a.stride) && whole(positions.of_a) && whole(plan_.sum_block);
    p.aligned_c = is_aligned(c.data, c.stride) && whole(positions.of_c);
    return p;
  }

  void launch(const product<T>& p, dtype stored, math how, const frame& f) const {
    queue& q = f.bound.queue;
    if constexpr (std::is_same_v<T, float>) {
      const auto on_tensor_cores = [&]<math How>(std::integral_constant<math, How>) {
        launch_tensor_product<How>(q, p, stored, f.bound.sums, f.bound.sums_room, f.tile_rows,
                                   f.most_tiles);
      };
      using enum math;
      switch (how) {
        case tf32x3: return on_tensor_cores(std::integral_constant<math, tf32x3>());
        case tf32: return on_tensor_cores(std::integral_constant<math, tf32>());
        case math::bf16: return on_tensor_cores(std::integral_constant<math, math::bf16>());
        case exact:
        case fp32: break;
      }
    }
    launch_product(q, p, stored, f.bound.sums, f.bound.sums_room, f.tile_rows, f.most_tiles);
  }

  void run(const batched_step& s, const frame& f) const {
    const nest_numbers<T> kernel{.a = read(s.a, f),
                                 .b = read(s.b, f),
                                 .c = rows(s.c, f),
                                 .out = loops(s.out),
                                 .summed = loops(s.summed),
                                 .group = f.group,
                                 .finish = finish(s.epilogues, f)};
    nest("batched", kernel, f);
  }

  void run(const reduce_step& s, const frame& f) const {
    const nest_numbers<T> kernel{.a = read(s.a, f),
                                 .c = rows(s.c, f),
                                 .out = loops(s.out),
                                 .summed = loops(s.summed),
                                 .group = f.group,
                                 .finish = finish(s.epilogues, f)};
    nest("reduce", kernel, f);
  }

  void run(const pointwise_step& s, const frame& f) const {
    const nest_numbers<T> kernel{.a = read(s.a, f),
                                 .c = rows(s.c, f),
                                 .out = loops({{s.columns, 1, 0, 1}}),
                                 .is_copy = true,
                                 .group = f.group,
                                 .finish = finish(s.epilogues, f)};
    nest("pointwise", kernel, f);
  }

  void run(const pick_step& s, const frame& f) const {
    const nest_numbers<T> kernel{
        .a = read(s.a, f), .c = rows(s.c, f), .out = loops(s.out), .picks = true, .group = f.group};
    nest("pick", kernel, f);
  }

  void run(const append_step& s, const frame& f) const {
    each("append", append_numbers<T>{read(s.a, f), rows(s.c, f), s.rows, s.columns}, f,
         s.rows * (s.columns + 1));
  }

  // A table of a gather or a sample, as it is stored.
  stored_table table(const view& v, const frame& f) const {
    if (plan_.storages[v.storage].where == storage_row::kind::leaf)
      return weights_.table(v.storage, v.offset);
    return {read(v, f).data, dtype_of<T>};
  }

  void run(const gather_step& s, const frame& f) const {
    const gather_columns<T, T, 1> kernel{.from = selections(s.selection, s.keep, f),
                                         .table = nullptr,
                                         .c = rows(s.c, f),
                                         .rows = s.rows,
                                         .columns = s.N,
                                         .table_row = s.table_row,
                                         .finish = finish(s.epilogues, f)};
    gather(f.bound.queue, kernel, table(s.table, f), f.count);
  }

  void run(const rescale_step& s, const frame& f) const {
    const rescale_rows<T> scaled{.from = selections(s.selection, s.keep, f),
                                 .to = selections(s.c, s.keep, f),
                                 .factors = read(s.factors, f).data,
                                 .rows = s.rows,
                                 .table_row = s.table_row};
    f.bound.queue.launch("rescale", rescale_kernel<T>{scaled, f.count},
                         warps::blocks(f.count * s.rows));
  }

  void run(const sample_step& s, const frame& f) const {
    const sample_kernel<T> kernel{.from = selections(s.selection, s.keep, f),
                                  .to = selections(s.c, s.keep, f),
                                  .x = read(s.x, f),
                                  .table = nullptr,
                                  .tokens = f.count,
                                  .rows = s.rows,
                                  .depth = s.K,
                                  .table_row = s.table_row,
                                  .aligned = false,
                                  .finish = finish(s.epilogues, f)};
    sample(f.bound.queue, kernel, table(s.table, f));
  }

  void run(const row_function_step& s, const frame& f) const {
    by_rows(s.columns, [&]<unsigned Team>(std::integral_constant<unsigned, Team>) {
      const row_function_kernel<T, Team> kernel{
          .f = s.fn,
          .parameter = s.parameter,
          .groups = s.groups,
          .a = read(s.a, f),
          .bound = s.bounds != 0 ? read(s.bound, f) : rows_at<const T>{},
          .c = rows(s.c, f),
          .tokens = f.count,
          .rows = s.rows,
          .columns = s.columns,
          .bounds = s.bounds};
      f.bound.queue.launch(name_of(s.fn), kernel, teams<Team>::blocks(f.count * s.rows));
    });
  }

  void run(const row_norm_step& s, const frame& f) const {
    by_rows(s.columns, [&]<unsigned Team>(std::integral_constant<unsigned, Team>) {
      const row_norm_kernel<T, Team> kernel{.which = s.which,
                                            .a = read(s.a, f),
                                            .c = rows(s.c, f),
                                            .tokens = f.count,
                                            .rows = s.rows,
                                            .columns = s.columns};
      f.bound.queue.launch(name_of(s.which), kernel, teams<Team>::blocks(f.count * s.rows));
    });
  }

  // Calls f with the number of threads that have a row.
  template <class F>
  static void by_rows(extent columns, const F& f) {
    if (columns <= most_of_warp) f(std::integral_constant<unsigned, 32>{});
    else f(std::integral_constant<unsigned, 256>{});
  }

  void run(const select_step& s, const frame& f) const {
    using enum selection_rule::kind;
    const selections_at<T> to = selections(s.selection, s.keep, f);
    const bool by_others = s.ranked.exists();
    const rows_at<const T> a = read(by_others ? s.ranked : s.a, f);
    const weighting weights = s.rule.weights;
    const char* const name = detail::name_of(s.rule.what);
    if (s.rule.what == product_top_k) {
      select_sums<T>(
          f.bound.queue,
          {a, to, s.rows, s.list, std::min(s.rule.each, f.bound.keep), zeros_count(weights)},
          f.count);
    } else if (s.rule.what == top_p) {
      const mass_kernel<T> kernel{{a, to, s.rows, s.columns, s.rule.mass}, f.count};
      f.bound.queue.launch(name, kernel, warps::blocks(f.count * s.rows));
    } else {
      const bool takes_all = s.rule.what == nonzero;
      select_rows<T>(
          f.bound.queue,
          {a, to, s.rows, s.columns, takes_all, by_others || (!takes_all && zeros_count(weights))},
          f.count, f.bound.sums, f.bound.sums_room);
      if (by_others)
        f.bound.queue.each(name, scores_of_kept<T>{read(s.a, f), to, s.rows, s.columns},
                           f.count * s.rows * to.keep);
    }
    const bool may_hold_zeros = by_others || s.rule.what == top_p;
    if (s.rule.what == nonzero || (weights == weighting::score && !may_hold_zeros)) return;
    const extent columns = s.rule.what == product_top_k ? 0 : s.columns;
    weigh({to, read(s.a, f), s.rows, columns, weights}, f);
  }

  void run(const expert_choice_step& s, const frame& f) const {
    const selections_at<T> to = selections(s.selection, s.experts, f);
    const rows_at<const T> scores = read(s.scores, f);
    const choose_kernel<T> kernel{read(s.ranked, f), to, f.count,
                                  capacity_of(s.rule, f.count, s.experts)};
    f.bound.queue.launch("expert_choice", kernel, s.experts);
    const choices_kernel<T> choices{{scores, to}, f.count};
    f.bound.queue.launch("expert_choice", choices, warps::blocks(f.count));
    weigh({to, scores, 1, s.experts, s.rule.weights}, f);
  }
  void weigh(const weigh_rows<T>& of, const frame& f) const {
    f.bound.queue.launch("weights of a selection", weigh_kernel<T>{of, f.count},
                         warps::blocks(f.count * of.rows));
  }

  void run(const kept_step& s, const frame& f) const {
    const kept_numbers<T> kernel{selections(s.selection, s.keep, f), rows(s.c, f), s.rows, s.keep,
                                 s.what};
    each("kept", kernel, f, s.rows * s.keep);
  }

  void run(const expand_step& s, const frame& f) const {
    constexpr extent most_lanes = 256;
    const expand_lanes<T> kernel{
        {selections(s.selection, s.keep, f), rows(s.c, f), s.rows, s.columns},
        std::clamp<extent>(s.columns, 1, most_lanes)};
    each("expand", kernel, f, s.rows * kernel.lanes);
  }

  void run(const token_sum_step& s, const frame& f) const {
    const token_sums<T> kernel{.a = read(s.a, f),
                               .b = s.b.exists() ? read(s.b, f) : rows_at<const T>{},
                               .c = rows(s.c, f).data,
                               .out = loops(s.out),
                               .summed = loops(s.summed),
                               .tokens = f.count,
                               .block = s.block};
    sum_tokens(f.bound.queue, kernel, f.bound.sums, f.bound.sums_room);
  }

  void run(const selection_sum_step& s, const frame& f) const {
    const selections_at<T> from = selections(s.selection, s.keep, f);
    const selection_sums<T> kernel{.lists = sorted(from, s.experts, f),
                                   .selections = from,
                                   .b = s.b.exists() ? read(s.b, f) : rows_at<const T>{},
                                   .c = rows(s.c, f).data,
                                   .columns = s.N,
                                   .expert_stride = s.expert_stride,
                                   .column_stride = s.column_stride,
                                   .block = s.block};
    sum_selections(f.bound.queue, kernel, f.bound.sums, f.bound.sums_room);
  }

  // Sorts the entries of the frame's tokens by expert.
  sort_lists sorted(const selections_at<T>& from, extent experts, const frame& f) const {
    const extent tile = group_tile_rows(f.count * from.keep, experts, has_large_tiles<T>);
    const sort_lists lists{{f.count, from.keep, experts, tile}, f.bound.lists};
    sort_entries(f.bound.queue, lists, from);
    return lists;
  }

  // Each step of the body runs once for the rows of all experts.
  void run(const group_step& s, const frame& outer) const {
    const sort_lists lists = sorted(selections(s.selection, s.keep, outer), s.experts, outer);
    frame f = outer;
    f.count = lists.of.rows();
    f.group = {lists.row_count(), lists.tokens(), lists.experts()};
    f.tiles = {lists.tile_count(), lists.first(), lists.end()};
    f.most_tiles = lists.of.most_tiles();
    f.tile_rows = lists.of.tile_rows;
    for (const step& inner : s.body)
      if (const auto* put = get_if<put_step>(&inner)) run(*put, s, lists, outer);
      else visit(inner, f);
  }

  // The last step of a group, which ends with the passes of the group.
  void run(const put_step& s, const group_step& group, const sort_lists& lists,
           const frame& f) const {
    const put_rows<T> kernel{.a = read(s.a, f),
                             .c = rows(s.c, f),
                             .selections = selections(s.selection, s.keep, f),
                             .rows = lists.rows(),
                             .columns = s.columns,
                             .finish = finish(group.epilogues, f)};
    put(f.bound.queue, kernel, f.count);
  }

  void run(const exclude_step& s, const frame& f) const {
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
    exclude(f.bound.queue, kernel, f.count);
  }

  static exclude_loop loop(const exclude_step::axis& a) {
    exclude_loop made{a.length, a.c};
    std::ranges::copy(a.strides, made.of);
    return made;
  }
  static exclude_loops loops(const vector<exclude_step::axis>& axes) {
    exclude_loops made;
    for (const auto& a : axes) {
      made.of[made.count++] = loop(a);
      made.places *= a.length;
    }
    return made;
  }

  // Scores by tensor cores, then a selection that makes few of them again.
  void run(const screen_step& s, const frame& f) const {
    const product<float> scores = product_of(s, read(s.a, f), rows(s.scratch, f), f);
    const auto [by_norm, by_rounding] = screens_->of(plan_, s.weight);
    const selections_at<float> to = selections(s.selection, s.keep, f);
    const weighting weights = s.rule.weights;
    const stored_table columns = weights_.columns(s.weight);
    const screen_rows<float> screened{.a = scores.a,
                                      .scratch = scores.c,
                                      .to = to,
                                      .g = nullptr,
                                      .by_norm = by_norm,
                                      .by_rounding = by_rounding,
                                      .depth = s.K,
                                      .columns = s.N,
                                      .sum_block = plan_.sum_block,
                                      .takes_zeros = zeros_count(weights),
                                      .finish = finish(s.epilogues, f)};
    find_sizes(f.bound.queue, screened, f.count);
    if (!blas_scores(s, screened, scores, f))
      launch(scores, weights_.matrices(s.weight).stored, math::bf16, f);
    select_screened(f.bound.queue, screened, columns, f.count);
    if (weights == weighting::score) return;
    weigh(weigh_rows<float>{to, {}, 1, 0, weights}, f);
  }

  // Returns false if cuBLASLt does not compute the scores. It takes whole accesses of columns; what
  // stands behind the scores is written later.
  bool blas_scores(const screen_step& s, const screen_rows<float>& screened,
                   const product<float>& p, const frame& f) const {
    if constexpr (Device::has_blas)
      return blas_->run(s,
                        {.a = screened.narrowed(0),
                         .a_stride = 2 * p.c.stride,
                         .w = p.weights,
                         .w_stride = p.pitch,
                         .c = p.c,
                         .rows = f.count,
                         .depth = s.K,
                         .columns = p.pitch,
                         .numbers = dtype::bfloat16},
                        f.bound.queue);
    return false;
  }

  std::unique_ptr<const screens<Device>> screens_;  // of floats
  math policy_ = math::exact;
  std::unique_ptr<typename blas_products_of<Device>::type> blas_;
};

}  // namespace fmoe::cuda

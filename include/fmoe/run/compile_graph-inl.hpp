// SPDX-License-Identifier: MIT
// Takes a graph through the planner to a backend.
#pragma once

#include <fmoe/backend/backend-inl.hpp>
#include <fmoe/backend/cpu/host.hpp>
#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ir/live.hpp>
#include <fmoe/planner/planner.hpp>
#include <fmoe/run/compile_graph.hpp>

namespace fmoe::detail {

// Returns the backend that the options name, by default the CPU.
template <class T, class Level>
std::shared_ptr<const backend> backend_of(const compile_options& options) {
  return options.on != nullptr ? options.on : cpu::host<T, Level>();
}

// Throws value_error if no call could run.
inline planner::plan_options plan_options_of(const compile_options& options, const backend& on,
                                             dtype type,
                                             const std::optional<in_place>& arrays = {}) {
  expects<value_error>(options.callers != 0 && options.threads != 0,
                       "[compile] callers and threads are at least 1: fmoe::all sets no limit");
  expects<value_error>(!options.bf16_products || options.sum_block % 2 == 0,
                       "[compile] bf16_products adds two terms at a time: sum_block is even, not ",
                       options.sum_block);
  expects<value_error>(!options.int8_products || options.sum_block % 32 == 0,
                       "[compile] int8_products rounds 32 terms together: sum_block is a multiple "
                       "of 32, not ",
                       options.sum_block);
  planner::plan_options how;
  how.on = options.as ? *options.as : on.machine(type);
  how.kernels = on.kernels(type);
  how.element_bytes = size_of(type);
  how.naive = options.naive;
  how.shape = options.shape.value_or(plan_shape{});
  how.shape.screen = how.shape.screen && options.screen;
  how.chooses_shape = !options.shape;
  how.tunes = how.chooses_shape && options.tune;
  how.threads = options.threads == all ? cpu::thread_count() : options.threads;
  how.sum_block = options.sum_block;
  how.bf16_products = options.bf16_products;
  how.int8_products = options.int8_products;
  how.has_plain_sums = arrays.has_value();
  if (arrays) how.tables = arrays->tables;
  return how;
}

struct compile_job {
  std::shared_ptr<const backend> on;
  planner::program program;
  dtype type;
  extent callers, threads;
  planner::plan_options how;
  bool keeps_weights;
  bool reads_in_place;
  calls expected;
  vector<bool> changed;  // by leaf: may have been written
};

// Gives each leaf the elements that its executable reads next, and says which may have been written
// since it read them: a weight that it never read has.
inline void read_weights(compiled_graph& g) {
  compile_job& job = *g.job;
  for (extent i = 0; i < g.weights.size(); ++i) {
    const read_weight& w = g.weights[i];
    if (w.elements == nullptr) continue;
    ir::leaf_node& leaf = job.program.leaves[i];
    const bool is_unwatched = w.elements->is_unwatched();
    if (is_unwatched) w.elements->read_source();
    // Who refills a tensor that is no parameter need not tell it.
    job.changed[i] = w.elements->version() != w.version || !leaf.parameter || is_unwatched;
    leaf.may_change = is_unwatched && !job.reads_in_place && job.expected == calls::many;
    if (job.reads_in_place || is_unwatched) leaf.data = w.elements;
    else if (job.changed[i]) leaf.data = std::make_shared<storage>(*w.elements);
  }
}

// Makes the executable of the weights that were read.
inline void make_executable(compiled_graph& g) {
  const compile_job& job = *g.job;
  g.program = job.on->compile(
      {job.program, job.type, job.program.token_count, job.callers, job.threads, job.how});
}

inline void note_versions(compiled_graph& g) {
  for (read_weight& w : g.weights)
    if (w.elements != nullptr) w.version = w.elements->version();
}

FMOE_INLINE void refresh(compiled_graph& g) {
  const compile_job& job = *g.job;
  expects<value_error>(job.keeps_weights,
                       "[refresh] the layer was compiled without keeping its weights: compile it "
                       "again");
  for (const read_weight& w : g.weights)
    expects<shape_error>(w.elements == nullptr || !w.elements->is_replaced(),
                         "[refresh] a weight was assigned a tensor of another shape, or none: "
                         "compile the layer again");
  read_weights(g);
  if (!g.program->refresh(job.program.leaves, job.changed)) make_executable(g);
  note_versions(g);
}

// Returns the fewest entries that a top-k has room for, and 0 if there is none, or one that keeps
// all entries, which the plan leaves out.
inline extent most_kept(const ir::graph& g, const ir::node_list& results) {
  const ir::live_graph part = ir::live(g, results);
  extent least = all;
  for (const ir::node_id id : part.nodes.ids()) {
    const auto* s = get_if<ir::select_node>(&part.nodes[id].op);
    using enum selection_rule::kind;
    if (s == nullptr || (s->rule.what != top_k && s->rule.what != product_top_k)) continue;
    if (keeps_all(s->rule, part.nodes.shape(s->arg).back())) return 0;
    const bool is_row = s->rule.what == top_k;
    least = std::min({least, s->rule.keep, is_row ? part.nodes.shape(s->arg).back() : all});
  }
  return least == all ? 0 : least;
}

// Throws shape_error if one weight is as it was when the expression was made, since a tensor of
// another shape was assigned to it, and another one is not.
inline void expects_one_layer(const planner::program& p) {
  bool is_old = false, is_new = false;
  for (const ir::leaf_node& l : p.leaves) {
    if (l.data == nullptr) continue;
    if (l.data->is_replaced()) is_old = true;
    else if (l.data->version() != l.version) is_new = true;
  }
  expects<shape_error>(!is_old || !is_new,
                       "[evaluate] a weight of the expression was assigned a tensor of another "
                       "shape, or none, and another weight was written: make the expression again");
}

// Throws value_error if an option rounds the rows that meet weights of a type, and no product of
// the program has such weights. The segments of a layer over ranks need not have one each.
inline void expects_rounding(const planner::program& p, const planner::plan_options& how) {
  const auto expects_weights = [&](bool is_asked, const char* option, dtype type) {
    const auto has_them = [&](const planner::operation& o) {
      if (!planner::is<planner::gemm_op>(o)) return false;
      const auto& leaf = p[o.in[1].value].leaf;
      return leaf && p.leaves[*leaf].type == type;
    };
    expects<value_error>(
        !is_asked || how.has_plain_sums ||
            (how.element_bytes == 4 && std::ranges::any_of(p.operations, has_them)),
        "[compile] ", option, " rounds the rows that meet weights of ", name_of(type),
        ", and no product of floats has such weights: load them as ", name_of(type),
        ", or leave the option out");
  };
  expects_weights(how.bf16_products, "bf16_products", dtype::bfloat16);
  expects_weights(how.int8_products, "int8_products", dtype::q8);
}

template <class T, class Level>
compiled_graph compile_graph(const ir::graph& g, const ir::node_list& results, extent tokens,
                             const compile_options& options, const std::optional<in_place>& arrays,
                             calls expected) {
  const auto on = backend_of<T, Level>(options);
  const planner::plan_options how = plan_options_of(options, *on, dtype_of<T>, arrays);
  planner::program p = planner::lower(g, results, how);
  expects_one_layer(p);
  expects_rounding(p, how);
  if (p.tokens && tokens != all) p.token_count = tokens;
  compiled_graph made;
  made.tokens = p.token_count;
  made.most_kept = most_kept(g, results);
  for (const planner::value_id r : p.results)
    made.results.push_back({p[r].shape, p[r].per_token()});
  for (const ir::leaf_node& leaf : p.leaves) made.weights.push_back({leaf.data, never_read});
  made.job = std::make_shared<compile_job>(compile_job{.on = on,
                                                       .program = std::move(p),
                                                       .type = dtype_of<T>,
                                                       .callers = options.callers,
                                                       .threads = options.threads,
                                                       .how = how,
                                                       .keeps_weights = options.keep_weights,
                                                       .reads_in_place = arrays.has_value(),
                                                       .expected = expected,
                                                       .changed = {}});
  made.job->changed.resize(made.weights.size());
  read_weights(made);
  make_executable(made);
  if (options.keep_weights) {
    note_versions(made);
  } else {
    made.weights.clear();
    made.job->program.leaves.clear();
  }
  return made;
}

}  // namespace fmoe::detail

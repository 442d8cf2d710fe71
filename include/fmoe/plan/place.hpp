// SPDX-License-Identifier: MIT
// Place: every temporary gets an offset in one block for each task, so that a compiled call
// allocates nothing. Values that are never alive at the same time share memory: the largest value
// is placed first, each at the lowest free offset. A streaming loop counts as one moment.
#pragma once

#include <functional>

#include <fmoe/base/memory.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/plan/plan.hpp>
#include <fmoe/plan/rounding.hpp>
#include <fmoe/plan/stream.hpp>

namespace fmoe::plan {

// Which values share one storage: a sum continues its start value in place.
class shared_storages {
 public:
  shared_storages() = default;
  explicit shared_storages(const planner::program& p)
      : homes_(p.values.size()),
        results_(p.values.size()) {
    for (const planner::value_id v : p.values.ids()) homes_[v] = v;
    // A value is read after it is made, so from behind the home of each sum is known.
    for (extent k = p.operations.size(); k-- > 0;)
      if (const planner::operation& o = p.operations[k]; o.start != planner::value_id::none)
        homes_[o.start] = homes_[o.out.value];
    for (extent i = p.results.size(); i-- > 0;) results_[homes_[p.results[i]]] = i;
  }

  // Returns the value whose storage v shares.
  planner::value_id home_of(planner::value_id v) const { return homes_[v]; }
  // Returns the number of the result whose storage v shares, if there is one.
  std::optional<extent> output_of(planner::value_id v) const { return results_[homes_[v]]; }

 private:
  list_by<planner::value_id, planner::value_id> homes_;
  list_by<planner::value_id, std::optional<extent>> results_;  // of each home
};

struct placement {
  struct row {
    extent width = 0;   // elements from one token to the next
    extent offset = 0;  // the tile's offset, in elements
  };
  shared_storages shared;
  list_by<planner::value_id, row> rows;      // width 0 for values that are not in the arena
  extent arena = 0;                          // elements
  list_by<planner::group_id, extent> lists;  // offsets in the arena
  extent rounded = 0;                        // the offset in the arena of rows that products round
  // The entries of a token, for values that a group keeps until all experts have made theirs.
  list_by<planner::value_id, extent> listed;
  // Values in the memory of the call, after `offset` elements of each token.
  list_by<planner::value_id, bool> spans;
  extent call = 0;  // elements for each token
  extent once = 0;  // the elements of values of scope `call`, which come after those of all tokens
};

inline const stream_loop* loop_of(const vector<stream_loop>& loops, extent operation) {
  for (const stream_loop& l : loops)
    if (std::ranges::count(l.operations, operation) > 0) return &l;
  return nullptr;
}

inline const stream_loop* chunked_in(const vector<stream_loop>& loops, planner::value_id value) {
  for (const stream_loop& l : loops)
    if (std::ranges::count(l.values, value) > 0) return &l;
  return nullptr;
}

inline extent row_width(const planner::program& p, const planner::plan_options& o,
                        const vector<stream_loop>& loops, planner::value_id v) {
  const planner::value& x = p[v];
  const extent line = o.kernels.cache_line / o.element_bytes;
  if (x.selection) {
    const extent lists = x.each != 0 ? 2 * round_up(o.kernels.selection_size(x.each), line) : 0;
    return x.rows() * round_up(o.kernels.selection_size(x.keep), line) + lists;
  }
  extent n = x.size();
  if (const stream_loop* l = chunked_in(loops, v))
    n = n / std::max<extent>(1, x.shape[0]) * l->chunk;
  n = round_up(std::max<extent>(n, 1), line);
  const bool shares_sets = n * o.element_bytes % o.on.set_stride == 0;
  return shares_sets ? n + line : n;
}

// Returns the rows that a value has while a tile runs.
inline extent rows_of_tile(const planner::program& p, const planner::plan_options& o, extent tile,
                           planner::value_id v) {
  if (!p[v].in_group()) return tile;
  return o.kernels.whole_groups ? tile * p.groups[p[v].group].keep
                                : std::min(tile, o.shape.group_rows);
}

// Returns the last operation of the operation's group, or the operation itself if it is in no
// group.
inline extent last_of_group(const planner::program& p, extent operation) {
  const planner::operation& o = p.operations[operation];
  if (!o.in_group()) return operation;
  extent last = p.operations.size() - 1;
  while (p.operations[last].group != o.group) --last;
  return last;
}

// May threads share the experts of a group? A call has fewer tiles than threads, and a token has
// few entries, for each of which a row is kept until all experts have made theirs.
inline bool shares_group(const planner::program& p, const planner::plan_options& o,
                         const planner::expert_group& g, extent tile) {
  return divide_up(p.token_count, tile) < o.threads && 2 * g.keep <= g.experts &&
         shares_experts(static_cast<double>(g.experts), o.threads);
}

// True if the rows of v, one for each token, outlive the pass over the tiles that makes them.
inline bool spans_stages(const planner::program& p, const planner::program_index& index,
                         planner::value_id v) {
  const auto maker = index.producer(v);
  if (!maker || index.is_result(v)) return false;
  if (p.runs_per_call(p.operations[*maker])) return true;
  return std::ranges::any_of(index.readers(v), [&](extent k) {
    return index.stage(k) != index.stage(*maker) || p.runs_per_call(p.operations[k]);
  });
}

inline placement placed(const planner::program& p, const planner::plan_options& options,
                        const vector<stream_loop>& loops, extent tile) {
  struct life {
    planner::value_id value{};
    extent from = all;  // the first and the last moment at which the value is needed
    extent to = 0;
    extent size = 0;
    extent offset = 0;
  };
  placement result;
  result.shared = shared_storages(p);
  const shared_storages& shared = result.shared;
  const planner::program_index index(p);
  list_by<planner::value_id, life> life_of(p.values.size());  // of each home
  for (extent k = 0; k < p.operations.size(); ++k) {
    const stream_loop* l = loop_of(loops, k);
    const extent time = l != nullptr ? l->operations.back() : last_of_group(p, k);
    const auto need = [&](planner::value_id v) {
      life& needed = life_of[shared.home_of(v)];
      needed.from = std::min(needed.from, time);
      needed.to = std::max(needed.to, time);
    };
    need(p.operations[k].out.value);
    each_read(p.operations[k], need);
  }
  result.rows.resize(p.values.size());
  result.spans.resize(p.values.size());
  result.listed.resize(p.values.size());
  for (const planner::operation& o : p.operations)
    if (planner::is<planner::put_op>(o) && shares_group(p, options, p.groups[o.group], tile))
      result.listed[shared.home_of(o.in[0].value)] = p.groups[o.group].keep;
  vector<life> lives;
  for (const planner::value_id v : p.values.ids()) {
    if (p[v].leaf || p[v].is_constant()) continue;
    if (shared.home_of(v) != v || shared.output_of(v)) continue;
    life l = life_of[v];
    l.value = v;
    const bool is_unused = l.from == all;
    if (is_unused) continue;
    auto& row = result.rows[v];
    row.width = row_width(p, options, loops, v);
    if (!p[v].per_token()) {
      row.offset = result.once;
      result.once += row.width;
      continue;
    }
    if (spans_stages(p, index, v)) {
      result.spans[v] = true;
      row.offset = result.call;
      result.call += row.width;
      continue;
    }
    l.size = row.width *
             (result.listed[v] != 0 ? tile * result.listed[v] : rows_of_tile(p, options, tile, v));
    lives.push_back(l);
  }
  std::ranges::stable_sort(lives, std::ranges::greater(), &life::size);
  vector<life> found;  // those that have an offset, by offset
  for (life& l : lives) {
    for (const life& other : found) {
      if (other.offset >= l.offset + l.size) break;
      const bool together = other.from <= l.to && l.from <= other.to;
      if (together) l.offset = std::max(l.offset, other.offset + other.size);
    }
    found.insert(std::ranges::upper_bound(found, l.offset, {}, &life::offset), l);
    result.rows[l.value].offset = l.offset;
    result.arena = std::max(result.arena, l.offset + l.size);
  }
  for (const planner::expert_group& g : p.groups) {
    result.lists.push_back(result.arena);
    const extent size = group_scratch(g.experts, g.keep, tile, options.element_bytes);
    result.arena += round_up(size, options.kernels.cache_line / options.element_bytes);
  }
  result.rounded = result.arena;
  for (extent k = 0; k < p.operations.size(); ++k) {
    const planner::operation& o = p.operations[k];
    if (rounding_of(p, options, o) == row_rounding::none) continue;
    const extent rows = rows_of_tile(p, options, tile, o.out.value),
                 size = rounded_size(p, o, loop_of(loops, k), rows);
    result.arena = std::max(result.arena, result.rounded + size);
  }
  return result;
}

}  // namespace fmoe::plan

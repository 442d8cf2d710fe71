// SPDX-License-Identifier: MIT
// Stages: operations that run once a call stand as late as they can, so that one pass over the
// tiles of tokens makes all that does not follow from them.
#pragma once

#include <limits>
#include <numeric>
#include <utility>

#include <fmoe/planner/program.hpp>

namespace fmoe::planner {

// Returns for each operation how many passes over the tokens must end before it can run: one more
// for each sum over tokens that rows are made of again. Operations of a group have one number.
inline vector<int> passes_before(const program& p) {
  vector<int> level(p.operations.size(), 0);
  list_by<value_id, std::optional<extent>> maker(p.values.size());
  const auto is_call = [&](value_id v) { return p[v].scope == value_scope::call; };
  const auto level_of = [&](const operation& o) {
    int most = 0;
    each_read(o, [&](value_id v) {
      if (!maker[v]) return;
      most = std::max(most, level[*maker[v]] + (is_call(v) && !is_call(o.out.value) ? 1 : 0));
    });
    return most;
  };
  // The most that an operation of the group has to wait for.
  list_by<group_id, int> of_group(p.groups.size());
  const auto number = [&] {
    for (extent k = 0; k < level.size(); ++k) {
      const operation& o = p.operations[k];
      maker[o.out.value] = k;
      level[k] = level_of(o);
      if (!o.in_group()) continue;
      int& most = of_group[o.group];
      level[k] = most = std::max(most, level[k]);
    }
  };
  number();
  if (!of_group.empty()) number();  // now that the last operation of each group is known
  return level;
}

// Marks the values that no result may be beside others: rows that an operation reads which runs
// once a call or in a later pass over the tokens, and all values if there is a barrier.
inline list_by<value_id, bool> read_late(const program& p) {
  const auto level = passes_before(p);
  list_by<value_id, int> made(p.values.size(), std::numeric_limits<int>::max());
  list_by<value_id, bool> late(p.values.size(), std::ranges::any_of(p.operations, is_barrier));
  for (extent k = 0; k < p.operations.size(); ++k) {
    const operation& o = p.operations[k];
    made[o.out.value] = level[k];
    each_read(o, [&](value_id v) {
      late[v] |= p[v].per_token() && (p.runs_per_call(o) || level[k] > made[v]);
    });
  }
  return late;
}

// Copies each argument that an operation reads once a call into the call's own memory.
inline void keep_arguments(program& p) {
  list_by<value_id, value_id> copies(p.values.size(), value_id::none);
  vector<operation> done;
  for (operation& o : p.operations) {
    for (use& u : o.in) {
      if (!p.runs_per_call(o) || !p[u.value].argument) continue;
      value_id& copy = copies[u.value];
      if (copy == value_id::none) {
        value row = p[u.value];
        row.leaf.reset();
        row.argument = false;
        copy = p.add(std::move(row));
        done.push_back({.what = reduce_op{}, .in = {u}, .out = {copy, u.labels}});
      }
      u.value = copy;
    }
    done.push_back(std::move(o));
  }
  p.operations = std::move(done);
}

inline void arrange_stages(program& p) {
  const auto is_call = [&](const operation& o) {
    return p[o.out.value].scope == value_scope::call;
  };
  if (std::ranges::none_of(p.operations, is_call)) return;
  keep_arguments(p);
  const auto level = passes_before(p);
  vector<extent> order(level.size());
  std::iota(order.begin(), order.end(), extent{0});
  std::ranges::stable_sort(order, {},
                           [&](extent k) { return std::pair(level[k], is_call(p.operations[k])); });
  vector<operation> sorted;
  for (const extent k : order) sorted.push_back(std::move(p.operations[k]));
  p.operations = std::move(sorted);
}

}  // namespace fmoe::planner

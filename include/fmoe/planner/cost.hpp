// SPDX-License-Identifier: MIT
// The cost of a program, and of the naive form of a graph.
#pragma once

#include <map>

#include <fmoe/planner/cost_figures.hpp>
#include <fmoe/planner/program_index.hpp>
#include <fmoe/planner/tokens.hpp>

namespace fmoe::planner {

class cost_counter {
 public:
  cost_counter(const program& p, extent tokens, extent element_bytes)
      : program_(p),
        index_(p),
        tokens_(static_cast<double>(tokens)),
        element_bytes_(static_cast<double>(element_bytes)) {
    for (const operation& o : program_.operations) count(o);
    for (const value_id v : program_.values.ids()) count(v);
    for (const value_id r : program_.results)
      figures.bytes += element_bytes_ * (program_[r].per_token() ? tokens_ : 1) *
                       static_cast<double>(program_[r].size());
  }

  cost_figures figures;

 private:
  void count(const operation& o) {
    if (is<exclude_op>(o)) return count_exclude(o);
    const bool sums_entries = is<expert_sum_op>(o) && o.in.size() == 3;
    const bool sums_products = sums_entries || (is<token_sum_op>(o) && o.in.size() == 2);
    if (!is<gemm_op, batched_op, gather_op, sample_op>(o) && !sums_products) return;
    const bool sums_selection = sums_products && program_[o.in[0].value].selection;
    const bool by_selection = is<gather_op, sample_op>(o) || sums_selection;
    double n = 1;
    axis_labels seen;
    for (const use& u : o.in)
      for (const char c : u.labels)
        if (!has(seen, c)) {
          seen += c;
          const value& v = program_[u.value];
          const bool selected = by_selection && &u == &o.in[0] && c == u.labels.back();
          const bool grouped = o.in_group() && c == o.expert;
          n *= static_cast<double>(grouped    ? program_.groups[o.group].expected
                                   : selected ? v.expected
                                              : program_.extent_of(u, c));
        }
    const bool each_token = program_[o.out.value].per_token() || sums_products;
    (each_token ? figures.multiply_adds : figures.once) += n;
  }

  // For each group with a pair left out, counts the coefficients of all places of the other axis,
  // and the kept ones times the rest.
  void count_exclude(const operation& o) {
    const auto& mask = as<exclude_op>(o);
    std::map<extent, double> left_out;
    for (const index_pair& p : *mask.left_out) ++left_out[p[mask.swapped ? 0 : 1]];
    double inner = 1, own = 1, places = 1;
    axis_labels seen = mask.masked,
                result = labels_where(o.out.labels, [&](char c) { return !has(mask.masked, c); });
    for (const use& u : o.in)
      for (const char c : u.labels) {
        const double length = static_cast<double>(program_.extent_of(u, c));
        if (c == mask.masked[0]) places = length;
        if (has(seen, c)) continue;
        seen += c;
        (has(result, c) ? own : inner) *= length;
      }
    for (const auto& [group, n] : left_out)
      figures.multiply_adds += places * inner + (result.empty() ? 0 : (places - n) * own);
  }

  // Counts weights, which are read by steps over tokens: a parameter, or, in the naive plan, the
  // product of several.
  void count(value_id v) {
    const value& x = program_[v];
    const double size = static_cast<double>(x.size());
    if (!x.is_constant()) {
      if (x.leaf) figures.bytes += element_bytes_ * size * tokens_;
      return;
    }
    bool read_by_tokens = false;
    double rows = 0;  // the rows that gathers touch
    for (const extent k : index_.readers(v)) {
      const operation& o = program_.operations[k];
      if (program_[o.out.value].is_constant()) continue;
      read_by_tokens = true;
      rows = std::max(rows, touched(o, v));
    }
    if (!read_by_tokens) return;
    figures.parameters += size;
    figures.bytes += stored_bytes(x) * size * rows;
  }

  // Returns the bytes of one number: weights of 16 and 8 bits stay so beside floats, everything
  // else is in the arithmetic type.
  double stored_bytes(const value& x) const {
    if (!x.leaf || element_bytes_ != 4) return element_bytes_;
    return std::min(element_bytes_, bytes_each(program_.leaves[*x.leaf].outline()));
  }

  // Returns the share of a constant's rows that an operation reads: all of them, or as many as are
  // selected.
  double touched(const operation& o, value_id v) const {
    const bool gathers = is<gather_op>(o);
    const bool selects =
        (gathers && o.in[1].value == v) || (is<sample_op>(o) && o.in[2].value == v);
    if (!selects && !o.in_group()) return 1;
    double length = 0, selected = tokens_;
    if (o.in_group()) {
      const expert_group& g = program_.groups[o.group];
      length = static_cast<double>(g.experts);
      selected *= static_cast<double>(g.expected);
    } else {  // selections whose rows share the table select from all of it
      const use &selection = o.in[0], &table = o.in[gathers ? 1 : 2];
      const value& s = program_[selection.value];
      length = static_cast<double>(s.shape.back());
      selected *= static_cast<double>(s.expected);
      if (!has(table.labels, selection.labels[0])) selected *= static_cast<double>(s.rows());
    }
    return std::min(length, selected) / std::max(1.0, length);
  }

  const program& program_;
  program_index index_;
  double tokens_, element_bytes_;
};

// Returns the cost of contractions (planner.hpp) for `tokens` rows of numbers with this many bytes
// each.
inline cost_figures cost_of(const program& p, extent tokens, extent element_bytes) {
  return cost_counter(p, tokens, element_bytes).figures;
}

// The naive closed form: for each einsum with weights, the number of elements of its
// materialised weight, because every token meets each element once: N I O for a mixture of linear
// experts, N H O for MxD.
inline double naive_closed_form(const ir::graph& g) {
  const bool is_layer = has_arguments(g);
  double sum = 0;
  for (const ir::node_id id : g.ids()) {
    const auto* e = get_if<ir::einsum_node>(&g[id].op);
    if (e == nullptr) continue;
    std::map<char, extent> weight;
    std::string needed(result_labels(e->subscripts));
    for (extent k = 0; k < e->args.size(); ++k) {
      const auto* l = get_if<ir::leaf_node>(&g[e->args[k]].op);
      const auto labels = operand_labels(e->subscripts, k);
      if (l == nullptr || !is_weight(*l, is_layer)) {
        needed += labels;
        continue;
      }
      const auto shape = g.shape(e->args[k]);
      for (extent a = 0; a < labels.size(); ++a) weight[labels[a]] = shape[a];
    }
    double n = weight.empty() ? 0 : 1;
    for (const auto& [label, length] : weight)
      if (has(needed, label)) n *= static_cast<double>(length);
    sum += n;
  }
  return sum;
}

}  // namespace fmoe::planner

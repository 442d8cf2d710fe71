// SPDX-License-Identifier: MIT
// Expand: a graph becomes one whose einsums have one or two operands, in the order that the search
// finds. Equal pairs of different einsums are one node, whatever letters name their labels, so that
// they are computed once.
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/planner/mask.hpp>
#include <fmoe/planner/options.hpp>
#include <fmoe/planner/order.hpp>
#include <fmoe/planner/tokens.hpp>

namespace fmoe::planner {

struct expanded_graph {
  ir::graph nodes;
  ir::node_list roots;
  list_by<ir::node_id, bool> inner;  // only other pairs of the same einsum read it
};

class expansion {
 public:
  // Throws value_error if an einsum has a mask that does not fit it.
  expansion(const ir::graph& g, const ir::node_list& roots, const plan_options& options)
      : from_(g),
        options_(options),
        is_layer_(has_arguments(g)),
        tokens_(token_search(g, roots, is_layer_).axes()),
        result_{g.without_nodes(), roots, {}} {
    for (const ir::node_id id : g.ids()) {
      id_ = id;
      const auto* e = get_if<ir::einsum_node>(&g[id_].op);
      made_.push_back(e != nullptr ? expand(*e) : copy());
    }
    for (ir::node_id& r : result_.roots) renumber(r);
    for (const ir::node_id r : result_.roots) result_.inner[r] = false;
  }

  expanded_graph take() { return std::move(result_); }

 private:
  struct operand {
    ir::node_id id;
    axis_labels labels;
  };

  // What the order search has to know of a node.
  struct facts {
    token_axis token{};
    bool per_token = false, parameter = true;
    bool selection = false;       // along its last axis
    extent expected = 0;          // the entries of a selection that count
    vector<ir::node_id> pairs{};  // the products of two operands that read it
  };

  facts& of(ir::node_id id) { return facts_[id]; }
  void renumber(ir::node_id& id) const { id = made_[id]; }
  ir::node_id renumbered(ir::node_id id) const { return made_[id]; }

  ir::node_id copy() {
    ir::node n = from_[id_];
    ir::each_operand(n, [&](ir::node_id& arg) { renumber(arg); });
    return append(std::move(n));
  }
  // Adds a node in the place of the one at hand.
  ir::node_id append(ir::node n) {
    return know(result_.nodes.append(std::move(n)), tokens_ ? (*tokens_)[id_] : token_axis(),
                false);
  }

  // Notes the facts of a node and whether it is an inner one, which it stays only if nothing else
  // reads it.
  ir::node_id know(ir::node_id id, token_axis token, bool inner) {
    if (facts_.contains(id)) {
      if (!inner) result_.inner[id] = false;
      return id;
    }
    const ir::node& n = result_.nodes[id];
    facts f{.token = token};
    ir::each_operand(n, [&](ir::node_id arg) {
      f.per_token |= of(arg).per_token;
      f.parameter &= of(arg).parameter;
    });
    if (tokens_) f.per_token = token.has_value();
    visit([&](const auto& kind) { note(kind, id, f); }, n.op);
    facts_.push_back(f);
    result_.inner.push_back(inner);
    return id;
  }

  void note(const ir::leaf_node& l, ir::node_id, facts& f) const {
    // Arrays beside arguments are weights of the naive plan alone: evaluate, which has no
    // arguments, plans as compile does, so that both have the same bits.
    f.parameter = options_.naive ? is_weight(l, is_layer_) : l.parameter;
    if (!tokens_) f.per_token = !l.parameter;
  }
  void note(const ir::select_node& s, ir::node_id id, facts& f) const {
    const extent n = result_.nodes.shape(id).back();
    f.selection = !keeps_all(s.rule, n);
    if (f.selection) f.expected = expected_of(s.rule, n);
  }
  // A selection times a constant of its selected axis, or of all its axes, stays a selection.
  void note(const ir::einsum_node& e, ir::node_id id, facts& f) {
    if (e.args.size() != 2) return;
    if (!e.unmasked)
      for (const ir::node_id arg : e.args) of(arg).pairs.push_back(id);
    if (options_.naive) return;
    const std::string_view out = result_labels(e.subscripts);
    axis_labels row(out);
    if (f.token) row = axis_labels(out.substr(0, *f.token)) + out.substr(*f.token + 1);
    for (const extent i : {extent{0}, extent{1}}) {
      const facts& kept = of(e.args[i]);
      const auto factors = operand_labels(e.subscripts, 1 - i);
      const bool scales = kept.selection && !of(e.args[1 - i]).per_token &&
                          operand_labels(e.subscripts, i) == out &&
                          (factors == out.substr(out.size() - 1) || factors == row);
      if (!scales) continue;
      f.selection = true;
      f.expected = kept.expected;
    }
  }
  template <class Node>
  void note(const Node&, ir::node_id, facts&) const {}

  ir::node_id expand(const ir::einsum_node& e) {
    vector<operand> in;
    einsum_mask mask;
    token_ = 0;
    for (extent i = 0; i < e.args.size(); ++i) {
      const auto labels = operand_labels(e.subscripts, i);
      if (const auto* m = get_if<ir::mask_node>(&from_[e.args[i]].op)) {
        expects<value_error>(!mask, "[all_except] an einsum has one mask: \"", e.subscripts, '"');
        mask = {m->left_out, axis_labels(labels)};
        continue;
      }
      in.push_back({renumbered(e.args[i]), axis_labels(labels)});
      if (const token_axis at = of(in.back().id).token) token_ = labels[*at];
    }
    const axis_labels result(result_labels(e.subscripts));
    if (!mask) return sum(std::move(in), result);
    vector<axis_labels> others;
    for (const operand& o : in) others.push_back(without_token(o.labels));
    mask.check(others);
    if (mask.left_out->empty()) return sum(std::move(in), result);
    ir::einsum_node masked = e;
    for (ir::node_id& arg : masked.args) renumber(arg);
    masked.unmasked = sum(std::move(in), mask.orient(result));
    return append({std::move(masked), from_[id_].axes});
  }

  axis_labels without_token(axis_labels labels) const {
    labels.erase(token_);
    return labels;
  }
  static token_axis place_of(char label, const axis_labels& labels) {
    const extent at = labels.find(label);
    return at == axis_labels::npos ? token_axis() : at;
  }

  // Returns the product of all operands, summed over the labels that the result does not have.
  ir::node_id sum(vector<operand> in, const axis_labels& result) {
    if (in.size() == 1) return einsum({in[0]}, result, false);
    for (operand& o : in) o = alone(o, in, result);
    if (options_.naive) materialise(in, result);
    if (in.size() == 1) return in[0].id;
    vector<bool> used(in.size(), false);
    for (const pairing& s : find_order(problem(in, result), options_.on)) {
      used[s.left] = used[s.right] = true;
      vector<operand> others;
      for (extent i = 0; i < in.size(); ++i)
        if (!used[i]) others.push_back(in[i]);
      in.push_back(pair(in[s.left], in[s.right], others, result));
      used.push_back(false);
    }
    return in.back().id;
  }

  contraction_problem problem(const vector<operand>& in, const axis_labels& result) {
    contraction_problem p{{}, without_token(result), {}, token_ != 0 && !has(result, token_)};
    for (const operand& o : in) {
      const facts& f = of(o.id);
      p.operands.push_back(
          {without_token(o.labels), f.per_token, f.parameter, f.expected, f.selection});
      const auto shape = result_.nodes.shape(o.id);
      for (extent k = 0; k < shape.size(); ++k) p.extents.emplace_back(o.labels[k], shape[k]);
    }
    return p;
  }

  // Takes the diagonals of an operand's repeated labels, and sums over the labels that only this
  // operand has.
  operand alone(const operand& o, const vector<operand>& all, const axis_labels& result) {
    vector<operand> others;
    for (const operand& other : all)
      if (&other != &o) others.push_back(other);
    const axis_labels labels = needed(o.labels, others, result);
    return labels == o.labels ? o : operand{einsum({o}, labels, true), labels};
  }

  // Returns the labels that the result or another operand needs, each once.
  static axis_labels needed(std::string_view labels, const vector<operand>& others,
                            const axis_labels& result) {
    axis_labels kept;
    for (const char c : labels) {
      bool is_needed = has(result, c);
      for (const operand& o : others) is_needed |= has(o.labels, c);
      if (is_needed && !has(kept, c)) kept += c;
    }
    return kept;
  }

  // The naive plan multiplies the parameters first, from left to right, into one weight.
  void materialise(vector<operand>& in, const axis_labels& result) {
    const auto take = [&] {
      const auto at =
          std::ranges::find_if(in, [&](const operand& o) { return of(o.id).parameter; });
      const operand taken = *at;
      in.erase(at);
      return taken;
    };
    while (std::ranges::count_if(in, [&](const operand& o) { return of(o.id).parameter; }) > 1) {
      const operand left = take(), right = take();
      in.push_back(pair(left, right, in, result));
    }
  }

  // Returns the product of two operands, summed over the labels that neither the result nor the
  // others need: the result itself if there are no others.
  operand pair(const operand& left, const operand& right, const vector<operand>& others,
               const axis_labels& result) {
    const bool is_last = others.empty();
    // The labels of a selection come first, so that it stays one.
    const bool turned = of(right.id).selection && !of(left.id).selection;
    const operand &first = turned ? right : left, &second = turned ? left : right;
    const axis_labels labels =
        is_last ? result : needed(std::string(first.labels).append(second.labels), others, result);
    if (const auto known = known_pair(left, right, labels); !known) {
      return {einsum({left, right}, labels, !is_last), labels};
    } else if (is_last) {
      const bool is_it = known->labels == result;
      return {is_it ? know(known->id, {}, false) : einsum({*known}, result, false), result};
    } else {
      return *known;
    }
  }

  // Returns a pair of these operands with these labels that the graph has, with other letters
  // perhaps, and in another order of operands and axes.
  std::optional<operand> known_pair(const operand& left, const operand& right,
                                    const axis_labels& labels) const {
    const std::string ours = std::string(left.labels).append(right.labels);
    const auto &of_left = facts_[left.id].pairs, &of_right = facts_[right.id].pairs;
    for (const ir::node_id id : of_left.size() < of_right.size() ? of_left : of_right) {
      const ir::einsum_node& e = get<ir::einsum_node>(result_.nodes[id].op);
      for (const extent l : {extent{0}, extent{1}}) {
        if (e.args[l] != left.id || e.args[1 - l] != right.id) continue;
        const std::string theirs = std::string(operand_labels(e.subscripts, l))
                                       .append(operand_labels(e.subscripts, 1 - l));
        if (!same_but_names(theirs, ours)) continue;
        axis_labels translated;
        for (const char c : result_labels(e.subscripts)) translated += ours[theirs.find(c)];
        const bool same_labels =
            translated.size() == labels.size() &&
            std::ranges::all_of(translated, [&](char c) { return has(labels, c); });
        if (same_labels) return operand{id, translated};
      }
    }
    return {};
  }

  static std::string text(const vector<operand>& in, const axis_labels& result) {
    std::string s;
    for (const operand& o : in) s.append(&o == in.data() ? "" : ",").append(o.labels);
    return s.append("->").append(result);
  }

  ir::node_id einsum(const vector<operand>& in, const axis_labels& result, bool inner) {
    vector<ir::node_id> args;
    for (const operand& o : in) args.push_back(o.id);
    return know(result_.nodes.einsum(text(in, result), std::move(args)), place_of(token_, result),
                inner);
  }

  const ir::graph& from_;
  const plan_options& options_;
  bool is_layer_;
  std::optional<token_axes> tokens_;
  expanded_graph result_;
  ir::node_id id_{};                        // the node of the first graph that is being expanded
  list_by<ir::node_id, ir::node_id> made_;  // for nodes of the first graph
  list_by<ir::node_id, facts> facts_;       // of nodes of the result
  char token_ = 0;                          // the label of the token axis in the einsum at hand
};

inline expanded_graph expand(const ir::graph& g, const ir::node_list& roots,
                             const plan_options& options) {
  return expansion(g, roots, options).take();
}

}  // namespace fmoe::planner

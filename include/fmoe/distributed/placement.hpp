// SPDX-License-Identifier: MIT
// Where the values of an expanded graph can lie, and what it takes: each is whole on every rank,
// cut along the tokens or along the label of a layer's cut, or a part of a sum, for all tokens or
// for those that are routed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/distributed/best_of_part.hpp>
#include <fmoe/distributed/candidate.hpp>
#include <fmoe/distributed/sparse_values.hpp>
#include <fmoe/planner/expand.hpp>

namespace fmoe::detail {

// One way to make a node: where its operands must lie, and where it then lies.
struct making {
  spread out;
  std::vector<spread> in;
  bool merges = false;  // a selection or a function of each part, merged over all parts
  double share = 1;     // of the arithmetic that one rank does
};

// The selection by which tokens are routed, and where it is made. By the number of a value: what it
// is made of, what is 0 for tokens that do not come, and the selection whose entries are needed of
// what travels.
struct token_router {
  token_router(const sparse_values& values, ir::node_id selection, spread made_at)
      : id(selection),
        at(made_at),
        makers(values.makers_of(selection)),
        vanishing(values.vanishing_with(selection)),
        sampled_by(values.sampled_without(makers)) {}

  ir::node_id id;
  spread at;
  std::vector<bool> makers, vanishing;
  sparse_values::selection_list sampled_by;
};

// A graph of pairs and the cut of its parameters.
struct placement_problem {
  const ir::graph& nodes;
  const ir::node_list& roots;
  std::vector<spread> ends;  // where each result has to lie
  axis_list axes;
  double parts;  // of the cut
  extent element_bytes;
  network_costs costs;
  sparse_values sparse;
  std::optional<token_router> router{};

  bool is_argument(ir::node_id id) const {
    const auto* l = get_if<ir::leaf_node>(&nodes[id].op);
    return l != nullptr && l->argument >= 0;
  }
  bool is_sum(ir::node_id id) const { return axes[id].is_sum; }
  bool is_constant(ir::node_id id) const { return !axes[id].token && !is_sum(id); }
  bool has_label(ir::node_id id) const { return axes[id].label && !axes[id].has_two_labels; }
  bool is_router(ir::node_id id) const { return router && router->id == id; }
  bool vanishes(ir::node_id id) const {
    return router && router->vanishing[static_cast<extent>(id)];
  }
  routing_load load() const { return router ? load_of(nodes, axes, router->id) : routing_load{}; }
};

// Returns the numbers of a value for one token.
inline double numbers_a_token(const placement_problem& p, ir::node_id id) {
  return numbers_a_token(p.nodes, p.axes, id);
}

// Returns what of a value travels where it comes to lie otherwise.
inline travel travel_of(const placement_problem& p, ir::node_id id, spread from, spread to) {
  const bool is_selection = holds_alternative<ir::select_node>(p.nodes[id].op);
  if (p.is_router(id) && to == spread::routed_label) return travel::entries;
  if (from != spread::tokens || !is_cut(to)) return travel::rows;
  if (is_selection && to == spread::label &&
      2 * load_of(p.nodes, p.axes, id).all() < numbers_a_token(p, id))
    return travel::entries;
  // Its entries have no other axis before that of the label, and so has the selection.
  const bool is_sampled = to == spread::routed_label && p.router->at == spread::tokens &&
                          p.router->sampled_by[id] == p.router->id && p.load().rows == 1 &&
                          *p.axes[id].token == 0 && *p.axes[id].label == 1;
  return is_sampled ? travel::sampled : travel::rows;
}

inline moved_value move_of(const placement_problem& p, ir::node_id id, spread from, spread to) {
  const travel by = travel_of(p, id, from, to);
  double inner = 1;
  if (p.axes[id].label)
    for (extent k = *p.axes[id].label + 1; k < p.nodes.rank(id); ++k)
      if (p.axes[id].token != k) inner *= static_cast<double>(p.nodes.shape(id)[k]);
  const bool is_dense_selection = by == travel::entries && !is_routed(to);
  return {from,  to,
          by,    numbers_a_token(p, id),
          inner, is_dense_selection ? load_of(p.nodes, p.axes, id) : p.load()};
}

// Returns the seconds in which a value comes to lie otherwise, for all tokens; nothing if it
// cannot. A whole value is cut without a call, and what is there for all tokens is there for some.
inline std::optional<double> seconds_to_move(const placement_problem& p, ir::node_id id,
                                             spread from, spread to) {
  using enum spread;
  if (from == to) return 0;
  if (from == whole && to == label) return p.has_label(id) ? std::optional(0.0) : std::nullopt;
  if (p.is_constant(id) || p.is_sum(id) || is_partial(to)) return {};
  if (is_routed(to)) {
    const bool is_along =
                   to == routed_label && p.has_label(id) && (from == label || from == tokens),
               is_whole = to == routed && (from == whole || from == tokens) && !p.vanishes(id);
    if (!p.router || !(is_along || is_whole)) return {};
  } else if (is_routed(from)) {
    // What does not come here is 0.
    const bool comes_back = from == routed_partial && to == tokens && p.vanishes(id);
    if (!comes_back) return {};
  } else if (to == label || (from == label && to == tokens)) {
    if (!p.has_label(id) || from == partial) return {};
  }
  const moved_value v = move_of(p, id, from, to);
  return p.costs.tokens * bytes_to_move(v, p.parts, static_cast<double>(p.element_bytes)) /
             p.costs.bytes_per_second +
         calls_to_move(from, to, v.by) * p.costs.latency;
}

// Returns the seconds in which a sum over tokens that is a result comes to lie where it has to;
// nothing if it cannot. A sum that lies as tokens do is one over the tokens of each rank. Nothing
// reads what has moved.
inline std::optional<double> seconds_to_end(const placement_problem& p, ir::node_id id, spread from,
                                            spread to) {
  if (from == to) return 0;
  if (from == spread::whole || (to == spread::label && !p.has_label(id))) return {};
  const moved_value v = moved_sum(from, to, numbers_a_token(p, id));
  return bytes_to_move(v, p.parts, static_cast<double>(p.element_bytes)) /
             p.costs.bytes_per_second +
         calls_to_move(v.from, to, v.by) * p.costs.latency;
}

// What the merge of a node moves for one token, but for what stays on its rank, and the calls that
// it makes. A rank gives so many of its best to a selection.
class merge_size {
 public:
  merge_size(const placement_problem& p, ir::node_id id, double ranks, extent best)
      : each(static_cast<double>(p.element_bytes)),
        top(2 * 2 * each) {
    const ir::node& n = p.nodes[id];
    const ir::node_id arg = ir::operands(n)[0];
    const double length = static_cast<double>(p.nodes.shape(arg).back());
    rows_ = numbers_a_token(p, arg) / length;
    best_ = 2 * each * (std::min(static_cast<double>(best), length / ranks) + 1);
    visit(
        [&](const auto& op) {
          if constexpr (requires { op.add_merge(*this); }) op.add_merge(*this);
        },
        n.op);
  }

  double bytes = 0, calls = 0;

  // What the rules of operations are made of: the bytes of a number, of the sum of one for each
  // part, since an all_reduce moves twice its numbers, and of the greatest with a mark for what is
  // not a number.
  double each;
  static constexpr double sum = 2 * sizeof(double);
  double top;
  // The bytes of the best entries of each rank, and of the last of them.
  double best() const { return best_; }
  // So many bytes for each row, and so many calls.
  void add_rows(double of_row, double made) {
    bytes = rows_ * of_row;
    calls = made;
  }
  // So many bytes for a selection.
  void add_selection(double of_all, double made) {
    bytes = of_all;
    calls = made;
  }

 private:
  double rows_, best_;
};

// Lists the ways to make a node.
class making_list {
 public:
  making_list(const placement_problem& p, ir::node_id id) : p_(p), id_(id), n_(p.nodes[id]) {
    operands_ = ir::operands(n_);
    visit([&](const auto& op) { op.list_ways(*this); }, n_.op);
    if (p.is_router(id))
      std::erase_if(found_, [&](const making& m) { return m.out != p.router->at; });
  }
  std::vector<making> take() { return std::move(found_); }

  // What the rules of operations are made of.
  const ir::graph& nodes() const { return p_.nodes; }
  const node_axes& at(ir::node_id id) const { return p_.axes[id]; }
  bool is_sum(ir::node_id id) const { return p_.is_sum(id); }
  bool is_constant(ir::node_id id) const { return p_.is_constant(id); }
  bool has_label_last(ir::node_id id) const { return at(id).label == p_.nodes.rank(id) - 1; }
  extent last() const { return n_.axes.size() - 1; }

  void add_leaf(bool is_argument) {
    if (is_argument) found_.push_back({spread::tokens, {}});
    else found_.push_back({at(id_).is_cut_leaf ? spread::label : spread::whole, {}});
  }
  void add_whole() { add(spread::whole, 1); }
  // Whatever the node, it can be made of whole operands, or token by token; a sum over the tokens
  // of a rank alone can be read where that is a sum again.
  void add_rows(bool is_linear_in_sums = false) {
    add_whole();
    const bool reads_sums =
        std::ranges::any_of(operands_, [&](ir::node_id o) { return is_sum(o); });
    if (!is_constant(id_) && (!reads_sums || is_linear_in_sums)) add(spread::tokens, part());
    if (can_be_routed()) add(spread::routed, reached());
  }
  // Element by element along the label, which is not `without`, an axis that the function needs.
  void add_along_label(std::optional<extent> without = {}) {
    if (!can_be_cut() || at(id_).label == without) return;
    add(spread::label, part());
    const bool is_sparse = p_.sparse.sampled_by[id_] || p_.sparse.zero_but_for[id_];
    if (can_be_routed()) add(spread::routed_label, part() * (is_sparse ? 1 : reached()));
  }
  // A function of rows that are cut, merged over all parts: its result is whole, or cut as they
  // are.
  void add_merge_to_whole() {
    if (!at(operands_[0]).has_two_labels) add_merge(spread::whole);
  }
  void add_merge_to_parts() {
    if (can_be_cut() && at(id_).label == last()) add_merge(spread::label);
  }
  // The best `keep` entries of a row that is cut, among those of each part.
  void add_merge_of_best(extent keep) {
    constexpr double most = 1 << 24;  // places of a part that a float tells apart
    const extent n = p_.nodes.shape(id_).back();
    const bool fits = keep > 0 && keep <= n && p_.nodes.rank(id_) == 2 &&
                      static_cast<double>(n) <= most * p_.parts && n < candidate<float>::most;
    if (fits) add_merge_to_parts();
  }
  // What sums along the label is a part of the sum.
  void add_sum_along_label() {
    if (is_constant(id_) || at(id_).label) return;
    bool sums_label = false, fits = true;
    std::vector<spread> in;
    for (const ir::node_id o : operands_) {
      sums_label |= at(o).label.has_value();
      fits &= !at(o).has_two_labels;
      in.push_back(at(o).label ? spread::label : spread::whole);
    }
    if (sums_label && fits) add_partial(std::move(in), part());
  }
  // A part of a sum, of parts of these operands: the node is linear in them.
  void add_partial_of(std::initializer_list<extent> operands) {
    if (is_constant(id_)) return;  // a constant is no part of a sum
    std::vector<spread> in(operands_.size(), spread::whole);
    for (const extent i : operands) in[i] = spread::partial;
    add_partial(std::move(in), 1);
  }

 private:
  double part() const { return 1 / p_.parts; }

  // Where an operand lies beside a value that lies so, if it has the label or not.
  spread beside(spread out, ir::node_id o) const {
    using enum spread;
    if (is_routed(out) && at(o).token) return out == routed || !at(o).label ? routed : routed_label;
    if (out == tokens) return is_constant(o) ? whole : tokens;
    return out != whole && out != routed && at(o).label ? label : whole;
  }
  void add(spread out, double share) {
    making m{out, {}, false, share};
    for (const ir::node_id o : operands_) m.in.push_back(beside(out, o));
    found_.push_back(std::move(m));
  }
  // What the router selects from cannot follow its choice.
  bool can_be_routed() const {
    return p_.router && at(id_).token && !p_.router->makers[static_cast<extent>(id_)];
  }
  double reached() const { return p_.load().reached(p_.parts); }
  bool can_be_cut() const {
    if (!at(id_).label || at(id_).has_two_labels) return false;
    return std::ranges::none_of(operands_, [&](ir::node_id o) { return at(o).has_two_labels; });
  }
  void add_merge(spread out) {
    if (!at(id_).token) return;
    found_.push_back({out, {spread::label}, true, part()});
    if (operands_.size() > 1) found_.back().in.push_back(spread::whole);  // a bound
  }
  // A sum of what `in` says, or of the same for routed tokens.
  void add_partial(std::vector<spread> in, double share) {
    if (can_be_routed()) {
      making m{spread::routed_partial, in, false, share};
      for (extent k = 0; k < in.size(); ++k) {
        if (is_constant(operands_[k])) continue;
        m.in[k] = in[k] == spread::label     ? spread::routed_label
                  : in[k] == spread::partial ? spread::routed_partial
                                             : spread::routed;
      }
      found_.push_back(std::move(m));
    }
    found_.push_back({spread::partial, std::move(in), false, share});
  }

  const placement_problem& p_;
  ir::node_id id_;
  const ir::node& n_;
  vector<ir::node_id> operands_;
  std::vector<making> found_;
};

// Returns the floating-point operations of a node for one token. Where a selection decides what is
// needed, the entries that it keeps are counted.
inline double flops_a_token(const placement_problem& p, ir::node_id id) {
  if (p.is_constant(id)) return 0;
  double product = 1;
  const auto* e = get_if<ir::einsum_node>(&p.nodes[id].op);
  if (e == nullptr) {
    product = numbers_a_token(p, id);
  } else {
    std::map<char, double> lengths;
    for (extent i = 0; i < e->args.size(); ++i) {
      const ir::node_id arg = e->args[i];
      const auto labels = operand_labels(e->subscripts, i);
      const auto shape = p.nodes.shape(arg);
      const auto& by = p.sparse.zero_but_for[arg];
      for (extent k = 0; k < labels.size(); ++k) {
        auto n = static_cast<double>(shape[k]);
        if (p.axes[arg].token == k) n = 1;
        if (by && p.nodes.same(p.nodes[arg].axes[k], p.nodes[*by].axes.back()))
          n = load_of(p.nodes, p.axes, *by).entries;
        const auto [known, is_new] = lengths.emplace(labels[k], n);
        if (!is_new) known->second = std::min(known->second, n);
      }
    }
    product = e->args.size() > 1 ? 2 : 1;
    for (const auto& [label, n] : lengths) product *= n;
  }
  bool is_once = p.is_sum(id);  // a call
  ir::each_operand(p.nodes[id], [&](ir::node_id o) { is_once &= !p.axes[o].token; });
  if (is_once) return product / p.costs.tokens;
  const auto& by = p.sparse.sampled_by[id];
  if (!by) return product;
  const routing_load load = load_of(p.nodes, p.axes, *by);
  return product * std::min(1.0, load.all() / load.length);
}

}  // namespace fmoe::detail

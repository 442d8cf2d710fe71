// SPDX-License-Identifier: MIT
// Where the values of an expanded graph lie: each is whole on every rank, cut along the tokens or
// along the label of a layer's cut, or a part of a sum. The search is exact: it finds the cheapest
// choice for all nodes together, of arithmetic, bytes and latency.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/distributed/stage_plan.hpp>
#include <fmoe/planner/expand.hpp>

namespace fmoe::detail {

// What a node is for a cut: its axes of tokens and of the label.
struct node_axes {
  std::optional<extent> token, label;
  bool is_cut_leaf = false;
  bool has_two_labels = false;
};

// One way to make a node: where its operands must lie, and where it then lies.
struct making {
  spread out;
  std::vector<spread> in;
  bool merges = false;  // a selection or a function of each part, merged over all parts
  double share = 1;     // of the arithmetic that one rank does
};

// A graph of pairs and the cut of its parameters.
struct placement_problem {
  const ir::graph& nodes;
  const ir::node_list& roots;
  list_by<ir::node_id, node_axes> axes;
  double parts;  // of the cut
  extent element_bytes;
  network_costs costs;

  bool is_constant(ir::node_id id) const { return !axes[id].token; }
};

// Returns the numbers of a value for one token.
inline double numbers_a_token(const placement_problem& p, ir::node_id id) {
  double n = 1;
  const auto shape = p.nodes.shape(id);
  for (extent k = 0; k < shape.size(); ++k)
    if (p.axes[id].token != k) n *= static_cast<double>(shape[k]);
  return n;
}

// Returns the seconds in which a value comes to lie otherwise, for all tokens; nothing if it
// cannot. A whole value is cut without a call.
inline std::optional<double> seconds_to_move(const placement_problem& p, ir::node_id id,
                                             spread from, spread to) {
  using enum spread;
  const bool has_label = p.axes[id].label && !p.axes[id].has_two_labels;
  if (from == to) return 0;
  if (from == whole && to == label) return has_label ? std::optional(0.0) : std::nullopt;
  if (p.is_constant(id) || to == partial) return {};
  if (from == whole) return 0;
  const double others = (p.parts - 1) / p.parts,
               all_bytes = p.costs.tokens * numbers_a_token(p, id) *
                           static_cast<double>(p.element_bytes) * others;
  double bytes = all_bytes, calls = 1;
  if (from == partial && to == label) return {};
  if (to == label || (from == label && to == tokens)) {
    if (!has_label) return {};
    bytes = all_bytes / p.parts;
  }
  if (from == partial && to == whole) {
    bytes = 2 * all_bytes;
    calls = 2;
  }
  return bytes / p.costs.bytes_per_second + calls * p.costs.latency;
}

// What the merge of a node moves for one token, but for what stays on its rank, and the calls that
// it makes. The candidates of entmax count as two entries of a row.
struct merge_size {
  double bytes, calls;
};
inline merge_size size_of_merge(const placement_problem& p, ir::node_id id) {
  const ir::node& n = p.nodes[id];
  const auto each = static_cast<double>(p.element_bytes);
  if (const auto* s = get_if<ir::select_node>(&n.op))  // the K best of each part, and the last
    return {2 * each * (static_cast<double>(s->rule.keep) + 1), 2};
  const ir::node_id arg = ir::operands(n)[0];
  const double rows = numbers_a_token(p, arg) / static_cast<double>(p.nodes.shape(arg).back());
  constexpr double sum = 2 * sizeof(double);  // an all_reduce moves twice its numbers
  const double top = 2 * 2 * each;            // with a mark for what is not a number
  if (const auto* r = get_if<ir::row_norm_node>(&n.op))
    return {rows * (r->which == row_norm::max ? top : sum), 2};
  const auto fn = get<ir::row_function_node>(n.op).fn;
  if (fn == row_function::softmax) return {rows * (top + sum), 4};
  if (fn == row_function::layer_norm) return {rows * 2 * sum, 4};
  if (fn == row_function::entmax)
    return {rows * (top + sizeof(std::uint32_t) + 2 * each + sizeof(double)), 5};
  return {rows * sum, 2};
}

// Lists the ways to make each kind of node.
class making_list {
 public:
  making_list(const placement_problem& p, ir::node_id id) : p_(p), id_(id), n_(p.nodes[id]) {
    operands_ = ir::operands(n_);
    visit([&](const auto& kind) { list(kind); }, n_.op);
  }
  std::vector<making> take() { return std::move(found_); }

 private:
  const node_axes& at(ir::node_id id) const { return p_.axes[id]; }
  double part() const { return 1 / p_.parts; }

  // The same spread for all operands that have the axis; the others are whole.
  void add(spread out, double share) {
    making m{out, {}, false, share};
    for (const ir::node_id o : operands_) {
      const bool has_axis = out == spread::tokens  ? at(o).token.has_value()
                            : out == spread::label ? at(o).label.has_value()
                                                   : false;
      m.in.push_back(has_axis ? out : spread::whole);
    }
    found_.push_back(std::move(m));
  }
  // Whatever the node, it can be made of whole operands, or token by token.
  void add_rows() {
    add(spread::whole, 1);
    if (at(id_).token) add(spread::tokens, part());
  }
  bool can_be_cut() const {
    if (!at(id_).label || at(id_).has_two_labels) return false;
    for (const ir::node_id o : operands_)
      if (at(o).has_two_labels) return false;
    return true;
  }
  // Element by element along the label, which is not `without`, an axis that the function needs.
  void add_along_label(std::optional<extent> without = {}) {
    if (can_be_cut() && at(id_).label != without) add(spread::label, part());
  }
  void add_merge(spread out) {
    if (at(id_).token) found_.push_back({out, {spread::label}, true, part()});
  }
  extent last() const { return n_.axes.size() - 1; }

  void list(const ir::leaf_node& l) {
    if (l.argument >= 0) found_.push_back({spread::tokens, {}});
    else found_.push_back({at(id_).is_cut_leaf ? spread::label : spread::whole, {}});
  }

  void list(const ir::einsum_node& e) {
    add_rows();
    bool has_mask = e.unmasked.has_value();
    for (const ir::node_id a : e.args) has_mask |= holds_alternative<ir::mask_node>(p_.nodes[a].op);
    if (has_mask) return;
    add_along_label();
    if (!at(id_).token) return;  // a constant is no part of a sum
    if (!at(id_).label) {
      bool sums_label = false, fits = true;
      making m{spread::partial, {}, false, part()};
      for (const ir::node_id o : e.args) {
        sums_label |= at(o).label.has_value();
        fits &= !at(o).has_two_labels;
        m.in.push_back(at(o).label ? spread::label : spread::whole);
      }
      if (sums_label && fits) found_.push_back(std::move(m));
    }
    for (extent i = 0; i < e.args.size(); ++i) {  // linear in each operand
      if (!at(e.args[i]).token) continue;
      making m{spread::partial, std::vector<spread>(e.args.size(), spread::whole)};
      m.in[i] = spread::partial;
      found_.push_back(std::move(m));
    }
  }

  void list(const ir::map_node& m) {
    add_rows();
    add_along_label();
    const bool is_linear =
        m.f.own == nullptr && (m.f.fn == pointwise::scale || m.f.fn == pointwise::negate);
    if (at(id_).token && is_linear) found_.push_back({spread::partial, {spread::partial}});
  }
  void list(const ir::join_node& j) {
    add_rows();
    add_along_label();
    if (j.what == pass_kind::add && at(j.left).token && at(j.right).token)
      found_.push_back({spread::partial, {spread::partial, spread::partial}});
  }
  void list(const ir::row_function_node& r) {
    add_rows();
    add_along_label(last());
    if (!r.bound && can_be_cut() && at(id_).label == last()) add_merge(spread::label);
  }
  void list(const ir::row_norm_node& r) {
    add_rows();
    const node_axes& of = at(r.arg);
    if (of.label != p_.nodes.rank(r.arg) - 1) return add_along_label();
    if (!of.has_two_labels) add_merge(spread::whole);
  }
  void list(const ir::select_node& s) {
    using enum selection_rule::kind;
    if (s.rule.what == expert_choice) {  // the tokens of a call depend on each other
      add(spread::whole, 1);
      return;
    }
    add_rows();
    if (s.rule.what == nonzero) return add_along_label();
    if (s.rule.what == product_top_k) return;
    add_along_label(last());
    // A float holds the places of so many entries of a part.
    constexpr double most = 1 << 24;
    const extent n = p_.nodes.shape(id_).back();
    const bool has_room = s.rule.keep > 0 && s.rule.keep <= n,
               is_plain = s.rule.what == top_k && s.rule.weights == weighting::score &&
                          !s.rule.keeps_zeros && p_.nodes.rank(id_) == 2;
    const bool can_merge = has_room && is_plain && can_be_cut() && at(id_).label == last() &&
                           static_cast<double>(n) <= most * p_.parts;
    if (can_merge) add_merge(spread::label);
  }
  void list(const ir::concat_node& c) {
    add_rows();
    for (const ir::node_id a : c.args)
      if (!at(a).label) return;
    add_along_label(c.axis);
  }
  template <class Kind>
  void list(const Kind&) {
    add_rows();
  }

  const placement_problem& p_;
  ir::node_id id_;
  const ir::node& n_;
  std::vector<ir::node_id> operands_;
  std::vector<making> found_;
};

// Returns the floating-point operations of a node for one token. A selection counts what it keeps.
inline double flops_a_token(const placement_problem& p, ir::node_id id) {
  if (p.is_constant(id)) return 0;
  const auto* e = get_if<ir::einsum_node>(&p.nodes[id].op);
  if (e == nullptr) return numbers_a_token(p, id);
  std::map<char, double> lengths;
  for (extent i = 0; i < e->args.size(); ++i) {
    const auto labels = operand_labels(e->subscripts, i);
    const auto shape = p.nodes.shape(e->args[i]);
    const auto* s = get_if<ir::select_node>(&p.nodes[e->args[i]].op);
    for (extent k = 0; k < labels.size(); ++k) {
      auto n = static_cast<double>(shape[k]);
      if (p.axes[e->args[i]].token == k) n = 1;
      if (s != nullptr && k + 1 == labels.size())
        n = static_cast<double>(expected_of(s->rule, shape[k]));
      const auto [known, is_new] = lengths.emplace(labels[k], n);
      if (!is_new) known->second = std::min(known->second, n);
    }
  }
  double product = e->args.size() > 1 ? 2 : 1;
  for (const auto& [label, n] : lengths) product *= n;
  return product;
}

// Where each node is made, and where its operands then lie.
struct placement {
  list_by<ir::node_id, making> how;
  double seconds = 0;  // of a rank, for the tokens that the search counts with
};

// A choice for the nodes so far. The key has a character for each node that is still to be read: a
// bit for each spread that it has, and above them the one that it is made in.
struct partial_choice {
  std::string key;
  double seconds;
  extent before;  // the choice for the nodes before this one, among those of that node
  extent making;
};

// Finds the cheapest placement in which the results are cut by tokens. Throws value_error if there
// is none.
class placement_search {
 public:
  explicit placement_search(const placement_problem& p) : p_(p), last_read_(p.nodes.size(), 0) {
    for (const ir::node_id id : p.nodes.ids()) {
      for (const ir::node_id o : ir::operands(p.nodes[id])) last_read_[o] = static_cast<extent>(id);
      ways_.push_back(making_list(p, id).take());
    }
    for (const ir::node_id r : p.roots) last_read_[r] = p.nodes.size();
  }

  placement find() {
    std::vector<partial_choice> now{{std::string(p_.nodes.size(), '\0'), 0, 0, 0}};
    for (const ir::node_id id : p_.nodes.ids()) {
      now = after(now, id);
      expects<value_error>(
          !now.empty(),
          "[shard] this label cannot be cut: an operation on weights needs the whole axis");
      done_.push_back(now);
    }
    extent best = all;
    double least = std::numeric_limits<double>::infinity();
    for (extent i = 0; i < now.size(); ++i) {
      std::optional<double> total = now[i].seconds;
      for (const ir::node_id r : p_.roots) total = moved(now[i].key, r, spread::tokens, total);
      if (!total || *total >= least) continue;
      best = i;
      least = *total;
    }
    placement found;
    found.seconds = least;
    found.how.resize(p_.nodes.size());
    for (extent k = p_.nodes.size(); k-- > 0; best = done_[k][best].before)
      found.how[static_cast<ir::node_id>(k)] =
          ways_[static_cast<ir::node_id>(k)][done_[k][best].making];
    return found;
  }

 private:
  static char bit(spread s) { return static_cast<char>(1 << static_cast<int>(s)); }
  static spread made_in(char c) { return static_cast<spread>((c >> 4) & 3); }

  // Adds the time in which the node comes to lie so, unless it does already.
  std::optional<double> moved(std::string& key, ir::node_id id, spread to,
                              std::optional<double> seconds) const {
    char& c = key[static_cast<extent>(id)];
    if (!seconds || (c & bit(to)) != 0) return seconds;
    const auto more = seconds_to_move(p_, id, made_in(c), to);
    c = static_cast<char>(c | bit(to));
    return more ? std::optional(*seconds + *more) : std::nullopt;
  }

  std::vector<partial_choice> after(const std::vector<partial_choice>& before, ir::node_id id) {
    const auto operands = ir::operands(p_.nodes[id]);
    const double work = flops_a_token(p_, id) * p_.costs.tokens / p_.costs.flops;
    std::vector<partial_choice> made;
    std::map<std::string, extent> known;
    for (extent i = 0; i < before.size(); ++i)
      for (extent w = 0; w < ways_[id].size(); ++w) {
        const making& m = ways_[id][w];
        partial_choice c{before[i].key, before[i].seconds + m.share * work, i, w};
        std::optional<double> total = c.seconds + (m.merges ? merge_seconds(id) : 0);
        for (extent k = 0; k < operands.size(); ++k)
          total = moved(c.key, operands[k], m.in[k], total);
        if (!total) continue;
        c.seconds = *total;
        c.key[static_cast<extent>(id)] =
            static_cast<char>(bit(m.out) | (static_cast<int>(m.out) << 4));
        for (const ir::node_id o : operands)
          if (last_read_[o] == static_cast<extent>(id)) c.key[static_cast<extent>(o)] = '\0';
        const auto [at, is_new] = known.emplace(c.key, made.size());
        if (is_new) made.push_back(std::move(c));
        else if (c.seconds < made[at->second].seconds) made[at->second] = std::move(c);
      }
    return made;
  }

  double merge_seconds(ir::node_id id) const {
    const merge_size size = size_of_merge(p_, id);
    const double others = (p_.parts - 1) / p_.parts;
    return p_.costs.tokens * size.bytes * others / p_.costs.bytes_per_second +
           size.calls * p_.costs.latency;
  }

  const placement_problem& p_;
  list_by<ir::node_id, extent> last_read_;
  list_by<ir::node_id, std::vector<making>> ways_;
  std::vector<std::vector<partial_choice>> done_;
};

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// Compact: where both passes of a layer select experts, only what was selected is made. A value
// that is 0 elsewhere, or that is needed nowhere else, has a place for each kept entry instead of
// the axis of experts. Products with a weight of every expert run on the rows that selected it, and
// sums over tokens read the entries sorted by expert.
#pragma once

#include <utility>

#include <fmoe/planner/compact_search.hpp>
#include <fmoe/planner/reweigh.hpp>

namespace fmoe::planner {

class compaction {
  using form = compact_search::form;

 public:
  // Rewrites the program if that saves something. `before` is a copy of it.
  compaction(program& p, const program& before, value_id selection, const machine& m)
      : search_(before, selection, m),
        axes_(search_.axes()),
        before_(before),
        selection_(selection),
        p_(p),
        made_(p.values.size(), value_id::none),
        weighed_(p.values.size(), value_id::none) {
    if (!search_.found()) return;
    p_.operations.clear();
    vector<operation> waiting;  // for the selection
    bool is_selected = false;
    for (const operation& o : before.operations) {
      if (!is_selected && (needs_selection(o) || reads_one_of(waiting, o))) {
        waiting.push_back(o);
        continue;
      }
      rewrite(o);
      if (o.out.value != selection) continue;
      is_selected = true;
      for (const operation& w : waiting) rewrite(w);
    }
    for (value_id& r : p_.results)
      if (search_.is_compact(r) && !before[r].selection) r = weighed(r);
    remove_unread(p_);
  }

 private:
  bool needs_selection(const operation& o) const {
    if (o.out.value == selection_) return false;
    bool needs = search_.is_compact(o.out.value);
    each_read(o, [&](value_id v) { needs = needs || search_.is_compact(v); });
    return needs;
  }
  bool reads_one_of(const vector<operation>& made, const operation& o) const {
    return std::ranges::any_of(
        made, [&](const operation& m) { return program::reads(o, m.out.value) > 0; });
  }

  // Adds an operation with a new result.
  use add(operation o, vector<extent> shape, value_scope scope = value_scope::token) {
    value v;
    v.shape = std::move(shape);
    v.scope = scope;
    v.names = o.out.labels;
    v.group = o.group;
    o.out.value = p_.add(std::move(v));
    p_.operations.push_back(std::move(o));
    return p_.operations.back().out;
  }

  // The shape of a value with places instead of experts.
  vector<extent> shape_of(value_id v) const {
    vector<extent> shape = p_[v].shape;
    const extent axis = *axes_.expert_axis(v);
    shape[axis] = p_[selection_].keep;
    if (axes_.has_heads() && !axes_.head_axis(v))
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), axes_.heads());
    return shape;
  }

  // The letter of the heads in an operation's compact form.
  char head_letter(const operation& o) const {
    return axes_.has_heads() ? axes_.selection_for(o).labels[0] : char{0};
  }
  axis_labels labels_of(const use& u, char head) const {
    axis_labels labels = u.labels;
    if (axes_.has_heads() && axes_.expert_axis(u.value) && !axes_.head_axis(u.value))
      labels.insert(*axes_.expert_axis(u.value), head);
    return labels;
  }

  // Returns the compact form of a value: that which its operation made, or what is picked from all
  // of it.
  value_id compact(value_id v) {
    value_id& made = made_[v];
    if (made != value_id::none) return made;
    const axis_labels all = axis_labels("abcdefgh").substr(0, p_[v].shape.size());
    const use whole{v, all};
    const axis_labels out = labels_of(whole, 'H');
    if (search_.is_own_selection(v))
      made = add({.what = kept_op{}, .in = {whole}, .out = {.labels = out}}, shape_of(v)).value;
    else {
      use chosen{selection_, axis_labels(1, axes_.label_of(whole))};
      if (axes_.has_heads())
        chosen.labels.insert(0, axes_.head_axis(v) ? axes_.head_of(whole) : 'H');
      made = add({.what = take_op{}, .in = {chosen, whole}, .out = {.labels = out}}, shape_of(v))
                 .value;
    }
    return made;
  }
  use compact(const use& u, char head) {
    const bool has_places = p_[u.value].per_token() && axes_.expert_axis(u.value);
    return has_places ? use{compact(u.value), labels_of(u, head)} : u;
  }

  // Returns the numbers of a value as a selection, [head, expert] if there are heads.
  value_id weighed(value_id v) {
    if (p_[v].selection) return v;
    value_id& made = weighed_[v];
    if (made != value_id::none) return made;
    const axis_labels all = axis_labels("abcdefgh").substr(0, p_[v].shape.size());
    const use numbers = compact({v, all}, 'H');
    axis_labels order(1, axes_.label_of({v, all}));
    if (axes_.has_heads()) order.insert(0, axes_.head_axis(v) ? axes_.head_of({v, all}) : 'H');
    const use ordered = in_order(p_, numbers, order, p_.operations);
    made = add({.what = weigh_op{}, .in = {{selection_, order}, ordered}, .out = {.labels = order}},
               p_[selection_].shape)
               .value;
    value& s = p_[made];
    s.selection = true;
    s.keep = p_[selection_].keep;
    s.expected = p_[selection_].expected;
    return made;
  }
  // The use of a value as a selection. If the value lacks the axis of heads, the use has it under
  // this letter.
  use weighed(const use& u, char head) {
    if (p_[u.value].selection) return u;
    axis_labels labels(1, axes_.label_of(u));
    if (axes_.has_heads()) labels.insert(0, axes_.head_axis(u.value) ? axes_.head_of(u) : head);
    return {weighed(u.value), labels};
  }
  // The dense form of a value.
  use dense(const use& u, char head) {
    if (!search_.is_scalar(u.value)) {
      const use chosen{selection_, axis_labels(1, axes_.label_of(u))};
      return add(
          {.what = take_op{true}, .in = {chosen, compact(u, head)}, .out = {.labels = u.labels}},
          p_[u.value].shape);
    }
    const use sparse = weighed(u, head);
    const bool is_same = sparse.labels.size() == u.labels.size();
    if (is_same && sparse.labels == u.labels) return sparse;
    return add({.what = reduce_op{}, .in = {sparse}, .out = {.labels = u.labels}},
               p_[u.value].shape);
  }

  void rewrite(const operation& o) {
    if (search_.is_compact(o.out.value)) return make_compact(o);
    bool reads = false;
    each_read(o, [&](value_id v) { reads = reads || (search_.is_compact(v) && !p_[v].selection); });
    if (!reads) p_.operations.push_back(o);
    else if (is<token_sum_op>(o)) sum_tokens(o);
    else if (is<product_op, reduce_op>(o)) sum_experts(o);
    else read_dense(o);
  }

  void make_compact(const operation& o) {
    const char head = head_letter(o);
    const axis_labels labels = labels_of(o.out, head);
    value_id& made = made_[o.out.value];
    switch (search_.form_of(o)) {
      case form::none:
      case form::kept: p_.operations.push_back(o); return;
      case form::pointwise: {
        operation again = o;
        again.in[0] = compact(o.in[0], head);
        again.out.labels = again.in[0].labels;
        for (pass& q : again.passes)
          if (q.other != value_id::none && axes_.expert_axis(q.other)) q.other = compact(q.other);
        made = add(std::move(again), shape_of(o.out.value)).value;
        return;
      }
      case form::relabelled: {
        operation again = o;
        for (use& u : again.in) u = compact(u, head);
        again.out.labels = labels;
        made = add(std::move(again), shape_of(o.out.value)).value;
        return;
      }
      case form::sample: made = sampled(o, labels); return;
      case form::expert_product:
        made =
            multiplied(o.in[0], o.in[1], o.out.labels, shape_of(o.out.value), axes_.label_of(o.out))
                .value;
        return;
    }
  }

  // The products of a row with the selected rows of a table.
  value_id sampled(const operation& o, const axis_labels& labels) {
    use selected = axes_.selection_for(o);
    if (axes_.has_heads() && !axes_.head_axis(o.out.value))
      selected.labels[0] = labels[*axes_.expert_axis(o.out.value)];
    const use &x = o.in[0], &table = o.in[1];
    const axis_labels order =
        labels_where(selected.labels, [&](char c) { return has(table.labels, c); }) + x.labels;
    const use rows = in_order(p_, table, order, p_.operations);
    sample_op plain;
    plain.weighs = false;
    const use numbers =
        add({.what = plain, .in = {selected, x, rows}, .out = {.labels = selected.labels}},
            p_[selection_].shape);
    value& s = p_[numbers.value];
    s.selection = true;
    s.keep = p_[selection_].keep;
    s.expected = p_[selection_].expected;
    const use kept =
        add({.what = kept_op{}, .in = {numbers}, .out = {.labels = selected.labels}}, places());
    return in_order(p_, kept, labels, p_.operations).value;
  }
  vector<extent> places() const {
    vector<extent> shape = p_[selection_].shape;
    shape.back() = p_[selection_].keep;
    return shape;
  }

  // A group that multiplies rows with the weight of each expert that selected them; the results
  // have a place for each kept entry, under the letter of the experts.
  use multiplied(const use& x, const use& weight, const axis_labels& wanted, vector<extent> shape,
                 char expert) {
    const value s = p_[selection_];  // a copy, as values are added below
    const group_id id = p_.groups.add({selection_, s.shape.back(), s.keep, s.expected});
    const bool has_places = axes_.expert_axis(x.value).has_value();
    const axis_labels own = labels_where(x.labels, [&](char c) { return c != expert; });
    vector<extent> picked_shape;
    for (const char c : own) picked_shape.push_back(p_.extent_of(x, c));
    const use from = has_places ? use{compact(x.value), x.labels} : x;
    pick_op pick;
    pick.by_place = has_places;
    const use rows = add({.what = pick,
                          .in = {from},
                          .out = {.labels = own},
                          .group = id,
                          .expert = has_places ? expert : char{0}},
                         std::move(picked_shape));
    const axis_labels made = labels_where(own, [&](char c) { return has(wanted, c); }) +
                             labels_where(weight.labels, [&](char c) {
                               return has(wanted, c) && c != expert && !has(own, c);
                             });
    vector<extent> made_shape;
    for (const char c : made) made_shape.push_back(shape[wanted.find(c)]);
    const use product = add({.what = product_op{},
                             .in = {rows, weight},
                             .out = {.labels = made},
                             .group = id,
                             .expert = expert},
                            made_shape);
    made_shape.insert(made_shape.begin(), s.keep);
    operation keep{.what = keep_op{},
                   .in = {product, {selection_, axis_labels(1, expert)}},
                   .out = {.labels = expert + made},
                   .group = id};
    const use kept = add(std::move(keep), std::move(made_shape));
    p_[kept.value].group = group_id::none;
    return in_order(p_, kept, wanted, p_.operations);
  }

  // Sums over experts.
  void sum_experts(const operation& o) {
    const char head = head_letter(o);
    if (!search_.has_weights(o)) {
      if (axes_.has_experts(o.out.value) || search_.mixes_heads(o)) return read_dense(o);
      operation again = o;
      for (use& u : again.in) u = compact(u, head);
      p_.operations.push_back(std::move(again));
      return;
    }
    const use &x = o.in[0], &weight = o.in[1];
    const bool is_summed = !axes_.has_experts(o.out.value);
    if (search_.is_scalar(x.value) && search_.is_compact(x.value)) {
      operation again = o;
      again.in[0] = is_summed ? weighed(x, head) : dense(x, head);
      p_.operations.push_back(std::move(again));
      return;
    }
    put(o, x, weight);
  }

  // For each token the sum of the products of its experts. Weights of the rows count at the end, as
  // those of the forward pass do.
  void put(const operation& o, const use& x, const use& weight) {
    const char expert = axes_.label_of(x);
    const auto maker = axes_.index().producer(x.value);
    const auto weighted = maker ? search_.as_weighted(before_.operations[*maker]) : std::nullopt;
    use rows = x;
    const bool is_weighted = weighted && p_[weighted->weights.value].per_token() &&
                             axes_.expert_axis(weighted->weights.value) &&
                             axes_.expert_axis(weighted->rows.value);
    if (is_weighted) {
      const axis_labels& product = before_.operations[*maker].out.labels;
      rows = {weighted->rows.value, {}};
      for (const char c : weighted->rows.labels) rows.labels += x.labels[product.find(c)];
    }
    vector<extent> shape{p_[selection_].keep};
    for (const char c : o.out.labels) shape.push_back(p_.extent_of(o.out, c));
    const use made = multiplied(rows, weight, expert + o.out.labels, std::move(shape), expert);
    if (is_weighted)
      p_.operations.push_back(
          {.what = product_op{},
           .in = {{compact(weighted->weights.value), axis_labels(1, expert)}, made},
           .out = o.out});
    else p_.operations.push_back({.what = reduce_op{}, .in = {made}, .out = o.out});
  }

  void sum_tokens(const operation& o) {
    const char head = head_letter(o);
    extent with_experts = 0;
    bool is_row = false;
    for (const use& u : o.in) {
      with_experts += axes_.expert_axis(u.value).has_value();
      is_row |= axes_.expert_axis(u.value).has_value() && search_.is_scalar(u.value);
    }
    operation again = o;
    if (search_.mixes_heads(o)) {
      read_dense(o);
    } else if (!axes_.has_experts(o.out.value)) {
      for (use& u : again.in) u = compact(u, head);
      p_.operations.push_back(std::move(again));
    } else if (with_experts == 1 && is_row) {
      for (use& u : again.in)
        if (axes_.expert_axis(u.value)) u = weighed(u, head);
      p_.operations.push_back(std::move(again));
    } else {
      const char expert = again.out.labels[*axes_.expert_axis(o.out.value)];
      for (use& u : again.in) {
        u = compact(u, head);
        if (!has(u.labels, expert)) continue;
        const axis_labels others = labels_where(u.labels, [&](char l) { return l != expert; });
        u = in_order(p_, u, expert + others, p_.operations);
      }
      again.what = expert_sum_op{};
      again.in.insert(again.in.begin(), use{selection_, axis_labels(1, expert)});
      p_.operations.push_back(std::move(again));
    }
  }

  // Any other operation reads all numbers.
  void read_dense(operation o) {
    const char head = head_letter(o);
    const auto reads = [&](value_id v) {
      return v != value_id::none && search_.is_compact(v) && !p_[v].selection;
    };
    for (use& u : o.in)
      if (reads(u.value)) u = is<unpair_op>(o) ? weighed(u, head) : dense(u, head);
    for (pass& q : o.passes)
      if (reads(q.other))
        q.other = dense({q.other, axis_labels("ABCDEFGH").substr(0, p_[q.other].shape.size())}, 'Z')
                      .value;
    p_.operations.push_back(std::move(o));
  }

  const compact_search search_;
  const compact_axes& axes_;
  const program& before_;
  value_id selection_;
  program& p_;
  list_by<value_id, value_id> made_, weighed_;
};

inline void compact(program& p, const machine& m) {
  if (std::ranges::none_of(p.operations, is<token_sum_op>)) return;  // no backward pass
  vector<value_id> selections;
  for (const operation& o : p.operations)
    if (is<select_op>(o) && p[o.out.value].selection) selections.push_back(o.out.value);
  for (const value_id selection : selections) {
    const auto makes_it = [&](const operation& o) { return o.out.value == selection; };
    const auto at = std::ranges::find_if(p.operations, makes_it);
    if (at == p.operations.end()) continue;
    program before = p;
    weightings(p, static_cast<extent>(at - p.operations.begin())).keep_zeros_in(before);
    compaction(p, before, selection, m);
  }
}

}  // namespace fmoe::planner

// SPDX-License-Identifier: MIT
// A placed graph becomes the plan of one rank.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/distributed/stage_levels.hpp>
#include <fmoe/distributed/stage_plan.hpp>

namespace fmoe::detail {

inline void give_size(const placement_problem& p, const axis_cut& cut, stage_exchange& e) {
  const merge_size size(p, e.id, static_cast<double>(cut.ranks), e.first);
  e.merged_bytes = size.bytes;
  e.merged_calls = size.calls;
}

// It goes from the last exchanges back to the first graph, since a graph has the results that later
// steps read.
class stage_planner {
 public:
  stage_planner(const placement_problem& p, const placement& where, const axis_cut& cut,
                const std::vector<cut_parameter>& parameters, extent tokens, bool lists_entries)
      : p_(p),
        where_(where),
        cut_(cut),
        parameters_(parameters),
        tokens_(tokens),
        lists_entries_(lists_entries),
        levels_(p, where) {}

  stage_plan take() {
    int last = levels_.last();
    for (extent k = 0; k < p_.roots.size(); ++k) {
      const ir::node_id r = p_.roots[k];
      if (p_.ends[k] == spread::tokens) {
        plan_.results.push_back(need({r, spread::tokens}));
        last = std::max(last, levels_.there(r, spread::tokens));
        continue;
      }
      plan_.sums.emplace_back();  // a constant is the gradient of what no token reads
      for (extent i = 0; i < parts_of(p_.ends[k]) && !p_.is_constant(r); ++i)
        plan_.sums.back().push_back(need({r, p_.ends[k], i}));
    }
    for (int l = last; l >= 0; --l) {
      add_exchanges(l);
      add_graph(l, token_set::routed);
      add_graph(l, token_set::own);
      take_rows(l);
      add_graph(l, token_set::every);
    }
    for (const ir::node_id id : p_.nodes.ids()) {
      const auto* leaf = get_if<ir::leaf_node>(&p_.nodes[id].op);
      if (leaf == nullptr || leaf->argument < 0) continue;
      const auto number = static_cast<extent>(leaf->argument);
      plan_.inputs.resize(std::max(plan_.inputs.size(), number + 1));
      plan_.inputs[number] = need({id, spread::tokens});
    }
    std::ranges::reverse(plan_.steps);
    return std::move(plan_);
  }

 private:
  using what = array_key::what;

  const making& how(ir::node_id id) const { return where_.how[id]; }
  ir::node_id operand_of(ir::node_id id) const { return ir::operands(p_.nodes[id])[0]; }
  // The array of this key, which a step before those that are there makes.
  array_id need(const array_key& key) {
    if (const auto at = known_.find(key); at != known_.end()) return at->second;
    const bool is_of_operand = key.entries == what::scores || key.entries == what::bounds;
    const ir::node_id shape = is_of_operand ? operand_of(key.id) : key.id;
    stage_array a{key, row_of(shape), p_.is_sum(key.id) ? token_set::none : tokens_of(key.how)};
    if (is_cut(key.how)) a.row[label_in_row(shape)] = cut_.count(cut_.own(key.part));
    if (key.entries > what::scores) a.row.back() = kept_of(key);
    if (key.entries == what::lists) a.row.insert(a.row.end() - 1, 2);
    if (key.entries == what::bounds) a.row.pop_back();
    const array_id made = plan_.arrays.add(std::move(a));
    known_.emplace(key, made);
    return made;
  }
  // The shape of a value without its tokens, which come first in an array, and there the place of
  // the label.
  std::vector<extent> row_of(ir::node_id id) const {
    const auto shape = p_.nodes.shape(id);
    std::vector<extent> row(shape.begin(), shape.end());
    if (const auto& token = p_.axes[id].token)
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(*token));
    return row;
  }
  extent label_in_row(ir::node_id id) const {
    const node_axes& axes = p_.axes[id];
    return *axes.label - (axes.token && *axes.label > *axes.token ? 1 : 0);
  }
  // The entries that a selection keeps of a part.
  extent kept_of(const array_key& key) const {
    return std::min(get<ir::select_node>(p_.nodes[key.id].op).rule.keep,
                    cut_.count(cut_.own(key.part)));
  }
  // True if an exchange brings the entries of a selection, and they are few: a graph takes them as
  // lists.
  bool comes_in_lists(ir::node_id id, spread s) const {
    const auto* select = get_if<ir::select_node>(&p_.nodes[id].op);
    if (!lists_entries_ || select == nullptr || !is_cut(s)) return false;
    const selection_rule& rule = select->rule;
    const bool is_counted = rule.what == selection_rule::kind::top_k ||
                            rule.what == selection_rule::kind::product_top_k,
               is_sent = how(id).out == spread::tokens &&
                         travel_of(p_, id, spread::tokens, s) == travel::entries,
               is_merged = how(id).merges && s == how(id).out;
    constexpr extent most_places = extent{1} << 24;  // that a float tells apart
    const extent columns = cut_.length / cut_.parts;
    return is_counted && (is_sent || is_merged) && p_.axes[id].token == extent{0} &&
           p_.axes[id].label == p_.nodes.rank(id) - 1 && columns < most_places &&
           rule.keep < columns / 2;
  }
  extent parts_of(spread s) const { return is_cut(s) || is_partial(s) ? cut_.parts_a_rank() : 1; }

  // Exchanges whose results the steps behind level l read. The one that says which tokens travel is
  // the first of them.
  void add_exchanges(int l) {
    for (const ir::node_id id : p_.nodes.ids()) {
      if (how(id).merges && levels_.made(id) == l + 1) add_merge(id);
      const std::set<spread>& used = levels_.used(id);
      for (auto s = used.rbegin(); s != used.rend(); ++s) {  // whole rows are first
        const bool routes = p_.is_router(id) && is_routed(*s);
        if (!routes && levels_.is_exchanged(id, *s) && levels_.exchanged(id, *s) == l)
          add_exchange(id, *s);
      }
    }
    if (p_.router && levels_.made(p_.router->id) == l)
      add_exchange(p_.router->id, spread::routed_label);
  }
  stage_exchange exchange_of(ir::node_id id, spread to) const {
    // Rows that every rank has anyway are not sent again.
    const bool is_whole = to == spread::routed && levels_.used(id).contains(spread::whole);
    const spread from = is_whole ? spread::whole : how(id).out;
    const moved_value moved = move_of(p_, id, from, to);
    stage_exchange e{.id = id,
                     .from_how = from,
                     .to_how = to,
                     .merges = false,
                     .from = {},
                     .to = {},
                     .by = moved.by,
                     .load = moved.load};
    if (const auto* s = get_if<ir::select_node>(&p_.nodes[id].op)) e.rule = s->rule;
    const auto row = row_of(id);
    e.numbers = element_count(row);
    if (p_.axes[id].label) {
      e.outer = element_count(std::span(row).first(label_in_row(id)));
      e.inner = element_count(std::span(row).subspan(label_in_row(id) + 1));
    }
    return e;
  }
  void add_exchange(ir::node_id id, spread to) {
    stage_exchange e = exchange_of(id, to);
    for (extent i = 0; i < parts_of(e.from_how); ++i) e.from.push_back(need({id, e.from_how, i}));
    add_results(e);
    e.is_sum = p_.is_sum(id);
    if (e.is_sum) e.from_how = moved_sum(e.from_how, to, 0).from;
    plan_.steps.push_back(std::move(e));
  }
  // What later steps read: rows, lists of entries, or both.
  void add_results(stage_exchange& e) {
    const bool has_lists = known_.contains({e.id, e.to_how, 0, what::lists}),
               has_rows = !has_lists || known_.contains({e.id, e.to_how, 0});
    for (extent i = 0; i < parts_of(e.to_how); ++i) {
      if (has_rows) e.to.push_back(need({e.id, e.to_how, i}));
      if (has_lists) e.lists.push_back(need({e.id, e.to_how, i, what::lists}));
    }
  }
  void add_merge(ir::node_id id) {
    stage_exchange e = exchange_of(id, how(id).out);
    e.merges = true;
    e.first = e.rule.keep;
    give_size(p_, cut_, e);
    if (!holds_alternative<ir::select_node>(p_.nodes[id].op))
      return add_row_merge(id, std::move(e));
    for (extent i = 0; i < cut_.parts_a_rank(); ++i) {
      if (has_scores(e.rule, cut_.count(cut_.own(i)))) {
        e.from.push_back(need({id, spread::label, i, what::scores}));
      } else {
        e.from.push_back(need({id, spread::label, i, what::kept_values}));
        e.from.push_back(need({id, spread::label, i, what::kept_indices}));
      }
    }
    add_results(e);
    plan_.steps.push_back(std::move(e));
  }
  void add_row_merge(ir::node_id id, stage_exchange e) {
    if (const auto* r = get_if<ir::row_function_node>(&p_.nodes[id].op)) {
      e.function = r->fn;
      e.parameter = r->parameter;
    } else {
      e.norm = get<ir::row_norm_node>(p_.nodes[id].op).which;
    }
    const ir::node_id arg = operand_of(id);
    const auto row = row_of(arg);
    e.outer = element_count(std::span(row).first(label_in_row(arg)));
    for (extent i = 0; i < cut_.parts_a_rank(); ++i)
      e.from.push_back(need({id, spread::label, i, what::scores}));
    if (const auto operands = ir::operands(p_.nodes[id]); operands.size() > 1) {
      const bool is_constant = p_.is_constant(operands[1]);
      e.bounds = is_constant ? e.outer : element_count(row_of(operands[1]));
      e.from.push_back(is_constant ? need({id, spread::label, 0, what::bounds})
                                   : need({operands[1], spread::whole}));
    }
    for (extent i = 0; i < parts_of(e.to_how); ++i) e.to.push_back(need({id, e.to_how, i}));
    plan_.steps.push_back(std::move(e));
  }
  // The rows of this rank's tokens of values that are whole.
  void take_rows(int l) {
    for (const ir::node_id id : p_.nodes.ids()) {
      const bool is_taken = !p_.is_constant(id) && levels_.made(id) == l &&
                            how(id).out == spread::whole && known_.contains({id, spread::tokens});
      if (!is_taken) continue;
      stage_exchange e = exchange_of(id, spread::tokens);
      e.from.push_back(need({id, spread::whole}));
      e.to.push_back(need({id, spread::tokens}));
      plan_.steps.push_back(std::move(e));
    }
  }

  // True if the graph at hand makes this array.
  bool is_made_here(const array_key& k) const {
    if (k.entries == what::lists) return false;
    if (k.entries != what::value)
      return rows_ == token_set::every && levels_.there(operand_of(k.id), spread::label) == at_;
    return is_computed_here(k.id, k.how);
  }
  bool is_computed_here(ir::node_id id, spread s) const {
    return !p_.is_argument(id) && !how(id).merges && s == how(id).out && levels_.made(id) == at_ &&
           rows_ == tokens_of(s);
  }

  // The graph of all that level l makes for these tokens.
  void add_graph(int l, token_set rows) {
    at_ = l;
    rows_ = rows;
    stage_graph g{{}, {}, {}, {}, rows};
    graph_ = &g;
    made_.clear();
    std::vector<array_key> keys;
    for (const auto& [key, id] : known_)
      if (is_made_here(key)) keys.push_back(key);
    for (const array_key& key : keys) {
      g.results.push_back(known_.at(key));
      g.roots.push_back(root(key));
    }
    graph_ = nullptr;
    if (keys.empty()) return;
    join_tokens(g);
    plan_.steps.push_back(std::move(g));
  }
  // The rows of all arguments are the same tokens, whether or not they meet.
  static void join_tokens(stage_graph& g) {
    std::vector<ir::node_id> inputs;
    for (const ir::node_id id : g.nodes.ids()) {
      const auto* l = get_if<ir::leaf_node>(&g.nodes[id].op);
      if (l != nullptr && l->argument >= 0) inputs.push_back(id);
    }
    for (extent i = 1; i < inputs.size(); ++i) {
      const std::string left = std::string("abcdefgh").substr(1, g.nodes.rank(inputs[0]) - 1),
                        right = std::string("ijklmnop").substr(1, g.nodes.rank(inputs[i]) - 1);
      g.nodes.einsum("t" + left + ",t" + right + "->t", {inputs[0], inputs[i]});
    }
  }

  ir::node_id root(const array_key& key) {
    if (key.entries != what::value) {
      const ir::node_id arg = operand_of(key.id), scores = fetch(arg, spread::label, key.part);
      if (key.entries == what::scores) return with_tokens_first(arg, scores);
      if (key.entries == what::bounds) return bounds(key.id, scores);
      selection_rule rule = get<ir::select_node>(p_.nodes[key.id].op).rule;
      rule.keep = kept_of(key);
      rule.weights = weighting::score;
      const ir::node_id chosen = graph_->nodes.select(rule, scores);
      return graph_->nodes.kept(
          key.entries == what::kept_values ? kept_part::value : kept_part::index, chosen);
    }
    return with_tokens_first(key.id, build(key.id, key.how, key.part));
  }

  // A constant bound of rows, for each of them: times a 1 that stands behind the row.
  ir::node_id bounds(ir::node_id id, ir::node_id scores) {
    const ir::node_id bound = ir::operands(p_.nodes[id])[1];
    const extent last = graph_->nodes.rank(scores) - 1, n = graph_->nodes.shape(scores)[last];
    const ir::node_id ones =
        graph_->nodes.slice(graph_->nodes.make(ir::append_node{scores}), last, n, 1);
    const std::string rows = std::string("abcdefgh").substr(0, last);
    std::string in_array = rows;
    const extent token = *p_.axes[id].token;
    in_array.erase(token, 1).insert(0, 1, rows[token]);
    return graph_->nodes.einsum(
        rows + "z," + rows.substr(last - p_.nodes.rank(bound)) + "->" + in_array,
        {ones, fetch(bound, spread::whole, 0)});
  }

  // Brings a value into the order of an array, and back.
  ir::node_id with_tokens_first(ir::node_id id, ir::node_id made) {
    return reordered(id, made, true);
  }
  ir::node_id reordered(ir::node_id id, ir::node_id made, bool to_array) {
    const extent token = p_.axes[id].token.value_or(0);
    if (token == 0) return made;
    const std::string labels = std::string("abcdefgh").substr(0, p_.nodes.rank(id));
    std::string in_array = labels;
    in_array.erase(token, 1).insert(0, 1, labels[token]);
    return graph_->nodes.einsum(to_array ? labels + "->" + in_array : in_array + "->" + labels,
                                {made});
  }

  // The value for a reader in the graph at hand.
  ir::node_id fetch(ir::node_id id, spread s, extent part) {
    if (s == spread::label && how(id).out == spread::whole) return sliced(id, part);
    // A graph takes rows alone as arguments: a sum over tokens is made again.
    if (p_.is_constant(id) || p_.is_sum(id) || is_computed_here(id, s)) return build(id, s, part);
    const bool in_lists = comes_in_lists(id, s);
    const array_key key{id, s, is_by_part(s) ? part : 0, in_lists ? what::lists : what::value};
    if (const auto at = made_.find(key); at != made_.end()) return at->second;
    const array_id from = need(key);
    std::vector<extent> shape = plan_.arrays[from].row;
    shape.insert(shape.begin(), rows_ == token_set::own ? tokens_ : tokens_ * cut_.ranks);
    ir::node_id made = graph_->nodes.leaf({nullptr, dtype::float32, std::move(shape), false,
                                           static_cast<int>(graph_->arguments.size())});
    graph_->arguments.push_back(from);
    made = in_lists ? selection_of(made, key) : as_selection(id, reordered(id, made, false));
    made_.emplace(key, made);
    return made;
  }
  ir::node_id selection_of(ir::node_id lists, const array_key& key) {
    return graph_->nodes.select({.what = selection_rule::kind::entries,
                                 .keep = kept_of(key),
                                 .each = cut_.count(cut_.own(key.part))},
                                lists);
  }
  ir::node_id sliced(ir::node_id id, extent part) {
    const extent own = cut_.own(part);
    return as_selection(id, graph_->nodes.slice(fetch(id, spread::whole, 0), *p_.axes[id].label,
                                                cut_.begin(own), cut_.count(own)));
  }
  // What a selection has kept is still only that where its readers take it from memory. Where
  // nothing is below 0, the greatest entries are those.
  ir::node_id as_selection(ir::node_id id, ir::node_id numbers) {
    const auto* s = get_if<ir::select_node>(&p_.nodes[id].op);
    if (s == nullptr) return numbers;
    selection_rule rule{selection_rule::kind::nonzero};
    const bool counts = s->rule.what == selection_rule::kind::top_k &&
                        s->rule.keep < graph_->nodes.shape(numbers).back();
    if (counts && is_never_negative(*s)) rule = {selection_rule::kind::top_k, s->rule.keep};
    return graph_->nodes.select(rule, numbers);
  }
  bool is_never_negative(const ir::select_node& s) const {
    if (s.rule.weights != weighting::score && s.rule.weights != weighting::normalized) return true;
    const auto* m = get_if<ir::map_node>(&p_.nodes[s.arg].op);
    return m != nullptr && m->f.own == nullptr && m->f.fn == pointwise::relu;
  }

  ir::node_id build(ir::node_id id, spread s, extent part) {
    const array_key key{id, s, is_by_part(s) ? part : 0};
    if (const auto at = made_.find(key); at != made_.end()) return at->second;
    std::vector<ir::node_id> in;
    const auto operands = ir::operands(p_.nodes[id]);
    for (extent k = 0; k < operands.size(); ++k)
      in.push_back(fetch(operands[k], how(id).in[k], part));
    const ir::node_id made = copy(p_.nodes[id], in, part);
    made_.emplace(key, made);
    return made;
  }

  ir::node_id copy(ir::node n, std::span<const ir::node_id> in, extent part) {
    if (const auto* l = get_if<ir::leaf_node>(&n.op)) return own_part(*l, part);
    if (auto* e = get_if<ir::einsum_node>(&n.op))
      e->unmasked.reset();  // the planner makes it again
    return graph_->nodes.again(std::move(n), in);
  }
  ir::node_id own_part(const ir::leaf_node& l, extent part) {
    for (const cut_parameter& c : parameters_) {
      if (l.data == nullptr || !l.data->same_elements(*c.whole.elements)) continue;
      ir::leaf_node own = l;
      own.data = c.own[part].elements;
      own.axis = c.own[part].axis;
      own.shape[*axis_of_label(l.shape, c)] = cut_.count(cut_.own(part));
      return graph_->nodes.leaf(std::move(own));
    }
    return graph_->nodes.leaf(l);
  }

  const placement_problem& p_;
  const placement& where_;
  const axis_cut& cut_;
  const std::vector<cut_parameter>& parameters_;
  extent tokens_;  // of a rank
  bool lists_entries_;
  stage_levels levels_;
  std::map<array_key, array_id> known_;
  stage_plan plan_;

  // The graph at hand.
  int at_ = 0;
  token_set rows_ = token_set::every;
  stage_graph* graph_ = nullptr;
  std::map<array_key, ir::node_id> made_;
};

}  // namespace fmoe::detail

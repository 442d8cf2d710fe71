// SPDX-License-Identifier: MIT
// Random expressions over ranks, against the oracle: rows of tokens become arguments, and one axis
// of the parameters is cut.
#pragma once

#include <fmoe/distributed.hpp>
#include <fmoe/planner/tokens.hpp>

#include <cstdlib>
#include <map>
#include <random>

#include "random_oracle.hpp"
#include "rank_checks.hpp"

namespace fmoe::test {

// A random expression whose leaves of tokens are arguments, and what one of its labels is cut of.
class random_shard {
 public:
  // Nothing is cut if the expression has no tokens, or no parameter with a long axis.
  explicit random_shard(unsigned seed)
      : seed_(seed),
        expression_(seed),
        bits_(seed),
        nodes_(expression_.g.without_nodes()) {
    const ir::graph& g = expression_.g;
    const auto axes = planner::token_search(g, expression_.root(), false).axes();
    if (!axes || !(*axes)[expression_.root()]) return;
    std::vector<std::pair<ir::node_id, extent>> choices;
    for (const ir::node_id id : g.ids()) {
      ir::node n = g[id];
      auto* const l = get_if<ir::leaf_node>(&n.op);
      if (l != nullptr && (*axes)[id]) {
        inputs_.push_back(*l);
        n.op = ir::leaf_node{nullptr, dtype::float32, l->shape, false,
                             static_cast<int>(inputs_.size()) - 1};
        tokens_ = l->shape[0];
      } else if (l != nullptr && l->parameter) {
        for (extent k = 0; k < l->shape.size(); ++k)
          if (l->shape[k] >= least_length) choices.emplace_back(id, k);
      }
      nodes_.append(std::move(n));
    }
    if (inputs_.empty() || choices.empty()) return;
    std::vector<std::pair<ir::node_id, extent>> of_rows;  // along rows of a function or selection
    for (const auto& choice : choices)
      if (is_row(g, g[choice.first].axes[choice.second])) of_rows.push_back(choice);
    if (!of_rows.empty()) choices = of_rows;
    const auto [leaf, axis] = choices[bits_() % choices.size()];
    label_ = g[leaf].axes[axis];
    length_ = g.extent_of(*label_);
    expected_ = result_of(expression_, seed);
  }

  bool is_cut() const { return label_.has_value(); }
  extent length() const { return length_; }
  std::string text() const {
    return "FMOE_SEED=" + std::to_string(seed_) + "  " + expression_.text() + "; cut: axis " +
           std::to_string(static_cast<int>(*label_));
  }
  extent parts(extent ranks) const { return ranks * (1 + seed_ % 2); }

  // All parameters that have the label are cut, each along one of its axes.
  stage_plan plan(const axis_cut& cut, extent tokens, extent element_bytes) const {
    std::vector<cut_parameter> parameters;
    for (const ir::node_id id : nodes_.ids()) {
      const auto* l = get_if<ir::leaf_node>(&nodes_[id].op);
      if (l == nullptr || !l->parameter) continue;
      for (extent k = 0; k < l->shape.size(); ++k) {
        if (!nodes_.same(nodes_[id].axes[k], *label_)) continue;
        cut_parameter p{{l->type, {l->shape.begin(), l->shape.end()}, l->data}, k, 1, {}};
        for (extent i = 0; i < cut.parts_a_rank(); ++i)
          p.own.push_back(part_of(p.whole, k, cut.begin(cut.own(i)), cut.count(cut.own(i))));
        parameters.push_back(std::move(p));
        break;
      }
    }
    return plan_of(nodes_, expression_.root(), {spread::tokens}, cut, parameters, tokens,
                   element_bytes, costs());
  }

  // Each rank has its share of the tokens; its rows of the result must be the oracle's.
  template <class T>
  void check(communicator& ranks) const {
    const axis_cut cut{'x', length_, parts(ranks.size()), ranks.size(), ranks.rank()};
    const extent most = divide_up(tokens_, ranks.size()),
                 first = begin_of_part(tokens_, ranks.size(), ranks.rank()),
                 own = begin_of_part(tokens_, ranks.size(), ranks.rank() + 1) - first;
    stage_runner<T> runner(ranks, cut, plan(cut, most, sizeof(T)), most, "a random expression");
    runner.template prepare<cpu::native>({.threads = 1});
    std::vector<std::vector<T>> rows;
    std::vector<array_view> views;
    for (extent i = 0; i < inputs_.size(); ++i) {
      std::vector<T> numbers(element_count(inputs_[i].shape));
      copy_numbers(inputs_[i].numbers(), numbers.data());
      const extent width = tokens_ == 0 ? 0 : numbers.size() / tokens_;
      const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(first * width);
      rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(own * width));
      auto shape = inputs_[i].shape;
      shape[0] = own;
      views.push_back(view_at<all>(rows.back().data(), shape));
    }
    std::vector<extent> shape = runner.output_shape();
    shape.insert(shape.begin(), own);
    const extent width = element_count(runner.output_shape());
    std::vector<T> y(own * width);
    const std::size_t before = ranks.calls();
    runner.run(views, view_at<all>(y.data(), shape));
    require(ranks.calls() - before == runner.cost().calls, "the calls of " + runner.explain());
    random_result mine{{}, expected_.scale};
    const auto begin = expected_.values.begin() + static_cast<std::ptrdiff_t>(first * width);
    mine.values.assign(begin, begin + static_cast<std::ptrdiff_t>(own * width));
    const double tolerance = expression_.exact() ? 0 : sizeof(T) == 4 ? 2e-5 : 1e-13;
    require(error(y, mine) <= tolerance, text() + '\n' + runner.explain());
  }

 private:
  static constexpr extent least_length = 14;  // two parts on each of 7 ranks

  static bool is_row(const ir::graph& g, ir::axis_id axis) {
    for (const ir::node_id id : g.ids()) {
      const auto& op = g[id].op;
      const bool has_rows = holds_alternative<ir::select_node>(op) ||
                            holds_alternative<ir::row_function_node>(op) ||
                            holds_alternative<ir::row_norm_node>(op);
      if (has_rows && g.same(g[ir::operands(g[id])[0]].axes.back(), axis)) return true;
    }
    return false;
  }

  // Machines of many kinds, so that values come to lie in every way.
  network_costs costs() const {
    switch (seed_ % 5) {
      case 0: return {};
      case 1: return {1e12, 1e15, 0, 512};  // only arithmetic counts
      case 2: return {1e15, 1e9, 0, 512};   // only bytes count
      case 3: return {1e8, 1e12, 1e-6, 512};
      default: return {1e10, 1e9, 1e-6, 512};
    }
  }

  unsigned seed_;
  random_expression expression_;
  std::mt19937 bits_;
  ir::graph nodes_;
  std::vector<ir::leaf_node> inputs_;
  extent tokens_ = 0, length_ = 0;
  std::optional<ir::axis_id> label_;
  random_result expected_;
};

// What was cut, and why the rest was not.
struct shard_census {
  extent cut = 0;
  std::map<std::string, extent> refused, exchanges;
};

// Expressions with an axis that can be cut, of which the planner refuses less than 20; or as many
// as FMOE_SEEDS says.
inline std::vector<random_shard> random_shards() {
  const char* const asked = std::getenv("FMOE_SEEDS");
  const extent wanted = asked == nullptr ? 220 : static_cast<extent>(std::atoi(asked));
  std::vector<random_shard> found;
  for (unsigned seed = 1; found.size() < wanted; ++seed) {
    random_shard e(seed);
    if (e.is_cut()) found.push_back(std::move(e));
  }
  return found;
}

// Checks those that can be cut over this many ranks.
inline shard_census check_random_shards(communicator& ranks,
                                        const std::vector<random_shard>& expressions) {
  shard_census seen;
  for (const random_shard& e : expressions) {
    const extent parts = e.parts(ranks.size());
    try {
      const axis_cut cut{'x', e.length(), parts, ranks.size(), ranks.rank()};
      for (const auto& step : e.plan(cut, 1, 4).steps)
        if (const auto* x = get_if<stage_exchange>(&step)) ++seen.exchanges[name_of(*x)];
    } catch (const value_error& refusal) {
      ++seen.refused[refusal.what()];
      continue;
    }
    ranks.guarded([&] { ++seen.cut % 3 == 0 ? e.check<double>(ranks) : e.check<float>(ranks); });
  }
  return seen;
}

}  // namespace fmoe::test

// SPDX-License-Identifier: MIT
// The search for where all values of a graph lie: for the cheapest choice for all nodes together,
// of arithmetic, bytes and latency. It is exact for one pass. Graphs of both passes have too many
// choices: of these the cheapest stay open.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/distributed/placement.hpp>

namespace fmoe::detail {

// Where each node is made, and where its operands then lie.
struct placement {
  list_by<ir::node_id, making> how;
  double seconds = 0;  // of a rank, for the tokens that the search counts with
};

// A choice for the nodes so far. The key has a letter for each node that is still to be read: a bit
// for each spread that it has, and above them the one that it is made in.
struct partial_choice {
  std::u16string key;
  double seconds;
  extent before;  // the choice for the nodes before this one, among those of that node
  extent making;
};

// Finds the cheapest placement in which the results lie where they have to, if there is one.
class placement_search {
 public:
  // At most so many choices stay open; `all` makes the search exact.
  explicit placement_search(const placement_problem& p, extent most_open)
      : p_(p),
        most_open_(most_open),
        last_read_(p.nodes.size(), 0) {
    for (const ir::node_id id : p.nodes.ids()) {
      for (const ir::node_id o : ir::operands(p.nodes[id])) last_read_[o] = static_cast<extent>(id);
      ways_.push_back(making_list(p, id).take());
      omitted_.push_back(omitted_by_selection(id));
      move_costs costs;
      for (extent from = 0; from < spreads; ++from)
        for (extent to = 0; to < spreads; ++to)
          costs[from][to] =
              seconds_to_move(p, id, static_cast<spread>(from), static_cast<spread>(to))
                  .value_or(never) +
              (from == to ? 0 : omitted_[id] * p.costs.tokens / p.costs.flops / p.parts);
      moves_.push_back(costs);
    }
    extent k = 0;
    for (const ir::node_id r : p.roots) {
      if (p.is_sum(r)) sum_ends_.emplace_back(r, p.ends[k]);
      else last_read_[r] = p.nodes.size();
      ++k;
    }
  }

  std::optional<placement> find() {
    std::vector<partial_choice> now{{std::u16string(p_.nodes.size(), u'\0'), 0, 0, 0}};
    for (const ir::node_id id : p_.nodes.ids()) {
      now = after(now, id);
      done_.push_back(now);
    }
    extent best = all;
    double least = never;
    for (extent i = 0; i < now.size(); ++i) {
      double total = now[i].seconds;
      for (const ir::node_id r : p_.roots)
        if (!p_.is_sum(r)) total += move(now[i].key, r, spread::tokens);
      if (total >= least) continue;
      best = i;
      least = total;
    }
    if (best == all) return {};
    placement found;
    found.seconds = least;
    found.how.resize(p_.nodes.size());
    for (extent k = p_.nodes.size(); k-- > 0; best = done_[k][best].before)
      found.how[static_cast<ir::node_id>(k)] =
          ways_[static_cast<ir::node_id>(k)][done_[k][best].making];
    return found;
  }

 private:
  // The operations for one token that a selection leaves out where it meets the value, and that are
  // done if the value is made elsewhere than it is read.
  double omitted_by_selection(ir::node_id id) const {
    const auto& sampled = p_.sparse.sampled_by[id];
    const auto& zero = p_.sparse.zero_but_for[id];
    const bool is_selection = holds_alternative<ir::select_node>(p_.nodes[id].op);
    if (is_selection || p_.is_constant(id) || !(sampled || zero)) return 0;
    double flops = 0;
    if (sampled) {
      const routing_load load = load_of(p_.nodes, p_.axes, *sampled);
      flops = flops_a_token(p_, id) * (load.length / std::min(load.length, load.all()) - 1);
    }
    for (const ir::node_id o : ir::operands(p_.nodes[id])) flops += omitted_[o];
    return flops;
  }

  static char16_t bit(spread s) { return static_cast<char16_t>(1 << static_cast<int>(s)); }
  static spread made_in(char16_t c) { return static_cast<spread>(c >> 8); }

  // Returns the seconds in which the node comes to lie so, unless it does already.
  double move(std::u16string& key, ir::node_id id, spread to) const {
    char16_t& c = key[static_cast<extent>(id)];
    const double seconds = seconds_of(id, c, static_cast<extent>(to));
    c = static_cast<char16_t>(c | bit(to));
    return seconds;
  }
  double seconds_of(ir::node_id id, char16_t c, extent to) const {
    if (((c >> to) & 1) != 0) return 0;
    const bool is_whole =
        (c & bit(spread::whole)) != 0 && to == static_cast<extent>(spread::routed);
    return is_whole ? moves_[id][static_cast<extent>(spread::whole)][to]
                    : moves_[id][static_cast<extent>(made_in(c))][to];
  }

  std::vector<partial_choice> after(const std::vector<partial_choice>& before, ir::node_id id) {
    const auto operands = ir::operands(p_.nodes[id]);
    const double work = flops_a_token(p_, id) * p_.costs.tokens / p_.costs.flops;
    std::erase_if(open_, [&](ir::node_id o) { return last_read_[o] <= static_cast<extent>(id); });
    if (last_read_[id] != 0) open_.push_back(id);
    std::vector<partial_choice> made;
    std::map<std::u16string, extent> known;
    for (extent i = 0; i < before.size(); ++i)
      for (extent w = 0; w < ways_[id].size(); ++w) {
        const making& m = ways_[id][w];
        partial_choice c{before[i].key, before[i].seconds + m.share * work, i, w};
        if (m.merges) c.seconds += merge_seconds(id);
        for (const auto& [sum, end] : sum_ends_)
          if (sum == id) c.seconds += seconds_to_end(p_, id, m.out, end).value_or(never);
        for (extent k = 0; k < operands.size(); ++k) c.seconds += move(c.key, operands[k], m.in[k]);
        if (c.seconds == never) continue;
        if (last_read_[id] != 0)
          c.key[static_cast<extent>(id)] =
              static_cast<char16_t>(bit(m.out) | (static_cast<int>(m.out) << 8));
        for (const ir::node_id o : operands)
          if (last_read_[o] == static_cast<extent>(id)) c.key[static_cast<extent>(o)] = u'\0';
        const auto [at, is_new] = known.emplace(c.key, made.size());
        if (is_new) made.push_back(std::move(c));
        else if (c.seconds < made[at->second].seconds) made[at->second] = std::move(c);
      }
    return promising(std::move(made));
  }

  // Leaves out choices that cannot become better than one of the cheapest, however the values are
  // read later.
  std::vector<partial_choice> promising(std::vector<partial_choice> made) const {
    constexpr extent most_compared = 32;
    constexpr double rounding = 1e-12;
    std::ranges::stable_sort(made, {}, &partial_choice::seconds);
    std::vector<partial_choice> kept;
    for (partial_choice& c : made) {
      if (kept.size() == most_open_) break;
      const auto cheapest = std::span(kept).first(std::min(kept.size(), most_compared));
      const bool is_dominated = std::ranges::any_of(cheapest, [&](const partial_choice& k) {
        return has_at_most(c.seconds * (1 + rounding) - k.seconds, k.key, c.key);
      });
      if (!is_dominated) kept.push_back(std::move(c));
    }
    return kept;
  }
  // True if values in `a` cost at most so much more than in `b`, wherever they are needed.
  bool has_at_most(double most, const std::u16string& a, const std::u16string& b) const {
    double seconds = 0;
    for (const ir::node_id id : open_) {
      const char16_t in_a = a[static_cast<extent>(id)], in_b = b[static_cast<extent>(id)];
      for (extent to = 0; in_a != in_b && to < spreads; ++to) {
        const double x = seconds_of(id, in_a, to), y = seconds_of(id, in_b, to);
        if (x > y) seconds += x - y;
        if (seconds > most) return false;
      }
    }
    return true;
  }

  double merge_seconds(ir::node_id id) const {
    const auto* s = get_if<ir::select_node>(&p_.nodes[id].op);
    const extent n = p_.nodes.shape(id).back() / static_cast<extent>(p_.parts),
                 best = s == nullptr ? 0 : first_best(s->rule, n, p_.parts);
    const merge_size size(p_, id, p_.parts, best);
    const double others = (p_.parts - 1) / p_.parts;
    return p_.costs.tokens * size.bytes * others / p_.costs.bytes_per_second +
           size.calls * p_.costs.latency;
  }

  static constexpr extent spreads = static_cast<extent>(spread::routed_partial) + 1;
  static constexpr double never = std::numeric_limits<double>::infinity();
  using move_costs = std::array<std::array<double, spreads>, spreads>;

  const placement_problem& p_;
  extent most_open_;
  list_by<ir::node_id, double> omitted_;
  list_by<ir::node_id, move_costs> moves_;
  list_by<ir::node_id, extent> last_read_;
  std::vector<ir::node_id> open_;                         // made, and still to be read
  std::vector<std::pair<ir::node_id, spread>> sum_ends_;  // of results that are sums over tokens
  list_by<ir::node_id, std::vector<making>> ways_;
  std::vector<std::vector<partial_choice>> done_;
};

}  // namespace fmoe::detail

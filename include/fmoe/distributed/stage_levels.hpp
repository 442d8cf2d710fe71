// SPDX-License-Identifier: MIT
// How many exchanges between ranks come before a value is made.
#pragma once

#include <algorithm>
#include <limits>
#include <set>

#include <fmoe/distributed/placement_search.hpp>

namespace fmoe::detail {

// The levels of a placed graph. A graph of level l reads what l exchanges have brought.
class stage_levels {
 public:
  stage_levels(const placement_problem& p, const placement& where)
      : p_(p),
        where_(where),
        used_(p.nodes.size()),
        level_(p.nodes.size(), 0) {
    for (int pass = 0; pass < 2; ++pass)  // what is routed may stand before the router
      for (const ir::node_id id : p.nodes.ids()) number(id);
    for (extent k = 0; k < p.roots.size(); ++k)
      if (!p.is_constant(p.roots[k])) used_[p.roots[k]].insert(p.ends[k]);
    stand_late();
  }

  // The ways in which readers want a value.
  const std::set<spread>& used(ir::node_id id) const { return used_[id]; }
  // The level that makes a value as the placement says.
  int made(ir::node_id id) const { return level_[id]; }
  int last() const { return *std::ranges::max_element(level_); }

  // True if the value comes to lie so by an exchange.
  bool is_exchanged(ir::node_id id, spread s) const {
    return !p_.is_constant(id) && s != how(id).out &&
           (how(id).out != spread::whole || is_routed(s));
  }
  // The level behind which a value is exchanged. Tokens travel when the router has chosen.
  int exchanged(ir::node_id id, spread s) const {
    return is_routed(s) ? std::max(level_[id], level_[p_.router->id]) : level_[id];
  }
  // The level at which a value that lies so is there.
  int there(ir::node_id id, spread s) const {
    return is_exchanged(id, s) ? exchanged(id, s) + 1 : level_[id];
  }

 private:
  const making& how(ir::node_id id) const { return where_.how[id]; }

  void number(ir::node_id id) {
    const auto operands = ir::operands(p_.nodes[id]);
    for (extent k = 0; k < operands.size(); ++k) {
      used_[operands[k]].insert(how(id).in[k]);
      level_[id] =
          std::max(level_[id], there(operands[k], how(id).in[k]) + (how(id).merges ? 1 : 0));
    }
  }

  // A node stands beside its first reader, so that one graph has what belongs together: the rows of
  // experts and the selection that leaves most of them out.
  void stand_late() {
    constexpr int never = std::numeric_limits<int>::max();  // nothing reads it
    list_by<ir::node_id, int> latest(p_.nodes.size(), never);
    for (const ir::node_id r : p_.roots) latest[r] = level_[r];
    for (extent i = p_.nodes.size(); i-- > 0;) {
      const auto id = static_cast<ir::node_id>(i);
      const auto operands = ir::operands(p_.nodes[id]);
      const bool moves =
          latest[id] != never && !p_.is_argument(id) && !p_.is_constant(id) && !p_.is_router(id);
      if (moves) level_[id] = latest[id];
      for (extent k = 0; k < operands.size(); ++k) {
        const bool waits = is_exchanged(operands[k], how(id).in[k]);
        latest[operands[k]] =
            std::min(latest[operands[k]], level_[id] - (how(id).merges ? 1 : 0) - (waits ? 1 : 0));
      }
    }
  }

  const placement_problem& p_;
  const placement& where_;
  list_by<ir::node_id, std::set<spread>> used_;
  list_by<ir::node_id, int> level_;
};

}  // namespace fmoe::detail

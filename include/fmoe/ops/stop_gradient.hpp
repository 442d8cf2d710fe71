// SPDX-License-Identifier: MIT
// Stop gradient: the operand, which gradients hold constant. A program has no operation for it.
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/ops/ids.hpp>

namespace fmoe::ir {

struct stop_gradient_node {
  node_id arg;
  bool operator==(const stop_gradient_node&) const = default;

  static void each_operand(auto& self, const auto& f) { f(self.arg); }
  const char* name() const { return "stop gradient"; }

  vector<axis_id> axes(auto& graph) const { return graph[arg].axes; }
  auto token_axis(auto& tokens) const { return tokens.at(arg); }

  auto lower(auto& to) const {
    const auto names = to.letters(arg);
    return to.place(to.named(arg, names), names);
  }

  void pull(auto&, node_id, node_id) const {}

  void list_ways(auto& ways) const {
    ways.add_rows(true);
    ways.add_along_label();
  }
};

}  // namespace fmoe::ir

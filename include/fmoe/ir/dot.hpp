// SPDX-License-Identifier: MIT
// Draws the graph of an expression for Graphviz: an ellipse for each leaf, a box for each
// operation, both with the extents of their values.
#pragma once

#include <utility>

#include <fmoe/base/text_stream.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::ir {

// The colours of drawings: weights, inputs of a call, its result, and intermediate values.
inline constexpr const char *weight_colour = "#dce9f7", *input_colour = "#e3f1dc",
                            *result_colour = "#fbe5d0", *made_colour = "#ffffff";

inline std::string dot_head(const std::string& name) {
  return "digraph " + name +
         " {\n  bgcolor=white;\n  node [fontname=\"Helvetica\", fontsize=11, style=filled];\n";
}

class graph_printer {
 public:
  graph_printer(const graph& g, node_id root) : graph_(g), root_(root) {
    for (const node_id id : g.ids()) {
      at_ = id;
      visit([&](const auto& n) { put(n); }, g[at_].op);
    }
  }

  std::string dot() const { return dot_head("expression") + out_.str() + "}\n"; }

 private:
  void put(const leaf_node& n) {
    box("ellipse", n.name(), n.parameter ? weight_colour : input_colour);
  }
  void put(const mask_node& n) { box("ellipse", n.name(), weight_colour); }
  void put(const auto& n) { box("box", n.name(), made_colour); }

  void box(const char* shape, const std::string& what, const char* colour) {
    const auto id = static_cast<extent>(at_);
    out_ << "  n" << id << " [shape=" << shape << ", fillcolor=\""
         << (at_ == root_ ? result_colour : colour) << "\", label=\"" << what << "\\n";
    const char* between = "";
    for (const axis_id a : graph_[at_].axes) {
      out_ << std::exchange(between, " x ");
      if (const extent e = graph_.extent_of(a); e == all) out_ << '?';
      else out_ << e;
    }
    out_ << "\"];\n";
    for (const node_id a : operands(graph_[at_]))
      out_ << "  n" << static_cast<extent>(a) << " -> n" << id << ";\n";
  }

  const graph& graph_;
  node_id root_, at_{};
  detail::text_stream out_;
};

}  // namespace fmoe::ir

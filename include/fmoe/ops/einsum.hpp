// SPDX-License-Identifier: MIT
// Einsum: a sum of products over named axes. Labels of the subscripts that the result does not
// have are summed. A mask among the operands leaves out pairs of the labels that it has.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include <fmoe/base/error.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/mask.hpp>

namespace fmoe::ir {

// An einsum that is put together operand by operand.
class einsum_parts {
 public:
  void add(node_id id, std::string labels) {
    labels_ += labels;
    text_ += (args_.empty() ? "" : ",") + std::move(labels);
    args_.push_back(id);
  }
  bool has_label(char c) const { return has(labels_, c); }
  // Returns a letter that no operand has, and none of `others`.
  char free_letter(const std::string& others) const {
    char c = 'A';
    while (has_label(c) || has(others, c)) ++c;
    return c;
  }
  node_id make(auto& g, const std::string& result) const {
    return g.einsum(text_ + "->" + result, args_);
  }

 private:
  std::string labels_, text_;
  vector<node_id> args_;
};

struct einsum_node {
  vector<node_id> args;
  std::string subscripts;
  std::optional<node_id> unmasked{};  // if an operand is a mask: the sum without it, once expanded
  // The letters of the labels do not matter.
  bool operator==(const einsum_node& o) const {
    return args == o.args && unmasked == o.unmasked && same_but_names(subscripts, o.subscripts);
  }

  static void each_operand(auto& self, const auto& f) {
    for (auto& arg : self.args) f(arg);
    if (self.unmasked) f(*self.unmasked);
  }
  const std::string& name() const { return subscripts; }

  bool has_mask(const auto& graph) const {
    return unmasked || std::ranges::any_of(args, [&](node_id a) { return is_mask(graph, a); });
  }
  static bool is_mask(const auto& graph, node_id id) {
    return holds_alternative<mask_node>(graph[id].op);
  }

  vector<axis_id> axes(auto& graph) const {
    expects<value_error>(args.size() <= graph.most_operands, "[einsum] there are ", args.size(),
                         " operands, above ", graph.most_operands, ": multiply some of them first");
    std::array<std::optional<axis_id>, 128> seen{};  // the axis of each label
    std::array<extent, 128> first{};                 // the first operand with this label
    const auto place = [](char label) { return static_cast<unsigned char>(label); };
    for (extent i = 0; i < args.size(); ++i) {
      const auto labels = operand_labels(subscripts, i);
      for (extent k = 0; k < labels.size(); ++k) {
        auto& known = seen[place(labels[k])];
        const axis_id here = graph[args[i]].axes[k];
        if (!known) {
          known = here;
          first[place(labels[k])] = i;
        }
        const extent other = first[place(labels[k])];
        if (!graph.join(*known, here))
          fail<shape_error>("[einsum] '", labels[k], "' is ", graph.extent_of(*known),
                            " in operand ", other, " and ", graph.extent_of(here), " in operand ",
                            i, " of \"", subscripts, '"',
                            graph.remark(args[other], *known, args[i], here));
      }
    }
    vector<axis_id> axes;
    for (const char c : result_labels(subscripts)) axes.push_back(*seen[place(c)]);
    return axes;
  }

  // One label is that of the tokens, in all operands that have them.
  auto token_axis(auto& tokens) const {
    char token = 0;
    for (extent i = 0; i < args.size(); ++i)
      if (const auto axis = tokens.at(args[i])) {
        const char c = operand_labels(subscripts, i)[*axis];
        if (token != 0 && token != c) return tokens.reject();
        token = c;
      }
    if (token == 0) return tokens.none();
    for (extent i = 0; i < args.size(); ++i) {  // no other axis may be indexed by the token
      const auto labels = operand_labels(subscripts, i);
      for (extent k = 0; k < labels.size(); ++k)
        if ((labels[k] == token) != (tokens.at(args[i]) == k)) return tokens.reject();
    }
    const extent where = position_of(token, result_labels(subscripts));
    if (where < result_labels(subscripts).size()) return tokens.axis(where);
    // A sum without some pairs is made again row by row.
    return has_mask(tokens.nodes()) ? tokens.reject() : tokens.none();
  }

  // The einsum of the result's cotangent and of the other operands, with the labels of the operand.
  node_id cotangent(auto& g, extent operand, node_id c) const {
    einsum_parts sum;
    sum.add(c, std::string(result_labels(subscripts)));
    for (extent j = 0; j < args.size(); ++j) {
      if (j == operand) continue;
      const auto op = g[args[j]].op;  // a copy, because the graph grows
      const mask_node* const mask =
          get_if<mask_node>(&op);  // a sum over tokens takes no sparse one
      sum.add(mask != nullptr ? mask->dense(g) : args[j],
              std::string(operand_labels(subscripts, j)));
    }
    const node_id x = args[operand];
    const std::string own(operand_labels(subscripts, operand));
    std::string result;
    for (extent k = 0; k < own.size(); ++k) {
      const bool is_repeated = has(result, own[k]);
      const extent n = g.shape(x)[k];
      if (is_repeated) {  // a diagonal: the other places have the cotangent 0
        result += sum.free_letter(own + result);
        sum.add(constant(g, {n, n}, [n](extent at) { return at / n == at % n ? 1.f : 0.f; }),
                std::string{own[k], result.back()});
        continue;
      }
      result += own[k];
      if (sum.has_label(own[k])) continue;
      const bool may_be_token = k == 0;  // of a label that only this operand has
      if (may_be_token) sum.add(ones_like(g, x), own);
      else sum.add(ones(g, n), std::string(1, own[k]));
    }
    return sum.make(g, result);
  }
  void pull(auto& to, node_id, node_id c) const {
    for (extent k = 0; k < args.size(); ++k)
      if (to.needs(args[k])) to.give(args[k], cotangent(to.g, k, c));
  }

  // It is linear in each operand. What it sums along a label that is cut is a part of the sum.
  void list_ways(auto& ways) const {
    ways.add_rows(std::ranges::count_if(args, [&](node_id a) { return ways.is_sum(a); }) == 1);
    if (has_mask(ways.nodes())) return;
    ways.add_along_label();
    ways.add_sum_along_label();
    for (extent i = 0; i < args.size(); ++i)
      if (!ways.is_constant(args[i])) ways.add_partial_of({i});
  }
};

}  // namespace fmoe::ir

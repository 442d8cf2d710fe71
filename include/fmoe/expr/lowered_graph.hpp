// SPDX-License-Identifier: MIT
// The graph of one expression, or of several whose common parts are computed once. It lies behind a
// wall: who compiles or explains a layer reads no node.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <fmoe/expr/expression.hpp>

namespace fmoe::ir {

struct node_list;

}  // namespace fmoe::ir

namespace fmoe::detail {

class lowered_graph {
 public:
  // For calls of up to `rows` rows of the inputs that do not say it themselves. Expressions without
  // inputs are computed of parameters alone, some of which may have a row for each row of the first
  // result: graph::find_inputs. Throws value_error and shape_error as the operations say.
  explicit lowered_graph(std::span<const dynamic::expression> results, extent rows = all);
  lowered_graph(lowered_graph&&) noexcept;
  lowered_graph& operator=(lowered_graph&&) noexcept;
  ~lowered_graph();

  const ir::graph& nodes() const;
  const ir::node_list& roots() const;  // those of the results
  extent arguments() const;            // inputs that the results name: the greatest number and 1
  std::vector<extent> shape(extent result) const;
  extent width(extent result) const;  // the extent of its last axis; `all` if nothing tells it

 private:
  struct contents;

  std::unique_ptr<contents> made_;
};

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/expr/lowered_graph-inl.hpp>
#endif

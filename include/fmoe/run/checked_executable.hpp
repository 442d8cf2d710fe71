// SPDX-License-Identifier: MIT
// A compiled graph behind the check of a call. It knows its arrays at run time only, so it is
// compiled once for all layers. One that was moved from throws value_error.
#pragma once

#include <span>
#include <vector>

#include <fmoe/run/call_check.hpp>
#include <fmoe/run/compile_graph.hpp>

namespace fmoe::detail {

class checked_executable {
 public:
  // The graph has arguments, which count from 0, and `type` is that of its results. Throws
  // value_error unless it uses all of `arguments`.
  checked_executable(const ir::graph& g, compiled_graph compiled, extent arguments, dtype type,
                     extent tokens);
  checked_executable(checked_executable&&) noexcept;
  checked_executable& operator=(checked_executable&&) noexcept;
  ~checked_executable();

  extent arguments() const { return arguments_; }
  extent results() const { return rows_.size() - arguments_; }
  dtype type() const { return type_; }
  extent tokens() const { return tokens_; }  // of the largest call

  // The shape of an array without the token axis: first those of the arguments, then of the
  // results.
  const std::vector<extent>& row(extent array) const {
    expects_program(compiled_);
    return rows_.at(array);
  }
  bool has_tokens(extent array) const {
    return array < arguments_ || compiled_.results[array - arguments_].per_token;
  }
  // The tokens that an array of this argument brings.
  extent tokens_in(extent argument, const array_view& array) const {
    const extent row_rank = row(argument).size();
    return array.rank < row_rank ? 0 : array.tokens(row_rank);
  }

  // Checks the arrays, arguments first, fills their row_rank and runs the graph on them. Throws
  // shape_error or value_error before an element is written; allocates nothing.
  void call(std::span<bound_array> arrays, const std::optional<stream_handle>& stream) const;

  void refresh() {
    expects_program(compiled_);
    detail::refresh(compiled_);
  }
  void keep(extent entries) {
    expects_program(compiled_);
    detail::keep(compiled_, entries);
  }

 private:
  std::vector<std::vector<extent>> rows_;
  extent arguments_, tokens_;
  dtype type_;
  std::vector<expected_array> expected_;
  compiled_graph compiled_;
};

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/run/checked_executable-inl.hpp>
#endif

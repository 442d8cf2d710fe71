// SPDX-License-Identifier: MIT
// Running expressions: evaluate one once, or compile a layer for many calls.
#pragma once

#include <fmoe/cpu/compiled_plan.hpp>
#include <fmoe/expr/concat.hpp>
#include <fmoe/expr/einsum.hpp>
#include <fmoe/expr/gate.hpp>

#if !defined(FMOE_SEPARATE_COMPILATION)  // else one translation unit includes fmoe/src.hpp
#include <fmoe/cpu/plan_runner.hpp>
#endif

namespace fmoe {

// The value of a graph's node, y, whose leading axis counts `tokens` unless the plan finds none.
template <class T, class Arch>
void evaluate(const graph& g, node_id root, const plan_options& options, const array_view& y) {
  const extent rows = y.rank == 0 ? 1 : y.shape[0];
  const cpu::compiled_plan<T, Arch> run(g, root, rows, 1, options);
  run({}, {}, y, run.steps().result_shape.size(), run.steps().tokens ? rows : 1);
}

// The value of an expression, in its arithmetic type: double if a leaf is double, else float. The first axis, where rows
// are independent of each other, is cut into tiles for the threads of the current arena. Throws shape_error and
// value_error as the operations say. Packed weights stay with their parameters for the next time.
template <class Arch = cpu::native, operand E>
auto evaluate(const E& e, plan_options options = {}) {
  using X = expression_t<E>;
  using T = typename X::scalar;
  graph g;
  const node_id root = as_expression(e).lower(g);
  std::array<extent, X::rank> shape;
  std::copy_n(g.shape(root).begin(), X::rank, shape.begin());  // not all of it: g++ 16 would warn of a shape of more axes
  tensor<T, X::rank> y(shape);
  evaluate<T, Arch>(g, root, options, view_of(y));
  return y;
}

// A layer ready to be called: forward(x, y), or forward(x1, x2, y) for a layer of two arguments.
template <class T, class Arch, extent Arguments>
class compiled {
 public:
  compiled(const graph& g, node_id root, extent tokens, extent callers, const plan_options& options)
      : tokens_(tokens), run_(g, root, tokens, callers, options) {
    extent used = 0;
    for (extent i = 0; i < g.size(); ++i) {
      const auto id = static_cast<node_id>(i);
      const auto* l = std::get_if<leaf_node>(&g[id].op);
      if (l != nullptr && l->argument >= 0) rows_[static_cast<extent>(l->argument)] = row_of(g, id), ++used;
    }
    expects<value_error>(used == Arguments, "[compile] the layer uses ", used, " of its ", Arguments, " arguments");
    rows_[Arguments] = row_of(g, root);
    for (extent i = 0; i <= Arguments; ++i) row_ranks_[i] = rows_[i].size();
  }

  // Inputs first, the output last: anything with data() and shape(), and strides() where it is not row-major. Leading
  // axes beyond a row's are tokens, at most as many as compiled for. Inputs may have any floating type and strides, the
  // output the layer's arithmetic type. Throws shape_error or value_error before any output element is written; allocates
  // nothing; callers beyond the number compiled for wait.
  template <class... Arrays>
  void operator()(Arrays&&... arrays) const {
    static_assert(sizeof...(Arrays) == Arguments + 1, "forward takes the layer's inputs and one output");
    static_assert((array_like<std::remove_reference_t<Arrays>> && ...),
                  "forward takes arrays of float, double, fmoe::bf16 or fmoe::f16 with data() and shape()");
    if constexpr (sizeof...(Arrays) == Arguments + 1 && (array_like<std::remove_reference_t<Arrays>> && ...)) {
      const std::array<array_view, Arguments + 1> views{view_of(arrays)...};
      const auto last = std::get<Arguments>(std::forward_as_tuple(arrays...)).data();
      static_assert(std::is_same_v<decltype(last), T* const>, "forward writes an output of the layer's arithmetic type");
      call(views);
    }
  }

  const plan& steps() const { return run_.steps(); }

 private:
  static std::vector<extent> row_of(const graph& g, node_id id) {
    auto s = g.shape(id);
    s.erase(s.begin());
    return s;
  }

  void call(const std::array<array_view, Arguments + 1>& views) const {
    const array_view& y = views[Arguments];
    const extent tokens = y.rank < row_ranks_[Arguments] ? 0 : y.tokens(row_ranks_[Arguments]);
    for (extent i = 0; i <= Arguments; ++i) {
      const array_view& v = views[i];
      const char* what = i == Arguments ? "output" : "input";
      expects<shape_error>(v.rank >= row_ranks_[i], "[forward] ", what, ' ', i, " has ", v.rank, " axes and a row alone has ", row_ranks_[i]);
      for (extent a = 0; a < row_ranks_[i]; ++a)
        expects<shape_error>(v.shape[v.rank - row_ranks_[i] + a] == rows_[i][a], "[forward] axis ", a, " of the rows of ", what, ' ', i,
                             " is ", v.shape[v.rank - row_ranks_[i] + a], " and ", rows_[i][a]);
      expects<shape_error>(v.tokens(row_ranks_[i]) == tokens, "[forward] 't' is ", v.tokens(row_ranks_[i]), " in ", what, ' ', i, " and ",
                           tokens, " in the output");
      expects<value_error>(size_of(v.type) <= sizeof(T), "[forward] a double input of a layer compiled for float: convert it first");
      expects<value_error>(i == Arguments || !v.overlaps(y), "[forward] the output overlaps input ", i);
    }
    expects<shape_error>(tokens <= tokens_, "[forward] 't' is ", tokens, " and the layer is compiled for at most ", tokens_);
    for (extent a = 0; a < y.rank; ++a)
      expects<value_error>(y.span_bytes() == 0 || y.shape[a] <= 1 || y.strides[a] != 0, "[forward] axis ", a, " of the output has stride 0");
    run_(std::span(views).first(Arguments), std::span(row_ranks_).first(Arguments), y, row_ranks_[Arguments], tokens);
  }

  extent tokens_;
  std::array<std::vector<extent>, Arguments + 1> rows_;  // shapes without the token axis; the result last
  std::array<extent, Arguments + 1> row_ranks_{};
  cpu::compiled_plan<T, Arch> run_;
};

// The ranks of a layer's arguments, for compile.
template <extent... Ranks>
struct arguments {};

template <class Layer, extent... Ranks, int... Index>
auto apply_to_arguments(const Layer& layer, arguments<Ranks...>, extent tokens, std::integer_sequence<int, Index...>) {
  return layer(argument<Index, Ranks>{tokens}...);
}

// Plans a layer for up to `tokens` rows, packs its weights once, and reserves memory for `callers` simultaneous calls on
// each thread of the current arena. The layer is anything callable with expressions; unless said, it has one argument of
// rank 2, [token, input]. Throws shape_error and value_error as the layer's operations say.
template <class Arch = cpu::native, class Layer, extent... Ranks>
auto compile(const Layer& layer, arguments<Ranks...>, extent tokens, extent callers = 1, plan_options options = {}) {
  const auto e = apply_to_arguments(layer, arguments<Ranks...>{}, tokens, std::make_integer_sequence<int, sizeof...(Ranks)>{});
  using T = typename decltype(e)::scalar;
  graph g;
  const node_id root = e.lower(g);
  return compiled<T, Arch, sizeof...(Ranks)>(g, root, tokens, callers, options);
}
template <class Arch = cpu::native, class Layer>
auto compile(const Layer& layer, extent tokens, extent callers = 1, plan_options options = {}) {
  return compile<Arch>(layer, arguments<2>{}, tokens, callers, options);
}

}  // namespace fmoe

// SPDX-License-Identifier: MIT
// A graph of a rank takes the entries of a selection as lists.
#include <fmoe/reference.hpp>

#include "../support/catch.hpp"
#include "../support/shard_checks.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using namespace fmoe::detail;

// Three rows of each of 5 tokens: values, and places among 9; fewer than 4 in some rows.
constexpr extent listed = 5, heads = 3, most = 4, columns = 9;
template <class T>
std::vector<T> lists() {
  std::vector<T> x;
  for (extent row = 0; row < listed * heads; ++row) {
    for (extent k = 0; k < most; ++k) x.push_back(static_cast<T>(row + 10 * k) - T(7));
    for (extent k = 0; k < most; ++k)
      x.push_back(k < row % (most + 1) ? static_cast<T>(row % 3 + 2 * k) : T(-1));
  }
  return x;
}
template <class T>
std::vector<T> rows_of_lists() {
  const std::vector<T> x = lists<T>();
  std::vector<T> y(listed * heads * columns, T(0));
  for (extent row = 0; row < listed * heads; ++row)
    for (extent k = 0; k < row % (most + 1); ++k)
      y[row * columns + row % 3 + 2 * k] = x[2 * row * most + k];
  return y;
}

template <class T>
void check_selection(const compile_options& options) {
  const std::vector<T> x = lists<T>(), expected = rows_of_lists<T>();
  tensor<T, 2> table({columns, 2});
  for (extent i = 0; i < table.size(); ++i) table.data()[i] = static_cast<T>(i * i % 11) - T(5);
  ir::graph g;
  const ir::node_id in = g.leaf({nullptr, dtype_of<T>, {listed, heads, 2, most}, false, 0}),
                    w = g.leaf({table.shared_storage(), dtype_of<T>, {columns, 2}, true}),
                    chosen = g.select(
                        {.what = selection_rule::kind::entries, .keep = most, .each = columns}, in);
  ir::node_list roots(chosen);
  roots.push_back(g.einsum("thn,no->tho", {chosen, w}));
  const auto program = compile_graph<T, cpu::native>(g, roots, listed, options);
  std::vector<T> rows(expected.size()), sums(listed * heads * 2);
  const bound_array from{view_at<all>(x.data(), std::array{listed, heads, extent{2}, most}), 3};
  const std::array to{
      bound_array{view_at<all>(rows.data(), std::array{listed, heads, columns}), 2},
      bound_array{view_at<all>(sums.data(), std::array{listed, heads, extent{2}}), 2}};
  program.program->run({std::span(&from, 1), to, listed});
  CHECK(rows == expected);
  for (extent row = 0; row < listed * heads; ++row)
    for (extent o = 0; o < 2; ++o) {
      T sum = 0;  // of whole numbers
      for (extent n = 0; n < columns; ++n) sum += expected[row * columns + n] * table(n, o);
      CHECK(sums[row * 2 + o] == sum);
    }
}

TEST_CASE("a selection that is given as lists of its entries") {
  for (const compile_options& options :
       {compile_options{.threads = 1}, compile_options{.on = reference()}}) {
    check_selection<float>(options);
    check_selection<double>(options);
  }
}

// y = top_k(f(x gate)) output, over P ranks with `parts` parts: the plan's graphs take lists or
// rows. Two calls, with x and with -x.
struct listed_case {
  weighting weights;
  bool whole_gate;  // tokens' owners select, and the entries travel
  extent P, parts;
};
std::vector<float> results_with(const listed_case& c, bool lists_entries) {
  constexpr extent tokens = 12, n = 250;
  const extent keep = c.whole_gate ? 5 : 20;  // few travel as entries; many reach every rank
  tensor<float, 2> gate, output;
  fill_with(gate, {12, n}, 1, 1000);
  fill_with(output, {n, 10}, 2, 1000);
  const auto x = rows(2 * tokens, 12, 1000);
  ir::graph g;
  const auto parameter_of = [&](const tensor<float, 2>& t) {
    return g.leaf({t.shared_storage(), dtype::float32, {t.shape()[0], t.shape()[1]}, true});
  };
  const ir::node_id in = g.leaf({nullptr, dtype::float32, {tokens, 12}, false, 0}),
                    w = parameter_of(gate), v = parameter_of(output),
                    scores = g.map({pointwise::relu}, g.einsum("ti,in->tn", {in, w})),
                    chosen = g.select({selection_rule::kind::top_k, keep, 0, c.weights}, scores),
                    root = g.einsum("tn,no->to", {chosen, v});
  std::vector<float> found(2 * tokens * 10);
  run_on_threads(c.P, [&](communicator& ranks) {
    const axis_cut cut{'n', n, c.parts, c.P, ranks.rank()};
    std::vector<cut_parameter> parameters;
    for (const auto& [t, axis] : {std::pair(&gate, extent{1}), {&output, extent{0}}}) {
      if (t == &gate && c.whole_gate) continue;
      cut_parameter p{any_of(*t), axis, 1, {}};
      for (extent i = 0; i < cut.parts_a_rank(); ++i)
        p.own.push_back(part_of(p.whole, axis, cut.begin(cut.own(i)), cut.count(cut.own(i))));
      parameters.push_back(std::move(p));
    }
    const network_costs bytes_count{1e15, 1e9, 0, 512};
    const extent own = tokens / c.P;
    stage_runner<float> runner(
        ranks, cut,
        plan_of(g, root, {spread::tokens}, cut, parameters, own, 4, bytes_count, lists_entries),
        own, "lists");
    runner.prepare<cpu::native>({.threads = 1});
    const std::string plan = runner.explain();
    require((plan.find("entries   t") != plan.npos) == lists_entries, "lists in\n" + plan);
    const std::string call =
        c.whole_gate ? "of the entries of a selection, 5" : "merge a selection";
    require(plan.find(call) != plan.npos, call + " in\n" + plan);
    for (extent k = 0; k < 2; ++k) {
      const extent first = k * tokens + own * ranks.rank();
      tensor<float, 2> mine({own, 12}), y({own, 10});
      std::copy_n(std::as_const(x).data() + first * 12, mine.size(), mine.data());
      const array_view input = view_of(mine);
      runner.run(std::span(&input, 1), view_of(y));
      std::copy_n(std::as_const(y).data(), y.size(), found.data() + first * 10);
    }
  });
  return found;
}

TEST_CASE("graphs of ranks take few entries as lists, with the bits of rows") {
  for (const weighting weights : {weighting::score, weighting::relu, weighting::softmax})
    for (const bool whole_gate : {false, true})
      for (const auto& [P, parts] : {std::pair<extent, extent>{2, 2}, {3, 3}, {2, 4}, {4, 4}}) {
        const listed_case c{weights, whole_gate, P, parts};
        INFO("weighting " << static_cast<int>(weights) << (whole_gate ? ", whole gate, " : ", ")
                          << P << " ranks, " << parts << " parts");
        CHECK(same_bits(results_with(c, true), results_with(c, false)));
      }
}

}  // namespace

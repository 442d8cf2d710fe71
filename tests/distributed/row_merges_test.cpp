// SPDX-License-Identifier: MIT
#include <fmoe/backend/reference/functions.hpp>

#include <functional>

#include "../support/shard_checks.hpp"

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using namespace fmoe::detail;

constexpr extent length = 43, outer = 2, tokens = 11;

// 22 rows of 43 numbers, with entries that are equal, and rows that hold what is no number.
template <class T>
std::vector<T> numbers() {
  std::vector<T> x;
  for (extent i = 0; i < tokens * outer * length; ++i)
    x.push_back(static_cast<T>(static_cast<int>(i * 7919 % 97) - 48) / T(16));
  constexpr T infinity = std::numeric_limits<T>::infinity();
  x[3 * length + 5] = infinity;
  x[4 * length + 40] = std::numeric_limits<T>::quiet_NaN();
  x[5 * length] = -infinity;
  std::fill_n(x.begin() + 6 * length, length, -infinity);
  return x;
}

// Calls merge(run, from, to) on the parts of each rank, and returns the rows of all of them.
template <class T, class Merge>
std::vector<T> merged(extent P, extent parts, const Merge& merge) {
  const std::vector<T> x = numbers<T>();
  std::vector<T> y(x.size());
  run_on_threads(P, [&](communicator& ranks) {
    const axis_cut cut{'n', length, parts, P, ranks.rank()};
    call_tokens share{{}, ranks.rank()};
    for (extent r = 0; r < P; ++r)
      share.of_rank.push_back(begin_of_part(tokens, P, r + 1) - begin_of_part(tokens, P, r));
    std::vector<std::vector<T>> own;
    std::vector<const T*> from;
    std::vector<T*> to;
    for (extent i = 0; i < cut.parts_a_rank(); ++i) {
      own.emplace_back();
      for (extent r = 0; r < tokens * outer; ++r)
        for (extent k = cut.begin(cut.own(i)); k < cut.begin(cut.own(i) + 1); ++k)
          own.back().push_back(x[r * length + k]);
    }
    std::vector<std::vector<T>> results = own;
    for (extent i = 0; i < own.size(); ++i) {
      from.push_back(own[i].data());
      to.push_back(results[i].data());
    }
    merge(row_merge_run<T>(ranks, cut, share, outer, from), to);
    for (extent i = 0; i < own.size(); ++i)
      for (extent r = 0; r < tokens * outer; ++r)
        for (extent k = 0; k < cut.count(cut.own(i)); ++k)
          y[r * length + cut.begin(cut.own(i)) + k] = results[i][r * cut.count(cut.own(i)) + k];
  });
  return y;
}

// Some entries reach it; in row 8 none does.
double bound_of(extent row) { return row == 8 ? 100 : static_cast<double>(row % 5) / 2; }

template <class T>
void check_function(row_function f, double parameter) {
  std::vector<double> expected;
  for (const T x : numbers<T>()) expected.push_back(double{x});
  for (extent r = 0; r < tokens * outer; ++r)
    reference_backend::apply(f, parameter, {}, bound_of(r),
                             std::span(expected).subspan(r * length, length));
  std::vector<T> bounds;
  for (extent r = 0; r < tokens * outer; ++r) bounds.push_back(static_cast<T>(bound_of(r)));
  const auto apply = [&](row_merge_run<T> run, const std::vector<T*>& to) {
    if (f == row_function::bounded_softmax) run.apply_bounded_softmax(bounds.data(), outer, to);
    else run.apply(f, parameter, to);
  };
  for (const extent P : {1u, 2u, 3u, 4u, 7u}) {
    const auto y = merged<T>(P, 2 * P, apply);
    INFO(name_of(f) << ' ' << parameter << " on " << P << " ranks");
    for (extent r = 0; r < tokens * outer; ++r) {
      const bool is_special = r >= 3 && r <= 6;  // each is checked below
      for (extent k = r * length; k < (r + 1) * length && !is_special; ++k) {
        CAPTURE(k, y[k], expected[k]);
        REQUIRE(std::abs(double{y[k]} - expected[k]) <=
                4 * double{std::numeric_limits<T>::epsilon()});
      }
    }
    const bool has_weights = f == row_function::softmax || f == row_function::bounded_softmax ||
                             f == row_function::entmax;
    // Below a bound there is 0, and a NaN beside it.
    REQUIRE(
        std::isnan(y[3 * length + (has_weights && f != row_function::bounded_softmax ? 1 : 5)]));
    REQUIRE(std::isnan(y[4 * length + 1]));
    REQUIRE((has_weights ? y[5 * length] == 0 : std::isnan(y[5 * length])));
    REQUIRE(std::isnan(y[6 * length + 1]));
  }
  const auto first = merged<T>(1, 8, apply);
  for (const extent P : {2u, 4u, 8u}) REQUIRE(same_bits(merged<T>(P, 8, apply), first));
}

TEST_CASE("functions of rows that are cut are those of the reference, with the same bits") {
  check_function<float>(row_function::softmax, 0);
  check_function<double>(row_function::softmax, 0);
  check_function<float>(row_function::bounded_softmax, 0);
  check_function<double>(row_function::bounded_softmax, 0);
  for (const double alpha : {1.5, 2.0, 1.3}) check_function<float>(row_function::entmax, alpha);
  check_function<double>(row_function::entmax, 1.5);
  check_function<float>(row_function::layer_norm, 1e-5);
  check_function<double>(row_function::layer_norm, 1e-5);
  check_function<float>(row_function::rms_norm, 1e-6);
  for (const double least : {1e-12, 100.0})  // no row has such a norm
    check_function<float>(row_function::clamped_rms_norm, least);
}

TEST_CASE("entmax has the same bits in any number of parts") {
  const auto apply = [](row_merge_run<float> run, const std::vector<float*>& to) {
    run.apply(row_function::entmax, 1.5, to);
  };
  const auto first = merged<float>(1, 1, apply);
  for (const extent P : {2u, 3u, 7u}) CHECK(same_bits(merged<float>(P, 2 * P, apply), first));
}

TEST_CASE("the cheapest plan merges functions of cut rows, and counts its bytes") {
  struct function_case {
    const char* name;
    std::function<ir::node_id(ir::graph&, ir::node_id)> make;
    double bytes;
  };
  const auto function = [](row_function f, double parameter) {
    return [=](ir::graph& g, ir::node_id x) { return g.map_rows(f, parameter, x); };
  };
  const function_case cases[] = {
      {"merge softmax", function(row_function::softmax, 0), 16 + 16},
      {"merge layer norm", function(row_function::layer_norm, 1e-5), 32},
      {"merge bounded softmax",
       [](ir::graph& g, ir::node_id x) {
         tensor<float, 1> bound({2}, {0.25f, -0.5f});
         const ir::node_id b = g.leaf({bound.shared_storage(), dtype::float32, {2}, true}),
                           halves = g.einsum("p,p->", {b, b});
         return g.map_rows(row_function::bounded_softmax, 0, x, halves);
       },
       16 + 16},
      {"merge rms norm", function(row_function::rms_norm, 1e-5), 16},
      {"merge entmax", function(row_function::entmax, 1.5), 0},
  };
  tensor<float, 2> gate, output;
  fill_with(gate, {12, 64}, 1, 1000);
  fill_with(output, {64, 10}, 2, 1000);
  const auto x = rows(24, 12, 1000);
  for (const function_case& c : cases)
    for (const extent P : {2u, 3u, 4u}) {
      ir::graph g;
      const auto parameter_of = [&](const tensor<float, 2>& t) {
        return g.leaf({t.shared_storage(), dtype::float32, {t.shape()[0], t.shape()[1]}, true});
      };
      const ir::node_id in = g.leaf({nullptr, dtype::float32, {24, 12}, false, 0}),
                        w = parameter_of(gate), v = parameter_of(output);
      const ir::node_id root =
          g.einsum("tn,no->to", {c.make(g, g.einsum("ti,in->tn", {in, w})), v});
      const auto alone = compile_graph<float, cpu::native>(g, root, 24, {.threads = 1});
      tensor<float, 2> expected({24, 10});
      const bound_array from{view_of(x), 1}, to{view_of(expected), 1};
      alone.program->run({std::span(&from, 1), std::span(&to, 1), 24});
      run_on_threads(P, [&](communicator& ranks) {
        const axis_cut cut{'n', 64, P, P, ranks.rank()};
        std::vector<cut_parameter> parameters;
        for (const auto& [t, axis] : {std::pair(&gate, extent{1}), {&output, extent{0}}}) {
          cut_parameter p{any_of(*t), axis, 1, {}};
          p.own.push_back(part_of(p.whole, axis, cut.begin(ranks.rank()), cut.count(ranks.rank())));
          parameters.push_back(std::move(p));
        }
        const network_costs bytes_count{1e15, 1e9, 0, 512};
        stage_runner<float> runner(
            ranks, cut, plan_of(g, root, {spread::tokens}, cut, parameters, 24 / P, 4, bytes_count),
            24 / P, c.name);
        runner.prepare<cpu::native>({.threads = 1});
        const std::string plan = runner.explain();
        require(plan.find(c.name) != plan.npos, c.name + (" in\n" + plan));
        const extent own = 24 / P, first = own * ranks.rank();
        tensor<float, 2> mine({own, 12}), y({own, 10}), theirs({own, 10});
        std::copy_n(std::as_const(x).data() + first * 12, mine.size(), mine.data());
        std::copy_n(std::as_const(expected).data() + first * 10, y.size(), theirs.data());
        const std::size_t before = ranks.received(), calls = ranks.calls();
        const array_view input = view_of(mine);
        runner.run(std::span(&input, 1), view_of(y));
        require(difference(y, theirs) <= 4e-6, std::string(c.name) + " and one process");
        require(ranks.calls() - calls == runner.cost().calls, "the calls of " + plan);
        if (c.bytes == 0) return;  // they depend on the numbers
        const double others = static_cast<double>(P - 1) / static_cast<double>(P),
                     a_token = (4 * (12 + 10) + c.bytes) * others;
        require(std::abs(runner.received_a_token() - a_token) < 1e-9, "the formula of " + plan);
        const auto received = static_cast<double>(ranks.received() - before);
        require(std::abs(received - a_token * 24 - 24 * static_cast<double>(P - 1)) < 1e-6,
                "received " + std::to_string(received));
      });
    }
}

}  // namespace

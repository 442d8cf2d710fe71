// SPDX-License-Identifier: MIT
// Row function: a row of each row, which is the last axis. [..., n] -> [..., n]. A bound is one
// number for each row, or for the rows of its last axes.
#pragma once

#include <cmath>
#include <optional>
#include <span>
#include <string>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/error.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

struct row_function_step {
  std::string text;
  row_function fn{};
  double parameter = 0;
  grouping groups{};             // of best_groups
  view a, c, bound{};            // bound may not exist
  extent rows = 0, columns = 0;  // rows for each token
  extent bounds = 0;             // bounds of a token; they repeat along its rows

  const char* name() const { return name_of(fn); }
  void list_accesses(auto& to) const {
    to.read(a);
    if (bounds != 0) to.read(bound);
    to.write(c);
  }
  double flops(double tokens) const {
    const bool is_exp = fn == row_function::softmax || fn == row_function::layer_norm;
    const bool is_bisected = fn == row_function::entmax && parameter != 1.5 && parameter != 2;
    return tokens * static_cast<double>(rows * columns) *
           (is_bisected ? bisection()
            : is_exp    ? 60
                        : 200);
  }
  // For an element of a row of entmax that is found by bisection: in each of 81 sums an element
  // above the threshold takes a power. About n^p of n normal numbers are above it.
  double bisection() const {
    constexpr double sums = 81, compared = 120, raised = 2700;
    const double p = 1 - std::exp(-0.5 / (parameter - 1)), n = static_cast<double>(columns);
    return sums * (compared + raised * std::pow(std::max(1.0, n), p - 1));
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct row_function_op {  // a second operand is the bound
  row_function fn{};
  double parameter = 0;
  grouping groups{};

  const char* name() const { return name_of(fn); }

  void interpret(auto& in, const auto& o) const {
    const extent n = in.shape(o.in[0].value).back();
    in.each_row(o, [&](std::span<const double> x, std::span<double> y, extent i) {
      std::ranges::copy(x, y.begin());
      for (extent r = 0; n != 0 && r * n < y.size(); ++r) {
        double bound = 0;
        if (o.in.size() > 1) {
          const auto bounds = in.operand_row(o, 1, i);
          bound = bounds[r % bounds.size()];
        }
        in.apply(fn, parameter, groups, bound, y.subspan(r * n, n));
      }
    });
  }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& in = to.value_of(o.in[0]);
    plan::row_function_step s{.text = to.text(o),
                              .fn = fn,
                              .parameter = parameter,
                              .groups = groups,
                              .a = to.whole(o.in[0].value),
                              .c = to.whole(o.out.value),
                              .rows = in.rows(),
                              .columns = in.shape.back()};
    if (o.in.size() > 1) {
      s.bound = to.whole(o.in[1].value);
      s.bounds = to.value_of(o.in[1]).size();
    }
    steps.push_back(std::move(s));
  }
};

}  // namespace fmoe::planner

namespace fmoe::ir {

// y (c - sum y c) for a softmax y of each row.
node_id cotangent_of_scores(auto& g, node_id y, node_id c) {
  const node_id yc = times(g, y, c);
  return minus(g, yc, by_row(g, y, row_sum(g, yc)));
}

// s c - s sum(s c) / sum(s) with s = y^(2 - alpha), 0 where y is 0.
node_id cotangent_of_entmax(auto& g, double alpha, node_id y, node_id c) {
  const node_id s =
      alpha == 1.5 ? g.map(pointwise::sqrt, 0, y) : g.map(pointwise::power, 2 - alpha, y);
  const node_id sc = times(g, s, c);
  return minus(g, sc, by_row(g, s, g.divide(row_sum(g, sc), row_sum(g, s))));
}

// c without its mean along the row.
node_id without_mean(auto& g, node_id c) {
  return minus(g, c, along_row(g, g.norm(row_norm::mean, c), c));
}

// For each row 1 / sqrt(the mean of x^2 + epsilon).
node_id inverse_deviation(auto& g, node_id x, double epsilon) {
  const node_id mean = scaled(g, row_dot(g, x, x), 1 / row_length(g, x));
  return g.map(pointwise::inverse_sqrt, 0, g.map(pointwise::shift, epsilon, mean));
}

// r (c - y mean(c y)) for y = r x with r = 1 / sqrt(mean(x^2) + epsilon).
node_id cotangent_of_rms_norm(auto& g, node_id y, node_id c, node_id r, node_id mean) {
  return by_row(g, minus(g, c, by_row(g, y, mean)), r);
}

// y c - p sum(y c) of each of the two weighed entries, where p is the softmax of which its weight
// y is one entry: exp(x - its x) y over those that stand beside it. What stands there is constant.
node_id cotangent_of_sparse_mixer(auto& g, double jitter, node_id x, node_id y, node_id c) {
  const auto greatest = [&](extent k) {
    return g.select({selection_rule::kind::top_k, k, 0, weighting::one}, x);
  };
  const node_id first = greatest(1), second = minus(g, greatest(2), first), yc = times(g, y, c);
  node_id sum = yc;
  for (const node_id chosen : {first, second}) {
    const auto of_chosen = [&](node_id row) { return row_sum(g, keep(g, row, chosen)); };
    const node_id top = along_row(g, of_chosen(x), x);
    const node_id ratio = g.divide(minus(g, top, x), g.max(g.map(pointwise::abs, 0, x), top));
    const node_id is_far = g.map(pointwise::shift, -2 * jitter, ratio);
    node_id e = g.drop(g.map(pointwise::exp, 0, minus(g, x, top)), is_far);
    if (chosen == second) e = g.drop(e, first);
    sum = minus(g, sum, by_row(g, e, times(g, of_chosen(y), of_chosen(yc))));
  }
  return sum;
}

struct row_function_node {
  row_function fn;
  double parameter;
  node_id arg;
  std::optional<node_id> bound;
  grouping groups{};  // of best_groups
  bool operator==(const row_function_node&) const = default;

  static void each_operand(auto& self, const auto& f) {
    f(self.arg);
    if (self.bound) f(*self.bound);
  }
  const char* name() const { return name_of(fn); }

  vector<axis_id> axes(auto& graph) const {
    const vector<axis_id> axes = graph[arg].axes;
    if (fn == row_function::best_groups) check_groups(graph.extent_of(axes.back()));
    if (fn == row_function::group_max) check_length(graph.extent_of(axes.back()));
    if (bound) join_bound(graph, axes);
    return axes;
  }
  void check_groups(extent n) const {
    expects<value_error>(groups.count >= 1 && groups.count <= most_groups && n % groups.count == 0,
                         "[best_groups] a row of ", n, " entries is not ", groups.count,
                         " groups of one length, at most ", most_groups);
    expects<value_error>(parameter >= 1 && parameter <= static_cast<double>(groups.count),
                         "[best_groups] ", static_cast<extent>(parameter), " groups are wanted of ",
                         groups.count);
  }
  void check_length(extent n) const {
    const bool divides = parameter >= 1 && parameter <= static_cast<double>(n) &&
                         n % static_cast<extent>(parameter) == 0;
    expects<value_error>(divides && parameter == std::floor(parameter), "[group_max] a row of ", n,
                         " entries is not ", parameter, " groups of one length");
  }
  void join_bound(auto& graph, const vector<axis_id>& axes) const {
    const vector<axis_id>& rows = graph[*bound].axes;
    expects<shape_error>(rows.size() < axes.size(), "[", name(), "] the bound has ", rows.size(),
                         " axes and the scores ", axes.size());
    const extent lead = axes.size() - 1 - rows.size();
    for (extent k = 0; k < rows.size(); ++k)
      expects<shape_error>(graph.join(axes[lead + k], rows[k]), "[", name(), "] axis ", lead + k,
                           " is ", graph.extent_of(axes[lead + k]), " and the bound's is ",
                           graph.extent_of(rows[k]));
  }

  auto token_axis(auto& tokens) const {
    const auto a = tokens.across(arg);
    if (!bound) return a;
    const extent lead = tokens.rank(arg) - tokens.rank(*bound) - 1;
    const auto b = tokens.at(*bound);
    if (b) return a == *b + lead ? a : tokens.reject();
    return !a || *a < lead ? a : tokens.reject();
  }

  auto lower(auto& to) const {
    expects<value_error>(fn != row_function::entmax || parameter > 1, "[entmax] alpha is ",
                         parameter, " and must be at least 1");
    if (fn == row_function::sparse_mixer) {
      const extent n = to.graph().shape(arg).back();
      expects<value_error>(parameter >= 0 && parameter < 1, "[sparse_mixer] the jitter is ",
                           parameter, " and must be at least 0 and below 1");
      expects<value_error>(n >= 2, "[sparse_mixer] a row has ", n,
                           " of the two entries that are weighed");
    }
    const axis_labels names = to.letters(arg);
    vector in{to.rows(arg, names)};
    const axis_labels labels = in[0].labels;
    if (bound) {
      const extent axes = to.graph().rank(*bound);
      in.push_back(to.in_order_of(*bound, names.substr(names.size() - 1 - axes, axes), labels));
    }
    return to.place(
        to.program().make(planner::row_function_op{fn, parameter, groups}, std::move(in), labels),
        names);
  }

  node_id cotangent(auto& g, node_id y, node_id c) const {
    const auto mean_of_product = [&] { return scaled(g, row_dot(g, c, y), 1 / row_length(g, y)); };
    switch (fn) {
      case row_function::softmax:
      case row_function::bounded_softmax: return cotangent_of_scores(g, y, c);
      case row_function::entmax: return cotangent_of_entmax(g, parameter, y, c);
      case row_function::layer_norm: {
        const node_id r = inverse_deviation(g, without_mean(g, arg), parameter);
        return cotangent_of_rms_norm(g, y, without_mean(g, c), r, mean_of_product());
      }
      case row_function::rms_norm:
        return cotangent_of_rms_norm(g, y, c, inverse_deviation(g, arg, parameter),
                                     mean_of_product());
      case row_function::clamped_rms_norm: {  // a clamped row is only scaled
        const node_id length = g.norm(row_norm::l2, arg);
        const node_id r = g.map(pointwise::inverse, std::sqrt(row_length(g, arg)),
                                g.map(pointwise::at_least, parameter, length));
        const node_id mean =
            keep(g, mean_of_product(), g.map(pointwise::shift, -parameter, length));
        return cotangent_of_rms_norm(g, y, c, r, mean);
      }
      case row_function::best_groups:
      case row_function::group_max: {  // c where y is not -infinity
        constexpr double most = 1e30;
        return keep(g, c, g.map(pointwise::shift, most, y));
      }
      case row_function::sparse_mixer: return cotangent_of_sparse_mixer(g, parameter, arg, y, c);
    }
    return c;
  }
  void pull(auto& to, node_id y, node_id c) const {
    if (to.needs(arg)) to.give(arg, cotangent(to.g, y, c));
  }

  // The parts of a row that is cut stay cut; what is merged are its sums and its greatest number.
  void list_ways(auto& ways) const {
    ways.add_rows();
    ways.add_along_label(ways.last());
    const bool needs_whole_rows = fn == row_function::best_groups ||
                                  fn == row_function::group_max || fn == row_function::sparse_mixer;
    if (!needs_whole_rows) ways.add_merge_to_parts();
  }
  void add_merge(auto& size) const {
    switch (fn) {
      case row_function::softmax:
      case row_function::bounded_softmax: return size.add_rows(size.top + size.sum, 4);
      case row_function::layer_norm: return size.add_rows(2 * size.sum, 4);
      case row_function::entmax:  // its candidates count as two entries of a row
        return size.add_rows(size.top + sizeof(std::uint32_t) + 2 * size.each + sizeof(double), 5);
      default: return size.add_rows(size.sum, 2);
    }
  }
};

}  // namespace fmoe::ir

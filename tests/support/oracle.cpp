// SPDX-License-Identifier: MIT
#include "oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <string_view>

namespace fmoe::test {

namespace {

using numbers = std::vector<double>;

class node_values {
 public:
  explicit node_values(const ir::graph& g) : graph_(g) {
    for (const ir::node_id id : g.ids()) {
      shape_ = g.shape(id);
      values_.push_back(visit([&](const auto& op) { return value_of(op); }, g[id].op));
    }
  }

  std::vector<numbers> take() { return std::move(values_); }

 private:
  const numbers& of(ir::node_id id) const { return values_[static_cast<extent>(id)]; }

  numbers value_of(const ir::leaf_node& l) const {
    numbers r(element_count(l.shape));
    with_type(l.type, [&](auto* type) {
      const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(l.data->data());
      for (extent i = 0; i < r.size(); ++i) r[i] = convert<double>(from[i]);
    });
    return r;
  }

  numbers value_of(const ir::mask_node& m) const {
    numbers r(m.rows * m.columns, 1);
    for (const auto& [i, j] : *m.left_out) r[i * m.columns + j] = 0;
    return r;
  }

  // Adds the products of the operands' numbers for every value of every label, one by one.
  numbers value_of(const ir::einsum_node& e) const {
    struct axis {  // of a label
      char label;
      extent length = 1;
      extent at = 0;
      std::vector<extent> steps;  // of each operand and of the result, in elements
    };
    std::vector<axis> axes;
    const extent arrays = e.args.size() + 1, result = e.args.size();
    const auto add_axes = [&](extent array, std::string_view labels, const auto& shape) {
      extent step = element_count(shape);
      for (extent k = 0; k < labels.size(); ++k) {
        auto found = std::ranges::find(axes, labels[k], &axis::label);
        if (found == axes.end())
          found = axes.insert(found, {.label = labels[k], .steps = std::vector<extent>(arrays)});
        found->length = shape[k];
        step /= std::max<extent>(1, shape[k]);
        found->steps[array] += step;
      }
    };
    add_axes(result, result_labels(e.subscripts), shape_);
    for (extent i = 0; i < result; ++i)
      add_axes(i, operand_labels(e.subscripts, i), graph_.shape(e.args[i]));
    extent products = 1;
    for (const axis& a : axes) products *= a.length;
    numbers r(element_count(shape_));
    std::vector<extent> offsets(arrays);
    for (extent n = 0; n < products; ++n) {
      double product = 1;
      for (extent i = 0; i < result; ++i) product *= of(e.args[i])[offsets[i]];
      r[offsets[result]] += product;
      for (extent k = axes.size(); k-- > 0;) {  // the last label runs fastest
        axis& a = axes[k];
        for (extent i = 0; i < arrays; ++i) offsets[i] += a.steps[i];
        if (++a.at < a.length) break;
        for (extent i = 0; i < arrays; ++i) offsets[i] -= a.steps[i] * a.length;
        a.at = 0;
      }
    }
    return r;
  }

  static double apply(pointwise f, double parameter, double x) {
    switch (f) {
      case pointwise::relu: return x < 0 ? 0 : x;
      case pointwise::gelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
      case pointwise::gelu_tanh:
        return 0.5 * x *
               (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      case pointwise::silu: return x / (1 + std::exp(-x));
      case pointwise::sigmoid: return 1 / (1 + std::exp(-x));
      case pointwise::squared_relu: return x < 0 ? 0 : x * x;
      case pointwise::exp: return std::exp(x);
      case pointwise::sqrt: return std::sqrt(x);
      case pointwise::inverse_sqrt: return 1 / std::sqrt(x);
      case pointwise::negate: return -x;
      case pointwise::scale: return parameter * x;
      case pointwise::shift: return parameter + x;
      case pointwise::threshold: return x < parameter ? 0 : x;
      case pointwise::tanh: return std::tanh(x);
      case pointwise::log: return std::log(x);
      case pointwise::abs: return std::abs(x);
      case pointwise::at_least: return std::isnan(x) ? x : std::max(x, parameter);
      case pointwise::at_most: return std::isnan(x) ? x : std::min(x, parameter);
      case pointwise::quotient: return x / parameter;
      case pointwise::inverse: return parameter / x;
      case pointwise::power: return x <= 0 ? 0 : std::pow(x, parameter);
      case pointwise::gelu_slope:
        return std::erfc(-x / std::sqrt(2.0)) / 2 +
               x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
      case pointwise::gelu_tanh_slope: {
        const double u = 2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x),
                     slope = 2 * std::sqrt(2 / std::numbers::pi) * (1 + 0.134145 * x * x);
        return 1 / (1 + std::exp(-u)) + x * slope / (2 + std::exp(u) + std::exp(-u));
      }
      case pointwise::silu_slope:
        return 1 / (1 + std::exp(-x)) + x / (2 + std::exp(x) + std::exp(-x));
    }
    return 0;
  }

  numbers value_of(const ir::map_node& m) const {
    numbers r = of(m.arg);
    if (m.f.own != nullptr) m.f.own->apply(r.data(), r.size());
    else
      for (double& x : r) x = apply(m.f.fn, m.f.parameter, x);
    return r;
  }

  static double joined(pass_kind what, double x, double y) {
    const bool any_nan = std::isnan(x) || std::isnan(y);
    switch (what) {
      case pass_kind::add: return x + y;
      case pass_kind::divide: return x / y;
      case pass_kind::max: return any_nan ? x + y : std::max(x, y);
      case pass_kind::min: return any_nan ? x + y : std::min(x, y);
      case pass_kind::keep: return y > 0 ? x : 0;
      case pass_kind::drop: return y > 0 ? 0 : x;
      case pass_kind::above: return std::isnan(x) || x > y ? x : 0;
      case pass_kind::map:
      case pass_kind::multiply: break;  // nodes of other kinds
    }
    return 0;
  }

  numbers value_of(const ir::join_node& j) const {
    numbers r = of(j.left);
    const numbers& right = of(j.right);
    for (extent i = 0; i < r.size(); ++i) r[i] = joined(j.what, r[i], right[i % right.size()]);
    return r;
  }

  static std::vector<extent> best_first(std::span<const double> x) {
    std::vector<extent> order(x.size());
    std::iota(order.begin(), order.end(), extent{0});
    std::ranges::stable_sort(order, [&](extent a, extent b) {
      return std::isnan(x[a]) ? !std::isnan(x[b]) : !std::isnan(x[b]) && x[a] > x[b];
    });
    return order;
  }

  static numbers softmax_of(std::span<const double> x) {
    const double max = *std::ranges::max_element(x);
    double sum = 0;
    numbers r;
    for (const double v : x) sum += r.emplace_back(std::exp(v - max));
    for (double& v : r) v /= sum;
    return r;
  }

  static numbers entmax_of(std::span<const double> x, double alpha) {
    const double max = *std::ranges::max_element(x);
    const auto weights = [&](double tau) {
      numbers r;
      for (const double v : x)
        r.push_back(std::pow(std::max((alpha - 1) * (v - max) - tau, 0.0), 1 / (alpha - 1)));
      return r;
    };
    double low = -1, high = 0;
    for (int step = 0; step < 200; ++step) {
      const numbers r = weights((low + high) / 2);
      (std::accumulate(r.begin(), r.end(), 0.0) >= 1 ? low : high) = (low + high) / 2;
    }
    return weights(low);
  }

  static numbers row_of(const ir::row_function_node& g, std::span<const double> x, double bound) {
    const auto sum = [&](auto f) {
      double s = 0;
      for (const double v : x) s += f(v);
      return s;
    };
    const double n = static_cast<double>(x.size()), squares = sum([](double v) { return v * v; });
    numbers r(x.begin(), x.end());
    switch (g.fn) {
      case row_function::softmax: return softmax_of(x);
      case row_function::bounded_softmax:
        for (double& v : r)
          if (v < std::min(bound, *std::ranges::max_element(x)))
            v = -std::numeric_limits<double>::infinity();
        return softmax_of(r);
      case row_function::entmax: return entmax_of(x, g.parameter);
      case row_function::layer_norm: {
        const double mean = sum([](double v) { return v; }) / n,
                     variance = sum([&](double v) { return (v - mean) * (v - mean); }) / n;
        for (double& v : r) v = (v - mean) / std::sqrt(variance + g.parameter);
        return r;
      }
      case row_function::rms_norm:
        for (double& v : r) v /= std::sqrt(squares / n + g.parameter);
        return r;
      case row_function::clamped_rms_norm:
        for (double& v : r) v *= std::sqrt(n) / std::max(std::sqrt(squares), g.parameter);
        return r;
      case row_function::best_groups: {
        const extent each = x.size() / g.groups.count;
        numbers scores;
        for (extent at = 0; at < x.size(); at += each) {
          numbers group(x.begin() + static_cast<std::ptrdiff_t>(at),
                        x.begin() + static_cast<std::ptrdiff_t>(at + each));
          std::ranges::sort(group, std::greater());
          const bool adds = g.groups.score == group_score::sum_of_two && each > 1;
          scores.push_back(group[0] + (adds ? group[1] : 0));
        }
        const auto order = best_first(scores);
        for (extent i = static_cast<extent>(g.parameter); i < g.groups.count; ++i)
          std::fill_n(r.begin() + static_cast<std::ptrdiff_t>(order[i] * each), each,
                      -std::numeric_limits<double>::infinity());
        return r;
      }
      case row_function::group_max: {
        const extent each = x.size() / static_cast<extent>(g.parameter);
        for (extent at = 0; at < x.size(); at += each) {
          const auto group = std::span(r).subspan(at, each);
          const extent best = best_first({group.begin(), group.end()})[0];
          for (extent i = 0; i < each; ++i)
            if (i != best) group[i] = -std::numeric_limits<double>::infinity();
        }
        return r;
      }
      case row_function::sparse_mixer: {
        const auto order = best_first(x);
        const auto share = [&](extent best, extent left_out) {
          double total = 0;
          for (extent i = 0; i < x.size(); ++i)
            if (i != left_out &&
                !(x[best] - x[i] > 2 * g.parameter * std::max(std::abs(x[i]), x[best])))
              total += std::exp(x[i] - x[best]);
          return 1 / total;
        };
        std::ranges::fill(r, 0);
        r[order[0]] = share(order[0], x.size());
        r[order[1]] = share(order[1], order[0]);
        return r;
      }
    }
    return {};
  }

  static double norm_of(row_norm which, std::span<const double> x) {
    double sum = 0, squares = 0, most = 0;
    for (const double v : x) {
      sum += std::abs(v);
      squares += v * v;
      most = std::max(most, std::abs(v));
    }
    switch (which) {
      case row_norm::l1: return sum;
      case row_norm::l2: return std::sqrt(squares);
      case row_norm::max: return most;
      case row_norm::mean:
        return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
    }
    return 0;
  }

  numbers value_of(const ir::row_norm_node& node) const {
    const numbers& x = of(node.arg);
    const extent n = graph_.shape(node.arg).back();
    numbers r(element_count(shape_));
    for (extent row = 0; n != 0 && row < r.size(); ++row)
      r[row] = norm_of(node.which, std::span(x).subspan(row * n, n));
    return r;
  }

  numbers value_of(const ir::row_function_node& g) const {
    const numbers& x = of(g.arg);
    const extent n = graph_.shape(g.arg).back();
    numbers r;
    for (extent row = 0; n != 0 && row < x.size(); row += n) {
      const double bound = g.bound ? of(*g.bound)[row / n % of(*g.bound).size()] : 0;
      const numbers made = row_of(g, std::span(x).subspan(row, n), bound);
      r.insert(r.end(), made.begin(), made.end());
    }
    r.resize(element_count(shape_));
    return r;
  }

  // Keeps the scores of the best tokens of each column, and sets the others to -infinity.
  numbers chosen_by_experts(const ir::select_node& s, extent n) const {
    const numbers &x = of(s.arg), &ranked = of(*s.ranked);
    const extent tokens = n == 0 ? 0 : x.size() / n;
    numbers r(x.size(), -std::numeric_limits<double>::infinity());
    for (extent e = 0; e < n; ++e) {
      numbers column;
      for (extent t = 0; t < tokens; ++t) column.push_back(ranked[t * n + e]);
      const auto order = best_first(column);
      const double wanted = s.rule.keep == all
                                ? std::max(1.0, std::floor(static_cast<double>(tokens) *
                                                           s.rule.factor / static_cast<double>(n)))
                                : static_cast<double>(s.rule.keep);
      for (extent k = 0; k < tokens && static_cast<double>(k) < wanted; ++k)
        r[order[k] * n + e] = x[order[k] * n + e];
    }
    return r;
  }

  numbers products_of(const ir::select_node& s) const {
    const extent n = graph_.shape(s.arg).back();
    numbers r;
    for (extent row = 0; row < of(s.arg).size(); row += 2 * n) {
      const std::span a(of(s.arg).data() + row, n), b(of(s.arg).data() + row + n, n);
      auto first = best_first(a), second = best_first(b);
      first.resize(s.rule.each);
      second.resize(s.rule.each);
      std::ranges::sort(first);
      std::ranges::sort(second);
      numbers sums;
      for (const extent i : first)
        for (const extent j : second) sums.push_back(a[i] + b[j]);
      auto best = best_first(sums);
      best.resize(s.rule.keep);
      numbers kept, all(n * n);
      for (const extent k : best) kept.push_back(sums[k]);
      if (s.rule.weights == weighting::softmax && !kept.empty()) kept = softmax_of(kept);
      if (s.rule.weights == weighting::relu)
        for (double& x : kept) x = std::max(x, 0.0);
      if (s.rule.weights == weighting::one) std::ranges::fill(kept, 1);
      for (extent k = 0; k < best.size(); ++k)
        all[first[best[k] / s.rule.each] * n + second[best[k] % s.rule.each]] = kept[k];
      r.insert(r.end(), all.begin(), all.end());
    }
    return r;
  }

  numbers value_of(const ir::select_node& s) const {
    if (s.rule.what == selection_rule::kind::product_top_k) return products_of(s);
    if (s.rule.what == selection_rule::kind::nonzero) return of(s.arg);
    const extent n = shape_.back();
    if (s.rule.what == selection_rule::kind::expert_choice) {
      numbers r = chosen_by_experts(s, n);
      for (extent row = 0; n != 0 && row < r.size(); row += n) {
        const std::span kept(r.data() + row, n);
        const bool none =
            std::ranges::all_of(kept, [](double v) { return std::isinf(v) && v < 0; });
        const numbers over_kept = none ? numbers(n) : softmax_of(kept),
                      over_all = softmax_of(std::span(of(s.arg)).subspan(row, n));
        for (extent e = 0; e < n; ++e) {
          const bool is_kept = !(std::isinf(kept[e]) && kept[e] < 0);
          if (s.rule.weights == weighting::softmax) kept[e] = over_kept[e];
          else if (!is_kept) kept[e] = 0;
          else if (s.rule.weights == weighting::one) kept[e] = 1;
          else if (s.rule.weights == weighting::softmax_of_all) kept[e] = over_all[e];
        }
      }
      return r;
    }
    numbers r = of(s.arg);
    for (extent row = 0; n != 0 && row < r.size(); row += n) {
      const std::span x(r.data() + row, n);
      const auto order = best_first(s.ranked ? std::span(of(*s.ranked)).subspan(row, n) : x);
      const numbers all_weights = softmax_of(x);
      extent kept = std::min(s.rule.keep, n);
      if (s.rule.what == selection_rule::kind::top_p) {
        double mass = 0;
        for (kept = 0; kept < n && (kept == 0 || mass < s.rule.mass); ++kept)
          mass += all_weights[order[kept]];
      }
      numbers scores;
      for (extent k = 0; k < kept; ++k) scores.push_back(x[order[k]]);
      if (s.rule.weights == weighting::softmax && kept != 0) scores = softmax_of(scores);
      if (s.rule.weights == weighting::softmax_of_all)
        for (extent k = 0; k < kept; ++k) scores[k] = all_weights[order[k]];
      if (s.rule.weights == weighting::one) std::ranges::fill(scores, 1);
      if (s.rule.weights == weighting::relu)
        for (double& score : scores) score = std::max(score, 0.0);
      if (s.rule.weights == weighting::normalized)
        if (const double sum = std::accumulate(scores.begin(), scores.end(), 0.0); sum != 0)
          for (double& score : scores) score /= sum;
      std::ranges::fill(x, 0);
      for (extent k = 0; k < kept; ++k) x[order[k]] = scores[k];
    }
    return r;
  }

  numbers value_of(const ir::kept_node& kept) const {
    const bool values = kept.what == kept_part::value;
    const extent n = graph_.shape(kept.arg).back(), keep = shape_.back();
    numbers r(element_count(shape_), values ? 0 : -1);
    for (extent row = 0; keep != 0 && row < r.size() / keep; ++row) {
      extent at = row * keep;
      for (extent k = 0; k < n; ++k)
        if (const double x = of(kept.arg)[row * n + k]; x != 0)
          r[at++] = values ? x : static_cast<double>(k);
    }
    return r;
  }

  numbers value_of(const ir::append_node& a) const {
    numbers r;
    const extent n = graph_.shape(a.arg).back();
    for (extent row = 0; row < element_count(shape_) / (n + 1); ++row) {
      r.insert(r.end(), of(a.arg).begin() + static_cast<std::ptrdiff_t>(row * n),
               of(a.arg).begin() + static_cast<std::ptrdiff_t>((row + 1) * n));
      r.push_back(1);
    }
    return r;
  }

  numbers value_of(const ir::stop_gradient_node& s) const { return of(s.arg); }

  numbers value_of(const ir::slice_node& s) const {
    numbers r;
    const auto from = graph_.shape(s.arg);
    const extent inner = element_count(std::span(from).subspan(s.axis + 1));
    for (extent i = 0; i < of(s.arg).size(); ++i) {
      const extent place = i / inner % from[s.axis];
      if (place >= s.first && place < s.first + s.count) r.push_back(of(s.arg)[i]);
    }
    return r;
  }

  numbers value_of(const ir::unpair_node& u) const {
    numbers r(element_count(shape_));
    const extent s = shape_.back();
    for (extent i = 0; i < of(u.arg).size(); ++i) {
      double* const lists = r.data() + i / (s * s) * 2 * s;
      lists[i / s % s] += of(u.arg)[i];
      lists[s + i % s] += of(u.arg)[i];
    }
    return r;
  }

  numbers value_of(const ir::concat_node& c) const {
    numbers r(element_count(shape_));
    const extent inner = element_count(std::span(shape_).subspan(c.axis + 1)),
                 length = shape_[c.axis];
    extent first = 0;
    for (const ir::node_id id : c.args) {
      const extent part = graph_.shape(id)[c.axis];
      for (extent i = 0; i < of(id).size(); ++i)
        r[(i / (part * inner) * length + first + i / inner % part) * inner + i % inner] = of(id)[i];
      first += part;
    }
    return r;
  }

  const ir::graph& graph_;
  detail::vector<extent> shape_;  // shape of the current node
  std::vector<numbers> values_;
};

}  // namespace

oracle::oracle(const ir::graph& g) : values_(node_values(g).take()) {}

}  // namespace fmoe::test

// SPDX-License-Identifier: MIT
// Random expressions, built directly as graphs.
#pragma once

#include <map>
#include <random>
#include <sstream>

#include <fmoe/ir/graph.hpp>

namespace fmoe::test {

// An expression of up to six operations, of two kinds. One has small integers and operations that
// keep them exact, so that there are many ties and every result is compared for equality; the other
// has real numbers.
class random_expression {
 public:
  // `magnitudes` makes the same expression with absolute values and without differences; errors are
  // relative to its result.
  explicit random_expression(unsigned seed, bool magnitudes = false)
      : magnitudes_(magnitudes),
        bits_(seed) {
    exact_ = chance(50);
    has_tokens_ = chance(85);
    tokens_ = has_tokens_ ? pick({1, 2, 5, 13, 30, 30, 100}) : 1;
    if (chance(3)) tokens_ = 0;
    const extent operations = 1 + number(7);
    for (extent i = 0; i < operations; ++i) operation();
    if (pool_.empty()) pool_.push_back(leaf({}));
    root_ = copy(pool_.back().id);
  }

  ir::graph g;  // only what the result needs
  ir::node_id root() const { return root_; }
  bool exact() const { return exact_; }

  std::string text() const {
    std::ostringstream s;
    for (extent i = 0; i < g.size(); ++i) {
      s << (i == 0 ? "" : "; ") << i << " = ";
      visit([&](const auto& n) { describe(s, n); }, g[static_cast<ir::node_id>(i)].op);
    }
    return s.str();
  }

 private:
  struct axis {
    extent length;
    bool token;
  };
  struct entry {
    ir::node_id id;
    std::vector<axis> axes;
    double bound;       // bound of the absolute values, if they are exact
    bool plain = true;  // as stored: float and double agree on its order
  };

  ir::node_id copy(ir::node_id id) {
    if (copies_.contains(id)) return copies_[id];
    std::vector<ir::node_id> in;
    for (const ir::node_id operand : ir::operands(made_[id])) in.push_back(copy(operand));
    return copies_[id] = g.again(made_[id], in);
  }

  static void describe(std::ostream& s, const ir::leaf_node& l) {
    s << (l.parameter ? "parameter" : "tensor") << '<' << name_of(l.type) << ">[";
    for (extent k = 0; k < l.shape.size(); ++k) s << (k == 0 ? "" : " ") << l.shape[k];
    s << ']';
  }
  static void describe(std::ostream& s, const ir::row_function_node& n) {
    s << name_of(n.fn) << ' ' << n.parameter << ' ' << static_cast<int>(n.arg);
  }
  static void describe(std::ostream& s, const ir::select_node& n) {
    s << name_of(n.rule.what) << ' ' << n.rule.keep << " weights "
      << static_cast<int>(n.rule.weights) << " of " << static_cast<int>(n.arg);
    if (n.ranked) s << " by " << static_cast<int>(*n.ranked);
  }
  static void describe(std::ostream& s, const auto& n) {
    s << n.name();
    n.each_operand(n, [&](ir::node_id operand) { s << ' ' << static_cast<int>(operand); });
  }

  extent number(extent below) { return bits_() % below; }
  bool chance(unsigned percent) { return bits_() % 100 < percent; }
  extent pick(std::initializer_list<extent> from) { return from.begin()[number(from.size())]; }
  extent length() {
    if (chance(2)) return 0;
    return pick({1, 1, 2, 3, 4, 5, 6, 8, 17, 33, 70, 150});
  }

  entry leaf(const std::vector<axis>& axes) {
    const bool token = std::ranges::any_of(axes, &axis::token);
    ir::leaf_node l;
    for (const axis& a : axes) l.shape.push_back(a.length);
    l.parameter = !token && chance(70);
    l.type = chance(70) ? dtype::float32 : chance(50) ? dtype::bfloat16 : dtype::float16;
    const extent n = element_count(l.shape);
    l.data = std::make_shared<storage>(n * size_of(l.type));
    std::normal_distribution<float> normal(0, 0.5f);
    with_type(l.type, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      for (extent i = 0; i < n; ++i)
        static_cast<T*>(l.data->data())[i] =
            convert<T>(exact_ ? static_cast<float>(number(5)) - 2 : sign(normal(bits_)));
    });
    leaves_.push_back({made_.leaf(std::move(l)), axes, 2});
    return leaves_.back();
  }

  float sign(float x) const { return magnitudes_ ? std::abs(x) : x; }

  // Returns the value of the previous operation, if there is one, and often an older one.
  entry any() {
    if (pool_.empty()) {
      std::vector<axis> axes;
      if (has_tokens_) axes.push_back({tokens_, true});
      for (extent k = 1 + number(2); k > 0; --k) axes.push_back({length(), false});
      pool_.push_back(leaf(axes));
    }
    return chance(75) ? pool_.back() : pool_[number(pool_.size())];
  }

  void put(ir::node_id id, std::vector<axis> axes, double bound) {
    pool_.push_back({id, std::move(axes), bound, false});
  }

  void operation() {
    switch (number(16)) {
      case 0: return map();
      case 1: return map();
      case 2: return add();
      case 3: return row_operation();
      case 4: return concat();
      case 5: return multiply();
      case 6: return mixture();
      case 7: return mixture();
      case 8: return einsum();
      case 9: return einsum();
      case 10: return einsum();
      case 11: return join();
      default: return product();
    }
  }

  void map() {
    const entry e = any();
    using enum pointwise;
    double bound = e.bound;
    ir::node_id id = e.id;
    if (exact_) {
      const auto f = std::array{relu, negate, squared_relu, scale, threshold}[number(5)];
      if (f == squared_relu) bound *= bound;
      if (f == scale) bound *= 2;
      if (bound > limit) return;
      id = made_.map(f, f == scale ? -2 : f == threshold ? 1 : 0, id);
    } else {
      const auto f = std::array{relu,         gelu,   gelu_tanh, silu, sigmoid,
                                squared_relu, negate, scale,     exp,  sqrt}[number(10)];
      if (f == exp || f == sqrt) id = made_.map(sigmoid, 0, id);
      const bool positive = magnitudes_ && f == negate;
      id = made_.map(positive ? scale : f, positive ? 1 : f == scale ? 0.75 : 0, id);
    }
    put(id, e.axes, bound);
  }

  // Returns a value whose axes are the last ones of e.
  entry trailing(const entry& e) {
    const extent from = chance(50) ? number(e.axes.size() + 1) : 0;
    const std::vector<axis> axes(e.axes.begin() + static_cast<std::ptrdiff_t>(from), e.axes.end());
    for (const entry& other : chance(50) ? pool_ : leaves_)
      if (chance(50) && std::ranges::equal(other.axes, axes, {}, key, key)) return other;
    return leaf(axes);
  }
  static std::pair<extent, bool> key(const axis& a) { return {a.length, a.token}; }

  void add() {
    const entry e = any(), other = trailing(e);
    if (e.bound + other.bound <= limit)
      put(chance(50) ? made_.add(e.id, other.id) : made_.add(other.id, e.id), e.axes,
          e.bound + other.bound);
  }

  // Maximum, minimum, quotient, or a part of `where`.
  void join() {
    const entry e = any(), other = trailing(e);
    const double bound = std::max(e.bound, other.bound);
    const bool swapped = chance(50);
    const ir::node_id left = swapped ? other.id : e.id, right = swapped ? e.id : other.id;
    if (chance(60)) {
      const bool greater = chance(50) || magnitudes_;
      put(greater ? made_.max(left, right) : made_.min(left, right), e.axes, bound);
    } else if (!exact_ && (swapped ? e : other).plain) {  // the divisor is above 1/2
      const ir::node_id divisor =
          made_.map(pointwise::shift, 0.5, made_.map(pointwise::sigmoid, 0, right));
      put(made_.divide(left, divisor), e.axes, 2 * e.bound);
    } else if (exact_) {  // otherwise rounding would change the sign of a condition
      const pass_kind others = chance(50) ? pass_kind::drop : pass_kind::above;
      put(made_.join(chance(40) ? pass_kind::keep : others, e.id, other.id), e.axes, e.bound);
    }
  }

  void multiply() {
    const entry e = any(), other = trailing(e);
    if (e.bound * other.bound <= limit)
      put(made_.multiply(e.id, other.id), e.axes, e.bound * other.bound);
  }

  void row_operation() {
    const entry e = any();
    if (e.axes.empty()) return;
    const extent n = e.axes.back().length;
    using enum row_function;
    if (chance(20)) {
      const double sum = e.bound * static_cast<double>(n);
      const auto which = chance(40) || (exact_ && sum > limit) ? row_norm::max
                         : exact_ || chance(40)                ? row_norm::l1
                         : chance(50)                          ? row_norm::l2
                                                               : row_norm::mean;
      return put(made_.norm(which, e.id), {e.axes.begin(), e.axes.end() - 1},
                 which == row_norm::max ? e.bound : sum);
    }
    if (!exact_ && (chance(50) || !e.plain)) {
      const auto fn =
          std::array{softmax, softmax, entmax, layer_norm, rms_norm, clamped_rms_norm}[number(6)];
      const double parameter = fn == entmax       ? std::array{1.5, 2.0, 1.25}[number(3)]
                               : fn == layer_norm ? 1
                                                  : 1e-3;
      return put(made_.map_rows(fn, parameter, e.id), e.axes, e.bound);
    }
    const auto weights = exact_ || chance(50) ? weighting::score
                         : chance(50)         ? weighting::softmax
                                              : weighting::softmax_of_all;
    const extent k = chance(20) ? n : chance(10) ? 0 : number(std::min<extent>(n, 9) + 1);
    const bool by_mass = !exact_ && chance(50);
    if (!by_mass && chance(15)) {
      const ir::node_id ranked = leaf(e.axes).id;
      return put(made_.select({selection_rule::kind::top_k, k, 0, weights}, e.id, ranked), e.axes,
                 e.bound);
    }
    put(made_.select(
            {by_mass ? selection_rule::kind::top_p : selection_rule::kind::top_k, k, 0.6, weights},
            e.id),
        e.axes, e.bound);
  }

  void concat() {
    const entry e = any();
    if (e.axes.empty()) return;
    const extent at = number(e.axes.size());
    if (e.axes[at].token) return;
    if (at + 1 == e.axes.size() && chance(50)) {
      std::vector<axis> longer = e.axes;
      ++longer[at].length;
      return put(made_.make(ir::append_node{e.id}), std::move(longer), std::max(e.bound, 1.0));
    }
    std::vector<ir::node_id> parts{e.id};
    std::vector<axis> axes = e.axes, other = e.axes;
    for (extent k = number(3); k > 0; --k) {
      other[at].length = chance(50) ? e.axes[at].length : length();
      axes[at].length += other[at].length;
      parts.push_back(chance(20) && other[at].length == e.axes[at].length ? e.id : leaf(other).id);
    }
    if (volume(axes) <= elements)
      put(made_.concat(std::move(parts), at), std::move(axes), std::max(e.bound, 2.0));
  }

  // The labels of e: 't' for the token, then letters from `first` on.
  static std::string name(const entry& e, char first) {
    std::string labels;
    for (const axis& a : e.axes) labels += a.token ? 't' : first++;
    return labels;
  }

  // The usual operation of layers: most axes of e are contracted with a weight, which adds new axes
  // that are often wide.
  void product() {
    const entry e = any();
    const std::string labels = name(e, 'a');
    std::string weight, result;
    std::vector<axis> axes, of_weight;
    double bound = 2 * e.bound, work = volume(e.axes);
    for (extent k = 0; k < labels.size(); ++k) {
      if (labels[k] != 't' && chance(85)) {
        weight += labels[k];
        of_weight.push_back(e.axes[k]);
        bound *= static_cast<double>(std::max<extent>(1, e.axes[k].length));
      } else {
        result += labels[k];
        axes.push_back(e.axes[k]);
      }
    }
    for (char c = 'x'; c == 'x' || (c == 'y' && chance(25)); ++c) {
      const axis made{chance(50) ? length() : pick({33, 70, 150, 200}), false};
      const extent at = number(weight.size() + 1);
      weight.insert(weight.begin() + static_cast<std::ptrdiff_t>(at), c);
      of_weight.insert(of_weight.begin() + static_cast<std::ptrdiff_t>(at), made);
      result += c;
      axes.push_back(made);
      work *= static_cast<double>(std::max<extent>(1, made.length));
    }
    if (work > 25000 || volume(axes) > elements || axes.size() > 5 || (exact_ && bound > limit))
      return;
    const entry w = leaf(of_weight);
    ir::node_id id = made_.einsum(labels + ',' + weight + "->" + result, {e.id, w.id});
    if (chance(20) && 2 * bound <= limit) {
      const entry skip = leaf(of_weight);
      id = made_.add(id, made_.einsum(labels + ',' + weight + "->" + result, {e.id, skip.id}));
      bound *= 2;
    }
    put(id, axes, bound);
    if (chance(50)) add();
    if (chance(50)) map();
    if (chance(exact_ ? 40 : 15)) row_operation();
  }

  // Two branches are decoded together, as "tn,no,th,ho->to".
  void mixture() {
    const entry a = any(), b = any();
    if (!has_tokens_ || a.axes.size() < 2 || b.axes.size() < 2 || !a.axes[0].token ||
        !b.axes[0].token)
      return;
    const std::string left = name(a, 'a'), right = name(b, 'k');
    const axis made{length(), false};
    std::vector<axis> c(a.axes.begin() + 1, a.axes.end()), d(b.axes.begin() + 1, b.axes.end());
    const double inner = volume(c) * volume(d), bound = 4 * a.bound * b.bound * inner;
    if (inner * static_cast<double>(std::max<extent>(1, tokens_) *
                                    std::max<extent>(1, made.length)) >
            60000 ||
        (exact_ && bound > limit))
      return;
    c.push_back(made);
    d.push_back(made);
    const entry u = leaf(c), v = leaf(d);
    put(made_.einsum(left + ',' + left.substr(1) + "z," + right + ',' + right.substr(1) + "z->tz",
                     {a.id, u.id, b.id, v.id}),
        {{tokens_, true}, made}, bound);
  }

  void einsum() {
    std::vector<entry> in{any()};
    std::string labels, subscripts;
    std::vector<axis> lengths;  // lengths of the labels
    if (has_tokens_) {
      labels = "t";
      lengths = {{tokens_, true}};
    }
    const auto label = [&](const axis& a) {
      if (a.token) return 't';
      if (chance(40))
        for (extent k = 0; k < labels.size(); ++k)
          if (!lengths[k].token && lengths[k].length == a.length && chance(60)) return labels[k];
      labels += static_cast<char>('a' + labels.size() + (labels.size() + 'a' >= 't'));
      lengths.push_back(a);
      return labels.back();
    };
    const auto append = [&](const entry& e) {
      for (const axis& a : e.axes) subscripts += label(a);
    };
    append(in[0]);
    const extent operands = chance(10) ? 1 : 2 + number(chance(30) ? 5 : 3);
    while (in.size() < operands) {
      const auto& old = chance(50) ? pool_ : leaves_;
      if (!old.empty() && chance(20)) {
        in.push_back(old[number(old.size())]);
        subscripts += ',';
        append(in.back());
        continue;
      }
      std::vector<axis> axes;
      if (has_tokens_ && chance(20)) axes.push_back({tokens_, true});
      std::string own;
      for (extent k = chance(10) ? 0 : 1 + number(3); k > 0; --k) {
        const extent some = labels.empty() ? 0 : number(labels.size());
        if (!labels.empty() && chance(70) && !lengths[some].token) {
          axes.push_back(lengths[some]);
          own += labels[some];
        } else {
          axes.push_back({chance(70) ? pick({1, 2, 3, 4, 5}) : length(), false});
          own += label(axes.back());
        }
      }
      subscripts += ',';
      if (!axes.empty() && axes[0].token) subscripts += 't';
      subscripts += own;
      in.push_back(leaf(axes));
    }
    std::string result;
    std::vector<axis> axes;
    double work = 1, bound = 1;
    for (extent k = 0; k < labels.size(); ++k) {
      const bool used = has(subscripts, labels[k]);
      if (used) work *= static_cast<double>(std::max<extent>(1, lengths[k].length));
      if (used && axes.size() < 5 && chance(lengths[k].token ? 95 : 45)) {
        result += labels[k];
        axes.push_back(lengths[k]);
      } else if (used) {
        bound *= static_cast<double>(std::max<extent>(1, lengths[k].length));
      }
    }
    for (const entry& e : in) bound *= e.bound;
    if (work > 25000 || volume(axes) > elements || (exact_ && bound > limit)) return;
    for (extent k = 1; k < axes.size(); ++k)
      if (chance(30)) {
        const extent j = chance(90) && axes[0].token ? 1 + number(k) : number(k + 1);
        std::swap(axes[k], axes[j]);
        std::swap(result[k], result[j]);
      }
    std::vector<ir::node_id> ids;
    for (const entry& e : in) ids.push_back(e.id);
    put(made_.einsum(subscripts + "->" + result, std::move(ids)), std::move(axes), bound);
  }

  static double volume(const std::vector<axis>& axes) {
    double v = 1;
    for (const axis& a : axes) v *= static_cast<double>(std::max<extent>(1, a.length));
    return v;
  }

  static constexpr double limit = 1 << 23, elements = 30000;

  bool magnitudes_;
  std::mt19937 bits_;
  bool exact_ = false, has_tokens_ = false;
  extent tokens_ = 1;
  ir::graph made_;
  ir::node_id root_{};
  std::map<ir::node_id, ir::node_id> copies_;
  std::vector<entry> pool_, leaves_;  // results of operations, and the rest
};

}  // namespace fmoe::test

// SPDX-License-Identifier: MIT
// Compares muMoE with loops in double written from its equations, which make every matrix of an
// expert entry by entry.
#include <fmoe/mumoe.hpp>

#include <functional>

#include "support/mixture.hpp"
#include "support/oracle.hpp"
#include "support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using row = std::vector<double>;
using matrix = std::vector<row>;
using index = std::vector<extent>;

template <class T, std::size_t Rank>
double at(const tensor<T, Rank>& t, const extent* i) {
  extent offset = 0;
  for (extent k = 0; k < Rank; ++k) offset = offset * t.shape()[k] + i[k];
  return static_cast<double>(t.data()[offset]);
}
template <class T, std::size_t Rank>
double at(const tensor<T, Rank>& t, std::initializer_list<extent> i) {
  return at(t, i.begin());
}

// Calls f with every index below `lengths`.
void for_each(const index& lengths, const auto& f) {
  index i(lengths.size());
  for (extent n = element_count(lengths); n-- > 0;) {
    f(i);
    for (extent k = lengths.size(); k-- > 0;) {
      if (++i[k] < lengths[k]) break;
      i[k] = 0;
    }
  }
}

// W[n, i, o], by the definition of each decomposition.
template <extent E, class T>
double weight(const cp_experts<E, T>& w, const index& n, extent i, extent o) {
  double sum = 0;
  for (extent r = 0; r < w.input.shape()[1]; ++r) {
    double product = at(w.input, {i, r}) * at(w.output, {o, r});
    for (extent e = 0; e < E; ++e) product *= at(w.experts[e], {n[e], r});
    sum += product;
  }
  return sum;
}
template <extent E, class T>
double weight(const tr_experts<E, T>& w, const index& n, extent i, extent o) {
  index ranks;
  for (const auto& u : w.experts) ranks.push_back(u.shape()[0]);
  ranks.insert(ranks.end(), {w.input.shape()[0], w.output.shape()[0]});
  double trace = 0;
  for_each(ranks, [&](const index& r) {
    double product = at(w.input, {r[E], i, r[E + 1]}) * at(w.output, {r[E + 1], o, r[0]});
    for (extent e = 0; e < E; ++e) product *= at(w.experts[e], {r[e], n[e], r[e + 1]});
    trace += product;
  });
  return trace;
}
template <extent E, class T>
double weight(const tucker_experts<E, T>& w, const index& n, extent i, extent o) {
  double sum = 0;
  for_each(index(w.core.shape().begin(), w.core.shape().end()), [&](const index& r) {
    double product = at(w.core, r.data()) * at(w.input, {i, r[E]}) * at(w.output, {o, r[E + 1]});
    for (extent e = 0; e < E; ++e) product *= at(w.experts[e], {n[e], r[e]});
    sum += product;
  });
  return sum;
}
template <extent E, class T>
double weight(const dense_experts<E, T>& w, index n, extent i, extent o) {
  n.insert(n.end(), {i, o});
  return at(w.weight, n.data());
}

row normalised(row x) {
  double mean = 0, variance = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  for (double& v : x) v = (v - mean) / std::sqrt(variance + 1e-5);
  return x;
}

// p = [(alpha - 1) s - tau]_+^(1 / (alpha - 1)), tau by bisection; softmax for alpha = 1.
row phi(row s, double alpha) {
  const double most = *std::ranges::max_element(s);
  double low = -1, high = 0, sum = 0;
  const auto p = [&](double v, double tau) {
    return alpha == 1 ? std::exp(v - most)
                      : std::pow(std::max((alpha - 1) * (v - most) - tau, 0.0), 1 / (alpha - 1));
  };
  for (int step = 0; step < 100; ++step) {
    sum = 0;
    for (const double v : s) sum += p(v, (low + high) / 2);
    (sum >= 1 ? low : high) = (low + high) / 2;
  }
  for (double& v : s) v = p(v, low) / (alpha == 1 ? sum : 1);
  return s;
}

template <extent E, class T>
row coefficients(const expert_gate<E, T>& g, const row& x, extent level) {
  row s(g.projections[level].shape()[1]);
  for (extent n = 0; n < s.size(); ++n) {
    for (extent i = 0; i < x.size(); ++i) s[n] += x[i] * at(g.projections[level], {i, n});
    if (!g.means[level].empty())
      s[n] = (s[n] - at(g.means[level], {n})) / std::sqrt(at(g.variances[level], {n}) + 1e-5);
  }
  return phi(g.means[level].empty() && g.layer_norm ? normalised(s) : s, g.alpha);
}

// Every W[n, i, o] of the experts of a layer, the last index fastest.
struct matrices {
  index lengths;  // of n, i and o
  row entries;

  template <class Experts, extent E, class T>
  matrices(const Experts& w, const expert_gate<E, T>& g) {
    for (const auto& level : g.projections) lengths.push_back(level.shape()[1]);
    lengths.insert(lengths.end(), {w.inputs(), w.outputs()});
    for_each(lengths, [&](const index& at) {
      entries.push_back(weight(w, index(at.begin(), at.end() - 2), at[E], at[E + 1]));
    });
  }
};

template <class Experts>
std::vector<matrices> matrices_of(const mumoe<Experts>& l) {
  return {matrices(l.experts, l.gate)};
}
template <class Experts>
std::vector<matrices> matrices_of(const mumoe_block<Experts>& l) {
  return {matrices(l.first, l.gate), matrices(l.second, l.gate)};
}

bool is_any(const index&) { return true; }

// Returns the sum over n of a_n W_n' z, for those n that count.
template <extent E, class T>
row mixture(const matrices& w, const expert_gate<E, T>& g, const row& x, row z,
            const std::function<bool(const index&)>& is_counted = is_any) {
  const extent inputs = w.lengths[E], outputs = w.lengths[E + 1];
  if (inputs == z.size() + 1) z.push_back(1);
  matrix a;
  for (extent e = 0; e < E; ++e) a.push_back(coefficients(g, x, e));
  row y(outputs);
  const double* entry = w.entries.data();
  for_each(index(w.lengths.begin(), w.lengths.end() - 2), [&](const index& n) {
    double c = is_counted(n);
    for (extent e = 0; e < E; ++e) c *= a[e][n[e]];
    for (extent i = 0; i < inputs; ++i)
      for (extent o = 0; o < outputs; ++o) y[o] += c * z[i] * *entry++;
  });
  return y;
}

template <class T>
row seen_by_experts(const affine_layer_norm<T>& norm, row x) {
  if (norm.weight.empty()) return x;
  x = normalised(x);
  for (extent i = 0; i < x.size(); ++i) x[i] = x[i] * at(norm.weight, {i}) + at(norm.bias, {i});
  return x;
}

template <class Experts>
row output(const mumoe<Experts>& l, const std::vector<matrices>& w, const row& x) {
  return mixture(w[0], l.gate, x, seen_by_experts(l.input_norm, x));
}
template <class Experts>
row hidden(const mumoe_block<Experts>& l, const std::vector<matrices>& w, const row& x) {
  row h = mixture(w[0], l.gate, x, seen_by_experts(l.input_norm, x));
  for (double& v : h) v = v / 2 * (1 + std::erf(v / std::sqrt(2.0)));
  return h;
}
template <class Experts>
row output(const mumoe_block<Experts>& l, const std::vector<matrices>& w, const row& x) {
  return mixture(w[1], l.gate, x, hidden(l, w, x));
}

// Returns the norms of what the experts of one level add to the output.
row added(const matrices& w, const auto& gate, const row& x, const row& z, extent level) {
  row norms;
  for (extent n = 0; n < w.lengths[level]; ++n) {
    double squares = 0;
    for (const double y : mixture(w, gate, x, z, [&](const index& i) { return i[level] == n; }))
      squares += y * y;
    norms.push_back(std::sqrt(squares));
  }
  return norms;
}
template <class Experts>
row added(const mumoe<Experts>& l, const std::vector<matrices>& w, const row& x, extent level) {
  return added(w[0], l.gate, x, seen_by_experts(l.input_norm, x), level);
}
template <class Experts>
row added(const mumoe_block<Experts>& l, const std::vector<matrices>& w, const row& x,
          extent level) {
  return added(w[1], l.gate, x, hidden(l, w, x), level);
}

template <class T>
row row_of(const tensor<T, 2>& x, extent t) {
  return {x.data() + t * x.shape()[1], x.data() + (t + 1) * x.shape()[1]};
}

// Compares each row of y with `of` of the row of x, relative to the largest entry.
template <class T>
void check_rows(const tensor<T, 2>& y, const tensor<T, 2>& x,
                const std::function<row(const row&)>& of) {
  row expected;
  for (extent t = 0; t < x.shape()[0]; ++t) {
    const row r = of(row_of(x, t));
    expected.insert(expected.end(), r.begin(), r.end());
  }
  REQUIRE(y.size() == expected.size());
  CHECK(relative_error(y.data(), expected) <= (sizeof(T) == 4 ? 2e-6 : 1e-13));
}

constexpr extent counts[] = {5, 3, 2, 1, 2, 2}, ranks[] = {3, 2, 4, 2, 3, 1, 2, 2};
constexpr extent I = 7, O = 6, H = 9;

template <extent E, class T>
void fill(cp_experts<E, T>& w, extent in, extent out, unsigned seed) {
  for (extent e = 0; e < E; ++e)
    w.experts[e] = random<parameter<T, 2>>({counts[e], 4}, seed + static_cast<unsigned>(e));
  w.input = random<parameter<T, 2>>({in, 4}, seed + 10);
  w.output = random<parameter<T, 2>>({out, 4}, seed + 11);
}
template <extent E, class T>
void fill(tr_experts<E, T>& w, extent in, extent out, unsigned seed) {
  for (extent e = 0; e < E; ++e)
    w.experts[e] = random<parameter<T, 3>>({ranks[e], counts[e], ranks[e + 1]},
                                           seed + static_cast<unsigned>(e));
  w.input = random<parameter<T, 3>>({ranks[E], in, ranks[E + 1]}, seed + 10);
  w.output = random<parameter<T, 3>>({ranks[E + 1], out, ranks[0]}, seed + 11);
}
template <extent E, class T>
void fill(tucker_experts<E, T>& w, extent in, extent out, unsigned seed) {
  std::array<extent, E + 2> core;
  std::copy_n(ranks, E + 2, core.begin());
  for (extent e = 0; e < E; ++e)
    w.experts[e] = random<parameter<T, 2>>({counts[e], core[e]}, seed + static_cast<unsigned>(e));
  w.input = random<parameter<T, 2>>({in, core[E]}, seed + 10);
  w.output = random<parameter<T, 2>>({out, core[E + 1]}, seed + 11);
  w.core = random<parameter<T, E + 2>>(core, seed + 12);
}
template <extent E, class T>
void fill(dense_experts<E, T>& w, extent in, extent out, unsigned seed) {
  std::array<extent, E + 2> shape;
  std::copy_n(counts, E, shape.begin());
  shape[E] = in;
  shape[E + 1] = out;
  w.weight = random<parameter<T, E + 2>>(shape, seed);
}

template <extent E, class T>
void fill(expert_gate<E, T>& g, unsigned seed) {
  for (extent e = 0; e < E; ++e)
    g.projections[e] = random<parameter<T, 2>>({I, counts[e]}, seed + static_cast<unsigned>(e));
}
template <extent E, class T>
void give_statistics(expert_gate<E, T>& g) {
  for (extent e = 0; e < E; ++e) {
    g.means[e] = random<parameter<T, 1>>({counts[e]}, 70);
    g.variances[e] = random<parameter<T, 1>>({counts[e]}, 71);
    for (extent n = 0; n < counts[e]; ++n) g.variances[e](n) *= g.variances[e](n);
    g.variances[e](0) = static_cast<T>(1e-4);  // where epsilon matters
  }
}
template <class T>
affine_layer_norm<T> random_norm() {
  return {random<parameter<T, 1>>({I}, 80), random<parameter<T, 1>>({I}, 81)};
}

template <class Experts>
mumoe<Experts> random_layer(bool bias = true) {
  mumoe<Experts> l;
  fill(l.gate, 1);
  fill(l.experts, I + bias, O, 20);
  return l;
}
template <class Experts>
mumoe_block<Experts> random_block(bool bias = true) {
  mumoe_block<Experts> l;
  fill(l.gate, 1);
  fill(l.first, I + bias, H, 20);
  fill(l.second, H + bias, O, 40);
  return l;
}

// `w` are the experts' matrices: the same for all variants of a gate.
template <class Layer>
void check(const Layer& l, const std::vector<matrices>& w, const char* what) {
  INFO(what);
  using T = typename Layer::T;
  auto x = random<tensor<T, 2>>({6, I}, 90);
  for (extent i = 0; i < I; ++i) x(1, i) = x(1, i) / 100;  // scores whose variance is near epsilon
  check_rows(evaluate(l(x)), x, [&](const row& r) { return output(l, w, r); });
  if constexpr (requires { l.hidden(x); })
    check_rows(evaluate(l.hidden(x)), x, [&](const row& r) { return hidden(l, w, r); });
  check_rows(evaluate(l.coefficients(x)), x,
             [&](const row& r) { return coefficients(l.gate, r, 0); });
  check_rows(evaluate(l.contribution_norms(x)), x, [&](const row& r) { return added(l, w, r, 0); });
  if constexpr (std::tuple_size_v<decltype(l.gate.projections)> > 1) {
    check_rows(evaluate(l.template coefficients<1>(x)), x,
               [&](const row& r) { return coefficients(l.gate, r, 1); });
    check_rows(evaluate(l.template contribution_norms<1>(x)), x,
               [&](const row& r) { return added(l, w, r, 1); });
  }
}

template <class Layer>
void check(const Layer& l, const char* what) {
  check(l, matrices_of(l), what);
}

template <class Layer>
void check_variants(Layer l) {
  const auto w = matrices_of(l);
  check(l, w, "layer norm");
  l.gate.alpha = 1;
  check(l, w, "softmax");
  l.gate.layer_norm = false;
  check(l, w, "softmax without a norm");
  l.gate.alpha = 1.5;
  l.input_norm = random_norm<typename Layer::T>();
  check(l, w, "entmax without a norm, input layer norm");
  give_statistics(l.gate);
  check(l, w, "batch norm, input layer norm");
  l.gate.alpha = 2;
  check(l, w, "sparsemax");
}

template <template <extent, class> class Experts>
void check_kind() {
  check_variants(random_layer<Experts<1, float>>());
  check_variants(random_layer<Experts<2, float>>(false));
  check_variants(random_layer<Experts<3, float>>());
  check_variants(random_layer<Experts<2, double>>());
  check(random_layer<Experts<6, float>>(), "six levels");
  check_variants(random_block<Experts<1, float>>(false));
  check_variants(random_block<Experts<2, double>>());
}

TEST_CASE("CP is its equation", "[mumoe]") { check_kind<cp_experts>(); }
TEST_CASE("tensor ring is its equation", "[mumoe]") { check_kind<tr_experts>(); }
TEST_CASE("Tucker is its equation", "[mumoe]") { check_kind<tucker_experts>(); }
TEST_CASE("dense is its equation", "[mumoe]") { check_kind<dense_experts>(); }

template <class Experts>
void check_experts(auto... n) {
  const auto l = random_layer<Experts>();
  const auto w = evaluate(l.expert(n...));
  row expected;
  for (extent i = 0; i <= I; ++i)
    for (extent o = 0; o < O; ++o)
      expected.push_back(weight(l.experts, {static_cast<extent>(n)...}, i, o));
  REQUIRE(w.shape() == std::array<extent, 2>{I + 1, O});
  CHECK(relative_error(w.data(), expected) <= 1e-6);
}

TEST_CASE("an expert's matrix is a slice of W", "[mumoe]") {
  check_experts<cp_experts<1, float>>(4);
  check_experts<cp_experts<3, float>>(4, 2, 1);
  check_experts<tr_experts<1, float>>(3);
  check_experts<tr_experts<2, float>>(3, 1);
  check_experts<tucker_experts<2, float>>(3, 1);
  check_experts<dense_experts<1, float>>(4);
  check_experts<dense_experts<3, float>>(4, 2, 1);
  const auto l = random_layer<cp_experts<2, float>>();
  CHECK_THROWS_WITH(l.expert(5, 0), "[expert] there is no expert 5 among 5 of level 0");
  CHECK_THROWS_WITH(l.expert(0, -1), "[expert] there is no expert -1 among 3 of level 1");
}

// The layer has one or two levels; with a bias, the experts read a 1 after x.
template <template <extent, class> class Experts, extent Levels>
void check_sum(bool bias) {
  const auto l = random_layer<Experts<Levels, double>>(bias);
  const auto x = random<tensor<double, 2>>({6, I}, 90), ones = evaluate(append_one(x));
  const auto a = evaluate(l.template coefficients<0>(x)),
             b = evaluate(l.template coefficients<Levels - 1>(x));
  row y;
  const auto add = [&](const auto& coefficient, const auto& expert) {
    add_expert(y, coefficient, evaluate(einsum<"ti,io->to">(bias ? ones : x, evaluate(expert))));
  };
  for (extent n = 0; n < counts[0]; ++n)
    if constexpr (Levels == 1) {
      add([&](extent t) { return a(t, n); }, l.expert(n));
    } else {
      for (extent m = 0; m < counts[1]; ++m)
        add([&](extent t) { return a(t, n) * b(t, m); }, l.expert(n, m));
    }
  CHECK(relative_error(evaluate(l(x)).data(), y) <= 1e-13);
}

template <template <extent, class> class Experts>
void check_sums() {
  for (const bool bias : {false, true}) {
    check_sum<Experts, 1>(bias);
    check_sum<Experts, 2>(bias);
  }
}

TEST_CASE("a layer is the sum of its experts", "[mumoe]") {
  check_sums<cp_experts>();
  check_sums<tr_experts>();
  check_sums<tucker_experts>();
  check_sums<dense_experts>();
}

TEST_CASE("a tensor train is a ring whose first rank is 1", "[mumoe]") {
  auto l = random_layer<tr_experts<1, float>>();
  l.experts.experts[0] = random<parameter<float, 3>>({1, 5, 3}, 1);
  l.experts.input = random<parameter<float, 3>>({3, I + 1, 4}, 2);
  l.experts.output = random<parameter<float, 3>>({4, O, 1}, 3);
  check(l, "tensor train");
}

TEST_CASE("one expert has the coefficient 1", "[mumoe]") {
  auto l = random_layer<cp_experts<1, float>>();
  l.gate.projections[0] = random<parameter<float, 2>>({I, 1}, 1);
  l.experts.experts[0] = random<parameter<float, 2>>({1, 4}, 2);
  const auto x = random<tensor<float, 2>>({5, I}, 3);
  for (const double alpha : {1.5, 1.0})
    for (const bool normalised : {true, false}) {
      l.gate.alpha = alpha;
      l.gate.layer_norm = normalised;
      const auto a = evaluate(l.coefficients(x));
      for (extent t = 0; t < 5; ++t) CHECK(a(t, 0) == 1);
      check(l, "one expert");
    }
}

TEST_CASE("scores far apart and infinite", "[mumoe]") {
  auto l = random_layer<cp_experts<1, float>>();
  l.gate.layer_norm = false;
  auto x = random<tensor<float, 2>>({4, I}, 3);
  for (extent i = 0; i < x.size(); ++i) x.data()[i] *= 1000;
  for (const double alpha : {1.5, 1.0}) {
    l.gate.alpha = alpha;
    const auto a = evaluate(l.coefficients(x));
    for (extent t = 0; t < 4; ++t) {
      double sum = 0;
      for (extent n = 0; n < counts[0]; ++n) sum += static_cast<double>(a(t, n));
      CHECK(std::abs(sum - 1) < 1e-6);
    }
    tensor<float, 2> one({1, I});
    std::fill_n(one.data(), I, 1.f);
    auto infinite = l;
    infinite.gate.projections[0] = parameter<float, 2>({I, counts[0]});
    std::fill_n(infinite.gate.projections[0].data(), I * counts[0],
                -std::numeric_limits<float>::infinity());
    const auto y = evaluate(infinite(one));
    for (extent o = 0; o < O; ++o) CHECK(std::isnan(y(0, o)));
  }
}

TEST_CASE("a row that is not a number stays alone; no tokens, one token", "[mumoe]") {
  const auto l = random_block<tr_experts<2, float>>();
  auto x = random<tensor<float, 2>>({5, I}, 3);
  const auto clean = evaluate(l(x));
  auto y = random<tensor<float, 2>>({5, I}, 3);
  y(2, 3) = std::numeric_limits<float>::quiet_NaN();
  const auto dirty = evaluate(l(y));
  for (extent t = 0; t < 5; ++t)
    for (extent o = 0; o < O; ++o)
      CHECK((t == 2 ? std::isnan(dirty(t, o)) : dirty(t, o) == clean(t, o)));
  CHECK(evaluate(l(tensor<float, 2>({0, I}))).shape() == std::array<extent, 2>{0, O});
  tensor<float, 2> first({1, I}, std::span<const float>(x.data(), I));
  const auto alone = evaluate(l(first));
  for (extent o = 0; o < O; ++o) CHECK(alone(0, o) == clean(0, o));
}

TEST_CASE("what does not fit throws before anything is computed", "[mumoe]") {
  const auto x = random<tensor<float, 2>>({5, I}, 3);
  const auto good = random_layer<cp_experts<2, float>>();
  auto l = good;
  l.experts.input = random<parameter<float, 2>>({I + 2, 4}, 1);
  CHECK_THROWS_AS(evaluate(l(x)), shape_error);
  l = good;
  l.experts.input = random<parameter<float, 2>>({I - 1, 4}, 1);
  CHECK_THROWS_AS(evaluate(l(x)), shape_error);
  l = good;
  l.experts.experts[1] = random<parameter<float, 2>>({4, 4}, 1);
  CHECK_THROWS_AS(evaluate(l(x)), shape_error);
  l = good;
  l.experts.output = random<parameter<float, 2>>({O, 5}, 1);
  CHECK_THROWS_WITH(evaluate(l(x)), test::containing("'r' is 4 in operand 2 and 5 in operand 6"));
  l = good;
  l.gate.projections[1] = random<parameter<float, 2>>({I + 1, 3}, 1);
  CHECK_THROWS_AS(evaluate(l(x)), shape_error);
  CHECK_THROWS_AS(evaluate(good(random<tensor<float, 2>>({5, I + 1}, 3))), shape_error);
  CHECK_THROWS_AS(evaluate(cp_mumoe<>()(x)), value_error);
  l = good;
  l.input_norm.weight = random<parameter<float, 1>>({I}, 1);
  CHECK_THROWS_AS(evaluate(l(x)), value_error);
  l = good;
  l.gate.alpha = 0.5;
  CHECK_THROWS_AS(evaluate(l(x)), value_error);
  CHECK_THROWS_AS(compile(l, 5), value_error);

  tensor<float, 2> y({5, O});
  std::fill_n(y.data(), y.size(), 7.f);
  CHECK_THROWS_AS(compile(good, 5)(random<tensor<float, 2>>({5, I + 1}, 3), y), shape_error);
  CHECK(std::all_of(y.data(), y.data() + y.size(), [](float v) { return v == 7; }));
}

TEST_CASE("running variances are finite and not negative, and all there", "[mumoe]") {
  const auto x = random<tensor<float, 2>>({5, I}, 3);
  auto l = random_layer<cp_experts<2, float>>();
  give_statistics(l.gate);
  evaluate(l(x));
  for (const float bad :
       {-1e-9f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto broken = l;
    broken.gate.variances[1] = parameter<float, 1>({counts[1]});
    broken.gate.variances[1](2) = bad;
    CHECK_THROWS_WITH(evaluate(broken(x)), test::containing("expert 2 of level 1"));
  }
  l.gate.variances[1] = parameter<float, 1>({counts[1]});
  check(l, "a variance of zero");
  l.gate.means[1] = {};
  CHECK_THROWS_AS(evaluate(l(x)), value_error);
}

TEST_CASE("a compiled layer is the evaluated one, bit for bit", "[mumoe]") {
  const auto same = [](const auto& layer) {
    const auto x = random<tensor<float, 2>>({40, I}, 3);
    const auto y = evaluate(layer(x));
    tensor<float, 2> z(y.shape());
    compile(layer, 64)(x, z);
    CHECK(std::memcmp(y.data(), z.data(), y.size() * sizeof(float)) == 0);
  };
  same(random_layer<cp_experts<2, float>>());
  auto block = random_block<tr_experts<1, float>>();
  block.input_norm = random_norm<float>();
  give_statistics(block.gate);
  same(block);
}

// The parameters of the wide layer become those of the narrow one.
template <class T>
void round_to(cp_mumoe<2, T>& narrow, cp_mumoe<2>& wide) {
  const auto rounded = [](auto& from, auto& to) {
    to = std::remove_reference_t<decltype(to)>(from.shape());
    for (extent i = 0; i < from.size(); ++i) {
      to.data()[i] = convert<T>(from.data()[i]);
      from.data()[i] = convert<float>(to.data()[i]);
    }
  };
  for (extent e = 0; e < 2; ++e) {
    rounded(wide.gate.projections[e], narrow.gate.projections[e]);
    rounded(wide.gate.means[e], narrow.gate.means[e]);
    rounded(wide.gate.variances[e], narrow.gate.variances[e]);
    rounded(wide.experts.experts[e], narrow.experts.experts[e]);
  }
  rounded(wide.input_norm.weight, narrow.input_norm.weight);
  rounded(wide.input_norm.bias, narrow.input_norm.bias);
  rounded(wide.experts.input, narrow.experts.input);
  rounded(wide.experts.output, narrow.experts.output);
}

TEMPLATE_TEST_CASE("parameters of 16 bits give the bits of the same ones widened", "[mumoe]", bf16,
                   f16) {
  auto wide = random_layer<cp_experts<2, float>>();
  wide.input_norm = random_norm<float>();
  give_statistics(wide.gate);
  cp_mumoe<2, TestType> narrow;
  round_to(narrow, wide);
  const auto check_bits = [&](extent tokens) {
    const auto x = random<tensor<float, 2>>({tokens, I}, 90);
    const auto y = evaluate(narrow(x)), z = evaluate(wide(x));
    CHECK(std::memcmp(y.data(), z.data(), y.size() * sizeof(float)) == 0);
    check_rows(y, x, [&](const row& r) { return output(wide, matrices_of(wide), r); });
  };
  for (const extent tokens : {extent{1}, extent{14}}) check_bits(tokens);
  narrow.gate.variances[1](2) = TestType(-1.f);
  CHECK_THROWS_WITH(narrow.gate.batch_norm(), test::containing("expert 2 of level 1 is -1"));
  narrow.gate.means = narrow.gate.variances = {};
  wide.gate.means = wide.gate.variances = {};
  for (const extent tokens : {extent{1}, extent{14}}) check_bits(tokens);
}

template <class Layer>
lines plan_of(const Layer& l) {
  return describe(test::plan_of<float>(l, arguments<2>{}, 40));
}

// Rows meet each factor once. No step contracts two factors, and the bias is a slice that is added.
TEST_CASE("plans never make a weight", "[mumoe]") {
  CHECK(plan_of(random_layer<cp_experts<1, float>>()) ==
        lines{"once reduce ir->r", "gemm ti,in->tn", "layer norm tn->tn", "entmax tn->tn",
              "gemm ti,ir->tr | +", "gemm tn,nr->tr | *", "gemm tr,or->to"});
  CHECK(plan_of(random_layer<cp_experts<3, float>>(false)) ==
        lines{"gemm ti,in->tn", "layer norm tn->tn", "entmax tn->tn", "gemm ti,in->tn",
              "layer norm tn->tn", "entmax tn->tn", "gemm ti,in->tn", "layer norm tn->tn",
              "entmax tn->tn", "gemm tn,nr->tr", "gemm tm,mr->tr", "gemm tl,lr->tr",
              "gemm ti,ir->tr | * | * | *", "gemm tr,or->to"});
  CHECK(plan_of(random_layer<tr_experts<1, float>>()) ==
        lines{"once reduce qir->qr", "gemm ti,in->tn", "layer norm tn->tn", "entmax tn->tn",
              "gemm ti,qir->tqr | +", "gemm tn,pnq->tqp", "batched tqr,tqp->trp",
              "gemm trp,rop->to"});
  CHECK(plan_of(random_layer<tr_experts<3, float>>()) ==
        lines{"once reduce siu->su", "gemm ti,in->tn", "layer norm tn->tn", "entmax tn->tn",
              "gemm ti,in->tn", "layer norm tn->tn", "entmax tn->tn", "gemm ti,in->tn",
              "layer norm tn->tn", "entmax tn->tn", "gemm tn,pnq->tpq", "gemm tm,qmr->tqr",
              "gemm tl,rls->trs", "gemm ti,siu->tsu | +", "batched trs,tqr->tsq",
              "batched tsu,tsq->tuq", "batched tuq,tpq->tup", "gemm tup,uop->to"});
}

TEST_CASE("a block computes its gate once", "[mumoe]") {
  const auto plan = plan_of(random_block<cp_experts<1, float>>(false));
  CHECK(std::ranges::count(plan, "entmax tn->tn") == 1);
  CHECK(std::ranges::count(plan, "gemm ti,in->tn") == 1);
}

}  // namespace

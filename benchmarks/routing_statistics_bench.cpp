// SPDX-License-Identifier: MIT
// Measures the statistics of Monet's routing at the size of the released 1.4B model. with_routing
// is the time of router and statistics divided by the time of the router; each batch is routed and
// added in turn.
#include <numeric>

#include <fmoe/analysis/expert_correlation.hpp>
#include <fmoe/analysis/expert_domains.hpp>
#include <fmoe/monet.hpp>

#include <tbb/task_arena.h>

#include "support/contest.hpp"
#include "support/random.hpp"
#include "support/roofline.hpp"

namespace fmoe::bench {
namespace {

struct router_size {
  extent tokens, d, p, s, active;
};

// The scores have mean 0 and variance 1, so that the bound keeps about `active` of s.
monet_router<> make_router(const router_size& n) {
  parameters<float, float> p;
  const tensor<float, 1> zeros({n.p});
  tensor<float, 1> ones({n.p});
  std::fill_n(ones.data(), ones.size(), 1.0f);
  const auto keys = [&] { return p.weight(std::array{n.d, n.p * n.s}, n.d); };
  return {keys(), keys(), zeros, ones, zeros, ones, n.p, n.active};
}

// A batch that each call routes anew.
class routed_batch {
 public:
  explicit routed_batch(const router_size& n)
      : size(n),
        g1({n.tokens, n.p, n.s}),
        g2({n.tokens, n.p, n.s}),
        scores(n.tokens),
        x_(random_rows(n.tokens, n.d)) {
    for (extent t = 0; t < n.tokens; ++t) scores[t] = static_cast<double>(x_(t, 0));
  }

  void route() {
    forward1_(x_, g1);
    forward2_(x_, g2);
  }
  double kept() const {
    return static_cast<double>(g1.size() - static_cast<extent>(std::count(
                                               g1.data(), g1.data() + g1.size(), 0.0f))) /
           static_cast<double>(size.tokens * size.p);
  }

  // Returns q of expert e for each token.
  std::vector<double> coefficients(index_pair e) const {
    std::vector<double> q(size.tokens);
    for (extent t = 0; t < size.tokens; ++t)
      for (extent h = 0; h < size.p; ++h)
        q[t] += static_cast<double>(g1(t, h, e[0])) * static_cast<double>(g2(t, h, e[1]));
    return q;
  }

  router_size size;
  tensor<float, 3> g1, g2;
  std::vector<double> scores;

 private:
  tensor<float, 2> x_;
  monet_router<> router_ = make_router(size);
  compiled<float, cpu::native, 1, std::index_sequence<3>> forward1_ =
      compile([this](const auto& x) { return router_.g1(x); }, size.tokens);
  compiled<float, cpu::native, 1, std::index_sequence<3>> forward2_ =
      compile([this](const auto& x) { return router_.g2(x); }, size.tokens);
};

double mean(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

double covariance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (extent t = 0; t < a.size(); ++t) sum += (a[t] - mean(a)) * (b[t] - mean(b));
  return sum;
}

struct by_domain {
  static constexpr extent domains = 14;  // in the paper's data
  expert_domains sums;
  extent next = 0;

  explicit by_domain(extent s) : sums(s, domains) {}
  void add(const routed_batch& b) { sums.add(b.g1, b.g2, next++ % domains); }
  bool is_right(const routed_batch& b, index_pair e) const {
    const double expected = mean(b.coefficients(e));
    return std::abs(sums.mean_probability(0, e) - expected) <= 1e-12 * expected;
  }
};

struct by_score {
  expert_correlation sums;

  explicit by_score(extent s) : sums(s) {}
  void add(const routed_batch& b) { sums.add(b.g1, b.g2, b.scores); }
  bool is_right(const routed_batch& b, index_pair e) const {
    const auto q = b.coefficients(e);
    const double spread = std::sqrt(covariance(q, q) * covariance(b.scores, b.scores));
    return std::abs(sums.correlation(e) - (spread == 0 ? 0 : covariance(q, b.scores) / spread)) <
           1e-10;
  }
};

// Both in one pass.
struct by_both {
  by_domain domains;
  by_score scores;

  explicit by_both(extent s) : domains(s), scores(s) {}
  void add(const routed_batch& b) {
    add_routing(b.g1, b.g2, domains.sums.batch(domains.next++ % by_domain::domains),
                scores.sums.batch(b.scores));
  }
  bool is_right(const routed_batch& b, index_pair e) const {
    return domains.is_right(b, e) && scores.is_right(b, e);
  }
};

template <class Statistics>
void measure(benchmark::State& state, const router_size& n, extent threads, bool tiny) {
  routed_batch batch(n);
  Statistics statistics(n.s);
  batch.route();
  statistics.add(batch);
  for (extent k = 0; k < 100; ++k)
    if (!statistics.is_right(batch, {k * 7 % n.s, k * 5 % n.s}))
      return reject(state, "the statistics are not those of plain sums");
  const auto seconds_of = [threads](const auto& f) {
    const double start = seconds(threads);
    f();
    return seconds(threads) - start;
  };
  std::vector<double> alone, together, ratios;
  for (int round = 0; round < (tiny ? 1 : 11); ++round) {
    alone.push_back(seconds_of([&] { batch.route(); }));
    together.push_back(seconds_of([&] {
      batch.route();
      statistics.add(batch);
    }));
    ratios.push_back(together.back() / alone.back());
  }
  for (auto _ : state) state.SetIterationTime(median(together));
  const double a_token = 1e6 / static_cast<double>(n.tokens);
  state.counters["with_routing"] = median(ratios);
  state.counters["routing_us_a_token"] = median(alone) * a_token;
  state.counters["both_us_a_token"] = median(together) * a_token;
  state.counters["kept_a_head"] = batch.kept();
}

template <class Statistics>
void add_statistics(const std::string& name, const router_size& n, bool tiny) {
  const auto run = [n, tiny](benchmark::State& state) {
    const auto threads = static_cast<extent>(state.range(0));
    tbb::task_arena(static_cast<int>(threads)).execute([&] {
      measure<Statistics>(state, n, threads, tiny);
    });
  };
  benchmark::RegisterBenchmark(("routing_statistics/" + name).c_str(), run)
      ->ArgName("threads")
      ->Arg(1)
      ->Arg(2)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

const suite statistics_rows([](bool tiny) {
  const router_size n = tiny ? router_size{19, 24, 3, 20, 5} : router_size{1024, 2048, 8, 512, 32};
  add_statistics<by_domain>("domains", n, tiny);
  add_statistics<by_score>("correlation", n, tiny);
  add_statistics<by_both>("both", n, tiny);
});

}  // namespace
}  // namespace fmoe::bench

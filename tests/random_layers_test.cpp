// SPDX-License-Identifier: MIT
// Compares random members of every family of layers, of random small sizes and options, with the
// oracle: the plan, the naive plan and one with tiny limits, in float and double. Checks that a NaN
// in a token changes no other row. A failing seed prints its layer.
#include <fmoe/aoe.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>

#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "support/census.hpp"
#include "support/magnitudes.hpp"
#include "support/run.hpp"
#include "support/seeds.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using input = tensor<float, 2>;

struct layer {
  extent inputs;
  std::function<expr<float, 2>(const input&)> apply;
  bool mixes_rows = false;
};

class draw {
 public:
  explicit draw(unsigned seed) : bits_(seed), seed_(seed * 1000) {}

  extent number(extent below) { return bits_() % below; }
  extent between(extent least, extent most) { return least + number(most - least + 1); }
  bool chance(unsigned percent) { return bits_() % 100 < percent; }
  auto pick(auto... of) { return std::array{of...}[number(sizeof...(of))]; }

  // Fills it from N(0, 1 / sqrt(inputs)).
  template <std::size_t Rank>
  void fill(parameter<float, Rank>& p, const std::array<extent, Rank>& shape, extent inputs = 1) {
    p = random<parameter<float, Rank>>(shape, ++seed_, 1 / std::sqrt(static_cast<float>(inputs)));
  }
  // Fills it or leaves it empty.
  template <std::size_t Rank>
  void maybe(parameter<float, Rank>& p, const std::array<extent, Rank>& shape, extent inputs = 1) {
    if (chance(50)) {
      fill(p, shape, inputs);
      text << "1";
    } else {
      text << "0";
    }
  }
  void positive(parameter<float, 1>& p, extent n) {
    fill<1>(p, {n});
    for (extent i = 0; i < n; ++i) p(i) = 0.1f + p(i) * p(i);
  }

  pointwise activation() {
    using enum pointwise;
    const pointwise f = pick(gelu, gelu_tanh, silu, relu, sigmoid, squared_relu);
    text << ' ' << name_of(f);
    return f;
  }

  std::ostringstream text;  // the random choices

 private:
  std::mt19937 bits_;
  unsigned seed_;
};

template <class L>
layer of(extent inputs, L l) {
  return {inputs, [l = std::move(l)](const input& x) { return l(x); }};
}

layer draw_mxd(draw& d) {
  const extent i = d.between(1, 9), h = d.between(1, 20), n = d.between(1, 40), o = d.between(1, 7);
  d.text << "mxd i " << i << " h " << h << " n " << n << " o " << o << " parts ";
  mxd<float> l;
  d.fill(l.encoder, {i, h}, i);
  d.fill(l.gate, {i, n}, i);
  d.fill(l.scales, {n, o});
  d.fill(l.decoder, {h, o}, h);
  d.maybe(l.encoder_bias, {h});
  d.maybe(l.gate_bias, {n});
  d.maybe(l.skip, {i, o}, i);
  d.maybe(l.bias, {o});
  d.maybe(l.linear, {i, h}, i);
  if (!l.linear.empty()) d.maybe(l.linear_bias, {h});
  l.active = d.chance(10) ? all : d.between(0, n);
  l.activation = d.activation();
  d.text << " K " << l.active;
  return of(i, l);
}

layer draw_sparse(draw& d) {
  const extent i = d.between(1, 9), h = d.between(1, 60), o = d.chance(50) ? i : d.between(1, 9);
  d.text << "sparse_mlp i " << i << " h " << h << " o " << o << " parts ";
  sparse_mlp<float> l;
  d.fill(l.encoder, {i, h}, i);
  d.fill(l.decoder, {h, o});
  d.maybe(l.encoder_bias, {h});
  d.maybe(l.skip, {i, o}, i);
  d.maybe(l.bias, {o});
  if (i == o) d.maybe(l.input_bias, {i});
  l.active = d.chance(10) ? all : d.between(0, std::min<extent>(h, 12));
  l.activation = d.activation();
  d.text << " K " << l.active;
  if (d.chance(50)) return of(i, l);
  d.maybe(l.threshold, {h});
  d.maybe(l.gate_bias, {h});
  d.maybe(l.magnitude_scale, {h});
  d.maybe(l.magnitude_bias, {h});
  l.of_absolute_values = d.chance(30);
  l.of_groups = l.active != all && l.active > 0 && h % l.active == 0 && d.chance(50);
  l.in_decoder_norms = d.chance(30);
  if (i > 2)
    l.scaling = d.pick(row_scaling::none, row_scaling::constant_norm, row_scaling::layer_norm);
  l.scales_back = d.chance(50);
  d.text << " absolute " << l.of_absolute_values << " groups " << l.of_groups << " norms "
         << l.in_decoder_norms << " scaling " << static_cast<int>(l.scaling) << " back "
         << l.scales_back;
  return of(i, l);
}

template <extent E>
void draw_experts(draw& d, cp_experts<E, float>& w, const std::array<extent, E>& n, extent in,
                  extent out) {
  const extent r = d.between(1, 5);
  for (extent e = 0; e < E; ++e) d.fill(w.experts[e], {n[e], r});
  d.fill(w.input, {in, r}, in);
  d.fill(w.output, {out, r}, r);
}
template <extent E>
void draw_experts(draw& d, tr_experts<E, float>& w, const std::array<extent, E>& n, extent in,
                  extent out) {
  std::array<extent, E + 2> r;
  for (extent& rank : r) rank = d.between(1, E == 3 ? 2 : 3);
  for (extent e = 0; e < E; ++e) d.fill(w.experts[e], {r[e], n[e], r[e + 1]});
  d.fill(w.input, {r[E], in, r[E + 1]}, in);
  d.fill(w.output, {r[E + 1], out, r[0]});
}
template <extent E>
void draw_experts(draw& d, tucker_experts<E, float>& w, const std::array<extent, E>& n, extent in,
                  extent out) {
  std::array<extent, E + 2> r;
  for (extent& rank : r) rank = d.between(1, E == 3 ? 2 : 3);
  for (extent e = 0; e < E; ++e) d.fill(w.experts[e], {n[e], r[e]});
  d.fill(w.input, {in, r[E]}, in);
  d.fill(w.output, {out, r[E + 1]});
  d.fill(w.core, r);
}
template <extent E>
void draw_experts(draw& d, dense_experts<E, float>& w, const std::array<extent, E>& n, extent in,
                  extent out) {
  std::array<extent, E + 2> shape;
  std::copy_n(n.begin(), E, shape.begin());
  shape[E] = in;
  shape[E + 1] = out;
  d.fill(w.weight, shape, in);
}

template <extent E>
std::array<extent, E> draw_gate(draw& d, auto& l, extent i) {
  std::array<extent, E> n;
  d.text << " experts";
  for (extent e = 0; e < E; ++e) {
    n[e] = d.between(1, E == 1 ? 12 : E == 2 ? 4 : 3);
    d.text << ' ' << n[e];
    d.fill(l.gate.projections[e], {i, n[e]});
  }
  l.gate.alpha = d.pick(1.0, 1.5, 2.0, 1.25);
  const extent norm = d.number(3);
  d.text << " alpha " << l.gate.alpha << " norm " << norm << " input norm ";
  l.gate.layer_norm = norm == 1;
  for (extent e = 0; norm == 2 && e < E; ++e) {
    d.fill(l.gate.means[e], {n[e]});
    d.positive(l.gate.variances[e], n[e]);
  }
  d.maybe(l.input_norm.weight, {i});
  if (!l.input_norm.weight.empty()) d.fill(l.input_norm.bias, {i});
  return n;
}

template <class Experts>
layer draw_mumoe_of(draw& d) {
  constexpr extent E = Experts::levels;
  const extent i = d.between(1, E == 1 ? 9 : 4), h = d.between(1, 5),
               o = d.between(1, E == 1 ? 9 : 4);
  const bool bias = d.chance(50), block = d.chance(30);
  d.text << Experts::kind << (block ? " block" : " layer") << " i " << i << " h " << h << " o " << o
         << (bias ? " bias" : "");
  if (block) {
    mumoe_block<Experts> l;
    const auto n = draw_gate<E>(d, l, i);
    draw_experts<E>(d, l.first, n, i + bias, h);
    draw_experts<E>(d, l.second, n, h + bias, o);
    return of(i, l);
  }
  mumoe<Experts> l;
  const auto n = draw_gate<E>(d, l, i);
  draw_experts<E>(d, l.experts, n, i + bias, o);
  return of(i, l);
}

template <template <extent, class> class Experts>
layer draw_mumoe(draw& d) {
  const extent levels = d.between(1, 3);
  if (levels == 1) return draw_mumoe_of<Experts<1, float>>(d);
  return levels == 2 ? draw_mumoe_of<Experts<2, float>>(d) : draw_mumoe_of<Experts<3, float>>(d);
}

monet_router<float> draw_router(draw& d, extent in, extent p, extent s) {
  monet_router<float> r;
  d.fill(r.keys1, {in, p * s}, in);
  d.fill(r.keys2, {in, p * s}, in);
  const bool statistics = d.chance(50);
  r.active = d.between(1, s);
  if (!statistics || d.chance(50)) r.heads = p;
  if (statistics) {
    d.fill(r.mean1, {p});
    d.fill(r.mean2, {p});
    d.positive(r.variance1, p);
    d.positive(r.variance2, p);
  }
  d.text << (statistics ? " statistics" : " top_k") << " K " << r.active;
  return r;
}

std::vector<index_pair> draw_pairs(draw& d, extent s) {
  std::vector<index_pair> pairs;
  const unsigned share = d.pick(0u, 0u, 5u, 30u, 90u);
  for (extent i = 0; i < s; ++i)
    for (extent j = 0; j < s; ++j)
      if (d.chance(share)) pairs.push_back({i, j});
  d.text << " deleted " << pairs.size();
  return pairs;
}

layer draw_monet(draw& d) {
  const bool vertical = d.chance(50);
  const extent in = d.between(1, 4) * 2, p = d.between(1, 3), s = d.between(1, 7),
               m = d.between(1, 4);
  d.text << (vertical ? "monet_vd d " : "monet_hd d ") << in << " p " << p << " s " << s << " m "
         << m << " parts ";
  const auto routed = [&](auto l) {
    const auto router = draw_router(d, in, p, s);
    l.activation = d.activation();
    l.deleted = draw_pairs(d, s);
    return layer{in, [l, router](const input& x) { return l(x, router.g1(x), router.g2(x)); }};
  };
  if (vertical) {
    monet_vd<float> l;
    for (auto* u : {&l.encoder1, &l.encoder2}) d.fill(*u, {in, s * m}, in);
    for (auto* b : {&l.encoder_bias1, &l.encoder_bias2}) d.maybe(*b, {s * m});
    for (auto* v : {&l.decoder11, &l.decoder12, &l.decoder21, &l.decoder22})
      d.fill(*v, {s * m, in / 2});
    for (auto* b : {&l.bias1, &l.bias2}) d.fill(*b, {s, in / 2});
    return routed(l);
  }
  monet_hd<float> l;
  d.fill(l.encoder, {in, s * m}, in);
  d.fill(l.decoder, {s * m, in});
  d.fill(l.bias, {s, in});
  d.maybe(l.encoder_bias, {s * m});
  return routed(l);
}

routing draw_routing(draw& d, extent n) {
  using enum weighting;
  routing r;
  r.how = d.pick(routing::by::top_k, routing::by::top_k, routing::by::top_p,
                 routing::by::expert_choice);
  r.active = d.between(0, n);
  r.mass = d.pick(0.0, 0.3, 0.6, 0.95);
  if (d.chance(50)) r.capacity = d.between(0, 7);
  r.capacity_factor = d.pick(0.5, 1.0, 2.0, 3.5);
  r.rank_softmax = n > 1 && d.chance(50);  // with one expert all are 1
  // Expert choice and top-p know the weights of the papers and those of the released code.
  r.weights = r.how == routing::by::top_k ? d.pick(softmax, softmax_of_all, score, one, relu)
                                          : d.pick(softmax, softmax_of_all, one, score);
  d.text << " routing " << static_cast<int>(r.how) << " K " << r.active << " mass " << r.mass
         << " capacity " << r.capacity << " factor " << r.capacity_factor << " softmax "
         << r.rank_softmax << " weights " << static_cast<int>(r.weights);
  return r;
}

layer draw_moe(draw& d) {
  const extent in = d.between(1, 9), n = d.between(1, 9), low = d.between(1, 4),
               w = d.between(1, 9);
  d.text << "moe d " << in << " n " << n << " l " << low << " w " << w << " low rank ";
  moe<float> l;
  d.fill(l.router, {in, n}, in);
  d.text << " latent ";
  d.maybe(l.latent_down, {in, low}, in);
  const extent own = l.latent_down.empty() ? in : low;
  if (own != in || !l.latent_down.empty()) d.fill(l.latent_up, {low, in}, low);
  d.text << " zero experts ";
  d.maybe(l.zero_router, {in, low}, in);
  d.fill(l.linear, {n, own, w}, own);
  d.fill(l.output, {n, w, own}, w);
  d.maybe(l.down, {own, n, low}, own);
  if (l.down.empty()) d.fill(l.activated, {n, own, w}, own);
  else d.fill(l.up, {n, low, w}, low);
  l.activation = d.activation();
  l.route = draw_routing(d, n);
  layer made = of(in, l);
  made.mixes_rows = l.route.how == routing::by::expert_choice;
  return made;
}

layer draw_aoe(draw& d) {
  const extent in = d.between(1, 9), n = d.between(1, 9), low = d.between(1, 4),
               w = d.between(1, 9);
  d.text << "aoe d " << in << " n " << n << " l " << low << " w " << w << " bias ";
  aoe<float> l;
  d.fill(l.down, {in, n, low}, in);
  d.fill(l.up, {n, low, w}, low);
  d.fill(l.linear, {n, in, w}, in);
  d.fill(l.output, {n, w, in}, w);
  d.maybe(l.bias, {in});
  l.score = d.pick(row_norm::l1, row_norm::l2, row_norm::max);
  l.activation = d.activation();
  l.route = draw_routing(d, n);
  layer made = of(in, l);
  made.mixes_rows = l.route.how == routing::by::expert_choice;
  return made;
}

layer draw_soft_moe(draw& d) {
  const extent i = d.between(1, 9), n = d.between(1, 9), o = d.between(1, 9);
  soft_moe<float> l;
  d.fill(l.router, {i, n});
  d.fill(l.experts, {n, i, o}, i);
  l.alpha = d.pick(1.0, 1.5, 2.0);
  d.text << "soft_moe i " << i << " n " << n << " o " << o << " alpha " << l.alpha;
  return of(i, l);
}

layer draw_peer(draw& d) {
  const extent in = 2 * d.between(1, 4), h = d.between(1, 3), s = d.between(1, 14),
               k = d.between(1, 4);
  const bool map = d.chance(60), separate = d.chance(40);
  d.text << "peer d " << in << " h " << h << " s " << s << " k " << k << (map ? " queries" : "")
         << (separate ? " separate" : "") << " norm ";
  peer<float> l;
  if (map) d.fill(l.queries, {in, 2 * h * k}, in);
  d.fill(l.keys, {h, s, 2, map ? k : in / 2});
  const extent experts = s * s * (separate ? h : 1);
  d.fill(l.down, {experts, in}, in);
  d.fill(l.up, {experts, in});
  d.maybe(l.scale, {in});
  l.active = d.between(0, std::min<extent>(s, 4));
  l.candidates = d.chance(50) ? 0 : d.between(l.active, s);
  l.weights = d.pick(weighting::softmax, weighting::relu);
  l.activation = d.activation();
  d.text << " K " << l.active << " of " << l.candidates
         << (l.weights == weighting::relu ? " relu" : "");
  return of(in, l);
}

// Tells whether rounding can change a selection in a graph: whether kept and left scores are closer
// than this, relative to the largest.
class decisions {
 public:
  decisions(const ir::graph& g, const oracle& values) : graph_(g), values_(values) {
    for (const ir::node_id id : g.ids()) {
      const auto& op = g[id].op;
      if (const auto* s = get_if<ir::select_node>(&op)) check(*s);
      if (const auto* n = get_if<ir::row_function_node>(&op); n != nullptr && n->bound) check(*n);
    }
  }
  bool clear() const { return clear_; }

 private:
  static constexpr double least = 1e-4;
  using numbers = std::vector<double>;

  // Zeros of a ReLU are equal in every arithmetic. Other equal scores are equal in all of them only
  // if they are the same sum; then the lower index wins.
  void apart(numbers x, extent kept) {
    if (kept == 0 || kept >= x.size()) return;
    std::ranges::sort(x, std::greater());
    const double scale = std::max(std::abs(x.front()), std::abs(x.back())),
                 gap = x[kept - 1] - x[kept];
    if (gap <= least * scale && !(x[kept - 1] == 0 && x[kept] == 0)) clear_ = false;
  }

  void check(const ir::select_node& s) {
    using enum selection_rule::kind;
    const numbers& x = values_[s.arg];
    const extent n = graph_.shape(s.arg).back();
    if (s.rule.what == expert_choice) {
      const numbers& ranked = values_[*s.ranked];
      const extent tokens = n == 0 ? 0 : ranked.size() / n;
      for (extent e = 0; e < n; ++e) {
        numbers column;
        for (extent t = 0; t < tokens; ++t) column.push_back(ranked[t * n + e]);
        apart(column, capacity_of(s.rule, tokens, n));
      }
      return;
    }
    for (extent row = 0; n != 0 && row < x.size(); row += n) {
      numbers r(x.begin() + static_cast<std::ptrdiff_t>(row),
                x.begin() + static_cast<std::ptrdiff_t>(row + n));
      if (s.rule.what == top_k) apart(r, s.rule.keep);
      if (s.rule.what == top_p) {
        std::ranges::sort(r, std::greater());
        double sum = 0, mass = 0;
        for (const double v : r) sum += std::exp(v - r[0]);
        for (extent k = 0; k < n; ++k) {
          mass += std::exp(r[k] - r[0]) / sum;
          if (s.rule.mass != 0 && std::abs(mass - s.rule.mass) < least) clear_ = false;
          if (mass >= s.rule.mass) {
            apart(r, k + 1);
            break;
          }
        }
      }
      if (s.rule.what == product_top_k) {
        apart(r, s.rule.each);
        const extent next = row + n;
        if (row / n % 2 != 0) continue;
        numbers other(x.begin() + static_cast<std::ptrdiff_t>(next),
                      x.begin() + static_cast<std::ptrdiff_t>(next + n)),
            sums;
        std::ranges::sort(r, std::greater());
        std::ranges::sort(other, std::greater());
        for (extent i = 0; i < s.rule.each; ++i)
          for (extent j = 0; j < s.rule.each; ++j) sums.push_back(r[i] + other[j]);
        apart(sums, s.rule.keep);
      }
    }
  }

  void check(const ir::row_function_node& g) {
    const numbers &x = values_[g.arg], &bound = values_[*g.bound];
    const extent n = graph_.shape(g.arg).back();
    for (extent i = 0; n != 0 && i < x.size(); ++i) {
      const double b = bound[i / n % bound.size()];
      if (std::abs(x[i] - b) <= least * (std::abs(x[i]) + std::abs(b))) clear_ = false;
    }
  }

  const ir::graph& graph_;
  const oracle& values_;
  bool clear_ = true;
};

struct lowered {
  ir::graph g;
  ir::node_id root;

  lowered(const layer& l, const input& x) : root(l.apply(x).lower(g)) {}
};

template <class T>
std::vector<T> check(const lowered& e, extent tokens, const std::vector<double>& expected,
                     const std::vector<double>& magnitude, double tolerance, bool mixes_rows) {
  const runner<T> normal(e.g, e.root, tokens, usual_limits()),
      cut(e.g, e.root, tokens, tiny_limits()), original(e.g, e.root, tokens, naive_limits());
  for (const runner<T>* r : {&normal, &cut, &original}) CHECK(placement_is_sound(r->steps()));
  if (mixes_rows) return {};
  const std::vector<T> y = normal.all(tokens);
  REQUIRE(y.size() == expected.size());
  CHECK(error_to_magnitudes(y, expected, magnitude) <= tolerance);
  CHECK(error_to_magnitudes(original.all(tokens), expected, magnitude) <= tolerance);
  CHECK(same_bits(cut.all(tokens), y));
  return y;
}

void check(unsigned seed, census& seen, std::map<std::string, int>& families) {
  draw d(seed);
  constexpr std::array makers{draw_mxd,
                              draw_mxd,
                              draw_sparse,
                              draw_mumoe<cp_experts>,
                              draw_mumoe<tr_experts>,
                              draw_mumoe<tucker_experts>,
                              draw_mumoe<dense_experts>,
                              draw_monet,
                              draw_monet,
                              draw_moe,
                              draw_aoe,
                              draw_soft_moe,
                              draw_peer,
                              draw_peer};
  const layer l = makers[d.number(makers.size())](d);
  ++families[d.text.str().substr(0, d.text.str().find(' '))];
  const extent tokens = d.pick(0u, 1u, 2u, 3u, 5u, 8u);
  INFO("FMOE_SEED=" << seed << "  " << d.text.str() << "  tokens " << tokens);
  input x;
  for (unsigned attempt = 0;; ++attempt) {  // until no selection hangs on a rounding error
    REQUIRE(attempt < 50);
    x = random<input>({tokens, l.inputs}, seed + 5000 * attempt);
    const lowered e(l, x);
    const oracle values(e.g);
    if (!decisions(e.g, values).clear()) continue;
    const magnitudes scales(e.g, values);
    check<double>(e, tokens, values[e.root], scales[e.root], 1e-13, l.mixes_rows);
    CHECK(error_to_magnitudes(by_reference(e.g, e.root), values[e.root], scales[e.root]) <= 1e-13);
    const auto y = check<float>(e, tokens, values[e.root], scales[e.root], 2e-5, l.mixes_rows);
    seen.add(make_plan(e.g, e.root, tokens, on_this_cpu<float>(usual_limits())));
    if (l.mixes_rows) {  // in several stages, which evaluate knows
      const auto rows = evaluate(l.apply(x));
      CHECK(error_to_magnitudes(std::vector<float>(rows.data(), rows.data() + rows.size()),
                                values[e.root], scales[e.root]) <= 2e-5);
      return;
    }
    if (tokens < 2) return;
    const extent bad = d.number(tokens), width = y.size() / tokens;
    input spoilt({tokens, l.inputs}, std::span<const float>(x.data(), x.size()));
    spoilt(bad, d.number(l.inputs)) = NAN;
    const lowered other(l, spoilt);
    auto z = runner<float>(other.g, other.root, tokens, usual_limits()).all(tokens);
    for (extent k = bad * width; k < (bad + 1) * width; ++k) z[k] = y[k];
    CHECK(same_bits(z, y));
    return;
  }
}

TEST_CASE("random layers agree with the oracle, and a NaN stays in its row") {
  census seen;
  std::map<std::string, int> families;
  const bool all = for_each_seed(300, [&](unsigned seed) { check(seed, seen, families); });
  if (std::getenv("FMOE_CENSUS") != nullptr) {
    for (const auto& [what, n] : seen.plans) WARN(what << ' ' << n);
    for (const auto& [what, n] : families) WARN(what << ' ' << n);
  }
  if (!all) return;
  for (const char* family : {"mxd", "sparse_mlp", "cp", "tr", "tucker", "dense", "monet_hd",
                             "monet_vd", "moe", "aoe", "soft_moe", "peer"}) {
    INFO(family);
    CHECK(families[family] >= 10);
  }
  seen.require(3, {"append", "bounded softmax", "entmax", "exclude", "expert_choice", "gather",
                   "gather of rows", "group", "layer norm", "L1 norm", "L2 norm", "max norm",
                   "product_top_k", "clamped rms norm", "sample", "softmax", "top_k", "top_p"});
}

}  // namespace

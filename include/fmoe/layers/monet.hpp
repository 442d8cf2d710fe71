// SPDX-License-Identifier: MIT
// Monet, a mixture of monosemantic experts (Park et al. 2024): N = s^2 experts composed of s bottom
// halves i and s top halves j, in a horizontal (HD, Eq. 12) and a vertical (VD, Eq. 15)
// decomposition, and the router that a group of layers shares. The N coefficients g1[p,i] g2[p,j]
// of a token are never stored.
#pragma once

#include <array>

#include <fmoe/arrays/released.hpp>
#include <fmoe/arrays/viewed.hpp>
#include <fmoe/base/normal.hpp>
#include <fmoe/expr/all_except.hpp>
#include <fmoe/layers/batch_norm.hpp>
#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/layers/monet_expert.hpp>
#include <fmoe/layers/monet_norms.hpp>
#include <fmoe/layers/monet_routing.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// Labels: t token, d input, p head, s (i, j) halves of experts. With running statistics of the
// scores, as in the released code, c is their batch normalisation for each head, and the scores
// with c >= min(max c, Phi^-1(1 - active / s)) are kept. Without statistics the `active` largest of
// each head are kept (Eqs. 3, 9). g is the softmax of the kept scores, and 0 elsewhere. In
// `training` the statistics are those of the tokens of a call; they only decide what is kept, so no
// gradient goes through them.
template <class T = float>
struct monet_router {
  parameter<T, 2> keys1, keys2;      // d (p s)
  parameter<T, 1> mean1, variance1;  // p
  parameter<T, 1> mean2, variance2;  // p
  std::size_t heads = 0;             // p, if no statistics tell it
  std::size_t active = 32;  // K, the experts that a head keeps; with statistics, on average
  double epsilon = 1e-5;
  bool training = false;

  // [t, d] -> [t, p, s]: g1 over bottom halves i, g2 over top halves j. Throws value_error for K >
  // s, with statistics also for K = 0, and for incomplete statistics; throws shape_error for
  // statistics of another length.
  auto g1(const operand auto& x) const { return routed(x, keys1, mean1, variance1); }
  auto g2(const operand auto& x) const { return routed(x, keys2, mean2, variance2); }

  // [t, d] -> [t, 2p, s]: the heads of g1, then those of g2.
  auto operator()(const operand_of<2> auto& x) const { return concat<1>(g1(x), g2(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // [t, d] -> [p], [p], [p], [p]: of the scores of each head over the tokens, the mean and the
  // variance with the divisor T s - 1, which running statistics take; first those of g1.
  auto batch_statistics(const operand_of<2> auto& x) const {
    const std::size_t p = mean1.empty() ? heads : mean1.size();
    const auto s1 = scores(x, keys1, p), s2 = scores(x, keys2, p);
    const auto m1 = detail::batch_mean<"tps->p">(s1), m2 = detail::batch_mean<"tps->p">(s2);
    return std::tuple{m1, detail::unbiased_variance<"tps->p">(centred(s1, m1, keys1, p)), m2,
                      detail::unbiased_variance<"tps->p">(centred(s2, m2, keys2, p))};
  }

  static void released(auto& layer, auto&& visit) {
    visit(released_name{"router.w1.weight", presence::required, "hd", "dh"}, layer.keys1);
    visit(released_name{"router.w2.weight", presence::required, "hd", "dh"}, layer.keys2);
    visit(statistic({"router.norm1.running_mean", presence::optional, "p"}), layer.mean1);
    visit(statistic({"router.norm1.running_var", presence::optional, "p"}), layer.variance1);
    visit(statistic({"router.norm2.running_mean", presence::optional, "p"}), layer.mean2);
    visit(statistic({"router.norm2.running_var", presence::optional, "p"}), layer.variance2);
  }
  static void describe(auto& layer, auto& file) {
    file.number("heads", layer.heads, 0);
    file.number("epsilon", layer.epsilon, 1e-5);
  }
  static constexpr std::array released_settings{released_setting{"monet", "moe_topk", "K"},
                                                released_setting{"monet", "moe_heads", "heads"}};

 private:
  // c >= min(max c, sigma) means x >= min(max x, mean + sigma sqrt(variance + epsilon)), which is a
  // bound for each head.
  auto routed(const operand auto& x, const parameter<T, 2>& keys, const parameter<T, 1>& mean,
              const parameter<T, 1>& variance) const {
    const bool adaptive = !mean.empty();
    detail::expects<value_error>(adaptive == !variance.empty(),
                                 "[monet_router] a running mean needs a variance, and the reverse");
    detail::expects<value_error>(adaptive || heads != 0,
                                 "[monet_router] without running statistics `heads` must be set");
    const std::size_t p = adaptive ? mean.size() : heads,
                      width = keys.empty() ? 0 : keys.shape()[1];
    detail::expects<shape_error>(heads == 0 || heads == p, "[monet_router] there are ", heads,
                                 " heads and statistics of ", p);
    detail::expects<shape_error>(p != 0 && width % p == 0, "[monet_router] ", width,
                                 " keys do not divide into ", p, " heads");
    const std::size_t s = width / p;
    detail::expects<value_error>(active <= s && (active != 0 || !adaptive), "[monet_router] K is ",
                                 active, " and a head has ", s, " experts");
    for (std::size_t i = 0; i < variance.size(); ++i) {
      const auto v = detail::convert<double>(variance.data()[i]);
      detail::expects<value_error>(v >= 0 && std::isfinite(v), "[monet_router] a variance is ", v);
    }
    const double sigma = detail::normal_quantile_above(
        s == 0 ? 1 : static_cast<double>(active) / static_cast<double>(s));
    const auto x_keys = scores(x, keys, p);
    const auto now = detail::batch_mean<"tps->p">(x_keys);
    const auto spread = detail::batch_variance<"tps->p">(centred(x_keys, now, keys, p));
    const auto bound = choose(training, sigma * sqrt(spread + epsilon) + now,
                              sigma * sqrt(variance + epsilon) + mean);
    return choose(active == s, softmax(x_keys),
                  choose(adaptive, bounded_softmax(x_keys, bound),
                         top_k(x_keys, active, weighting::softmax)));
  }

  // [t, p, s].
  static auto scores(const operand auto& x, const parameter<T, 2>& keys, std::size_t p) {
    const std::size_t rows = keys.empty() ? 0 : keys.shape()[0];
    return einsum<"td,dps->tps">(x, viewed<3>(keys, {rows, p, halves(keys, p)}));
  }

  // [t, p, s], [p] -> [t, p, s]: what scores have beyond the mean of their head.
  static auto centred(const operand auto& scores, const operand auto& mean,
                      const parameter<T, 2>& keys, std::size_t p) {
    parameter<detail::arithmetic_t<T>, 1> ones({halves(keys, p)});
    std::ranges::fill(ones, 1);
    return scores - einsum<"p,s->ps">(mean, ones);
  }

  static std::size_t halves(const parameter<T, 2>& keys, std::size_t p) {
    return keys.empty() || p == 0 ? 0 : keys.shape()[1] / p;
  }
};

}  // namespace fmoe

namespace fmoe::detail {

template <class... Xs>
refused not_monet_inputs(const Xs&...) {
  static_assert(never<Xs...>,
                "a Monet layer takes x [token, input], g1 [token, head, half] and g2, as in "
                "layer(x, router.g1(x), router.g2(x)) or compile(layer, arguments<2, 3, 3>{}, "
                "tokens)");
  return {};
}

template <class... Xs>
refused not_monet_experts(const Xs&...) {
  static_assert(never<Xs...>,
                "contribution_norms: a Monet layer takes x, g1, g2 and a list of experts, {{i, j}, "
                "...}, because all are too many for a row");
  return {};
}

// Returns s, the number of expert halves, from a bias, which has a row for each half. Throws
// value_error if it holds nothing.
template <class T>
extent monet_halves(const parameter<T, 2>& bias) {
  expects<value_error>(!bias.empty(),
                       "[monet] the output bias holds nothing, and tells the number of experts: "
                       "set it, if only to zeros");
  return bias.shape()[0];
}

// Views a weight of (s m) columns or rows with separate axes s and m. Throws shape_error if s does
// not divide their number.
template <class T>
parameter<T, 3> monet_columns(const parameter<T, 2>& w, extent s) {
  const extent width = w.empty() ? 0 : w.shape()[1];
  expects<shape_error>(s != 0 && width % s == 0, "[monet] ", width,
                       " hidden units do not divide into ", s, " experts");
  return viewed<3>(w, {w.empty() ? 0 : w.shape()[0], s, width / s});
}
template <class T>
parameter<T, 3> monet_rows(const parameter<T, 2>& w, extent s) {
  const extent width = w.empty() ? 0 : w.shape()[0];
  expects<shape_error>(s != 0 && width % s == 0, "[monet] ", width,
                       " hidden units do not divide into ", s, " experts");
  return viewed<3>(w, {s, width / s, w.empty() ? 0 : w.shape()[1]});
}
template <class T>
parameter<widened_t<T>, 2> monet_bias(const parameter<T, 1>& b, extent s) {
  expects<shape_error>(s != 0 && b.size() % s == 0, "[monet] ", b.size(),
                       " hidden biases do not divide into ", s, " experts");
  return viewed<2>(b, {s, b.size() / s});
}

// The settings of a layer in the metadata beside its activation.
void describe_monet(auto& layer, auto& file) {
  file.pairs("deleted", layer.deleted);
  file.number("heads", layer.heads, all);
  file.needed("activation");
}
inline constexpr std::array monet_settings{released_setting{"monet", "hidden_act", "activation"},
                                           released_setting{"monet", "moe_heads", "heads"}};

// Returns the weights of one half of experts. Throws value_error if there is no such half.
template <extent Axis>
auto bottom_half(const auto& weights, extent i) {
  return expert_slice<Axis>(weights, i, "bottom half");
}
template <extent Axis>
auto top_half(const auto& weights, extent j) {
  return expert_slice<Axis>(weights, j, "top half");
}

// Returns the hidden bias of half i, of m units; zeros if the layer has none.
template <class T>
tensor<widened_t<T>, 1> monet_bias(const parameter<T, 1>& b, extent s, extent i, extent m) {
  return b.empty() ? tensor<widened_t<T>, 1>({m}) : sliced<0>(monet_bias(b, s), i);
}

}  // namespace fmoe::detail

namespace fmoe {

// Horizontal decomposition: expert (i, j) is V_j act(U_i x + b1_i) + b2_j, and y is the sum over p,
// i, j of g1[p,i] g2[p,j] times expert (i, j), for any g. Labels: i, j halves of experts, s of
// each; m hidden unit; d input and output. Unit q of half i is column i m + q of the encoder and
// row i m + q of the decoder.
template <class T = float>
struct monet_hd {
  parameter<T, 2> encoder;       // d (i m), U
  parameter<T, 1> encoder_bias;  // (i m), b1; may be empty
  parameter<T, 2> decoder;       // (j m) d, V
  parameter<T, 2> bias;          // j d, b2
  pointwise activation = pointwise::squared_relu;
  std::vector<index_pair> deleted = {};  // experts (i, j) that the sum leaves out
  std::size_t heads = all;               // p, which compile must know

  // [t, d] -> [t, i, m].
  auto hidden(const operand auto& x) const {
    const std::size_t s = detail::monet_halves(bias);
    return apply(activation, add_bias(einsum<"td,dim->tim">(x, detail::monet_columns(encoder, s)),
                                      detail::monet_bias(encoder_bias, s)));
  }

  // [t, i, m], [t, p, s], [t, p, s] -> [t, d]: the output of these hidden units.
  auto decoded(const operand_of<3> auto& u, const operand_of<3> auto& routing1,
               const operand_of<3> auto& routing2) const {
    const std::size_t s = detail::monet_halves(bias);
    const auto g1 = detail::monet_routing("g1", routing1, heads, s);
    const auto g2 = detail::monet_routing("g2", routing2, heads, s);
    const auto v = detail::monet_rows(decoder, s);
    const auto kept = all_except(deleted, s, s);
    const auto mixed = einsum<"tim,tpi,tpj,ij->tjm">(u, g1, g2, kept);
    const auto mass = einsum<"tpi,tpj,ij->tj">(g1, g2, kept);
    return einsum<"tjm,jmd->td">(mixed, v) + einsum<"tj,jd->td">(mass, bias);
  }

  // [t, d], [t, p, s], [t, p, s] -> [t, d] (Eq. 12). Throws shape_error and value_error for
  // parameters that do not fit each other.
  auto operator()(const operand_of<2> auto& x, const operand_of<3> auto& g1,
                  const operand_of<3> auto& g2) const {
    return decoded(hidden(x), g1, g2);
  }
  auto operator()(const auto&... x) const { return detail::not_monet_inputs(x...); }

  // [t, d], [t, p, s], [t, p, s] -> [t, n]: the norm of what each expert (i, j) of the list
  // adds to a row, for all heads together; 0 for a deleted one. Throws value_error for an empty
  // list and if there is no such expert.
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<3> auto& g1,
                          const operand_of<3> auto& g2,
                          const std::vector<index_pair>& experts) const {
    return detail::monet_norms(*this, detail::monet_halves(bias), x, g1, g2, experts);
  }
  auto contribution_norms(const auto&... x) const { return detail::not_monet_experts(x...); }

  // Returns expert (i, j), whether it is deleted or not (Eq. 6). Throws value_error if there is no
  // such half.
  monet_expert<detail::widened_t<T>> expert(std::size_t i, std::size_t j) const {
    const std::size_t s = detail::monet_halves(bias);
    const auto u = detail::bottom_half<1>(detail::monet_columns(encoder, s), i);
    return {u, detail::monet_bias(encoder_bias, s, i, u.shape()[1]),
            detail::top_half<0>(detail::monet_rows(decoder, s), j), detail::top_half<0>(bias, j),
            activation};
  }

  static void released(auto& layer, auto&& visit) {
    visit(in_blocks("hs", {"moe.u.weight", presence::required, "hd", "dh"}), layer.encoder);
    visit(in_blocks("hs", {"moe.u.bias", presence::optional, "h"}), layer.encoder_bias);
    visit(in_blocks("hs", {"moe.v.weight", presence::required, "oh", "ho"}), layer.decoder);
    visit(released_name{"moe.b", presence::required, "so"}, layer.bias);
  }
  static void describe(auto& layer, auto& file) { detail::describe_monet(layer, file); }
  static constexpr auto& released_settings = detail::monet_settings;
};

// Vertical decomposition: with u1_i = act(U1_i x + c1_i) and u2_j = act(U2_j x + c2_j), of m/2
// units each, expert (i, j) is [V11_i u1_i + V12_i u2_j + b1_i, V21_j u1_i + V22_j u2_j + b2_j]. y
// is as in HD (Eqs. 22-29, with both sums of g kept).
template <class T = float>
struct monet_vd {
  parameter<T, 2> encoder1, encoder2;            // d (i m), d (j m): U1, U2
  parameter<T, 1> encoder_bias1, encoder_bias2;  // (i m), (j m); may be empty
  parameter<T, 2> decoder11, decoder12;          // (i m) o: V11, V12
  parameter<T, 2> decoder21, decoder22;          // (j m) o: V21, V22
  parameter<T, 2> bias1, bias2;                  // i o, j o; o is half of the output
  pointwise activation = pointwise::squared_relu;
  std::vector<index_pair> deleted = {};  // experts (i, j) that the sum leaves out
  std::size_t heads = all;               // p, which compile must know

  // [t, d] -> [t, i, m] and [t, j, m].
  auto hidden1(const operand auto& x) const { return hidden(x, encoder1, encoder_bias1); }
  auto hidden2(const operand auto& x) const { return hidden(x, encoder2, encoder_bias2); }

  // [t, i, m], [t, j, m], [t, p, s], [t, p, s] -> [t, 2o]: the output of these hidden units.
  auto decoded(const operand_of<3> auto& u1, const operand_of<3> auto& u2,
               const operand_of<3> auto& routing1, const operand_of<3> auto& routing2) const {
    const std::size_t s = detail::monet_halves(bias1);
    const auto g1 = detail::monet_routing("g1", routing1, heads, s);
    const auto g2 = detail::monet_routing("g2", routing2, heads, s);
    const auto kept = all_except(deleted, s, s);
    const auto mass1 = einsum<"tpi,tpj,ij->ti">(g1, g2, kept);
    const auto mass2 = einsum<"tpi,tpj,ij->tj">(g1, g2, kept);
    const auto crossed1 = einsum<"tjm,tpj,tpi,ij->tim">(u2, g2, g1, kept);
    const auto crossed2 = einsum<"tim,tpi,tpj,ij->tjm">(u1, g1, g2, kept);
    return concat<1>(half(u1, mass1, detail::monet_rows(decoder11, s), crossed1,
                          detail::monet_rows(decoder12, s), bias1),
                     half(u2, mass2, detail::monet_rows(decoder22, s), crossed2,
                          detail::monet_rows(decoder21, s), bias2));
  }

  // [t, d], [t, p, s], [t, p, s] -> [t, 2o] (Eq. 15). Throws shape_error and value_error for
  // parameters that do not fit each other.
  auto operator()(const operand_of<2> auto& x, const operand_of<3> auto& g1,
                  const operand_of<3> auto& g2) const {
    return decoded(hidden1(x), hidden2(x), g1, g2);
  }
  auto operator()(const auto&... x) const { return detail::not_monet_inputs(x...); }

  // [t, d], [t, p, s], [t, p, s] -> [t, n]: as in HD.
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<3> auto& g1,
                          const operand_of<3> auto& g2,
                          const std::vector<index_pair>& experts) const {
    return detail::monet_norms(*this, detail::monet_halves(bias1), x, g1, g2, experts);
  }
  auto contribution_norms(const auto&... x) const { return detail::not_monet_experts(x...); }

  // Returns expert (i, j), whether it is deleted or not (Eq. 13). Throws value_error if there is no
  // such half.
  monet_expert<detail::arithmetic_t<T>> expert(std::size_t i, std::size_t j) const {
    const std::size_t s = detail::monet_halves(bias1);
    const auto u1 = detail::bottom_half<1>(detail::monet_columns(encoder1, s), i),
               u2 = detail::top_half<1>(detail::monet_columns(encoder2, s), j);
    const auto c1 = detail::monet_bias(encoder_bias1, s, i, u1.shape()[1]),
               c2 = detail::monet_bias(encoder_bias2, s, j, u2.shape()[1]);
    const auto v1 = concat<1>(detail::bottom_half<0>(detail::monet_rows(decoder11, s), i),
                              detail::top_half<0>(detail::monet_rows(decoder21, s), j));
    const auto v2 = concat<1>(detail::bottom_half<0>(detail::monet_rows(decoder12, s), i),
                              detail::top_half<0>(detail::monet_rows(decoder22, s), j));
    const auto b = concat<0>(detail::bottom_half<0>(bias1, i), detail::top_half<0>(bias2, j));
    return {evaluate(concat<1>(u1, u2)), evaluate(concat<0>(c1, c2)), evaluate(concat<0>(v1, v2)),
            evaluate(b), activation};
  }

  static void released(auto& layer, auto&& visit) {
    visit(in_blocks("hs", {"moe.u1.weight", presence::required, "hd", "dh"}), layer.encoder1);
    visit(in_blocks("hs", {"moe.u1.bias", presence::optional, "h"}), layer.encoder_bias1);
    visit(in_blocks("hs", {"moe.u2.weight", presence::required, "hd", "dh"}), layer.encoder2);
    visit(in_blocks("hs", {"moe.u2.bias", presence::optional, "h"}), layer.encoder_bias2);
    visit(in_blocks("hs", {"moe.v11.weight", presence::required, "oh", "ho"}), layer.decoder11);
    visit(in_blocks("hs", {"moe.v12.weight", presence::required, "oh", "ho"}), layer.decoder12);
    visit(in_blocks("hs", {"moe.v21.weight", presence::required, "oh", "ho"}), layer.decoder21);
    visit(in_blocks("hs", {"moe.v22.weight", presence::required, "oh", "ho"}), layer.decoder22);
    visit(released_name{"moe.b1", presence::required, "so"}, layer.bias1);
    visit(released_name{"moe.b2", presence::required, "so"}, layer.bias2);
  }
  static void describe(auto& layer, auto& file) { detail::describe_monet(layer, file); }
  static constexpr auto& released_settings = detail::monet_settings;

 private:
  auto hidden(const operand auto& x, const parameter<T, 2>& encoder,
              const parameter<T, 1>& bias) const {
    const std::size_t s = detail::monet_halves(bias1);
    return apply(activation, add_bias(einsum<"td,dim->tim">(x, detail::monet_columns(encoder, s)),
                                      detail::monet_bias(bias, s)));
  }

  // The straight flow, the crossed flow and the bias of one half of the output.
  static auto half(const auto& straight, const auto& mass, const parameter<T, 3>& v,
                   const auto& crossed, const parameter<T, 3>& w, const parameter<T, 2>& bias) {
    return einsum<"tsm,ts,smo->to">(straight, mass, v) + einsum<"tsm,smo->to">(crossed, w) +
           einsum<"ts,so->to">(mass, bias);
  }
};

}  // namespace fmoe

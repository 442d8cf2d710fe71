// SPDX-License-Identifier: MIT
// PEER, parameter-efficient expert retrieval (He 2024; Eq. 5 of the Monet paper): N = s^2 experts
// of one neuron each, found by product keys. y = sum over heads and selected e of w_e gelu(x . u_e)
// v_e.
#pragma once

#include <string_view>
#include <utility>

#include <fmoe/arrays/released.hpp>
#include <fmoe/arrays/viewed.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// Labels: t token, d input and output, h head, l key list (2), k key, s keys of a list, e = i s + j
// expert. If `queries` is empty, the query is the halves of x, the same for each head, as in the
// paper. If `scale` is empty, there is no norm. What chooses experts has floats where T has
// 8 bits, so that `quantize` gives a token no other experts.
template <class T = float>
struct peer {
  using exact = detail::widened_t<T>;

  parameter<exact, 1> scale;    // d; the factor of the norm is scale + 1
  parameter<exact, 2> queries;  // d (l h k)
  parameter<exact, 4> keys;     // h s l k
  parameter<T, 2> down;         // u, e d; (h e) d if each head has its own experts
  parameter<T, 2> up;           // v, as down
  std::size_t active = 16;      // K, experts for each head
  std::size_t candidates =
      // The best scores of each list, from which the sums are made; 0 means as many as `active`.
      0;
  weighting weights = weighting::softmax;  // over the selected; or weighting::relu, max(score, 0)
  pointwise activation = pointwise::gelu;

  // [t, d] -> [t, d]: the input of queries and experts, x sqrt(d) / |x| (scale + 1).
  auto normalised(const operand auto& x) const {
    return choose(scale.empty(), x, clamped_rms_norm(x) * (scale + 1.0));
  }

  // [t, d] -> [t, h, l, s]: the products of each query with its keys.
  auto key_scores(const operand auto& x) const {
    const auto [h, s, l, k] = keys.shape();
    const std::size_t d = queries.empty() ? down.empty() ? 0 : down.shape()[1] : queries.shape()[0];
    const auto halves = queries.empty() ? halves_of(d) : decltype(halves_of(d))();
    const auto by_map =
        einsum<"td,dlhk,hslk->thls">(normalised(x), viewed<4>(queries, {d, l, h, k}), keys);
    return choose(queries.empty(), einsum<"td,dlk,hslk->thls">(normalised(x), halves, keys),
                  by_map);
  }

  // [t, d] -> [t, h, e]: the weights of the selected experts, 0 elsewhere. Throws value_error for K
  // > candidates^2 and for candidates > s.
  auto coefficients(const operand auto& x) const {
    return product_top_k(key_scores(x), active, candidates == 0 ? active : candidates, weights);
  }

  // [t, d], [t, h, e] -> [t, d]: the output of x with these weights of the experts. Throws
  // shape_error and value_error for parameters that do not fit each other.
  auto mixed(const operand_of<2> auto& x, const operand_of<3> auto& w) const {
    const auto z = normalised(x);
    const auto shared =
        einsum<"the,te,ed->td">(w, apply(activation, einsum<"td,ed->te">(z, down)), up);
    const auto hidden = apply(activation, einsum<"td,hed->the">(z, by_head(down)));
    return choose(heads_have_own(), einsum<"the,the,hed->td">(w, hidden, by_head(up)), shared);
  }

  // [t, d] -> [t, h, e]: |w_e gelu(x . u_e) v_e|_2, the norm of each expert's contribution to a
  // row, 0 for those that are not selected. Only the hidden values of the selected are computed.
  auto contribution_norms(const operand_of<2> auto& x) const {
    return contribution_norms(x, coefficients(x));
  }
  auto contribution_norms(const operand_of<2> auto& x, const operand_of<3> auto& w) const {
    const auto z = normalised(x);
    const auto shared = einsum<"the,te,e->the">(w, apply(activation, einsum<"td,ed->te">(z, down)),
                                                norm(row_norm::l2, up));
    const auto hidden = apply(activation, einsum<"td,hed->the">(z, by_head(down)));
    return abs(choose(heads_have_own(),
                      einsum<"the,the,he->the">(w, hidden, norm(row_norm::l2, by_head(up))),
                      shared));
  }

  // [t, d] -> [t, d].
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
  auto operator()(const auto&... x) const { return detail::not_rows(x...); }

  // Returns the number of experts. Expert n is row n of `down` and `up`: n = e if the heads share
  // them, else n = h s^2 + e.
  std::size_t expert_count() const { return down.empty() ? 0 : down.shape()[0]; }

  // [n] -> [h, e]: a number of each expert, in the shape of a row of the coefficients.
  template <class U>
  parameter<U, 2> like_coefficients(const parameter<U, 1>& of_experts) const {
    const std::size_t h = keys.shape()[0], e = keys.shape()[1] * keys.shape()[1];
    if (heads_have_own()) return viewed<2>(of_experts, {h, e});
    tensor<U, 2> repeated({h, e});
    U* const to = detail::elements_to_write(repeated);
    for (std::size_t row = 0; row < h; ++row) std::copy_n(of_experts.data(), e, to + row * e);
    return repeated;
  }

  static void released(auto& layer, auto&& visit) {
    visit(unrounded({"norm.gamma", presence::optional, "d"}), layer.scale);
    visit(unrounded({"to_queries.0.weight", presence::optional, "qd", "dq"}), layer.queries);
    visit(unrounded({"keys", presence::required, "hslk"}), layer.keys);
    visit(released_name{"weight_down_embed.weight", presence::required, "ed"}, layer.down);
    visit(released_name{"weight_up_embed.weight", presence::required, "ed"}, layer.up);
  }
  static void describe(auto& layer, auto& file) {
    using weight = std::pair<std::string_view, weighting>;
    file.number("candidates", layer.candidates, 0);
    file.setting("weighting", layer.weights,
                 {weight{"softmax", weighting::softmax}, {"relu", weighting::relu}});
    file.needed("weighting");  // that of the released code is another one than the paper's
  }

 private:
  // False if the heads share all experts. Throws shape_error for any other number of experts.
  bool heads_have_own() const {
    const std::size_t h = keys.shape()[0], s = keys.shape()[1], n = expert_count();
    detail::expects<shape_error>(n == s * s || n == h * s * s, "[peer] ", n, " experts for ", h,
                                 " heads with two lists of ", s, " keys");
    return n != s * s;
  }

  // [(h e), d] -> [h, e, d], if each head has its own experts.
  parameter<T, 3> by_head(const parameter<T, 2>& rows) const {
    if (!heads_have_own()) return {};
    const std::size_t s = keys.shape()[1];
    return viewed<3>(rows, {keys.shape()[0], s * s, rows.empty() ? 0 : rows.shape()[1]});
  }

  // [d, 2, d/2]: a weight that takes the halves of a row. Throws shape_error for an odd d.
  static parameter<exact, 3> halves_of(std::size_t d) {
    detail::expects<shape_error>(d % 2 == 0, "[peer] ", d, " inputs cannot be halved");
    tensor<exact, 3> halves({d, 2, d / 2});
    for (std::size_t i = 0; i < d; ++i)
      halves(i, i / (d / 2), i % (d / 2)) = detail::convert<exact>(1.f);
    return halves;
  }
};

}  // namespace fmoe

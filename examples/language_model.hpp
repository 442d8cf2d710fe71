// SPDX-License-Identifier: MIT
// A small language model of characters, whose feed-forward layer is a layer of fmoe, and its two
// passes. Attention is Eigen's (attention.hpp); all else is compiled by fmoe.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include <fmoe/eigen.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/layers/initialise.hpp>

#include "attention.hpp"

namespace training {

using fmoe::operand_of, fmoe::parameter, fmoe::presence, fmoe::released_name;
using rows = fmoe::tensor<float, 2>;

// The initial weights of torch.nn.Linear with so many inputs, U[-1/sqrt(inputs), 1/sqrt(inputs)].
template <std::size_t Rank>
parameter<float, Rank> uniform(const std::array<std::size_t, Rank>& shape, std::size_t inputs,
                               fmoe::random_stream& random) {
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  fmoe::tensor<float, Rank> w(shape);
  for (float& v : w) v = static_cast<float>(random.uniform() * bound);
  return w;
}

inline fmoe::affine_layer_norm<> initial_norm(std::size_t width) {
  fmoe::tensor<float, 1> ones({width});
  std::ranges::fill(ones, 1.f);
  return {ones, fmoe::tensor<float, 1>({width})};
}

// x W.
struct product {
  parameter<float, 2> weight;  // e d

  auto operator()(const operand_of<2> auto& x) const {
    return fmoe::einsum<"te,ed->td">(x, weight);
  }
  static void released(auto& p, auto&& visit) {
    visit(released_name{"weight", presence::required, "ed"}, p.weight);
  }
};

// norm(x) W.
struct normed_product {
  fmoe::affine_layer_norm<> norm;
  parameter<float, 2> weight;  // d o

  auto operator()(const operand_of<2> auto& x) const {
    return fmoe::einsum<"td,do->to">(norm(x), weight);
  }
  static void released(auto& p, auto&& visit) {
    p.norm.released(p.norm, fmoe::detail::released_within("norm.", visit));
    visit(released_name{"weight", presence::required, "do"}, p.weight);
  }
};

// x + layer(norm(x)).
template <class Layer>
struct residual {
  fmoe::affine_layer_norm<> norm;
  Layer layer;

  auto operator()(const operand_of<2> auto& x) const { return x + layer(norm(x)); }

  static void released(auto& r, auto&& visit) {
    r.norm.released(r.norm, fmoe::detail::released_within("norm.", visit));
    r.layer.released(r.layer, visit);
  }
};

// h = x + attention(norm(x) W_qkv) W_out; y = h + layer(norm(h)).
template <class Layer>
struct block {
  normed_product qkv;  // d 3d
  product out;
  residual<Layer> feed_forward;

  static void released(auto& b, auto&& visit) {
    b.qkv.released(b.qkv, fmoe::detail::released_within("qkv.", visit));
    b.out.released(b.out, fmoe::detail::released_within("out.", visit));
    b.feed_forward.released(b.feed_forward, fmoe::detail::released_within("ffn.", visit));
  }
};

// The scores of the next character: norm(y of the last block) W_head, where the first block reads
// characters[c_t] + places[t].
template <class Layer>
struct language_model {
  static constexpr std::size_t depth = 2;

  parameter<float, 2> characters;  // v d
  parameter<float, 2> places;      // c d
  std::array<block<Layer>, depth> blocks;
  normed_product head;  // d v

  static void released(auto& m, auto&& visit) {
    visit(released_name{"characters", presence::required, "vd"}, m.characters);
    visit(released_name{"places", presence::required, "cd"}, m.places);
    for (std::size_t b = 0; b < depth; ++b) {
      const std::string name = "blocks." + std::to_string(b) + ".";
      m.blocks[b].released(m.blocks[b], fmoe::detail::released_within(name, visit));
    }
    // The head has other outputs than qkv.
    m.head.released(m.head, fmoe::detail::released_within("head.", visit, "d"));
  }

  // `make` draws a feed-forward layer.
  static language_model initial(std::size_t kinds, std::size_t context, std::size_t width,
                                fmoe::random_stream& random, const auto& make) {
    language_model m;
    m.characters = uniform<2>({kinds, width}, width, random);
    m.places = uniform<2>({context, width}, width, random);
    for (block<Layer>& b : m.blocks) {
      b.qkv = {initial_norm(width), uniform<2>({width, 3 * width}, width, random)};
      b.out = {uniform<2>({width, width}, width, random)};
      b.feed_forward = {initial_norm(width), make(random)};
    }
    m.head = {initial_norm(width), uniform<2>({width, kinds}, width, random)};
    return m;
  }
};

// The gradient of the mean cross entropy of so many rows with respect to the scores.
struct cross_entropy_slope {
  double count;

  auto operator()(const auto& y, const auto& target) const {
    return (fmoe::softmax(y) - target) / count;
  }
};

// A part of a model, compiled for both passes. The backward pass computes the forward pass again.
template <class Layer>
class compiled_part {
 public:
  compiled_part(const Layer& layer, std::size_t tokens)
      : forward_(fmoe::compile(layer, tokens)),
        step_(fmoe::compile_gradients(layer, tokens)) {}

  void forward(const rows& x, rows& y) const { forward_(x, y); }
  // `y` receives the output again.
  const Layer& backward(const rows& x, const rows& dy, rows& y, rows& dx) {
    step_(x, dy, y, dx);
    return step_.gradients();
  }
  void refresh() {
    forward_.refresh();
    step_.refresh();
  }

 private:
  decltype(fmoe::compile(std::declval<const Layer&>(), std::size_t{})) forward_;
  decltype(fmoe::compile_gradients(std::declval<const Layer&>(), std::size_t{})) step_;
};

// The passes of one block over `tokens` rows.
template <class Layer>
class compiled_block {
 public:
  compiled_block(const block<Layer>& b, std::size_t tokens, std::size_t context, std::size_t heads)
      : qkv_part_(b.qkv, tokens),
        out_part_(b.out, tokens),
        feed_forward_(b.feed_forward, tokens),
        attention_(static_cast<Eigen::Index>(context), static_cast<Eigen::Index>(heads)),
        qkv_({tokens, b.qkv.weight.shape()[1]}),
        dqkv_(qkv_.shape()),
        mixed_({tokens, b.out.weight.shape()[0]}),
        h_(mixed_.shape()),
        y_(mixed_.shape()),
        dmixed_(mixed_.shape()),
        dh_(mixed_.shape()),
        dx_(mixed_.shape()),
        again_(mixed_.shape()),
        qkv_again_(qkv_.shape()) {}

  // [t, d] -> [t, d].
  const rows& forward(const rows& x) {
    using fmoe::as_eigen;
    qkv_part_.forward(x, qkv_);
    attention_.forward(as_eigen(std::as_const(qkv_)), as_eigen(mixed_));
    out_part_.forward(mixed_, h_);
    as_eigen(h_) += as_eigen(x);
    feed_forward_.forward(h_, y_);
    return y_;
  }

  // x is that of the last forward. Returns the gradient with respect to x, and writes those of the
  // weights.
  const rows& backward(const rows& x, const rows& dy, block<Layer>& gradients) {
    using fmoe::as_eigen;
    gradients.feed_forward = feed_forward_.backward(h_, dy, again_, dh_);
    gradients.out = out_part_.backward(mixed_, dh_, again_, dmixed_);
    attention_.backward(as_eigen(std::as_const(qkv_)), as_eigen(std::as_const(dmixed_)),
                        as_eigen(dqkv_));
    gradients.qkv = qkv_part_.backward(x, dqkv_, qkv_again_, dx_);
    as_eigen(dx_) += as_eigen(std::as_const(dh_));
    return dx_;
  }

  // The rows that the feed-forward layer has read in the last forward.
  const rows& hidden() const { return h_; }
  const rows& output() const { return y_; }

  void refresh() {
    qkv_part_.refresh();
    out_part_.refresh();
    feed_forward_.refresh();
  }

 private:
  compiled_part<normed_product> qkv_part_;
  compiled_part<product> out_part_;
  compiled_part<residual<Layer>> feed_forward_;
  attention<float> attention_;
  rows qkv_, dqkv_, mixed_, h_, y_, dmixed_, dh_, dx_, again_, qkv_again_;
};

// The passes of a model over batches of sequences. The model must stay where it is; after a change
// of its weights call refresh.
template <class Layer>
class compiled_model {
 public:
  compiled_model(const language_model<Layer>& model, std::size_t sequences, std::size_t heads)
      : model_(model),
        gradients_(model),
        context_(model.places.shape()[0]),
        tokens_(sequences * context_),
        head_(fmoe::compile(model.head, tokens_)),
        head_step_(fmoe::compile_gradients(model.head, tokens_, slope())),
        x_({tokens_, model.places.shape()[1]}),
        dy_(x_.shape()),
        scores_({tokens_, model.characters.shape()[0]}),
        target_(scores_.shape()) {
    for (const block<Layer>& b : model.blocks) blocks_.emplace_back(b, tokens_, context_, heads);
  }

  std::size_t tokens() const { return tokens_; }

  // Returns the scores of the next character, [t, v].
  const rows& forward(std::span<const std::uint8_t> characters) {
    head_(hidden(characters), scores_);
    return scores_;
  }

  // Returns the scores, too. Afterwards `gradients` has the gradients of the mean cross entropy of
  // `next`, the characters that follow.
  const rows& forward_and_backward(std::span<const std::uint8_t> characters,
                                   std::span<const std::uint8_t> next) {
    const rows& y = hidden(characters);
    std::ranges::fill(target_, 0.f);
    const std::size_t kinds = target_.shape()[1];
    auto* const target = target_.data();
    for (std::size_t t = 0; t < tokens_; ++t) target[t * kinds + next[t]] = 1;
    head_step_(y, target_, scores_, dy_);
    gradients_.head = head_step_.gradients();
    const rows* dy = &dy_;
    for (std::size_t b = blocks_.size(); b-- > 0;)
      dy = &blocks_[b].backward(b == 0 ? x_ : blocks_[b - 1].output(), *dy, gradients_.blocks[b]);
    embed_backward(characters, *dy);
    return scores_;
  }

  language_model<Layer>& gradients() { return gradients_; }
  // The rows that the feed-forward layer of a block has read in the last forward.
  const rows& hidden_of(std::size_t b) const { return blocks_[b].hidden(); }

  void refresh() {
    head_.refresh();
    head_step_.refresh();
    for (auto& b : blocks_) b.refresh();
  }

 private:
  cross_entropy_slope slope() const { return {static_cast<double>(tokens_)}; }

  // What the last block makes of the characters.
  const rows& hidden(std::span<const std::uint8_t> characters) {
    const std::size_t width = x_.shape()[1];
    const float *const table = model_.characters.data(), *const places = model_.places.data();
    float* const x = x_.data();
    for (std::size_t t = 0; t < tokens_; ++t)
      for (std::size_t i = 0; i < width; ++i)
        x[t * width + i] = table[characters[t] * width + i] + places[t % context_ * width + i];
    const rows* y = &x_;
    for (auto& b : blocks_) y = &b.forward(*y);
    return *y;
  }

  void embed_backward(std::span<const std::uint8_t> characters, const rows& dx) {
    const std::size_t width = dx.shape()[1];
    float *const table = gradients_.characters.data(), *const places = gradients_.places.data();
    std::fill_n(table, gradients_.characters.size(), 0.f);
    std::fill_n(places, gradients_.places.size(), 0.f);
    const float* const d = dx.data();
    for (std::size_t t = 0; t < tokens_; ++t)
      for (std::size_t i = 0; i < width; ++i) {
        table[characters[t] * width + i] += d[t * width + i];
        places[t % context_ * width + i] += d[t * width + i];
      }
  }

  const language_model<Layer>& model_;
  language_model<Layer> gradients_;
  std::size_t context_, tokens_;
  decltype(fmoe::compile(std::declval<const normed_product&>(), std::size_t{})) head_;
  decltype(fmoe::compile_gradients(std::declval<const normed_product&>(), std::size_t{},
                                   std::declval<const cross_entropy_slope&>())) head_step_;
  std::deque<compiled_block<Layer>> blocks_;
  rows x_, dy_, scores_, target_;
};

}  // namespace training

// SPDX-License-Identifier: MIT
// The feed-forward layers that train_language compares. Each lists its weights under labels that
// all parts of the model share: d is the width of a row.
#pragma once

#include <fmoe/aoe.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>

#include "language_model.hpp"

namespace training {

// A gated linear unit (Shazeer 2020): (silu(x W_g) * (x W_p)) W_o.
struct dense_layer {
  parameter<float, 2> activated, linear;  // d h
  parameter<float, 2> output;             // h d

  auto operator()(const operand_of<2> auto& x) const {
    using fmoe::einsum;
    return einsum<"th,hd->td">(
        silu(einsum<"td,dh->th">(x, activated)) * einsum<"td,dh->th">(x, linear), output);
  }
  static void released(auto& l, auto&& visit) {
    visit(released_name{"W_g", presence::required, "dh"}, l.activated);
    visit(released_name{"W_p", presence::required, "dh"}, l.linear);
    visit(released_name{"W_o", presence::required, "hd"}, l.output);
  }
  static dense_layer initial(std::size_t d, std::size_t h, fmoe::random_stream& random) {
    return {uniform<2>({d, h}, d, random), uniform<2>({d, h}, d, random),
            uniform<2>({h, d}, h, random)};
  }
};

// A sparse mixture; two experts for each token, which are the default, and weights from a softmax
// over the two.
struct moe_layer : fmoe::moe<> {
  static void released(auto& l, auto&& visit) {
    visit(released_name{"router", presence::required, "dn"}, l.router);
    visit(released_name{"W_g", presence::required, "ndw"}, l.activated);
    visit(released_name{"W_p", presence::required, "ndw"}, l.linear);
    visit(released_name{"W_o", presence::required, "nwd"}, l.output);
  }
  std::size_t number_of_experts() const { return router.shape()[1]; }
  static moe_layer initial(std::size_t d, std::size_t n, std::size_t w,
                           fmoe::random_stream& random) {
    moe_layer l;
    l.router = uniform<2>({d, n}, d, random);
    l.activated = uniform<3>({n, d, w}, d, random);
    l.linear = uniform<3>({n, d, w}, d, random);
    l.output = uniform<3>({n, w, d}, w, random);
    return l;
  }
};

// Experts that select themselves; two for each token.
struct aoe_layer : fmoe::aoe<> {
  static void released(auto& l, auto&& visit) {
    visit(released_name{"W_down", presence::required, "dnl"}, l.down);
    visit(released_name{"W_up", presence::required, "nlw"}, l.up);
    visit(released_name{"W_p", presence::required, "ndw"}, l.linear);
    visit(released_name{"W_o", presence::required, "nwd"}, l.output);
  }
  std::size_t number_of_experts() const { return down.shape()[1]; }
  static aoe_layer initial(std::size_t d, std::size_t n, std::size_t low, std::size_t w,
                           fmoe::random_stream& random) {
    aoe_layer l;
    l.down = uniform<3>({d, n, low}, d, random);
    l.up = uniform<3>({n, low, w}, low, random);
    l.linear = uniform<3>({n, d, w}, d, random);
    l.output = uniform<3>({n, w, d}, w, random);
    return l;
  }
};

// Monet's horizontal decomposition with a router of its own: of each of two heads the four largest
// scores are kept, without batch norm.
struct monet_layer {
  fmoe::monet_router<> router = settings();
  fmoe::monet_hd<> experts;

  auto operator()(const operand_of<2> auto& x) const {
    return experts(x, router.g1(x), router.g2(x));
  }
  static void released(auto& l, auto&& visit) {
    visit(released_name{"keys1", presence::required, "dk"}, l.router.keys1);
    visit(released_name{"keys2", presence::required, "dk"}, l.router.keys2);
    visit(released_name{"encoder", presence::required, "dh"}, l.experts.encoder);
    visit(released_name{"encoder_bias", presence::required, "h"}, l.experts.encoder_bias);
    visit(released_name{"decoder", presence::required, "hd"}, l.experts.decoder);
    visit(released_name{"bias", presence::required, "sd"}, l.experts.bias);
  }
  static monet_layer initial(std::size_t d, std::size_t s, std::size_t m,
                             fmoe::random_stream& random) {
    monet_layer l;
    l.router.keys1 = uniform<2>({d, l.router.heads * s}, d, random);
    l.router.keys2 = uniform<2>({d, l.router.heads * s}, d, random);
    l.experts.encoder = uniform<2>({d, s * m}, d, random);
    l.experts.encoder_bias = fmoe::tensor<float, 1>({s * m});
    l.experts.decoder = uniform<2>({s * m, d}, m, random);
    l.experts.bias = rows({s, d});
    return l;
  }

 private:
  static fmoe::monet_router<> settings() {
    fmoe::monet_router<> r;
    r.heads = 2;
    r.active = 4;
    return r;
  }
};

// A block of two CP muMoEs with a shared gate, entmax behind a layer norm, and biases.
struct cp_layer : fmoe::cp_mumoe_block<> {
  static void released(auto& l, auto&& visit) {
    visit(released_name{"gate", presence::required, "dn"}, l.gate.projections[0]);
    visit(released_name{"first.experts", presence::required, "nr"}, l.first.experts[0]);
    visit(released_name{"first.input", presence::required, "yr"}, l.first.input);
    visit(released_name{"first.output", presence::required, "hr"}, l.first.output);
    visit(released_name{"second.experts", presence::required, "nr"}, l.second.experts[0]);
    visit(released_name{"second.input", presence::required, "zr"}, l.second.input);
    visit(released_name{"second.output", presence::required, "dr"}, l.second.output);
  }
  static cp_layer initial(std::size_t d, std::size_t n, std::size_t h, std::size_t rank,
                          fmoe::random_stream& random) {
    const fmoe::expert_sizes<1> first{{n}, d, h}, second{{n}, h, d};
    cp_layer l;
    l.gate = fmoe::initial_gate(first);
    l.first = fmoe::initial_cp(first, rank, random);
    l.second = fmoe::initial_cp(second, rank, random);
    return l;
  }
};

}  // namespace training

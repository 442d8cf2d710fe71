// SPDX-License-Identifier: MIT
// The layers of fmoe as scripts/peers keeps them in files. A source is a struct of
//
//   layer                 the type of the layer
//   arrays(m, visit)      calls visit(name, array) for each array of the file
//   numbers(m, number)    sets what number(name) tells
//   router                the array that all rows read, if they read only some of the experts
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <fmoe/fmoe.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/peer.hpp>

namespace fmoe::peers {

template <class T>
struct mxd_source {
  using layer = mxd<T>;

  static void arrays(auto& m, const auto& visit) {
    visit("encoder", m.encoder);
    visit("encoder_bias", m.encoder_bias);
    visit("gate", m.gate);
    visit("gate_bias", m.gate_bias);
    visit("scales", m.scales);
    visit("decoder", m.decoder);
    visit("bias", m.bias);
  }
  static void numbers(auto& m, const auto& number) { m.active = number("active"); }
};

// A muMoE of one gate, by CP or by tensor rings.
template <class Layer>
struct mumoe_source {
  using layer = Layer;

  static void arrays(auto& m, const auto& visit) {
    visit("gate", m.gate.projections[0]);
    visit("experts", m.experts.experts[0]);
    visit("input", m.experts.input);
    visit("output", m.experts.output);
  }
  static void numbers(auto&, const auto&) {}
};

// Monet's horizontal experts with their router, whose running statistics are mean 0 and variance 1.
template <class T = float>
struct monet_layer {
  monet_router<T> router;
  monet_hd<T> experts;

  auto operator()(const operand_of<2> auto& x) const {
    return experts(x, router.g1(x), router.g2(x));
  }

  static void released(auto& layer, auto&& visit) {
    layer.router.released(layer.router, visit);
    layer.experts.released(layer.experts, visit);
  }
};

template <class T>
struct monet_source {
  using layer = monet_layer<T>;

  static void arrays(auto& m, const auto& visit) {
    visit("keys1", m.router.keys1);
    visit("keys2", m.router.keys2);
    visit("encoder", m.experts.encoder);
    visit("encoder_bias", m.experts.encoder_bias);
    visit("decoder", m.experts.decoder);
    visit("bias", m.experts.bias);
  }
  static void numbers(auto& m, const auto& number) {
    auto& r = m.router;
    r.heads = number("heads");
    r.active = number("active");
    r.mean1 = r.mean2 = r.variance1 = r.variance2 = tensor<T, 1>({r.heads});
    for (auto* ones : {&r.variance1, &r.variance2})
      std::fill_n(ones->data(), r.heads, detail::convert<T>(1.0f));
  }
};

template <class T>
struct aoe_source {
  using layer = aoe<T>;
  static constexpr std::string_view router = "down";

  static void arrays(auto& m, const auto& visit) {
    visit("down", m.down);
    visit("up", m.up);
    visit("linear", m.linear);
    visit("output", m.output);
  }
  static void numbers(auto& m, const auto& number) { m.route.active = number("active"); }
};

template <class T>
struct moe_source {
  using layer = moe<T>;
  static constexpr std::string_view router = "router";

  static void arrays(auto& m, const auto& visit) {
    visit("router", m.router);
    visit("activated", m.activated);
    visit("linear", m.linear);
    visit("output", m.output);
  }
  static void numbers(auto& m, const auto& number) { m.route.active = number("active"); }
};

template <class T>
struct peer_source {
  using layer = peer<T>;

  static void arrays(auto& m, const auto& visit) {
    visit("queries", m.queries);
    visit("keys", m.keys);
    visit("down", m.down);
    visit("up", m.up);
  }
  static void numbers(auto& m, const auto& number) { m.active = number("active"); }
};

template <class Source>
auto read(const io::safetensors& file) {
  typename Source::layer m;
  Source::arrays(m, [&]<class Array>(const char* name, Array& array) {
    using T = std::remove_cvref_t<decltype(*array.data())>;
    array = file.get<T, Array::rank>(name, io::narrowing::allow);
  });
  Source::numbers(m, [&](const char* name) {
    return static_cast<detail::extent>(std::stoull(file.metadata().at(name)));
  });
  return m;
}

// Calls f with the source of the layers of this kind; returns false if there is none.
template <class T>
bool with_source(const std::string& kind, const auto& f) {
  if (kind == "mxd") f(mxd_source<T>{});
  else if (kind == "cp") f(mumoe_source<cp_mumoe<1, T>>{});
  else if (kind == "tr") f(mumoe_source<tr_mumoe<1, T>>{});
  else if (kind == "monet") f(monet_source<T>{});
  else if (kind == "aoe") f(aoe_source<T>{});
  else if (kind == "moe") f(moe_source<T>{});
  else if (kind == "peer") f(peer_source<T>{});
  else return false;
  return true;
}

}  // namespace fmoe::peers

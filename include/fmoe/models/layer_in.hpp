// SPDX-License-Identifier: MIT
// The one layer that a file holds, of a kind that is known when the program runs.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/hints.hpp>
#include <fmoe/io/layer_settings.hpp>
#include <fmoe/io/layers_in.hpp>
#include <fmoe/layers/aoe.hpp>
#include <fmoe/layers/cross_layer_transcoder.hpp>
#include <fmoe/layers/moe.hpp>
#include <fmoe/layers/monet.hpp>
#include <fmoe/layers/mumoe.hpp>
#include <fmoe/layers/mxd.hpp>
#include <fmoe/layers/peer.hpp>
#include <fmoe/layers/soft_moe.hpp>
#include <fmoe/layers/sparse_mlp.hpp>
#include <fmoe/models/monet_config.hpp>

namespace fmoe::detail {

// A Monet layer and its router. A layer that is not the first of its group has none: it takes the
// probabilities that the router of the first one made of the x of the first one.
template <class Layer>
struct routed_monet {
  Layer layer;
  monet_router<> router;  // holds nothing if the router is another layer's

  bool has_router() const { return !router.keys1.empty() || !router.keys2.empty(); }

  // [t, d] -> [t, d]. Throws value_error if the router is another layer's.
  auto operator()(const operand_of<2> auto& x) const {
    expects<value_error>(has_router(),
                         "[monet] the layer has no router, since the first layer of its group "
                         "routes for it: pass the routing, g1 and g2, that the first layer makes "
                         "of its own x");
    return layer(x, router.g1(x), router.g2(x));
  }
  // [t, d], [t, p, s], [t, p, s] -> [t, d]: with this routing; the layer's router is not asked.
  auto operator()(const operand_of<2> auto& x, const operand_of<3> auto& g1,
                  const operand_of<3> auto& g2) const {
    return layer(x, g1, g2);
  }
  auto operator()(const auto&... x) const { return not_rows(x...); }

  static void released(auto& l, auto&& visit) {
    Layer::released(l.layer, visit);
    monet_router<>::released(l.router, visit);
  }
};

template <class Layer>
concept is_monet = requires(Layer layer) { layer.deleted; };

// Returns the names that begin so.
inline std::vector<std::string> names_behind(const io::checkpoint& from, const std::string& start) {
  std::vector<std::string> names = from.names();
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(start); });
  return names;
}

// Returns the heads by the statistics of the last router at this prefix or before it, or nothing.
inline std::optional<extent> heads_before(const io::checkpoint& from, const std::string& layer) {
  std::optional<extent> heads;
  for (const io::found_layer& router : io::layers_in<monet_router<>>(from)) {
    const std::string mean = router.prefix + "router.norm1.running_mean";
    if (io::comes_before(layer, router.prefix)) continue;
    heads = from.contains(mean) ? std::optional(from.outline_of(mean).shape()[0]) : std::nullopt;
  }
  return heads;
}

// Throws conflict if config.json says another number than the tensors of the layer have.
inline void expect_said(const io::checkpoint& from, const char* name, std::optional<extent> said,
                        extent found) {
  if (said.value_or(found) != found)
    throw io::error(io::errc::conflict,
                    std::string("has ") + name + " = " + std::to_string(*said) +
                        " in the config.json beside it, and tensors for " + std::to_string(found),
                    0, {}, from.file());
}

// Returns the number of experts in each half of a layer.
extent halves_of(const auto& layer) {
  if constexpr (requires { layer.bias; }) return layer.bias.shape()[0];
  else return layer.bias1.shape()[0];
}

// Loads a Monet layer, with its router if that is not another layer's. K is the router's.
template <class Layer>
routed_monet<Layer> loaded_monet(const io::checkpoint& from, load_options options) {
  const monet_config config = monet_config_of(from);
  const bool has_router = from.contains(options.prefix + "router.w1.weight") ||
                          from.contains(options.prefix + "router.w2.weight");
  check_group(config, from, options.prefix, has_router);
  monet_router<> router;
  if (has_router) {
    load_options of_router = options;  // each part has settings of its own
    options.active = {};
    for (const char* key : {"K", "k", "epsilon"}) options.metadata.erase(key);
    of_router.activation = {};
    for (const char* key : {"activation", "deleted"}) of_router.metadata.erase(key);
    router = load<monet_router<>>(from, of_router);
    if (!router.mean1.empty()) expect_said(from, "moe_heads", config.heads, router.mean1.size());
    else if (router.heads == 0) throw io::unsaid_setting("heads", from.file());
  }
  auto layer = load<Layer>(from, options);
  expect_said(from, "moe_experts", config.experts, halves_of(layer));
  if (layer.heads == all) {
    if (!router.mean1.empty()) layer.heads = router.mean1.size();
    else if (router.heads != 0) layer.heads = router.heads;
    else layer.heads = heads_before(from, options.prefix).value_or(all);
  }
  return {std::move(layer), std::move(router)};
}

// Loads a layer of any kind.
template <class Layer>
auto loaded_layer(const io::checkpoint& from, const load_options& options) {
  if constexpr (is_monet<Layer>) return loaded_monet<Layer>(from, options);
  else return load<Layer>(from, options);
}

// Returns the one layer among those that were found behind a prefix. Throws missing_tensor if there
// is none, with what the nearest one lacks, and conflict if there are several.
inline io::found_layer only_layer(const io::checkpoint& from, const std::string& prefix,
                                  std::vector<io::found_layer> found,
                                  const std::function<std::string()>& nearest) {
  std::erase_if(found, [&](const io::found_layer& f) { return !f.prefix.starts_with(prefix); });
  const bool is_at_prefix = std::ranges::any_of(
      found, [&](const io::found_layer& f) { return !prefix.empty() && f.prefix == prefix; });
  if (is_at_prefix)
    std::erase_if(found, [&](const io::found_layer& f) { return f.prefix != prefix; });
  const std::vector<std::string> names = from.names();
  if (found.empty() && std::ranges::none_of(names, [&](const std::string& name) {
        return name.starts_with(prefix);
      }))
    throw io::error(io::errc::missing_tensor,
                    names.empty() ? "holds no tensors"
                                  : "holds no tensors behind " + io::in_quotes(prefix) +
                                        "; it has " + io::listed(names),
                    0, {}, from.file());
  if (found.empty()) {
    const std::string closest = nearest();
    throw io::error(io::errc::missing_tensor,
                    "holds no layer that takes x alone" +
                        (prefix.empty() ? "" : " behind " + io::in_quotes(prefix)) +
                        (closest.empty() ? "; it has " + io::listed(names) : closest),
                    0, {}, from.file());
  }
  if (found.size() > 1)
    throw io::error(io::errc::conflict,
                    "holds " + std::to_string(found.size()) + " layers, behind " +
                        io::in_quotes(found[0].prefix) + ", " + io::in_quotes(found[1].prefix) +
                        (found.size() > 2 ? ", ..." : "") + ": pass one of these as .prefix",
                    0, {}, from.file());
  return found[0];
}

// Kinds of layers.
template <class... Layers>
struct layer_kinds {
  // Loads the one layer of these kinds behind the prefix, and returns use(layer, its prefix).
  // Throws missing_tensor or conflict if there is not one, and as load does.
  template <class Use>
  static auto with_layer_in(const io::checkpoint& from, load_options options, const Use& use) {
    using result =
        std::common_type_t<decltype(use(loaded_layer<Layers>(from, options), options.prefix))...>;
    using function = result (*)(const io::checkpoint&, const load_options&, const Use&);
    constexpr std::array<function, sizeof...(Layers)> load_and_use{
        [](const io::checkpoint& c, const load_options& o, const Use& u) {
          return u(loaded_layer<Layers>(c, o), o.prefix);
        }...};
    const auto nearest = [&] {
      const auto found = io::nearest_layer<Layers...>(from);
      return found ? "; the nearest one fails: " + found->fault : std::string();
    };
    const auto layer = only_layer(from, options.prefix, io::layers_in<Layers...>(from), nearest);
    options.prefix = layer.prefix;
    return load_and_use[layer.type](from, options, use);
  }
};

// All kinds of fmoe's that take x alone, or x and a routing, of up to four levels, with weights of
// type T.
template <class T>
using all_kinds =
    layer_kinds<mxd<T>, sparse_mlp<T>, cross_layer_transcoder<T>, aoe<T>, moe<T>, soft_moe<T>,
                peer<T>, monet_hd<T>, monet_vd<T>, cp_mumoe<1, T>, cp_mumoe<2, T>, cp_mumoe<3, T>,
                cp_mumoe<4, T>, cp_mumoe_block<1, T>, cp_mumoe_block<2, T>, tr_mumoe<1, T>,
                tr_mumoe<2, T>, tr_mumoe<3, T>, tr_mumoe<4, T>, tr_mumoe_block<1, T>,
                tr_mumoe_block<2, T>, tucker_mumoe<1, T>, tucker_mumoe<2, T>,
                tucker_mumoe_block<1, T>, dense_mumoe<1, T>, dense_mumoe<2, T>, dense_mumoe<3, T>,
                dense_mumoe_block<1, T>>;
template <>
struct layer_kinds<> : all_kinds<float> {};

}  // namespace fmoe::detail

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
#include <fmoe/io/layers_in.hpp>
#include <fmoe/layers/aoe.hpp>
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

// Loads a layer or a router, whose names begin with the prefix and `start`. config.json says what
// the options and the metadata beside the tensors do not. Throws conflict if they differ.
template <class Part>
Part loaded_part(const io::checkpoint& from, load_options options, const monet_config& config,
                 const std::string& start) {
  const auto metadata = from.metadata_beside(names_behind(from, options.prefix + start)).agreed;
  const io::layer_settings said = io::settings_in(metadata, from.file());
  const auto complete = [&](const char* name, auto of_config, auto of_file, auto& asked) {
    agreed_with(config, name, of_config, of_file, " is in the metadata of the weights");
    const auto wanted = agreed_with(config, name, of_config, asked, " is asked for");
    if (!of_file) asked = wanted;  // or load compares what the file says with what is asked for
  };
  if constexpr (is_monet<Part>)
    complete("hidden_act", config.activation, said.activation, options.activation);
  else complete("moe_topk", config.active, said.active, options.active);
  return load<Part>(from, options);
}

// Loads a Monet layer, with its router if that is not another layer's. K is the router's.
template <class Layer>
routed_monet<Layer> loaded_monet(const io::checkpoint& from, load_options options) {
  const monet_config config = monet_config_of(from);
  const bool has_router = from.contains(options.prefix + "router.w1.weight") ||
                          from.contains(options.prefix + "router.w2.weight");
  check_group(config, from, options.prefix, has_router);
  const auto completed = [&](std::optional<extent> heads) {
    return agreed_with(config, "moe_heads", config.heads, heads,
                       " is in the metadata or the statistics of the weights");
  };
  std::optional<extent> heads;
  monet_router<> router;
  if (has_router) {
    load_options of_router = options;
    options.active = {};
    of_router.activation = {};
    router = loaded_part<monet_router<>>(from, of_router, config, "router.");
    if (!router.mean1.empty()) heads = router.mean1.size();
    else if (router.heads != 0) heads = router.heads;
    heads = completed(heads);
    if (router.mean1.empty()) router.heads = heads.value_or(0);
  }
  auto layer = loaded_part<Layer>(from, options, config, "moe.");
  if (layer.heads != all) completed(layer.heads);
  else if (heads || (heads = completed({})) || (heads = heads_before(from, options.prefix)))
    layer.heads = *heads;
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
  if (found.empty())
    throw io::error(io::errc::missing_tensor,
                    "holds no layer that takes x alone" +
                        (prefix.empty() ? "" : " behind " + io::in_quotes(prefix)) + nearest(),
                    0, {}, from.file());
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

// All kinds of fmoe's that take x alone, or x and a routing, of up to four levels.
template <>
struct layer_kinds<>
    : layer_kinds<mxd<>, sparse_mlp<>, aoe<>, moe<>, soft_moe<>, peer<>, monet_hd<>, monet_vd<>,  //
                  cp_mumoe<1>, cp_mumoe<2>, cp_mumoe<3>, cp_mumoe<4>, cp_mumoe_block<1>,
                  cp_mumoe_block<2>, tr_mumoe<1>, tr_mumoe<2>, tr_mumoe<3>, tr_mumoe<4>,
                  tr_mumoe_block<1>, tr_mumoe_block<2>, tucker_mumoe<1>, tucker_mumoe<2>,
                  tucker_mumoe_block<1>, dense_mumoe<1>, dense_mumoe<2>, dense_mumoe<3>,
                  dense_mumoe_block<1>> {};

}  // namespace fmoe::detail

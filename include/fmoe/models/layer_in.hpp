// SPDX-License-Identifier: MIT
// The one layer that a file holds, of a kind that is known when the program runs.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
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

namespace fmoe::detail {

// A Monet layer and the router of its group, as one layer of x alone.
template <class Layer>
struct routed_monet {
  Layer layer;
  monet_router<> router;

  auto operator()(const operand_of<2> auto& x) const {
    return layer(x, router.g1(x), router.g2(x));
  }
  auto operator()(const auto&... x) const { return not_rows(x...); }

  static void released(auto& l, auto&& visit) {
    Layer::released(l.layer, visit);
    monet_router<>::released(l.router, visit);
  }
};

// Returns the prefix of the router of the Monet layer at this prefix: a group of layers shares the
// router of its first layer. Throws missing_tensor if there is none.
inline std::string router_prefix(const io::checkpoint& from, const std::string& layer) {
  std::string last;
  bool is_there = false;
  for (const io::found_layer& router : io::layers_in<monet_router<>>(from))
    if (!io::comes_before(layer, router.prefix)) {
      last = router.prefix;
      is_there = true;
    }
  if (!is_there)
    throw io::error(io::errc::missing_tensor,
                    "is missing, and the Monet layer needs a router at its prefix or before it", 0,
                    layer + "router.w1.weight", from.file());
  return last;
}

// Loads a layer, a Monet layer with its router. K is the router's.
template <class Layer>
auto loaded_layer(const io::checkpoint& from, load_options options) {
  if constexpr (requires(Layer layer) { layer.deleted; }) {
    load_options of_router = options;
    options.active = {};
    of_router.activation = {};
    auto layer = load<Layer>(from, options);
    of_router.prefix = router_prefix(from, options.prefix);
    return routed_monet<Layer>{std::move(layer), load<monet_router<>>(from, of_router)};
  } else {
    return load<Layer>(from, options);
  }
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
  // Loads the one layer of these kinds behind the prefix, and returns use(layer). Throws
  // missing_tensor or conflict if there is not one, and as load does.
  template <class Use>
  static auto with_layer_in(const io::checkpoint& from, load_options options, const Use& use) {
    using result = std::common_type_t<decltype(use(loaded_layer<Layers>(from, options)))...>;
    using function = result (*)(const io::checkpoint&, const load_options&, const Use&);
    constexpr std::array<function, sizeof...(Layers)> load_and_use{
        [](const io::checkpoint& c, const load_options& o, const Use& u) {
          return u(loaded_layer<Layers>(c, o));
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

// All kinds of fmoe's that take x alone, of up to four levels.
template <>
struct layer_kinds<>
    : layer_kinds<mxd<>, sparse_mlp<>, aoe<>, moe<>, soft_moe<>, peer<>, monet_hd<>, monet_vd<>,  //
                  cp_mumoe<1>, cp_mumoe<2>, cp_mumoe<3>, cp_mumoe<4>, cp_mumoe_block<1>,
                  cp_mumoe_block<2>, tr_mumoe<1>, tr_mumoe<2>, tr_mumoe<3>, tr_mumoe<4>,
                  tr_mumoe_block<1>, tr_mumoe_block<2>, tucker_mumoe<1>, tucker_mumoe<2>,
                  tucker_mumoe_block<1>, dense_mumoe<1>, dense_mumoe<2>, dense_mumoe<3>,
                  dense_mumoe_block<1>> {};

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// Loads and compiles the layer of a file without saying which kind of layer it is.
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
#include <fmoe/run/model.hpp>

namespace fmoe::detail {

// A layer that is found in a file, and how its model is to be made.
struct model_request {
  const io::checkpoint& from;
  load_options options;
  std::size_t tokens;
  const compile_options& compiled;
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

template <class Layer>
model model_of(const model_request& r) {
  if constexpr (requires(Layer layer) { layer.deleted; }) {  // Monet's
    load_options options = r.options;
    options.active = {};  // which is the router's
    auto layer = load<Layer>(r.from, options);
    options.prefix = router_prefix(r.from, options.prefix);
    options.active = r.options.active;
    options.activation = {};
    const auto router = load<monet_router<>>(r.from, options);
    return model([=](const auto& x) { return layer(x, router.g1(x), router.g2(x)); }, r.tokens,
                 r.compiled);
  } else {
    return model(load<Layer>(r.from, r.options), r.tokens, r.compiled);
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

template <class... Layers>
model load_model_of(const io::checkpoint& from, std::size_t tokens, load_options options,
                    const compile_options& compiled) {
  constexpr std::array make{&model_of<Layers>...};
  const auto nearest = [&] {
    const auto found = io::nearest_layer<Layers...>(from);
    return found ? "; the nearest one fails: " + found->fault : std::string();
  };
  const auto layer = only_layer(from, options.prefix, io::layers_in<Layers...>(from), nearest);
  options.prefix = layer.prefix;
  return make[layer.type]({from, options, tokens, compiled});
}

}  // namespace fmoe::detail

namespace fmoe {

// Loads the one layer that a file or a checkpoint holds, whatever kind of layer it is, and compiles
// it: a layer of fmoe in float, a Monet layer with its router. Of a model with several layers,
// .prefix in the options says which. The kinds are those in the brackets, which makes a program
// compile faster; without them they are all of fmoe's, of up to four levels. Throws io::error as
// load does, and missing_tensor or conflict if there is not one layer; throws as compile does.
//
//   const model any = load_model("layer.safetensors", 128);
//   const model mixture = load_model<aoe<>, moe<>>("layer.safetensors", 128);
template <class... Layers>
model load_model(const io::checkpoint& from, std::size_t tokens, const load_options& options = {},
                 const compile_options& compiled = {}) {
  if constexpr (sizeof...(Layers) != 0)
    return detail::load_model_of<Layers...>(from, tokens, options, compiled);
  else
    return detail::load_model_of<
        mxd<>, sparse_mlp<>, aoe<>, moe<>, soft_moe<>, peer<>, monet_hd<>, monet_vd<>,  //
        cp_mumoe<1>, cp_mumoe<2>, cp_mumoe<3>, cp_mumoe<4>, cp_mumoe_block<1>, cp_mumoe_block<2>,
        tr_mumoe<1>, tr_mumoe<2>, tr_mumoe<3>, tr_mumoe<4>, tr_mumoe_block<1>, tr_mumoe_block<2>,
        tucker_mumoe<1>, tucker_mumoe<2>, tucker_mumoe_block<1>, dense_mumoe<1>, dense_mumoe<2>,
        dense_mumoe<3>, dense_mumoe_block<1>>(from, tokens, options, compiled);
}
template <class... Layers>
model load_model(const std::filesystem::path& file, std::size_t tokens,
                 const load_options& options = {}, const compile_options& compiled = {}) {
  return load_model<Layers...>(io::checkpoint::open(file), tokens, options, compiled);
}

}  // namespace fmoe

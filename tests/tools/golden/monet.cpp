// SPDX-License-Identifier: MIT
#include "monet.hpp"
#include "gradients.hpp"
#include "over_ranks.hpp"
#include "value_of.hpp"

#include <fmoe/io/layer_settings.hpp>
#include <fmoe/monet.hpp>

namespace fmoe::golden {
namespace {

// Turns [rows, columns] into [t, p, s].
template <class T>
tensor<T, 3> heads(const tensor<T, 2>& rows, extent p) {
  if (p == 0 || rows.shape()[0] % p != 0) throw not_understood("the rows are not of p heads");
  return tensor<T, 3>({rows.shape()[0] / p, p, rows.shape()[1]}, rows.shared_storage());
}
template <class T>
tensor<T, 2> rows(const tensor<T, 3>& heads) {
  const auto [t, p, s] = heads.shape();
  return tensor<T, 2>({t * p, s}, heads.shared_storage());
}
template <class T>
tensor<T, 2> slice(const tensor<T, 2>& all, extent index, extent count) {
  if ((index + 1) * count > all.shape()[0]) throw not_understood("a tensor has too few layers");
  tensor<T, 2> part({count, all.shape()[1]});
  std::copy_n(all.data() + index * part.size(), part.size(), part.data());
  return part;
}

void check_size(const golden_case& c, const std::string& key, extent found) {
  if (c.number<extent>(key) != found)
    throw not_understood("the metadata has " + key + " = " + c.required(key) +
                         " and the files have " + std::to_string(found));
}

template <class T>
monet_router<T> router_in(const golden_case& c, const std::string& prefix) {
  auto router =
      load<monet_router<T>>(c.weights(), {.prefix = prefix, .active = c.number<extent>("k")});
  const bool released = c.required("router") == "released";
  if (!released && c.required("router") != "topk")
    throw not_understood("router " + c.required("router"));
  if (released == router.mean1.empty())
    throw not_understood("a " + c.required("router") + " router with other tensors");
  router.heads = c.number<extent>("p");
  router.epsilon = c.number<double>("eps");
  check_size(c, "s", router.keys1.shape()[1] / router.heads);
  check_size(c, "d", router.keys1.shape()[0]);
  return router;
}

template <class T, class Layer>
Layer layer_in(golden_case& c, const std::string& prefix) {
  Layer layer = load<Layer>(
      c.weights(),
      {.prefix = prefix, .activation = io::activation_named(c.required("activation"), c.file())});
  if (c.has("mask_pairs")) {
    const auto pairs = c.integers("mask_pairs");
    for (extent k = 0; k + 1 < pairs.size(); k += 2)
      layer.deleted.push_back({static_cast<extent>(pairs[k]), static_cast<extent>(pairs[k + 1])});
  }
  return layer;
}

template <class T>
void compare_routing(report& r, const std::string& name, const tensor<T, 3>& found,
                     const tensor<double, 2>& expected) {
  r.compare(name, rows(found), expected);
  r.compare_selection(name, rows(found), expected);
}

// A Monet layer and its router, as one layer of one file.
template <class T, class Experts>
struct routed {
  Experts layer;
  monet_router<T> router;

  auto operator()(const operand_of<2> auto& x) const {
    return layer(x, router.g1(x), router.g2(x));
  }
  static void released(auto& both, auto&& visit) {
    auto part = released_within("", visit, "d");  // its other labels are its own
    both.router.released(both.router, part);
    both.layer.released(both.layer, visit);
  }
};

template <class T, class Layer>
void judge_layer(golden_case& c, report& r) {
  const auto router = router_in<T>(c, "");
  auto layer = layer_in<T, Layer>(c, "");
  const auto x = c.rows<T>("x");
  check_size(c, "t", x.shape()[0]);
  compare_routing(r, "g1", value_of(router.g1(x)), c.rows<double>("g1"));
  compare_routing(r, "g2", value_of(router.g2(x)), c.rows<double>("g2"));
  r.compare("y", value_of(layer(x, router.g1(x), router.g2(x))), c.rows<double>("y64"));
  judge_gradients(c, r, routed<T, Layer>{layer, router}, x);
  judge_ranks(r, routed<T, Layer>{layer, router}, x, c.rows<double>("y64"));
  if (c.has("y64_unmasked")) {
    layer.deleted.clear();
    r.compare("unmasked y", value_of(layer(x, router.g1(x), router.g2(x))),
              c.rows<double>("y64_unmasked"));
  }
}

// x and y are [layer, t, d]; g1 and g2 are [group, t, p, s], for the first layer of a group.
template <class T, class Layer>
void judge_model(golden_case& c, report& r) {
  const extent layers = c.number<extent>("layers"), group = c.number<extent>("moe_groups"),
               t = c.number<extent>("t"), p = c.number<extent>("p");
  if (group == 0) throw not_understood("groups of 0 layers");
  const auto x = c.rows<T>("x");
  const auto y = c.rows<double>("y64"), g1 = c.rows<double>("g1"), g2 = c.rows<double>("g2");
  tensor<T, 2> all(x.shape());
  tensor<T, 3> routed1, routed2;
  for (extent l = 0; l < layers; ++l) {
    const std::string prefix = "model.layers." + std::to_string(l) + '.';
    const auto in = slice(x, l, t);
    if (l % group == 0) {
      const auto router = router_in<T>(c, prefix);
      routed1 = value_of(router.g1(in));
      routed2 = value_of(router.g2(in));
      compare_routing(r, "g1", routed1, slice(g1, l / group, t * p));
      compare_routing(r, "g2", routed2, slice(g2, l / group, t * p));
    }
    const auto out = value_of(layer_in<T, Layer>(c, prefix)(in, routed1, routed2));
    r.compare("y of layer " + std::to_string(l), out, slice(y, l, t));
    std::copy_n(out.data(), out.size(), all.data() + l * out.size());
  }
  r.compare("y", all, y);
}

template <template <class> class Layer>
void judge_as(golden_case& c, report& r) {
  const auto judge = [&]<class T>(golden_case& in, T) {
    c.text("layers") ? judge_model<T, Layer<T>>(in, r) : judge_layer<T, Layer<T>>(in, r);
  };
  golden_case again = c;
  judge(again, float());
  judge(c, double());
  for (const char* authors_own : {"y", "y64_torch", "g1_torch", "g2_torch"}) c.ignore(authors_own);
}

}  // namespace

void judge_monet(golden_case& c, report& r) {
  const std::string form = c.required("form");
  if (form == "hd") judge_as<monet_hd>(c, r);
  else if (form == "vd") judge_as<monet_vd>(c, r);
  else throw not_understood("form " + form);
}

}  // namespace fmoe::golden

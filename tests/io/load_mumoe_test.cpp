// SPDX-License-Identifier: MIT
// Loads muMoE from released weights: round trips of every kind, and contradictions between tensors
// and metadata.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mumoe.hpp>

#include <cstring>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/oracle.hpp"

using namespace fmoe;
using namespace fmoe::test;
using io::errc;

namespace {

constexpr extent I = 5, H = 7, O = 3, N = 4, M = 2, R = 6;

template <std::size_t Rank>
parameter<float, Rank> some(const std::array<extent, Rank>& shape) {
  return test::random<tensor<float, Rank>>(shape, static_cast<unsigned>(element_count(shape)));
}

cp_mumoe<2> cp(bool bias = true) {
  return {{{some<2>({I, N}), some<2>({I, M})}},
          {},
          {{some<2>({N, R}), some<2>({M, R})}, some<2>({I + bias, R}), some<2>({O, R})}};
}
tr_mumoe<2> tr() {
  return {{{some<2>({I, N}), some<2>({I, M})}},
          {some<1>({I}), some<1>({I})},
          {{some<3>({2, N, 3}), some<3>({3, M, 4})}, some<3>({4, I, 5}), some<3>({5, O, 2})}};
}
tucker_mumoe<> tucker() {
  return {{{some<2>({I, N})}},
          {},
          {{some<2>({N, 2})}, some<2>({I, 3}), some<2>({O, 4}), some<3>({2, 3, 4})}};
}
dense_mumoe<2> dense() {
  return {{{some<2>({I, N}), some<2>({I, M})}}, {}, {some<4>({N, M, I + 1, O})}};
}
cp_mumoe_block<> block() {
  return {{{some<2>({I, N})}},
          {some<1>({I}), some<1>({I})},
          {{some<2>({N, R})}, some<2>({I + 1, R}), some<2>({H, R})},
          {{some<2>({N, R})}, some<2>({H + 1, R}), some<2>({O, R})}};
}
template <class Layer>
Layer with_statistics(Layer l) {
  for (extent e = 0; e < l.gate.means.size(); ++e) {
    const extent n = l.gate.projections[e].shape()[1];
    l.gate.means[e] = some<1>({n});
    l.gate.variances[e] = parameter<float, 1>({n});
  }
  return l;
}

template <class Layer>
bool same_layer(const Layer& a, const Layer& b) {
  std::vector<tensor<float, 1>> flat;  // one layer's parameters, then the other's
  const auto add = [&](const auto&, const auto& p) {
    flat.push_back(p.empty() ? tensor<float, 1>()
                             : tensor<float, 1>({p.size()}, p.shared_storage()));
  };
  Layer::released(a, add);
  Layer::released(b, add);
  const extent half = flat.size() / 2;
  for (extent k = 0; k < half; ++k) {
    const auto &x = flat[k], &y = flat[half + k];
    if (x.empty() != y.empty() || x.shape() != y.shape() ||
        (!x.empty() && std::memcmp(x.data(), y.data(), x.size() * 4) != 0))
      return false;
  }
  return a.gate.alpha == b.gate.alpha && a.gate.layer_norm == b.gate.layer_norm;
}

using metadata = io::strings_by_name;

template <class Layer>
metadata check_round_trip(const Layer& layer) {
  const temporary_folder folder;
  const auto file = folder / "layer.safetensors";
  save(layer, file, {.prefix = "transformer.h.3.mlp.MuMoE_layer."});
  std::vector<std::string> extra;
  CHECK(same_layer(
      load<Layer>(file, {.prefix = "transformer.h.3.mlp.MuMoE_layer.", .extra = &extra}), layer));
  CHECK(extra.empty());
  return io::safetensors::read(file).metadata();
}

// Returns the layer after it was saved, changed and loaded.
template <class Layer>
Layer reloaded(const Layer& layer, const metadata& changes, const std::string& without = {}) {
  auto saved = io::arrays_of(layer, {}, {});
  for (const auto& [key, text] : changes) saved.metadata[key] = text;
  saved.arrays.erase(without);
  return load<Layer>(
      io::safetensors::parse(io::safetensors::serialize(saved.arrays, saved.metadata)));
}
template <class Layer>
void check_refused(const Layer& layer, errc code, const metadata& changes, const std::string& text,
                   const std::string& without = {}) {
  const io::error e = caught([&] { reloaded(layer, changes, without); });
  INFO(e.what());
  CHECK(io::name_of(e.code) == std::string(io::name_of(code)));
  CHECK(std::string(e.what()).find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("what is saved is loaded bit for bit, with metadata that tells what it is") {
  CHECK(check_round_trip(cp()) == metadata{{"activation", "entmax15"},
                                           {"bias", "1"},
                                           {"block", "0"},
                                           {"experts", "4,2"},
                                           {"input_layer_norm", "0"},
                                           {"kind", "cp"},
                                           {"levels", "2"},
                                           {"norm", "layer"},
                                           {"ranks", "6"}});
  auto ring = tr();
  ring.gate.alpha = 1;
  ring.gate.layer_norm = false;
  CHECK(check_round_trip(ring) == metadata{{"activation", "softmax"},
                                           {"bias", "0"},
                                           {"block", "0"},
                                           {"experts", "4,2"},
                                           {"input_layer_norm", "1"},
                                           {"kind", "tr"},
                                           {"levels", "2"},
                                           {"norm", "none"},
                                           {"ranks", "2,3,4,5"}});
  CHECK(check_round_trip(with_statistics(block())) == metadata{{"activation", "entmax15"},
                                                               {"bias", "1"},
                                                               {"block", "1"},
                                                               {"experts", "4"},
                                                               {"input_layer_norm", "1"},
                                                               {"kind", "cp"},
                                                               {"levels", "1"},
                                                               {"norm", "batch"},
                                                               {"ranks", "6"}});
  CHECK(check_round_trip(tucker()).at("ranks") == "2,3,4");
  CHECK(check_round_trip(dense()).at("ranks").empty());
  CHECK(check_round_trip(cp(false)).at("bias") == "0");
}

TEST_CASE("released names") {
  const auto names = [](const auto& layer) {
    std::string text;
    for (const auto& [name, a] : io::arrays_of(layer, {}, {}).arrays) text += name + ' ';
    return text;
  };
  CHECK(names(with_statistics(cp())) ==
        "MuMoE.factors.0 MuMoE.factors.1 MuMoE.factors.2 MuMoE.factors.3 bn.0.running_mean "
        "bn.0.running_var "
        "bn.1.running_mean bn.1.running_var projs.0 projs.1 ");
  CHECK(names(block()) ==
        "MuMoE.factors.0 MuMoE.factors.1 MuMoE.factors.2 MuMoE2.factors.0 MuMoE2.factors.1 "
        "MuMoE2.factors.2 "
        "input_ln.bias input_ln.weight projs.0 ");
  CHECK(names(dense()) == "MuMoE.weight projs.0 projs.1 ");
}

TEST_CASE("the function of the gate is said, and its norm where there are no statistics") {
  const auto bare = [](const auto& layer, const load_options& options = {}) {
    using Layer = std::remove_cvref_t<decltype(layer)>;
    return load<Layer>(
        io::safetensors::parse(io::safetensors::serialize(io::arrays_of(layer, {}, {}).arrays, {})),
        options);
  };
  const auto refused = [&](const auto& layer, const metadata& said) {
    return caught([&] { bare(layer, {.metadata = said}); }).code == errc::missing_setting;
  };
  const auto counted = with_statistics(cp());
  CHECK(bare(counted, {.metadata = {{"activation", "entmax15"}}}).gate.batch_norm());
  CHECK(bare(counted, {.metadata = {{"activation", "softmax"}}}).gate.alpha == 1);
  CHECK(
      same_layer(bare(cp(), {.metadata = {{"norm", "layer"}, {"activation", "entmax15"}}}), cp()));
  CHECK(!bare(cp(), {.metadata = {{"norm", "none"}, {"activation", "entmax15"}}}).gate.layer_norm);
  CHECK(refused(counted, {}));
  CHECK(refused(cp(), {{"norm", "layer"}}));
  CHECK(refused(cp(), {{"activation", "entmax15"}}));
}

TEST_CASE("metadata that contradicts the tensors is refused") {
  const metadata wrong{{"kind", "tr"}, {"levels", "3"},           {"experts", "4,3"},
                       {"ranks", "7"}, {"input_layer_norm", "1"}, {"bias", "0"},
                       {"block", "1"}, {"norm", "batch"}};
  for (const auto& [key, text] : wrong) check_refused(cp(), errc::conflict, {{key, text}}, key);
  check_refused(with_statistics(cp()), errc::conflict, {{"norm", "layer"}}, "norm");
  check_refused(cp(), errc::schema, {{"norm", "group"}}, "group");
  check_refused(cp(), errc::schema, {{"activation", "relu"}}, "relu");
  CHECK(reloaded(cp(), {{"activation", "softmax"}}).gate.alpha == 1);
  CHECK(reloaded(cp(), {{"activation", "sparsemax"}}).gate.alpha == 2);
  CHECK(!reloaded(cp(), {{"norm", "none"}}).gate.layer_norm);
  CHECK(same_layer(reloaded(cp(), {{"seed", "7"}, {"note", "any"}}), cp()));
}

TEST_CASE("tensors that are missing or do not fit are named") {
  check_refused(cp(), errc::missing_tensor, {}, "MuMoE.factors.3", "MuMoE.factors.3");
  check_refused(cp(), errc::missing_tensor, {}, "projs.1", "projs.1");
  check_refused(with_statistics(cp()), errc::conflict, {}, "running statistics",
                "bn.1.running_var");
  auto l = cp();
  l.experts.experts[1] = some<2>({M + 1, R});
  const io::error e = caught([&] { io::arrays_of(l, {}, {}); });
  CHECK(e.code == errc::shape);
  CHECK(e.tensor == "MuMoE.factors.1");
  l = cp();
  l.experts.input = some<2>({I + 2, R});
  CHECK(caught([&] { io::arrays_of(l, {}, {}); }).code == errc::shape);
  auto b = block();
  b.second.input = some<2>({H, R});
  CHECK(caught([&] { io::arrays_of(b, {}, {}); }).code == errc::shape);
  const auto saved =
      io::safetensors::parse(io::safetensors::serialize(io::arrays_of(tr(), {}, {}).arrays, {}));
  CHECK(caught([&] { load<cp_mumoe<2>>(saved); }).code == errc::shape);
  CHECK(caught([&] { load<tr_mumoe<2>>(saved, {.active = 4}); }).code == errc::conflict);
  l = cp();
  l.gate.alpha = 1.25;
  CHECK(io::arrays_of(l, {}, {}).metadata.at("activation") == "1.25");
}

// SPDX-License-Identifier: MIT
// Loads layers from released weights: round trips, and every contradiction between names, shapes,
// types, metadata and options.
#include <fmoe/io/axes.hpp>
#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

#include <cstdint>
#include <cstring>
#include <optional>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/oracle.hpp"

using namespace fmoe;
using namespace fmoe::test;
using io::errc;

namespace {

constexpr extent I = 5, H = 7, N = 9, O = 3;

template <class T>
parameter<T, 2> matrix(extent rows, extent columns, unsigned seed) {
  return test::random<tensor<T, 2>>({rows, columns}, seed);
}
template <class T>
parameter<T, 1> row(extent length, unsigned seed) {
  return test::random<tensor<T, 1>>({length}, seed);
}

template <class T = float>
mxd<T> mlp() {
  mxd<T> l;
  l.encoder = matrix<T>(I, H, 1);
  l.encoder_bias = row<T>(H, 2);
  l.gate = matrix<T>(I, N, 3);
  l.gate_bias = row<T>(N, 4);
  l.scales = matrix<T>(N, O, 5);
  l.decoder = matrix<T>(H, O, 6);
  l.bias = row<T>(O, 7);
  l.active = 4;
  l.activation = pointwise::silu;
  return l;
}
template <class T = float>
mxd<T> glu() {
  mxd<T> l = mlp<T>();
  l.linear = matrix<T>(I, H, 8);
  l.linear_bias = row<T>(H, 9);
  return l;
}
template <class T = float>
sparse_mlp<T> transcoder() {
  sparse_mlp<T> l;
  l.encoder = matrix<T>(I, H, 1);
  l.encoder_bias = row<T>(H, 2);
  l.decoder = matrix<T>(H, O, 3);
  l.bias = row<T>(O, 4);
  l.active = all;
  return l;
}

template <class T, std::size_t Rank>
bool same_bits(const tensor<T, Rank>& a, const tensor<T, Rank>& b) {
  if (a.empty() || b.empty()) return a.empty() == b.empty();
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
template <class Layer>
bool same_layer(const Layer& a, const Layer& b) {
  bool same = a.active == b.active && a.activation == b.activation;
  Layer::released(a, [&](const released_name& n, const auto& mine) {
    Layer::released(b, [&](const released_name& m, const auto& theirs) {
      if constexpr (std::is_same_v<decltype(mine), decltype(theirs)>)
        same = same && (n.name != m.name || same_bits(mine, theirs));
    });
  });
  return same;
}

template <class Layer>
void check_round_trip(const Layer& layer, const std::string& kind) {
  const temporary_folder folder;
  const auto file = folder / "layer.safetensors";
  save(layer, file);
  CHECK(io::safetensors::read(file).metadata().at("kind") == kind);
  CHECK(same_layer(load<Layer>(file), layer));
  save(layer, file, {.prefix = "model.layers.3."});
  CHECK(same_layer(load<Layer>(file, {.prefix = "model.layers.3."}), layer));
}

// The content of the layer's file, which a test changes before it is written.
struct file_content {
  io::arrays_by_name arrays;
  io::strings_by_name metadata;
};
template <class Layer>
file_content content_of(const Layer& layer, const save_options& options = {}) {
  const auto saved = io::arrays_of(layer, {}, options);
  return {saved.arrays, saved.metadata};
}

template <class Layer = mxd<>>
Layer loaded(const file_content& c, const load_options& options = {}) {
  return load<Layer>(io::safetensors::parse(io::safetensors::serialize(c.arrays, c.metadata)),
                     options);
}

// Checks the error of loading, which must name the file and the tensor and contain each of the
// texts.
template <class Layer = mxd<>>
void check_refused(const file_content& c, errc code, const std::string& tensor,
                   std::initializer_list<const char*> texts, const load_options& options = {}) {
  const temporary_folder folder;
  const auto file = folder / "layer.safetensors";
  io::safetensors::write(file, c.arrays, c.metadata);
  const io::error e = caught([&] { load<Layer>(file, options); });
  INFO(e.what());
  CHECK(io::name_of(e.code) == std::string(io::name_of(code)));
  CHECK(e.tensor == tensor);
  CHECK(e.file == file);
  for (const char* text : texts) CHECK(std::string(e.what()).find(text) != std::string::npos);
}

template <class T, std::size_t Rank>
void put(file_content& c, const std::string& name, const tensor<T, Rank>& t) {
  c.arrays.insert_or_assign(name, io::array(t));
}

}  // namespace

TEMPLATE_TEST_CASE("what is saved is loaded bit for bit", "", float, double, bf16, f16) {
  using T = TestType;
  check_round_trip(mlp<T>(), "mxd_mlp");
  check_round_trip(glu<T>(), "mxd_glu");
  check_round_trip(transcoder<T>(), "transcoder");

  auto bare = mlp<T>();
  bare.encoder_bias = bare.gate_bias = bare.bias = {};
  bare.active = 0;
  check_round_trip(bare, "mxd_mlp");

  auto skipping = glu<T>();
  skipping.skip = matrix<T>(I, O, 10);
  skipping.active = all;
  check_round_trip(skipping, "mxd_glu");

  auto skip_transcoder = transcoder<T>();
  skip_transcoder.skip = matrix<T>(I, O, 10);
  skip_transcoder.activation = pointwise::gelu_tanh;
  check_round_trip(skip_transcoder, "skip_transcoder");

  auto sae = transcoder<T>();
  sae.decoder = matrix<T>(H, I, 11);
  sae.bias = {};
  sae.input_bias = row<T>(I, 12);
  sae.active = 3;
  check_round_trip(sae, "sae");
}

TEST_CASE("every activation is written and read") {
  for (const auto f : {pointwise::relu, pointwise::gelu, pointwise::gelu_tanh, pointwise::silu,
                       pointwise::sigmoid, pointwise::squared_relu}) {
    auto layer = mlp();
    layer.activation = f;
    CHECK(loaded(content_of(layer)).activation == f);
  }
  auto layer = mlp();
  layer.activation = pointwise::exp;
  CHECK_THROWS_AS(content_of(layer), io::error);
}

TEST_CASE("released names stand for transposed parameters") {
  const auto layer = glu();
  const file_content c = content_of(layer);
  const auto gate = c.arrays.at("gate").get<float, 2>({N, I});
  const auto linear = c.arrays.at("W_glu.weight").get<float, 2>({H, I});
  const auto scales = c.arrays.at("W_cond").get<float, 2>({O, N});
  const auto encoder = c.arrays.at("W_enc").get<float, 2>({I, H});
  CHECK(gate(8, 4) == layer.gate(4, 8));
  CHECK(gate(1, 0) == layer.gate(0, 1));
  CHECK(linear(6, 1) == layer.linear(1, 6));
  CHECK(scales(2, 8) == layer.scales(8, 2));
  CHECK(encoder(4, 6) == layer.encoder(4, 6));

  auto wide = mlp();  // more columns than are moved at a time
  wide.gate = matrix<float>(I, 40, 1);
  wide.gate_bias = row<float>(40, 2);
  wide.scales = matrix<float>(40, O, 3);
  CHECK(same_layer(loaded(content_of(wide)), wide));
}

TEST_CASE("permuted reorders the axes of any rank") {
  const auto t = test::random<tensor<float, 3>>({2, 17, 3}, 1);
  const auto p = detail::tensor_of<float, 3>(io::permuted(detail::any_of(t), "abc", "cab"));
  REQUIRE(p.shape() == std::array<extent, 3>{3, 2, 17});
  for (extent a = 0; a < 2; ++a)
    for (extent b = 0; b < 17; ++b)
      for (extent c = 0; c < 3; ++c) REQUIRE(p(c, a, b) == t(a, b, c));
  const tensor<float, 2> none({0, 3});
  CHECK(io::permuted(detail::any_of(none), "ab", "ba").shape == std::vector<extent>{3, 0});
}

TEST_CASE("weights that lie in a file as the layer has them stay there") {
  const temporary_folder folder;
  save(transcoder<bf16>(), folder / "layer.safetensors");
  const std::string before = content(folder / "layer.safetensors");
  std::optional file(io::safetensors::read(folder / "layer.safetensors"));
  const auto place = [&](const std::string& name) -> const void* {
    return file->at(name).bytes().data();
  };
  const sparse_mlp<bf16> own = load<sparse_mlp<bf16>>(*file);
  sparse_mlp<bf16> layer = load<sparse_mlp<bf16>>(*file, {.mapped = true});
  const auto wide = load<sparse_mlp<>>(*file, {.mapped = true});
  CHECK(std::as_const(layer.decoder).data() == place("W_dec"));
  CHECK(std::as_const(layer.encoder_bias).data() == place("b_enc"));
  CHECK(own.decoder.data() != place("W_dec"));
  CHECK(static_cast<const void*>(wide.decoder.data()) != place("W_dec"));

  // They are the layer's as others are: packed once, written in a copy, and there when the file is
  // closed.
  const sparse_mlp<bf16> copy = layer;
  file.reset();
  const auto x = test::random<tensor<float, 2>>({4, I}, 9);
  CHECK(std::ranges::equal(evaluate(layer(x)), evaluate(own(x))));
  layer.decoder(2, 1) = bf16(7.f);
  CHECK(std::ranges::equal(copy.decoder, own.decoder));
  CHECK(layer.decoder(2, 1) == bf16(7.f));
  CHECK(!std::ranges::equal(evaluate(layer(x)), evaluate(own(x))));
  CHECK(content(folder / "layer.safetensors") == before);

  // A checkpoint reads each weight once, or not at all.
  const io::checkpoint model = io::checkpoint::open(folder / "layer.safetensors");
  const io::array read = model.at("W_dec"), there = model.mapped_at("W_dec");
  CHECK(std::ranges::equal(read.bytes(), there.bytes()));
  CHECK(read.is_lasting());
  CHECK(!there.is_lasting());
  CHECK(there.bytes().data() == model.mapped_at("W_dec").bytes().data());
  CHECK(read.bytes().data() != model.at("W_dec").bytes().data());
  const auto mapped = load<sparse_mlp<bf16>>(model, {.mapped = true});
  CHECK(std::as_const(mapped.decoder).data() == static_cast<const void*>(there.bytes().data()));
  CHECK(same_layer(mapped, own));
  CHECK(same_layer(load<sparse_mlp<bf16>>(model), own));
}

TEST_CASE("every floating type is widened and none narrowed unasked") {
  const auto single = mlp<float>();
  for (const dtype d : {dtype::bfloat16, dtype::float16}) {
    const file_content c = content_of(single, {.type = d});
    const auto l = loaded<mxd<double>>(c);
    for (extent i = 0; i < l.gate.size(); ++i) {
      const float x = single.gate.data()[i];
      const float rounded =
          d == dtype::bfloat16 ? static_cast<float>(bf16(x)) : static_cast<float>(f16(x));
      REQUIRE(l.gate.data()[i] == static_cast<double>(rounded));
    }
    const auto narrow = loaded<mxd<float>>(c);
    CHECK(same_layer(loaded<mxd<float>>(content_of(narrow, {.type = d})), narrow));
  }
  const file_content wide = content_of(single, {.type = dtype::float64});
  check_refused(wide, errc::dtype, "W_enc", {"F64", "float32"});
  CHECK(same_layer(loaded(wide, {.narrow = io::narrow}), single));
}

TEST_CASE("tensors of other types are refused") {
  file_content c = content_of(mlp());
  const std::vector<std::int64_t> integers(O);
  c.arrays.insert_or_assign("b_dec_out", io::array({O}, std::span<const std::int64_t>(integers)));
  check_refused(c, errc::dtype, "b_dec_out", {"is I64", "F32"});
  const std::vector<std::byte> bytes(H);
  c = content_of(mlp());
  c.arrays.insert_or_assign("b_enc", io::array(io::element_type::boolean, {H}, bytes));
  check_refused(c, errc::dtype, "b_enc", {"is BOOL"});
}

TEST_CASE("a missing tensor is named") {
  for (const char* name : {"W_enc", "gate", "W_cond", "W_dec"}) {
    file_content c = content_of(mlp());
    c.arrays.erase(name);
    check_refused(c, errc::missing_tensor, name, {"is missing", "is expected"});
  }
  file_content c = content_of(mlp());
  c.arrays.erase("gate");
  check_refused(c, errc::missing_tensor, "gate", {"[*, 5] (ni, i = 5 in \"W_enc\")"});
  check_refused(content_of(transcoder()), errc::missing_tensor, "gate",
                {});  // whatever its metadata says
  check_refused(content_of(mlp(), {.prefix = "a."}), errc::missing_tensor, "b.W_enc", {},
                {.prefix = "b."});
}

TEST_CASE("misshapen tensors are named with what is expected and found") {
  file_content c = content_of(mlp());
  put(c, "W_dec", matrix<float>(H + 1, O, 1));
  check_refused(c, errc::shape, "W_dec", {"is [8, 3] and [7, 3]", "h = 7 in \"W_enc\""});
  c = content_of(mlp());
  put(c, "gate", matrix<float>(I, N, 1));  // not transposed
  check_refused(c, errc::shape, "gate", {"is [5, 9] and [*, 5]"});
  c = content_of(mlp());
  put(c, "b_dec_out", matrix<float>(1, O, 1));
  check_refused(c, errc::shape, "b_dec_out", {"is [1, 3] and [3]"});
  c = content_of(glu());
  put(c, "W_glu.bias", row<float>(H - 1, 1));
  check_refused(c, errc::shape, "W_glu.bias", {"is [6] and [7]"});
}

TEST_CASE("K and the activation come from the options or the metadata") {
  file_content c = content_of(mlp());
  CHECK(loaded(c).active == 4);
  CHECK(loaded(c, {.active = 4, .activation = pointwise::silu}).active == 4);
  check_refused(c, errc::conflict, "", {"K = 4", "5 is asked for"}, {.active = 5});
  check_refused(c, errc::conflict, "", {"silu", "gelu is asked for"},
                {.activation = pointwise::gelu});
  c.metadata.clear();
  const auto gelu = pointwise::gelu, relu = pointwise::relu;
  CHECK(loaded(c, {.active = 0, .activation = gelu}).active == 0);
  CHECK(loaded(c, {.active = all, .activation = gelu}).active == all);
  CHECK(loaded(c, {.active = 3, .activation = relu}).activation == relu);
  CHECK(loaded(c, {.active = 3, .metadata = {{"activation", "relu"}}}).activation == relu);
  CHECK(loaded(c, {.metadata = {{"activation", "relu"}, {"K", "3"}}}).active == 3);
  CHECK(
      loaded<sparse_mlp<>>({content_of(transcoder()).arrays, {}}, {.active = 2, .activation = gelu})
          .activation == gelu);
}

TEST_CASE("a setting that the layer needs and nothing says is refused") {
  file_content c = content_of(mlp());
  c.metadata.erase("K");
  check_refused(c, errc::missing_setting, "", {"\"K\"", "pass K as `active`"});
  c = content_of(mlp());
  c.metadata.erase("activation");
  check_refused(c, errc::missing_setting, "", {"\"activation\"", "pass it in `metadata`"});
  c = content_of(transcoder());
  c.metadata.clear();
  check_refused<sparse_mlp<>>(c, errc::missing_setting, "", {"\"K\""});
  c = content_of(mlp());
  check_refused(c, errc::conflict, "", {"K = \"4\"", "\"5\" is asked for"},
                {.metadata = {{"K", "5"}}});
  check_refused(c, errc::conflict, "", {"norm = \"layer\"", "has no such setting"},
                {.metadata = {{"norm", "layer"}}});
}

TEST_CASE("the activation of a transcoder is said, that of an autoencoder is ReLU") {
  file_content c = content_of(transcoder());
  c.metadata.erase("activation");
  check_refused<sparse_mlp<>>(c, errc::missing_setting, "", {"\"activation\""});
}

TEST_CASE("metadata is understood in the spellings of released files") {
  file_content c = content_of(mlp());
  const auto with = [&](io::strings_by_name metadata) {
    const bool has_k =
        metadata.contains("K") || metadata.contains("k") || metadata.contains("selection");
    metadata.try_emplace("activation", "silu");
    if (!has_k) metadata.try_emplace("K", "5");
    c.metadata = std::move(metadata);
    return loaded(c);
  };
  for (const char* gelu : {"gelu", "gelu_exact", "gelu (erf)", "GELU"})
    CHECK(with({{"activation", gelu}}).activation == pointwise::gelu);
  for (const char* tanh : {"gelu_tanh", "gelu_pytorch_tanh"})
    CHECK(with({{"activation", tanh}}).activation == pointwise::gelu_tanh);
  CHECK(with({{"activation", "sigmoid"}}).activation == pointwise::sigmoid);
  CHECK(with({{"K", "7"}}).active == 7);
  CHECK(with({{"k", "0"}, {"selection", "topk"}}).active == 0);
  CHECK(with({{"k", "7"}, {"K", "7"}}).active == 7);
  CHECK(with({{"k", "-1"}}).active == all);
  CHECK(with({{"k", "-1"}, {"selection", "relu"}}).active == all);
  CHECK(with({{"selection", "none"}}).active == all);
  CHECK(with({{"kind", "mxd"}}).active == 5);
  CHECK(with({{"licence", "MIT"}, {"n_experts", "many"}}).active == 5);
}

TEST_CASE("metadata that is not understood or contradicts itself is refused") {
  file_content c = content_of(mlp());
  const auto refuse = [&](errc code, const char* text, io::strings_by_name metadata) {
    c.metadata = std::move(metadata);
    check_refused(c, code, "", {text});
  };
  refuse(errc::schema, "quick_gelu", {{"activation", "quick_gelu"}});
  refuse(errc::schema, "top-p", {{"selection", "top-p"}});
  for (const char* k :
       {"", "many", "3.5", "-2", "32 ", "+3", "99999999999999999999", "18446744073709551615"})
    refuse(errc::schema, "K", {{"K", k}});
  refuse(errc::conflict, "its K", {{"K", "3"}, {"k", "4"}});
  refuse(errc::conflict, "relu", {{"k", "4"}, {"selection", "relu"}});
  refuse(errc::conflict, "topk", {{"k", "-1"}, {"selection", "topk"}});
}

TEST_CASE("the kind follows from the names present") {
  file_content c = content_of(mlp());
  for (const char* kind : {"mxd_glu", "transcoder", "sae", "nonsense"}) {
    c.metadata["kind"] = kind;
    check_refused(c, errc::conflict, "", {kind, "mxd_mlp"});
  }
  c = content_of(glu());
  c.metadata["kind"] = "mxd_mlp";
  check_refused(c, errc::conflict, "", {"mxd_mlp", "mxd_glu"});
  c = content_of(glu());
  c.arrays.erase("W_glu.weight");
  check_refused(c, errc::conflict, "", {"none of mxd_glu, mxd_mlp"});

  file_content of_mxd = content_of(mlp());
  of_mxd.metadata.clear();
  check_refused<sparse_mlp<>>(of_mxd, errc::conflict, "",
                              {"none of sae, skip_transcoder, transcoder"});

  file_content t = content_of(transcoder());
  t.metadata["kind"] = "skip_transcoder";
  check_refused<sparse_mlp<>>(t, errc::conflict, "", {"skip_transcoder", "of a transcoder"});
  t.metadata["kind"] = "sae";
  check_refused<sparse_mlp<>>(t, errc::conflict, "", {"sae"});
}

TEST_CASE("b_dec counts only in an autoencoder") {
  file_content c = content_of(transcoder());
  put(c, "b_dec", row<float>(I, 1));
  std::vector<std::string> extra;
  CHECK(loaded<sparse_mlp<>>(c, {.extra = &extra}).input_bias.empty());
  put(c, "b_dec", row<float>(I + 1, 1));  // not even its shape
  CHECK(loaded<sparse_mlp<>>(c, {.extra = &extra}).input_bias.empty());
  CHECK(extra.empty());

  auto both = transcoder();
  both.input_bias = row<float>(I, 1);
  CHECK_THROWS_AS(content_of(both), io::error);
}

TEST_CASE("a tensor of the layer that nothing reads is refused, or listed") {
  file_content c = content_of(mlp(), {.prefix = "mlp."});
  for (const char* name :
       {"mlp.b_dec", "mlp.bn.num_batches_tracked", "mlp.W_enc2", "mlp.log", "other.W_enc", "W_enc"})
    put(c, name, row<float>(2, 1));
  check_refused(
      c, errc::extra_tensor, "mlp.W_enc2",
      {"is not read by this layer, nor \"mlp.bn.num_batches_tracked\" and 1 more", "`extra`"},
      {.prefix = "mlp."});
  std::vector<std::string> extra;
  loaded(c, {.prefix = "mlp.", .extra = &extra});
  CHECK(extra == std::vector<std::string>{"mlp.W_enc2", "mlp.bn.num_batches_tracked", "mlp.log"});
}

TEST_CASE("layers that could not be loaded again are not saved") {
  const temporary_folder folder;
  const auto refuse = [&](const auto& layer, errc code, const char* tensor) {
    const io::error e = caught([&] { save(layer, folder / "layer.safetensors"); });
    INFO(e.what());
    CHECK(io::name_of(e.code) == std::string(io::name_of(code)));
    CHECK(e.tensor == tensor);
    CHECK(folder.entries() == 0);
  };
  refuse(mxd<>(), errc::missing_tensor, "W_enc");
  auto layer = mlp();
  layer.gate = matrix<float>(N, I, 1);
  refuse(layer, errc::shape, "gate");
  layer = mlp();
  layer.linear_bias = row<float>(H, 1);
  refuse(layer, errc::conflict, "");
}

TEST_CASE("several layers are loaded from one file, by their prefixes") {
  io::arrays_by_name arrays = content_of(mlp(), {.prefix = "0."}).arrays;
  arrays.merge(content_of(transcoder(), {.prefix = "1."}).arrays);
  const auto file = io::safetensors::parse(io::safetensors::serialize(arrays));
  CHECK(load<mxd<>>(file, {.prefix = "0.", .active = 4, .activation = pointwise::gelu}).active ==
        4);
  CHECK(same_layer(
      load<sparse_mlp<>>(file, {.prefix = "1.", .active = all, .activation = pointwise::relu}),
      transcoder()));
}

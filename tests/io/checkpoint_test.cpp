// SPDX-License-Identifier: MIT
// Loads layers of a whole model from one file and from shards beside an index, and checks every way
// in which these can disagree.
#include <atomic>
#include <latch>
#include <thread>

#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>

#include <map>
#include <set>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/oracle.hpp"

using namespace fmoe;
using namespace fmoe::test;
using io::errc;

namespace {

using shards = std::map<std::string, io::arrays_by_name>;

io::array numbers(std::vector<extent> shape, unsigned seed) {
  auto flat = test::random<tensor<float, 1>>({element_count(shape)}, seed);
  const auto bytes = std::as_bytes(std::span<const float>(flat.data(), flat.size()));
  return io::array(io::array(flat).type(), std::move(shape), bytes);
}

// Two layers of Monet HD, which share the router of the first one, and a weight of an attention.
shards model() {
  constexpr extent d = 6, s = 3, m = 2, p = 2;
  shards files;
  unsigned seed = 0;
  const auto put = [&](const char* file, const std::string& name, std::vector<extent> shape) {
    files[file].emplace(name, numbers(std::move(shape), ++seed));
  };
  for (const char* w : {"router.w1.weight", "router.w2.weight"})
    put("a.safetensors", std::string("model.layers.0.") + w, {p * s, d});
  for (const char* n :
       {"norm1.running_mean", "norm1.running_var", "norm2.running_mean", "norm2.running_var"})
    put("b.safetensors", std::string("model.layers.0.router.") + n, {p});
  for (const char* layer : {"model.layers.0.", "model.layers.10."}) {
    put("a.safetensors", std::string(layer) + "moe.u.weight", {s * m, d});
    put("b.safetensors", std::string(layer) + "moe.u.bias", {s * m});
    put("b.safetensors", std::string(layer) + "moe.v.weight", {d, s * m});
    put("a.safetensors", std::string(layer) + "moe.b", {s, d});
    put("a.safetensors", std::string(layer) + "self_attn.q_proj.weight", {d, d});
  }
  return files;
}

std::string index_of(const shards& files) {
  std::string text;
  for (const auto& [file, arrays] : files)
    for (const auto& [name, a] : arrays)
      text += (text.empty() ? "" : ", ") + ('"' + name + "\": \"" + file + '"');
  return "{\"metadata\": {\"total_size\": 12}, \"weight_map\": {" + text + "}}";
}

void write(const temporary_folder& folder, const shards& files) {
  for (const auto& [file, arrays] : files)
    io::safetensors::write(folder.path() / file, arrays, {{"activation", "squared_relu"}});
  put(folder / "model.safetensors.index.json", index_of(files));
}

void check_model(const io::checkpoint& model, const shards& files) {
  const auto at = [&](const std::string& name) {
    for (const auto& [file, arrays] : files)
      if (arrays.contains(name)) return arrays.at(name).get<float, 2>();
    throw std::logic_error(name);
  };
  const auto layers = load_layers<monet_hd<>>(model);  // by number
  const auto routers = load_layers<monet_router<>>(model, {.active = 2});
  REQUIRE(layers.size() == 2);
  for (const auto& [number, layer] : layers) {
    const auto u = at("model.layers." + std::to_string(number) + ".moe.u.weight");
    for (extent h = 0; h < u.shape()[0]; ++h)
      for (extent d = 0; d < u.shape()[1]; ++d) CHECK(layer.encoder(d, h) == u(h, d));
    CHECK(!layer.encoder_bias.empty());
  }
  CHECK(layers.contains(10));
  REQUIRE(routers.size() == 1);
  CHECK(std::prev(routers.upper_bound(10))->first == 0);
  CHECK(routers.at(0).active == 2);
  CHECK(routers.at(0).mean2.size() == 2);
}

TEST_CASE("a model in shards and the same in one file", "[io]") {
  const temporary_folder folder;
  const shards files = model();
  write(folder, files);
  check_model(io::checkpoint::open(folder.path()), files);
  check_model(io::checkpoint::open(folder / "model.safetensors.index.json"), files);
  const temporary_folder other;
  io::arrays_by_name all;
  for (const auto& [file, arrays] : files) all.insert(arrays.begin(), arrays.end());
  io::safetensors::write(other / "model.safetensors", all, {{"activation", "squared_relu"}});
  check_model(io::checkpoint::open(other.path()), files);
  check_model(io::checkpoint::open(other / "model.safetensors"), files);

  std::vector<std::string> extra;
  load<monet_hd<>>(io::checkpoint::open(folder.path()),
                   {.prefix = "model.layers.10.", .extra = &extra});
  CHECK(extra.empty());  // attention is not the layer's business
}

TEST_CASE("what a model lacks is named, with its file", "[io]") {
  const temporary_folder folder;
  const shards files = model();
  write(folder, files);
  const auto load_hd = [&] { load_layers<monet_hd<>>(io::checkpoint::open(folder.path())); };

  auto less = files;
  less["b.safetensors"].erase("model.layers.10.moe.v.weight");
  put(folder / "model.safetensors.index.json", index_of(less));  // in no shard
  auto e = caught(load_hd);
  CHECK(e.code == errc::missing_tensor);
  CHECK(e.tensor == "model.layers.10.moe.v.weight");
  CHECK(e.file == folder / "model.safetensors.index.json");
  e = caught([&] { io::checkpoint::open(folder.path()).at("model.layers.10.moe.v.weight"); });
  CHECK(e.code == errc::missing_tensor);

  write(folder, less);
  put(folder / "model.safetensors.index.json", index_of(files));  // in a shard that lacks it
  e = caught(load_hd);
  CHECK(e.code == errc::missing_tensor);
  CHECK(e.tensor == "model.layers.10.moe.v.weight");
  CHECK(e.file == folder / "b.safetensors");

  std::filesystem::remove(folder / "b.safetensors");
  e = caught(load_hd);
  CHECK(e.code == errc::io);
  CHECK(e.tensor == "model.layers.0.moe.u.bias");
  CHECK(e.file == folder / "b.safetensors");

  put(folder / "b.safetensors", "no shard");
  CHECK(caught(load_hd).file == folder / "b.safetensors");
  CHECK(caught([&] { io::checkpoint::open(folder / "gone"); }).code == errc::io);
  const temporary_folder empty;
  CHECK(caught([&] { io::checkpoint::open(empty.path()); }).file == empty / "model.safetensors");

  auto misshapen = model();
  misshapen["a.safetensors"].erase("model.layers.0.moe.b");
  misshapen["a.safetensors"].emplace("model.layers.0.moe.b", numbers({3, 7}, 1));
  write(folder, misshapen);
  e = caught(load_hd);
  CHECK(e.code == errc::shape);
  CHECK(e.tensor == "model.layers.0.moe.b");
}

TEST_CASE("a layer of a model accounts for its own tensors alone", "[io]") {
  const temporary_folder folder;
  const std::string layer = "model.layers.10.";
  const auto extra_with = [&](const std::string& name) {
    auto files = model();
    files["a.safetensors"].emplace(name, numbers({3}, 1));
    write(folder, files);
    std::vector<std::string> extra;
    load<monet_hd<>>(io::checkpoint::open(folder.path()), {.prefix = layer, .extra = &extra});
    return extra;
  };
  for (const char* beside : {"self_attn.q_proj.weight", "input_layernorm.weight", "mlp.weight",
                             "router.w3.weight", "other"}) {
    INFO(beside);
    CHECK(extra_with(layer + beside).empty());
    CHECK_NOTHROW(load<monet_hd<>>(io::checkpoint::open(folder.path()), {.prefix = layer}));
  }
  CHECK(extra_with("model.layers.0.moe.planted").empty());
  CHECK(extra_with(layer + "moe.planted") == std::vector{layer + "moe.planted"});
  const auto e =
      caught([&] { load<monet_hd<>>(io::checkpoint::open(folder.path()), {.prefix = layer}); });
  CHECK(e.code == errc::extra_tensor);
  CHECK(e.tensor == layer + "moe.planted");
}

TEST_CASE("the numbers of the layers of a kind", "[io]") {
  const temporary_folder folder;
  auto files = model();
  write(folder, files);
  const auto from = io::checkpoint::open(folder.path());
  CHECK(io::layer_numbers<monet_hd<>>(from) == std::vector<extent>{0, 10});
  CHECK(io::layer_numbers<monet_router<>>(from) == std::vector<extent>{0});
  CHECK(io::layer_numbers<monet_vd<>>(from).empty());
  CHECK(io::layer_numbers<monet_hd<>>(from, "layers.").empty());
}

// Returns whether each of 8 threads reads what `expected` has, while the others read, too. Every
// other thread has a copy of its own.
bool threads_read(const io::checkpoint& from, const std::map<std::string, std::string>& expected) {
  constexpr int count = 8;
  std::latch ready(count);
  std::atomic<int> wrong = 0;
  const auto read = [&](const io::checkpoint& shared) {
    ready.arrive_and_wait();
    for (const auto& [name, bytes] : expected) {
      wrong += shared.outline_of(name).name() != name;
      wrong += text_of(shared.at(name).bytes()) != bytes;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    if (i % 2 == 0) threads.emplace_back(read, std::cref(from));
    else threads.emplace_back([&read, copy = from] { read(copy); });
  }
  for (auto& t : threads) t.join();
  return wrong == 0;
}

TEST_CASE("threads that share a checkpoint read what one thread reads", "[io]") {
  constexpr unsigned count = 1800;  // many, so that a thread is still opening when another begins
  const temporary_folder folder;
  shards files;
  for (unsigned i = 0; i < count; ++i)
    files[std::to_string(i % 6) + ".safetensors"].emplace(std::to_string(i),
                                                          numbers({1 + i % 3, 2}, i));
  write(folder, files);
  std::map<std::string, std::string> serial;
  const auto alone = io::checkpoint::open(folder.path());
  for (const std::string& name : alone.names())
    serial.emplace(name, text_of(alone.at(name).bytes()));
  REQUIRE(serial.size() == count);
  for (int round = 0; round < 8; ++round)
    REQUIRE(threads_read(io::checkpoint::open(folder.path()), serial));
}

TEST_CASE("a checkpoint that was never opened is empty", "[io]") {
  const io::checkpoint none;
  CHECK(none.names().empty());
  CHECK(none.metadata().empty());
  CHECK(caught([&] { none.at("a"); }).code == errc::missing_tensor);
}

TEST_CASE("a path that the system refuses is an io::error", "[io]") {
  const temporary_folder folder;
  const auto refused = [](const std::filesystem::path& path) {
    INFO(path);
    const auto e = caught([&] { io::checkpoint::open(path); });
    CHECK(e.code == errc::io);
    return e;
  };
  const std::string index = "model.safetensors.index.json";
  SECTION("a name that is too long") {
    refused(folder / std::string(300, 'n').c_str());
    refused(folder / (std::string(300, 'n') + ".json").c_str());
    std::filesystem::path deep = folder.path();
    for (int i = 0; i < 1000; ++i) deep /= "folder";
    refused(deep);
  }
  SECTION("a file as a folder") {
    put(folder / "file", "");
    refused(folder / "file/model");
  }
#if !defined(_WIN32)  // where the C++ library makes no links
  SECTION("a loop of links") {
    std::filesystem::create_symlink("loop", folder / "loop");
    CHECK(refused(folder / "loop").file == folder / "loop");
    refused(folder / "loop/model");
    std::filesystem::create_symlink(index, folder.path() / index);
    CHECK(refused(folder.path()).file == folder.path() / index);
  }
  SECTION("a shard of such a name") {
    std::filesystem::create_symlink("loop", folder / "loop");
    const std::string longest(300, 'n');
    put(folder.path() / index, "{\"weight_map\": {\"a\": \"loop\", \"b\": \"" + longest + "\"}}");
    const auto model = io::checkpoint::open(folder.path());
    for (const auto& shard : io::shard_names{{"a", "loop"}, {"b", longest}}) {
      const auto e = caught([&] { model.at(shard.first); });
      CHECK(e.code == errc::io);
      CHECK(e.file == folder.path() / shard.second);
      CHECK(caught([&] { model.outline_of(shard.first); }).code == errc::io);
    }
  }
#endif
}

TEST_CASE("a path may have letters of any language", "[io]") {
  const temporary_folder folder;
  const std::u8string name = u8"\u00e9l\u00e8ve \u91cd\u307f.safetensors";
  const auto file = folder.path() / name;
  io::arrays_by_name arrays;
  for (const auto& [shard, some] : model()) arrays.insert(some.begin(), some.end());
  io::safetensors::write(file, arrays, {{"K", "3"}});
  CHECK(load<monet_router<>>(file, {.prefix = "model.layers.0."}).active == 3);
  const auto missing = folder.path() / (u8"no " + name);
  const auto e = caught([&] { io::checkpoint::open(missing); });
  CHECK(e.code == errc::io);
  CHECK(e.file == missing);
  const auto* const shown = "no \xc3\xa9l\xc3\xa8ve \xe9\x87\x8d\xe3\x81\xbf.safetensors\"";
  CHECK(std::string_view(e.what()).find(shown) != std::string_view::npos);
}

TEST_CASE("a checkpoint whose path has a NUL is not another checkpoint", "[io]") {
  const temporary_folder folder;
  write(folder, model());
  for (const auto& real :
       {folder.path(), folder / "model.safetensors.index.json", folder / "a.safetensors"}) {
    const std::filesystem::path path = with_nul(real);
    const auto e = caught([&] { io::checkpoint::open(path); });
    CHECK(e.code == errc::io);
    CHECK(e.file == path);
  }
}

TEST_CASE("an index that is none", "[io]") {
  const temporary_folder folder;
  const auto fault = [&](std::string_view text) {
    put(folder / "x.json", text);
    return caught([&] { io::checkpoint::open(folder / "x.json"); }).code;
  };
  CHECK(fault("") == errc::json);
  CHECK(fault("{\"weight_map\": {\"a\": \"b\"}") == errc::json);
  CHECK(fault("{\"weight_map\": {\"a\": \"b\"}} x") == errc::json);
  CHECK(fault(std::string_view("{\"weight_map\": {\"a\": \"b\"}}\0", 28)) == errc::json);
  CHECK(fault("\xEF\xBB\xBF{\"weight_map\": {}}") == errc::json);
  CHECK(fault("{\"weight_map\": {\"\xff\": \"b\"}}") == errc::utf8);
  CHECK(fault("{}") == errc::schema);
  CHECK(fault("[]") == errc::schema);
  CHECK(fault("7") == errc::schema);
  CHECK(fault("{\"weight_map\": 7}") == errc::schema);
  CHECK(fault("{\"weight_map\": []}") == errc::schema);
  CHECK(fault("{\"weight_map\": {\"a\": 7}}") == errc::schema);
  CHECK(fault("{\"weight_map\": {\"a\": {\"b\": \"c\"}}}") == errc::schema);
  CHECK(fault("{\"weight_map\": {\"a\": [\"b\"]}}") == errc::schema);
  for (const char* file : {"", ".", "..", "../b", "/b", "b/c", "b\\u0000"}) {
    INFO(file);
    CHECK(fault(std::string("{\"weight_map\": {\"a\": \"") + file + "\"}}") == errc::schema);
  }
  CHECK(fault("{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}") == errc::duplicate_key);
  CHECK(fault("{\"weight_map\": {\"a\": \"b\"}, \"weight_map\": {}}") == errc::duplicate_key);
  CHECK(fault("{\"metadata\": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]], \"weight_map\": {}}") ==
        errc::json);
  put(folder / "x.json",
      "{\"metadata\": {\"weight_map\": 3, \"deep\": [1, null, {\"weight_map\": \"x\"}]}, "
      "\"weight_map\": {\"a\": \"b\"}}");
  CHECK(io::checkpoint::open(folder / "x.json").names() == std::vector<std::string>{"a"});
}

// The shards of a Monet layer, with these metadata.
void write_hd(const temporary_folder& folder, const io::strings_by_name& a,
              const io::strings_by_name& b) {
  const shards files = model();
  put(folder / "model.safetensors.index.json", index_of(files));
  io::safetensors::write(folder / "a.safetensors", files.at("a.safetensors"), a);
  io::safetensors::write(folder / "b.safetensors", files.at("b.safetensors"), b);
}

TEST_CASE("one file has the same settings however it is loaded", "[io]") {
  const temporary_folder folder;
  const auto file = folder / "model.safetensors";
  io::arrays_by_name arrays;
  for (const auto& [shard, some] : model()) arrays.insert(some.begin(), some.end());
  io::safetensors::write(file, arrays, {{"K", "3"}, {"activation", "gelu_tanh"}});
  const load_options tenth{.prefix = "model.layers.10."}, first{.prefix = "model.layers.0."};
  CHECK(load<monet_hd<>>(file, tenth).activation == pointwise::gelu_tanh);
  {  // Windows replaces no file that is open
    const auto from = io::checkpoint::open(file);
    CHECK(load<monet_hd<>>(from, tenth).activation == pointwise::gelu_tanh);
    CHECK(load_layers<monet_hd<>>(from).at(10).activation == pointwise::gelu_tanh);
    CHECK(load<monet_router<>>(from, first).active == 3);
    CHECK(load_layers<monet_router<>>(from).at(0).active == 3);
  }

  const auto fault = [&](const io::strings_by_name& metadata) {
    io::safetensors::write(file, arrays, metadata);
    const auto e = caught([&] { load<monet_hd<>>(io::checkpoint::open(file), tenth); });
    CHECK(e.file == file);
    return e.code;
  };
  CHECK(fault({{"Activation", "relu"}}) == errc::schema);
  CHECK(fault({{"activation", "mish"}}) == errc::schema);
  CHECK(fault({{"kind", "mxd_mlp"}}) == errc::conflict);
}

TEST_CASE("shards have the settings of all of them, and must agree", "[io]") {
  const temporary_folder folder;
  const auto loaded = [&] {
    return load<monet_hd<>>(io::checkpoint::open(folder.path()), {.prefix = "model.layers.10."});
  };
  write_hd(folder, {{"activation", "gelu"}, {"part", "1"}}, {{"part", "2"}});
  CHECK(loaded().activation == pointwise::gelu);
  {
    const auto from = io::checkpoint::open(folder.path());
    CHECK(from.metadata() == io::strings_by_name{{"activation", "gelu"}});
    CHECK(from.metadata_beside({"model.layers.10.moe.u.bias"}).agreed ==
          io::strings_by_name{{"part", "2"}});
    CHECK(from.metadata_beside(from.names()).disputed == std::set<std::string>{"part"});
  }

  write_hd(folder, {{"activation", "gelu"}}, {{"activation", "gelu"}});
  CHECK(loaded().activation == pointwise::gelu);
  write_hd(folder, {{"activation", "gelu"}}, {{"activation", "relu"}});
  const auto e = caught(loaded);
  CHECK(e.code == errc::conflict);
  CHECK(std::string(e.what()).find("\"activation\"") != std::string::npos);
  CHECK(e.file == folder / "model.safetensors.index.json");
  write_hd(folder, {}, {{"Activation", "relu"}});
  CHECK(caught(loaded).code == errc::schema);
}

TEST_CASE("a layer of parts is found by its prefix, too") {
  cp_mumoe<> layer;
  layer.gate.projections[0] = test::random<tensor<float, 2>>({6, 5}, 1);
  layer.experts.experts[0] = test::random<tensor<float, 2>>({5, 4}, 2);
  layer.experts.input = test::random<tensor<float, 2>>({6, 4}, 3);
  layer.experts.output = test::random<tensor<float, 2>>({3, 4}, 4);
  const temporary_folder folder;
  save(layer, folder / "model.safetensors", {.prefix = "model.layers.2."});
  const auto from = io::checkpoint::open(folder.path());
  CHECK(io::layer_numbers<cp_mumoe<>>(from) == std::vector<extent>{2});
  const auto again = load<cp_mumoe<>>(from, {.prefix = "model.layers.2."});
  CHECK(again.experts.output.shape() == layer.experts.output.shape());
  CHECK(again.experts.output(2, 3) == layer.experts.output(2, 3));
}

}  // namespace

// SPDX-License-Identifier: MIT
// Layers whose weights lie in a GGUF file, also in parts, or have scales beside them in safetensors
// files: they are the layers of the floats that these stand for.
#include <cmath>
#include <limits>
#include <numeric>

#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/gguf.hpp>
#include <fmoe/io/layers_in.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/io/scaled_arrays.hpp>
#include <fmoe/mxd.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/gguf_file.hpp"
#include "../support/same_bits.hpp"

using namespace fmoe;
using namespace fmoe::test;
using io::errc;

namespace {

constexpr std::size_t side = 32;  // inputs, experts, hidden units and outputs

const char* const weights[] = {"W_enc", "gate", "W_cond", "W_dec"};

// Returns a block of Q8_0 for each row of a matrix, all different.
std::string blocks_of(unsigned seed) {
  std::string content;
  for (unsigned row = 0; row < side; ++row) {
    content += little(f16(0.01f * static_cast<float>(row + 1 + seed)));
    for (unsigned i = 0; i < side; ++i)
      content += static_cast<char>((seed * 31 + row * 7 + i * 13) % 255 + 129);  // -127 to 127
  }
  return content;
}

// Adds the weights from `first` to `last`.
gguf_file mxd_file(std::size_t first = 0, std::size_t last = 4) {
  gguf_file f;
  f.value("K", gguf_text, counted_text("3")).value("activation", gguf_text, counted_text("relu"));
  for (std::size_t w = first; w < last; ++w)
    f.tensor(weights[w], {side, side}, ggml_q8_0, blocks_of(static_cast<unsigned>(w)));
  return f;
}

template <class Layer>
bool same_weights(const Layer& a, const Layer& b) {
  return a.active == b.active && a.activation == b.activation && same_bits(a.encoder, b.encoder) &&
         same_bits(a.gate, b.gate) && same_bits(a.scales, b.scales) &&
         same_bits(a.decoder, b.decoder);
}

// The layer of the floats that the file's blocks stand for.
mxd<> expected(const std::filesystem::path& file) {
  const auto read = io::gguf::read(file);
  mxd<> layer;
  layer.active = 3;
  layer.activation = pointwise::relu;
  layer.encoder = read.get<float, 2>("W_enc");
  layer.decoder = read.get<float, 2>("W_dec");
  const auto gate = read.get<float, 2>("gate"), scales = read.get<float, 2>("W_cond");
  layer.gate = evaluate(einsum<"ni->in">(gate));
  layer.scales = evaluate(einsum<"on->no">(scales));
  return layer;
}

}  // namespace

TEST_CASE("a layer of a GGUF file is that of its floats") {
  const temporary_folder folder;
  const auto file = folder / "m.bin";  // the name does not tell the format
  put(file, mxd_file().bytes());
  const mxd<> wanted = expected(file);
  CHECK(same_weights(load<mxd<>>(file), wanted));
  const auto from = io::checkpoint::open(file);
  CHECK(from.names().size() == 4);
  CHECK(from.metadata().at("K") == "3");
  CHECK(same_weights(load<mxd<>>(from), wanted));
  CHECK(from.outline_of("gate").is_outline());
  const auto found = io::layers_in<mxd<>>(from);
  REQUIRE(found.size() == 1);
  CHECK(outline<mxd<>>(from).encoder.shape() == wanted.encoder.shape());
  CHECK(caught([&] { load<mxd<bf16>>(file); }).code == errc::dtype);
  CHECK(load<mxd<bf16>>(file, {.narrow = io::narrow}).gate(1, 2) == bf16(wanted.gate(1, 2)));
}

TEST_CASE("Q8_0 becomes q8 without rounding") {
  const temporary_folder folder;
  put(folder / "m.gguf", mxd_file().bytes());
  const auto small = load<mxd<q8>>(folder / "m.gguf");
  const mxd<> wanted = expected(folder / "m.gguf");
  CHECK(same_bits(widened(small.encoder), wanted.encoder));
  CHECK(same_bits(widened(small.gate), wanted.gate));
  CHECK(same_bits(widened(small.decoder), wanted.decoder));
  tensor<float, 2> x({5, side});
  std::iota(x.begin(), x.end(), -70.f);
  CHECK(same_bits(evaluate(small(x)), evaluate(wanted(x))));
  CHECK(caught([&] { load<mxd<q8c>>(folder / "m.gguf"); }).code == errc::dtype);
  std::string content = mxd_file().bytes();
  const float no_number = std::numeric_limits<float>::quiet_NaN();
  put(folder / "m.gguf", content.replace(content.size() - 34, 2, little(f16(no_number))));
  CHECK(std::isnan(widened(load<mxd<q8>>(folder / "m.gguf").decoder)(31, 31)));
  // q8 has no -128.
  content = mxd_file().bytes();
  content.back() = static_cast<char>(-128);
  put(folder / "m.gguf", content);
  CHECK(caught([&] { load<mxd<q8>>(folder / "m.gguf"); }).code == errc::dtype);
  CHECK(load<mxd<>>(folder / "m.gguf").decoder(31, 31) != 0);
}

// A layer whose matrices have this type; `scale` begins each block, and other bytes follow.
std::string file_of(std::uint32_t type, const std::string& scale, std::size_t bytes) {
  gguf_file f;
  f.value("K", gguf_text, counted_text("3")).value("activation", gguf_text, counted_text("relu"));
  for (std::size_t w = 0; w < 4; ++w) {
    std::string blocks;
    for (std::size_t row = 0; row < side; ++row) {
      blocks += scale;
      for (std::size_t i = 0; i < bytes; ++i)
        blocks += static_cast<char>(w * 31 + row * 7 + i * 13);
    }
    f.tensor(weights[w], {side, side}, type, blocks);
  }
  return f.bytes();
}

TEST_CASE("blocks of fewer bits become q8 without rounding") {
  const temporary_folder folder;
  const auto is_kept = [&](const std::string& content) {
    put(folder / "m.gguf", content);
    const auto small = load<mxd<q8>>(folder / "m.gguf");
    const mxd<> wanted = expected(folder / "m.gguf");
    return std::ranges::equal(widened(small.encoder), wanted.encoder) &&
           std::ranges::equal(widened(small.decoder), wanted.decoder);
  };
  CHECK(is_kept(file_of(ggml_q4_0, little(f16(-0.3f)), 16)));
  CHECK(is_kept(file_of(ggml_q5_0, little(f16(0.7f)), 20)));
  CHECK(is_kept(file_of(ggml_iq4_nl, little(f16(-0.3f)), 16)));
  CHECK(is_kept(file_of(ggml_mxfp4, "\x76", 16)));  // 2^(118 - 128)
  // f16 has no scale of 2^(2 - 128) or 2^(250 - 128), and Q4_1 has offsets.
  for (const auto& content : {file_of(ggml_mxfp4, "\x02", 16), file_of(ggml_mxfp4, "\xfa", 16),
                              file_of(ggml_q4_1, little(f16(1.f)), 18)}) {
    put(folder / "m.gguf", content);
    CHECK(caught([&] { load<mxd<q8>>(folder / "m.gguf"); }).code == errc::dtype);
    CHECK(load<mxd<>>(folder / "m.gguf").decoder(31, 31) != 0);
  }
}

TEST_CASE("a GGUF model in parts is opened by any of them") {
  const temporary_folder folder;
  put(folder / "whole", mxd_file().bytes());
  const auto part = [&](std::size_t first, std::size_t last, const std::string& ending) {
    gguf_file f = mxd_file(first, last);
    f.value("split.count", 2).value("general.name", gguf_text, counted_text(ending));
    put(folder.path() / ("m-" + ending + ".gguf"), f.bytes());
  };
  part(0, 1, "00001-of-00002");
  part(1, 4, "00002-of-00002");
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    const auto from = io::checkpoint::open(folder / name);
    CHECK(from.metadata().at("general.name") == "00001-of-00002");
    CHECK(same_weights(load<mxd<>>(from), expected(folder / "whole")));
  }
  part(0, 4, "00002-of-00002");
  CHECK(caught([&] { io::checkpoint::open(folder / "m-00001-of-00002.gguf"); }).code ==
        errc::duplicate_key);
  std::filesystem::remove(folder / "m-00002-of-00002.gguf");
  CHECK(caught([&] { io::checkpoint::open(folder / "m-00001-of-00002.gguf"); }).code == errc::io);
  part(0, 1, "1");
  CHECK(caught([&] { io::checkpoint::open(folder / "m-1.gguf"); }).code == errc::conflict);
}

TEST_CASE("FP8 weights of a checkpoint have their scales, in whatever shard these are") {
  const temporary_folder folder;
  io::arrays_by_name codes, scales;
  mxd<> wanted;
  for (const char* const name : weights) {
    std::vector<std::byte> bytes(side * side);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(i * 37 % 0x7f | (i % 3 == 0 ? 0x80 : 0));
    tensor<float, 2> scale({1, 1});
    scale(0, 0) = 0.25f * static_cast<float>(codes.size() + 1);
    codes.emplace(name, io::array(io::element_type::f8_e4m3, {side, side}, bytes));
    scales.emplace(name + std::string("_scale_inv"), io::array(scale));
  }
  io::safetensors::write(folder / "a", codes);
  io::safetensors::write(folder / "b", scales);
  std::string map;
  for (const char* const name : weights)
    map += (map.empty() ? "" : ",") + ("\"" + std::string(name)) + "\":\"a\",\"" + name +
           "_scale_inv\":\"b\"";
  put(folder / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");

  const auto from = io::checkpoint::open(folder.path());
  REQUIRE(io::layers_in<mxd<>>(from).size() == 1);
  std::vector<std::string> extra;
  const auto layer =
      load<mxd<>>(from, {.active = 2, .activation = pointwise::gelu, .extra = &extra});
  CHECK(extra.empty());
  CHECK(
      same_bits(layer.encoder,
                io::fp8_weights(codes.at("W_enc"), scales.at("W_enc_scale_inv")).get<float, 2>()));
  CHECK(layer.encoder(0, 5) == 0.25f * io::from_e4m3(5 * 37 % 0x7f));
  CHECK(layer.decoder(0, 5) == 1.f * io::from_e4m3(5 * 37 % 0x7f));

  codes.insert(scales.begin(), scales.end());
  io::safetensors::write(folder / "whole", codes);
  const load_options told{.active = 2, .activation = pointwise::gelu};
  CHECK(same_bits(load<mxd<>>(folder / "whole", told).gate, layer.gate));
  codes.erase("gate_scale_inv");
  io::safetensors::write(folder / "whole", codes);
  CHECK(caught([&] { load<mxd<>>(folder / "whole"); }).code == errc::dtype);
  CHECK(caught([&] { load<mxd<>>(folder / "whole"); }).tensor == "gate");
}

namespace {

// A layer with one weight, as GPT-OSS names it.
template <class T = float>
struct packed {
  parameter<T, 3> weight;  // n o i
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"up_blocks", presence::required, "noi"}, layer.weight);
  }
};

}  // namespace

TEST_CASE("MXFP4 weights of a file have their scales") {
  const auto golden = io::safetensors::read("tests/io/scaled.safetensors");
  const temporary_folder folder;
  const io::arrays_by_name arrays = {{"up_blocks", golden.at("mxfp4_blocks")},
                                     {"up_scales", golden.at("mxfp4_scales")}};
  io::safetensors::write(folder / "model.safetensors", arrays);
  const auto wanted = golden.get<float, 3>("mxfp4.want");
  CHECK(same_bits(load<packed<>>(folder / "model.safetensors").weight, wanted));
  const auto from = io::checkpoint::open(folder.path());
  CHECK(same_bits(load<packed<>>(from).weight, wanted));
  CHECK(outline<packed<>>(from).weight.shape() == wanted.shape());
  CHECK(load<packed<bf16>>(from, {.narrow = io::narrow}).weight(1, 2, 3) == bf16(wanted(1, 2, 3)));
}

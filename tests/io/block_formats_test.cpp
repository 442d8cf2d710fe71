// SPDX-License-Identifier: MIT
// The numbers of block formats against those that other programs decode: ggml's gguf, PyTorch and
// transformers (scripts/make_block_formats).
#include <bit>
#include <cmath>
#include <cstdint>

#include <fmoe/io/code_books.hpp>
#include <fmoe/io/gguf.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/io/scaled_arrays.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"

namespace io = fmoe::io;
using fmoe::tensor;
using fmoe::detail::extent;
using io::element_type;

namespace {

const io::gguf& blocks() {
  static const io::gguf file = io::gguf::read("tests/io/blocks.gguf");
  return file;
}
const io::safetensors& scaled() {
  static const io::safetensors file = io::safetensors::read("tests/io/scaled.safetensors");
  return file;
}

// Counts the numbers whose bits differ.
std::size_t differences(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    count += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) ? 1U : 0U;
  return count;
}
template <class T, std::size_t Rank>
std::span<const T> numbers(const tensor<T, Rank>& t) {
  return {t.data(), t.size()};
}

}  // namespace

TEST_CASE("blocks of ggml are the floats that ggml decodes, bit by bit") {
  // Those of all its types that have blocks, but three that its Python package does not decode.
  std::vector<std::string> names;
  for (const auto& info : io::element_types)
    if (info.block > 1 && info.name != "Q8_1" && info.name != "Q8_K" && info.name != "Q1_0")
      names.emplace_back(info.name);
  REQUIRE(names.size() == 23);
  for (const std::string& name : names) {
    INFO(name);
    const io::array a = blocks().at(name);
    CHECK(name_of(a.type()) == name);
    const auto found = a.get<float, 3>({3, 1, 256});
    const auto wanted = blocks().get<float, 3>(name + ".want");
    CHECK(differences(numbers(found), numbers(wanted)) == 0);

    // Other types round these floats, and a part of the rows has the same numbers.
    const auto rounded = a.get<fmoe::bf16, 3>(io::narrow);
    for (std::size_t i = 0; i < rounded.size(); ++i)
      REQUIRE(rounded.data()[i] == fmoe::bf16(found.data()[i]));
    CHECK(caught([&] { a.get<fmoe::bf16, 3>(); }).code == io::errc::dtype);
    const auto last = a.rows(1, 2).rows(1, 1).get<float, 3>({1, 1, 256});
    CHECK(differences(numbers(last), numbers(found).last(256)) == 0);
  }
}

TEST_CASE("any number of blocks is decoded, and nothing behind them is written") {
  const io::array a = blocks().at("Q8_0");
  const auto wanted = blocks().get<float, 3>("Q8_0.want");
  for (extent count = 0; count < 20; ++count) {
    std::vector<float> found(24 * 32, -7.f);
    io::decode_blocks(a.type(), a.bytes().data(), count, found.data());
    CHECK(differences(std::span(found).first(32 * count), numbers(wanted).first(32 * count)) == 0);
    CHECK(std::ranges::count(std::span(found).subspan(32 * count), -7.f) ==
          static_cast<std::ptrdiff_t>(found.size() - 32 * count));
  }
}

TEST_CASE("the code books are those of ggml") {
  // The CRC-32 of the words' bytes, as scripts/make_block_formats prints it.
  const auto sum = [](std::span<const std::uint16_t> book) {
    std::uint32_t crc = 0xffffffff;
    for (const unsigned word : book)
      for (const unsigned byte : {word & 255, word >> 8}) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
      }
    return ~crc;
  };
  CHECK(sum(io::book_of_iq2_xxs) == 0xd01c53f2);
  CHECK(sum(io::book_of_iq2_xs) == 0x622e679a);
  CHECK(sum(io::book_of_iq2_s) == 0xf8ad4e5e);
  CHECK(sum(io::book_of_iq1_s) == 0xa0911588);
  CHECK(sum(io::book_of_iq3_xxs) == 0x35d54a4a);
  CHECK(sum(io::book_of_iq3_s) == 0x23206141);
}

TEST_CASE("the page about formats shows this") {
  const auto file = io::gguf::read("tests/io/blocks.gguf");
  const auto experts = file.get<float, 3>("Q4_K");  // [3, 1, 256], decoded
  const auto last = file.at("Q4_K").rows(2, 1);     // one expert: get() decodes its bytes alone
  const auto text = file.value<std::string>("a.string");
  const auto count = file.find_value<std::size_t>("llama.expert_count");  // nothing: no such key
  CHECK(last.get<float, 3>()(0, 0, 7) == experts(2, 0, 7));
  CHECK(text.size() == 7);
  CHECK(!count);

  const io::safetensors& weights = scaled();
  const auto codes = weights.at("fp8.weight"), scales = weights.at("fp8.weight_scale_inv");
  const auto fp8 = io::fp8_weights(codes, scales).get<float, 2>();
  const auto mxfp4 = io::mxfp4_weights(weights.at("mxfp4_blocks"), weights.at("mxfp4_scales"));
  const auto expert = mxfp4.rows(1, 1).get<float, 3>();
  CHECK(fp8(129, 3) == weights.get<float, 2>("fp8.want")(4, 3));
  CHECK(expert(0, 7, 63) == weights.get<float, 3>("mxfp4.want")(1, 7, 63));
}

TEST_CASE("what no tensor can hold is refused") {
  for (const auto type : {element_type::q8_1, element_type::q8_k, element_type::q1_0}) {
    const std::vector<std::byte> one(io::bits_of(type) / 8);
    const io::array unknown(type, {1, io::block_of(type)}, one);
    CHECK(caught([&] { unknown.get<float, 2>(); }).code == io::errc::dtype);
  }
  const std::vector<std::byte> two_blocks(68);
  CHECK(caught([&] { io::array(element_type::q8_0, {2, 20}, two_blocks); }).code ==
        io::errc::size_mismatch);
  const io::array a(element_type::q8_0, {4, 16}, two_blocks);
  CHECK(caught([&] { a.rows(1, 2); }).code == io::errc::shape);
  CHECK(caught([&] { a.rows(3, 2); }).code == io::errc::shape);
  CHECK(caught([&] { a.rows(5, 0); }).code == io::errc::shape);
  CHECK(caught([&] { a.rows(1, fmoe::all); }).code == io::errc::shape);
  CHECK(a.rows(2, 2).bytes().data() == a.bytes().data() + 34);
  // safetensors and npy files have no such elements.
  CHECK(caught([&] { io::safetensors::serialize({{"a", a}}); }).code == io::errc::dtype);
}

TEST_CASE("every code of FP8 E4M3 is the number that PyTorch has") {
  const auto wanted = scaled().get<float, 1>("codes.want");
  const auto codes = scaled().at("codes").bytes();
  REQUIRE(codes.size() == 256);
  std::size_t nans = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto code = std::to_integer<std::uint8_t>(codes[i]);
    const float found = io::from_e4m3(code);
    INFO(int{code});
    nans += std::isnan(found) ? 1U : 0U;
    REQUIRE(std::isnan(found) == std::isnan(wanted.data()[i]));
    if (!std::isnan(found)) REQUIRE(differences({&found, 1}, {&wanted.data()[i], 1}) == 0);
  }
  CHECK(nans == 2);
  // Without scales an array of such codes is no weight.
  CHECK(caught([&] { scaled().get<float, 1>("codes"); }).code == io::errc::dtype);
}

TEST_CASE("every code of E2M1 is a number of the standard") {
  const float standard[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (std::uint32_t code = 0; code < 16; ++code) {
    const float twice = io::twice_e2m1(code), wanted = 2 * standard[code % 8];
    CHECK(twice == (code < 8 ? wanted : -wanted));
    CHECK(std::signbit(twice) == (code >= 8));
    CHECK(io::twice_e2m1(code + 16) == twice);  // the high bits belong to the neighbour
  }
  for (unsigned code = 0; code < 256; ++code)
    CHECK(io::half_of_e8m0(static_cast<std::uint8_t>(code)) ==
          std::ldexp(1.f, static_cast<int>(code) - 128));
}

TEST_CASE("FP8 weights have a scale for each block of 128 x 128") {
  const io::array codes = scaled().at("fp8.weight"), scales = scaled().at("fp8.weight_scale_inv");
  const io::array a = io::fp8_weights(codes, scales);
  const auto all_rows = a.get<float, 2>({130, 200});
  const auto wanted = scaled().get<float, 2>("fp8.want");
  const std::size_t rows[] = {0, 1, 127, 128, 129};
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    const auto want = numbers(wanted).subspan(200 * i, 200);
    CHECK(differences(numbers(all_rows).subspan(200 * rows[i], 200), want) == 0);
    // A row alone has the scales of its block.
    CHECK(differences(numbers(a.rows(rows[i], 1).get<float, 2>()), want) == 0);
  }
  CHECK(differences(numbers(a.rows(100, 30).rows(20, 10).get<float, 2>()),
                    numbers(all_rows).subspan(200 * 120, 200 * 10)) == 0);

  // Scales of other types are the same numbers, rounded.
  const auto wide_scales = scales.get<double, 2>();
  CHECK(differences(numbers(io::fp8_weights(codes, io::array(wide_scales)).get<float, 2>()),
                    numbers(all_rows)) == 0);
  const auto small_scales = scales.get<fmoe::bf16, 2>(io::narrow);
  const auto other = io::fp8_weights(codes, io::array(small_scales)).get<float, 2>();
  CHECK(other(129, 199) ==
        io::from_e4m3(std::to_integer<std::uint8_t>(codes.bytes()[130 * 200 - 1])) *
            static_cast<float>(small_scales(1, 1)));

  CHECK(caught([&] { io::fp8_weights(codes, scales.reshaped({4, 1})); }).code == io::errc::shape);
  CHECK(caught([&] { io::fp8_weights(codes, codes); }).code == io::errc::dtype);
  CHECK(caught([&] { io::fp8_weights(scales, scales); }).code == io::errc::dtype);
  const io::array none(element_type::f8_e4m3, {0, 5}, std::vector<std::byte>{});
  const io::array scale = scaled().at("fp8_tensor.weight_scale_inv");
  CHECK(caught([&] { io::fp8_weights(none, scale); }).code == io::errc::shape);
  CHECK(caught([&] { io::safetensors::serialize({{"a", a}}); }).code == io::errc::dtype);
}

TEST_CASE("FP8 weights have one scale for each matrix, whatever the shape of the scales") {
  const io::array codes = scaled().at("fp8.weight"),
                  scale = scaled().at("fp8_tensor.weight_scale_inv");
  const auto wanted = scaled().get<float, 2>("fp8_tensor.want");
  CHECK(scale.shape().empty());
  for (const auto& shape : {std::vector<std::size_t>{}, {1}, {1, 1}}) {
    const auto whole = io::fp8_weights(codes, scale.reshaped(shape)).get<float, 2>();
    CHECK(differences(numbers(whole).first(2 * 200), numbers(wanted).first(2 * 200)) == 0);
    CHECK(differences(numbers(whole).last(2 * 200), numbers(wanted).last(2 * 200)) == 0);
  }
  tensor<float, 1> one_each({2}, {3, 5});
  const std::vector<std::byte> ones(2 * 130 * 2, std::byte{0x38});
  const auto stacked =
      io::fp8_weights(io::array(element_type::f8_e4m3, {2, 130, 2}, ones), io::array(one_each))
          .get<float, 3>();
  CHECK(stacked(0, 129, 1) == 3);
  CHECK(stacked(1, 0, 0) == 5);
  CHECK(stacked(1, 129, 1) == 5);
}

TEST_CASE("stacked FP8 weights have scales for each matrix") {
  std::vector<std::byte> codes(3 * 2 * 129, std::byte{0x38});  // 1
  const float scales[] = {1, 2, 3, 4, 5, 6};
  tensor<float, 3> s({3, 1, 2});
  std::ranges::copy(scales, s.data());
  const io::array a =
      io::fp8_weights(io::array(element_type::f8_e4m3, {3, 2, 129}, codes), io::array(s));
  const auto w = a.get<float, 3>();
  const auto last = a.rows(2, 1).reshaped({2, 129}).get<float, 2>();
  for (std::size_t n = 0; n < 3; ++n)
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK(w(n, r, 127) == scales[2 * n]);
      CHECK(w(n, r, 128) == scales[2 * n + 1]);
      CHECK(last(r, 0) == 5);
      CHECK(last(r, 128) == 6);
    }
}

TEST_CASE("MXFP4 weights of GPT-OSS are those of transformers") {
  const io::array blocks = scaled().at("mxfp4_blocks"), scales = scaled().at("mxfp4_scales");
  const io::array a = io::mxfp4_weights(blocks, scales);
  const auto wanted = scaled().get<float, 3>("mxfp4.want");
  CHECK(differences(numbers(a.get<float, 3>({2, 8, 64})), numbers(wanted)) == 0);
  CHECK(differences(numbers(a.rows(1, 1).get<float, 3>()), numbers(wanted).last(8 * 64)) == 0);
  // Every product is a number of bf16.
  const auto narrow = a.get<fmoe::bf16, 3>(io::narrow);
  for (std::size_t i = 0; i < narrow.size(); ++i)
    REQUIRE(static_cast<float>(narrow.data()[i]) == wanted.data()[i]);

  CHECK(caught([&] { io::mxfp4_weights(blocks, scales.reshaped({2, 4, 4})); }).code ==
        io::errc::shape);
  const std::vector<std::byte> block(16);
  const io::array one(element_type::u8, {16}, block),
      scale(element_type::u8, {}, std::span(block).first(1));
  CHECK(caught([&] { io::mxfp4_weights(one, scale); }).code == io::errc::shape);
  CHECK(caught([&] {
          io::mxfp4_weights(scaled().at("mxfp4.want").reshaped({2, 4, 8, 16}),
                            scales.reshaped({2, 4, 8}).rows(0, 2));
        }).code == io::errc::dtype);
}

TEST_CASE("weights of compressed-tensors, ModelOpt and E8M0 are those of their libraries") {
  const auto file = io::safetensors::read("tests/io/compressed.safetensors");
  io::arrays_by_name arrays;
  for (const io::array& a : file.arrays()) arrays.emplace(a.name(), a);
  const io::arrays_by_name joined = io::with_scales(arrays);
  std::size_t count = 0;
  for (const auto& [name, wanted] : arrays) {
    if (!name.ends_with(".want") || name == "e8m0.want") continue;
    INFO(name);
    ++count;
    const std::string format = name.substr(0, name.size() - 5);
    const io::array& a = joined.at(format + ".weight");
    const auto found = a.get<float, 2>({24, 64});
    CHECK(differences(numbers(found), numbers(wanted.get<float, 2>())) == 0);
    // Some rows have the scales of their blocks.
    CHECK(differences(numbers(a.rows(9, 15).rows(2, 5).get<float, 2>()),
                      numbers(found).subspan(64 * 11, 64 * 5)) == 0);
    // Nothing is left but the weight and what is wanted.
    for (const auto& [other, rest] : joined)
      if (other.starts_with(format + '.')) CHECK((other == format + ".weight" || other == name));
  }
  CHECK(count == 12);
  const auto powers = joined.at("e8m0.weight").get<float, 2>({130, 200});
  const auto wanted = file.get<float, 2>("e8m0.want");
  const std::size_t rows[] = {0, 1, 127, 128, 129};
  for (std::size_t i = 0; i < std::size(rows); ++i)
    CHECK(differences(numbers(powers).subspan(200 * rows[i], 200),
                      numbers(wanted).subspan(200 * i, 200)) == 0);

  // The shapes alone are enough for a plan.
  io::arrays_by_name outlines;
  for (const auto& [name, a] : arrays) outlines.emplace(name, a.outlined());
  for (const auto& [name, a] : io::with_scales(outlines))
    if (name.ends_with(".weight")) CHECK(a.shape() == joined.at(name).shape());
}

TEST_CASE("a scale may stand for each row or each matrix of a stack, in whatever shape") {
  // Two matrices of three rows of 32 ones, in FP8.
  const std::vector<std::byte> ones(2 * 3 * 32, std::byte{0x38});
  const io::array codes(element_type::f8_e4m3, {2, 3, 32}, ones);
  tensor<float, 1> six({6});
  for (extent i = 0; i < 6; ++i) six(i) = static_cast<float>(i + 1);
  const io::array scales(six);
  for (const std::vector<extent>& shape : {std::vector<extent>{6}, {2, 3}, {2, 3, 1}}) {
    const auto found = io::fp8_weights(codes, scales.reshaped(shape)).get<float, 3>();
    for (extent row = 0; row < 6; ++row)
      CHECK(found(row / 3, row % 3, 31) == static_cast<float>(row + 1));
  }
  // Two scales for six rows may be of blocks of three, or of four and of two.
  CHECK(caught([&] {
          io::fp8_weights(codes.reshaped({6, 32}), scales.rows(0, 2).reshaped({2, 1}));
        }).code == io::errc::shape);
  CHECK(io::fp8_weights(codes.reshaped({8, 24}), scales.rows(0, 2).reshaped({2, 1}))
            .get<float, 2>()(4, 0) == 2);
  const io::array rows = codes.reshaped({6, 32});
  CHECK(io::fp8_weights(rows, scales).get<float, 2>()(4, 0) == 5);

  // The same in NVFP4, whose second scales are two, or one.
  io::array packed(element_type::u8, {2, 3, 16}, std::vector<std::byte>(96, std::byte{0x22})),
      first(element_type::f8_e4m3, {2, 3, 2}, std::vector<std::byte>(12, std::byte{0x38}));
  const auto with_second = [&](const io::array& second) {
    const auto find = [&](const std::string& name) -> std::optional<io::array> {
      if (name == "w") return packed;
      if (name == "w_scale") return first;
      return name == "w_scale_2" ? std::optional(second) : std::nullopt;
    };
    return io::weight_of("w", find)->get<float, 3>();
  };
  const auto of_two = with_second(scales.rows(2, 2)), of_one = with_second(scales.rows(4, 1));
  CHECK(of_two(0, 2, 31) == 3);
  CHECK(of_two(1, 0, 0) == 4);
  CHECK(of_one(0, 0, 0) == 5);
  CHECK(of_one(1, 2, 31) == 5);
  packed = packed.rows(0, 0);  // of no matrices
  first = first.rows(0, 0);
  CHECK(with_second(scales.rows(0, 0)).shape() == std::array<extent, 3>{0, 3, 32});
}

TEST_CASE("arrays that do not belong together are refused") {
  const auto file = io::safetensors::read("tests/io/compressed.safetensors");
  // What makes FORMAT.weight, with one of its arrays replaced, or without it.
  const auto without = [&](const std::string& format, const std::string& ending,
                           const io::array* other = nullptr) {
    return caught([&] {
      io::weight_of(format + ".weight", [&](const std::string& name) -> std::optional<io::array> {
        if (name == format + ending) return other == nullptr ? std::nullopt : std::optional(*other);
        return file.contains(name) ? std::optional(file.at(name)) : std::nullopt;
      });
    });
  };
  const auto f32 = [](std::vector<extent> shape) {
    const std::vector<std::byte> zeros(4 * fmoe::detail::element_count(shape));
    return io::array(element_type::f32, std::move(shape), zeros);
  };
  const io::array words(element_type::i32, {24, 7}, std::vector<std::byte>(4 * 24 * 7)),
      other_shape(element_type::i64, {2}, file.at("int4.weight_shape").rows(0, 2).bytes()),
      order(element_type::i32, {64}, std::vector<std::byte>(4 * 64)),
      scales = f32({24, 5}), many = f32({3}), one = f32({1});
  CHECK(without("int4", ".weight_shape").tensor == "int4.weight_shape");
  CHECK(without("int4", ".weight_shape").code == io::errc::missing_tensor);
  CHECK(without("int4", ".weight_packed", &words).code == io::errc::shape);
  CHECK(without("int4", ".weight_scale", &scales).code == io::errc::shape);
  CHECK(without("int4", ".weight_g_idx", &order).code == io::errc::extra_tensor);
  CHECK(without("int4_zeros", ".weight_zero_point", &one).code == io::errc::dtype);
  CHECK(without("int4_zeros", ".weight_zero_point", &words).code == io::errc::shape);
  CHECK(without("int8_zeros", ".weight_zero_point", &one).code == io::errc::shape);
  CHECK(without("nvfp4", ".weight_scale", &scales).code == io::errc::dtype);
  CHECK(without("nvfp4", ".weight_global_scale", &many).code == io::errc::shape);
  CHECK(without("fp8_block", ".weight_scale", &scales).code == io::errc::shape);
  CHECK(without("int8_channel", ".weight_scale", &scales).code == io::errc::shape);
  // Six bits in bytes, as MXFP6 has them, are not four.
  const io::array of_six_bits(element_type::u8, {24, 48}, std::vector<std::byte>(24 * 48));
  CHECK(without("mxfp4", ".weight_packed", &of_six_bits).code == io::errc::shape);
  CHECK(without("modelopt", ".weight", &of_six_bits).code == io::errc::shape);
  const io::array bytes(element_type::u8, {24, 1}, std::vector<std::byte>(24));
  CHECK(without("int8_channel", ".weight_scale", &bytes).code == io::errc::dtype);
}

TEST_CASE("bytes with floats beside them are no weights of four bits") {
  const io::array bytes(element_type::u8, {2, 32}, std::vector<std::byte>(64)),
      floats(tensor<float, 2>({2, 4}));
  const auto found = io::with_scales({{"image", bytes}, {"image_scale", floats}});
  CHECK(found.size() == 2);
  CHECK(!found.at("image").is_scaled());
}

TEST_CASE("what a weight is made of is asked for, and nothing else") {
  // Whoever notes what is asked for knows that it is no tensor of another layer.
  const io::array blocks(element_type::q8_0, {2, 32}, std::vector<std::byte>(68)),
      codes(element_type::f8_e4m3, {2, 2}, std::vector<std::byte>(4)), one(tensor<float, 1>({1}));
  const auto asked = [&](const io::array& weight) {
    std::vector<std::string> names;
    io::weight_of("x.weight", [&](const std::string& name) -> std::optional<io::array> {
      if (name == "x.weight") return weight;
      names.push_back(name);
      return name == "x.scale" || name == "x.weight_scale" ? std::optional(one) : std::nullopt;
    });
    return names;
  };
  using texts = std::vector<std::string>;
  CHECK(asked(blocks) == texts{"x.input_scale", "x.input_global_scale", "x.scale"});
  CHECK(asked(codes) == texts{"x.weight_scale_inv", "x.weight_scale", "x.input_scale",
                              "x.input_global_scale", "x.weight_zero_point"});
  CHECK(asked(one).empty());
}

TEST_CASE("arrays meet their scales by name") {
  io::arrays_by_name arrays;
  for (const io::array& a : scaled().arrays()) arrays.emplace(a.name(), a);
  const auto joined = io::with_scales(arrays);
  CHECK(joined.size() == arrays.size() - 2);
  CHECK(joined.at("fp8.weight").is_scaled());
  CHECK(!joined.contains("fp8.weight_scale_inv"));
  CHECK(joined.at("mxfp4_blocks").shape() == std::vector<extent>{2, 8, 64});
  CHECK(!joined.contains("mxfp4_scales"));
  CHECK(!joined.at("codes").is_scaled());
  CHECK(io::with_scales(joined).size() == joined.size());
  // Beside weights that have their scales, or that are floats, scales are arrays like others.
  auto beside = joined;
  beside.emplace("mxfp4_scales", arrays.at("mxfp4_scales"));
  beside.emplace("fp8.want_scale_inv", arrays.at("fp8.weight_scale_inv"));
  CHECK(io::with_scales(beside).size() == beside.size());

  // The shapes alone are enough for a plan.
  io::arrays_by_name outlines;
  for (const auto& [name, a] : arrays) outlines.emplace(name, a.outlined());
  const auto shapes = io::with_scales(outlines);
  CHECK(shapes.at("mxfp4_blocks").get<float, 3>().shape() == std::array<extent, 3>{2, 8, 64});
  CHECK(shapes.at("fp8.weight").get<float, 2>().shape() == std::array<extent, 2>{130, 200});
  const io::array& codes = outlines.at("fp8.weight");
  const auto of_bf16 = [](std::size_t rows) {
    return io::array::outline(element_type::bf16, {rows, 2}, "scales", nullptr);
  };
  CHECK(io::fp8_weights(codes, of_bf16(2)).is_scaled());
  CHECK(caught([&] { io::fp8_weights(codes, of_bf16(3)); }).tensor == "scales");
}

// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#if !defined(_WIN32)
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include <fmoe/io/file-inl.hpp>
#include <fmoe/io/safetensors.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"

using fmoe::bf16;
using fmoe::f16;
using fmoe::tensor;
using fmoe::detail::extent;
using fmoe::io::array;
using fmoe::io::element_type;
using fmoe::io::errc;
using fmoe::io::safetensors;

namespace {

std::string little(std::uint64_t n) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(n >> 8 * i & 0xff);
  return text;
}
std::string file_of(const std::string& header, const std::string& data) {
  return little(header.size()) + header + data;
}

fmoe::io::error fault_of(const std::string& file) {
  const auto bytes = exact(file);
  return caught([&] { safetensors::parse(bytes); });
}

std::string entry(const std::string& type, const std::string& shape, const std::string& range) {
  return "{\"dtype\":" + type + ",\"shape\":" + shape + ",\"data_offsets\":" + range + "}";
}
const std::string data = "01234567";
const std::string pair_entry =
    entry("\"F32\"", "[2]", "[0,8]");  // 83 bytes before its closing brace's end

template <class T, std::size_t Rank>
tensor<T, Rank> filled(const std::array<extent, Rank>& shape) {
  tensor<T, Rank> t(shape);
  for (extent i = 0; i < t.size(); ++i)
    t.data()[i] = static_cast<T>(0.25f * static_cast<float>(i) - 3);
  return t;
}

template <class T, std::size_t Rank>
bool equal(const tensor<T, Rank>& a, const tensor<T, Rank>& b) {
  return a.shape() == b.shape() && std::equal(a.data(), a.data() + a.size(), b.data());
}

fmoe::io::arrays_by_name some_arrays() {
  const std::vector<std::int64_t> wide = {-1, 0, std::numeric_limits<std::int64_t>::max()};
  const std::vector<std::uint8_t> narrow = {0, 1, 255};
  const std::vector<std::byte> truths = {std::byte{0}, std::byte{2}, std::byte{255}, std::byte{1}};
  return {{"double", filled<double, 2>({3, 5})},
          {"float", filled<float, 1>({7})},
          {"bf16", filled<bf16, 3>({2, 1, 3})},
          {"f16", filled<f16, 2>({5, 1})},
          {"scalar", filled<float, 0>({})},
          {"none", filled<float, 2>({0, 4})},
          {"i64", array({3}, std::span<const std::int64_t>(wide))},
          {"u8", array({3, 1}, std::span<const std::uint8_t>(narrow))},
          {"BOOL", array(element_type::boolean, {4}, truths)},
          {"../\"\\\n\xF0\x9F\x98\x80", filled<float, 1>({1})},
          {"", filled<double, 1>({1})}};
}
const fmoe::io::strings_by_name some_metadata = {
    {"format", "pt"}, {"", "\"quoted\"\t\\"}, {"controls", std::string("a\0\x1f\x7f", 4)}};

// Checks properties that every accepted file must have.
void check_consistent(const safetensors& file, std::size_t size) {
  std::size_t sum = 0;
  for (const array& a : file.arrays()) {
    const auto bits = fmoe::io::count_bits(a.shape(), fmoe::io::bits_of(a.type()));
    REQUIRE(bits);
    REQUIRE(*bits == 8 * a.bytes().size());
    sum += a.bytes().size();
  }
  REQUIRE(sum + 8 <= size);
  const auto names = file.names();
  REQUIRE(std::adjacent_find(names.begin(), names.end(), std::greater_equal<>()) == names.end());
}

}  // namespace

TEST_CASE("what is written is read again") {
  const auto arrays = some_arrays();
  const temporary_folder folder;
  safetensors::write(folder / "a", arrays, some_metadata);
  const auto file = safetensors::read(folder / "a");
  CHECK(file.metadata() == some_metadata);
  CHECK(file.names().size() == arrays.size());
  for (const auto& [name, a] : arrays) {
    INFO(name);
    REQUIRE(file.contains(name));
    const array b = file.at(name);
    CHECK(b.name() == name);
    CHECK(b.type() == a.type());
    CHECK(b.shape() == a.shape());
    CHECK(text_of(b.bytes()) == text_of(a.bytes()));
  }
  CHECK(equal(file.get<double, 2>("double"), filled<double, 2>({3, 5})));
  CHECK(equal(file.get<bf16, 3>("bf16"), filled<bf16, 3>({2, 1, 3})));
  CHECK(file.get<float, 0>("scalar").size() == 1);
  CHECK(file.get<float, 2>("none").shape() == std::array<extent, 2>{0, 4});
  CHECK(file.integers<std::int64_t>("i64") ==
        std::vector<std::int64_t>{-1, 0, std::numeric_limits<std::int64_t>::max()});
  CHECK(file.integers<int>("BOOL") == std::vector<int>{0, 2, 255, 1});

  SECTION("and written again it is the same file") {
    fmoe::io::arrays_by_name again;
    for (const array& a : file.arrays()) again.emplace(a.name(), a);
    safetensors::write(folder / "b", again, file.metadata());
    CHECK(content(folder / "a") == content(folder / "b"));
    CHECK(content(folder / "a") == text_of(safetensors::serialize(arrays, some_metadata)));
  }
  SECTION("with aligned data and sorted names") {
    const auto text = content(folder / "a");
    const auto header = std::to_integer<unsigned>(bytes_of(text)[0]) +
                        256 * std::to_integer<unsigned>(bytes_of(text)[1]);
    CHECK((8 + header) % 64 == 0);
    CHECK(text[8] == '{');
    for (const auto* name : {"\"BOOL\"", "\"bf16\"", "\"double\"", "\"u8\""})
      CHECK(text.find(name) != text.npos);
    CHECK(text.find("\"BOOL\"") < text.find("\"bf16\""));
    for (const array& a : file.arrays()) {
      const auto address =
          reinterpret_cast<std::uintptr_t>(a.bytes().data());  // the data begin at a multiple of 64
      CHECK(address % (fmoe::io::bits_of(a.type()) / 8) == 0);
    }
  }
  SECTION("and outlives the file that it came from") {
    auto kept = safetensors::parse(safetensors::serialize(arrays)).at("i64");
    CHECK(kept.integers<std::int64_t>()[0] == -1);
  }
}

TEST_CASE("a file without anything is a file") {
  const auto file = safetensors::parse(safetensors::serialize({}));
  CHECK(file.names().empty());
  CHECK(file.metadata().empty());
}

TEST_CASE("faults have a code, a place and a tensor") {
  const auto check = [](const std::string& file, errc code, std::uint64_t at,
                        const std::string& tensor) {
    INFO(file.substr(0, 200));
    const auto e = fault_of(file);
    CHECK(std::string(name_of(e.code)) == name_of(code));
    CHECK(e.byte_offset == at);
    CHECK(e.tensor == tensor);
    CHECK(e.file.empty());
  };
  const auto header = [&](const std::string& text, errc code, std::uint64_t at,
                          const std::string& tensor = {}) {
    check(file_of(text, data), code, at, tensor);
  };
  const std::string whole = "{\"a\":" + pair_entry + "}";

  check("", errc::truncated, 0, "");
  check("1234567", errc::truncated, 7, "");
  check(little(1) + "", errc::header_len, 0, "");
  check(little(~std::uint64_t{0}) + whole, errc::header_len, 0, "");
  check(little(~std::uint64_t{7}) + whole, errc::header_len, 0, "");
  check(little(0) + data, errc::json, 8, "");
  check(file_of(whole, data.substr(1)), errc::truncated, 8 + whole.size() + 7, "a");
  check(file_of(whole, data + "x"), errc::layout, 8 + whole.size() + 8, "");
  check(file_of("{}", data), errc::layout, 10, "");

  header("{\"\xC0\xAF\":1}", errc::utf8, 10);
  header("{}\xED\xA0\x80", errc::utf8, 10);
  header("{\"a\":[\"\xE2\x82\"]}", errc::utf8, 15);
  header("\xEF\xBB\xBF" + whole, errc::json, 8);
  header(whole + std::string(1, '\0'), errc::json, 8 + whole.size());
  header(whole + "\v", errc::json, 8 + whole.size());
  header(whole + "{}", errc::json, 8 + whole.size());
  header(whole.substr(0, whole.size() - 1), errc::json, 8 + whole.size() - 1);
  header("{\"a\n\":1}", errc::json, 11);
  header("{\"a", errc::json, 11);
  header("{\"a\\", errc::json, 11);
  header("{\"\\ud800\":1}", errc::json, 10);
  header("{\"\\ud800\\u0041\":1}", errc::json, 10);
  header("{\"\\udc00\":1}", errc::json, 10);
  header("{\"\\u12g4\":1}", errc::json, 10);
  header("{\"\\u+123\":1}", errc::json, 10);
  header("{\"\\x\":1}", errc::json, 10);
  header("{\"a\":01}", errc::json, 15);  // the lexer looks one character ahead of a number
  header("{\"a\":+1}", errc::json, 13);
  header("{\"a\":NaN}", errc::json, 13);
  header("{\"a\":1,}", errc::json, 15);
  header("{/**/}", errc::json, 9);
  header(std::string(100000, '['), errc::json, 8 + 16);
  header(std::string(17, '[') + std::string(17, ']'), errc::json, 8 + 16);
  header(std::string(16, '[') + std::string(16, ']'), errc::schema, 8);
  header("[1,\n  x", errc::json, 14);                         // the grammar comes before the schema
  header("{\"a\":1,\"a\":2}", errc::duplicate_key, 15, "a");  // and so do names
  header("{\"a\":1e999,\"b\":" + std::string(500, '9') + "x}", errc::json,
         523);  // whatever the size of numbers

  header("{\"n\":" + pair_entry + ",\"\\u006e\":" + pair_entry + "}", errc::duplicate_key,
         8 + 6 + pair_entry.size(), "n");
  header("{\"__metadata__\":{\"\\u006b\":\"\",\"k\":\"\"}}", errc::duplicate_key, 37);
  header("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         errc::duplicate_key, 28, "a");

  for (const auto* root : {"1", "\"a\"", "null", "true", "[]", "-1.5e3"})
    header(root, errc::schema, 8);
  for (const auto* value : {"1", "\"a\"", "null", "true", "[]", "{}"})
    CHECK(fault_of(file_of(std::string("{\"a\":") + value + "}", data)).code == errc::schema);
  header("{\"a\":1}", errc::schema, 13, "a");
  header("{\"a\":{}}", errc::schema, 14, "a");
  header("{\"a\":{\"x\":1}}", errc::schema, 14, "a");
  header("{\"a\\u0000\":" + pair_entry + "}", errc::schema, 19, std::string("a\0", 2));
  for (const auto* value :
       {"1", "\"a\"", "true", "[]", "{\"k\":1}", "{\"k\":null}", "{\"k\":{}}", "{\"k\":[]}"})
    CHECK(fault_of(file_of(std::string("{\"__metadata__\":") + value + ",\"a\":" + pair_entry + "}",
                           data))
              .code == errc::schema);

  const auto fields = [&](const std::string& type, const std::string& shape,
                          const std::string& range, errc code) {
    INFO(type << ' ' << shape << ' ' << range);
    const auto e = fault_of(file_of("{\"a\":" + entry(type, shape, range) + "}", data));
    CHECK(std::string(name_of(e.code)) == name_of(code));
    CHECK(e.tensor == "a");
    CHECK(e.byte_offset >= 9);
  };
  for (const auto* type : {"\"f32\"", "\"F128\"", "\"\"", "\"F32 \"", "\"I4\"", "\"F32\\u0000\""})
    fields(type, "[2]", "[0,8]", errc::dtype);
  for (const auto* type : {"1", "null", "[\"F32\"]"}) fields(type, "[2]", "[0,8]", errc::schema);
  for (const auto* shape : {"\"2\"", "2", "null", "{}", "[[2]]", "[-2]", "[-0]", "[2.0]", "[2e0]",
                            "[true]", "[\"2\"]", "[1e999]"})
    fields("\"F32\"", shape, "[0,8]", errc::schema);
  for (const auto* range : {"[]", "[0]", "[0,8,8]", "{}", "[-8,0]", "[0,8.0]", "8", "[0,\"8\"]"})
    fields("\"F32\"", "[2]", range, errc::schema);
  for (const auto* shape :
       {"[281474976710656]", "[18446744073709551616]", "[0,18446744073709551616]",
        "[0,281474976710656]", "[4294967296,4294967296]", "[4294967296,4294967296,0]",
        "[0,4294967296,4294967296]", "[2,2147483648,536870912]"})
    fields("\"F64\"", shape, "[0,8]", errc::overflow);
  fields("\"F32\"", "[" + std::string(5000, '9') + "]", "[0,8]", errc::overflow);
  fields("\"F32\"", "[2]", "[0,18446744073709551616]", errc::overflow);
  fields("\"U8\"", "[65536,65537,4294901761]", "[0,8]", errc::overflow);  // 2^64 + 65536
  std::string ones;
  for (int i = 0; i < 31; ++i) ones += "1,";
  fields("\"F32\"", "[1," + ones + "2]", "[0,8]", errc::limit);
  CHECK(safetensors::parse(
            exact(file_of("{\"a\":" + entry("\"F32\"", "[" + ones + "2]", "[0,8]") + "}", data)))
            .at("a")
            .shape()
            .size() == 32);

  for (const auto* shape : {"[1]", "[3]", "[0]", "[]", "[2,2,2,2,2,2,2,2,2]"})
    fields("\"F32\"", shape, "[0,8]", errc::size_mismatch);
  fields("\"F4\"", "[15]", "[0,8]", errc::size_mismatch);
  fields("\"F6_E2M3\"", "[11]", "[0,8]", errc::size_mismatch);
  for (const auto* range : {"[8,0]", "[4,12]", "[18446744073709551600,18446744073709551608]"})
    fields("\"F32\"", "[2]", range, errc::layout);
  fields("\"F32\"", "[0]", "[1000000,1000000]", errc::layout);
  fields("\"F32\"", "[4]", "[0,16]", errc::truncated);

  const auto two = [&](const std::string& a, const std::string& b) {
    return "{\"a\":" + a + ",\"b\":" + b + "}";
  };
  header(two(pair_entry, pair_entry), errc::layout, 14 + pair_entry.size(), "b");
  header(two(pair_entry, entry("\"U8\"", "[0]", "[4,4]")), errc::layout, 14 + pair_entry.size(),
         "b");
  header(two(entry("\"U8\"", "[3]", "[0,3]"), entry("\"U8\"", "[4]", "[4,8]")), errc::layout,
         14 + entry("\"U8\"", "[3]", "[0,3]").size(), "b");
}

TEST_CASE("ranges whose end does not fit 64 bits overflow") {
  std::string header = "{";
  std::uint64_t at = 0;
  const std::uint64_t end = ~std::uint64_t{7};
  for (int i = 0; at < end; ++i) {
    const std::uint64_t rest = end - at, side = std::uint64_t{1} << 40;
    const std::uint64_t times = std::min<std::uint64_t>(rest / side, 1 << 20);
    const std::uint64_t size = times == 0 ? rest : times * side;
    header += (i == 0 ? "" : ",") + ("\"" + std::to_string(i)) + "\":" +
              entry("\"U8\"",
                    times == 0 ? "[" + std::to_string(rest) + "]"
                               : "[" + std::to_string(times) + "," + std::to_string(side) + "]",
                    "[" + std::to_string(at) + "," + std::to_string(at + size) + "]");
    at += size;
  }
  CHECK(fault_of(file_of(header + "}", "")).code == errc::overflow);
}

TEST_CASE("every known element type is read as bytes") {
  for (const auto& info : std::span(fmoe::io::element_types).first(fmoe::io::safetensors_types)) {
    const auto name = info.name;
    const auto bits = info.bits;
    INFO(name);
    const std::string payload(bits, '\x81');  // eight elements
    const auto file = safetensors::parse(exact(file_of(
        "{\"a\":" +
            entry("\"" + std::string(name) + "\"", "[8]", "[0," + std::to_string(bits) + "]") + "}",
        payload)));
    CHECK(name_of(file.at("a").type()) == name);
    CHECK(text_of(file.at("a").bytes()) == payload);
    CHECK(fmoe::io::element_type_named(name) == file.at("a").type());
  }
  CHECK(fmoe::io::safetensors_types == 22);
  CHECK(fault_of(
            file_of("{\"a\":" + entry("\"Q8_0\"", "[32]", "[0,34]") + "}", std::string(34, '\0')))
            .code == errc::dtype);
}

TEST_CASE("blanks, any order, names that are only keys") {
  const auto b = entry("\"U8\"", "[]", "[0,1]"), a = entry("\"F32\"", "[2]", "[1,9]"),
             z = entry("\"F32\"", "[3,0]", "[1,1]");
  const auto file = safetensors::parse(
      exact(file_of("\n\t{ \"../../etc/passwd\" :" + a + " , \"\":" + b +
                        ",\"\\u00e9\\ud83d\\ude00\":" + z + ",\"__metadata__\":null}\r\n  ",
                    "x" + data)));
  CHECK(file.names() ==
        std::vector<std::string>{"", "../../etc/passwd", "\xC3\xA9\xF0\x9F\x98\x80"});
  CHECK(text_of(file.at("../../etc/passwd").bytes()) == data);
  CHECK(text_of(file.at("").bytes()) == "x");
  CHECK(file.metadata().empty());
}

TEST_CASE("no truncation of a file is accepted") {
  const auto text = text_of(safetensors::serialize(some_arrays(), some_metadata));
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto e = fault_of(text.substr(0, size));
    REQUIRE(e.byte_offset <= size);
  }
}

TEST_CASE("a changed header byte gives an error or a consistent file") {
  const auto text = text_of(safetensors::serialize(
      {{"a", filled<float, 2>({2, 3})}, {"b", filled<bf16, 1>({4})}}, {{"k", "v"}}));
  const std::size_t header_end = 8 + std::to_integer<std::size_t>(bytes_of(text)[0]);
  int accepted = 0;
  for (std::size_t i = 0; i < header_end; ++i)
    for (int flip = 1; flip < 256; flip += 3) {
      auto changed = text;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      try {
        check_consistent(safetensors::parse(exact(changed)), text.size());
        ++accepted;
      } catch (const fmoe::io::error& e) {
        REQUIRE(e.byte_offset <= text.size());
      }
    }
  CHECK(accepted > 0);  // other names, for example
}

TEST_CASE("tensors are widened, and rounded only on request") {
  const auto file = safetensors::parse(safetensors::serialize(some_arrays()), "weights");
  CHECK(equal(file.get<double, 1>("float"), filled<double, 1>({7})));
  CHECK(equal(file.get<float, 3>("bf16"), filled<float, 3>({2, 1, 3})));
  CHECK(equal(file.get<double, 2>("f16"), filled<double, 2>({5, 1})));

  const auto refused = [&](const auto& get) {
    const auto e = caught(get);
    CHECK(e.code == errc::dtype);
    CHECK(e.file == "weights");
    return e;
  };
  CHECK(refused([&] { file.get<float, 2>("double"); }).tensor == "double");
  refused([&] { file.get<bf16, 1>("float"); });
  refused([&] { file.get<f16, 3>("bf16"); });
  refused([&] { file.get<bf16, 2>("f16"); });
  refused([&] { file.get<double, 1>("i64"); });
  refused([&] { file.get<float, 1>("BOOL", fmoe::io::narrow); });
  refused([&] { file.integers<int>("float"); });
  CHECK(equal(file.get<float, 2>("double", fmoe::io::narrow), filled<float, 2>({3, 5})));
  CHECK(equal(file.get<f16, 3>("bf16", fmoe::io::narrow), filled<f16, 3>({2, 1, 3})));
  CHECK(caught([&] { file.integers<std::int32_t>("i64"); }).code == errc::overflow);
  CHECK(caught([&] { file.integers<std::uint64_t>("i64"); }).code == errc::overflow);
  CHECK(caught([&] { file.integers<std::int8_t>("u8"); }).code == errc::overflow);

  // A zero extent does not hide an overflow.
  const auto vast = safetensors::parse(
      exact(file_of("{\"a\":" + entry("\"BF16\"", "[0,281474976710655,4096]", "[0,0]") + "}", "")));
  CHECK(caught([&] { vast.get<double, 3>("a"); }).code == errc::overflow);
}

TEST_CASE("missing and misshapen tensors are named") {
  const auto file = safetensors::parse(safetensors::serialize(some_arrays()), "weights");
  const auto missing = caught([&] { file.get<float, 1>("W\n\"enc"); });
  CHECK(missing.code == errc::missing_tensor);
  CHECK(missing.tensor == "W\n\"enc");
  CHECK(std::string(missing.what()) ==
        "[io] \"weights\": tensor \"W\\x0a\\\"enc\" is missing (missing_tensor)");

  CHECK(file.get<float, 2>("none", {0, fmoe::all}).size() == 0);
  const auto shape = caught([&] { file.get<double, 2>("double", {fmoe::all, 4}); });
  CHECK(shape.code == errc::shape);
  CHECK(std::string(shape.what()) ==
        "[io] \"weights\": tensor \"double\" is [3, 5] and [*, 4] is expected (shape)");
  CHECK(caught([&] { file.get<double, 3>("double"); }).code == errc::shape);
  CHECK(caught([&] { file.get<double, 1>("double"); }).code == errc::shape);
}

TEST_CASE("messages quote names in 64 bytes of visible letters") {
  const auto named = [](const std::string& name) {
    return std::string(fmoe::io::error(errc::io, "x", 0, name).what());
  };
  CHECK(named("a\x1b[31m\xff") == "[io] tensor \"a\\x1b[31m\\xff\" x (io)");
  CHECK(named(std::string(64, 'n')) == "[io] tensor \"" + std::string(64, 'n') + "\" x (io)");
  CHECK(named(std::string(65, 'n')) == "[io] tensor \"" + std::string(64, 'n') + "\"... x (io)");
  CHECK(named(std::string(62, 'n') + "\n") ==
        "[io] tensor \"" + std::string(62, 'n') + "\"... x (io)");

  // Letters of every length stand as they are, and none is cut in two.
  for (const std::string letter : {"\xc3\xa9", "\xe9\x87\x8d", "\xf0\x90\x8d\x88"}) {
    CHECK(named(letter + "n") == "[io] tensor \"" + letter + "n\" x (io)");
    CHECK(named(std::string(63, 'n') + letter) ==
          "[io] tensor \"" + std::string(63, 'n') + "\"... x (io)");
  }
  // A control, a space without a break, a mark that turns the direction, a private letter, an
  // overlong form, half a letter.
  CHECK(named("\xc2\x9b\xc2\xa0\xe2\x80\xae") ==
        R"([io] tensor "\xc2\x9b\xc2\xa0\xe2\x80\xae" x (io))");
  CHECK(named("\xee\x80\x80\xc0\x80\xe9\x87") ==
        R"([io] tensor "\xee\x80\x80\xc0\x80\xe9\x87" x (io))");
}

TEST_CASE("16-bit elements are converted exactly") {
  std::vector<std::byte> all;
  for (unsigned u = 0; u < 65536; ++u) {
    all.push_back(static_cast<std::byte>(u & 255));
    all.push_back(static_cast<std::byte>(u >> 8));
  }
  const auto value = [](unsigned u, int exponent_bits, int mantissa_bits) {
    const unsigned exponent = u >> mantissa_bits & ((1u << exponent_bits) - 1),
                   mantissa = u & ((1u << mantissa_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1, sign = u >> 15 ? -1 : 1;
    if (exponent == (1u << exponent_bits) - 1)
      return mantissa ? std::numeric_limits<double>::quiet_NaN()
                      : sign * std::numeric_limits<double>::infinity();
    const auto significand =
        static_cast<double>(exponent ? mantissa | 1u << mantissa_bits : mantissa);
    return sign * std::ldexp(significand,
                             (exponent ? static_cast<int>(exponent) : 1) - bias - mantissa_bits);
  };
  const auto check = [&]<class T>(T, int exponent_bits, int mantissa_bits) {
    const auto file = safetensors::parse(safetensors::serialize(
        {{"a", array(fmoe::io::element_type_of(fmoe::detail::dtype_of<T>), {65536}, all)}}));
    const auto wide = file.get<float, 1>("a");
    const auto same = file.get<T, 1>("a");
    const auto back = array(wide).get<T, 1>(fmoe::io::narrow);
    int wrong = 0;
    for (unsigned u = 0; u < 65536; ++u) {
      const double expected = value(u, exponent_bits, mantissa_bits);
      const double found = static_cast<double>(wide(u));
      wrong += same(u).bits != u;
      wrong += std::isnan(expected)
                   ? !std::isnan(found)
                   : found != expected || std::signbit(found) != std::signbit(expected);
      wrong += std::isnan(expected)
                   ? (back(u).bits & 0x7fff) <= ((1u << exponent_bits) - 1) << mantissa_bits
                   : back(u).bits != u;
    }
    CHECK(wrong == 0);

    // From double, a number between two neighbours goes to the nearer one, and the middle goes to
    // the even one.
    const unsigned infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
    tensor<double, 1> between({3 * extent{infinity}});
    for (unsigned u = 0; u < infinity; ++u) {
      const double low = value(u, exponent_bits, mantissa_bits);
      const double high = u + 1 < infinity ? value(u + 1, exponent_bits, mantissa_bits)
                                           : 2 * low - value(u - 1, exponent_bits, mantissa_bits);
      const double middle = (low + high) / 2;
      between(3 * u) = std::nextafter(middle, low);
      between(3 * u + 1) = -middle;
      between(3 * u + 2) = std::nextafter(middle, high);
    }
    const auto rounded = array(between).get<T, 1>(fmoe::io::narrow);
    for (unsigned u = 0; u < infinity; ++u) {
      wrong += rounded(3 * u).bits != u;
      wrong += rounded(3 * u + 1).bits != (0x8000 | (u + (u & 1)));
      wrong += rounded(3 * u + 2).bits != u + 1;
    }
    CHECK(wrong == 0);
    CHECK(array(filled<double, 1>({1})).get<T, 1>(fmoe::io::narrow)(0).bits == T(-3.f).bits);
    tensor<double, 1> extremes(
        {4}, std::vector<double>{1e300, -1e300, 1e-300, std::numeric_limits<double>::quiet_NaN()});
    const auto ends = array(extremes).get<T, 1>(fmoe::io::narrow);
    CHECK(ends(0).bits == infinity);
    CHECK(ends(1).bits == (0x8000 | infinity));
    CHECK(ends(2).bits == 0);
    CHECK((ends(3).bits & 0x7fff) > infinity);
  };
  check(bf16(), 8, 7);
  check(f16(), 5, 10);
}

TEST_CASE("floats keep their bits") {
  const std::vector<std::uint32_t> bits = {0x7f800001, 0xffc00123, 0x80000000, 1, 0x7f800000};
  std::vector<std::byte> bytes(4 * bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i)
    fmoe::io::store_little(bits[i], bytes.data() + 4 * i);
  const auto t = safetensors::parse(safetensors::serialize(
                                        {{"a", array(element_type::f32, {bits.size()}, bytes)}}))
                     .get<float, 1>("a");
  CHECK(std::memcmp(t.data(), bits.data(), bytes.size()) == 0);
}

TEST_CASE("the writer refuses what the reader would") {
  const temporary_folder folder;
  put(folder / "old", "old");
  const auto refused = [&](const fmoe::io::arrays_by_name& arrays, errc code,
                           const fmoe::io::strings_by_name& metadata = {}) {
    const auto e = caught([&] { safetensors::write(folder / "old", arrays, metadata); });
    CHECK(std::string(name_of(e.code)) == name_of(code));
    CHECK(e.file == folder / "old");
    CHECK(content(folder / "old") == "old");
    CHECK(folder.entries() == 1);
  };
  const auto t = filled<float, 1>({1});
  refused({{std::string("a\0b", 3), t}}, errc::schema);
  refused({{"__metadata__", t}}, errc::schema);
  refused({{"\xff", t}}, errc::utf8);
  refused({{"a", t}}, errc::utf8, {{"k", "\xed\xa0\x80"}});
  refused({{"a", array(element_type::u8, std::vector<extent>(33, 1), bytes_of("x"))}}, errc::limit);
  refused({{"a", array(element_type::u8, {0, extent{1} << 48}, {})}}, errc::overflow);

  CHECK(caught([] { array(element_type::f32, {2}, bytes_of("1234567")); }).code ==
        errc::size_mismatch);
  CHECK(caught([] { array(element_type::f4, {1}, bytes_of("")); }).code == errc::size_mismatch);
  CHECK(caught([] { array(element_type::u8, {0, extent{1} << 40, extent{1} << 40}, {}); }).code ==
        errc::overflow);
  CHECK(caught([] { array(tensor<float, 0>()); }).code == errc::size_mismatch);
}

TEST_CASE("a failed write leaves the old file and nothing else") {
  const temporary_folder folder;
  put(folder / "old", "old");
  const auto failed = [&](const std::filesystem::path& file) {
    const auto e = caught([&] { safetensors::write(file, {{"a", filled<float, 1>({1000})}}); });
    CHECK(e.code == errc::io);
    CHECK(e.file == file);
  };
#if !defined(_WIN32)
  SECTION("when the disk is full") {
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{1000, before.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &small);
    failed(folder / "old");
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
  }
  SECTION("when the place is taken by a FIFO") {
    REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
    failed(folder / "fifo");
    CHECK(std::filesystem::is_fifo(folder / "fifo"));
    std::filesystem::remove(folder / "fifo");
  }
#endif
  SECTION("when there is no such folder") { failed(folder / "none/file"); }
  SECTION("when the place is taken by a folder") {
    failed(folder.path());
    CHECK(std::filesystem::is_directory(folder.path()));
  }
  CHECK(content(folder / "old") == "old");
  CHECK(folder.entries() == 1);
}

#if !defined(_WIN32)  // where an open file is not replaced, and the C++ library makes no links
TEST_CASE("a written file replaces the old one and keeps its permissions") {
  const temporary_folder folder;
  put(folder / "a", "old");
  std::filesystem::permissions(
      folder / "a", std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const int open_before = ::open((folder / "a").c_str(), O_RDONLY);
  safetensors::write(folder / "a", {{"a", filled<float, 1>({1})}});
  char kept[4] = {};
  CHECK(::read(open_before, kept, 3) == 3);  // an open file keeps the old content
  CHECK(std::string(kept) == "old");
  ::close(open_before);
  CHECK(safetensors::read(folder / "a").get<float, 1>("a")(0) == -3);
  CHECK((std::filesystem::status(folder / "a").permissions() &
         std::filesystem::perms::others_read) == std::filesystem::perms::none);
  CHECK(folder.entries() == 1);
}

TEST_CASE("a symbolic link is replaced, and its file stays") {
  const temporary_folder folder;
  put(folder / "old", "old");
  std::filesystem::create_symlink("old", folder / "link");
  safetensors::write(folder / "link", {{"a", filled<float, 1>({1})}});
  CHECK(!std::filesystem::is_symlink(folder / "link"));
  CHECK(safetensors::read(folder / "link").contains("a"));
  CHECK(content(folder / "old") == "old");
}
#endif

TEST_CASE("what is no regular file is refused without waiting") {
  const temporary_folder folder;
#if !defined(_WIN32)
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
#endif
  for (const auto& path : {folder.path(), folder / "fifo", folder / "none",
                           std::filesystem::path("/dev/zero"), std::filesystem::path()}) {
    INFO(path);
    CHECK(caught([&] { safetensors::read(path); }).code == errc::io);
  }
}

TEST_CASE("a file that shrinks while it is read is an error") {
  const temporary_folder folder;
  put(folder / "a", "0123456789");
  const fmoe::io::input in(folder / "a");
  std::filesystem::resize_file(folder / "a", 5);
  std::vector<std::byte> to(10);
  const auto e = caught([&] { in.read(0, to); });
  CHECK(e.code == errc::io);
  CHECK(e.byte_offset == 5);
}

TEST_CASE("a header that promises more than the file holds takes no memory") {
  const auto header =
      "{\"a\":" + entry("\"F64\"", "[274877906944,1024]", "[0,2251799813685248]") + "}";
  CHECK(fault_of(file_of(header, data)).code == errc::truncated);
#if !defined(_WIN32)  // where the C++ library makes no file of more than 2 GB
  const temporary_folder folder;
  put(folder / "sparse", file_of("{}", ""));
  std::filesystem::resize_file(folder / "sparse", std::uintmax_t{1} << 40);
  CHECK(caught([&] { safetensors::read(folder / "sparse"); }).code == errc::layout);
#endif
}

TEST_CASE("a path with a NUL is not the file before the NUL") {
  const temporary_folder folder;
  safetensors::write(folder / "a", {{"a", filled<float, 1>({1})}});
  const std::string before = content(folder / "a");
  const std::filesystem::path path = with_nul(folder / "a");
  const auto refused = [&](const auto& f) {
    const auto e = caught(f);
    CHECK(e.code == errc::io);
    CHECK(e.file == path);
  };
  refused([&] { safetensors::read(path); });
  refused([&] { safetensors::write(path, {}); });
  CHECK(content(folder / "a") == before);
  CHECK(folder.entries() == 1);
}

// SPDX-License-Identifier: MIT
// GGUF files: what they hold, and what is refused and where.
#include <cstdint>
#include <limits>

#include <fmoe/io/gguf.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/gguf_file.hpp"

namespace io = fmoe::io;
using fmoe::detail::extent;
using io::errc;
using io::gguf;
using namespace fmoe::test;

namespace {

const float numbers[] = {1, 2, 3, 4, 5, 6};

gguf_file good() {
  gguf_file f;
  f.value("general.architecture", gguf_text, counted_text("llama"));
  f.value("llama.expert_count", 8);
  f.floats("a", {3, 2}, numbers);
  f.tensor("b", {32, 1, 2}, ggml_q8_0, std::string(68, '\1'));
  return f;
}

io::error fault_of(const std::string& file) {
  const auto bytes = exact(file);
  return caught([&] { gguf::parse(bytes); });
}
io::error fault_of(const gguf_file& f) { return fault_of(f.bytes()); }

// Returns the length of the header up to the values, which is where the first key stands.
constexpr std::uint64_t first_key = 24;

}  // namespace

TEST_CASE("values of every kind are read") {
  const gguf file = gguf::read("tests/io/blocks.gguf");
  CHECK(file.version() == 3);
  CHECK(file.alignment() == 32);
  CHECK(file.value<int>("a.u8") == 200);
  CHECK(file.value<int>("a.i8") == -100);
  CHECK(file.value<int>("a.u16") == 60000);
  CHECK(file.value<int>("a.i16") == -30000);
  CHECK(file.value<std::int64_t>("a.u32") == 4000000000);
  CHECK(file.value<int>("a.i32") == -2000000000);
  CHECK(file.value<std::uint64_t>("a.u64") == std::uint64_t{1} << 63);
  CHECK(file.value<std::int64_t>("a.i64") == std::numeric_limits<std::int64_t>::min());
  CHECK(file.value<float>("a.f32") == 0.1f);
  CHECK(file.value<double>("a.f32") == static_cast<double>(0.1f));
  CHECK(file.value<double>("a.f64") == 0.1);
  CHECK(file.value<bool>("a.bool"));
  CHECK(file.value<std::string>("a.string") ==
        "Gr\xC3\xB6\xC3\x9F"
        "e");
  CHECK(file.value<std::vector<std::string>>("a.strings") ==
        std::vector<std::string>{"one", "", "three"});
  CHECK(file.value<std::vector<int>>("a.integers") == std::vector<int>{1, -2, 3});
  CHECK(file.value<std::vector<double>>("a.floats") == std::vector<double>{0.5, -1.5});
  CHECK(file.value<std::vector<bool>>("a.bools") == std::vector<bool>{true, false});
  CHECK(file.find_value<int>("a.u8") == 200);
  CHECK(!file.find_value<int>("a.u9"));

  CHECK(caught([&] { file.value<std::int32_t>("a.u32"); }).code == errc::overflow);
  CHECK(caught([&] { file.value<std::uint8_t>("a.i8"); }).code == errc::overflow);
  CHECK(caught([&] { file.value<float>("a.f64"); }).code == errc::schema);
  CHECK(caught([&] { file.value<int>("a.f32"); }).code == errc::schema);
  CHECK(caught([&] { file.value<int>("a.bool"); }).code == errc::schema);
  CHECK(caught([&] { file.value<bool>("a.u8"); }).code == errc::schema);
  CHECK(caught([&] { file.value<std::string>("a.strings"); }).code == errc::schema);
  CHECK(caught([&] { file.value<std::vector<int>>("a.u8"); }).code == errc::schema);
  CHECK(caught([&] { file.value<std::vector<int>>("a.floats"); }).code == errc::schema);
  CHECK(caught([&] { file.value<int>("a.u9"); }).code == errc::schema);

  const auto metadata = file.metadata();
  CHECK(metadata.at("a.u64") == "9223372036854775808");
  CHECK(metadata.at("a.i16") == "-30000");
  CHECK(metadata.at("a.f32") == "0.1");
  CHECK(metadata.at("a.bool") == "true");
  CHECK(metadata.at("general.architecture") == "example");
  CHECK(!metadata.contains("a.strings"));
}

TEST_CASE("arrays have row-major shapes and their types") {
  const gguf file = gguf::parse(exact(good().bytes()));
  CHECK(file.names() == std::vector<std::string>{"a", "b"});
  CHECK(file.at("a").shape() == std::vector<extent>{2, 3});
  const auto a = file.get<float, 2>("a");
  CHECK(a(1, 0) == 4);
  CHECK(file.at("b").shape() == std::vector<extent>{2, 1, 32});
  CHECK(file.at("b").type() == io::element_type::q8_0);
  CHECK(caught([&] { file.at("c"); }).code == errc::missing_tensor);

  const gguf golden = gguf::read("tests/io/blocks.gguf");
  CHECK(golden.get<fmoe::f16, 2>("F16")(0, 0) == fmoe::f16(1.5f));
  CHECK(golden.get<fmoe::bf16, 2>("BF16")(0, 1) == fmoe::bf16(-2.f));
}

TEST_CASE("an array lives longer than the file's object, and longer than its name") {
  const temporary_folder folder;
  put(folder / "m.gguf", good().bytes());
  const auto a = [&] { return gguf::read(folder / "m.gguf").at("a"); }();
  std::filesystem::remove(folder / "m.gguf");
  CHECK(a.get<float, 2>()(1, 2) == 6);
}

TEST_CASE("version 2, other alignments, gaps and empty files are accepted") {
  gguf_file f = good();
  f.version = 2;
  CHECK(gguf::parse(exact(f.bytes())).version() == 2);
  CHECK(gguf::parse(exact(gguf_file().bytes())).names().empty());
  CHECK(gguf::parse(exact(good().bytes() + std::string(64, 'x'))).names().size() == 2);

  gguf_file small;
  small.value("general.alignment", 8).entry("x", {1}, ggml_f32, 8).entry("y", {0}, ggml_f32, 0);
  small.entry("z", {}, ggml_f32, 0);
  std::string text = small.header();
  text.resize((text.size() + 7) / 8 * 8);
  text += little(2.f) + std::string(4, '\0') + little(3.f);
  const gguf file = gguf::parse(exact(text));
  CHECK(file.alignment() == 8);
  CHECK(file.get<float, 1>("x")(0) == 3);
  CHECK(file.get<float, 0>("z")() == 2);
  CHECK(file.get<float, 1>("y").size() == 0);

  gguf_file nested;
  nested.value("n", gguf_array,
               little(gguf_array) + little<std::uint64_t>(2) + little(gguf_u8) +
                   little<std::uint64_t>(1) + "x" + little(gguf_u8) + little<std::uint64_t>(0));
  const gguf arrays = gguf::parse(exact(nested.bytes()));
  CHECK(arrays.values().at("n").size() == 2);
  CHECK(caught([&] { arrays.value<std::vector<int>>("n"); }).code == errc::schema);
}

TEST_CASE("every cut of a file is refused, where the file ends") {
  const std::string whole = good().bytes();
  REQUIRE(gguf::parse(exact(whole)).names().size() == 2);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    const auto fault = fault_of(whole.substr(0, size));
    CHECK(fault.code == errc::truncated);
    CHECK(fault.byte_offset <= size);
  }
}

TEST_CASE("malformed headers are refused, with their place") {
  const auto refused = [](const gguf_file& f, errc code, std::uint64_t at) {
    const auto fault = fault_of(f);
    CHECK(fault.code == code);
    CHECK(fault.byte_offset == at);
  };
  CHECK(fault_of("GGML" + std::string(20, '\0')).code == errc::magic);
  CHECK(fault_of("GX").code == errc::magic);
  gguf_file f;
  f.version = 1;
  refused(f, errc::version, 4);
  f.version = 4;
  refused(f, errc::version, 4);
  f.version = 0x03000000;
  refused(f, errc::version, 4);
  f = {};
  f.tensor_count = std::numeric_limits<std::uint64_t>::max();
  refused(f, errc::truncated, 8);
  f = {};
  f.value_count = 1;
  refused(f, errc::truncated, 16);

  refused(gguf_file().value("k", 13, "x"), errc::schema, first_key + 9);
  refused(gguf_file().value("k", 1).value("k", 2), errc::duplicate_key, first_key + 17);
  refused(gguf_file().value("k\xff", 1), errc::utf8, first_key + 9);
  refused(gguf_file().value(std::string(65536, 'k'), 1), errc::limit, first_key);
  refused(gguf_file().value("k", gguf_text, counted_text("\xc3")), errc::utf8, first_key + 21);
  refused(gguf_file().value("k", gguf_bool, "\2"), errc::schema, first_key + 13);
  const auto array = [](std::uint32_t kind, std::uint64_t count, const std::string& content) {
    return gguf_file().value("k", gguf_array, little(kind) + little(count) + content);
  };
  const std::uint64_t array_at = first_key + 13;
  refused(array(13, 1, "x"), errc::schema, array_at);
  refused(array(gguf_u64, std::uint64_t{1} << 61, std::string(8, 'x')), errc::truncated,
          array_at + 4);
  refused(array(gguf_text, 2, counted_text("long enough")), errc::truncated, array_at + 31);
  refused(array(gguf_bool, 3, std::string("\0\1\2", 3)), errc::schema, array_at + 14);
  std::string deep = little(gguf_u8) + little<std::uint64_t>(0);
  for (int i = 0; i < 15; ++i) deep = little(gguf_array) + little<std::uint64_t>(1) + deep;
  const auto deepest = gguf::parse(exact(gguf_file().value("k", gguf_array, deep).bytes()));
  CHECK(deepest.values().size() == 1);
  deep = little(gguf_array) + little<std::uint64_t>(1) + deep;
  CHECK(fault_of(gguf_file().value("k", gguf_array, deep)).code == errc::limit);

  refused(gguf_file().value("general.alignment", 0), errc::schema, first_key);
  refused(gguf_file().value("k", 1).value("general.alignment", 12), errc::schema, first_key + 17);
  CHECK(fault_of(gguf_file().value("general.alignment", gguf_f32, little(32.f))).code ==
        errc::schema);
}

TEST_CASE("tensors that cannot be as described are refused, with their names") {
  const auto refused = [](const gguf_file& f, errc code) {
    const auto fault = fault_of(f);
    CHECK(fault.code == code);
    CHECK(fault.tensor == "t");
    CHECK(fault.byte_offset >= first_key);
  };
  const auto with = [](const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                       std::uint64_t offset) {
    gguf_file f;
    f.entry("t", dimensions, type, offset);
    f.data = std::string(128, '\0');
    return f;
  };
  CHECK(gguf::parse(exact(with({32}, ggml_f32, 0).bytes())).contains("t"));
  refused(with({33}, ggml_f32, 0), errc::truncated);
  refused(with({1}, ggml_f32, 128), errc::truncated);
  refused(with({1}, ggml_f32, 1), errc::layout);
  refused(with({1, 1, 1, 1, 1}, ggml_f32, 0), errc::limit);
  refused(with({1}, 4, 0), errc::dtype);
  refused(with({1}, 99, 0), errc::dtype);
  refused(with({33}, ggml_q8_0, 0), errc::size_mismatch);
  refused(with({128, 2}, ggml_q4_k, 0), errc::size_mismatch);
  refused(with({}, ggml_q8_0, 0), errc::size_mismatch);
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  refused(with({most}, ggml_f32, 0), errc::overflow);
  refused(with({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, ggml_f32, 0), errc::overflow);
  refused(with({std::uint64_t{1} << 40, std::uint64_t{1} << 40, 0}, ggml_f32, 0), errc::overflow);
  refused(with({std::uint64_t{1} << 47, std::uint64_t{1} << 12}, ggml_q8_0, 0), errc::truncated);
  refused(with({std::uint64_t{1} << 47, std::uint64_t{1} << 17}, ggml_q8_0, 0), errc::overflow);
  refused(with({1}, ggml_f32, most - 31), errc::truncated);
  refused(with({16}, ggml_f32, most - 31), errc::overflow);

  gguf_file twice = with({1}, ggml_f32, 0);
  twice.entry("t", {1}, ggml_f32, 32);
  refused(twice, errc::duplicate_key);
  gguf_file overlapping = with({9}, ggml_f32, 0);
  overlapping.entry("before", {0}, ggml_f32, 32).entry("u", {1}, ggml_f32, 32);
  CHECK(fault_of(overlapping).code == errc::layout);
  CHECK(fault_of(overlapping).tensor == "u");
  gguf_file same = with({8}, ggml_f32, 0);
  same.entry("u", {8}, ggml_f32, 0);
  CHECK(fault_of(same).code == errc::layout);
}

// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

#if !defined(_WIN32)
#include <sys/stat.h>
#endif

#include <fmoe/io/npy-inl.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"

using fmoe::f16;
using fmoe::tensor;
using fmoe::detail::extent;
using fmoe::io::array;
using fmoe::io::element_type;
using fmoe::io::errc;
namespace npy = fmoe::io::npy;

namespace {

const std::string data = "01234567";

std::string file_of(const std::string& dict, const std::string& payload, int major = 1) {
  const auto n = dict.size();
  std::string text = "\x93NUMPY";
  text += {static_cast<char>(major), 0, static_cast<char>(n & 255), static_cast<char>(n >> 8)};
  if (major > 1) text += {static_cast<char>(n >> 16), static_cast<char>(n >> 24)};
  return text + dict + payload;
}
std::string dict(const std::string& descr = "'<f4'", const std::string& order = "False",
                 const std::string& shape = "(2,)") {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

fmoe::io::error fault_of(const std::string& file) {
  const auto bytes = exact(file);
  return caught([&] { npy::parse(bytes); });
}
array parsed(const std::string& file) { return npy::parse(exact(file)); }

std::string code_of(const std::string& file) { return name_of(fault_of(file).code); }

}  // namespace

TEST_CASE("what is written as npy is read again") {
  const temporary_folder folder;
  const auto check = [&](const array& a) {
    INFO(name_of(a.type()) << fmoe::io::text_of(a.shape()));
    npy::write(folder / "a.npy", a);
    const auto b = npy::read(folder / "a.npy");
    CHECK(b.type() == a.type());
    CHECK(b.shape() == a.shape());
    CHECK(text_of(b.bytes()) == text_of(a.bytes()));
    const auto text = content(folder / "a.npy");
    CHECK(text == text_of(npy::serialize(b)));
    CHECK((text.size() - a.bytes().size()) % 64 == 0);
    CHECK(folder.entries() == 1);
    for (std::size_t size = 0; size < text.size(); ++size)
      CHECK(fault_of(text.substr(0, size)).byte_offset <= size);
  };
  const std::vector<std::byte> bytes(48, std::byte{0x9a});
  for (const auto& t : fmoe::io::npy_types) {
    const extent n = 48 / (fmoe::io::bits_of(t.type) / 8);
    check(array(t.type, {n}, bytes));
    check(array(t.type, {2, n / 2, 1}, bytes));
  }
  check(array(tensor<float, 0>({}, std::vector<float>{3})));
  check(array(tensor<f16, 2>({0, 3})));
  const std::vector<std::int16_t> values = {1, -2, 3};
  check(array({3, 1}, std::span<const std::int16_t>(values)));
}

TEST_CASE("the header is numpy's own") {
  const auto text = text_of(npy::serialize(array(tensor<double, 1>({3}))));
  CHECK(text.substr(0, 10) == std::string("\x93NUMPY\x01\0\x76\0", 10));
  CHECK(text.substr(10, 60) == "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }   ");
  CHECK(text.substr(126, 2) == " \n");
  CHECK(text_of(npy::serialize(array(tensor<float, 0>(std::array<extent, 0>{}))))
            .find("'shape': (), }") != text.npos);
  CHECK(text_of(npy::serialize(array(tensor<float, 2>({4, 5})))).find("'shape': (4, 5), }") !=
        text.npos);
  CHECK(text_of(npy::serialize(array(element_type::boolean, {1}, bytes_of("x")))).find("'|b1'") !=
        text.npos);
}

TEST_CASE("every spelling of a header that numpy's rules allow") {
  for (const auto& text :
       {dict(), std::string("{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(2,)}"),
        " \t" + dict() + "\n \r\n",
        std::string("{ 'shape' : ( 2 , ) ,\n'fortran_order':False,'descr':'<f4'}"),
        dict("'<f4'", "True")})
    for (const int version : {1, 2, 3}) {
      INFO(text);
      const auto a = parsed(file_of(text, data, version));
      CHECK(a.type() == element_type::f32);
      CHECK(a.shape() == std::vector<extent>{2});
      CHECK(text_of(a.bytes()) == data);
    }
  CHECK(parsed(file_of(dict("'<f4'", "False", "()"), "0123")).shape().empty());
  CHECK(parsed(file_of(dict("'<f4'", "True", "(0, 3)"), "")).shape() == std::vector<extent>{0, 3});
  CHECK(parsed(file_of(dict() + std::string(10000 - dict().size(), ' '), data)).shape() ==
        std::vector<extent>{2});
  CHECK(text_of(parsed(file_of(dict("'|b1'"), "\x02\xff")).bytes()) == "\x02\xff");
  CHECK(text_of(parsed(file_of(dict("'>i1'"), "ab")).bytes()) == "ab");
}

TEST_CASE("numbers change their byte order between a big-endian host and a file") {
  const std::array<std::byte, 6> host{std::byte{1}, std::byte{2}, std::byte{3},
                                      std::byte{4}, std::byte{5}, std::byte{6}};
  const auto copied = [&]<std::endian Host>(std::integral_constant<std::endian, Host>,
                                            extent size) {
    std::array<std::byte, 6> to{};
    fmoe::io::copy_little<Host>(host, size, to.data());
    std::string text;
    for (const std::byte b : to) text += static_cast<char>('0' + std::to_integer<int>(b));
    return text;
  };
  CHECK(copied(std::integral_constant<std::endian, std::endian::little>(), 2) == "123456");
  CHECK(copied(std::integral_constant<std::endian, std::endian::big>(), 2) == "214365");
  CHECK(copied(std::integral_constant<std::endian, std::endian::big>(), 3) == "321654");
}

TEST_CASE("arrays arrive row-major and little-endian") {
  std::string payload;  // element (i, j, k) of [2, 3, 4] is 12 i + 4 j + k
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) payload += {0, static_cast<char>(12 * i + 4 * j + k)};
  const auto a = parsed(file_of(dict("'>u2'", "True", "(2, 3, 4)"), payload));
  CHECK(a.shape() == std::vector<extent>{2, 3, 4});
  const auto values = a.integers<int>();
  for (int i = 0; i < 24; ++i) CHECK(values[static_cast<std::size_t>(i)] == i);

  const auto f = parsed(
      file_of(dict("'>f8'", "False", "(1,)"), std::string("\x40\x09\x21\xfb\x54\x44\x2d\x18", 8)));
  CHECK(f.get<double, 1>()(0) == 3.141592653589793);
}

TEST_CASE("faults of .npy files have a code and a place") {
  const auto check = [](const std::string& file, errc code, std::uint64_t at) {
    INFO(file.substr(0, 200));
    const auto e = fault_of(file);
    CHECK(std::string(name_of(e.code)) == name_of(code));
    CHECK(e.byte_offset == at);
    CHECK(e.tensor.empty());
  };
  check("", errc::truncated, 0);
  check("\x93NUM", errc::truncated, 4);
  check(std::string("\x93NUMPY\1\0\x10", 9), errc::truncated, 9);
  check("PK\3\4", errc::magic, 0);
  check("\x80\4K\1.", errc::magic, 0);
  for (const auto* version : {"\0\0", "\1\1", "\4\0", "\xff\xff"})
    check("\x93NUMPY" + std::string(version, 2) + std::string(100, ' '), errc::version, 6);
  check(file_of(dict(), ""), errc::truncated, 10 + dict().size());
  check(file_of(dict(), "0123456"), errc::truncated, 10 + dict().size() + 7);
  check(file_of(dict(), data + "x"), errc::layout, 10 + dict().size() + 8);
  check(file_of(dict("'<f4'", "False", "(1099511627776,)"), data), errc::truncated,
        10 + dict("'<f4'", "False", "(1099511627776,)").size() + 8);
  check(std::string("\x93NUMPY\2\0\xff\xff\xff\xff{", 13), errc::header_len, 8);
  check(std::string("\x93NUMPY\1\0\x02\0{", 11), errc::header_len, 8);
  check(file_of(dict() + std::string(10001 - dict().size(), ' '), data), errc::header_len, 8);
  check(file_of("", data), errc::header, 10);
  check(file_of("{'descr': '<f4\xe9'}", data), errc::header, 24);
  check(file_of("{'descr': '<f4\xe9'}", data, 3), errc::header, 26);
  check(file_of(dict("'<f8 '"), data), errc::dtype, 20);
}

TEST_CASE("descriptions that are no numbers") {
  for (const auto* descr :
       {"'|O'",      "'O8'",   "'|S8'",  "'<U2'",  "'|V2'",  "'<V2'", "'<M8[ns]'", "'<m8'",
        "'<c8'",     "'<f16'", "'<f44'", "'<f3'",  "'f4'",   "'=f4'", "'|f4'",     "'|u2'",
        "'float32'", "''",     "'<'",    "'<f4 '", "' <f4'", "'<b2'", "'<F4'",     "'?'"}) {
    INFO(descr);
    CHECK(code_of(file_of(dict(descr), data)) == "dtype");
  }
  CHECK(code_of(file_of(dict("'<f4\xc3\xa9'"), data, 3)) == "dtype");
  for (const auto* descr :
       {"4", "None", "True", "[('a', '<f4')]", "('<f4', (2,))", "'<' 'f4'", "'\\x3cf4'", "u'<f4'",
        "b'<f4'", "'''<f4'''", "'<f4", "<f4", "'<f4'+''", "'<f4\n'"}) {
    INFO(descr);
    CHECK(code_of(file_of(dict(descr), data)) == "header");
  }
}

TEST_CASE("what is no shape and no order") {
  for (const auto* shape : {"(-1,)",     "(-2, -1)",
                            "(True, 2)", "(2.0,)",
                            "(2e0,)",    "(0x2,)",
                            "(0_2,)",    "(02,)",
                            "(00,)",     "(2L,)",
                            "(1+1,)",    "(+2,)",
                            "((2,),)",   "(2)",
                            "(2",        "2,",
                            "[2]",       "None",
                            "2",         "(,)",
                            "(2,,)",     "(2 2)",
                            "('2',)",    "(2;)",
                            "(2,)*1",    "(__import__('os').getpid(),)"}) {
    INFO(shape);
    CHECK(code_of(file_of(dict("'<f4'", "False", shape), data)) == "header");
  }
  CHECK(code_of(file_of(dict("'<f4'", "False", std::string(5000, '(')), data)) == "header");
  for (const auto* shape :
       {"(18446744073709551616,)", "(0, 18446744073709551616)", "(281474976710656, 0)",
        "(4294967296, 4294967296)", "(4611686018427387905, 2)", "(0, 4294967296, 4294967296)"}) {
    INFO(shape);
    CHECK(code_of(file_of(dict("'<f4'", "False", shape), data)) == "overflow");
  }
  CHECK(code_of(file_of(dict("'<f4'", "False", "(" + std::string(5000, '9') + ",)"), data)) ==
        "overflow");
  CHECK(code_of(file_of(dict("'<f4'", "False", "(9999999999999999999999,"), data)) ==
        "header");  // the grammar comes first
  std::string ones;
  for (int i = 0; i < 32; ++i) ones += "1,";
  CHECK(code_of(file_of(dict("'<f4'", "False", "(" + ones + "2)"), data)) == "limit");
  for (const auto* order :
       {"'False'", "0", "1", "false", "None", "Falsee", "False2", "not True", "()"}) {
    INFO(order);
    CHECK(code_of(file_of(dict("'<f4'", order), data)) == "header");
  }
}

TEST_CASE("what is no dict of three keys") {
  const auto good = dict();
  for (const auto& text :
       {std::string("{}"),
        std::string("[]"),
        std::string("{'descr': '<f4', 'shape': (2,)}"),
        std::string("{'descr': '<f4', 'fortran_order': False}"),
        std::string("{'fortran_order': False, 'shape': (2,)}"),
        std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}"),
        std::string("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}"),
        std::string(
            "{'descr': '<f4', 'fortran_order': False, 'fortran_order': False, 'shape': (2,)}"),
        std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (2,)}"),
        std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2,),, }"),
        std::string("{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}"),
        std::string("{descr: '<f4', 'fortran_order': False, 'shape': (2,)}"),
        "dict(" + good + ")",
        good + good,
        good + "#x",
        good + std::string(1, '\0'),
        good + "\v",
        good + "x",
        "x" + good,
        good.substr(0, good.size() - 2)}) {
    INFO(text);
    CHECK(code_of(file_of(text, data)) == "header");
  }
}

TEST_CASE("a changed header byte gives an error or a consistent array") {
  const auto text = text_of(npy::serialize(array(tensor<float, 2>({2, 3}))));
  for (std::size_t i = 0; i < 128; ++i)
    for (int flip = 1; flip < 256; ++flip) {
      auto changed = text;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      try {
        const auto a = parsed(changed);
        REQUIRE(fmoe::io::count_bits(a.shape(), fmoe::io::bits_of(a.type())) ==
                8 * a.bytes().size());
        REQUIRE(a.bytes().size() == 24);
      } catch (const fmoe::io::error& e) {
        REQUIRE(e.byte_offset <= text.size());
      }
    }
}

TEST_CASE("errors name the file") {
  const temporary_folder folder;
  npy::write(folder / "x.npy", array(tensor<double, 2>({2, 3})));
  const auto a = npy::read(folder / "x.npy");
  const auto e = caught([&] { a.get<float, 2>(); });
  CHECK(e.code == errc::dtype);
  CHECK(e.file == folder / "x.npy");
  CHECK(caught([&] { a.get<double, 2>({fmoe::all, 2}); }).code == errc::shape);
  CHECK(a.get<float, 2>({2, fmoe::all}, fmoe::io::narrow).size() == 6);
  CHECK(caught([&] { a.integers<int>(); }).code == errc::dtype);
}

TEST_CASE("the writer refuses what .npy cannot hold") {
  const temporary_folder folder;
  put(folder / "x.npy", "old");
  const auto refused = [&](const array& a, errc code) {
    CHECK(caught([&] { npy::write(folder / "x.npy", a); }).code == code);
    CHECK(content(folder / "x.npy") == "old");
    CHECK(folder.entries() == 1);
  };
  refused(array(tensor<fmoe::bf16, 1>({1})), errc::dtype);
  refused(array(element_type::c64, {1}, bytes_of(data)), errc::dtype);
  refused(array(element_type::u8, std::vector<extent>(33, 1), bytes_of("x")), errc::limit);
  refused(array(element_type::u8, {0, extent{1} << 48}, {}), errc::overflow);
}

TEST_CASE("npy: what is no regular file is refused without waiting") {
  const temporary_folder folder;
#if !defined(_WIN32)  // which has no FIFO in a folder
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
#endif
  for (const auto& path :
       {folder.path(), folder / "fifo", folder / "none", std::filesystem::path("/dev/zero")}) {
    INFO(path);
    CHECK(caught([&] { npy::read(path); }).code == errc::io);
  }
}

TEST_CASE("npy: a path with a NUL is not the file before the NUL") {
  const temporary_folder folder;
  const array one(tensor<float, 1>({1}));
  npy::write(folder / "a", one);
  const std::filesystem::path path = with_nul(folder / "a");
  const auto refused = [&](const auto& f) {
    const auto e = caught(f);
    CHECK(e.code == errc::io);
    CHECK(e.file == path);
  };
  refused([&] { npy::read(path); });
  refused([&] { npy::write(path, one); });
  CHECK(folder.entries() == 1);
}

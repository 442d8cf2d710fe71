// SPDX-License-Identifier: MIT
// Machines as text, and plans for machines that are not the one that runs them.
#include <fmoe/backend/cpu/caches.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/tune.hpp>

#include <filesystem>
#include <sstream>

#include "support/agree.hpp"
#include "support/files.hpp"
#include "support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

std::string text_of(const machine& m) {
  std::ostringstream text;
  text << m;
  return text.str();
}

// Every number differs from the default and from every other one.
machine unusual() {
  machine m;
  m.name = "a machine of 3 words";
  m.threads = 7;
  m.one = {1.1e9, 1.2e9, 1.3e9 / 3, 1.4e9, 1.5e9, 1.6e9, 1.7e9};
  m.every = {2.1e9, 2.2e9, 2.3e9, 2.4e9, 2.5e9, 2.6e9, 2.7e9};
  m.l1 = 1001;
  m.l2 = 1002;
  m.l3 = 1003;
  m.set_stride = 1004;
  m.narrow = 1005;
  m.kernel_rows = 1006;
  m.rows = 0.1;
  m.flops_per_byte = 0.2;
  m.crowded = 1007;
  m.crowded_factor = 0.3;
  m.sampled = 1008;
  m.summed_entries_a_kept = 1009;
  return m;
}

TEST_CASE("a machine is text that can be read again, digit by digit", "[machine]") {
  const machine m = unusual(), n = machine_from(text_of(m));
  CHECK(n.name == m.name);
  CHECK(n.threads == m.threads);
  for (const auto& [a, b] : {std::pair(n.one, m.one), std::pair(n.every, m.every)}) {
    CHECK(a.flops == b.flops);
    CHECK(a.int16_dots == b.int16_dots);
    CHECK(a.int8_dots == b.int8_dots);
    CHECK(a.bf16_dots == b.bf16_dots);
    CHECK(a.l2 == b.l2);
    CHECK(a.l3 == b.l3);
    CHECK(a.memory == b.memory);
  }
  CHECK(std::array{n.l1, n.l2, n.l3, n.set_stride, n.narrow, n.kernel_rows} ==
        std::array{m.l1, m.l2, m.l3, m.set_stride, m.narrow, m.kernel_rows});
  CHECK(std::array{n.rows, n.flops_per_byte, n.crowded_factor} ==
        std::array{m.rows, m.flops_per_byte, m.crowded_factor});
  CHECK(std::array{n.crowded, n.sampled, n.summed_entries_a_kept} ==
        std::array{m.crowded, m.sampled, m.summed_entries_a_kept});
  CHECK(text_of(n) == text_of(m));
}

TEST_CASE("a GPU has lines of its own, which other machines do not have", "[machine]") {
  machine m = unusual();
  m.gpu = {.tf32_dots = 0.4, .launch = 0.5};
  const std::string text = text_of(m), plain = text_of(unusual());
  CHECK(text.starts_with(plain));
  CHECK(machine_from(text).gpu.tf32_dots == 0.4);
  CHECK(machine_from(text).gpu.launch == 0.5);
  CHECK(machine_from(plain).gpu.launch == 0);
  CHECK(text_of(machine_from(text)) == text);
  CHECK_THROWS_AS(machine_from(text.substr(0, text.rfind("gpu"))), value_error);
}

TEST_CASE("text without a line of a machine is refused, and so is a line with another number",
          "[machine]") {
  const std::string text = text_of(unusual());
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = text.find('\n', from), word = text.find(' ', from) + 1;
    const auto with = [&](const std::string& line) {
      return text.substr(0, from) + line + text.substr(end + 1);
    };
    const std::string name = text.substr(from, word - from);
    INFO(name);
    CHECK_THROWS_AS(machine_from(with("")), value_error);
    CHECK_THROWS_AS(machine_from(with("x" + name + "3\n")), value_error);
    CHECK_THROWS_AS(machine_from(text.substr(0, from)), value_error);
    for (const std::string number : {"", "0", "-3", "x", "3x", "3 4", "inf", "nan", "1e999"})
      if (name != "name ") CHECK_THROWS_AS(machine_from(with(name + number + "\n")), value_error);
    from = end + 1;
  }
  CHECK_THROWS_AS(machine_from(text + text), value_error);
  CHECK_NOTHROW(machine_from(text + "\n"));
}

auto chosen(const auto& x, const auto& w, const auto& v) {
  return einsum<"tn,no->to">(top_k(einsum<"ti,in->tn">(x, w), 25), v);
}

TEST_CASE("the L3 of a machine is the one that a core reads, not the sum over all groups of cores",
          "[machine]") {
  const temporary_folder folder;
  const auto write = [&](const char* name, const char* level, const char* type, const char* size) {
    const std::filesystem::path cache = folder / name;
    std::filesystem::create_directory(cache);
    put(cache / "level", level);
    put(cache / "type", type);
    put(cache / "size", size);
  };
  write("index0", "1", "Data", "48K");
  write("index1", "1", "Instruction", "64K");
  write("index2", "2", "Unified", "1024K");
  write("index3", "3", "Unified", "32768K");
  machine m;
  m.l1 = m.l2 = m.l3 = std::size_t{320} << 20;
  cpu::read_caches(m, folder.path().string());
  CHECK(m.l1 == std::size_t{48} << 10);
  CHECK(m.l2 == std::size_t{1} << 20);
  CHECK(m.l3 == std::size_t{32} << 20);

  machine untold = m;
  cpu::read_caches(untold, (folder.path() / "nowhere").string());
  CHECK(untold.l3 == m.l3);
}

TEST_CASE("a plan is the same when its machine was read from text", "[machine]") {
  const auto x = random<tensor<float, 2>>({64, 512}, 1);
  const auto w = random<parameter<float, 2>>({512, 3000}, 2),
             v = random<parameter<float, 2>>({3000, 80}, 3);
  std::ostringstream file;
  file << this_machine();
  const std::string text = file.str();
  CHECK(explain(chosen(x, w, v), {.as = machine_from(text)}).text == explain(chosen(x, w, v)).text);
}

TEST_CASE("a plan for any machine runs on the kernels of this one", "[machine]") {
  machine other;
  other.threads = 1;
  const auto x = random<tensor<float, 2>>({64, 40}, 1);
  const auto check = [&](const auto& layer) {
    const auto expected = compile(layer, 64)(x);
    for (const machine& m : {machine(), unusual(), other})
      for (const bool screen : {false, true}) {
        const auto y = compile(layer, 64, {.screen = screen, .as = m})(x);
        CHECK(same_bits(y, expected));
      }
  };
  const auto few = random<parameter<float, 2>>({40, 30}, 2),
             many = random<parameter<float, 2>>({40, 3000}, 3),
             of_few = random<parameter<float, 2>>({30, 8}, 4),
             of_many = random<parameter<float, 2>>({3000, 8}, 5);
  const auto heads = random<parameter<float, 3>>({40, 3, 30}, 6);
  const auto exact = random<parameter<double, 2>>({40, 8}, 7);
  check([&](const auto& a) { return chosen(a, few, of_few); });
  check([&](const auto& a) { return relu(einsum<"ti,io->to">(a, exact)); });
  check([&](const auto& a) { return chosen(a, many, of_many); });  // in chunks
  check([&](const auto& a) {
    return einsum<"tpn,no->to">(top_k(einsum<"ti,ipn->tpn">(a, heads), 23), of_few);
  });
}

}  // namespace

// SPDX-License-Identifier: MIT
// Compares overlap with every byte of both arrays: it misses no true overlap, and reports none
// between blocks of one array.
#include <fmoe/evaluate.hpp>

#include <algorithm>
#include <random>
#include <set>

#include "support/agree.hpp"
#include "support/allocations.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

array_view view_of_strides(std::byte* data, dtype type, const std::vector<extent>& shape,
                           const std::vector<extent>& strides) {
  array_view v{data, type, shape.size()};
  std::ranges::copy(shape, v.shape.begin());
  std::ranges::copy(strides, v.strides.begin());
  return v;
}

std::set<const std::byte*> bytes_of(const array_view& v) {
  std::set<const std::byte*> found;
  for (extent i = 0; i < v.tokens(0); ++i)
    for (extent byte = 0; byte < size_of(v.type); ++byte)
      found.insert(static_cast<const std::byte*>(v.data) + v.row_offset(0, i) * size_of(v.type) +
                   byte);
  return found;
}

bool share_a_byte(const array_view& a, const array_view& b) {
  const auto of_a = bytes_of(a), of_b = bytes_of(b);
  return std::ranges::any_of(of_a, [&](auto* byte) { return of_b.contains(byte); });
}

// True if each stride in bytes is a multiple of the next smaller one of both arrays, so that
// overlap is exact.
bool strides_divide(const array_view& a, const array_view& b) {
  std::set<extent> steps;
  for (const array_view* v : {&a, &b})
    for (extent i = 0; i < v->rank; ++i)
      if (v->shape[i] > 1 && v->strides[i] != 0) steps.insert(v->strides[i] * size_of(v->type));
  return std::ranges::adjacent_find(steps, [](extent l, extent r) { return r % l != 0; }) ==
         steps.end();
}

struct tally {
  int apart = 0, enclosed = 0,
      told_apart =
          0;  // pairs without a common byte; those whose ranges overlap; those found exactly

  void judge(const array_view& a, const array_view& b, bool exact) {
    const bool truth = share_a_byte(a, b), told = overlap(a, b);
    if ((truth && !told) || (exact && truth != told) || told != overlap(b, a)) {
      CAPTURE(a.shape, a.strides, b.shape, b.strides, truth, told);
      FAIL("wrong");
    }
    if (truth) return;
    const auto *first = static_cast<const std::byte*>(a.data),
               *other = static_cast<const std::byte*>(b.data);
    ++apart;
    if (first < other + b.span_bytes() && other < first + a.span_bytes()) {
      ++enclosed;
      told_apart += !told;
    }
  }
};

TEST_CASE("arrays of any strides and types: a common byte is never missed", "[overlap]") {
  std::mt19937 random(7);
  const auto below = [&](extent n) { return extent{random() % n}; };
  std::byte memory[512];
  const auto any_view = [&](bool powers) {
    std::vector<extent> shape(below(4)), strides(shape.size());
    for (extent& n : shape) n = below(5) + (below(20) != 0);
    for (extent& s : strides) s = powers ? extent{1} << below(5) : below(14);
    const dtype type = std::array{dtype::bfloat16, dtype::float32, dtype::float64}[below(3)];
    return view_of_strides(memory + below(128), type, shape, strides);  // aligned or not
  };
  tally all, powers;
  for (int i = 0; i < 20'000; ++i) {
    const auto a = any_view(false), b = any_view(false);
    all.judge(a, b, strides_divide(a, b));
  }
  for (int i = 0; i < 10'000; ++i) powers.judge(any_view(true), any_view(true), true);
  CHECK(all.enclosed > 1000);
  CHECK(all.told_apart > all.enclosed * 4 / 5);
  CHECK(powers.enclosed > 1000);
  CHECK(powers.told_apart == powers.enclosed);
}

TEST_CASE("blocks of one array overlap where they share an element", "[overlap]") {
  std::mt19937 random(7);
  const auto below = [&](extent n) { return extent{random() % n}; };
  std::byte memory[4 * 6 * 7 * 8];
  tally blocks;
  for (int i = 0; i < 10'000; ++i) {
    const std::array<extent, 3> whole{1 + below(4), 1 + below(6), 1 + below(7)},
        steps{whole[1] * whole[2], whole[2], 1};
    std::array<extent, 3> axes{0, 1, 2};
    const dtype type = below(2) == 0 ? dtype::float32 : dtype::float64;
    const auto block = [&] {
      std::shuffle(axes.begin(), axes.end(), random);  // a transpose, too
      std::vector<extent> shape, strides;
      extent first = 0;
      for (const extent axis : axes) {
        const extent from = below(whole[axis]), leap = 1 + below(2);
        first += from * steps[axis];
        shape.push_back(1 + below((whole[axis] - from + leap - 1) / leap));
        strides.push_back(steps[axis] * leap);
      }
      return view_of_strides(memory + first * size_of(type), type, shape, strides);
    };
    const auto a = block(), b = block();
    blocks.judge(a, b, strides_divide(a, b));
  }
  CHECK(blocks.enclosed > 1000);
  CHECK(blocks.told_apart > blocks.enclosed * 99 / 100);
}

// Columns of a row-major matrix.
template <class T>
struct columns {
  T* first;
  std::array<extent, 2> lengths;
  std::array<std::ptrdiff_t, 2> steps;

  T* data() const { return first; }
  const auto& shape() const { return lengths; }
  const auto& strides() const { return steps; }
};

TEST_CASE("input and output are columns of one matrix, and other columns stay as they are",
          "[overlap]") {
  constexpr extent tokens = 130, inputs = 13, outputs = 21, pitch = inputs + outputs + 2;
  const auto w = random<parameter<float, 2>>({inputs, outputs}, 1);
  const auto layer = [&](const auto& x) { return relu(einsum<"ti,io->to">(x, w)); };
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 2);
  const auto y = evaluate(layer(x));
  tensor<float, 2> matrix({tokens, pitch});
  std::fill_n(matrix.data(), matrix.size(), 7.f);
  for (extent t = 0; t < tokens; ++t) std::copy_n(&x(t, 0), inputs, &matrix(t, 1));
  const auto block = [&](extent from, extent width) {
    return columns<float>{
        matrix.data() + from, {tokens, width}, {static_cast<std::ptrdiff_t>(pitch), 1}};
  };
  const auto is_right = [&] {
    for (extent t = 0; t < tokens; ++t)
      if (!std::equal(&x(t, 0), &x(t, 0) + inputs, &matrix(t, 1)) || matrix(t, 0) != 7 ||
          matrix(t, pitch - 1) != 7 ||
          !std::equal(&y(t, 0), &y(t, 0) + outputs, &matrix(t, 1 + inputs)))
        return false;
    return true;
  };

  const auto forward = compile(layer, tokens);
  CHECK(allocates_nothing([&] { forward(block(1, inputs), block(1 + inputs, outputs)); }));
  CHECK(is_right());
  CHECK_THROWS_WITH(forward(block(1, inputs), block(inputs, outputs)),
                    "[forward] the output overlaps input 0");
  CHECK_THROWS_AS(forward(block(1, inputs), block(pitch, outputs)),
                  value_error);  // a row further, and wrapped by one column
  CHECK(is_right());
}

}  // namespace

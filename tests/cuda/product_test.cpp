// SPDX-License-Identifier: MIT
// The quick products have the bits of the plain one, gemm_kernel, for any shape of rows, sums and
// weights.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

#include <fmoe/backend/cuda/emulated/block.hpp>
#include <fmoe/backend/cuda/kernels/product_choice.hpp>
#include <fmoe/backend/cuda/kernels/stream_product.hpp>
#include <fmoe/backend/cuda/kernels/tile_product.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

// Memory in which whole accesses may begin at every number 0.
template <class T>
struct aligned_numbers {
  struct alignas(16) quad {
    T of[16 / sizeof(T)];
  };
  std::vector<quad> quads;
  explicit aligned_numbers(extent n) : quads(n / (16 / sizeof(T)) + 1) {}
  T* data() { return quads.data()->of; }
};

template <class T>
T stored(float x) {
  if constexpr (is_scaled<T>)
    return {static_cast<std::int8_t>(std::clamp(std::round(40 * x), -127.f, 127.f))};
  else return static_cast<T>(x);
}

struct shape {
  extent rows, depth, columns;
  extent sum_block = 256, positions = 1, a_stride = 0;
  bool accumulate = false, has_passes = false;
};

// One product with all that it reads.
template <class T, class S = T>
class problem {
 public:
  explicit problem(const shape& s)
      : shape_(s),
        a_stride_(std::max(s.a_stride, s.depth * s.positions)),
        c_stride_(s.columns * s.positions),
        pitch_(round_up(s.columns, extent{numbers_each<S>})),
        a_(s.rows * a_stride_),
        narrow_(s.positions * s.depth * pitch_),
        wide_(s.positions * s.depth * s.columns),
        before_(s.rows * c_stride_),
        other_(s.rows * c_stride_),
        scale_pitch_(round_up(s.columns, extent{4})),
        groups_(divide_up(s.depth, extent{scale_group})),
        scales_(s.positions * groups_ * scale_pitch_),
        sums_(s.positions * s.rows * round_up(s.columns, extent{4}) *
              divide_up(std::max<extent>(1, s.depth), s.sum_block)) {
    std::mt19937 bits(5);
    std::normal_distribution<float> normal;
    for (extent i = 0; i < s.rows * a_stride_; ++i) a_.data()[i] = T(normal(bits));
    for (extent i = 0; i < s.rows * c_stride_; ++i) before_[i] = T(normal(bits));
    for (extent i = 0; i < s.rows * c_stride_; ++i) other_[i] = T(normal(bits));
    for (extent i = 0; i < s.positions * groups_ * scale_pitch_; ++i)
      scales_.data()[i] = normal(bits) / 50;
    for (extent r = 0; r < s.positions * s.depth; ++r)
      for (extent n = 0; n < s.columns; ++n) {
        narrow_.data()[r * pitch_ + n] = stored<S>(normal(bits));
        T& wide = wide_[r * s.columns + n];
        wide = T(widened(narrow_.data()[r * pitch_ + n]));
        const extent group = r / s.depth * groups_ + r % s.depth / scale_group;
        if (is_scaled<S>) wide = product_of(wide, T(scales_.data()[group * scale_pitch_ + n]));
      }
    for (extent p = 0; p < s.positions; ++p) at_.push_back({p * s.depth, p * s.columns, p});
  }

  std::vector<T> plain() {
    std::vector<T> c = before_;
    gemm_kernel<T, 4> kernel{.a = {a_.data(), a_stride_},
                             .c = {c.data(), c_stride_},
                             .weights = wide_.data(),
                             .positions = at_.data(),
                             .position_count = shape_.positions,
                             .rows = shape_.rows,
                             .depth = shape_.depth,
                             .columns = shape_.columns,
                             .sum_block = shape_.sum_block,
                             .expert_weights = 0,
                             .accumulate = shape_.accumulate,
                             .group = {},
                             .tiles = {},
                             .finish = passes_of()};
    launch(kernel, kernel.blocks(divide_up(shape_.rows, extent{kernel.tile_rows})));
    return c;
  }

  // `each` blocks of a sum are one part; 0: all.
  template <class Kernel>
  std::vector<T> quick(extent each, thread_order order = thread_order::shuffled) {
    aligned_numbers<T> c(before_.size());
    std::ranges::copy(before_, c.data());
    const bool aligned_a = a_stride_ % numbers_each<T> == 0 && shape_.sum_block % 4 == 0 &&
                           (shape_.positions == 1 || shape_.depth % numbers_each<T> == 0);
    Kernel kernel{{.a = {a_.data(), a_stride_},
                   .c = {c.data(), c_stride_},
                   .weights = narrow_.data(),
                   .pitch = static_cast<cuda::index>(pitch_),
                   .scales = scales_.data(),
                   .scale_pitch = static_cast<cuda::index>(scale_pitch_),
                   .positions = at_.data(),
                   .position_count = static_cast<cuda::index>(shape_.positions),
                   .rows = static_cast<cuda::index>(shape_.rows),
                   .depth = static_cast<cuda::index>(shape_.depth),
                   .columns = static_cast<cuda::index>(shape_.columns),
                   .sum_block = static_cast<cuda::index>(shape_.sum_block),
                   .accumulate = shape_.accumulate,
                   .aligned_a = aligned_a,
                   .aligned_c = c_stride_ % 4 == 0 && shape_.columns % 4 == 0,
                   .finish = passes_of(),
                   .sums = each == 0 ? nullptr : sums_.data(),
                   .sums_each = static_cast<cuda::index>(each)}};
    launch(kernel, kernel.blocks(divide_up(shape_.rows, extent{kernel.tile_rows})), order);
    const add_sums<T> end{kernel.of};
    if (each != 0)
      for (extent i = 0; i < shape_.rows * c_stride_; ++i) end(i);
    return {c.data(), c.data() + before_.size()};
  }

 private:
  template <class Kernel>
  static void launch(const Kernel& kernel, extent blocks,
                     thread_order order = thread_order::ascending) {
    block_runner runner(order);
    run_emulated(runner, {"product", Kernel::threads, Kernel::shared_bytes, blocks}, kernel);
  }

  passes<T> passes_of() const {
    passes<T> all;
    if (!shape_.has_passes) return all;
    all.of[0] = {.what = pass_kind::add,
                 .f = {},
                 .parameter = 0,
                 .other = other_.data(),
                 .stride = c_stride_,
                 .period = c_stride_};
    all.of[1] = {.what = pass_kind::map, .f = pointwise::relu, .parameter = 0};
    all.count = 2;
    return all;
  }

  shape shape_;
  extent a_stride_, c_stride_, pitch_;
  aligned_numbers<T> a_;
  aligned_numbers<S> narrow_;
  std::vector<T> wide_, before_, other_;
  extent scale_pitch_, groups_;
  aligned_numbers<float> scales_;
  aligned_numbers<T> sums_;
  std::vector<gemm_position> at_;
};

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEMPLATE_TEST_CASE("tiles have the bits of the plain product", "[cuda]", float, double) {
  using kernel = small_tile_product<TestType>;
  const shape shapes[] = {{.rows = 1, .depth = 1, .columns = 1},
                          {.rows = 70, .depth = 40, .columns = 67, .has_passes = true},
                          {.rows = 33, .depth = 53, .columns = 64, .sum_block = 16},
                          {.rows = 5, .depth = 37, .columns = 9, .sum_block = 10},
                          {.rows = 9, .depth = 20, .columns = 30, .positions = 3},
                          {.rows = 9, .depth = 21, .columns = 30, .a_stride = 23},
                          {.rows = 7,
                           .depth = 41,
                           .columns = 8,
                           .sum_block = 20,
                           .accumulate = true,
                           .has_passes = true}};
  for (const shape& s : shapes) {
    INFO(s.rows << " by " << s.depth << " by " << s.columns);
    problem<TestType> p(s);
    const auto expected = p.plain();
    CHECK(same(p.template quick<kernel>(0), expected));
    CHECK(same(p.template quick<kernel>(1), expected));
    CHECK(same(p.template quick<kernel>(2), expected));
  }
  problem<TestType> none({.rows = 3, .depth = 0, .columns = 5, .has_passes = true});
  CHECK(same(none.template quick<kernel>(0), none.plain()));
}

TEST_CASE("large tiles have the bits of the plain product", "[cuda]") {
  problem<float> p({.rows = 131, .depth = 37, .columns = 132, .sum_block = 20, .has_passes = true});
  const auto expected = p.plain();
  for (const auto order : {thread_order::ascending, thread_order::descending})
    CHECK(same(p.quick<large_tile_product<float>>(0, order), expected));
}

TEMPLATE_TEST_CASE("streamed products have the bits of the plain one", "[cuda]", float, double) {
  using T = TestType;
  const auto check = [](auto* kernel, const shape& s) {
    INFO(s.rows << " by " << s.depth << " by " << s.columns);
    problem<T> p(s);
    const auto expected = p.plain();
    for (const extent each : {extent{1}, extent{2}})
      CHECK(same(p.template quick<std::remove_pointer_t<decltype(kernel)>>(each), expected));
  };
  check(static_cast<stream_product<T, T, 1, 1>*>(nullptr),
        {.rows = 1, .depth = 600, .columns = 67});
  check(static_cast<stream_product<T, T, 4, 1>*>(nullptr),
        {.rows = 3, .depth = 257, .columns = 130, .positions = 2, .has_passes = true});
  check(static_cast<stream_product<T, T, 4, 4>*>(nullptr),
        {.rows = 16, .depth = 45, .columns = 64, .sum_block = 10, .accumulate = true});
  check(static_cast<stream_product<T, T, 6, 4>*>(nullptr),
        {.rows = 23, .depth = 100, .columns = 30, .sum_block = 64});
}

// Rows 0 to 36 belong to expert 1, rows 37 to 49 to expert 0; a device would have counted them.
struct two_experts {
  static constexpr extent rows = 60, depth = 40, columns = 36;
  std::vector<cuda::index> experts = std::vector<cuda::index>(rows), first, end;
  cuda::index row_count = 50, tile_count = 0;

  explicit two_experts(unsigned tile_rows) {
    std::fill_n(experts.begin(), 37, 1u);
    for (const auto& [from, to] : {std::pair{0u, 37u}, {37u, 50u}})
      for (cuda::index row = from; row < to; row += tile_rows, ++tile_count) {
        first.push_back(row);
        end.push_back(std::min(row + tile_rows, to));
      }
  }
  group_rows group() const { return {&row_count, nullptr, experts.data()}; }
  group_tiles tiles() const { return {&tile_count, first.data(), end.data()}; }
};

TEMPLATE_TEST_CASE("rows of a group take the weights of their experts", "[cuda]",
                   small_tile_product<float>, large_tile_product<float>,
                   (stream_product<float, float, 4, 4>)) {
  using kernel = TestType;
  constexpr bool streams = std::is_same_v<kernel, stream_product<float, float, 4, 4>>;
  const two_experts lists(kernel::tile_rows);
  constexpr extent rows = lists.rows, depth = lists.depth, columns = lists.columns;
  aligned_numbers<float> a(rows * depth), w(2 * depth * columns), sums(2 * rows * columns);
  std::vector<float> c(rows * columns), expected(c);
  std::mt19937 bits(5);
  for (extent i = 0; i < rows * depth; ++i) a.data()[i] = static_cast<float>(bits() % 1000);
  for (extent i = 0; i < 2 * depth * columns; ++i)
    w.data()[i] = static_cast<float>(bits() % 1000) / 7;
  const gemm_position at{0, 0, 0};
  kernel quick{{.a = {a.data(), depth},
                .c = {c.data(), columns},
                .weights = w.data(),
                .pitch = columns,
                .positions = &at,
                .position_count = 1,
                .rows = rows,
                .depth = depth,
                .columns = columns,
                .sum_block = 32,
                .expert_weights = 1,
                .aligned_a = true,
                .group = lists.group(),
                .tiles = lists.tiles(),
                .sums = streams ? sums.data() : nullptr,
                .sums_each = 1}};
  block_runner runner(thread_order::shuffled);
  const extent most_tiles = lists.first.size() + 2;
  run_emulated(runner, {"group", kernel::threads, kernel::shared_bytes, quick.blocks(most_tiles)},
               quick);
  const add_sums<float> end{quick.of};
  if (streams)
    for (extent i = 0; i < rows * columns; ++i) end(i);
  for (extent r = 0; r < lists.row_count; ++r)
    for (extent n = 0; n < columns; ++n) {
      float total = 0, sum = 0;
      for (extent k = 0; k < depth; ++k) {
        if (k == 32) total = std::exchange(sum, 0.f);
        sum = std::fma(a.data()[r * depth + k],
                       w.data()[(lists.experts[r] * depth + k) * columns + n], sum);
      }
      expected[r * columns + n] = total + sum;
    }
  CHECK(same(c, expected));
}

TEMPLATE_TEST_CASE("weights of 16 and of 8 bits are widened as they are read", "[cuda]", bf16, f16,
                   q8_weight) {
  const shape s{.rows = 18, .depth = 71, .columns = 75, .sum_block = 32, .positions = 2};
  problem<float, TestType> p(s);
  const auto expected = p.plain();
  CHECK(same(p.template quick<small_tile_product<float, TestType>>(0), expected));
  CHECK(same(p.template quick<stream_product<float, TestType, 6, 4>>(1), expected));
  if constexpr (is_scaled<TestType>)
    CHECK(same(p.template quick<large_tile_product<float, TestType>>(0), expected));
}

TEST_CASE("the shape of a product chooses its kernel", "[cuda]") {
  using enum product_form;
  const auto choice = [](extent rows, extent depth, extent columns, extent tile_rows = 0,
                         extent room = most_sums) {
    return choose_product({rows, depth, columns, 1, 256, tile_rows, true}, room);
  };
  CHECK(choice(1, 768, 21490) == product_choice{stream_1, 1});
  CHECK(choice(3, 768, 768) == product_choice{stream_4, 1});
  CHECK(choice(16, 768, 768) == product_choice{stream_16, 1});
  CHECK(choice(17, 768, 768) == product_choice{stream_24, 1});
  CHECK(choice(16, 768, 768, 0, 100) == product_choice{small});
  CHECK(choice(128, 768, 21490) == product_choice{small});
  CHECK(choice(1024, 768, 21490) == product_choice{large});
  CHECK(choice(128, 3072, 768) == product_choice{small, 2});
  CHECK(choice(128, 256, 768) == product_choice{small});
  CHECK(choice(1024, 768, 3072) == product_choice{small});
  CHECK(choice(32, 768, 768, few_tile_rows) == product_choice{stream_16, 1});
  CHECK(choice(9000, 768, 768, small_tile) == product_choice{small});
  CHECK(choice(9000, 768, 768, large_tile) == product_choice{large});
  CHECK(group_tile_rows(32, 8, true) == few_tile_rows);
  CHECK(group_tile_rows(256, 8, true) == small_tile);
  CHECK(group_tile_rows(2048, 8, true) == large_tile);
  CHECK(group_tile_rows(2048, 8, false) == small_tile);
}

TEST_CASE("there is room for the sums of each product that is shared", "[cuda]") {
  for (const extent columns : {extent{30}, extent{768}, extent{21490}})
    for (const extent depth : {extent{200}, extent{768}, extent{3072}}) {
      product_shape s{128, depth, columns, 1, 256, 0, true};
      const extent room = room_for_sums(s);
      CHECK(room <= most_sums);
      for (extent rows = 1; rows <= 128; ++rows) {
        s.rows = rows;
        CHECK(choose_product(s, room) == choose_product(s, most_sums));
      }
    }
}

}  // namespace

// SPDX-License-Identifier: MIT
// Weights of a mapped file whose axes are in another order than the layer's: products are packed
// where they lie, and whoever reads them in the layer's order gets a copy.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <fmoe/compile.hpp>
#include <fmoe/cost.hpp>
#include <fmoe/evaluate.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/quantize.hpp>
#include <fmoe/reference.hpp>

#include "../support/agree.hpp"
#include "../support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 37, units = 70, layers = 2;

// A layer of circuit-tracer, whose encoder lies [unit, input].
template <class T>
std::filesystem::path saved(const temporary_folder& folder) {
  const auto encoder = folder / "W_enc_1.safetensors";
  io::safetensors::write(encoder, {{"W_enc_1", random<tensor<T, 2>>({units, inputs}, 1)},
                                   {"b_enc_1", random<tensor<T, 1>>({units}, 2)},
                                   {"b_dec_1", random<tensor<T, 1>>({inputs}, 3)}});
  io::safetensors::write(folder / "W_dec_1.safetensors",
                         {{"W_dec_1", random<tensor<T, 3>>({units, layers, inputs}, 4)}});
  return encoder;
}

template <class Tensor>
bool is_unread(const Tensor& t) {
  return t.shared_storage()->permuted() != nullptr;
}

TEMPLATE_TEST_CASE("a matrix in the other order is packed where it lies", "[io]", float, double,
                   bf16, f16) {
  const temporary_folder folder;
  const auto file = saved<TestType>(folder);
  const auto copied = load<cross_layer_transcoder<TestType>>(file);
  const auto mapped = load<cross_layer_transcoder<TestType>>(file, {.mapped = true});
  using number = typename cross_layer_transcoder<TestType>::exact;
  const auto x = random<tensor<number, 2>>({9, inputs}, 5);
  CHECK(copied.encoder.shared_storage()->data() != nullptr);  // which reads it
  REQUIRE(!is_unread(copied.encoder));
  const auto wanted = evaluate(copied(x));

  REQUIRE(is_unread(mapped.encoder));
  CHECK(std::ranges::equal(evaluate(mapped(x)), wanted));
  auto y = wanted;
  std::ranges::fill(y, number());
  evaluate(mapped(x), y);
  CHECK(std::ranges::equal(y, wanted));
  auto run = compile(mapped, 9);
  CHECK(std::ranges::equal(run(x), wanted));
  CHECK(!explain(mapped(x)).text.empty());
  CHECK(cost(mapped(x)).naive_multiply_adds == cost(copied(x)).naive_multiply_adds);
  // f16 is widened before it is packed where the CPU does not widen it in registers.
  CHECK((is_unread(mapped.encoder) || std::is_same_v<TestType, f16>));

  CHECK(std::ranges::equal(mapped.encoder, copied.encoder));
  CHECK(!is_unread(mapped.encoder));
  CHECK(std::ranges::equal(evaluate(mapped(x)), wanted));
}

TEST_CASE("what is written is written to a copy of the file's matrix", "[io]") {
  const temporary_folder folder;
  const auto file = saved<float>(folder);
  auto layer = load<cross_layer_transcoder<>>(file, {.mapped = true});
  const auto before = layer;
  const auto x = random<tensor<float, 2>>({9, inputs}, 5);
  const auto wanted = evaluate(before(x));
  auto run = compile(layer, 9);
  CHECK(is_unread(layer.encoder));
  layer.encoder(3, 4) += 1;
  CHECK(is_unread(before.encoder));
  run.refresh();
  const auto changed = evaluate(layer(x));
  CHECK(!std::ranges::equal(changed, wanted));
  CHECK(std::ranges::equal(run(x), changed));
  CHECK(std::ranges::equal(evaluate(before(x)), wanted));

  auto again = load<cross_layer_transcoder<>>(file);
  CHECK(std::ranges::equal(evaluate(again(x)), wanted));
  again.encoder(3, 4) += 1;
  CHECK(std::ranges::equal(again.encoder, layer.encoder));
}

// [5, 6, 7] of a file, as [7, 5, 6].
tensor<float, 3> turned() {
  const auto from = random<tensor<float, 3>>({5, 6, 7}, 8);
  return detail::tensor_of<float, 3>(io::permuted_when_read(detail::any_of(from), "abc", "cab"));
}

TEST_CASE("a permuted array of three axes is packed along any of them", "[io]") {
  const auto check = [](const auto& make, std::size_t width, bool packs) {
    const auto x = random<tensor<float, 2>>({4, width}, 9);
    const parameter<float, 3> w = turned(), read = turned();
    CHECK(read.shared_storage()->data() != nullptr);
    const auto y = evaluate(make(x, w));
    CHECK(is_unread(w) == packs);
    CHECK(std::ranges::equal(y, evaluate(make(x, read))));
    CHECK(std::ranges::equal(evaluate(make(x, w), {.on = reference()}),
                             evaluate(make(x, read), {.on = reference()})));
  };
  check([](auto& x, auto& w) { return einsum<"tc,cab->tab">(x, w); }, 7, true);
  check([](auto& x, auto& w) { return einsum<"tb,cab->tca">(x, w); }, 6, true);
  check([](auto& x, auto& w) { return einsum<"ta,cab->tbc">(x, w); }, 5, true);
  // Another shape of the elements has axes that the file's array lacks.
  const auto x = random<tensor<float, 2>>({4, 35}, 9);
  const auto other_shape = [](const parameter<float, 3>& w) {
    return parameter<float, 2>(tensor<float, 2>({35, 6}, w.shared_storage()));
  };
  const parameter<float, 3> unread = turned(), read = turned();
  CHECK(read.shared_storage()->data() != nullptr);
  CHECK(std::ranges::equal(evaluate(einsum<"tk,kb->tb">(x, other_shape(unread))),
                           evaluate(einsum<"tk,kb->tb">(x, other_shape(read)))));
}

TEST_CASE("a permuted array that is viewed as numbers of another size is read", "[io]") {
  const tensor<float, 2> from({6, 6}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                       9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 3, 5, 7, 9, 2, 4, 6, 8});
  const auto halves = [&](bool reads) {
    const auto w =
        detail::tensor_of<float, 2>(io::permuted_when_read(detail::any_of(from), "ab", "ba"));
    CHECK((!reads || w.shared_storage()->data() != nullptr));
    return parameter<bf16, 2>(tensor<bf16, 2>({6, 6}, w.shared_storage()));
  };
  const auto x = random<tensor<float, 2>>({4, 6}, 9);
  CHECK(std::ranges::equal(evaluate(einsum<"ti,io->to">(x, halves(false))),
                           evaluate(einsum<"ti,io->to">(x, halves(true)))));
}

// A transcoder whose skip files have in the other order.
sparse_mlp<> with_skip() {
  sparse_mlp<> layer;
  layer.encoder = random<tensor<float, 2>>({64, 32}, 1);
  layer.decoder = random<tensor<float, 2>>({32, 64}, 2);
  layer.skip = random<tensor<float, 2>>({64, 64}, 3);
  return layer;
}

TEST_CASE("what others may write, or 8 bits hold, is copied when it is loaded", "[io]") {
  const temporary_folder folder;
  save(with_skip(), folder / "layer.safetensors");
  const auto file = io::safetensors::read(folder / "layer.safetensors");
  CHECK(!is_unread(load<sparse_mlp<>>(file).skip));
  CHECK(is_unread(load<sparse_mlp<>>(file, {.mapped = true}).skip));

  const auto small = quantize<q8>(with_skip());
  save(small, folder / "small.safetensors");
  const auto mapped = load<sparse_mlp<q8>>(folder / "small.safetensors", {.mapped = true});
  CHECK(!is_unread(mapped.skip));
  const auto x = random<tensor<float, 2>>({4, 64}, 9);
  CHECK(std::ranges::equal(evaluate(mapped(x)), evaluate(small(x))));

  const auto skip = detail::any_of(small.skip);
  const auto a = io::permuted_when_read(skip, "io", "oi"), b = io::permuted(skip, "io", "oi");
  CHECK(a.axis == b.axis);
  const auto bytes_of = [](const detail::any_tensor& t) {
    const detail::stored_numbers n = t.numbers();
    return std::span(static_cast<const std::byte*>(n.data), n.bytes());
  };
  CHECK(std::ranges::equal(bytes_of(a), bytes_of(b)));
}

TEST_CASE("a permuted array that has been read is given up", "[io]") {
  std::weak_ptr<const void> held;
  const auto t = [&] {
    const auto from = random<tensor<float, 2>>({6, 7}, 8);
    held = from.shared_storage()->holder();
    return detail::tensor_of<float, 2>(io::permuted_when_read(detail::any_of(from), "ab", "ba"));
  }();
  CHECK(!held.expired());
  const float first = t(0, 0);
  CHECK(held.expired());
  CHECK(t(0, 0) == first);
}

TEST_CASE("threads that read a permuted array at once find its elements", "[io]") {
  const auto from = random<tensor<float, 2>>({500, 700}, 8);
  const auto turned_matrix = [&] {
    return detail::tensor_of<float, 2>(io::permuted_when_read(detail::any_of(from), "ab", "ba"));
  };
  const auto wanted = turned_matrix();
  const std::vector<float> numbers(wanted.begin(), wanted.end());
  for (int round = 0; round < 10; ++round) {
    const auto t = turned_matrix();
    std::vector<std::thread> threads;
    std::array<bool, 4> same{};
    std::atomic<bool> may_start = false;
    for (bool& s : same)
      threads.emplace_back([&] {
        may_start.wait(false);
        s = std::equal(t.begin(), t.end(), numbers.begin());
      });
    may_start = true;
    may_start.notify_all();
    for (std::thread& thread : threads) thread.join();
    CHECK(std::ranges::count(same, true) == 4);
  }
}

TEST_CASE("two orders of one array are two tensors", "[io]") {
  const auto from = random<tensor<float, 2>>({6, 6}, 8);
  const parameter<float, 2> plain = from;
  const parameter<float, 2> other =
      detail::tensor_of<float, 2>(io::permuted_when_read(detail::any_of(plain), "ab", "ba"));
  const auto x = random<tensor<float, 2>>({4, 6}, 9);
  const auto both = evaluate(einsum<"ti,io->to">(x, plain) - einsum<"ti,io->to">(x, other));
  CHECK(!std::ranges::all_of(both, [](float v) { return v == 0; }));
  CHECK(!plain.shared_storage()->same_elements(*other.shared_storage()));
  CHECK(is_unread(other));
  const auto wanted = evaluate(einsum<"ti,io->to">(x, plain) - einsum<"ti,oi->to">(x, plain));
  CHECK(std::ranges::equal(both, wanted));
}

}  // namespace

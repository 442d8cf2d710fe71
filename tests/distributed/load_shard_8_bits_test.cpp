// SPDX-License-Identifier: MIT
// Layers of 8 bits over ranks: each rank has the integers and the scales of its parts.
#include <fmoe/aoe.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/moe.hpp>

#include "../support/catch.hpp"
#include "../support/header_bytes.hpp"
#include "../support/routed_monet.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// Fills a parameter with weights of 8 bits that have their blocks along an axis.
template <class Q, std::size_t Rank>
void fill_8_bits(tensor<Q, Rank>& p, const std::array<std::size_t, Rank>& shape, std::size_t axis,
                 unsigned seed) {
  tensor<float, Rank> wide;
  fill_with(wide, shape, seed, 1000);
  p = quantized<Q>(wide, axis);
}

// 9 experts of 36 hidden units, with inputs of 40.
template <class Q>
moe<Q> small_mixture() {
  moe<Q> layer;
  fill_with(layer.router, {40, 9}, 1, 1000);  // stays in floats
  fill_8_bits(layer.activated, {9, 40, 36}, 1, 2);
  fill_8_bits(layer.linear, {9, 40, 36}, 1, 3);
  fill_8_bits(layer.output, {9, 36, 40}, 1, 4);
  fill_8_bits(layer.activated_bias, {9, 36}, 1, 5);
  return layer;
}

// 96 experts. The gate and C have blocks along them.
template <class Q>
mxd<Q> blocks_of_experts() {
  mxd<Q> layer;
  layer.active = 5;
  fill_8_bits(layer.gate, {12, 96}, 1, 1);
  fill_8_bits(layer.encoder, {12, 20}, 0, 2);
  fill_8_bits(layer.scales, {96, 12}, 0, 3);
  fill_8_bits(layer.decoder, {20, 12}, 0, 4);
  return layer;
}

template <class T, std::size_t Rank>
tensor<float, Rank> floats_of(const tensor<T, Rank>& t) {
  if constexpr (std::is_same_v<T, float>) return t;
  else return widened(t);
}

// The entries from `first` on, along an axis.
template <class Q, std::size_t Rank>
bool is_part(const tensor<Q, Rank>& part, const tensor<Q, Rank>& whole, std::size_t axis,
             std::size_t first) {
  const auto own = floats_of(part), all = floats_of(whole);
  const std::size_t length = whole.shape()[axis], count = part.shape()[axis];
  std::size_t inner = 1;
  for (std::size_t k = axis + 1; k < Rank; ++k) inner *= whole.shape()[k];
  for (std::size_t i = 0; i < own.size(); ++i) {
    const std::size_t outer = i / inner / count, at = i / inner % count + first;
    if (std::as_const(own).data()[i] !=
        std::as_const(all).data()[(outer * length + at) * inner + i % inner])
      return false;
  }
  return own.size() * length == all.size() * count;
}

tensor<float, 2> flat(const tensor<float, 3>& t) {
  tensor<float, 2> result({t.shape()[0], t.shape()[1] * t.shape()[2]});
  std::copy_n(t.data(), t.size(), result.data());
  return result;
}

template <class Layer>
void check_same(communicator& ranks, const sharded<Layer>& from_file, const Layer& layer,
                char label, const tensor<float, 2>& x, const shard_options& how = {}) {
  require(same_bits(result_on(ranks, from_file, x),
                    result_on(ranks, shard(layer, ranks, label, how), x)),
          "the bits of a layer from a file");
}

TEST_CASE("a rank reads the integers and scales of its experts, and no other byte") {
  const temporary_folder folder;
  const auto file = folder / "moe.safetensors";
  // The bytes of the scales of 40 weights, and of 36.
  const auto check = [&]<class Q>(const moe<Q>& layer, std::size_t of_40, std::size_t of_36) {
    save(layer, file);
    const std::size_t each =
        40 * sizeof(float) + 2 * 36 * (40 + of_40) + 40 * (36 + of_36) + (36 + of_36);
    for (const std::size_t P : {1u, 2u, 3u, 4u})
      run_on_threads(P, [&](communicator& ranks) {
        const auto part = load_shard<moe<Q>>(file, ranks, 'n');
        const std::size_t first = part.cut.begin(ranks.rank()), n = part.cut.count(ranks.rank());
        require(part.bytes_read == header_of(file) + n * each,
                "read " + std::to_string(part.bytes_read));
        const moe<Q> own = part.own_part();
        require(is_part(own.router, layer.router, 1, first) &&
                    is_part(own.activated, layer.activated, 0, first) &&
                    is_part(own.linear, layer.linear, 0, first) &&
                    is_part(own.output, layer.output, 0, first) &&
                    is_part(own.activated_bias, layer.activated_bias, 0, first),
                "the weights of a part");
        const auto x = rows(23, 40, 1000);
        check_same(ranks, part, layer, 'n', x);
        check_layer(ranks, layer, 'n', x, "a mixture of 8 bits");
      });
  };
  check(small_mixture<q8>(), 2 * 2, 2 * 2);
  check(small_mixture<q8c>(), 4, 4);
}

TEST_CASE("blocks along the axis that is cut: parts begin with a block, or lie in one") {
  const temporary_folder folder;
  const auto file = folder / "mxd.safetensors";
  const auto check = [&]<class Q>(const mxd<Q>& layer, std::size_t parts, std::size_t blocks,
                                  std::size_t scale) {
    save(layer, file);
    const std::size_t n = 96 / parts, dense = 2 * 20 * 12 + (20 + 12) * scale,
                      each = 2 * 12 * (n + blocks * scale);
    for (std::size_t P = 1; P <= std::min<std::size_t>(3, parts); ++P) {
      if (parts % P != 0) continue;
      run_on_threads(P, [&](communicator& ranks) {
        const shard_options how{.parts = parts};
        const auto part = load_shard<mxd<Q>>(file, ranks, 'n', {}, how);
        require(part.bytes_read == header_of(file) + dense + parts / P * each,
                "read " + std::to_string(part.bytes_read));
        const auto x = rows(23, 12, 1000);
        check_same(ranks, part, layer, 'n', x, how);
        require(difference(result_on(ranks, part, x), result_alone(layer, x)) < 4e-6,
                "the results of one process");
        if (P != parts) return;
        const mxd<Q> own = part.own_part();
        require(is_part(own.gate, layer.gate, 1, n * ranks.rank()) &&
                    is_part(own.scales, layer.scales, 0, n * ranks.rank()),
                "the weights of a part");
      });
    }
  };
  check(blocks_of_experts<q8>(), 3, 1, 2);
  check(blocks_of_experts<q8>(), 6, 1, 2);
  check(blocks_of_experts<q8>(), 1, 3, 2);
  for (const std::size_t parts : {2u, 3u, 4u}) check(blocks_of_experts<q8c>(), parts, 1, 4);
}

TEST_CASE("a cut within a block is refused, also where the layer has floats") {
  const temporary_folder folder;
  const auto file = folder / "mxd.safetensors";
  auto layer = blocks_of_experts<q8>();
  fill_8_bits(layer.scales, {96, 12}, 1, 3);
  save(layer, file);
  const auto check = [](const auto& cut) {
    run_on_threads(2, [&](communicator& ranks) {
      const std::string got = sentence_of([&] { cut(ranks); });
      require(got.ends_with(" failed: [shard] 'n' of 96 in 2 parts cuts a block of 32 weights of "
                            "gate, which have one scale"),
              got);
    });
  };
  check([&](communicator& ranks) { shard(layer, ranks, 'n'); });
  check([&](communicator& ranks) { load_shard<mxd<q8>>(file, ranks, 'n'); });
  check([&](communicator& ranks) { load_shard<mxd<>>(file, ranks, 'n'); });
  run_on_threads(2, [&](communicator& ranks) {
    const shard_options how{.whole = {"gate"}};
    const auto part = load_shard<mxd<q8>>(file, ranks, 'n', {}, how);
    const auto x = rows(23, 12, 1000);
    check_same(ranks, part, layer, 'n', x, how);
    require(is_part(part.own_part().gate, layer.gate, 1, 0), "a parameter that is whole");
    check_same(ranks, load_shard<mxd<>>(file, ranks, 'n', {}, how), load<mxd<>>(file), 'n', x, how);
  });
}

TEST_CASE("an axis of two labels in the file of 8 bits is cut, with a prefix") {
  const temporary_folder folder;
  const auto file = folder / "aoe.safetensors";
  aoe<q8> layer;
  fill_8_bits(layer.down, {12, 30, 4}, 0, 1);
  fill_8_bits(layer.up, {30, 4, 17}, 1, 2);
  fill_8_bits(layer.linear, {30, 12, 17}, 2, 3);
  fill_8_bits(layer.output, {30, 17, 12}, 1, 4);
  save(layer, file, {.prefix = "layers.3."});
  run_on_threads(3, [&](communicator& ranks) {
    const auto part = load_shard<aoe<q8>>(file, ranks, 'n', {.prefix = "layers.3."});
    const std::size_t each = 4 * (12 + 2) + 17 * (4 + 2) + 12 * (17 + 2) + 12 * (17 + 2);
    require(part.bytes_read == header_of(file) + 10 * each,
            "read " + std::to_string(part.bytes_read));
    check_same(ranks, part, layer, 'n', rows(11, 12, 1000));
  });
}

TEST_CASE("units of Monet in 8 bits are cut by their halves of experts, or read whole") {
  const temporary_folder folder;
  const auto file = folder / "monet.safetensors", again = folder / "again.safetensors";
  monet_hd<q8> layer;
  const monet_hd<> wide = small_hd();
  layer.encoder = quantized<q8>(wide.encoder, 0);
  layer.encoder_bias = wide.encoder_bias;
  layer.decoder = quantized<q8>(wide.decoder, 1);
  layer.bias = quantized<q8>(wide.bias, 1);
  save(layer, file);
  run_on_threads(2, [&](communicator& ranks) {
    const auto part = load_shard<monet_hd<q8>>(file, ranks, 's');
    const monet_hd<q8> own = part.own_part();
    const std::size_t first = part.cut.begin(ranks.rank()), n = part.cut.count(ranks.rank());
    require(part.bytes_read == header_of(file) + n * (2 * 4 * (12 + 2) + 4 * 4 + 12 + 2),
            "read " + std::to_string(part.bytes_read));
    require(is_part(own.encoder, layer.encoder, 1, 4 * first) &&
                is_part(own.decoder, layer.decoder, 0, 4 * first) &&
                is_part(own.bias, layer.bias, 0, first),
            "the units of a part");
    save(part, again);
    const auto with_whole =
        load_shard<monet_hd<q8>>(file, ranks, 's', {}, {0, {"moe.u.weight"}}).own_part();
    require(is_part(with_whole.encoder, layer.encoder, 1, 0), "a parameter that is whole");
    require(is_part(with_whole.decoder, layer.decoder, 0, 4 * first), "one that is cut");
  });
  CHECK(content(again) == content(file));
}

TEST_CASE("a layer of floats reads its parts of a file of 8 bits") {
  const temporary_folder folder;
  const auto file = folder / "moe.safetensors";
  save(small_mixture<q8>(), file);
  const auto wide = load<moe<>>(file);
  run_on_threads(3, [&](communicator& ranks) {
    const auto part = load_shard<moe<>>(file, ranks, 'n');
    require(part.bytes_read == load_shard<moe<q8>>(file, ranks, 'n').bytes_read, "the bytes");
    check_same(ranks, part, wide, 'n', rows(23, 40, 1000));
  });
}

TEST_CASE("ranks hold the router of a mixture of bf16 in floats, whole or cut") {
  const temporary_folder folder;
  const auto file = folder / "moe.safetensors";
  moe<> wide;
  fill_with(wide.router, {40, 9}, 1, 1000);
  fill_with(wide.balance, {9}, 2, 1000);
  fill_with(wide.activated, {9, 40, 36}, 3, 1000);
  fill_with(wide.linear, {9, 40, 36}, 4, 1000);
  fill_with(wide.output, {9, 36, 40}, 5, 1000);
  save(wide, file, {.type = dtype::bfloat16});
  const auto layer = load<moe<bf16>>(file);
  const auto x = rows(23, 40, 1000);
  const auto expected = evaluate(wide.coefficients(x));
  CHECK(same_bits(evaluate(layer.coefficients(x)), expected));
  using names = std::vector<std::string>;
  for (const bool is_cut : {true, false})
    run_on_threads(3, [&](communicator& ranks) {
      const shard_options how{.whole = is_cut ? names{} : names{"router", "balance"}};
      const auto part = load_shard<moe<bf16>>(file, ranks, 'n', {}, how);
      const std::size_t first = is_cut ? part.cut.begin(ranks.rank()) : 0;
      require(is_part(part.own_part().router, wide.router, 1, first), "the router of a part");
      check_same(ranks, part, layer, 'n', x, how);
    });
}

TEST_CASE("an array beside floats is not taken for their scales") {
  const temporary_folder folder;
  const auto file = folder / "mxd.safetensors";
  const auto layer = mixture_of_decoders(1000);
  auto from = io::arrays_of(layer, file, {});
  from.arrays.emplace("gate.scale", io::array(tensor<float, 2>({1, 1})));
  from.arrays.emplace("W_enc.scale", io::array(tensor<float, 2>({1, 1})));
  io::safetensors::write(file, from.arrays, from.metadata);
  run_on_threads(2, [&](communicator& ranks) {
    std::vector<std::string> extra;
    check_same(ranks, load_shard<mxd<>>(file, ranks, 'n', {.extra = &extra}), layer, 'n',
               rows(23, 12, 1000));
    require(extra == std::vector<std::string>{"W_enc.scale", "gate.scale"}, "what is left out");
  });
}

TEST_CASE("gradients of a layer of 8 bits over ranks are those of one process") {
  const auto layer = small_mixture<q8>();
  const auto x = rows(24, 40, 1000), dy = rows(24, 40, 17);
  const auto wanted = gradients(layer, x, dy);
  run_on_threads(3, [&](communicator& ranks) {
    const auto part = shard(layer, ranks, 'n');
    auto step = compile_gradients(part, 8, {.threads = 1});
    const auto mine = [&](const tensor<float, 2>& all) {
      tensor<float, 2> own({8, 40});
      std::copy_n(std::as_const(all).data() + ranks.rank() * 8 * 40, 8 * 40, own.data());
      return own;
    };
    tensor<float, 2> y({8, 40}), dx({8, 40});
    step(mine(x), mine(dy), y, dx);
    require(difference(dx, mine(wanted.dx)) < 1e-5, "dx");
    const auto made = flat(step.gradients().output), all = flat(wanted.parameters.output);
    const std::size_t each = 36 * 40;
    tensor<float, 2> of_part(made.shape());
    std::copy_n(std::as_const(all).data() + part.cut.begin(ranks.rank()) * each, made.size(),
                of_part.data());
    require(difference(made, of_part) < 1e-5, "the gradient of a part");
  });
}

TEST_CASE("weights of FP8 with scales are refused") {
  const temporary_folder folder;
  const auto file = folder / "mxd.safetensors";
  auto arrays = io::arrays_of(mixture_of_decoders(1000), file, {}).arrays;
  const auto shape = arrays.at("gate").shape();
  const std::vector<std::byte> codes(shape[0] * shape[1], std::byte{8});
  arrays.insert_or_assign("gate", io::array(io::element_type::f8_e4m3, shape, codes));
  arrays.emplace("gate_scale_inv", io::array(tensor<float, 2>({1, 1})));
  io::safetensors::write(file, arrays);
  CHECK_NOTHROW(load<mxd<>>(file, {.active = 2, .activation = pointwise::gelu}));
  run_on_threads(2, [&](communicator& ranks) {
    const std::string got = sentence_of([&] { load_shard<mxd<>>(file, ranks, 'n'); });
    require(got.find("tensor \"gate\" is F8_E4M3 with scales, which load_shard does not read: load "
                     "the layer and shard it") != got.npos,
            got);
  });
}

// A layer of one weight of MXFP4, [n, i].
struct layer_of_mxfp4 {
  parameter<float, 2> w;
  auto operator()(const operand_of<2> auto& x) const { return einsum<"ti,ni->tn">(x, w); }
  static void released(auto& layer, auto&& visit) {
    visit({"w_blocks", presence::required, "ni"}, layer.w);
  }
};

TEST_CASE("weights of MXFP4 with scales are refused") {
  const temporary_folder folder;
  const auto file = folder / "w.safetensors";
  const std::vector<std::byte> codes(4 * 16, std::byte{8}), scales(4, std::byte{127});
  io::safetensors::write(file, {{"w_blocks", io::array(io::element_type::u8, {4, 1, 16}, codes)},
                                {"w_scales", io::array(io::element_type::u8, {4, 1}, scales)}});
  CHECK_NOTHROW(load<layer_of_mxfp4>(file));
  run_on_threads(2, [&](communicator& ranks) {
    const std::string got = sentence_of([&] { load_shard<layer_of_mxfp4>(file, ranks, 'n'); });
    require(got.find("tensor \"w_blocks\" is F4 with scales, which load_shard does not read") !=
                got.npos,
            got);
  });
}

TEST_CASE("ranks write the file of 8 bits that one process writes") {
  const temporary_folder folder;
  const auto expected = folder / "expected.safetensors", file = folder / "file.safetensors";
  const auto check = [&](const auto& layer, char label, std::size_t parts) {
    save(layer, expected, {.prefix = "a."});
    for (const std::size_t P : {1u, 2u, 3u}) {
      if (parts % P != 0) continue;
      INFO(label << " on " << P);
      put(file, "old");
      run_on_threads(P, [&](communicator& ranks) {
        save(shard(layer, ranks, label, {.parts = parts}), file, {.prefix = "a."});
      });
      CHECK(content(file) == content(expected));
    }
  };
  check(small_mixture<q8>(), 'n', 6);
  for (const char label : {'n', 'w'}) check(small_mixture<q8c>(), label, 6);
  check(blocks_of_experts<q8>(), 'n', 6);
  check(blocks_of_experts<q8>(), 'h', 2);
}

TEST_CASE("ranks whose files have blocks along different axes are refused") {
  const temporary_folder folder;
  const auto one = folder / "one.safetensors", other = folder / "other.safetensors";
  auto layer = blocks_of_experts<q8c>();
  save(layer, one);
  fill_8_bits(layer.scales, {96, 12}, 1, 3);
  save(layer, other);
  run_on_threads(2, [&](communicator& ranks) {
    const std::string got =
        sentence_of([&] { load_shard<mxd<q8c>>(ranks.rank() == 0 ? one : other, ranks, 'n'); });
    require(got ==
                "the ranks disagree: rank 0 has \"W_cond: q8c 96 12 in blocks along n\", and rank "
                "1 has \"W_cond: q8c 96 12 in blocks along o\"",
            got);
  });
}

}  // namespace

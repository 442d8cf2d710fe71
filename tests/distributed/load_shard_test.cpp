// SPDX-License-Identifier: MIT
#include <fmoe/aoe.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

#include "../support/catch.hpp"
#include "../support/header_bytes.hpp"
#include "../support/oracle.hpp"
#include "../support/routed_monet.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("a rank reads the header, its parts and what is not cut, and no other byte") {
  const temporary_folder folder;
  const auto file = folder / "mxd.safetensors";
  const auto layer = mixture_of_decoders(1000);
  save(layer, file);
  const std::size_t dense = 4 * (12 * 20 + 20 + 20 * 12 + 12), each = 4 * (12 + 1 + 12);
  for (const std::size_t P : {1u, 2u, 3u, 4u})
    run_on_threads(P, [&](communicator& ranks) {
      const auto part = load_shard<mxd<>>(file, ranks, 'n', {}, {.parts = 2 * P});
      std::size_t experts = 0;
      for (std::size_t i = 0; i < part.cut.parts_a_rank(); ++i)
        experts += part.cut.count(part.cut.own(i));
      require(part.bytes_read == header_of(file) + dense + experts * each,
              "read " + std::to_string(part.bytes_read));
      const auto x = rows(23, 12, 1000);
      const auto shards = shard(layer, ranks, 'n', {.parts = 2 * P});
      require(same_bits(result_on(ranks, part, x), result_on(ranks, shards, x)),
              "the bits of a layer from a file");
    });
}

TEST_CASE("an axis of two labels in the file is cut, with a prefix and in 16 bits") {
  const temporary_folder folder;
  const auto file = folder / "aoe.safetensors";
  aoe<bf16> layer;
  const auto fill_bf16 = [](tensor<bf16, 3>& p, const std::array<std::size_t, 3>& shape,
                            unsigned seed) {
    p = tensor<bf16, 3>(shape);
    for (std::size_t i = 0; i < p.size(); ++i)
      p.data()[i] = bf16(std::sin(static_cast<float>(i + seed)));
  };
  fill_bf16(layer.down, {12, 30, 4}, 1);
  fill_bf16(layer.up, {30, 4, 17}, 2);
  fill_bf16(layer.linear, {30, 12, 17}, 3);
  fill_bf16(layer.output, {30, 17, 12}, 4);
  save(layer, file, {.prefix = "layers.3."});
  run_on_threads(3, [&](communicator& ranks) {
    const auto part = load_shard<aoe<bf16>>(file, ranks, 'n', {.prefix = "layers.3."});
    const std::size_t each = 2 * (12 * 4 + 4 * 17 + 12 * 17 + 17 * 12);
    require(part.bytes_read == header_of(file) + 10 * each, "the bytes that are read");
    const auto x = rows(11, 12, 1000);
    require(same_bits(result_on(ranks, part, x), result_on(ranks, shard(layer, ranks, 'n'), x)),
            "the bits of a layer from a file");
  });
}

TEST_CASE("a transcoder of SAELens is cut as its cfg.json says") {
  const temporary_folder folder;
  const auto file = folder / "sae_weights.safetensors";
  const io::arrays_by_name arrays{{"W_enc", rows(12, 20, 1)},
                                  {"b_enc", random<tensor<float, 1>>({20}, 2)},
                                  {"W_dec", rows(20, 12, 3)},
                                  {"b_dec", random<tensor<float, 1>>({12}, 4)},
                                  {"W_skip", rows(12, 12, 5)}};
  io::safetensors::write(file, arrays);
  put(folder / "cfg.json", R"({"architecture": "skip_transcoder"})");
  const auto whole = load<sparse_mlp<>>(file);
  REQUIRE_FALSE(whole.skip.empty());
  run_on_threads(2, [&](communicator& ranks) {
    const auto part = load_shard<sparse_mlp<>>(file, ranks, 'h');
    const auto x = rows(23, 12, 1000);
    require(same_bits(result_on(ranks, part, x), result_on(ranks, shard(whole, ranks, 'h'), x)),
            "the bits of a layer from a file");
  });
}

TEST_CASE("dictionaries of SAELens are cut by their units") {
  for (const char* name : {"jumprelu", "gated", "batchtopk", "topk_rescaled", "abstopk",
                           "standard_layer_norm", "jumprelu_skip_transcoder"}) {
    INFO(name);
    const auto file =
        std::filesystem::path("tests/dictionaries") / name / "sae_weights.safetensors";
    const auto whole = load<sparse_mlp<>>(file);
    const auto x = rows(23, 12, 1000);
    const auto y = evaluate(whole(x));
    run_on_threads(2, [&](communicator& ranks) {
      const auto part = load_shard<sparse_mlp<>>(file, ranks, 'h');
      const auto found = result_on(ranks, part, x);
      require(same_bits(found, result_on(ranks, shard(whole, ranks, 'h'), x)),
              "the bits of a layer from a file");
      require(relative_error(found.data(), {y.begin(), y.end()}) < 2e-6, "the numbers");
    });
  }
}

// circuit-tracer has its encoder in the other order of axes, under the same name.
TEST_CASE("dictionaries of other libraries are not cut") {
  for (const char* file : {"traced_square/layer_0", "traced_jumprelu/layer_0", "sparsify/sae",
                           "gemma_scope_2/params", "learned_topk/ae"}) {
    INFO(file);
    const auto path =
        std::filesystem::path("tests/dictionaries") / (std::string(file) + ".safetensors");
    run_on_threads(2, [&](communicator& ranks) {
      std::string said;
      try {
        load_shard<sparse_mlp<>>(path, ranks, 'h');
      } catch (const std::exception& e) {  // of this rank, or of one that failed before
        said = e.what();
      }
      require(said.find("load the layer and shard it (schema)") != said.npos, said);
    });
  }
}

TEST_CASE("a layer whose experts have statistics") {
  const temporary_folder folder;
  const auto file = folder / "cp.safetensors";
  cp_mumoe<1> layer;
  fill_with(layer.gate.projections[0], {12, 9}, 1, 1000);
  fill_with(layer.gate.means[0], {9}, 2, 1000);
  layer.gate.variances[0] = tensor<float, 1>({9}, std::vector<float>(9, 0.5f));
  fill_with(layer.experts.experts[0], {9, 20}, 2, 1000);
  fill_with(layer.experts.input, {13, 20}, 3, 1000);
  fill_with(layer.experts.output, {10, 20}, 4, 1000);
  save(layer, file);
  run_on_threads(3, [&](communicator& ranks) {
    const auto x = rows(11, 12, 1000);
    const auto y = result_on(ranks, load_shard<cp_mumoe<1>>(file, ranks, 'n'), x);
    require(same_bits(y, result_on(ranks, shard(layer, ranks, 'n'), x)),
            "the bits of a layer from a file");
    check_layer(ranks, layer, 'n', x, "CP with statistics");
  });
}

// The halves of experts that a rank has, in a layer of Monet: 4 units for each of 9 halves.
void require_halves(const sharded<monet_hd<>>& part, const monet_hd<>& layer) {
  const monet_hd<> own = part.own_part();
  const std::size_t i = part.cut.own(0), first = part.cut.begin(i), count = part.cut.count(i);
  require(own.encoder.shape() == std::array<std::size_t, 2>{12, 4 * count} &&
              own.encoder_bias.shape()[0] == 4 * count &&
              own.decoder.shape() == std::array<std::size_t, 2>{4 * count, 12} &&
              own.bias.shape() == std::array<std::size_t, 2>{count, 12},
          "the shapes of a part");
  for (std::size_t h = 0; h < 4 * count; ++h)
    for (std::size_t d = 0; d < 12; ++d)
      require(own.encoder(d, h) == layer.encoder(d, 4 * first + h) &&
                  own.decoder(h, d) == layer.decoder(4 * first + h, d),
              "the units of a part");
  for (std::size_t s = 0; s < count; ++s)
    require(own.bias(s, 3) == layer.bias(first + s, 3), "the biases of a part");
}

TEST_CASE("a rank has, reads and writes the units of its halves of Monet's experts") {
  const temporary_folder folder;
  const auto file = folder / "monet.safetensors", again = folder / "again.safetensors";
  const monet_hd<> layer = small_hd();
  save(layer, file);
  for (const std::size_t P : {1u, 2u, 3u, 4u}) {
    run_on_threads(P, [&](communicator& ranks) {
      require_halves(shard(layer, ranks, 's'), layer);
      const auto part = load_shard<monet_hd<>>(file, ranks, 's');
      require_halves(part, layer);
      const std::size_t each = 4 * (4 * (12 + 1 + 12) + 12);
      require(part.bytes_read == header_of(file) + part.cut.count(part.cut.own(0)) * each,
              "read " + std::to_string(part.bytes_read));
      save(part, again);
    });
    CHECK(content(again) == content(file));
  }
}

TEST_CASE("units of Monet that every rank holds whole are read whole") {
  const temporary_folder folder;
  const auto file = folder / "monet.safetensors";
  const monet_hd<> layer = small_hd();
  save(layer, file);
  run_on_threads(2, [&](communicator& ranks) {
    const auto own = load_shard<monet_hd<>>(file, ranks, 's', {}, {0, {"moe.u.weight"}}).own_part();
    require(same_bits(own.encoder, layer.encoder), "a parameter that is whole");
    require(own.decoder.shape()[0] == (ranks.rank() == 0 ? 20 : 16), "one that is cut");
  });
}

TEST_CASE("a rank whose file is missing makes all ranks throw") {
  const temporary_folder folder;
  const auto file = folder / "mxd.safetensors", missing = folder / "missing.safetensors";
  save(mixture_of_decoders(1000), file);
  run_on_threads(3, [&](communicator& ranks) {
    const auto& mine = ranks.rank() == 2 ? missing : file;
    const std::string got = sentence_of([&] { load_shard<mxd<>>(mine, ranks, 'n'); });
    require(got.starts_with("rank 2 failed: [io]") && got.find("cannot be opened") != got.npos,
            got);
  });
}

TEST_CASE("ranks with files of different layers are refused") {
  const temporary_folder folder;
  const auto one = folder / "one.safetensors", other = folder / "other.safetensors";
  auto layer = mixture_of_decoders(1000);
  save(layer, one);
  fill_with(layer.decoder, {20, 13}, 7, 10);
  fill_with(layer.scales, {37, 13}, 7, 10);
  fill_with(layer.bias, {13}, 7, 10);
  save(layer, other);
  run_on_threads(2, [&](communicator& ranks) {
    const std::string got =
        sentence_of([&] { load_shard<mxd<>>(ranks.rank() == 0 ? one : other, ranks, 'n'); });
    require(got ==
                "the ranks disagree: rank 0 has \"W_cond: float32 37 12\", and rank 1 has "
                "\"W_cond: float32 37 13\"",
            got);
  });
}

TEST_CASE("ranks write the file that one process writes") {
  const temporary_folder folder;
  const auto expected = folder / "expected.safetensors", file = folder / "file.safetensors";
  const auto layer = mixture_of_decoders(1000, true);
  save(layer, expected, {.prefix = "a."});
  for (const char label : {'n', 'h', 'o'})
    for (const std::size_t P : {1u, 2u, 3u}) {
      put(file, "old");
      run_on_threads(P, [&](communicator& ranks) {
        save(shard(layer, ranks, label, {.parts = 2 * P}), file, {.prefix = "a."});
      });
      CHECK(content(file) == content(expected));
    }
  CHECK(folder.entries() == 2);
}

TEST_CASE("a file that cannot be written makes all ranks throw, and nothing is left behind") {
  const temporary_folder folder;
  const auto file = folder / "none/mxd.safetensors";
  run_on_threads(3, [&](communicator& ranks) {
    const auto part = shard(mixture_of_decoders(1000), ranks, 'n');
    const std::string got = sentence_of([&] { save(part, file); });
    require(got.starts_with("rank 0 failed: [io]") && got.find("cannot be created") != got.npos,
            got);
  });
  CHECK(folder.entries() == 0);
}

}  // namespace

// SPDX-License-Identifier: MIT
// Measures the memory that well-formed headers take, and layers of a checkpoint.
#include <string>

#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

#include "../support/allocations.hpp"
#include "../support/catch.hpp"
#include "../support/files.hpp"

using fmoe::io::safetensors;
using fmoe::test::bytes_of_call;

namespace {

struct cost {
  double reading, result;  // in bytes for each byte of the header
};

// Reads a header with 5,000 strings of metadata.
cost cost_of(const std::string& value) {
  fmoe::io::strings_by_name metadata;
  for (int i = 0; i < 5000; ++i) metadata.emplace(std::to_string(100000 + i), value);
  const temporary_folder folder;
  safetensors::write(folder / "a", {}, metadata);
  const auto header = static_cast<double>(std::filesystem::file_size(folder / "a"));
  const auto reading = bytes_of_call([&] { safetensors::read(folder / "a"); });
  const auto result = bytes_of_call([&] { auto copy = metadata; });
  CHECK(safetensors::read(folder / "a").metadata() == metadata);
  return {static_cast<double>(reading) / header, static_cast<double>(result) / header};
}

}  // namespace

TEST_CASE("metadata take the memory of their header and of what is returned", "[io]") {
  for (const std::string& value : {std::string(), std::string("\n"), std::string(88, 'v')}) {
    const cost c = cost_of(value);
    INFO(value << ": " << c.reading << ", of which " << c.result << " are returned");
    CHECK(c.reading - c.result < 4);
  }
  CHECK(cost_of(std::string(88, 'v')).reading < 4);
}

TEST_CASE("the weights of a checkpoint are read once, or not at all", "[io]") {
  const temporary_folder folder;
  fmoe::sparse_mlp<fmoe::bf16> layer;
  layer.encoder = fmoe::tensor<fmoe::bf16, 2>({64, 1000});
  layer.decoder = fmoe::tensor<fmoe::bf16, 2>({1000, 64});
  layer.skip = fmoe::tensor<fmoe::bf16, 2>({64, 64});  // which files have in the other order
  fmoe::save(layer, folder / "layer.safetensors");
  const auto model = fmoe::io::checkpoint::open(folder / "layer.safetensors");
  const auto bytes = static_cast<double>(2 * (64 * 1000 + 64 * 1000 + 64 * 64));
  const auto share_of = [&](bool mapped) {
    return static_cast<double>(bytes_of_call(
               [&] { fmoe::load<fmoe::sparse_mlp<fmoe::bf16>>(model, {.mapped = mapped}); })) /
           bytes;
  };
  const double skip = 2 * 64 * 64 / bytes, little = 0.1;
  CHECK(share_of(false) < 1 + skip + little);
  CHECK(share_of(true) < skip + little);
}

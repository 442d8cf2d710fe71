// SPDX-License-Identifier: MIT
// The input is a config.json beside the weights of a mixture and of a Monet model, and a cfg.json
// beside those of a sparse autoencoder. Whatever it says, the layers are loaded, or an io::error
// says why not.
#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/load_mixture.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mxd.hpp>

#include "folder.hpp"
#include "fuzz.hpp"

namespace fmoe::fuzz {
namespace {

tensor<float, 2> zeros(std::size_t rows, std::size_t columns) {
  return tensor<float, 2>({rows, columns});
}

struct models : folder {
  models() {
    for (const char* name : {"mixture", "monet", "sae"})
      std::filesystem::create_directories(path / name);
    std::filesystem::copy_file("tests/mixtures/mixtral/model.safetensors",
                               path / "mixture/model.safetensors");
    io::safetensors::write(path / "monet/model.safetensors", {{"router.w1.weight", zeros(8, 6)},
                                                              {"router.w2.weight", zeros(8, 6)},
                                                              {"moe.u.weight", zeros(8, 6)},
                                                              {"moe.v.weight", zeros(6, 8)},
                                                              {"moe.b", zeros(4, 6)}});
    io::safetensors::write(path / "sae/sae_weights.safetensors",
                           {{"W_enc", zeros(6, 9)},
                            {"b_enc", tensor<float, 1>({9})},
                            {"W_dec", zeros(9, 6)},
                            {"b_dec", tensor<float, 1>({6})}});
  }
};

}  // namespace

void judge(bytes input) {
  static const models here;
  for (const char* name : {"mixture/config.json", "monet/config.json", "sae/cfg.json"})
    here.write(name, input);
  only_throws<io::error>(
      [&] { load_mixture(io::checkpoint::open(here.path / "mixture"), 1, {.active = 2}); });
  const auto monet = io::checkpoint::open(here.path / "monet");
  only_throws<io::error>([&] { load<monet_router<>>(monet); });
  only_throws<io::error>([&] { load<monet_hd<>>(monet); });
  const auto sae = io::checkpoint::open(here.path / "sae/sae_weights.safetensors");
  only_throws<io::error>([&] { load<sparse_mlp<>>(sae); });
}

}  // namespace fmoe::fuzz

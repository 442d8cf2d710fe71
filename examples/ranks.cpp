// SPDX-License-Identifier: MIT
// A layer over the ranks of a job: each reads and runs its part of the experts. Here ranks are
// threads; docs/distributed.md says how they become the processes of an MPI job.
#include <iostream>

#include <fmoe/distributed.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

int main() {
  const auto rows = fmoe::io::safetensors::read("examples/data/minilm_l3_rows.safetensors");
  const auto all = rows.get<float, 2>("x");  // 256 tokens
  fmoe::run_on_threads(4, [&](fmoe::communicator& ranks) {
    const auto layer =
        fmoe::load_shard<fmoe::mxd<>>("examples/data/minilm_l3_mxd_bf16.safetensors", ranks, 'n');
    auto forward = fmoe::compile(layer, 64, {.threads = 1});  // for up to 64 tokens of each rank
    const std::size_t width = all.shape()[1];
    fmoe::tensor<float, 2> x({64, width}), y({64, forward.output_shape()[0]});
    std::copy_n(all.data() + 64 * ranks.rank() * width, 64 * width, x.data());
    forward(x, y);  // all ranks together; x and y are rows of this rank
    if (ranks.rank() == 0)
      std::cout << y(0, 0) << '\n' << layer.bytes_read << " bytes read\n" << forward.explain();
  });
}

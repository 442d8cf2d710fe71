// SPDX-License-Identifier: MIT
// Launches of products on tensor cores.
#pragma once

#include <fmoe/backend/cuda/kernels/tensor_gemm.hpp>
#include <fmoe/backend/cuda/step_lists.hpp>

namespace fmoe::cuda {

// Launches a product. In a group there are at most `group_tiles` tiles of rows, and elsewhere it is
// 0.
template <class Kernel, class Queue>
void launch_product(const Kernel& kernel, extent rows, extent group_tiles, Queue& queue) {
  const extent tiles = group_tiles != 0 ? group_tiles : divide_up(rows, extent{Kernel::tile_rows});
  queue.launch("gemm", kernel, kernel.blocks(tiles));
}

// Large tiles read weights less often, and small ones give more blocks something to do. All have
// the same bits.
template <math How, class Queue>
void tensor_product(const gemm_kernel<float, 4>& of, extent group_tiles, Queue& queue) {
  constexpr extent few = 16, enough_blocks = 128;
  const auto launch = [&]<unsigned Rows>() {
    launch_product(tensor_kernel<How, Rows>{of}, of.rows, group_tiles, queue);
  };
  const tensor_kernel<How, 128> large{of};
  const bool is_large = large.blocks(divide_up(of.rows, extent{large.tile_rows})) >= enough_blocks;
  if (group_tiles != 0) launch.template operator()<group_tile_rows>();
  else if (of.rows <= few) launch.template operator()<16>();
  else if (is_large) launch.template operator()<128>();
  else launch.template operator()<64>();
}

}  // namespace fmoe::cuda

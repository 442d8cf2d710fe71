// SPDX-License-Identifier: MIT
// A product of many rows on tensor cores that read both operands from shared memory, as those of an
// H100 do: a warpgroup multiplies 64 rows by 128 columns while its threads round the next stage,
// once for the whole block. Sums are those of tensor_product.
#pragma once

#include <fmoe/backend/cuda/kernels/rounded_stages.hpp>
#include <fmoe/backend/cuda/kernels/tensor_tile.hpp>

namespace fmoe::cuda {

template <math How, class S = float>
struct warpgroup_product {
  static constexpr unsigned threads = 256, lanes = 32, blocks_each = 1;
  static constexpr unsigned tile_rows = large_tile, tile_columns = tensor_tile_columns;
  static constexpr extent shared_bytes = rounded_layout<How>::bytes;

  product<float> of;

  FMOE_DEVICE extent blocks(extent row_tiles) const {
    return row_tiles * of.position_count * of.parts() * divide_up(of.columns, extent{tile_columns});
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    if constexpr (Block::has_warpgroups) multiply(b);
  }

 private:
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void multiply(Block& b) const {
    product_part part{};
    if (!part.find(of, b.block(), tile_rows, tile_columns)) return;  // a whole block
    const unsigned row = b.thread() / lanes * 16;
    tensor_tile<1, tile_columns / 8> tile(of, part, row, 0, b.thread() % lanes);
    auto& sums = tile.sums[0];
    bool adds = false;  // there are terms in the sums
    rounded_stages<How, S, Block> stages(b, of, part);
    while (stages.has_more()) {
      stages.begin_products(sums, row / 64 * 64, adds);
      stages.bring_next();
      b.wait_for_products(sums);
      const bool ends = stages.ends_block() || (adds_stages<How> && tile.is_whole());
      if (ends) tile.end_block(stages.term());
      adds = !ends;
      stages.next();
    }
    tile.finish();
  }
};

}  // namespace fmoe::cuda

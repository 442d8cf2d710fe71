// SPDX-License-Identifier: MIT
// Launches a product: the kernel that its shape chooses, and a second one where blocks of threads
// share a sum.
#pragma once

#include <limits>

#include <fmoe/backend/cuda/kernels/product_choice.hpp>
#include <fmoe/backend/cuda/kernels/stream_product.hpp>
#include <fmoe/backend/cuda/kernels/tensor_product.hpp>
#include <fmoe/backend/cuda/kernels/tile_product.hpp>
#include <fmoe/backend/cuda/kernels/warpgroup_product.hpp>

namespace fmoe::cuda {

// Large tiles of doubles would need more registers than a thread has.
template <class T>
inline constexpr bool has_large_tiles = sizeof(T) == 4;

// Calls f with a null pointer to the type of the numbers of a table, which is T unless a GPU widens
// them as it reads them.
template <class T, class F>
void with_table_type(dtype stored, const F& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (stored == dtype::bfloat16) return f(static_cast<bf16*>(nullptr));
    if (stored == dtype::float16) return f(static_cast<f16*>(nullptr));
  }
  f(static_cast<T*>(nullptr));
}
// The same for the weights of products, which may have 8 bits, too.
template <class T, class F>
void with_weight_type(dtype stored, const F& f) {
  if constexpr (std::is_same_v<T, float>)
    if (is_quantized_type(stored)) return f(static_cast<q8_weight*>(nullptr));
  with_table_type<T>(stored, f);
}

template <class T>
product_shape shape_of(const product<T>& p, extent tile_rows) {
  return {p.rows, p.depth, p.columns, p.position_count, p.sum_block, tile_rows, has_large_tiles<T>};
}

// Adds what blocks of threads left that shared a sum.
template <class T, class Queue>
void add_shared_sums(Queue& queue, const product<T>& p) {
  if (p.sums != nullptr)
    queue.each("gemm", add_sums<T>{p}, extent{p.rows} * p.position_count * p.columns);
}

// `group_tiles` are the tiles of a group, as many as there may be, of `tile_rows` each.
template <class T, class Queue>
void launch_product(Queue& queue, product<T> p, dtype stored, T* sums, extent room,
                    extent tile_rows, extent group_tiles) {
  const product_choice choice = choose_product(shape_of(p, tile_rows), room);
  if (choice.sums_each != 0) p.sums = sums;
  p.sums_each = static_cast<index>(choice.sums_each);
  const auto launch = [&](const auto& kernel) {
    const extent tiles =
        tile_rows != 0 ? group_tiles : divide_up(extent{p.rows}, extent{kernel.tile_rows});
    queue.launch("gemm", kernel, kernel.blocks(tiles));
  };
  with_weight_type<T>(stored, [&]<class S>(S*) {
    using enum product_form;
    switch (choice.form) {
      case stream_1: return launch(stream_product<T, S, 1, 1>{p});
      case stream_4: return launch(stream_product<T, S, 4, 1>{p});
      case stream_16: return launch(stream_product<T, S, 4, 4>{p});
      case stream_24: return launch(stream_product<T, S, 6, 4>{p});
      case small: return launch(small_tile_product<T, S>{p});
      case large:
        if constexpr (has_large_tiles<T>) launch(large_tile_product<T, S>{p});
    }
  });
  add_shared_sums(queue, p);
}

// A thread of a warpgroup counts the elements from the first row of a tile to its own in 32 bits.
constexpr bool fits_warpgroups(extent row_stride) {
  return row_stride <= std::numeric_limits<index>::max() / large_tile;
}

// The same on tensor cores.
template <math How, class Queue>
void launch_tensor_product(Queue& queue, product<float> p, dtype stored, float* sums, extent room,
                           extent tile_rows, extent group_tiles) {
  product_shape shape = shape_of(p, tile_rows);
  shape.sum_block = tensor_sum_block(How, p.sum_block);
  // Blocks of a sum end with a stage.
  const bool can_share = p.sum_block % shape.sum_block == 0 && p.depth != 0;
  const bool has_warpgroups = queue.has_warpgroups() && fits_warpgroups(p.a.stride);
  const auto [rows, sums_each] = choose_tensor_product(shape, can_share ? room : 0, has_warpgroups);
  if (sums_each != 0) {
    p.sums = sums;
    p.sums_each = static_cast<index>(sums_each);
    p.sum_block = static_cast<index>(shape.sum_block);
  }
  const auto launch = [&](const auto& kernel) {
    const extent tiles =
        tile_rows != 0 ? group_tiles : divide_up(extent{p.rows}, extent{kernel.tile_rows});
    queue.launch("gemm", kernel, kernel.blocks(tiles));
  };
  const extent tile = rows;
  with_weight_type<float>(stored, [&]<class S>(S*) {
    if (tile == few_tile_rows) launch(tensor_product<How, few_tile_rows, S>{p});
    else if (tile == small_tile) launch(tensor_product<How, small_tile, S>{p});
    else if (has_warpgroups) launch(warpgroup_product<How, S>{p});
    else launch(tensor_product<How, large_tile, S>{p});
  });
  add_shared_sums(queue, p);
}

}  // namespace fmoe::cuda

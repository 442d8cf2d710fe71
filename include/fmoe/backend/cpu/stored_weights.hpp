// SPDX-License-Identifier: MIT
// What the CPU does with weights of one type: products with their panels, and gathers of their
// rows. The functions for types of 16 and of 8 bits are more than half of a level's code, so a
// header-only program has those of its expressions' leaves alone (use_weights).
#pragma once

#include <atomic>
#include <span>

#include <fmoe/backend/cpu/kernels/bf16_product.hpp>
#include <fmoe/backend/cpu/kernels/int8_kernels.hpp>
#include <fmoe/backend/cpu/kernels/int8_product.hpp>
#include <fmoe/backend/cpu/kernels/sample.hpp>
#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/plan/plan.hpp>

namespace fmoe::cpu {

// The weights of a product, which stand at batch[b] + depth[k] + columns[n] of `from`.
struct weights_to_pack {
  stored_numbers from;
  std::span<const extent> depth, columns, batch;
  row_rounding rounding;
};

template <class T>
struct stored_weights {
  // Can panels hold weights of 8 bits as they are stored, where sums are cut into blocks of so many
  // k?
  bool (*fits_panels)(const weights_to_pack&, extent sum_block);
  // Can a gather read the rows of a table as they are stored?
  bool (*fits_table)(const stored_numbers&);

  // The kernels of products with such panels, and the rows of a panel for so many k.
  const gemm_kernels<T>& (*kernels)(row_rounding);
  extent (*panel_rows)(row_rounding, extent k);
  // Writes all panels on so many threads; those of a batch take `bytes`.
  void (*pack)(const weights_to_pack&, extent threads, extent bytes, std::byte* to);
  // Rounds rows of k numbers as `kernels` read them.
  void (*round_rows)(row_rounding, const T* from, extent stride, extent rows, extent k, T* to,
                     extent to_stride) noexcept;

  // gather.hpp and sample.hpp with a table that begins at number `first`.
  void (*gather)(const stored_numbers&, extent first, extent n, selected<T>, selected<T> next, T* c,
                 bool accumulate) noexcept;
  void (*sample)(const T* x, const stored_numbers&, extent first, extent n, selected<T>,
                 selected<T> next, T* out) noexcept;
};

// Such a table, and what reads it.
template <class T>
struct weight_table {
  const stored_weights<T>* as = nullptr;
  stored_numbers numbers{};
};

inline quantized_layout layout_of(const stored_numbers& n) { return {n.type, n.size, n.axis}; }

// The functions of weights that are stored as S, in arithmetic of T.
template <class T, class S, class Arch>
struct weights_stored_as {
  static constexpr bool is_8_bits = is_quantized<S>, is_bf16 = std::is_same_v<S, bf16>,
                        is_q8 = std::is_same_v<S, q8>;

  static bool fits_panels(const weights_to_pack& w, extent sum_block) {
    if constexpr (is_8_bits) {
      if (w.rounding == row_rounding::int8) return true;
      const quantized_layout layout = layout_of(w.from);
      constexpr extent group = panel_int8<S, Arch>::group;
      return sum_block % group == 0 && has_scales_of_groups(layout, w.depth, group) &&
             has_finite_scales<S>(layout, w.from.data);
    } else {
      return true;
    }
  }
  static bool fits_table(const stored_numbers& n) {
    if constexpr (is_8_bits) return int8_pointer<S>::can_read(layout_of(n));
    else return true;
  }

  static const gemm_kernels<T>& kernels(row_rounding rounding) {
    if constexpr (is_bf16)
      if (rounding == row_rounding::bf16) return bf16_kernels<Arch>();
    if constexpr (is_q8)
      if (rounding == row_rounding::int8) return int8_product_kernels<Arch>();
    if constexpr (is_8_bits) return int8_kernels<S, Arch>();
    else return plain_kernels<T, S, Arch>();
  }
  static extent panel_rows(row_rounding rounding, extent k) {
    if constexpr (is_bf16)
      if (rounding == row_rounding::bf16) return bf16_depth<Arch>(k);
    if constexpr (is_q8)
      if (rounding == row_rounding::int8) return divide_up(k, q8::block);
    return k;
  }
  static void round_rows(row_rounding rounding, const T* from, extent stride, extent rows, extent k,
                         T* to, extent to_stride) noexcept {
    if constexpr (is_bf16)
      if (rounding == row_rounding::bf16)
        round_rows_to_bf16<Arch>(from, stride, rows, k, to, to_stride);
    if constexpr (is_q8)
      if (rounding == row_rounding::int8)
        round_rows_to_int8<Arch>(from, stride, rows, k, to, to_stride);
  }

  FMOE_COLD static void pack(const weights_to_pack& w, extent threads, extent bytes,
                             std::byte* to) {
    const auto* const numbers = static_cast<const element*>(w.from.data);
    const extent panels = divide_up(w.columns.size(), panel_width<T, Arch>),
                 parts = packing_parts<T, Arch>(w.depth.size(), w.columns.size());
    // Calls pack_part(batch, part, to) for each part of each batch.
    const auto in_parts = [&](extent count, const auto& pack_part) {
      for_units(threads, w.batch.size() * count, [&](extent i) {
        const extent b = i / count;
        pack_part(w.batch[b], i % count, to + b * bytes);
      });
    };
    if constexpr (is_bf16)
      if (w.rounding == row_rounding::bf16)
        return in_parts(panels, [&](extent first, extent panel, std::byte* out) {
          pack_bf16_panel<Arch>(w.depth, w.columns, numbers + first, panel, out);
        });
    if constexpr (is_q8)
      if (w.rounding == row_rounding::int8)
        return in_parts(panels, [&](extent first, extent panel, std::byte* out) {
          pack_int8_panel<Arch>(w.depth, w.columns, layout_of(w.from), first, numbers, panel, out);
        });
    if constexpr (is_8_bits) {
      for (extent b = 0; b < w.batch.size(); ++b)
        pack_quantized<T, Arch, S>(w.depth, w.columns, layout_of(w.from), w.batch[b], numbers,
                                   to + b * bytes);
    } else {
      if (bytes == 0) return;  // `numbers` may be null
      in_parts(parts, [&](extent first, extent part, std::byte* out) {
        pack_panels<T, Arch>(w.depth, w.columns, numbers + first, reinterpret_cast<S*>(out), part);
      });
    }
  }

  static auto table(const stored_numbers& n, extent first) {
    if constexpr (is_8_bits) return int8_pointer<S>(n.data, layout_of(n)) + first;
    else return static_cast<const S*>(n.data) + first;
  }
  static void gather(const stored_numbers& numbers, extent first, extent n, selected<T> s,
                     selected<T> next, T* c, bool accumulate) noexcept {
    cpu::gather<T, Arch>(table(numbers, first), n, n, s, next, c, accumulate);
  }
  static void sample(const T* x, const stored_numbers& numbers, extent first, extent n,
                     selected<T> s, selected<T> next, T* out) noexcept {
    cpu::sample<T, Arch>(x, table(numbers, first), n, s, next, out);
  }

 private:
  using element = std::conditional_t<is_8_bits, std::byte, S>;
};

template <class T, class S, class Arch>
const stored_weights<T>& stored_weights_of() {
  using of = weights_stored_as<T, S, Arch>;
  static constexpr stored_weights<T> functions{of::fits_panels, of::fits_table, of::kernels,
                                               of::panel_rows,  of::pack,       of::round_rows,
                                               of::gather,      of::sample};
  return functions;
}

// True if panels and tables may hold numbers of this type: each is widened in registers.
template <class T, class Arch>
bool is_widened_as_read(dtype type) {
  if (is_quantized_type(type)) return std::is_same_v<T, float>;
  return with_type(type,
                   [](auto* t) { return widens<T, std::remove_pointer_t<decltype(t)>, Arch>; });
}

// Calls f with a null pointer to each type that is_widened_as_read, but for T.
template <class Arch>
void for_narrow_types(const auto& f) {
  f(static_cast<bf16*>(nullptr));
  if constexpr (widens<float, f16, Arch>) f(static_cast<f16*>(nullptr));
  f(static_cast<q8*>(nullptr));
  f(static_cast<q8c*>(nullptr));
}

#if defined(FMOE_SEPARATE_COMPILATION)
template <class Arch>
const stored_weights<float>* narrow_weights(dtype type) {
  const stored_weights<float>* found = nullptr;
  for_narrow_types<Arch>([&]<class S>(S*) {
    if (type == dtype_of<S>) found = &stored_weights_of<float, S, Arch>();
  });
  return found;
}
#else
// Those of a header-only program, by type.
template <class Arch>
inline std::atomic<const stored_weights<float>*> narrow_weights_in_program[dtypes];

template <class Arch>
const stored_weights<float>* narrow_weights(dtype type) {
  return narrow_weights_in_program<Arch>[static_cast<extent>(type)];
}
#endif

// What this program does with weights of a type that is_widened_as_read. Throws value_error if
// nobody called use_weights for it.
template <class T, class Arch>
const stored_weights<T>& stored_weights_as(dtype type) {
  if constexpr (std::is_same_v<T, float>) {
    if (type != dtype::float32) {
      const stored_weights<float>* const found = narrow_weights<Arch>(type);
      expects<value_error>(found != nullptr, "use_weights gave this program no kernels of ",
                           name_of(type));
      return *found;
    }
  }
  return stored_weights_of<T, T, Arch>();
}

}  // namespace fmoe::cpu

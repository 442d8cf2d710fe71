// SPDX-License-Identifier: MIT
// Finds the arrays that make a weight, and the blocks of its scales.
#pragma once

#include <algorithm>
#include <bit>
#include <utility>

#include <fmoe/io/scaled_arrays.hpp>

namespace fmoe::io {

// What may follow a weight's name.
inline constexpr std::string_view endings_of_parts[] = {"_packed",  "_scale",        "_scale_inv",
                                                        "_scale_2", "_global_scale", "_zero_point",
                                                        "_shape",   "_g_idx"};
// What may stand in the place of ".weight".
inline constexpr std::string_view of_activations[] = {".input_scale", ".input_global_scale"};
inline constexpr std::string_view of_matrices = ".scale";

// Returns the name without the ending, or nothing.
inline std::optional<std::string> without(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return {};
  return std::string(name.substr(0, name.size() - ending.size()));
}

FMOE_INLINE std::vector<std::string> parts_of_weight(const std::string& name) {
  std::vector<std::string> parts{name};
  if (const auto stem = without(name, mxfp4_ending)) return {name, *stem + "_scales"};
  for (const std::string_view ending : endings_of_parts)
    parts.push_back(name + std::string(ending));
  if (const auto stem = without(name, ".weight")) {
    parts.push_back(*stem + std::string(of_matrices));
    for (const std::string_view ending : of_activations)
      parts.push_back(*stem + std::string(ending));
  }
  return parts;
}

FMOE_INLINE bool is_part_of_weight(const std::string& name, std::string_view part) {
  const auto stem = without(name, ".weight");
  return part.starts_with(stem ? *stem : name.substr(0, name.rfind('_'))) &&
         std::ranges::count(parts_of_weight(name), part) != 0;
}

// Returns how many of `length` neighbours share one of `scales`, or 0 if that cannot be told:
// blocks of other lengths than 128 count as powers of two without a rest, of which only one has so
// many.
inline extent block_of_axis(extent length, extent scales) {
  constexpr extent usual = 128;
  if (scales == 0) return 0;
  if (scales == 1) return std::max<extent>(length, 1);
  if (scales == divide_up(length, usual)) return usual;
  return length % scales == 0 && std::has_single_bit(length / scales) ? length / scales : 0;
}

// The shape of scales that stand for one for each matrix or each row, and the blocks that they
// have.
struct blocks_of_matrices {
  std::vector<extent> shape;
  extent rows, columns;
};

// Returns the blocks of weights of this shape that scales of that shape have. If there are none,
// they are 128 x 128, which the scales then do not fit.
inline blocks_of_matrices blocks_of(const std::vector<extent>& shape,
                                    const std::vector<extent>& scales) {
  const extent rank = shape.size(), count = element_count(scales);
  if (rank == 0) return {scales, 1, 1};
  const extent rows = rank < 2 ? 1 : shape[rank - 2], columns = shape[rank - 1],
               outer = std::min<extent>(rank, 2),
               matrices = element_count(std::span(shape).first(rank - outer));
  const bool has_axes =
      scales.size() == rank && std::ranges::equal(std::span(shape).first(rank - outer),
                                                  std::span(scales).first(rank - outer));
  blocks_of_matrices blocks{scales, 0, 0};
  if (!has_axes && (count == matrices || count == matrices * rows)) {
    blocks.shape = shape;
    blocks.shape[rank - 1] = 1;
    if (rank > 1) blocks.shape[rank - 2] = matrices == 0 ? 1 : count / matrices;
  }
  if (blocks.shape.size() == rank) {
    blocks.rows = rank < 2 ? 1 : block_of_axis(rows, blocks.shape[rank - 2]);
    blocks.columns = block_of_axis(columns, blocks.shape[rank - 1]);
  }
  if (blocks.rows == 0 || blocks.columns == 0) return {scales, 128, 128};
  return blocks;
}

// Returns codes of 8 bits with their scales, and the codes of 0 if there are some.
inline array eight_bits(const array& codes, const array& scales, const array* zeros) {
  const blocks_of_matrices blocks = blocks_of(codes.shape(), scales.shape());
  const array in_blocks = scales.reshaped(blocks.shape);
  if (zeros == nullptr) return codes.scaled(in_blocks, blocks.rows, blocks.columns);
  zeros->check_shape(scales.shape());
  const array zeros_in_blocks = zeros->reshaped(blocks.shape);
  return codes.scaled(in_blocks, blocks.rows, blocks.columns, {nullptr, false, &zeros_in_blocks});
}

FMOE_INLINE array fp8_weights(const array& codes, const array& scales) {
  return eight_bits(codes, scales, nullptr);
}

FMOE_INLINE array mxfp4_weights(const array& blocks, const array& scales) {
  constexpr extent block = 32;
  std::vector<extent> shape = scales.shape();
  shape.push_back(block / 2);
  blocks.check_shape(shape);
  shape.pop_back();
  if (!shape.empty()) shape.back() *= block;
  else shape = {block};
  if (blocks.type() != element_type::u8)
    throw error(errc::dtype, "is " + std::string(name_of(blocks.type())) + " and U8 is expected", 0,
                blocks.name());
  return blocks.reshaped(std::move(shape), element_type::f4).scaled(scales, 1, block);
}

// Finds what makes one weight.
class weight_parts {
 public:
  weight_parts(const std::string& name, const find_array& find)
      : name_(name),
        find_(find),
        own_(find(name)) {}

  std::optional<array> joined() const {
    if (!own_) return of_four_bits();
    if (own_->is_scaled()) return own_;
    if (block_of(own_->type()) > 1) return of_ggml();
    switch (own_->type()) {
      case element_type::f8_e4m3:
      case element_type::i8: return of_eight_bits();
      case element_type::u8: return of_four_bits();
      default: return own_;
    }
  }

 private:
  std::optional<array> beside(std::string_view ending) const {
    return find_(name_ + std::string(ending));
  }
  std::optional<array> in_place_of_weight(std::string_view ending) const {
    const auto stem = without(name_, ".weight");
    return stem ? find_(*stem + std::string(ending)) : std::nullopt;
  }
  void pass_over_activations() const {
    std::ranges::for_each(of_activations, [&](std::string_view e) { in_place_of_weight(e); });
  }

  std::optional<array> of_ggml() const {
    pass_over_activations();
    const auto factors = in_place_of_weight(of_matrices);
    return factors ? fp8_weights(*own_, *factors) : own_;
  }

  std::optional<array> of_eight_bits() const {
    std::optional<array> scales = beside("_scale_inv");
    if (!scales) scales = beside("_scale");
    if (!scales) return own_;
    pass_over_activations();
    const std::optional<array> zeros = beside("_zero_point");
    return eight_bits(*own_, *scales, zeros ? &*zeros : nullptr);
  }

  std::optional<array> of_four_bits() const {
    if (const auto stem = without(name_, mxfp4_ending)) {
      const auto scales = own_ ? find_(*stem + "_scales") : std::nullopt;
      return scales ? mxfp4_weights(*own_, *scales) : own_;
    }
    const std::optional<array> codes = own_ ? own_ : beside("_packed");
    const std::optional<array> scales = codes ? beside("_scale") : std::nullopt;
    if (!scales) return own_;
    if (codes->type() == element_type::i32) {
      pass_over_activations();
      return of_words(*codes, *scales);
    }
    const bool is_nvfp4 = scales->type() == element_type::f8_e4m3,
               is_mxfp4 =
                   scales->type() == element_type::u8 || scales->type() == element_type::f8_e8m0;
    if (codes->type() != element_type::u8 || (!is_nvfp4 && !is_mxfp4)) {
      if (own_) return own_;  // bytes, and something else beside them
      throw error(errc::dtype,
                  "is " + std::string(name_of(codes->type())) + " with scales " +
                      std::string(name_of(scales->type())) +
                      ": I32 is expected, or U8 with scales F8_E4M3, F8_E8M0 or U8",
                  0, codes->name());
    }
    pass_over_activations();
    const array weights = in_rows(*codes, element_type::f4, 2);
    const extent columns = weights.shape().back(), block = is_nvfp4 ? 16 : 32;
    if (columns != 0 && block_of_row(*scales, columns) != block)
      throw error(errc::shape,
                  "is " + text_of(codes->shape()) + " of U8 with scales " +
                      text_of(scales->shape()) + ", and " + (is_nvfp4 ? "NVFP4" : "MXFP4") +
                      " has one for " + std::to_string(block) + " numbers of four bits",
                  0, codes->name());
    const std::optional<array> factor = beside("_scale_2"), divisor = beside("_global_scale");
    const array* const whole = factor ? &*factor : divisor ? &*divisor : nullptr;
    if (is_nvfp4 && whole == nullptr)
      throw error(errc::missing_tensor,
                  "is missing, and so is " + in_quotes(name_ + "_global_scale") +
                      ": a weight of NVFP4 has one of them",
                  0, name_ + "_scale_2");
    return weights.scaled(*scales, 1, block, {whole, !factor, nullptr});
  }

  array of_words(const array& words, const array& scales) const {
    if (const auto order = beside("_g_idx"))
      throw error(errc::extra_tensor, "gives columns groups of their own, which fmoe does not read",
                  0, order->name());
    const std::optional<array> shape = beside("_shape"), zeros = beside("_zero_point");
    if (!shape)
      throw error(errc::missing_tensor,
                  "is missing, and has the shape of " + in_quotes(words.name()), 0,
                  name_ + "_shape");
    const array weights = in_rows(words, element_type::i4, 8);
    const std::vector<extent>& own = weights.shape();
    if (!shape->is_outline()) {
      const std::vector<extent> said = shape->integers<extent>();
      if (said.size() > own.size() || !std::equal(said.rbegin(), said.rend(), own.rbegin()))
        throw error(errc::shape,
                    "is " + text_of(words.shape()) + " of I32, which is not " + text_of(said) +
                        " in four bits: fmoe reads whole words of eight numbers",
                    0, words.name());
    }
    return weights.scaled(scales, 1, block_of_row(scales, own.back()),
                          {nullptr, false, zeros ? &*zeros : nullptr});
  }

  // Returns codes that share an element as those of another type.
  static array in_rows(const array& codes, element_type type, extent each) {
    std::vector<extent> shape = codes.shape();
    if (shape.empty() || !multiply(shape.back(), each, shape.back()))
      throw error(errc::shape, "is " + text_of(shape) + ", which has no rows of codes", 0,
                  codes.name());
    return codes.reshaped(std::move(shape), type);
  }

  // Returns the size of blocks that are parts of a row, of which there are as many as scales.
  static extent block_of_row(const array& scales, extent columns) {
    const extent count = scales.shape().empty() ? 0 : scales.shape().back();
    if (count == 0 || columns % count != 0)
      throw error(errc::shape,
                  "is " + text_of(scales.shape()) + ", which does not divide rows of " +
                      std::to_string(columns) + " evenly",
                  0, scales.name());
    return std::max<extent>(columns / count, 1);
  }

  const std::string& name_;
  const find_array& find_;
  std::optional<array> own_;
};

FMOE_INLINE std::optional<array> weight_of(const std::string& name, const find_array& find) {
  return weight_parts(name, find).joined();
}

FMOE_INLINE arrays_by_name with_scales(arrays_by_name arrays) {
  std::vector<std::string> names;
  for (const auto& [name, a] : arrays) {
    const auto stem = without(name, "_packed");
    names.push_back(stem && !arrays.contains(*stem) ? *stem : name);
  }
  for (const std::string& name : names) {
    std::vector<std::string> used;
    const auto found = weight_of(name, [&](const std::string& part) -> std::optional<array> {
      const auto at = arrays.find(part);
      if (at == arrays.end()) return {};
      used.push_back(part);
      return at->second;
    });
    if (!found || !found->is_scaled() || used.size() < 2) continue;
    for (const std::string& part : used) arrays.erase(part);
    arrays.insert_or_assign(name, *found);
  }
  return arrays;
}

}  // namespace fmoe::io

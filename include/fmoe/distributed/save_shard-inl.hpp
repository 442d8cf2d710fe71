// SPDX-License-Identifier: MIT
// How ranks write one file.
#pragma once

#include <algorithm>
#include <memory>

#include <fmoe/distributed/save_shard.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/quantized_arrays.hpp>
#include <fmoe/io/safetensors_layout.hpp>

namespace fmoe::detail {

// Where the numbers of a parameter lie in a file, and the scales of one of 8 bits.
struct places_in_file {
  std::uint64_t numbers, scales;
};

// Writes a part of a parameter.
inline void write_part(io::file_in_parts& file, const places_in_file& at, const cut_parameter& p,
                       const released_name& name, const axis_cut& cut, extent i) {
  const std::string flat = io::without_parentheses(name.file_labels);
  const auto in_file = [&](const any_tensor& t) {
    return io::permuted(t, name.layer_labels, flat);
  };
  const any_tensor own = in_file(p.own[i]), whole = in_file(p.whole);
  const auto write = [&](std::uint64_t begin, const io::axis_part& part, extent element_bytes,
                         const std::byte* bytes) {
    for_each_run(part, element_bytes, [&](extent from, extent to, extent run) {
      file.write(begin + to, {bytes + from, run});
    });
  };
  const io::axis_part part{whole.shape, flat.find(cut_letter(cut.label, name)),
                           p.block * cut.begin(cut.own(i)), p.block * cut.count(cut.own(i))};
  const auto* const bytes = static_cast<const std::byte*>(own.elements->data());
  write(at.numbers, part, size_of(own.type), bytes);
  if (!is_quantized_type(own.type)) return;
  const quantized_layout layout(own.type, element_count(own.shape), own.axis);
  write(at.scales, scales_of_part(whole, part), layout.scale_bytes, bytes + layout.first_scale());
}

FMOE_INLINE void save_parts(const io::released_layer& whole, communicator& ranks,
                            const axis_cut& cut, const std::vector<cut_parameter>& parameters,
                            const std::filesystem::path& path, const save_options& options) {
  static_assert(io::host_is_little_endian, "save: ranks write numbers as they lie in memory");
  expects<value_error>(!options.type, "[save] ranks write numbers in the layer's type");
  const auto from = io::arrays_of(whole, path, options);
  const io::safetensors_layout layout(from.arrays, from.metadata, path);

  std::unique_ptr<io::file_in_parts> file;
  std::string successor;
  if (ranks.rank() == 0) {
    file = std::make_unique<io::file_in_parts>(path);
    successor = path_text(file->successor());
  }
  successor = ranks.first_text(successor);
  if (ranks.rank() > 0) file = std::make_unique<io::file_in_parts>(path, path_named(successor));
  ranks.first_text("");  // all have opened it, which a rank that fails takes away

  if (ranks.rank() == 0) file->write(0, layout.header());
  for (const released_parameter& p : whole.parameters) {
    const std::string name = options.prefix + p.name.name;
    const auto array = from.arrays.find(name);
    if (array == from.arrays.end()) continue;
    const auto elements = p.parameter.value().elements;
    const auto is_it = [&](const cut_parameter& c) {
      return c.whole.elements->same_elements(*elements);
    };
    const auto cut_here = std::ranges::find_if(parameters, is_it);
    const auto scales = from.arrays.find(io::name_of_scales(name));
    const bool has_scales = is_quantized_type(p.parameter.type());
    const places_in_file at{layout.begin_of(name), has_scales ? layout.begin_of(scales->first) : 0};
    if (cut_here == parameters.end()) {
      if (ranks.rank() == 0) file->write(at.numbers, array->second.bytes());
      if (ranks.rank() == 0 && has_scales) file->write(at.scales, scales->second.bytes());
      continue;
    }
    for (std::size_t i = 0; i < cut.parts_a_rank(); ++i)
      write_part(*file, at, *cut_here, p.name, cut, i);
  }
  if (ranks.rank() > 0) file->finish();
  ranks.first_text("");  // all have written
  if (ranks.rank() == 0) file->replace();
  ranks.first_text("");  // and the file is there
}

}  // namespace fmoe::detail

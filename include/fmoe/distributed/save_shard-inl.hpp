// SPDX-License-Identifier: MIT
// How ranks write one file.
#pragma once

#include <algorithm>
#include <memory>

#include <fmoe/distributed/save_shard.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/safetensors_layout.hpp>

namespace fmoe::detail {

// Writes a part of an array, whose axes have these labels in the file, behind byte `at`.
inline void write_part(io::file_in_parts& file, std::uint64_t at, const cut_parameter& p,
                       const released_name& name, const axis_cut& cut, extent i) {
  const std::string flat = io::without_parentheses(name.file_labels);
  const any_tensor part = io::permuted(p.own[i], name.layer_labels, flat);
  const extent axis = flat.find(cut_letter(cut.label, name)), own = cut.own(i);
  const extent inner = p.block * element_count(std::span(part.shape).subspan(axis + 1)) *
                       size_of(part.type),
               outer = element_count(std::span(part.shape).first(axis)),
               run = cut.count(own) * inner;
  const auto* const from = static_cast<const std::byte*>(part.elements->data());
  for (extent o = 0; o < outer; ++o)
    file.write(at + (o * cut.length + cut.begin(own)) * inner, {from + o * run, run});
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
    const std::uint64_t at = layout.begin_of(name);
    if (cut_here == parameters.end()) {
      if (ranks.rank() == 0) file->write(at, array->second.bytes());
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

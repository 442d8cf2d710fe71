// SPDX-License-Identifier: MIT
// Saves a layer that is cut over ranks as one file, which each rank writes its part of.
#pragma once

#include <memory>
#include <optional>

#include <fmoe/distributed/sharded.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/safetensors_layout.hpp>

namespace fmoe::detail {

// Writes a part of an array, whose axes have these labels in the file, behind byte `at`.
inline void write_part(io::file_in_parts& file, std::uint64_t at, const cut_parameter& p,
                       const released_name& name, const axis_cut& cut, extent i) {
  const std::string flat = io::without_parentheses(name.file_labels);
  const any_tensor part = io::permuted(p.own[i], name.layer_labels, flat);
  const extent axis = flat.find(cut.label), own = cut.own(i);
  const extent inner = element_count(std::span(part.shape).subspan(axis + 1)) * size_of(part.type),
               outer = element_count(std::span(part.shape).first(axis)),
               run = cut.count(own) * inner;
  const auto* const from = static_cast<const std::byte*>(part.elements->data());
  for (extent o = 0; o < outer; ++o)
    file.write(at + (o * cut.length + cut.begin(own)) * inner, {from + o * run, run});
}

}  // namespace fmoe::detail

namespace fmoe {

// Writes the file that `save` of the whole layer writes. No rank holds the whole layer: each writes
// its parts, and rank 0 the rest, so all of them see the file's folder. If one fails, all throw its
// sentence, and an old file stays unchanged.
template <class Layer>
void save(const sharded<Layer>& layer, const std::filesystem::path& path,
          const save_options& options = {}) {
  static_assert(io::host_is_little_endian, "save: ranks write numbers as they lie in memory");
  communicator& ranks = *layer.ranks;
  ranks.guarded([&] {
    detail::expects<value_error>(!options.type, "[save] ranks write numbers in the layer's type");
    Layer whole = layer.whole;
    const auto from = io::arrays_of(layer.whole, path, options);
    const io::safetensors_layout layout(from.arrays, from.metadata, path);
    std::uint64_t bytes = 0;
    for (const auto piece : layout.pieces()) bytes += piece.size();

    std::unique_ptr<io::file_in_parts> file;
    std::string successor;
    if (ranks.rank() == 0) {
      file = std::make_unique<io::file_in_parts>(path, bytes);
      successor = file->successor().native();
    }
    successor = ranks.first_text(successor);
    if (ranks.rank() > 0) file = std::make_unique<io::file_in_parts>(path, successor);

    if (ranks.rank() == 0) file->write(0, layout.header());
    for (const detail::released_parameter& p : detail::released_parameters(whole)) {
      const std::string name = options.prefix + p.name.name;
      const auto array = from.arrays.find(name);
      if (array == from.arrays.end()) continue;
      const auto elements = p.parameter.value().elements;
      const auto is_it = [&](const detail::cut_parameter& c) {
        return c.whole.elements->same_elements(*elements);
      };
      const auto cut = std::ranges::find_if(layer.parameters, is_it);
      const std::uint64_t at = layout.begin_of(name);
      if (cut == layer.parameters.end()) {
        if (ranks.rank() == 0) file->write(at, array->second.bytes());
        continue;
      }
      for (std::size_t i = 0; i < layer.cut.parts_a_rank(); ++i)
        detail::write_part(*file, at, *cut, p.name, layer.cut, i);
    }
    if (ranks.rank() > 0) file->finish();
    ranks.first_text("");  // all have written
    if (ranks.rank() == 0) file->replace();
    ranks.first_text("");  // and the file is there
  });
}

}  // namespace fmoe

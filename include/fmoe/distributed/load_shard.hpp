// SPDX-License-Identifier: MIT
// Loads the part of a layer that a rank needs, and reads no other bytes of its file.
#pragma once

#include <filesystem>
#include <map>

#include <fmoe/distributed/sharded.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/dictionary.hpp>
#include <fmoe/io/opened_safetensors.hpp>
#include <fmoe/io/quantized_arrays.hpp>
#include <fmoe/io/scaled_arrays.hpp>

namespace fmoe::detail {

// The tensors of a file from which the parameters of a layer come that have a label.
struct labelled_tensors {
  std::map<std::string, io::axis_part> cut;     // by name, with the axis of the label
  std::map<std::string, std::string> labels;    // of all with the label, as the file has them
  std::map<std::string, char> letters;          // of these, the axis of the label
  std::map<char, extent> lengths;               // of all labels
  std::vector<std::string> others;              // tensors that are not cut
  std::vector<std::string> whole;               // of these, those with the label
  std::map<std::string, any_tensor> of_8_bits;  // of all with the label, without elements
};

// The scales of a tensor of 8 bits, or null.
inline const io::tensor_entry* scales_of(const io::opened_safetensors& file,
                                         const std::string& name) {
  const io::tensor_entry* const t = file.find(name);
  const bool is_of_integers = t != nullptr && t->type == io::element_type::i8;
  return is_of_integers ? file.find(io::name_of_scales(name)) : nullptr;
}

// Throws dtype for a parameter of FP8 or MXFP4, whose scales have blocks of two axes.
inline void refuse_scaled(const io::layer_arrays& outlines,
                          const std::vector<released_parameter>& parameters,
                          const std::string& prefix) {
  const io::arrays_by_name scaled = io::with_scales(outlines.arrays);
  for (const released_parameter& p : parameters)
    if (const auto at = scaled.find(prefix + p.name.name);
        at != scaled.end() && at->second.is_scaled())
      throw io::error(io::errc::dtype,
                      "is " + std::string(io::name_of(at->second.type())) +
                          " with scales, which load_shard does not read: load the layer and "
                          "shard it",
                      0, at->first, outlines.file);
}

// Reads a tensor, and its scales if it has some.
inline void read_whole(io::opened_safetensors& file, const std::string& name,
                       io::arrays_by_name& to) {
  to.insert_or_assign(name, file.read(*file.find(name)));
  if (const auto* const scales = scales_of(file, name))
    to.insert_or_assign(scales->name, file.read(*scales));
}

// `shapes` is a layer with the shapes of the file.
inline labelled_tensors tensors_with(const axis_cut& cut, const io::released_layer& shapes,
                                     const io::opened_safetensors& file,
                                     const std::string& prefix) {
  labelled_tensors found;
  for (const released_parameter& p : shapes.parameters) {
    const any_tensor value = p.parameter.value();
    for (extent k = 0; k < value.shape.size() && !value.empty(); ++k)
      found.lengths[p.name.layer_labels[k]] = value.shape[k];
  }
  for (const released_parameter& p : shapes.parameters) {
    const bool is_replaced =
        !p.name.unless.empty() && file.find(prefix + std::string(p.name.unless)) != nullptr;
    const std::string name = prefix + p.name.name;
    if (is_replaced || file.find(name) == nullptr) continue;
    const std::string flat = io::without_parentheses(p.name.file_labels);
    const char letter = cut_letter(cut, shapes.parameters, p);
    if (letter == 0) {
      found.others.push_back(name);
      if (cut_letter(cut.label, p.name) == 0) continue;
      found.whole.push_back(name);
    }
    io::axis_part part{{}, position_of(letter, flat), 0, 0};
    for (const char c : flat) part.shape.push_back(found.lengths[c]);
    if (const auto* const scales = scales_of(file, name)) {
      const auto stored =
          io::quantized_from(file.outline(*file.find(name)), file.outline(*scales), part.shape);
      if (letter != 0) check_blocks(cut, p.name.name, *stored, part.axis);
      found.of_8_bits.emplace(name, *stored);
    }
    if (letter != 0) found.cut[name] = std::move(part);
    found.labels[name] = p.name.file_labels;
    found.letters[name] = cut_letter(cut.label, p.name);
  }
  return found;
}

// The shape of a tensor with the label, in a layer with so many entries of it.
inline std::vector<extent> part_shape(const labelled_tensors& of, const std::string& name,
                                      extent part) {
  std::vector<extent> shape;
  for (const std::string& axis : io::axes_in(of.labels.at(name))) {
    extent n = 1;
    for (const char c : axis) n *= c == of.letters.at(name) ? part : of.lengths.at(c);
    shape.push_back(n);
  }
  return shape;
}

// Reads `count` entries from `first` on of a tensor that has the label, or blocks for them.
inline void read_part(io::opened_safetensors& file, const labelled_tensors& of,
                      const std::string& name, char label, extent first, extent count,
                      io::arrays_by_name& to) {
  io::axis_part part = of.cut.at(name);
  const extent block = part.shape[part.axis] / of.lengths.at(label);
  part.first = block * first;
  part.count = block * count;
  to.insert_or_assign(name, file.read(*file.find(name), part, part_shape(of, name, part.count)));
  const auto stored = of.of_8_bits.find(name);
  if (stored == of.of_8_bits.end()) return;
  const io::axis_part scales = scales_of_part(stored->second, part);
  std::vector<extent> shape = scales.shape;
  shape[scales.axis] = scales.count;
  const io::tensor_entry& t = *scales_of(file, name);
  to.insert_or_assign(t.name, file.read(t, scales, std::move(shape)));
}

// Puts outlines of so many entries of a tensor in the place of what is whole.
inline void outline_part(const labelled_tensors& of, const std::string& name, extent count,
                         io::arrays_by_name& to) {
  const auto put = [&](const std::string& array, std::vector<extent> shape) {
    io::array& known = to.at(array);
    known = io::array::outline(known.type(), std::move(shape), array, nullptr);
  };
  put(name, part_shape(of, name, count));
  const auto stored = of.of_8_bits.find(name);
  if (stored == of.of_8_bits.end()) return;
  const extent axis = io::without_parentheses(of.labels.at(name)).find(of.letters.at(name));
  put(io::name_of_scales(name),
      io::arrays_of(outline_of_part(stored->second, axis, count)).scales.shape());
}

// Throws schema for a dictionary with the names and the order of axes of other libraries.
inline void refuse_other_axes(const io::layer_arrays& outlines, const io::released_layer& layer,
                              const std::string& prefix) {
  if (!io::is_dictionary(layer) || outlines.metadata.contains("kind")) return;
  const auto library = io::library_of(outlines, prefix);
  if (library != io::dictionary_library::none && library != io::dictionary_library::saelens)
    throw io::error(io::errc::schema,
                    "has the tensors of another library, which load_shard does not cut: load the "
                    "layer and shard it",
                    0, {}, outlines.file);
}

}  // namespace fmoe::detail

namespace fmoe {

// Loads a layer on the ranks of a job. Of each tensor that has the label, which `released` says, a
// rank reads its part, and of 8-bit weights the scales of its part; the others it reads whole, and
// statistics as well. Throws, on every rank, the sentence of what load throws on one, of what shard
// throws, or of ranks that disagree on what the file holds.
//
//   const auto part = load_shard<mxd<>>("mxd.safetensors", ranks, 'n');
//   auto forward = compile(part, 128);
template <detail::has_released_names Layer>
sharded<Layer> load_shard(const std::filesystem::path& path, communicator& ranks, char label,
                          const load_options& options = {}, const shard_options& how = {}) {
  return ranks.guarded([&] {
    io::opened_safetensors file(path);
    io::layer_arrays outlines{path, file.header().metadata, {}};
    for (const io::tensor_entry& t : file.header().tensors)
      outlines.arrays.emplace(t.name, file.outline(t));

    Layer none;
    detail::refuse_scaled(outlines, detail::released_parameters(none), options.prefix);
    for (const detail::released_parameter& p : detail::released_parameters(none)) {
      const std::string name = options.prefix + p.name.name;
      const auto* const found = p.name.trained ? nullptr : file.find(name);
      if (found != nullptr) detail::read_whole(file, name, outlines.arrays);
    }
    detail::refuse_other_axes(outlines, io::released_layer(none), options.prefix);
    for (const io::dictionary_name& other : io::dictionary_names) {  // numbers count for each part
      const std::string name = options.prefix + std::string(other.name);
      const auto* const found = file.find(name);
      if (found != nullptr && found->shape.empty()) detail::read_whole(file, name, outlines.arrays);
    }

    Layer shapes = io::layer_from<Layer>(outlines, options);
    const io::released_layer list(shapes);
    const detail::axis_cut cut = detail::cut_of(list.parameters, label, ranks, how);
    ranks.agree(detail::description_of(list, cut));
    const auto tensors = detail::tensors_with(cut, list, file, options.prefix);

    io::layer_arrays whole = outlines;
    for (const std::string& name : tensors.others)
      if (whole.arrays.at(name).is_outline()) detail::read_whole(file, name, whole.arrays);
    for (const io::dictionary_name& other : io::dictionary_names)
      if (const std::string name = options.prefix + std::string(other.name);
          io::is_dictionary(list) && file.find(name) != nullptr)
        detail::read_whole(file, name, whole.arrays);
    std::vector<std::string> listed;  // above, the names that nothing reads
    load_options quiet = options;
    quiet.extra = &listed;
    sharded<Layer> result{&ranks,   io::layer_from<Layer>(whole, quiet), cut, {}, how.network,
                          how.spans};
    const auto labelled = [&](Layer& layer) {
      std::vector<detail::released_parameter> with;
      const auto every = detail::released_parameters(layer);
      for (const detail::released_parameter& p : every)
        if (detail::cut_letter(cut, every, p) != 0 && !p.parameter.value().empty())
          with.push_back(p);
      return with;
    };
    for (const detail::released_parameter& p : labelled(result.whole)) {
      const detail::any_tensor value = p.parameter.value();
      const std::size_t axis =
          detail::position_of(detail::cut_letter(label, p.name), p.name.layer_labels);
      result.parameters.push_back({value, axis, value.shape[axis] / cut.length, {}});
    }

    for (std::size_t i = 0; i < cut.parts_a_rank(); ++i) {
      io::layer_arrays part{path, {}, outlines.arrays};  // settings count for the whole layer
      const std::size_t count = cut.count(cut.own(i));
      for (const auto& [name, axis] : tensors.cut)
        detail::read_part(file, tensors, name, label, cut.begin(cut.own(i)), count, part.arrays);
      for (const std::string& name : tensors.whole) {  // its length fits those that are cut
        const std::size_t block = tensors.lengths.at(tensors.letters.at(name)) / cut.length;
        detail::outline_part(tensors, name, block * count, part.arrays);
      }
      Layer own;
      io::fill_part(io::released_layer(own), part,
                    {.prefix = options.prefix, .narrow = options.narrow});
      const auto with = labelled(own);
      for (std::size_t k = 0; k < with.size(); ++k)
        result.parameters[k].own.push_back(with[k].parameter.value());
    }
    result.bytes_read = file.bytes_read();
    return result;
  });
}

}  // namespace fmoe

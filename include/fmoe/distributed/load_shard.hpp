// SPDX-License-Identifier: MIT
// Loads the part of a layer that a rank needs, and reads no other bytes of its file.
#pragma once

#include <filesystem>
#include <map>

#include <fmoe/distributed/sharded.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/opened_safetensors.hpp>

namespace fmoe::detail {

// The tensors of a file from which the parameters of a layer come that have a label.
struct labelled_tensors {
  std::map<std::string, io::axis_part> cut;   // by name, with the axis of the label
  std::map<std::string, std::string> labels;  // of all with the label, as the file has them
  std::map<std::string, char> letters;        // of these, the axis of the label
  std::map<char, extent> lengths;             // of all labels
  std::vector<std::string> others;            // tensors that are not cut
  std::vector<std::string> whole;             // of these, those with the label
};

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
inline io::array read_part(io::opened_safetensors& file, const labelled_tensors& of,
                           const std::string& name, char label, extent first, extent count) {
  io::axis_part part = of.cut.at(name);
  const extent block = part.shape[part.axis] / of.lengths.at(label);
  part.first = block * first;
  part.count = block * count;
  return file.read(*file.find(name), part, part_shape(of, name, part.count));
}

}  // namespace fmoe::detail

namespace fmoe {

// Loads a layer on the ranks of a job. Of each tensor that has the label, which `released` says, a
// rank reads its part; the others it reads whole, and statistics as well. Throws, on every rank,
// the sentence of what load throws on one, of what shard throws, or of ranks that disagree on what
// the file holds.
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
    for (const detail::released_parameter& p : detail::released_parameters(none)) {
      const std::string name = options.prefix + p.name.name;
      const auto* const found = p.name.trained ? nullptr : file.find(name);
      if (found != nullptr) outlines.arrays.insert_or_assign(name, file.read(*found));
    }

    Layer shapes = io::layer_from<Layer>(outlines, options);
    const io::released_layer list(shapes);
    const detail::axis_cut cut = detail::cut_of(list.parameters, label, ranks, how);
    ranks.agree(detail::description_of(list, cut));
    const auto tensors = detail::tensors_with(cut, list, file, options.prefix);

    io::layer_arrays whole = outlines;
    for (const std::string& name : tensors.others)
      if (whole.arrays.at(name).is_outline())
        whole.arrays.insert_or_assign(name, file.read(*file.find(name)));
    load_options quiet = options;  // the names that the layer does not know were listed above
    quiet.extra = nullptr;
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
      for (const auto& [name, axis] : tensors.cut)
        part.arrays.insert_or_assign(
            name, detail::read_part(file, tensors, name, label, cut.begin(cut.own(i)),
                                    cut.count(cut.own(i))));
      for (const std::string& name : tensors.whole) {  // its length fits those that are cut
        const auto& known = outlines.arrays.at(name);
        const std::size_t block = tensors.lengths.at(tensors.letters.at(name)) / cut.length;
        part.arrays.insert_or_assign(
            name,
            io::array::outline(known.type(),
                               detail::part_shape(tensors, name, block * cut.count(cut.own(i))),
                               name, nullptr));
      }
      Layer own = io::layer_from<Layer>(part, {.prefix = options.prefix, .narrow = options.narrow});
      const auto with = labelled(own);
      for (std::size_t k = 0; k < with.size(); ++k)
        result.parameters[k].own.push_back(with[k].parameter.value());
    }
    result.bytes_read = file.bytes_read();
    return result;
  });
}

}  // namespace fmoe

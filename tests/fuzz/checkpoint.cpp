// SPDX-License-Identifier: MIT
// An index and a shard: the input is the text of an index, a byte of 0, and the bytes of the shard
// "a", which the index may name. Whatever they are, a checkpoint is opened, its tensors are read
// and its layers are found, or an io::error says why not.
#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/layers_in.hpp>

#include "folder.hpp"
#include "fuzz.hpp"
#include "layer_types.hpp"

namespace fmoe::fuzz {
void judge(bytes input) {
  static const folder here;
  const auto end = std::ranges::find(input, std::byte{0});
  const auto index = static_cast<std::size_t>(end - input.begin());
  here.write("model.safetensors.index.json", input.first(index));
  here.write("a", input.subspan(std::min(index + 1, input.size())));

  std::optional<io::checkpoint> from;
  if (!only_throws<io::error>([&] { from = io::checkpoint::open(here.path); })) return;
  for (const std::string& name : from->names()) {
    const bool has_outline = only_throws<io::error>([&] { from->outline_of(name); });
    const bool is_read = only_throws<io::error>([&] { from->at(name); });
    expects(has_outline || !is_read, "what can be read has an outline");
  }
  for_each_layer_type([&]<class Layer>(Layer*) {
    only_throws<io::error>([&] {
      for (const io::found_layer& found : io::layers_in<Layer>(*from))
        only_throws<io::error, shape_error, value_error>(
            [&] { outline<Layer>(*from, {.prefix = found.prefix}); });
    });
  });
}

}  // namespace fmoe::fuzz

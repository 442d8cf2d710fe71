// SPDX-License-Identifier: MIT
// The parts of a safetensors file with given arrays: its header and the order of its data.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/io/array.hpp>
#include <fmoe/io/json_string.hpp>
#include <fmoe/io/safetensors_header-inl.hpp>

namespace fmoe::io {

// The header names the arrays in order and is padded with blanks to 64 bytes. The data of wider
// elements come first, so that every element is aligned; arrays of equal width keep the order of
// their names. `arrays` must outlive this.
class safetensors_layout {
 public:
  // Throws what reading the result would throw.
  safetensors_layout(const arrays_by_name& arrays, const strings_by_name& metadata,
                     const std::filesystem::path& file) {
    std::vector<arrays_by_name::const_pointer> order;
    for (const auto& a : arrays) order.push_back(&a);
    std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) {
      return bits_of(a->second.type()) > bits_of(b->second.type());
    });
    std::uint64_t end = 0;
    for (const auto* a : order) {
      begins_[a->first] = end;
      end += a->second.bytes().size();
      data_.push_back(a->second.bytes());
    }

    std::string text = "{";
    const auto separate = [&] { text += text.back() == '{' || text.back() == '[' ? "" : ","; };
    if (!metadata.empty()) {
      text += "\"__metadata__\":{";
      for (const auto& [key, value] : metadata) {
        separate();
        text += json_quoted(key) + ':' + json_quoted(value);
      }
      text += '}';
    }
    for (const auto& [name, a] : arrays) {
      const auto begin = begins_[name];
      separate();
      text +=
          json_quoted(name) + ":{\"dtype\":\"" + std::string(name_of(a.type())) + "\",\"shape\":[";
      for (const extent n : a.shape()) {
        separate();
        text += std::to_string(n);
      }
      text += "],\"data_offsets\":[" + std::to_string(begin) + ',' +
              std::to_string(begin + a.bytes().size()) + "]}";
    }
    text += '}';
    text.resize(round_up(header_at + text.size(), 64) - header_at, ' ');

    const subject written{file, header_at + text.size() + end};
    for (const auto& [name, a] : arrays)
      if (a.is_scaled())
        written.fail(errc::dtype, 0, "has scales beside it: write the floats that get makes of it",
                     name);
    if (text.size() > max_header)
      written.fail(errc::header_len, 0, "would have a header of more than 100 MB");
    if (arrays.contains("__metadata__"))
      written.fail(errc::schema, 0, "cannot be a tensor's name", "__metadata__");
    judge_header(text, written);

    std::array<std::byte, header_at> length{};
    store_little<std::uint64_t>(text.size(), length.data());
    header_.assign(length.begin(), length.end());
    const auto characters = std::as_bytes(std::span(text));
    header_.insert(header_.end(), characters.begin(), characters.end());
  }

  // Returns the pieces that, one after the other, form the file.
  std::vector<std::span<const std::byte>> pieces() const {
    std::vector<std::span<const std::byte>> result = {header_};
    result.insert(result.end(), data_.begin(), data_.end());
    return result;
  }

  std::span<const std::byte> header() const { return header_; }
  // The byte of the file where an array begins.
  std::uint64_t begin_of(std::string_view name) const {
    return header_.size() + begins_.find(name)->second;
  }

 private:
  std::map<std::string_view, std::uint64_t> begins_;
  std::vector<std::byte> header_;
  std::vector<std::span<const std::byte>> data_;
};

}  // namespace fmoe::io

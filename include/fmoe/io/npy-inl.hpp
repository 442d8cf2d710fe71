// SPDX-License-Identifier: MIT
// Reading and writing of .npy files.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include <fmoe/io/file-inl.hpp>
#include <fmoe/io/npy.hpp>
#include <fmoe/io/npy_header.hpp>

namespace fmoe::io::npy {

inline constexpr std::string_view magic = "\x93NUMPY";
inline constexpr std::uint64_t max_header = 10000;  // bytes, the limit of numpy itself

// Copies the elements of `from`, which are in column-major order, to `to` in row-major order.
inline void transpose(std::span<const std::byte> from, std::span<std::byte> to,
                      std::span<const extent> shape, extent element_size) {
  std::vector<extent> strides(shape.size(), element_size), index(shape.size(), 0);
  for (extent axis = 1; axis < shape.size(); ++axis)
    strides[axis] = strides[axis - 1] * shape[axis - 1];
  extent at = 0;
  for (extent done = 0; done < to.size(); done += element_size) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), element_size,
                to.begin() + static_cast<std::ptrdiff_t>(done));
    for (extent axis = shape.size(); axis-- > 0;) {
      at += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

struct header_text {
  std::string text;
  std::uint64_t at;  // byte of the file
};

inline header_text read_header(const input& in) {
  std::array<std::byte, 12> start{};
  const auto present = std::min<std::uint64_t>(in.size, start.size());
  in.read(0, std::span(start).first(present));
  const auto shown = std::min<std::uint64_t>(present, magic.size());
  if (!std::equal(start.begin(), start.begin() + static_cast<std::ptrdiff_t>(shown), magic.begin(),
                  [](std::byte b, char c) { return b == static_cast<std::byte>(c); }))
    in.fail(errc::magic, 0, "is not a .npy file");
  if (present < magic.size() + 2) in.fail(errc::truncated, in.size, "is too short for a .npy file");
  const auto major = std::to_integer<unsigned>(start[6]),
             minor = std::to_integer<unsigned>(start[7]);
  const bool is_known = major >= 1 && major <= 3 && minor == 0;
  if (!is_known)
    in.fail(errc::version, 6,
            "has the unknown version " + std::to_string(major) + '.' + std::to_string(minor));

  header_text header{{}, major == 1 ? 10u : 12u};
  if (present < header.at) in.fail(errc::truncated, in.size, "is too short for a .npy file");
  const std::uint64_t size = major == 1 ? load_little<std::uint16_t>(start.data() + 8)
                                        : load_little<std::uint32_t>(start.data() + 8);
  if (size > std::min(max_header, in.size - header.at))
    in.fail(errc::header_len, 8,
            "has a header of " + std::to_string(size) +
                " bytes, more than the file or the limit of 10000");
  header.text.resize(size);
  in.read(header.at, std::as_writable_bytes(std::span(header.text)));

  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  const auto ascii_end = std::find_if_not(header.text.begin(), header.text.end(), is_ascii);
  const auto fault = major == 3 ? utf8_fault(header.text)
                                : static_cast<std::size_t>(ascii_end - header.text.begin());
  if (fault != size) in.fail(errc::header, header.at + fault, "has a header that is not text");
  return header;
}

inline array read_array(const input& in) {
  const auto [text, text_at] = read_header(in);
  auto header = npy_header_judge(text, text_at, in).judge();

  const auto bits = count_bits(header.shape, bits_of(header.type));
  const std::uint64_t data_at = text_at + text.size();
  if (!bits) in.fail(errc::overflow, text_at, "has a shape whose size does not fit 64 bits");
  if (*bits / 8 > in.size - data_at)
    in.fail(errc::truncated, in.size, "has data beyond the file's end");
  if (*bits / 8 < in.size - data_at)
    in.fail(errc::layout, data_at + *bits / 8, "goes on behind its array");

  auto data = std::make_shared<memory>(*bits / 8);
  in.read(data_at, {data->data(), data->size()});
  const extent element_size = bits_of(header.type) / 8;
  if (header.big_endian)
    for (extent i = 0; i < data->size(); i += element_size)
      std::reverse(data->data() + i, data->data() + i + element_size);
  if (header.fortran_order && header.shape.size() > 1) {
    auto rows = std::make_shared<memory>(data->size());
    transpose({data->data(), data->size()}, {rows->data(), rows->size()}, header.shape,
              element_size);
    data = std::move(rows);
  }
  const std::span<const std::byte> bytes(data->data(), data->size());
  const auto file = std::make_shared<const std::filesystem::path>(in.file);
  return {header.type, std::move(header.shape), bytes, std::move(data), "", file};
}

FMOE_INLINE array read(const std::filesystem::path& file) { return read_array(input(file)); }

FMOE_INLINE array parse(std::span<const std::byte> bytes, const std::filesystem::path& file) {
  return read_array(input(bytes, file));
}

// Returns a header of version 1.0, padded like numpy's, so that the data begin at a multiple of 64.
// Throws what reading would throw.
inline std::vector<std::byte> header_of(const array& a, const std::filesystem::path& file) {
  constexpr std::size_t text_at = 10;
  const subject written{file, 0};
  const auto type = std::find_if(std::begin(npy_types), std::end(npy_types),
                                 [&](const npy_type& t) { return t.type == a.type(); });
  if (type == std::end(npy_types))
    written.fail(errc::dtype, 0, "cannot hold " + std::string(name_of(a.type())));
  std::string extents;
  for (const extent n : a.shape()) extents += std::to_string(n) + ", ";
  if (!extents.empty()) extents.resize(extents.size() - (a.shape().size() == 1 ? 1 : 2));
  std::string text = std::string("{'descr': '") + (bits_of(a.type()) == 8 ? '|' : '<') +
                     std::string(type->name) + "', 'fortran_order': False, 'shape': (" + extents +
                     "), }";
  text.resize(round_up(text_at + text.size() + 1, 64) - text_at - 1, ' ');
  text += '\n';
  npy_header_judge(text, text_at, written).judge();

  std::vector<std::byte> result(text_at + text.size());
  std::transform(magic.begin(), magic.end(), result.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  result[6] = std::byte{1};
  store_little(static_cast<std::uint16_t>(text.size()), result.data() + 8);
  std::transform(text.begin(), text.end(), result.begin() + text_at,
                 [](char c) { return static_cast<std::byte>(c); });
  return result;
}

FMOE_INLINE void write(const std::filesystem::path& file, const array& a) {
  const auto header = header_of(a, file);
  const std::span<const std::byte> pieces[] = {header, a.bytes()};
  write_file(file, pieces);
}

FMOE_INLINE std::vector<std::byte> serialize(const array& a) {
  auto result = header_of(a, {});
  result.insert(result.end(), a.bytes().begin(), a.bytes().end());
  return result;
}

}  // namespace fmoe::io::npy

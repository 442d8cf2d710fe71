// SPDX-License-Identifier: MIT
// Reads and writes numbers as files hold them: lowest byte first, at any address, on any host.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace fmoe::io {

inline constexpr bool host_is_little_endian = std::endian::native == std::endian::little;

// The unsigned integer with as many bytes as T.
template <class T>
using bits_of_t = std::conditional_t<
    sizeof(T) == 8, std::uint64_t,
    std::conditional_t<sizeof(T) == 4, std::uint32_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;

// Copies numbers of `size` bytes from the host's order to that of files, or back.
template <std::endian Host = std::endian::native>
void copy_little(std::span<const std::byte> from, std::size_t size, std::byte* to) {
  if constexpr (Host == std::endian::little) {
    std::copy(from.begin(), from.end(), to);
  } else {
    for (std::size_t at = 0; at < from.size(); at += size)
      std::reverse_copy(from.data() + at, from.data() + at + size, to + at);
  }
}

template <class T>
T load_little(const std::byte* from) {
  bits_of_t<T> bits = 0;
  if constexpr (host_is_little_endian) {
    std::memcpy(&bits, from, sizeof bits);
  } else {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bits = static_cast<bits_of_t<T>>(bits | std::uint64_t{std::to_integer<std::uint8_t>(from[i])}
                                                  << 8 * i);
  }
  return std::bit_cast<T>(bits);
}

template <class T>
void store_little(T value, std::byte* to) {
  const auto bits = std::bit_cast<bits_of_t<T>>(value);
  if constexpr (host_is_little_endian) {
    std::memcpy(to, &bits, sizeof bits);
  } else {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      to[i] = static_cast<std::byte>(std::uint64_t{bits} >> 8 * i & 0xff);
  }
}

}  // namespace fmoe::io

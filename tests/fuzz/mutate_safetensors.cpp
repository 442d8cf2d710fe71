// SPDX-License-Identifier: MIT
// Mutates a safetensors file so that the length before its header stays true for most mutants;
// bytes alone would rarely reach what lies behind the header.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  constexpr std::size_t prefix = 8;
  std::uint64_t header = 0;
  if (size >= prefix) std::memcpy(&header, data, prefix);
  const bool has_header = size >= prefix && header <= size - prefix && most >= 2 * prefix;
  if (!has_header || seed % 16 == 0) return LLVMFuzzerMutate(data, size, most);
  const std::uint8_t *const content = data + prefix, *const end = data + size;
  std::vector<std::uint8_t> text(content, content + header), rest(content + header, end);
  std::vector<std::uint8_t>& part = seed % 4 == 0 ? rest : text;
  const std::size_t room = most - prefix - text.size() - rest.size() + part.size(),
                    old = part.size();
  part.resize(std::max<std::size_t>(room, 1));
  part.resize(std::min(LLVMFuzzerMutate(part.data(), old, part.size()), room));
  header = text.size();
  std::memcpy(data, &header, prefix);
  std::ranges::copy(rest, std::ranges::copy(text, data + prefix).out);
  return prefix + text.size() + rest.size();
}

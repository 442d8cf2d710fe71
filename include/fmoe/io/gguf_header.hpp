// SPDX-License-Identifier: MIT
// Checks and reads the header of a GGUF file (ggml's docs/gguf.md): magic, version, counts,
// metadata, descriptions of tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmoe/io/file.hpp>
#include <fmoe/io/gguf_value.hpp>
#include <fmoe/io/tensor_entry.hpp>
#include <fmoe/io/utf8.hpp>

namespace fmoe::io {

inline constexpr std::string_view gguf_magic = "GGUF";

// The number that ggml gives to a type in a file.
struct ggml_number {
  std::uint32_t number;
  element_type type;
};
inline constexpr ggml_number ggml_numbers[] = {
    {0, element_type::f32},     {1, element_type::f16},      {2, element_type::q4_0},
    {3, element_type::q4_1},    {6, element_type::q5_0},     {7, element_type::q5_1},
    {8, element_type::q8_0},    {9, element_type::q8_1},     {10, element_type::q2_k},
    {11, element_type::q3_k},   {12, element_type::q4_k},    {13, element_type::q5_k},
    {14, element_type::q6_k},   {15, element_type::q8_k},    {16, element_type::iq2_xxs},
    {17, element_type::iq2_xs}, {18, element_type::iq3_xxs}, {19, element_type::iq1_s},
    {20, element_type::iq4_nl}, {21, element_type::iq3_s},   {22, element_type::iq2_s},
    {23, element_type::iq4_xs}, {24, element_type::i8},      {25, element_type::i16},
    {26, element_type::i32},    {27, element_type::i64},     {28, element_type::f64},
    {29, element_type::iq1_m},  {30, element_type::bf16},    {34, element_type::tq1_0},
    {35, element_type::tq2_0},  {39, element_type::mxfp4},   {40, element_type::nvfp4},
    {41, element_type::q1_0}};

// Reads the header from its first byte on.
class gguf_header_reader {
 public:
  // The bytes must outlive the values that are read.
  gguf_header_reader(std::span<const std::byte> bytes, const subject& in,
                     std::shared_ptr<const std::filesystem::path> file)
      : bytes_(bytes),
        in_(in),
        file_(std::move(file)) {}

  // Throws unless it can be read.
  void read() {
    read_start();
    for (std::uint64_t i = 0; i < value_count_; ++i) read_value();
    read_alignment();
    for (std::uint64_t i = 0; i < tensor_count_; ++i) read_tensor();
    const std::uint64_t rest = at_ % alignment;
    data_at = at_ + (rest == 0 ? 0 : alignment - rest);
    check_layout();
  }

  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::uint64_t data_at = 0;  // byte of the file, from which ranges count
  gguf_values values;
  std::vector<tensor_entry> tensors;  // in the order of the file

 private:
  static constexpr int max_depth = 16;
  static constexpr std::uint32_t ggml_rank = 4;  // GGML_MAX_DIMS

  void read_start() {
    const auto magic = text(std::min<std::uint64_t>(bytes_.size(), gguf_magic.size()));
    if (!gguf_magic.starts_with(magic)) in_.fail(errc::magic, 0, "is not a GGUF file");
    const std::uint64_t version_at = at_;
    version = number<std::uint32_t>();
    if (version != 0 && (version & 0xffff) == 0)
      in_.fail(errc::version, version_at, "is a GGUF file in big-endian order");
    if (version != 2 && version != 3)
      in_.fail(errc::version, version_at,
               "is a GGUF file of version " + std::to_string(version) + ", and 2 or 3 is expected");
    const std::uint64_t counts_at = at_;
    tensor_count_ = number<std::uint64_t>();
    value_count_ = number<std::uint64_t>();
    check_count(tensor_count_, 24, counts_at, "tensors");
    check_count(value_count_, 13, counts_at + 8, "values of metadata");
  }

  void read_value() {
    const std::uint64_t key_at = at_;
    const std::string_view key = name("key");
    const gguf_type type = kind();
    const std::uint64_t value_at = at_;
    extent count = 1;
    if (type != gguf_type::array) {
      pass(type, 1, 0);
      if (type == gguf_type::string) check_utf8(value_at + 8, at_);
      add(key, key_at, type, false, count, value_at);
      return;
    }
    const gguf_type of = kind();
    count = number<std::uint64_t>();
    const std::uint64_t first_at = at_;
    pass(of, count, 1);
    add(key, key_at, of, true, count, first_at);
  }

  void add(std::string_view key, std::uint64_t key_at, gguf_type type, bool is_array, extent count,
           std::uint64_t first_at) {
    const bool is_new =
        values
            .try_emplace(std::string(key),
                         gguf_value({std::string(key), file_, key_at}, type, is_array, count,
                                    bytes_.subspan(first_at, at_ - first_at)))
            .second;
    if (!is_new)
      in_.fail(errc::duplicate_key, key_at, "has " + in_quotes(key) + " twice in its metadata");
  }

  // Moves behind values of this kind, and checks them.
  void pass(gguf_type type, std::uint64_t count, int depth) {
    const std::uint64_t count_at = at_ - (depth == 0 ? 0 : 8);
    const extent size = bytes_of(type), least = type == gguf_type::string  ? 8
                                                : type == gguf_type::array ? 12
                                                                           : size;
    if (depth > max_depth) in_.fail(errc::limit, at_, "has arrays nested deeper than 16");
    if (depth == 0 && least > bytes_.size() - at_) ends();
    check_count(count, least, count_at, "values in an array");
    if (size != 0 && type != gguf_type::boolean) return void(at_ += count * size);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (type == gguf_type::string) {
        text(number<std::uint64_t>());
      } else if (type == gguf_type::boolean) {
        if (std::to_integer<unsigned>(bytes_[at_]) > 1)
          in_.fail(errc::schema, at_, "has a BOOL that is neither 0 nor 1");
        ++at_;
      } else {
        const gguf_type of = kind();
        pass(of, number<std::uint64_t>(), depth + 1);
      }
    }
  }

  // The kind of a value, which four bytes say.
  gguf_type kind() {
    const std::uint64_t at = at_;
    const auto n = number<std::uint32_t>();
    if (n >= std::size(gguf_types))
      in_.fail(errc::schema, at,
               "has a value of the kind " + std::to_string(n) + ", which is not known");
    return static_cast<gguf_type>(n);
  }

  void read_alignment() {
    const auto said = values.find("general.alignment");
    if (said == values.end()) return;
    alignment = said->second.get<std::uint32_t>();
    if (alignment == 0 || alignment % 8 != 0)
      in_.fail(errc::schema, said->second.at(),
               "has the alignment " + std::to_string(alignment) + ", which is no multiple of 8");
  }

  void read_tensor() {
    tensor_entry t;
    t.at = at_;
    t.name = name("tensor's name");
    if (!names_.insert(t.name).second)
      in_.fail(errc::duplicate_key, t.at, "stands twice in the header", t.name);
    const auto rank = number<std::uint32_t>();
    if (rank > ggml_rank)
      in_.fail(errc::limit, t.at, "has " + std::to_string(rank) + " axes, more than 4", t.name);
    for (std::uint32_t i = 0; i < rank; ++i)
      t.shape.insert(t.shape.begin(), number<std::uint64_t>());
    const auto type = number<std::uint32_t>();
    const auto* const known = std::ranges::find(ggml_numbers, type, &ggml_number::number);
    if (known == std::end(ggml_numbers))
      in_.fail(errc::dtype, t.at,
               "has the type number " + std::to_string(type) + ", which is not known", t.name);
    t.type = known->type;
    t.range[0] = number<std::uint64_t>();
    check_tensor(t);
    tensors.push_back(std::move(t));
  }

  // Finds the end of a tensor.
  void check_tensor(tensor_entry& t) const {
    const bool is_long = std::ranges::any_of(t.shape, [](extent n) { return n > max_extent; });
    const auto bits = count_bits(t.shape, t.type);
    if (is_long || !bits)
      in_.fail(errc::overflow, t.at, "has a shape whose size does not fit 64 bits", t.name);
    const extent row = t.shape.empty() ? 1 : t.shape.back();
    if (row % block_of(t.type) != 0)
      in_.fail(errc::size_mismatch, t.at,
               "has rows of " + std::to_string(row) + " numbers, and blocks of " +
                   std::to_string(block_of(t.type)) + " as " + std::string(name_of(t.type)),
               t.name);
    if (t.range[0] % alignment != 0)
      in_.fail(errc::layout, t.at,
               "begins at byte " + std::to_string(t.range[0]) +
                   " of the data, which is no multiple of " + std::to_string(alignment),
               t.name);
    t.range[1] = t.range[0] + *bits / 8;
    if (t.range[1] < t.range[0])
      in_.fail(errc::overflow, t.at, "has data whose end does not fit 64 bits", t.name);
  }

  // Throws unless all tensors lie in the file and apart.
  void check_layout() const {
    std::vector<const tensor_entry*> order;
    order.reserve(tensors.size());
    for (const tensor_entry& t : tensors)
      if (t.range[0] != t.range[1]) order.push_back(&t);
    std::ranges::sort(order, {}, &tensor_entry::range);
    const std::uint64_t there = data_at < in_.size ? in_.size - data_at : 0;
    std::uint64_t next = 0;
    for (const tensor_entry* const t : order) {
      if (t->range[0] < next)
        in_.fail(errc::layout, t->at,
                 "begins at byte " + std::to_string(t->range[0]) +
                     " of the data, before another one ends at byte " + std::to_string(next),
                 t->name);
      next = t->range[1];
      if (next > there)
        in_.fail(errc::truncated, in_.size, "has data beyond the file's end", t->name);
    }
  }

  // A text of 64 bits and as many bytes.
  std::string_view name(const char* what) {
    const std::uint64_t at = at_;
    const auto size = number<std::uint64_t>();
    if (size > 0xffff)
      in_.fail(
          errc::limit, at,
          std::string("has a ") + what + " of " + std::to_string(size) + " bytes, more than 65535");
    const std::string_view found = text(size);
    check_utf8(at + 8, at_);
    return found;
  }

  void check_utf8(std::uint64_t begin, std::uint64_t end) const {
    const std::string_view found(reinterpret_cast<const char*>(bytes_.data() + begin), end - begin);
    if (const auto fault = utf8_fault(found); fault != found.size())
      in_.fail(errc::utf8, begin + fault, "has a text that is not UTF-8");
  }

  std::string_view text(std::uint64_t size) {
    const std::byte* const from = bytes_.data() + at_;
    if (size > bytes_.size() - at_) ends();
    at_ += size;
    return {reinterpret_cast<const char*>(from), size};
  }
  template <class T>
  T number() {
    const std::string_view found = text(sizeof(T));
    return load_little<T>(reinterpret_cast<const std::byte*>(found.data()));
  }

  // Refuses a number of things that the rest of the file cannot hold.
  void check_count(std::uint64_t count, extent least_bytes, std::uint64_t count_at,
                   const char* what) const {
    if (count > (bytes_.size() - at_) / least_bytes)
      in_.fail(errc::truncated, count_at,
               "says that it has " + std::to_string(count) + ' ' + what + ", and ends before");
  }
  [[noreturn]] void ends() const {
    in_.fail(errc::truncated, bytes_.size(), "ends before its header does");
  }

  std::span<const std::byte> bytes_;
  const subject& in_;
  std::shared_ptr<const std::filesystem::path> file_;
  std::uint64_t at_ = 0, tensor_count_ = 0, value_count_ = 0;
  std::set<std::string, std::less<>> names_;
};

}  // namespace fmoe::io

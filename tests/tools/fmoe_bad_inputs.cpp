// SPDX-License-Identifier: MIT
// fmoe_bad_inputs DIR reads the files that DIR/manifest.json lists and compares each verdict with
// the expected one: the code of the error, or the type, the shape and the SHA-256 of every array.
// It reads the files from disk, and from memory that ends with them, at eight alignments and cut at
// every length up to 4096. Reading may allocate at most 8 times the file + 1 MiB.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <malloc.h>
#include <openssl/evp.h>

#include <fmoe/io/npy.hpp>
#include <fmoe/io/safetensors.hpp>

namespace {

std::size_t in_use = 0, peak = 0;  // bytes

void* counted(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  in_use += ::malloc_usable_size(p);
  peak = std::max(peak, in_use);
  return p;
}
void uncounted(void* p) {
  in_use -= p == nullptr ? 0 : ::malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(std::size_t n) { return counted(std::malloc(n)); }
void* operator new(std::size_t n, std::align_val_t a) {
  const auto alignment = static_cast<std::size_t>(a);
  return counted(std::aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment));
}
void operator delete(void* p) noexcept { uncounted(p); }
void operator delete(void* p, std::size_t) noexcept { uncounted(p); }
void operator delete(void* p, std::align_val_t) noexcept { uncounted(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { uncounted(p); }

namespace {

namespace io = fmoe::io;
using nlohmann::json;

std::string sha256(std::span<const std::byte> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr);
  std::string text;
  for (unsigned i = 0; i < length; ++i)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[digest[i] >> shift & 15];
  return text;
}

std::string npy_name(io::element_type type) {
  for (const auto& t : io::npy_types)
    if (t.type == type) return std::string(t.name);
  return "?";
}

json described(const io::array& a, const std::string& type) {
  return {{"dtype", type}, {"shape", a.shape()}, {"sha256", sha256(a.bytes())}};
}

json tensors_of(const io::safetensors& file) {
  json result = json::object();
  for (const auto& a : file.arrays())
    result[a.name()] = described(a, std::string(io::name_of(a.type())));
  return result;
}
json tensors_of(const io::array& a) { return {{"", described(a, npy_name(a.type()))}}; }

// "ok" or a code, and the arrays. Adds to `complaint` faults that no expectation can excuse.
struct verdict {
  std::string code;
  json tensors;
};
template <class Read>
verdict judge(const Read& read, std::size_t size, std::string& complaint) {
  const auto before = in_use;
  peak = in_use;
  const auto check_peak = [&] {
    if (peak - before > 8 * size + (std::size_t{1} << 20))
      complaint =
          std::to_string(peak - before) + " bytes allocated for a file of " + std::to_string(size);
  };
  try {
    const auto file = read();
    check_peak();
    return {"ok", tensors_of(file)};
  } catch (const io::error& e) {
    check_peak();
    if (e.byte_offset > std::max<std::uint64_t>(size, 8))
      complaint = std::string("offset beyond the file: ") + e.what();
    return {io::name_of(e.code), {}};
  } catch (const std::exception& e) {
    complaint = std::string("untyped exception: ") + e.what();
    return {"exception", {}};
  }
}

std::vector<std::byte> content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A copy at an address that is `offset` above a multiple of 16, with nothing after it.
struct exact_copy {
  exact_copy(std::span<const std::byte> from, std::size_t offset)
      : memory(new std::byte[offset + from.size()]) {
    std::copy(from.begin(), from.end(), memory.get() + offset);
    bytes = {memory.get() + offset, from.size()};
  }
  std::unique_ptr<std::byte[]> memory;
  std::span<const std::byte> bytes;
};

// Returns the faults of the verdicts on one file, or nothing if all are as expected.
template <class Format>
std::string difference(const std::filesystem::path& path, const json& entry, const Format& format) {
  const std::string expected =
      entry.at("expect") == "ok" ? "ok" : entry.at("code").get<std::string>();
  const json tensors = entry.value("tensors", json::object());
  const auto bytes = content(path);
  std::string complaint;
  const auto wrong = [&](const verdict& found, const std::string& how) {
    if (!complaint.empty()) return true;
    if (found.code != expected) complaint = how + ": " + found.code + " instead of " + expected;
    else if (expected == "ok" && found.tensors != tensors)
      complaint = how + ": arrays " + found.tensors.dump().substr(0, 300);
    return !complaint.empty();
  };

  if (wrong(judge([&] { return format.read(path); }, bytes.size(), complaint), "from disk"))
    return complaint;
  for (std::size_t offset = 0; offset < 8; ++offset) {
    const exact_copy copy(bytes, offset);
    if (wrong(judge([&] { return format.parse(copy.bytes); }, bytes.size(), complaint),
              "at +" + std::to_string(offset)))
      return complaint;
  }
  for (std::size_t size = 0; size < std::min<std::size_t>(bytes.size(), 4096); ++size) {
    const exact_copy copy({bytes.data(), size}, 0);
    const auto found = judge([&] { return format.parse(copy.bytes); }, size, complaint);
    if (found.code == "ok" && expected == "ok") complaint = "accepted";
    if (!complaint.empty()) return "cut at " + std::to_string(size) + ": " + complaint;
  }
  return {};
}

struct safetensors_format {
  io::safetensors read(const std::filesystem::path& path) const {
    return io::safetensors::read(path);
  }
  io::safetensors parse(std::span<const std::byte> bytes) const {
    return io::safetensors::parse(bytes);
  }
};
struct npy_format {
  io::array read(const std::filesystem::path& path) const { return io::npy::read(path); }
  io::array parse(std::span<const std::byte> bytes) const { return io::npy::parse(bytes); }
};

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2) throw std::invalid_argument("usage: fmoe_bad_inputs DIR");
  const std::filesystem::path folder = arguments[1];
  std::ifstream file(folder / "manifest.json");
  int passed = 0, failed = 0;
  for (const json& entry : json::parse(file)) {
    const auto path = folder / entry.at("file").get<std::string>();
    const auto problem = entry.at("kind") == "npy" ? difference(path, entry, npy_format{})
                                                   : difference(path, entry, safetensors_format{});
    ++(problem.empty() ? passed : failed);
    if (!problem.empty()) std::cout << path.filename().native() << ": " << problem << '\n';
  }
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed == 0 ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 2;
}

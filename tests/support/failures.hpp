// SPDX-License-Identifier: MIT
// A table of errors has one row a message, with its cause, its cure and the smallest program that
// causes it. scripts/errors_page makes the page of errors from the tables in tests/errors and the
// functions below.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

#include "catch.hpp"

namespace fmoe::test {

// 8 inputs, 16 hidden units, 5 experts, 3 outputs; a token uses 2 experts.
mxd<> small_mxd() {
  mxd<> layer;
  layer.encoder = tensor<float, 2>({8, 16});
  layer.gate = tensor<float, 2>({8, 5});
  layer.scales = tensor<float, 2>({5, 3});
  layer.decoder = tensor<float, 2>({16, 3});
  layer.active = 2;
  return layer;
}

// Its file `mxd.safetensors`, with these arrays instead of its own and with this metadata.
io::safetensors small_file(const io::arrays_by_name& other,
                           const io::strings_by_name& metadata = {}) {
  auto arrays = io::arrays_of(small_mxd(), "mxd.safetensors", {}).arrays;
  for (const auto& [name, array] : other) arrays.insert_or_assign(name, array);
  return io::safetensors::parse(io::safetensors::serialize(arrays, metadata), "mxd.safetensors");
}

// Elements of another object, with the shape and the strides that it gives.
struct foreign {
  float* elements;
  std::vector<std::size_t> extents;
  std::vector<std::ptrdiff_t> steps;

  float* data() const { return elements; }
  const std::vector<std::size_t>& shape() const { return extents; }
  const std::vector<std::ptrdiff_t>& strides() const { return steps; }
};

// The members of DLPack's DLTensor, and the entries of __cuda_array_interface__.
struct dl_tensor {
  void* data;
  struct {
    int device_type, device_id;
  } device;
  int ndim;
  struct {
    std::uint8_t code, bits;
    std::uint16_t lanes;
  } dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct cuda_array {
  const void* pointer;
  std::vector<std::int64_t> shape;
  std::string typestr;
  std::vector<std::int64_t> strides{};
  std::uintptr_t stream = 0;
};

struct failure {
  const char* message;
  const char* cause;
  const char* cure;
  void (*provoke)();
};

// Checks that each program throws an Error with this message.
template <class Error>
void check(std::span<const failure> failures) {
  for (const failure& f : failures) {
    INFO(f.message);
    std::string message = "nothing was thrown";
    try {
      f.provoke();
    } catch (const Error& e) {
      message = e.what();
    }
    CHECK(message == f.message);
  }
}

}  // namespace fmoe::test

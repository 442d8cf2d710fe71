// SPDX-License-Identifier: MIT
// Rows of the host pass through pinned memory in pieces, also while streams do their work late.
#include <fmoe/backend/cuda/emulated/emulated_device.hpp>
#include <fmoe/backend/cuda/staging.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

// What comes back of rows that go to a device and are read there again.
void check_rows(staging<float, emulated_device>& host, const emulated_device& on,
                CUstream_st* stream, extent rows, extent length) {
  emulated_device::queue work(on, stream);
  const device_array<emulated_device, float> memory(on, rows * length);
  const auto number = [](extent row, extent i) { return static_cast<float>(100 * row + i); };
  host.copy_in(work, memory.data(), rows, length, [&](extent row, float* to) {
    for (extent i = 0; i < length; ++i) to[i] = number(row, i);
  });
  extent taken = 0, wrong = 0;
  host.copy_out(work, memory.data(), rows, length, [&](extent row, const float* from) {
    wrong += row != taken++;
    for (extent i = 0; i < length; ++i) wrong += from[i] != number(row, i);
  });
  INFO(rows << " rows of " << length);
  CHECK(taken == rows);
  CHECK(wrong == 0);
}

TEST_CASE("rows of the host pass through pinned memory in pieces", "[cuda]") {
  for (const auto order : {stream_order::at_once, stream_order::deferred}) {
    const emulated_device on(0, {.streams = order});
    const own_stream<emulated_device> stream(on);
    staging<float, emulated_device> host(on, 16);
    for (const unsigned length :
         {1u, 3u, 7u, 8u, 9u, 16u})  // those from 9 on have the memory alone
      for (const unsigned rows : {1u, 2u, 3u, 5u, 16u, 33u})
        check_rows(host, on, stream.handle(), rows, length);
  }
}

TEST_CASE("pinned memory has room for two pieces, and for the longest row", "[cuda]") {
  using floats = staging<float, emulated_device>;
  constexpr extent usual = floats::usual_bytes / sizeof(float);
  CHECK(floats::elements_for(10, 40) == 80);
  CHECK(floats::elements_for(10, usual) == usual);
  CHECK(floats::elements_for(usual + 5, 3 * usual) == usual + 5);
}

}  // namespace

// SPDX-License-Identifier: MIT
// What the planner of a layer over ranks takes for granted about them.
#pragma once

#include <string>

#include <fmoe/base/text_stream.hpp>

namespace fmoe {

// What a rank can do, and what a call between ranks costs. The search for where values lie counts
// with these numbers, and the layout decides bits: so they are constants, and the same on all
// ranks, unless a program measures them (measure_network). They do not depend on the number of
// ranks. The default is a CPU cluster.
struct network_costs {
  double flops = 2e12;             // of a rank per second; a multiply-add counts 2
  double bytes_per_second = 25e9;  // that a rank receives
  double latency = 5e-6;           // seconds that a call takes without bytes
  double tokens = 512;             // of all ranks, in the call that the search counts with
  std::string name = "a CPU cluster of 2 TFLOP/s and 25 GB/s a rank";

  double seconds(double bytes, double calls) const {
    return bytes / bytes_per_second + calls * latency;
  }
};

}  // namespace fmoe

namespace fmoe::detail {

inline std::string text_of(const network_costs& c) {
  text_stream text;
  text << c.name << " (" << c.flops / 1e9 << " GFLOP/s, " << c.bytes_per_second / 1e9 << " GB/s, "
       << c.latency * 1e6 << " us a call), at " << c.tokens << " tokens";
  return text.str();
}

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// The costs of a layer over ranks, as a value.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmoe/distributed/network_costs.hpp>

namespace fmoe {

// A step of a call: a graph that a rank computes alone, or an exchange between ranks.
struct shard_step {
  std::string name;  // as explain calls it: "all tokens", "all_gather", ...
  bool is_exchange = false;
  double multiply_adds = 0;  // of a graph, for each of the rank's own tokens
  double bytes_a_token = 0;  // of an exchange, that the rank receives
  double bytes_a_call = 0;   // of an exchange, that it receives whatever the number of tokens
  std::size_t calls = 0;     // of the communicator; an all_reduce counts 2
  double seconds = 0;        // predicted, for the tokens of shard_costs
};

// What compiled_shard::cost returns: the costs of one rank, if all ranks have equally many tokens
// and entries. Seconds are predicted for a call of the most tokens for which the layer is compiled:
// those of graphs by the planner for its machine, and those of exchanges by network_costs; what a
// rank copies beside an exchange is not in them.
struct shard_costs {
  std::size_t tokens = 0;  // of each rank
  double multiply_adds = 0;
  double bytes_a_token = 0, bytes_a_call = 0;
  std::size_t calls = 0;
  double computing = 0, exchanging = 0;  // seconds
  // Tokens go through the steps in so many spans, and one computes while another exchanges.
  std::size_t spans = 1;
  std::vector<shard_step> steps;

  // Of the shorter of both, what belongs to one span is not hidden behind the other.
  double seconds() const {
    const auto [shorter, longer] = std::minmax({computing, exchanging});
    return longer + shorter / static_cast<double>(spans);
  }

  // Adds a step, and its numbers to the sums.
  void add(shard_step step) {
    multiply_adds += step.multiply_adds;
    bytes_a_token += step.bytes_a_token;
    bytes_a_call += step.bytes_a_call;
    calls += step.calls;
    (step.is_exchange ? exchanging : computing) += step.seconds;
    steps.push_back(std::move(step));
  }
};

}  // namespace fmoe

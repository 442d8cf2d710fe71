// SPDX-License-Identifier: MIT
// The machine that a program is planned for, as the passes see it. A backend measures it, and a
// value of the user's replaces it, so that a plan is the same wherever it is made. No pass holds a
// number of a machine.
#pragma once

#include <string>

#include <fmoe/base/checked.hpp>

namespace fmoe {

// What a machine can do, per second.
struct machine_rates {
  double flops;  // of fp32 fused multiply-adds, each of which counts 2
  // Of multiply-adds of integers of 16 and of 8 bits and of bf16 numbers, each of which counts 2.
  // Without an instruction for the last two, they are widened first. With ARM64's dot products of 8
  // bits and with AMX, the first are of 16 by 8 bits, which the screen takes there.
  double int16_dots, int8_dots, bf16_dots;
  // Bytes that are read, from caches and from memory.
  double l2, l3, memory;
};

// What only a GPU has, and 0 elsewhere.
struct gpu_rates {
  double tf32_dots = 0;  // multiply-adds of tf32 numbers per second, each of which counts 2
  double launch = 0;     // seconds that a kernel takes at least
};

// The numbers of a machine that the planner needs; every pass reads them here. The default is a
// machine that exists nowhere, for plans that are the same everywhere.
struct machine {
  std::string name = "any machine";

  std::size_t threads = 2;
  machine_rates one = {120e9, 240e9, 240e9, 120e9, 100e9, 60e9, 25e9};  // of one thread
  machine_rates every = {240e9, 480e9, 480e9, 240e9,
                         200e9, 120e9, 40e9};  // of all threads together

  gpu_rates gpu{};

  // Memory, in bytes.
  std::size_t l1 = 32 << 10, l2 = 1 << 20, l3 = 32 << 20;
  std::size_t set_stride = 2048;  // rows at multiples of this distance share few sets of L1

  // Products.
  std::size_t narrow = 8;        // a shorter last axis does not fill a vector
  std::size_t kernel_rows = 12;  // rows that one call of the product's kernel computes

  // Costs, for the order of contractions. The order decides the bits of a result, so these numbers
  // are not measured.
  double rows = 96;               // rows of a tile, as the order search assumes them
  double flops_per_byte = 8;      // floating-point operations that take as long as one byte
  std::size_t crowded = 1 << 16;  // elements a token: from here on a tile's rows leave L2,
  double crowded_factor = 64;     // and a byte of them costs so many times more

  // Selections.
  std::size_t sampled =
      16;  // with fewer columns for each selected one, a product over all is faster
  // A sum over tokens reads a selection of at most one in so many entries, and dense rows
  // otherwise.
  std::size_t summed_entries_a_kept = 4;
};

}  // namespace fmoe

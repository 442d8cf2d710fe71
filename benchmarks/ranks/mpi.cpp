// SPDX-License-Identifier: MIT
// The table of ranks.hpp for the ranks of an MPI job: mpirun -n 4 ranks_on_mpi [--tokens N] ...
#include <fmoe/mpi.hpp>

#include "ranks.hpp"

int main(int argc, char** argv) {
  return fmoe::run_on_mpi(argc, argv, [&](fmoe::communicator& ranks) {
    fmoe::bench::measure_ranks(ranks, fmoe::bench::ranks_settings_of(argc, argv), false);
  });
}

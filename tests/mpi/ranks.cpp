// SPDX-License-Identifier: MIT
// What the ranks of an MPI job must do: mpirun -n P ranks CHECK runs one check, of those in
// tests/support/rank_checks.hpp and shard_checks.hpp.
#include <fmoe/mpi.hpp>

#include <cstdlib>

#include "../support/shard_checks.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

void check(const std::string& name, communicator& ranks) {
  if (name == "collectives") {
    check_collectives(ranks);
    return check_agreement(ranks);
  }
  if (name == "layers") return check_layers(ranks);
  if (name == "throws") return check_a_rank_that_throws(ranks);
  if (name == "hangs") return check_a_rank_that_hangs(ranks);
  throw std::runtime_error("there is no check " + name);
}

// A call that failed left a transfer behind, and MPI_Finalize would wait for it.
[[noreturn]] void leave() {
  MPI_Barrier(MPI_COMM_WORLD);
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  return fmoe::run_on_mpi(argc, argv, [&](communicator& ranks) {
    check(name, ranks);
    MPI_Barrier(MPI_COMM_WORLD);  // then no rank has thrown
    if (ranks.rank() == 0) std::printf("%zu ranks passed\n", ranks.size());
    std::fflush(stdout);
    if (name == "throws" || name == "hangs") leave();
  });
}

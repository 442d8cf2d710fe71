// SPDX-License-Identifier: MIT
// mpirun -n P golden DIR judges the golden cases of a directory as fmoe_golden does, with layers
// that are cut over the ranks of the job. Rank 0 prints.
#include <fmoe/mpi.hpp>

#include "../tools/golden/directory.hpp"

int main(int argc, char** argv) {
  return fmoe::run_on_mpi(argc, argv, [&](fmoe::communicator& ranks) {
    fmoe::golden::job = {ranks.size(), [&](const auto& body) { body(ranks); }, false};
    std::FILE* const to = ranks.rank() == 0 ? stdout : std::fopen("/dev/null", "w");
    const int failed = argc == 2 ? fmoe::golden::judge_directory(argv[1], to) : 2;
    if (failed != 0) throw std::runtime_error("a case has failed");
    MPI_Barrier(MPI_COMM_WORLD);  // then no rank has thrown
    if (ranks.rank() == 0) std::printf("%zu ranks passed\n", ranks.size());
  });
}

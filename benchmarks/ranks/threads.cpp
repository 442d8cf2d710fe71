// SPDX-License-Identifier: MIT
// The table of ranks.hpp for ranks that are threads: ranks_on_threads [--ranks 4] [--tokens N] ...
#include "ranks.hpp"

int main(int argc, char** argv) {
  try {
    std::vector<std::size_t> counts = {2, 4};
    if (argc > 2 && std::string(argv[1]) == "--ranks") {
      counts = {std::stoull(argv[2])};
      argv[2] = argv[0];
      argc -= 2;
      argv += 2;
    }
    const auto settings = fmoe::bench::ranks_settings_of(argc, argv);
    for (const std::size_t count : counts)
      fmoe::run_on_threads(count, [&](fmoe::communicator& ranks) {
        fmoe::bench::measure_ranks(ranks, settings, true);
      });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

// SPDX-License-Identifier: MIT
// What the ranks of an MPI job must do: mpirun -n P ranks CHECK runs one check, of those in
// tests/support/rank_checks.hpp, shard_checks.hpp and random_shards.hpp. With the name of a fault
// and a folder the last rank does something wrong, and the job must end; tests/mpi/faults looks.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mpi.hpp>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>

#include <sys/resource.h>

#include "../support/random_shards.hpp"
#include "../support/shard_checks.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

void elsewhere() { MPI_Barrier(MPI_COMM_WORLD); }

void check(const std::string& name, communicator& ranks) {
  if (name == "collectives") {
    check_collectives(ranks);
    check_large_calls(ranks);
    check_many_calls(ranks);
    return check_agreement(ranks);
  }
  if (name == "layers") return check_layers(ranks);
  if (name == "expressions") return static_cast<void>(check_random_shards(ranks, random_shards()));
  if (name == "throws") return check_a_rank_that_throws(ranks, elsewhere);
  if (name == "hangs") return check_a_rank_that_hangs(ranks, elsewhere);
  if (name == "other_functions") return check_other_functions(ranks);
  if (name == "other_counts") return check_other_counts(ranks);
  throw std::runtime_error("there is no check " + name);
}

// By memory that the ranks share, by so little that many calls go by messages, and by these alone.
constexpr std::size_t ways[] = {mpi_options{}.shared_bytes, 4096, 0};

void check_each_way(const std::string& name) {
  for (const std::size_t bytes : ways) {
    mpi_communicator ranks(MPI_COMM_WORLD, {.shared_bytes = bytes});
    require(ranks.shares_memory() == (bytes != 0), "shared memory");
    check(name, ranks);
  }
}

// Communicators end while the last rank has failed, makes no call any more, or is in a call.
void check_ends() {
  using namespace std::chrono_literals;
  for (const std::size_t bytes : ways)
    for (const std::string fault : {"fails", "hangs", "calls"}) {
      const auto begin = std::chrono::steady_clock::now();
      std::optional<mpi_communicator> ranks(std::in_place, MPI_COMM_WORLD, mpi_options{bytes});
      const bool is_last = ranks->rank() + 1 == ranks->size();
      if (fault != "fails" && !is_last) ranks->deadline = 200ms;
      if (fault == "fails" && is_last) sentence_of([&] { ranks->fail("it has no more"); });
      if (fault == "calls" && is_last) {
        const std::string got = sentence_of([&] { meet(*ranks); });
        require(got == "a rank waited 0.2 s in ~mpi_communicator: another rank died or hangs", got);
      }
      if (fault == "hangs" && is_last) MPI_Barrier(MPI_COMM_WORLD);  // until the others have ended
      ranks.reset();
      if (fault == "hangs" && !is_last) MPI_Barrier(MPI_COMM_WORLD);
      require(std::chrono::steady_clock::now() - begin < 30s, "a rank waits when another " + fault);
    }
}

// Calls a layer until the last rank fails in its tenth call.
void call(communicator& ranks, const std::function<void()>& fail) {
  auto forward = compile(shard(mixture_of_decoders(1000), ranks, 'n'), 4, {.threads = 1});
  const auto x = rows(4, 12, 1000);
  tensor<float, 2> y({4, 12});
  for (int i = 0; i < 1000; ++i) {
    if (i == 10 && ranks.rank() + 1 == ranks.size()) fail();
    forward(x, y);
  }
}

// Saves a layer of 200 KB in the place of an old file.
void save_big(communicator& ranks, const std::filesystem::path& folder) {
  const auto file = folder / "layer.safetensors";
  if (ranks.rank() == 0) std::ofstream(file) << "old";
  ranks.first_text("");
  mxd<> layer = mixture_of_decoders(1000);
  fill_with(layer.scales, {2000, 12}, 1, 1000);
  fill_with(layer.gate, {12, 2000}, 2, 1000);
  fill_with(layer.gate_bias, {2000}, 3, 1000);
  save(shard(layer, ranks, 'n'), file);
}

void do_wrong(const std::string& fault, communicator& ranks, const std::filesystem::path& folder) {
  const bool is_last = ranks.rank() + 1 == ranks.size();
  if (fault == "throws") return call(ranks, [] { throw std::runtime_error("it has no more"); });
  if (fault == "killed" || fault == "survived" || fault == "stopped") {
    ranks.deadline = std::chrono::seconds(1);
    return call(ranks, [&] { std::raise(fault == "stopped" ? SIGSTOP : SIGKILL); });
  }
  if (fault == "unequal_files") {
    mxd<> layer = mixture_of_decoders(1000);
    if (is_last) fill_with(layer.skip, {12, 12}, 1, 1000);
    const auto file = folder / std::to_string(ranks.rank());
    save(layer, file);
    load_shard<mxd<>>(file, ranks, 'n');
    return;
  }
  if (fault == "small_files" && is_last) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  return save_big(ranks, folder);
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
    if (argc > 2) return do_wrong(name, ranks, argv[2]);
    const bool is_seen = name.find("other_") == 0;  // in shared memory; messages just do not fit
    if (name == "ends") check_ends();
    else name == "expressions" || is_seen ? check(name, ranks) : check_each_way(name);
    MPI_Barrier(MPI_COMM_WORLD);  // then no rank has thrown
    if (ranks.rank() == 0) std::printf("%zu ranks passed\n", ranks.size());
    std::fflush(stdout);
    if (name == "throws" || name == "hangs" || name == "ends" || is_seen) leave();
  });
}

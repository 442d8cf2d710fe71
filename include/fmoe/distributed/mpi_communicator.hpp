// SPDX-License-Identifier: MIT
// Ranks that are the processes of an MPI job.
#pragma once

#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include <fmoe/distributed/mpi_shared_memory.hpp>

namespace fmoe::detail {

// Bytes on their way, and the request of MPI that reads and writes them.
struct mpi_transfer {
  std::vector<std::byte> out, in;
  std::vector<int> out_counts, out_starts, in_counts, in_starts;
  MPI_Datatype type = MPI_BYTE;
  MPI_Request request = MPI_REQUEST_NULL;
};

}  // namespace fmoe::detail

namespace fmoe {

// How the ranks of an MPI job reach each other; the same on all ranks.
struct mpi_options {
  // Ranks that are all on one machine share memory, in which each can bring so many bytes to a
  // call; it is less where /dev/shm has not room for four times that of each rank. A call to which
  // a rank brings more goes by messages, as every call does where ranks are on several machines, or
  // where this is 0.
  std::size_t shared_bytes = 8 << 20;
};

// A rank that is a process; run_on_mpi makes it. It has a communicator of MPI of its own, so that
// its messages meet no others.
class mpi_communicator final : public communicator {
 public:
  // All processes of `ranks` do this at the same time, after MPI_Init, with the same options.
  explicit mpi_communicator(MPI_Comm ranks, const mpi_options& options = {})
      : communicator(number(ranks, MPI_Comm_rank), number(ranks, MPI_Comm_size)) {
    MPI_Comm_dup(ranks, &ranks_);
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_dup(ranks_, &end_);
    const std::size_t here = ranks_of_machine();
    shares_cores_ = here > std::thread::hardware_concurrency();
    if (here != size()) return;
    shared_.emplace(ranks_, rank(), size(), options.shared_bytes);
    if (!shared_->is_there()) shared_.reset();
  }
  // All ranks do this at the same time, too. If one has failed, or does not come before the
  // deadline, the others leave the memory that they share to MPI_Finalize.
  ~mpi_communicator() override {
    if (has_failed() || !all_end()) return;  // MPI would wait for the others for ever
    if (shared_) shared_->free();
    MPI_Comm_free(&end_);
    MPI_Comm_free(&ranks_);
  }

  // True if ranks give each other bytes by memory that they share.
  bool shares_memory() const { return shared_.has_value(); }

 private:
  static constexpr int fault_tag = 1;  // collectives have no tags, so sentences do not meet them

  static std::size_t number(MPI_Comm ranks, int (*ask)(MPI_Comm, int*)) {
    int n = 0;
    ask(ranks, &n);
    return static_cast<std::size_t>(n);
  }

  std::size_t ranks_of_machine() const {
    MPI_Comm here = MPI_COMM_NULL;
    MPI_Comm_split_type(ranks_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    const std::size_t n = number(here, MPI_Comm_size);
    MPI_Comm_free(&here);
    return n;
  }

  // Returns true if all ranks end. A rank that has given up the first barrier is not in the second,
  // so that one that comes later gives up, too.
  bool all_end() {
    try {
      for (int i = 0; i < 2; ++i) {
        MPI_Request all_came = MPI_REQUEST_NULL;
        const int e = MPI_Ibarrier(end_, &all_came);
        wait_for("~mpi_communicator", e, all_came);
      }
      return true;
    } catch (...) {
      return false;
    }
  }

  // If several ranks fail at the same time, before they hear of each other, each throws the
  // sentence of one of them.
  std::string announce(const std::string& sentence) override {
    for (int look = 0; look < 100; ++look)  // MPI finds what has come after some of them
      if (const std::string theirs = announced(); !theirs.empty()) return theirs;
    const auto* const text = new std::string(sentence);  // MPI may read it until the program ends
    for (int r = 0; r < static_cast<int>(size()); ++r) {
      if (r == static_cast<int>(rank())) continue;
      MPI_Request request;
      MPI_Isend(text->data(), static_cast<int>(text->size()), MPI_CHAR, r, fault_tag, ranks_,
                &request);
      MPI_Request_free(&request);
    }
    return sentence;
  }

  // The sentence with which another rank failed, or nothing.
  std::string announced() {
    int is_there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, fault_tag, ranks_, &is_there, &status) != MPI_SUCCESS) return {};
    if (is_there == 0) return {};
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string text(static_cast<std::size_t>(length), '\0');
    MPI_Recv(text.data(), length, MPI_CHAR, status.MPI_SOURCE, fault_tag, ranks_,
             MPI_STATUS_IGNORE);
    return text;
  }

  void meet(const detail::offer& mine, std::span<const std::size_t> expected,
            detail::function_ref<void(detail::offered_parts)> read) override {
    if (!shared_) return send(mine, expected, read);
    shared_->put(mine);
    MPI_Request all_came = MPI_REQUEST_NULL;
    const int e = MPI_Ibarrier(ranks_, &all_came);
    wait_for(name_of(mine.what), e, all_came);
    if (!shared_->has_all()) return send(mine, expected, read);
    const std::string fault =
        read_offers([&](std::size_t r) { return shared_->of(r); }, mine.what, expected, read);
    if (!fault.empty()) fail(fault);
  }

  // The same by messages.
  void send(const detail::offer& mine, std::span<const std::size_t> expected,
            detail::function_ref<void(detail::offered_parts)> read) {
    auto owned = std::make_unique<detail::mpi_transfer>();
    const std::size_t all_bytes = std::accumulate(expected.begin(), expected.end(), std::size_t{0});
    const std::size_t unit = begin(*owned, {mine.counts, expected}, mine.bytes, all_bytes);
    place(mine.counts, unit, owned->out_counts, owned->out_starts);
    place(expected, unit, owned->in_counts, owned->in_starts);
    auto* const t = owned.release();  // left behind if the wait throws: MPI may still use it
    const int e = mine.counts.empty()
                      ? MPI_Iallgatherv(t->out.data(), t->in_counts[rank()], t->type, t->in.data(),
                                        t->in_counts.data(), t->in_starts.data(), t->type, ranks_,
                                        &t->request)
                      : MPI_Ialltoallv(t->out.data(), t->out_counts.data(), t->out_starts.data(),
                                       t->type, t->in.data(), t->in_counts.data(),
                                       t->in_starts.data(), t->type, ranks_, &t->request);
    wait_for(name_of(mine.what), e, t->request);
    owned.reset(t);
    MPI_Type_free(&t->type);
    read(split(t->in, expected));
  }

  // MPI counts in int, so numbers of bytes are counted in the largest unit that divides all of
  // them.
  std::size_t begin(detail::mpi_transfer& t, std::array<std::span<const std::size_t>, 2> counts,
                    std::span<const std::byte> out, std::size_t in) {
    t.out.assign(out.begin(), out.end());
    t.in.resize(in);
    std::size_t unit = 0;
    for (const auto list : counts)
      for (const std::size_t n : list) unit = std::gcd(unit, n);
    unit = std::max<std::size_t>(unit, 1);
    constexpr std::size_t most = std::numeric_limits<int>::max();
    if (std::max(out.size(), in) / unit > most || unit > most)
      fail("rank " + std::to_string(rank()) + " would move " +
           std::to_string(std::max(out.size(), in)) +
           " bytes at once, which MPI cannot count: call with fewer tokens");
    MPI_Type_contiguous(static_cast<int>(unit), MPI_BYTE, &t.type);
    MPI_Type_commit(&t.type);
    return unit;
  }

  static void place(std::span<const std::size_t> bytes, std::size_t unit, std::vector<int>& counts,
                    std::vector<int>& starts) {
    int at = 0;
    for (const std::size_t n : bytes) {
      counts.push_back(static_cast<int>(n / unit));
      starts.push_back(at);
      at += counts.back();
    }
  }

  // Looks again at once while a transfer is new, and later after a sixteenth of what it has waited.
  // Where a machine has fewer cores than ranks, it leaves its core to the others from the start.
  void wait_after(std::chrono::nanoseconds waited) const {
    using namespace std::chrono_literals;
    using std::chrono::nanoseconds;
    if (shares_cores_) std::this_thread::sleep_for(std::clamp<nanoseconds>(waited / 8, 50us, 1ms));
    else if (waited < 200us) std::this_thread::yield();
    else std::this_thread::sleep_for(std::min<nanoseconds>(waited / 16, 1ms));
  }

  // Waits for a request, for the sentence of a rank that failed, and no longer than the deadline.
  void wait_for(const char* what, int error, MPI_Request& request) {
    const auto begin = std::chrono::steady_clock::now();
    for (int done = 0; done == 0;) {
      if (error == MPI_SUCCESS) error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) return;
      if (const std::string theirs = announced(); !theirs.empty()) follow(theirs);
      if (error != MPI_SUCCESS) fail("MPI reports error " + std::to_string(error) + " in " + what);
      const auto waited = std::chrono::steady_clock::now() - begin;
      if (waited > deadline) fail(waited_in_vain(what));
      wait_after(waited);
    }
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  MPI_Comm end_ = MPI_COMM_NULL;  // the same ranks: a barrier at the end meets no call
  bool shares_cores_ = false;
  std::optional<detail::mpi_shared_memory> shared_;
};

// Runs body(communicator&) as one rank of the MPI job that mpirun has started, and returns the exit
// status of the program. If it throws, the sentence is printed and the job ends on all ranks.
template <class Body>
int run_on_mpi(int& argc, char**& argv, const Body& body, const mpi_options& options = {}) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  try {
    mpi_communicator ranks(MPI_COMM_WORLD, options);
    ranks.guarded([&] { body(static_cast<communicator&>(ranks)); });
    ranks.deadline = std::chrono::nanoseconds::max();  // MPI_Finalize waits for all ranks, too
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::fflush(stderr);
    // MPICH's mpirun drops what it has not read of a rank when it hears that the job is aborted.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace fmoe

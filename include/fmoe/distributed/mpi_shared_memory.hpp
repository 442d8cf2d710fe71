// SPDX-License-Identifier: MIT
// Memory of MPI in which the ranks of one machine read what the others bring to a call.
#pragma once

#define OMPI_SKIP_MPICXX  // the C interface alone
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <vector>

#include <fmoe/distributed/communicator.hpp>

namespace fmoe::detail {

// Each rank has a segment, which it alone writes: two halves, by turns. When all ranks have come to
// a call, none reads what was put there for the last but one, so its half is free.
class mpi_shared_memory {
 public:
  // All ranks do this together, and say how many bytes each may bring. It is less where the machine
  // has little room, since Open MPI waits for ever for memory that it cannot have.
  mpi_shared_memory(MPI_Comm ranks, extent rank, extent size, extent most)
      : rank_(rank),
        first_byte_(divide_up(sizeof(header) + size * sizeof(extent), line) * line) {
    std::uint64_t room = std::min(most, free_bytes() / (4 * size)) / line * line;
    MPI_Bcast(&room, 1, MPI_UINT64_T, 0, ranks);
    most_ = room;
    if (most_ == 0) return;
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");  // each segment is near to its rank
    void* own = nullptr;
    const int error = MPI_Win_allocate_shared(static_cast<MPI_Aint>(2 * half()), 1, info, ranks,
                                              static_cast<void*>(&own), &window_);
    MPI_Info_free(&info);
    int is_there = error == MPI_SUCCESS ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &is_there, 1, MPI_INT, MPI_MIN, ranks);
    if (is_there == 0) return;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    for (extent r = 0; r < size; ++r) {
      MPI_Aint bytes = 0;
      int unit = 0;
      void* segment = nullptr;
      MPI_Win_shared_query(window_, static_cast<int>(r), &bytes, &unit,
                           static_cast<void*>(&segment));
      segments_.push_back(static_cast<std::byte*>(segment));
    }
  }
  mpi_shared_memory(const mpi_shared_memory&) = delete;

  bool is_there() const { return !segments_.empty(); }

  // All ranks do this together.
  void free() {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }

  // Puts there what this rank brings; only how many bytes, if they are too many.
  void put(const offer& mine) {
    turn_ = 1 - turn_;
    std::byte* const to = segments_[rank_] + turn_ * half();
    new (to) header{mine.what, mine.bytes.size(), mine.counts.size()};
    std::ranges::copy(std::as_bytes(mine.counts), to + sizeof(header));
    if (mine.bytes.size() <= most_) std::ranges::copy(mine.bytes, to + first_byte_);
    MPI_Win_sync(window_);
  }

  // Returns true if the bytes of all ranks are there, when all have come.
  bool has_all() {
    MPI_Win_sync(window_);
    for (extent r = 0; r < segments_.size(); ++r)
      if (of(r).bytes.size() > most_) return false;
    return true;
  }

  // What a rank has brought.
  offer of(extent rank) const {
    const std::byte* const from = segments_[rank] + turn_ * half();
    const auto& h = *std::launder(reinterpret_cast<const header*>(from));
    const auto* const counts = reinterpret_cast<const extent*>(from + sizeof(header));
    return {h.what, {from + first_byte_, h.bytes}, {counts, h.counts}};
  }

 private:
  struct header {
    collective what;
    extent bytes, counts;  // the counts follow
  };
  static constexpr extent line = 64;

  extent half() const { return first_byte_ + most_; }

  // Open MPI and MPICH have such memory in /dev/shm.
  static std::uintmax_t free_bytes() {
    std::error_code error;
    const auto space = std::filesystem::space("/dev/shm", error);
    return error ? 0 : space.available;
  }

  extent rank_, first_byte_, most_ = 0, turn_ = 0;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::byte*> segments_;
};

}  // namespace fmoe::detail

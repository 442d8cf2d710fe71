// SPDX-License-Identifier: MIT
// What a kernel sees of its block where the CPU runs it; hardware/block.hpp is the same on a GPU.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmoe/backend/cuda/emulated/block_runner.hpp>
#include <fmoe/backend/cuda/emulated/fragments.hpp>
#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/kernels/tensor_words.hpp>

namespace fmoe::cuda {

// One thread of an emulated block. A copy would count shared arrays anew.
class emulated_block {
 public:
  explicit emulated_block(block_runner& runner) : runner_(runner) {}
  emulated_block(const emulated_block&) = delete;

  unsigned thread() const { return runner_.thread(); }
  extent block() const { return runner_.block(); }

  // Returns the next array of the block's shared memory. All threads ask for the same ones in the
  // same order.
  template <class T>
  shared_array<T> array(extent size) {
    return runner_.array<T>(arrays_++, size);
  }

  // Waits for all threads of the block. Only then do they see what the others wrote before.
  void sync(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) const {
    runner_.meet_block(false, {"sync", file, line});
  }
  // The same; returns the number of threads that say yes.
  unsigned count(bool yes, const char* file = __builtin_FILE(),
                 unsigned line = __builtin_LINE()) const {
    return runner_.meet_block(yes, {"count", file, line});
  }

  // Adds to a number of a shared array, in any order with other threads that do the same.
  template <class T>
  void add(const shared_array<T>& to, extent i, T n) const {
    to.add(i, n);
  }

  // Neighbours of a shared array, in one access.
  template <unsigned N, class T>
  pack<T, N> read(const shared_array<T>& from, extent i) const {
    expects_place(i * sizeof(T), alignof(pack<T, N>), "reads");
    pack<T, N> made;
    for (unsigned n = 0; n < N; ++n) made.of[n] = from[i + n];
    return made;
  }
  template <unsigned N, class T>
  void write(const shared_array<T>& to, extent i, const pack<T, N>& x) const {
    expects_place(i * sizeof(T), alignof(pack<T, N>), "writes");
    for (unsigned n = 0; n < N; ++n) to[i + n] = x.of[n];
  }

  // Begins to copy N numbers, of which the first `valid` are read and the others become 0. They
  // are there for this thread when it has waited, and for the others behind the next barrier.
  template <unsigned N, class T>
  void copy(const shared_array<T>& to, extent i, const T* from, unsigned valid) const {
    expects_place(i * sizeof(T), sizeof(T) * N, "copies to");
    if (valid != 0) expects_place(std::bit_cast<std::uintptr_t>(from), sizeof(T) * N, "copies");
    T numbers[N]{};
    for (unsigned n = 0; n < valid; ++n) numbers[n] = from[n];
    for (unsigned n = 0; n < N; ++n) runner_.copy(to, i + n, numbers[n]);
  }
  // Ends a group of the thread's copies.
  void commit() const { runner_.commit(); }
  // Waits until no more than the last Left groups of the thread's copies are under way.
  template <unsigned Left>
  void wait() const {
    runner_.wait(Left);
  }

  // Returns bits of which bit i is what lane i of the warp says. All lanes take part.
  unsigned ballot(bool yes, const char* file = __builtin_FILE(),
                  unsigned line = __builtin_LINE()) const {
    const std::uint64_t* const said = runner_.meet_warp(yes, {"ballot", file, line});
    unsigned bits = 0;
    for (unsigned l = 0; l < block_runner::lanes; ++l)
      bits |= static_cast<unsigned>(said[l] != 0) << l;
    return bits;
  }
  // Returns the value of another lane of the warp. All lanes take part.
  template <class T>
  T shuffle(T value, unsigned lane, const char* file = __builtin_FILE(),
            unsigned line = __builtin_LINE()) const {
    return exchanged(value, lane, {"shuffle", file, line});
  }
  // The same, of the lane whose number differs in these bits.
  template <class T>
  T shuffle_xor(T value, unsigned bits, const char* file = __builtin_FILE(),
                unsigned line = __builtin_LINE()) const {
    return exchanged(value, (thread() % block_runner::lanes) ^ bits, {"shuffle_xor", file, line});
  }

  // Lanes of a warp add the product of two small matrices, a [16, 8] and b [8, 8] of tf32 numbers,
  // or a [16, 16] and b [16, 8] of bf16 numbers, to d [16, 8]. Each lane has a part of each
  // (emulated/fragments.hpp). All lanes take part.
  void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) const {
    multiply({d, a, b}, add_tf32_product, {"mma_tf32", file, line});
  }
  void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) const {
    multiply({d, a, b}, add_bf16_product, {"mma_bf16", file, line});
  }

  // Four warps of a warpgroup add the product of matrices in shared memory to d [64, 8 Parts], or
  // write it there: a [64, 8 words] and b [8 Parts, 8 words], whose rows begin at places `a` and
  // `b`, from word `word` on, as tensor_words says. Each warp has 16 rows, and its lanes the parts
  // of these that they have in mma_tf32. All lanes take part. A GPU needs begin_products() before
  // the first product. They run from commit_products() to wait_for_products(), and see what a
  // thread has written to shared memory if it calls show_products() before the barrier.
  static constexpr bool has_warpgroups = true;
  template <math How, unsigned Parts>
  void multiply(float (&d)[Parts][4], const shared_array<std::uint32_t>& from, unsigned a,
                unsigned b, unsigned word, bool adds, const char* file = __builtin_FILE(),
                unsigned line = __builtin_LINE()) const {
    constexpr unsigned lanes = block_runner::lanes;
    const unsigned first = thread() / lanes % 4 * 16;
    const auto number = [&](unsigned operand, unsigned row, unsigned w) -> std::uint32_t {
      return from[operand + tensor_words<How>::place(row, word + w)];
    };
    runner_.meet_warp(reinterpret_cast<std::uint64_t>(&d), {"multiply", file, line},
                      [&](const std::uint64_t* said) {
                        std::uint32_t left[lanes][4], right[lanes][2];
                        fragments all[lanes];
                        const fragments* of[lanes];
                        for (unsigned part = 0; part < Parts; ++part) {
                          for (unsigned l = 0; l < lanes; ++l) {
                            float* const sums =
                                (*reinterpret_cast<float (*)[Parts][4]>(said[l]))[part];
                            if (!adds) std::fill_n(sums, 4, 0.f);
                            for (unsigned i = 0; i < 4 && part == 0; ++i)
                              left[l][i] = number(a, first + l / 4 + i % 2 * 8, l % 4 + i / 2 * 4);
                            for (unsigned i = 0; i < 2; ++i)
                              right[l][i] = number(b, 8 * part + l / 4, l % 4 + i * 4);
                            all[l] = {sums, left[l], right[l]};
                            of[l] = &all[l];
                          }
                          if constexpr (tensor_words<How>::has_pairs)
                            add_bf16_product(of, runner_.sums());
                          else add_tf32_product(of, runner_.sums());
                        }
                      });
  }
  template <class Sums>
  void begin_products(Sums&) const {}
  void commit_products() const {}
  template <class Sums>
  void wait_for_products(Sums&) const {}
  void show_products() const {}

 private:
  static void expects_place(std::uintptr_t place, extent bytes, const char* does) {
    expects<emulation_fault>(place % bytes == 0, does, ' ', bytes,
                             " bytes that do not begin at a multiple of their number");
  }

  void multiply(const fragments& mine, void (*run)(const fragments* const*, tensor_sums),
                const meeting_point& where) const {
    runner_.meet_warp(reinterpret_cast<std::uint64_t>(&mine), where,
                      [&](const std::uint64_t* said) {
                        const fragments* of[block_runner::lanes];
                        for (unsigned l = 0; l < block_runner::lanes; ++l)
                          of[l] = reinterpret_cast<const fragments*>(said[l]);
                        run(of, runner_.sums());
                      });
  }

  template <class T>
  T exchanged(T value, unsigned lane, const meeting_point& where) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    const std::uint64_t* const said = runner_.meet_warp(word, where);
    std::memcpy(&value, said + lane % block_runner::lanes, sizeof value);
    return value;
  }

  block_runner& runner_;
  extent arrays_ = 0;
};

// Runs kernel(block) as each thread of the blocks.
template <class Kernel>
void run_emulated(block_runner& runner, const launch_shape& shape, const Kernel& kernel) {
  runner.run(shape, [&] {
    emulated_block block(runner);
    kernel(block);
  });
}

}  // namespace fmoe::cuda

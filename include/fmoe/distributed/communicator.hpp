// SPDX-License-Identifier: MIT
// The ranks of a job and what they do together. A sum over ranks has one order, so its bits depend
// on the number of ranks alone, and not on who comes first.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmoe/base/checked.hpp>

namespace fmoe {

// A rank failed, waited in vain, or disagrees with another one. The ranks of a job throw the same
// sentence.
struct communication_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What ranks do together.
enum class collective : std::uint8_t { all_gather, all_to_all, reduce_scatter, all_reduce };

constexpr const char* name_of(collective c) {
  constexpr const char* names[] = {"all_gather", "all_to_all", "reduce_scatter", "all_reduce"};
  return names[static_cast<std::size_t>(c)];
}

// How the numbers of several ranks become one.
enum class fold : std::uint8_t { sum, max, min };

}  // namespace fmoe

namespace fmoe::detail {

// Folds rows of n numbers each into the first one: neighbours first, then pairs of pairs, so that
// the sum is ((0 + 1) + (2 + 3)) + ...
template <class T>
void fold_rows(std::span<T> rows, extent n, fold how) {
  const extent count = n == 0 ? 0 : rows.size() / n;
  for (extent step = 1; step < count; step *= 2)
    for (extent r = 0; r + step < count; r += 2 * step) {
      T* const to = rows.data() + r * n;
      const T* const from = rows.data() + (r + step) * n;
      if (how == fold::sum)
        for (extent i = 0; i < n; ++i) to[i] += from[i];
      else if (how == fold::max)
        for (extent i = 0; i < n; ++i) to[i] = std::max(to[i], from[i]);
      else
        for (extent i = 0; i < n; ++i) to[i] = std::min(to[i], from[i]);
    }
}

// Returns where part i of `parts` begins, if n things are shared out evenly.
constexpr extent begin_of_part(extent n, extent parts, extent i) {
  return n / parts * i + std::min(i, n % parts);
}

}  // namespace fmoe::detail

namespace fmoe {

// One rank of a job. All ranks call the same functions in the same order, each from one thread. A
// call that fails throws the same sentence on every rank, at the latest after the deadline; from
// then on each call throws it at once, and what the failed call was to write is undefined.
class communicator {
 public:
  communicator(const communicator&) = delete;
  virtual ~communicator() = default;

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }

  // How long a rank waits for the others in one call.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);

  // `counts` says how many elements each rank has; `of_all` gets them in the order of the ranks.
  template <class T>
  void all_gather(std::span<const T> mine, std::span<T> of_all,
                  std::span<const std::size_t> counts) {
    gather(collective::all_gather, mine, of_all, counts);
  }

  // Sends out_counts[r] elements to rank r, which lie in the order of the ranks, and gets
  // in_counts[r] from it.
  template <class T>
  void all_to_all(std::span<const T> out, std::span<const std::size_t> out_counts, std::span<T> in,
                  std::span<const std::size_t> in_counts) {
    exchange(collective::all_to_all, out, out_counts, in, in_counts);
  }

  // All ranks have numbers for all; rank r gets the sum of those that belong to it: counts[r] of
  // them, in the order of the ranks.
  template <class T>
  void reduce_scatter(std::span<const T> numbers, std::span<const std::size_t> counts,
                      std::span<T> mine, fold how = fold::sum) {
    reduce(collective::reduce_scatter, numbers, counts, mine, how);
  }

  // The numbers of all ranks become their sum on each.
  template <class T>
  void all_reduce(std::span<T> numbers, fold how = fold::sum) {
    std::vector<std::size_t> counts(size_);
    for (std::size_t r = 0; r < size_; ++r)
      counts[r] = detail::begin_of_part(numbers.size(), size_, r + 1) -
                  detail::begin_of_part(numbers.size(), size_, r);
    std::vector<T> mine(counts[rank_]);
    reduce(collective::all_reduce, std::span<const T>(numbers), counts, std::span(mine), how);
    gather(collective::all_reduce, std::span<const T>(mine), numbers, counts);
  }

  // Throws communication_error on every rank unless all of them say the same: the first lines that
  // differ are in the sentence.
  void agree(const std::string& mine) {
    const auto [texts, lengths] = all_texts(mine);
    const std::string first = texts.substr(0, lengths[0]);
    std::size_t at = 0;
    for (std::size_t r = 0; r < size_; at += lengths[r++]) {
      const std::string theirs = texts.substr(at, lengths[r]);
      if (theirs == first) continue;
      const auto differ = std::mismatch(first.begin(), first.end(), theirs.begin(), theirs.end());
      const auto before = static_cast<std::size_t>(differ.first - first.begin());
      throw communication_error("the ranks disagree: rank 0 has \"" + line_at(first, before) +
                                "\", and rank " + std::to_string(r) + " has \"" +
                                line_at(theirs, before) + '"');
    }
  }

  // Returns the text of rank 0 on every rank.
  std::string first_text(const std::string& mine) {
    const auto [texts, lengths] = all_texts(rank_ == 0 ? mine : std::string());
    return texts.substr(0, lengths[0]);
  }

  // Calls f. If it throws, all ranks throw its sentence, with the number of this rank before it.
  template <class F>
  decltype(auto) guarded(const F& f) {
    try {
      return f();
    } catch (const communication_error&) {
      throw;
    } catch (const std::exception& e) {
      fail("rank " + std::to_string(rank_) + " failed: " + e.what());
    }
  }

  // Makes all ranks throw this sentence, or the one with which a rank failed before.
  [[noreturn]] void fail(const std::string& sentence) {
    if (!has_failed()) failure_ = announce(sentence);
    throw communication_error(failure_);
  }

  // The calls that this rank has made, by one kind and by all. An all_reduce makes two: one for the
  // sums of each rank's numbers, and one that tells them to all.
  std::size_t calls(collective c) const { return calls_[static_cast<std::size_t>(c)]; }
  std::size_t calls() const {
    return std::accumulate(calls_.begin(), calls_.end(), std::size_t{0});
  }

  // The bytes that this rank has got from others, by one kind of call and by all.
  std::size_t received(collective c) const { return received_[static_cast<std::size_t>(c)]; }
  std::size_t received() const {
    return std::accumulate(received_.begin(), received_.end(), std::size_t{0});
  }

 protected:
  communicator(std::size_t rank, std::size_t size) : rank_(rank), size_(size) {}

  bool has_failed() const { return !failure_.empty(); }

  // Throws the sentence of another rank.
  [[noreturn]] void follow(const std::string& sentence) {
    failure_ = sentence;
    throw communication_error(failure_);
  }

  // Tells all ranks this sentence. Returns the one that they throw, if another was first.
  virtual std::string announce(const std::string& sentence) = 0;

  // The bytes of each rank for each, and of each rank for all. They throw by fail().
  virtual void exchange_bytes(collective what, std::span<const std::byte> out,
                              std::span<const std::size_t> out_bytes, std::span<std::byte> in,
                              std::span<const std::size_t> in_bytes) = 0;
  virtual void gather_bytes(collective what, std::span<const std::byte> mine,
                            std::span<std::byte> all, std::span<const std::size_t> bytes) = 0;

  std::string waited_in_vain(collective what) const {
    std::string text = "a rank waited ";
    detail::text_part(std::chrono::duration<double>(deadline).count()).append_to(text);
    text.append(" s in ").append(name_of(what)).append(": another rank died or hangs");
    return text;
  }

 private:
  struct text_list {
    std::string texts;  // one after the other
    std::vector<std::size_t> lengths;
  };
  text_list all_texts(const std::string& mine) {
    text_list found{{}, std::vector<std::size_t>(size_)};
    const std::size_t length = mine.size();
    all_gather(std::span(&length, 1), std::span(found.lengths), std::vector<std::size_t>(size_, 1));
    found.texts.resize(std::accumulate(found.lengths.begin(), found.lengths.end(), std::size_t{0}));
    all_gather(std::span<const char>(mine), std::span<char>(found.texts), found.lengths);
    return found;
  }

  // The line of a text that has a place.
  static std::string line_at(const std::string& text, std::size_t place) {
    const std::size_t newline = place == 0 ? text.npos : text.rfind('\n', place - 1);
    const std::size_t from = newline == text.npos ? 0 : newline + 1;
    return text.substr(from, text.find('\n', place) - from);
  }

  std::vector<std::size_t> in_bytes(std::span<const std::size_t> counts, std::size_t each) const {
    if (has_failed()) throw communication_error(failure_);
    std::vector<std::size_t> bytes(counts.begin(), counts.end());
    for (std::size_t& b : bytes) b *= each;
    return bytes;
  }

  void count(collective what, std::span<const std::size_t> bytes) {
    ++calls_[static_cast<std::size_t>(what)];
    for (std::size_t r = 0; r < size_; ++r)
      if (r != rank_) received_[static_cast<std::size_t>(what)] += bytes[r];
  }

  template <class T>
  void gather(collective what, std::span<const T> mine, std::span<T> of_all,
              std::span<const std::size_t> counts) {
    const auto bytes = in_bytes(counts, sizeof(T));
    gather_bytes(what, std::as_bytes(mine), std::as_writable_bytes(of_all), bytes);
    count(what, bytes);
  }

  template <class T>
  void exchange(collective what, std::span<const T> out, std::span<const std::size_t> out_counts,
                std::span<T> in, std::span<const std::size_t> in_counts) {
    const auto bytes = in_bytes(in_counts, sizeof(T));
    exchange_bytes(what, std::as_bytes(out), in_bytes(out_counts, sizeof(T)),
                   std::as_writable_bytes(in), bytes);
    count(what, bytes);
  }

  // Each rank gets the rows of all ranks for what is its own, and folds them.
  template <class T>
  void reduce(collective what, std::span<const T> numbers, std::span<const std::size_t> counts,
              std::span<T> mine, fold how) {
    const std::size_t n = counts[rank_];
    std::vector<T> rows(n * size_);
    exchange(what, numbers, counts, std::span(rows), std::vector<std::size_t>(size_, n));
    detail::fold_rows(std::span(rows), n, how);
    std::copy_n(rows.begin(), n, mine.begin());
  }

  std::size_t rank_, size_;
  std::string failure_;
  std::array<std::size_t, 4> received_{}, calls_{};
};

}  // namespace fmoe

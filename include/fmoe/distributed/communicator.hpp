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
#include <fmoe/base/function_ref.hpp>

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

// What a rank brings to a call: bytes for each rank, one after the other.
struct offer {
  collective what;
  std::span<const std::byte> bytes;
  std::span<const extent> counts;  // of bytes for each rank; none if every rank gets all of them
};

// Returns what a rank gets of it.
inline std::span<const std::byte> part_of_rank(const offer& o, extent rank) {
  if (o.counts.empty()) return o.bytes;
  const auto before = o.counts.first(rank);
  return o.bytes.subspan(std::accumulate(before.begin(), before.end(), extent{0}), o.counts[rank]);
}

// What the ranks have for one of them, in the order of the ranks.
using offered_parts = std::span<const std::span<const std::byte>>;

// Copies parts to where they stand one after the other.
inline void copy_parts(offered_parts parts, std::span<std::byte> to) {
  for (const auto part : parts) {
    std::ranges::copy(part, to.begin());
    to = to.subspan(part.size());
  }
}

// Folds parts of as many numbers as there are in `to`, block by block. `block` has room for so many
// of each part, or for all, and stays in the cache.
constexpr extent folded_at_once = 512;
template <class T>
void fold_parts(offered_parts parts, std::span<T> to, std::span<T> block, fold how) {
  for (extent i = 0, n = 0; i < to.size(); i += n) {
    n = std::min(folded_at_once, to.size() - i);
    for (extent r = 0; r < parts.size(); ++r)
      std::memcpy(block.data() + r * n, parts[r].data() + i * sizeof(T), n * sizeof(T));
    fold_rows(block.first(parts.size() * n), n, how);
    std::copy_n(block.begin(), n, to.begin() + static_cast<std::ptrdiff_t>(i));
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
  communicator(std::size_t rank, std::size_t size) : rank_(rank), size_(size), parts_(size) {}

  bool has_failed() const { return !failure_.empty(); }

  // Throws the sentence of another rank.
  [[noreturn]] void follow(const std::string& sentence) {
    failure_ = sentence;
    throw communication_error(failure_);
  }

  // Tells all ranks this sentence. Returns the one that they throw, if another was first.
  virtual std::string announce(const std::string& sentence) = 0;

  // All ranks come here. read(parts) gets what they bring for this one, so many bytes of each,
  // which stay as they are until it returns; it does not throw. Throws by fail().
  virtual void meet(const detail::offer& mine, std::span<const std::size_t> expected,
                    detail::function_ref<void(detail::offered_parts)> read) = 0;

  // Gives read what the ranks bring for this one, where offer_of(rank) is there. Returns a sentence
  // if they do not bring what is expected.
  template <class OfferOf>
  std::string read_offers(const OfferOf& offer_of, collective what,
                          std::span<const std::size_t> expected,
                          detail::function_ref<void(detail::offered_parts)> read) {
    for (std::size_t r = 0; r < size_; ++r) {
      const detail::offer theirs = offer_of(r);
      parts_[r] = detail::part_of_rank(theirs, rank_);
      if (theirs.what != what || parts_[r].size() != expected[r])
        return "rank " + std::to_string(r) + " is in " + name_of(theirs.what) +
               " and brings what rank " + std::to_string(rank_) + " does not expect";
    }
    read(parts_);
    return {};
  }

  // Parts of so many bytes, which stand one after the other.
  detail::offered_parts split(std::span<const std::byte> bytes,
                              std::span<const std::size_t> counts) {
    for (std::size_t r = 0; r < size_; bytes = bytes.subspan(counts[r++]))
      parts_[r] = bytes.first(counts[r]);
    return parts_;
  }

  std::string waited_in_vain(const char* what) const {
    std::string text = "a rank waited ";
    detail::text_part(std::chrono::duration<double>(deadline).count()).append_to(text);
    text.append(" s in ").append(what).append(": another rank died or hangs");
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
    copy({what, std::as_bytes(mine), {}}, bytes, std::as_writable_bytes(of_all));
  }

  template <class T>
  void exchange(collective what, std::span<const T> out, std::span<const std::size_t> out_counts,
                std::span<T> in, std::span<const std::size_t> in_counts) {
    const auto out_bytes = in_bytes(out_counts, sizeof(T)), bytes = in_bytes(in_counts, sizeof(T));
    copy({what, std::as_bytes(out), out_bytes}, bytes, std::as_writable_bytes(in));
  }

  void copy(const detail::offer& mine, std::span<const std::size_t> bytes,
            std::span<std::byte> to) {
    meet(mine, bytes, [to](detail::offered_parts parts) { detail::copy_parts(parts, to); });
    count(mine.what, bytes);
  }

  // Each rank folds what all ranks have for it.
  template <class T>
  void reduce(collective what, std::span<const T> numbers, std::span<const std::size_t> counts,
              std::span<T> mine, fold how) {
    const auto out_bytes = in_bytes(counts, sizeof(T));
    const std::vector<std::size_t> bytes(size_, out_bytes[rank_]);
    std::vector<T> block(size_ * std::min(counts[rank_], detail::folded_at_once));
    meet({what, std::as_bytes(numbers), out_bytes}, bytes, [&](detail::offered_parts parts) {
      detail::fold_parts(parts, mine.first(counts[rank_]), std::span(block), how);
    });
    count(what, bytes);
  }

  std::size_t rank_, size_;
  std::vector<std::span<const std::byte>> parts_;  // of a call
  std::string failure_;
  std::array<std::size_t, 4> received_{}, calls_{};
};

}  // namespace fmoe

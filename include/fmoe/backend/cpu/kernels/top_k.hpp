// SPDX-License-Identifier: MIT
// Selects the k greatest entries of a row that arrives in chunks, exactly: value descending, NaN
// greatest, lowest index first among equals. Entries that exceed a running bound are appended to a
// buffer. When the buffer is full, its best k stay, in their order, so the selection is sorted by
// index, whatever the chunks were. Zeros are left out, because they would add nothing. This header
// also has top-p, whose row arrives whole.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmoe/backend/cpu/kernels/gather.hpp>
#include <fmoe/backend/cpu/kernels/softmax.hpp>

namespace fmoe::cpu {

// The state of one row, in the caller's memory: bound, count | candidates | their indices.
template <class T, class Arch>
struct top_k_state {
  static constexpr extent block = 64;  // this many numbers at a time are compared with the bound
  static constexpr extent header = 16 / sizeof(T);
  static constexpr extent room(extent k) { return round_up(2 * k + 2 * block, block); }
  static constexpr extent size(extent k) {
    return header + room(k) + divide_up(room(k) * sizeof(std::uint32_t), sizeof(T));
  }

  T& bound;  // no later entry <= bound is among the k best; NaN means no bound yet
  std::uint32_t& count;
  T* values;
  std::uint32_t* indices;

  top_k_state(T* state, extent k)
      : bound(state[0]),
        count(*reinterpret_cast<std::uint32_t*>(state + header / 2)),
        values(state + header),
        indices(reinterpret_cast<std::uint32_t*>(state + header + room(k))) {}
};

// The bits of a float as an integer with the same order. With it bisection ends after at most 64
// steps and needs no arithmetic on subnormals.
template <class T, class Arch>
struct ordered_bits {
  using key = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

  static key from(T x) { return flip(std::bit_cast<key>(x)); }
  static T to(key k) { return std::bit_cast<T>(flip(k)); }
  static key flip(key k) { return k < 0 ? k ^ std::numeric_limits<key>::max() : k; }
};

template <class Arch>
std::uint64_t low_bits(extent n) {
  return n < 64 ? (std::uint64_t{1} << n) - 1 : ~std::uint64_t{0};
}

// Returns bits, of which bit i is set if x[i] > t, i < 64, or if x[i] or t is NaN; with Equal also
// if x[i] == t.
template <class T, class Arch, bool Equal>
std::uint64_t bits_above(const T* x, T t) {
  std::uint64_t below = 0;
  FMOE_ROUNDS(32)
  for (extent i = 0; i < 64; i += lanes<T, Arch>) {
    const vec<T, Arch> v = load<T, Arch>(x + i), limit(t);
    if constexpr (Equal) below |= to_bits<T, Arch>(v < limit) << i;
    else below |= to_bits<T, Arch>(v <= limit) << i;
  }
  return ~below;
}

template <class T, class Arch, bool Equal>
extent count_above(const T* x, extent n, T t) {
  extent count = 0;
  for (extent i = 0; i < n; i += 64)
    count += static_cast<extent>(
        std::popcount(bits_above<T, Arch, Equal>(x + i, t) & low_bits<Arch>(n - i)));
  return count;
}

// Returns the k-th greatest of n >= k > 0 numbers, or a smaller number that exactly k of them
// reach; infinity if the k-th greatest is NaN. It reads whole blocks.
template <class T, class Arch>
T kth_greatest(const T* x, extent n, extent k) {
  using bits = ordered_bits<T, Arch>;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  vec<T, Arch> most(-infinity), least(infinity);
  for (extent i = 0; i < n; i += lanes<T, Arch>) {
    const auto v = load_part<T, Arch>(x + i, std::min(lanes<T, Arch>, n - i), x[0]);
    most = larger(most, v);
    least = select(v < least, v, least);
  }
  const T top = greatest(most);
  if (!(top < infinity) && count_above<T, Arch, true>(x, n, infinity) >= k) return infinity;
  auto high = bits::from(top < infinity ? top : infinity) + (top < infinity),
       low = bits::from(-greatest(negate(least)));
  while (low + 1 < high) {  // at least k numbers reach low, fewer than k reach high
    const auto middle = (low & high) + ((low ^ high) >> 1);
    const extent count = count_above<T, Arch, true>(x, n, bits::to(middle));
    (count >= k ? low : high) = middle;
    if (count == k) break;
  }
  return bits::to(low);
}

// Keeps the k best of more than k candidates.
template <class T, class Arch>
void top_k_cut(top_k_state<T, Arch> s, extent k) {
  const T bound = kth_greatest<T, Arch>(s.values, s.count, k);
  const extent above = count_above<T, Arch, false>(s.values, s.count, bound);
  extent equals = above < k ? k - above : 0, kept = 0;
  for (extent i = 0; i < s.count; i += 64) {
    const std::uint64_t inside = low_bits<Arch>(s.count - i);
    std::uint64_t keep = bits_above<T, Arch, false>(s.values + i, bound) & inside;
    std::uint64_t equal =
        equals > 0 ? bits_above<T, Arch, true>(s.values + i, bound) & inside & ~keep : 0;
    for (; equal != 0 && equals > 0; equal &= equal - 1, --equals) keep |= equal & (~equal + 1);
    for (; keep != 0 && kept < k; keep &= keep - 1, ++kept) {
      const extent from = i + static_cast<extent>(std::countr_zero(keep));
      s.values[kept] = s.values[from];
      s.indices[kept] = s.indices[from];
    }
  }
  s.count = static_cast<std::uint32_t>(kept);
  s.bound = bound;
}

// True if it matters whether a score of 0 is kept.
constexpr bool zeros_count(weighting w) { return w != weighting::score && w != weighting::relu; }
constexpr bool zeros_count(const selection_rule& r) {
  return r.keeps_zeros || zeros_count(r.weights);
}

// Returns a bound for the first chunk: it lies just below a number that the maxima of k groups
// reach. It uses the memory of the candidates. A short row has groups of eight numbers or more, so
// that there are few maxima to select from; k of 64 groups seldom hold two of the k best.
template <class T, class Arch>
T first_bound(top_k_state<T, Arch> s, extent k, const T* x, extent n, bool zeros) {
  constexpr extent width = lanes<T, Arch>, block = top_k_state<T, Arch>::block, most = 16;
  const extent groups = std::clamp(n / 8 / block * block, round_up(k, block), s.room(k)),
               each = std::min(n / groups, most);
  if (each < 2) return std::numeric_limits<T>::quiet_NaN();
  for (extent g = 0; g < groups; g += width) {
    auto best = load<T, Arch>(x + g);
    for (extent i = 1; i < each; ++i) {
      const auto v = load<T, Arch>(x + i * groups + g);
      best = select(v > best, v, best);
    }
    store<T, Arch>(s.values + g, best);
  }
  const T reached = kth_greatest<T, Arch>(s.values, groups, k);
  using bits = ordered_bits<T, Arch>;
  // The bound is one step below; for 0 that is -0, which equals 0, and for -infinity it is NaN.
  return bits::to(bits::from(reached == 0 && zeros ? T(-0.0) : reached) - 1);
}

template <class T, class Arch>
extent top_k_state_size(extent k) {
  return top_k_state<T, Arch>::size(k);
}

// x is elements base .. base + n of the row, and its first chunk if `first`. The state has room for
// k entries or more. Zeros may be left out
// unless `zeros`. 16 blocks are compared with the bound before their candidates are moved: a branch
// for every block with a candidate would be mispredicted as often as there are candidates.
template <class T, class Arch>
void top_k_scan(const top_k_state<T, Arch>& s, extent k, const T* x, extent n, extent base,
                bool first, bool zeros) noexcept {
  constexpr extent blocks = 16;
  if (first) s.count = 0;
  if (k == 0) return;
  if (first) s.bound = first_bound<T, Arch>(s, k, x, n, zeros);
  const extent room = s.room(k);
  std::uint64_t found[blocks];
  for (extent at = 0; at < n; at += 64 * blocks) {
    const extent here = std::min(n - at, 64 * blocks);
    std::uint32_t any = 0;
    for (extent b = 0; 64 * b < here; ++b) {
      const extent rest = here - 64 * b;
      const T* block = x + at + 64 * b;
      T copy[64];
      if (rest < 64) {
        for (extent i = 0; i < 64; ++i) copy[i] = i < rest ? block[i] : 0;
        block = copy;
      }
      found[b] = bits_above<T, Arch, false>(block, s.bound) & low_bits<Arch>(rest);
      any |= std::uint32_t{found[b] != 0} << b;
    }
    for (; any != 0; any &= any - 1) {
      const extent b = static_cast<extent>(std::countr_zero(any));
      if (s.count + 64 > room) top_k_cut(s, k);
      extent count = s.count;
      for (std::uint64_t bits = found[b]; bits != 0; bits &= bits - 1, ++count) {
        const extent i = at + 64 * b + static_cast<extent>(std::countr_zero(bits));
        s.values[count] = x[i];
        s.indices[count] = static_cast<std::uint32_t>(base + i);
      }
      s.count = static_cast<std::uint32_t>(count);
    }
  }
}

// Removes zeros.
template <class T, class Arch>
void drop_zeros(top_k_state<T, Arch> s) {
  extent kept = 0;
  for (extent i = 0; i < s.count; ++i) {
    s.values[kept] = s.values[i];
    s.indices[kept] = s.indices[i];
    kept += s.values[i] != 0;
  }
  s.count = static_cast<std::uint32_t>(kept);
}

// `to` becomes the entries of `from`, each times the factor of its index.
template <class T, class Arch>
void rescale(top_k_state<T, Arch> to, selected<T> from, const T* factors) noexcept {
  to.count = static_cast<std::uint32_t>(from.count);
  for (extent i = 0; i < from.count; ++i) {
    to.values[i] = from.values[i] * factors[from.indices[i]];
    to.indices[i] = from.indices[i];
  }
  drop_zeros(to);
}

// Turns the kept scores into weights; `row` is the whole row, for weights that depend on all of it.
template <class T, class Arch>
void weigh(top_k_state<T, Arch> s, weighting weights, const T* row, extent n,
           bool keeps_zeros = false) {
  if (weights == weighting::softmax) softmax<T, Arch>(s.values, s.values, s.count);
  if (weights == weighting::one) std::fill_n(s.values, s.count, T(1));
  if (weights == weighting::relu)
    for (extent i = 0; i < s.count; ++i) s.values[i] = s.values[i] < 0 ? 0 : s.values[i];
  if (weights == weighting::softmax_of_all && n > 0) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const T top = greatest_of<T, Arch>(row, n);
    const T whole = exponentials<T, Arch>(row, nullptr, n, top, -infinity);
    exponentials<T, Arch>(s.values, s.values, s.count, top, -infinity);
    for (extent i = 0; i < s.count; ++i) s.values[i] /= whole;
  }
  if (weights == weighting::normalized)
    if (const T sum = std::accumulate(s.values, s.values + s.count, T(0)); sum != 0)
      for (extent i = 0; i < s.count; ++i) s.values[i] /= sum;
  if (!keeps_zeros) drop_zeros(s);
}

// Appends the entries that are not 0 of elements base .. base + n of the row; the state has room
// for the whole row.
template <class T, class Arch>
void nonzero_scan(T* state, extent k, const T* x, extent n, extent base, bool first) noexcept {
  const top_k_state<T, Arch> s(state, k);
  if (first) s.count = 0;
  for (extent i = 0; i < n; ++i) {
    if (x[i] == 0) continue;
    s.values[s.count] = x[i];
    s.indices[s.count++] = static_cast<std::uint32_t>(base + i);
  }
}

// Keeps the k greatest and turns them into weights; `row` is the whole row if all of it counts.
template <class T, class Arch>
void top_k_finish(const top_k_state<T, Arch>& s, extent k, weighting weights, const T* row,
                  extent n, bool keeps_zeros = false) noexcept {
  if (s.count > k) top_k_cut(s, k);
  weigh<T, Arch>(s, weights, row, n, keeps_zeros);
}

// Keeps the scores at the places of the k greatest of n numbers.
template <class T, class Arch>
void top_k_by(const top_k_state<T, Arch>& s, extent k, const T* ranked, const T* scores,
              extent n) noexcept {
  top_k_scan<T, Arch>(s, k, ranked, n, 0, true, true);
  if (s.count > k) top_k_cut(s, k);
  for (extent i = 0; i < s.count; ++i) s.values[i] = scores[s.indices[i]];
}

// Orders places of a row as top-k does: the greater number first, a NaN before all, and the lower
// place first among equals. Without a row, it orders them as numbers.
template <class T, class Arch>
struct by_rank {
  const T* row;
  extent stride;

  bool operator()(std::uint32_t a, std::uint32_t b) const {
    if (row == nullptr) return a < b;
    const T x = row[a * stride], y = row[b * stride];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && (!std::isnan(y) || a < b);
    return x > y || (x == y && a < b);
  }
};

// Keeps the fewest of the greatest entries whose softmax over the row sums to `mass`; the state has
// room for n entries.
template <class T, class Arch>
void top_p(T* state, double mass, weighting weights, const T* row, extent n,
           bool keeps_zeros = false) noexcept {
  const top_k_state<T, Arch> s(state, n);
  s.count = 0;
  if (n == 0) return;
  std::iota(s.indices, s.indices + n, std::uint32_t{0});
  std::sort(s.indices, s.indices + n, by_rank<T, Arch>{row, 1});
  softmax<T, Arch>(row, s.values, n);
  double sum = 0;
  extent kept = 0;
  do sum += static_cast<double>(s.values[s.indices[kept++]]);
  while (kept < n && !(sum >= mass));
  std::sort(s.indices, s.indices + kept, by_rank<T, Arch>{nullptr, 0});
  for (extent i = 0; i < kept; ++i) s.values[i] = row[s.indices[i]];
  s.count = static_cast<std::uint32_t>(kept);
  weigh<T, Arch>(s, weights, row, n, keeps_zeros);
}

template <class T, class Arch>
selected<T> top_k_result(const T* state, extent k) noexcept {
  const top_k_state<T, Arch> s(const_cast<T*>(state), k);
  return {s.values, s.indices, s.count};
}

}  // namespace fmoe::cpu

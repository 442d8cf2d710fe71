// SPDX-License-Identifier: MIT
// The functions that expressions apply to one number, or to one row of numbers, at a time.
#pragma once

#include <array>
#include <cstdint>

#include <fmoe/base/checked.hpp>

namespace fmoe {

// Functions of one number.
enum class pointwise : std::uint8_t {
  relu,          // max(x, 0)
  gelu,          // x Phi(x), exact (erf) form
  gelu_tanh,     // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  silu,          // x sigmoid(x)
  sigmoid,       // 1 / (1 + exp(-x))
  squared_relu,  // max(x, 0)^2
  exp,
  sqrt,
  inverse_sqrt,  // 1 / sqrt(x)
  negate,        // -x
  scale,         // x times the parameter
  shift,         // x plus the parameter
  threshold,     // x where x >= the parameter, else 0; NaN stays
  tanh,
  log,
  abs,
  at_least,  // max(x, the parameter); NaN stays
  at_most,   // min(x, the parameter); NaN stays
  quotient,  // x / the parameter
  inverse,   // the parameter / x
  power,     // x to the parameter where x > 0, else 0; NaN stays
  // Derivatives, which gradients are made of.
  gelu_slope,
  gelu_tanh_slope,
  silu_slope,
};

// Functions that make a row of a row.
enum class row_function : std::uint8_t {
  softmax,          // exp(x - max) / sum
  bounded_softmax,  // softmax over the entries that reach min(max, bound), a bound for each row; 0
                    // elsewhere
  entmax,  // [(alpha - 1) x - tau]_+^(1 / (alpha - 1)) with the tau that makes the sum 1; alpha is
           // the parameter
  layer_norm,        // (x - mean) / sqrt(variance + the parameter)
  rms_norm,          // x / sqrt(mean(x^2) + the parameter)
  clamped_rms_norm,  // x sqrt(n) / max(|x|_2, the parameter)
  best_groups,       // x in the `parameter` of the groups with the greatest scores, -infinity
                     // in the others
  group_max,         // x where it is the greatest of its group, the first of equal ones, of
                     // `parameter` groups of neighbours; -infinity elsewhere
  sparse_mixer,      // each of the two greatest entries as its softmax over those that the
                     // `parameter`, a jitter, lets stand beside it; 0 elsewhere
};

// The score of a group of entries.
enum class group_score : std::uint8_t {
  sum_of_two,  // of its two greatest entries, or the one that there is
  greatest,    // its greatest entry
};

// Functions that make one number of a row: norms, and the mean.
enum class row_norm : std::uint8_t {
  l1,    // sum |x|
  l2,    // sqrt(sum x^2)
  max,   // max |x|
  mean,  // sum x / n
};

// Says how a selection changes the scores that it keeps; the others become 0.
enum class weighting : std::uint8_t {
  score,           // unchanged
  softmax,         // the softmax over the kept scores
  softmax_of_all,  // the softmax over the whole row, not renormalised
  one,             // 1
  relu,            // max(score, 0)
  normalized,      // divided by the sum of the kept scores; 0 if that is 0
};

}  // namespace fmoe

namespace fmoe::detail {

// The enumerators by the names that C, Python and fmoe's own files write, in their order.
template <class E>
inline constexpr auto identifiers = nullptr;  // those of another enum are not known
template <>
inline constexpr std::array identifiers<pointwise>{
    "relu",      "gelu",    "gelu_tanh",    "silu",   "sigmoid",    "squared_relu",
    "exp",       "sqrt",    "inverse_sqrt", "negate", "scale",      "shift",
    "threshold", "tanh",    "log",          "abs",    "at_least",   "at_most",
    "quotient",  "inverse", "power",        "gelu'",  "gelu_tanh'", "silu'"};
template <>
inline constexpr std::array identifiers<row_function>{
    "softmax",          "bounded_softmax", "entmax",    "layer_norm",  "rms_norm",
    "clamped_rms_norm", "best_groups",     "group_max", "sparse_mixer"};
template <>
inline constexpr std::array identifiers<group_score>{"sum_of_two", "greatest"};
template <>
inline constexpr std::array identifiers<row_norm>{"l1", "l2", "max", "mean"};
template <>
inline constexpr std::array identifiers<weighting>{"score", "softmax", "softmax_of_all",
                                                   "one",   "relu",    "normalized"};
static_assert(identifiers<pointwise>.size() == static_cast<extent>(pointwise::silu_slope) + 1 &&
              identifiers<row_function>.size() ==
                  static_cast<extent>(row_function::sparse_mixer) + 1 &&
              identifiers<group_score>.size() == static_cast<extent>(group_score::greatest) + 1 &&
              identifiers<row_norm>.size() == static_cast<extent>(row_norm::mean) + 1 &&
              identifiers<weighting>.size() == static_cast<extent>(weighting::normalized) + 1);

}  // namespace fmoe::detail

namespace fmoe {

// The function as `explain` writes it.
constexpr const char* name_of(pointwise f) {
  return detail::identifiers<pointwise>[static_cast<std::size_t>(f)];
}
constexpr const char* name_of(row_function f) {
  constexpr std::array words{"softmax",     "bounded softmax", "entmax",
                             "layer norm",  "rms norm",        "clamped rms norm",
                             "best groups", "group max",       "sparse mixer"};
  return words[static_cast<std::size_t>(f)];
}
constexpr const char* name_of(row_norm n) {
  constexpr std::array words{"L1 norm", "L2 norm", "max norm", "mean"};
  return words[static_cast<std::size_t>(n)];
}

}  // namespace fmoe

namespace fmoe::detail {

// The ways in which a pass changes a finished row: each element by a function of one number, or x
// with the element o of another operand. NaN in x or in o makes NaN of the first five.
enum class pass_kind : std::uint8_t {
  map,
  add,
  multiply,
  divide,  // x / o
  max,
  min,
  keep,   // x where o > 0, else 0
  drop,   // 0 where o > 0, else x
  above,  // x where x > o, else 0; NaN in x stays
};

constexpr const char* name_of(pass_kind k) {
  constexpr std::array names{"map", "add",   "multiply",  "divide", "max",
                             "min", "where", "where not", "above"};
  static_assert(names.size() == static_cast<extent>(pass_kind::above) + 1);
  return names[static_cast<extent>(k)];
}
constexpr const char* sign_of(pass_kind k) {
  using enum pass_kind;
  return k == add ? "+" : k == multiply ? "*" : k == divide ? "/" : name_of(k);
}

// True if x and o may change places.
constexpr bool is_symmetric(pass_kind k) {
  using enum pass_kind;
  return k == add || k == multiply || k == max || k == min;
}

// Says which entries of a row a selection keeps. The greatest come first, among equal ones the
// lower index; NaN is the greatest.
struct selection_rule {
  enum class kind : std::uint8_t {
    top_k,          // keeps `keep` entries
    top_p,          // keeps the fewest whose softmax over the whole row sums to `mass` or more
    nonzero,        // keeps all that are not 0
    expert_choice,  // each column keeps its `keep` best tokens; if that is `all`, it keeps `factor`
                    // tokens / columns of them, rounded down
    product_top_k,  // keeps `keep` of the sums a[i] + b[j] of the `each` greatest entries of two
                    // rows, as entry i s + j of s^2
    entries,  // has the `keep` entries that two rows list: their values, and their places among
              // `each`, which ascend; a place of -1 stands for none
  } what;
  extent keep = 0;
  double mass = 0;
  weighting weights = weighting::score;
  double factor = 2;
  extent each = 0;
  bool keeps_zeros = false;  // a kept score of 0 stays an entry, whatever the weighting
  bool operator==(const selection_rule&) const = default;
};

// The rule of a top_k, or of a product_top_k and its lists, that keeps `most` entries at most.
constexpr selection_rule at_most(selection_rule r, extent most) {
  r.keep = std::min(r.keep, most);
  r.each = std::min(r.each, most);
  return r;
}

// One of the two numbers that a selection has of each entry that it keeps.
enum class kept_part : std::uint8_t {
  value,
  index,
};

// The most groups of a row.
inline constexpr extent most_groups = 64;

// The groups of neighbours into which best_groups cuts a row.
struct grouping {
  extent count = 0;
  group_score score = group_score::sum_of_two;
  bool operator==(const grouping&) const = default;
};

// True if a row of the selection is made of two rows, which are an axis before the last one.
constexpr bool takes_two_rows(selection_rule::kind k) {
  return k == selection_rule::kind::product_top_k || k == selection_rule::kind::entries;
}

// True if the selection of n entries is all of them, as they are.
constexpr bool keeps_all(const selection_rule& r, extent n) {
  const bool is_all = r.keep == all || r.keep == n;
  return r.what == selection_rule::kind::top_k && r.weights == weighting::score && is_all;
}

// Returns about how many of n entries a row keeps; half of them where the number depends on the
// scores.
constexpr extent expected_of(const selection_rule& r, extent n) {
  using enum selection_rule::kind;
  const auto each = static_cast<extent>(r.factor < 1 ? 1 : r.factor);
  const bool is_counted = r.what == top_k || r.what == product_top_k || r.what == entries;
  const extent wanted = is_counted ? r.keep : r.what == expert_choice ? each : n / 2 + n % 2;
  return wanted < n ? wanted : n;
}

// Returns how many tokens each of `experts` chooses: at least one if there is one, at most all.
constexpr extent capacity_of(const selection_rule& r, extent tokens, extent experts) {
  const double share =
      r.factor * static_cast<double>(tokens) / static_cast<double>(experts == 0 ? 1 : experts);
  const extent wanted = r.keep != all                         ? r.keep
                        : share < 1                           ? 1
                        : share < static_cast<double>(tokens) ? static_cast<extent>(share)
                                                              : tokens;
  return wanted < tokens ? wanted : tokens;
}

constexpr const char* name_of(kept_part p) { return p == kept_part::value ? "values" : "indices"; }

constexpr const char* name_of(selection_rule::kind k) {
  constexpr std::array names{"top_k",         "top_p",         "nonzero",
                             "expert_choice", "product_top_k", "entries"};
  static_assert(names.size() == static_cast<extent>(selection_rule::kind::entries) + 1);
  return names[static_cast<extent>(k)];
}

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// How values lie on ranks, and the bytes that a rank receives where a value comes to lie otherwise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmoe/distributed/sharded.hpp>

namespace fmoe::detail {

// How a value lies on the ranks. Constants are whole or cut along the label. What is routed is
// there for the tokens alone that selected an entry of this rank: whole, cut along the label, or
// partial.
enum class spread : std::uint8_t {
  whole,
  tokens,
  label,
  partial,
  routed,
  routed_label,
  routed_partial
};

constexpr bool is_routed(spread s) { return s >= spread::routed; }
constexpr bool is_by_part(spread s) {
  return s != spread::whole && s != spread::tokens && s != spread::routed;
}
constexpr bool is_cut(spread s) { return s == spread::label || s == spread::routed_label; }
constexpr bool is_partial(spread s) { return s == spread::partial || s == spread::routed_partial; }

// The tokens for which a rank has rows; a sum over tokens has none.
enum class token_set : std::uint8_t { own, every, routed, none };
constexpr token_set tokens_of(spread s) {
  return s == spread::tokens ? token_set::own : is_routed(s) ? token_set::routed : token_set::every;
}

// What a token selects: `rows` selections of `entries` out of `length`.
struct routing_load {
  double entries = 0, rows = 1, length = 1;

  double all() const { return entries * rows; }

  // Returns the expected share of tokens that select an entry of a part, under even load: each set
  // of entries is as likely as any other.
  double reached(double parts) const {
    double none = 1;
    for (double i = 0; i < entries; ++i)
      none *= std::max(0.0, 1 - length / parts / std::max(length - i, 1.0));
    return 1 - std::pow(none, rows);
  }
};

// What of a value travels.
enum class travel : std::uint8_t {
  rows,     // all its numbers
  entries,  // of a selection: a number and its place for each entry that it keeps
  sampled,  // of rows along the label: those that the selection of routed tokens keeps
};

struct moved_value {
  spread from, to;
  travel by;
  double numbers, inner;  // of a token; of these, those behind the label's axis
  routing_load load;
};

// A sum over tokens that comes to lie otherwise, once a call: the sum over a rank's own tokens is a
// part of it.
inline moved_value moved_sum(spread from, spread to, double numbers) {
  return {from == spread::tokens ? spread::partial : from, to, travel::rows, numbers, 1, {}};
}

// Returns the calls of ranks that this takes. What is whole, or there for all tokens, is on its
// rank.
inline double calls_to_move(spread from, spread to, travel by) {
  using enum spread;
  if (by == travel::entries || (from == partial && to == whole)) return 2;  // counts come first
  return from == whole || (from == label && is_routed(to)) ? 0 : 1;
}

// Returns the bytes of one token that each of so many ranks receives, if all have the same number
// of tokens and of entries; under even load where tokens are routed.
inline double bytes_to_move(const moved_value& v, double ranks, double element_bytes) {
  using enum spread;
  const double others = (ranks - 1) / ranks, all = v.numbers * element_bytes * others,
               places = sizeof(std::uint32_t) * v.load.reached(ranks) * others;
  if (v.by == travel::entries && v.from == label && v.to == routed_label) return places;
  if (v.from == whole || (v.from == label && is_routed(v.to))) return 0;
  if (v.from == tokens && is_cut(v.to)) {
    const double kept = v.load.all() * element_bytes * others / ranks;
    if (v.by == travel::entries) return 2 * kept;
    if (v.by == travel::sampled) return kept * v.inner;
    return v.to == label ? all / ranks : all * v.load.reached(ranks) / ranks;
  }
  if (v.from == label && v.to == tokens) return all / ranks;
  if (v.from == routed_partial || v.to == routed) return all * v.load.reached(ranks);
  return v.from == partial && v.to == whole ? 2 * all : all;
}

}  // namespace fmoe::detail

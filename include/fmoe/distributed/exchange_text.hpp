// SPDX-License-Identifier: MIT
// What an exchange of a plan costs, and how the plan's text calls it.
#pragma once

#include <string>

#include <fmoe/base/text_stream.hpp>
#include <fmoe/distributed/moved_bytes.hpp>
#include <fmoe/distributed/stage_plan.hpp>
#include <fmoe/distributed/told_bounds.hpp>

namespace fmoe::detail {

// The bytes of one token that a rank receives, if ranks have the same number of tokens and of
// entries; those of a call, if a sum over tokens moves.
inline double bytes_of(const stage_exchange& e, double ranks, extent element_bytes) {
  if (e.merges)
    return (e.merged_bytes + (e.tells_bounds ? bound_bytes(e.first) : 0)) * (ranks - 1) / ranks;
  return bytes_to_move({e.from_how, e.to_how, e.by, static_cast<double>(e.numbers),
                        static_cast<double>(e.inner), e.load},
                       ranks, static_cast<double>(element_bytes));
}

// The calls of the communicator that an exchange makes.
inline double calls_of(const stage_exchange& e) {
  if (e.merges) return e.merged_calls + (e.tells_bounds ? 2 : 0);
  return calls_to_move(e.from_how, e.to_how, e.by);
}

// How an exchange is called: by the collective, if it is one.
inline std::string name_of(const stage_exchange& e) {
  using enum spread;
  if (e.function) return std::string("merge ") + fmoe::name_of(*e.function);
  if (e.norm) return std::string("merge ") + fmoe::name_of(*e.norm);
  if (e.merges) return "merge";
  if (e.from_how == whole)
    return is_routed(e.to_how) ? "take routed rows" : "take this rank's rows";
  if (e.from_how == label && is_routed(e.to_how))
    return e.by == travel::entries ? "all_to_all" : "take routed rows";
  if (e.from_how == partial) return e.to_how == whole ? "all_reduce" : "reduce_scatter";
  return e.to_how == whole ? "all_gather" : "all_to_all";
}

inline std::string best_text(const stage_exchange& e) {
  if (e.first == e.rule.keep) return {};
  return " from the " + std::to_string(e.first) + " best of each rank" +
         (e.tells_bounds ? " after bounds of their scores" : "") +
         ", and more where all of these are kept";
}

inline std::string text_of(const stage_exchange& e, double ranks, extent element_bytes) {
  text_stream text;
  text << name_of(e);
  const bool routes = is_routed(e.to_how) || is_routed(e.from_how);
  if (e.function || e.norm) text << " over the parts";
  else if (e.merges)
    text << " a selection of " << e.rule.keep << best_text(e) << " (all_to_all, all_gather)";
  else if (e.by == travel::entries && e.from_how == spread::label)
    text << " of the numbers of the tokens that are routed";
  else if (e.by == travel::entries)
    text << " of the entries of a selection, " << e.load.all() << " a token"
         << (routes ? ", which routes tokens" : "");
  else if (e.by == travel::sampled) text << " of " << e.inner << " numbers of each selected entry";
  else
    text << " of " << e.numbers << " numbers a "
         << (e.is_sum ? "call"
             : routes ? "routed token"
                      : "token");
  text << ": " << bytes_of(e, ranks, element_bytes) << " bytes a " << (e.is_sum ? "call" : "token")
       << " received by each rank";
  if (routes) text << ", expected under even load";
  return text.str();
}

}  // namespace fmoe::detail

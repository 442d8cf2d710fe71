// SPDX-License-Identifier: MIT
// The labels of the einsums over factorized experts, and of their factors in files, for any number
// of levels.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <fmoe/base/labels.hpp>

namespace fmoe::detail {

// The letters of the experts of each level, and those of the ranks of tensor rings and Tucker
// cores.
inline constexpr std::string_view expert_labels = "nmlkjhg", ring_labels = "pqrsuvwxy";

// Joins the results of `of(level)` for each level.
template <extent Levels>
constexpr auto for_levels(auto of) {
  return [&]<extent... Level>(std::index_sequence<Level...>) {
    return (of(Level) + ...);
  }(std::make_index_sequence<Levels>());
}

template <extent Levels>
concept hierarchy = Levels >= 1 && Levels <= expert_labels.size();

// Returns the subscripts of the coefficients of each level: "tn,tm,".
template <extent Levels>
constexpr auto coefficient_labels() {
  return for_levels<Levels>([](extent e) { return subscripts("t") + expert_labels[e] + ','; });
}

// Returns the subscripts of y from those of its operands, "...->to".
template <class Labels>
inline constexpr subscripts forward = Labels::operands + "->to";

// The same product, not summed over the experts of one level: "...->tno" for the first.
template <class Labels, extent Level>
inline constexpr subscripts of_each_expert = Labels::operands + "->t" + expert_labels[Level] + 'o';

template <extent Levels>
struct cp_labels {
  // "tn,nr,ti,ir,or"; with two levels "tn,tm,nr,mr,ti,ir,or".
  static constexpr subscripts operands =
      coefficient_labels<Levels>() +
      for_levels<Levels>([](extent e) { return subscripts("") + expert_labels[e] + "r,"; }) +
      "ti,ir,or";
  static constexpr subscripts one_expert =
      for_levels<Levels>([](extent) { return subscripts("r,"); }) + "ir,or->io";

  static std::string factor(extent e) { return {expert_labels[e], 'r'}; }
  static constexpr char input[] = "zr", output[] = "or";
};

template <extent Levels>
struct ring_factor_labels {
  static constexpr char before = ring_labels[Levels], between = ring_labels[Levels + 1];

  // "tn,pnq,ti,qir,rop"; with two levels "tn,tm,pnq,qmr,ti,ris,sop".
  static constexpr subscripts operands =
      coefficient_labels<Levels>() + for_levels<Levels>([](extent e) {
        return subscripts("") + ring_labels[e] + expert_labels[e] + ring_labels[e + 1] + ',';
      }) +
      "ti," + before + 'i' + between + ',' + between + "op";
  static constexpr subscripts one_expert =
      for_levels<Levels>(
          [](extent e) { return subscripts("") + ring_labels[e] + ring_labels[e + 1] + ','; }) +
      before + 'i' + between + ',' + between + "op->io";

  static std::string factor(extent e) {
    return {ring_labels[e], expert_labels[e], ring_labels[e + 1]};
  }
  static constexpr char input[] = {before, 'z', between, 0}, output[] = {between, 'o', 'p', 0};
};

template <extent Levels>
struct tucker_labels {
  static constexpr char in = ring_labels[Levels], out = ring_labels[Levels + 1];
  static constexpr subscripts core =
      for_levels<Levels>([](extent e) { return subscripts("") + ring_labels[e]; }) + in + out;

  // "tn,np,ti,iq,or,pqr"; with two levels "tn,tm,np,mq,ti,ir,os,pqrs".
  static constexpr subscripts operands =
      coefficient_labels<Levels>() + for_levels<Levels>([](extent e) {
        return subscripts("") + expert_labels[e] + ring_labels[e] + ',';
      }) +
      "ti,i" + in + ",o" + out + ',' + core;
  static constexpr subscripts one_expert =
      for_levels<Levels>([](extent e) { return subscripts("") + ring_labels[e] + ','; }) + 'i' +
      in + ",o" + out + ',' + core + "->io";

  static std::string factor(extent e) { return {expert_labels[e], ring_labels[e]}; }
  static constexpr char input[] = {'z', in, 0}, output[] = {'o', out, 0};
};

template <extent Levels>
struct dense_labels {
  static constexpr subscripts each_level =
      for_levels<Levels>([](extent e) { return subscripts("") + expert_labels[e]; });

  // "tn,ti,nio"; with two levels "tn,tm,ti,nmio" (Eq. 15).
  static constexpr subscripts operands = coefficient_labels<Levels>() + "ti," + each_level + "io";
  static constexpr subscripts in_file = each_level + "zo";
};

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// A program that holds the kernels of several levels runs those of the best one that its CPU has.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/base/checked.hpp>
#include <fmoe/base/error.hpp>

namespace fmoe::cpu {

template <class... Levels>
struct level_list {
  static constexpr const char* names[] = {Levels::name...};
};

// All levels of this architecture, each of which has all that those before it have, and those whose
// kernels the program holds: FMOE_LEVELS, or all.
#if FMOE_X86_64
using all_levels = level_list<x86_64_v2, x86_64_v3, x86_64_v4>;
#elif defined(__aarch64__)
using all_levels = level_list<arm64>;
#else
using all_levels = level_list<baseline>;
#endif
#if defined(FMOE_LEVELS)
using dispatched_levels = level_list<FMOE_LEVELS>;
#else
using dispatched_levels = all_levels;
#endif

#if FMOE_X86_64
// Words of cpuid: the third one of leaf 1, that of leaf 0x80000001, and the second one of leaf 7.
// The bits that a level needs are those of the x86-64 psABI.
struct cpuid_words {
  unsigned basic, further, extended;
  std::uint64_t registers;

  bool has(const cpuid_words& bits) const {
    return (basic & bits.basic) == bits.basic && (further & bits.further) == bits.further &&
           (extended & bits.extended) == bits.extended &&
           (registers & bits.registers) == bits.registers;
  }
};
constexpr unsigned bits_of(auto... places) { return (0u | ... | (1u << places)); }
inline constexpr cpuid_words level_bits[] = {
    {bits_of(0, 9, 13, 19, 20, 23), bits_of(0), 0, 0},                 // SSE4.2, popcnt
    {bits_of(12, 22, 27, 28, 29), bits_of(5), bits_of(3, 5, 8), 0x6},  // AVX2, FMA, BMI
    {0, 0, bits_of(16, 17, 28, 30, 31), 0xe6},                         // AVX-512
};

inline cpuid_words asked_cpuid() {
  cpuid_words found{};
  unsigned words[4];
  if (detail::ask_cpuid(1, 0, words)) found.basic = words[2];
  if (detail::ask_cpuid(0x80000001, 0, words)) found.further = words[2];
  if (detail::ask_cpuid(7, 0, words)) found.extended = words[1];
  if ((found.basic & bits_of(27)) != 0) found.registers = detail::kept_registers();
  return found;
}

// Returns how many of all levels this CPU runs.
inline extent count_levels() {
  const cpuid_words cpu = asked_cpuid();
  extent n = 0;
  for (const cpuid_words& bits : level_bits) {
    if (!cpu.has(bits)) break;
    ++n;
  }
  return n;
}
#else
inline extent count_levels() { return 1; }
#endif

// Returns how many of the program's levels a CPU runs that runs the first `cpu` of all levels.
inline extent count_dispatched_levels(extent cpu) {
  const auto* const runs = all_levels::names;
  return static_cast<extent>(std::ranges::count_if(dispatched_levels::names, [&](const char* name) {
    return std::find(runs, runs + cpu, std::string_view(name)) != runs + cpu;
  }));
}

// Returns the place of the level of this name; without a name, of the best one. `runs` levels are
// those that the CPU has.
inline extent place_of_level(std::string_view name, extent runs) {
  constexpr auto& names = dispatched_levels::names;
  detail::expects<value_error>(runs > 0, "[dispatch] this CPU lacks instructions of ", names[0],
                               ", the lowest level that the program holds kernels of");
  if (name.empty()) return runs - 1;
  std::string known;
  for (extent i = 0; i < std::size(names); ++i) {
    known += (i == 0 ? "" : ", ") + std::string(names[i]);
    if (name != names[i]) continue;
    detail::expects<value_error>(i < runs, "[dispatch] FMOE_LEVEL asks for ", name,
                                 ", and this CPU runs ", names[runs - 1], " at most");
    return i;
  }
  detail::fail<value_error>("[dispatch] FMOE_LEVEL is ", name,
                            ", and the program holds kernels of ", known);
}

// The place of the level of this process, which is chosen when it is asked for first: that which
// the environment names in FMOE_LEVEL, or the best one.
inline extent place_of_level() {
  static const extent chosen = [] {
    const char* const name = std::getenv("FMOE_LEVEL");
    return place_of_level(name == nullptr ? "" : name, count_dispatched_levels(count_levels()));
  }();
  return chosen;
}

template <class First, class... More, class F>
decltype(auto) call_at(level_list<First, More...>, extent place, const F& f) {
  if constexpr (sizeof...(More) > 0)
    if (place > 0) return call_at(level_list<More...>{}, place - 1, f);
  return f.template operator()<First>();
}

// Returns what f<Level>() returns for the level of this process.
template <class F>
decltype(auto) at_level(const F& f) {
  return call_at(dispatched_levels{}, place_of_level(), f);
}

}  // namespace fmoe::cpu

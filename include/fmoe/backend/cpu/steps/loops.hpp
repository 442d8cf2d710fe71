// SPDX-License-Identifier: MIT
// Runs lists of steps, and loops over the units of an intermediate. A step of a kind is run by the
// function run(step, operands, frame) that the other files of this folder have for it. These are
// templates and still declared inline, because g++ then takes more of them into their callers.
#pragma once

#include <fmoe/backend/cpu/operands.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
inline void run_step(const step& s, const operands<T, Arch>& in, const frame<T>& f) noexcept {
  detail::visit([&](const auto& x) { run(x, in, f); }, s);
}

// Runs steps that make each row from the same row of what they read; threads share the rows.
template <class T, class Arch>
inline void run_rows(const vector<step>& steps, const row_range& s, const operands<T, Arch>& in,
                     const frame<T>& whole) noexcept {
  const extent parts = s.parts(whole.count, whole.threads->size());
  whole.threads->run(parts, [&](extent thread) noexcept {
    frame<T> f = whole;
    f.threads = &crew::alone();
    f.row = whole.count * thread / parts;
    f.count = whole.count * (thread + 1) / parts - f.row;
    for (extent i = s.first; i < s.end; ++i) run_step(steps[i], in, f);
  });
}

// Runs the steps of [first, end) in order; threads share the rows of some. weights_from(i) returns
// the weights that are read first from step i on.
template <class T, class Arch>
inline void run_steps(const vector<step>& steps, extent first, extent end,
                      const vector<row_range>& shared, const operands<T, Arch>& in, frame<T>& f,
                      const auto& weights_from) noexcept {
  auto range = shared.begin();
  for (extent i = first; i < end; ++i) {
    while (range != shared.end() && range->first < i) ++range;
    if (f.threads->size() > 1 && range != shared.end() && range->first == i) {
      run_rows(steps, *range, in, f);
      i = range->end - 1;
      continue;
    }
    f.next = weights_from(i + 1);
    run_step(steps[i], in, f);
  }
}

template <class T, class Arch>
inline void run(const loop_step& s, const operands<T, Arch>& in, const frame<T>& outer) noexcept {
  frame<T> f = outer;
  f.in_loop = true;
  for (f.at = 0; f.at < s.length; f.at += s.chunk) {
    f.length = std::min(s.chunk, s.length - f.at);
    f.is_first = f.at == 0;
    f.is_last = f.at + f.length == s.length;
    run_steps(s.body, 0, s.body.size(), s.shared, in, f, [&](extent i) {
      const std::byte* const next = in.first_weights(s.body, i, f.at);
      if (next != nullptr) return next;
      return f.is_last ? outer.next : in.first_weights(s.body, 0, f.at + f.length);
    });
  }
}

}  // namespace fmoe::cpu

// SPDX-License-Identifier: MIT
// Writes and reads machines.
#pragma once

#include <cmath>
#include <limits>
#include <ostream>

#include <fmoe/base/error.hpp>
#include <fmoe/base/number_text.hpp>
#include <fmoe/base/text_stream.hpp>
#include <fmoe/planner/machine_text.hpp>

namespace fmoe::detail {

// Calls f with the name of each number of a machine and with the number, in the order of the text.
// What kernels fix is not part of it.
template <class Machine, class F>
void each_number_of_machine(Machine& m, const F& f) {
  f("threads", m.threads);
  const auto rates = [&](const std::string& of, auto& r) {
    f(of + ".flops", r.flops);
    f(of + ".int16_dots", r.int16_dots);
    f(of + ".int8_dots", r.int8_dots);
    f(of + ".bf16_dots", r.bf16_dots);
    f(of + ".l2", r.l2);
    f(of + ".l3", r.l3);
    f(of + ".memory", r.memory);
  };
  rates("one", m.one);
  rates("every", m.every);
  f("l1", m.l1);
  f("l2", m.l2);
  f("l3", m.l3);
  f("set_stride", m.set_stride);
  f("narrow", m.narrow);
  f("kernel_rows", m.kernel_rows);
  f("rows", m.rows);
  f("flops_per_byte", m.flops_per_byte);
  f("crowded", m.crowded);
  f("crowded_factor", m.crowded_factor);
  f("sampled", m.sampled);
  f("summed_entries_a_kept", m.summed_entries_a_kept);
}

// The same for what only a GPU has.
template <class Machine, class F>
void each_number_of_gpu(Machine& m, const F& f) {
  f("gpu.tf32_dots", m.gpu.tf32_dots);
  f("gpu.launch", m.gpu.launch);
}

// Reads all of a word as a number above 0.
template <class Number>
bool read_number(const std::string& word, Number& n) {
  return is_number(word, n) && n > 0 && std::isfinite(static_cast<double>(n));
}

}  // namespace fmoe::detail

namespace fmoe {

FMOE_INLINE std::ostream& operator<<(std::ostream& out, const machine& m) {
  detail::text_stream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  text << "name " << m.name << '\n';
  const auto write = [&](const std::string& name, auto number) {
    text << name << ' ' << number << '\n';
  };
  detail::each_number_of_machine(m, write);
  if (m.gpu.launch > 0) detail::each_number_of_gpu(m, write);
  return out << text.str();
}

FMOE_INLINE machine machine_from(std::string_view text) {
  detail::text_reader lines{std::string(text)};
  machine m;
  const auto next = [&](const std::string& name) {  // what follows the name on the next line
    std::string line;
    std::getline(lines, line);
    detail::expects<value_error>(line.starts_with(name + ' '), "[machine_from] the line of \"",
                                 name, "\" is missing: here is \"", line, "\"");
    return line.substr(name.size() + 1);
  };
  m.name = next("name");
  const auto read = [&](const std::string& name, auto& number) {
    const std::string word = next(name);
    detail::expects<value_error>(detail::read_number(word, number), "[machine_from] \"", name,
                                 "\" is a number above 0, and not \"", word, "\"");
  };
  detail::each_number_of_machine(m, read);
  if ((lines >> std::ws).peek() == 'g') detail::each_number_of_gpu(m, read);
  std::string more;
  detail::expects<value_error>(!(lines >> more), "[machine_from] there is \"", more,
                               "\" after the last line of a machine");
  return m;
}

}  // namespace fmoe

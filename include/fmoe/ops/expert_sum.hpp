// SPDX-License-Identifier: MIT
// Expert sum: for each expert of a selection, the sum over the tokens that selected it, and over
// the labels that the result does not have, of one or two operands with places instead of experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/ops/token_sum.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

// c[n, out] = the sum over the tokens of a call that selected n, and over `summed`, of a[t, place,
// ...] b[t, place, ...]; b may not exist. An operand without places has one row for each token.
struct expert_sum_step {
  struct operand {
    view at;
    bool has_places = false;
    extent size = 0;  // elements of an entry
    bool operator==(const operand&) const = default;
  };
  std::string text;
  view selection;
  operand a, b;
  view c;
  vector<nest_axis> out{}, summed{};  // the last of `out` is the vector
  extent experts = 0, keep = 0, expert_stride = 0;
  extent block = 0;     // tokens that are summed by themselves
  extent together = 0;  // tokens whose rows of an expert are brought together: some blocks
  static constexpr extent most_blocks = 4;

  extent product_room() const {
    return token_product_room::size(out, b.at.exists() && summed.empty(), block);
  }
  // The elements that a task needs: those of a product, the rows of some blocks' tokens, and their
  // entries sorted by expert.
  extent scratch(extent element_bytes) const {
    const extent numbers = 2 * experts + 1 + 2 * together * keep;
    return product_room() + together * (a.size + b.size) +
           divide_up(numbers * sizeof(std::uint32_t), element_bytes);
  }

  const char* name() const { return "expert sum"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    to.read(a.at);
    if (b.at.exists()) to.read(b.at);
    to.write(c);
  }
  void describe(auto& text_of, const auto&) const {
    text_of << "  " << keep << " of " << experts << ", " << block << " tokens at a time";
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct expert_sum_op {
  const char* name() const { return "expert_sum"; }
  void interpret(auto&, const auto&) const {}  // a pass of the CPU makes it

  // The axis of experts is not among those of the nest, since each entry is one operand by itself.
  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& program = to.program();
    const auto &chosen = o.in[0], &a = o.in[1];
    const auto* b = o.in.size() > 2 ? &o.in[2] : nullptr;
    const char expert = chosen.labels.back();
    const auto& s = to.value_of(chosen);
    const auto operand = [&](const auto& u) {
      const extent places = has(u.labels, expert) ? program.extent_of(u, expert) : 1;
      return plan::expert_sum_step::operand{to.whole(u.value), has(u.labels, expert),
                                            to.value_of(u).size() / std::max<extent>(1, places)};
    };
    const extent block = to.options().sum_block;
    const extent blocks = divide_up(program.token_count, std::max<extent>(1, block));
    plan::expert_sum_step sum{
        .text = to.text(o),
        .selection = to.whole(chosen.value),
        .a = operand(a),
        .b = b != nullptr ? operand(*b) : plan::expert_sum_step::operand{},
        .c = to.whole(o.out.value),
        .experts = s.shape.back(),
        .keep = s.keep,
        .expert_stride = program.stride(o.out, expert),
        .block = block,
        .together = block * std::clamp<extent>(blocks, 1, plan::expert_sum_step::most_blocks)};
    axis_labels seen(1, expert);
    const auto add = [&](auto& axes, char c) {
      if (has(seen, c)) return;
      axes.push_back(to.nest(&a, b, o.out, c));
      seen += c;
    };
    for (const char c : o.out.labels) add(sum.out, c);
    for (const auto& u : std::span(o.in).subspan(1))
      for (const char c : u.labels) add(sum.summed, c);
    to.needs_arena(sum.scratch(to.options().element_bytes));
    steps.push_back(std::move(sum));
  }
};

}  // namespace fmoe::planner

// SPDX-License-Identifier: MIT
// A plan in words and as a drawing.
#pragma once

#include <iomanip>
#include <map>
#include <sstream>

#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cpu/plan/plan.hpp>
#include <fmoe/ir/dot.hpp>

namespace fmoe::cpu {

class plan_printer {
 public:
  explicit plan_printer(const plan& p) : plan_(p) {
    lines(p.prologue, 1, "once: ");
    lines(p.steps, 1, "");
    dot_ << ir::dot_head("plan");
    for (extent s = 0; s < p.storages.size(); ++s)
      if (used_[static_cast<int>(s)])
        dot_ << "  s" << s << " [shape=ellipse, fillcolor=\"" << colour(p.storages[s])
             << "\", label=\"" << storage_name(static_cast<int>(s)) << "\"];\n";
    dot_ << edges_.str() << "}\n";
  }

  std::string text() const { return text_.str(); }
  std::string dot() const { return dot_.str(); }

 private:
  std::string storage_name(int s) const {
    const storage_row& row = plan_.storages[static_cast<extent>(s)];
    constexpr const char* kinds[] = {"temporary", "call's", "call's",    "argument",
                                     "input",     "output", "parameter", "constant"};
    return std::string(kinds[static_cast<int>(row.where)]) + " s" + std::to_string(s) + " [" +
           std::to_string(row.elements) + "]";
  }

  static const char* colour(const storage_row& s) {
    constexpr const char* colours[] = {ir::made_colour,   ir::made_colour,  ir::made_colour,
                                       ir::input_colour,  ir::input_colour, ir::result_colour,
                                       ir::weight_colour, ir::weight_colour};
    return colours[static_cast<int>(s.where)];
  }

  void lines(const std::vector<step>& steps, int depth, const char* lead) {
    for (const step& s : steps) {
      text_ << std::string(static_cast<extent>(2 * depth), ' ') << lead;
      std::visit([&](const auto& x) { line(x, depth); }, s);
    }
  }

  void line(const loop_step& s, int depth) {
    text_ << "loop " << s.label << ": " << s.length << " in chunks of " << s.chunk << '\n';
    lines(s.body, depth + 1, "");
  }
  void line(const gemm_step& s, int) {
    const char* cut = s.k_step != 0   ? ", a chunk of k at a time"
                      : s.n_step != 0 ? ", a chunk of n at a time"
                                      : "";
    begin("gemm", s.text, s.c, {s.a, {plan_.weights[static_cast<extent>(s.weight)].storage, 0, 0}});
    text_ << "  k " << s.K << " n " << s.N
          << (s.rows.size() > 1 ? " x " + std::to_string(s.rows.size()) : "") << cut
          << (s.accumulate ? ", continues the sum" : "");
    finish(s.epilogues);
  }
  void line(const batched_step& s, int) {
    constexpr const char* cuts[] = {"", "  a chunk of the result at a time",
                                    "  a chunk of the sum at a time"};
    begin("batched", s.text, s.c, {s.a, s.b});
    text_ << cuts[static_cast<int>(s.axis)];
    finish(s.epilogues);
  }
  void line(const reduce_step& s, int) {
    begin(s.summed.empty() ? "permute" : "reduce", s.text, s.c, {s.a});
    finish(s.epilogues);
  }
  void line(const token_sum_step& s, int) {
    begin("token sum", s.text, s.c, {s.a});
    if (s.b.storage >= 0) reads(s.b);
    text_ << "  " << s.block << " tokens at a time";
    finish({});
  }
  void line(const gather_step& s, int) {
    begin("gather", s.text, s.c, {s.selection, s.table});
    text_ << "  " << s.keep << " rows of " << s.N;
    finish(s.epilogues);
  }
  void line(const rescale_step& s, int) {
    begin("rescale", s.text, s.c, {s.selection, s.factors});
    finish({});
  }
  void line(const sample_step& s, int) {
    begin("sample", s.text, s.c, {s.selection, s.x, s.table});
    text_ << "  " << s.keep << " rows of " << s.K;
    finish(s.epilogues);
  }
  void line(const pointwise_step& s, int) {
    begin("pointwise", s.text, s.c, {s.a});
    finish(s.epilogues);
  }
  void line(const gate_step& s, int) {
    begin(name_of(s.fn), s.text, s.c, {s.a});
    if (s.bounds != 0) reads(s.bound);
    finish({});
  }
  void line(const append_step& s, int) {
    begin("append 1", s.text, s.c, {s.a});
    finish({});
  }
  void line(const select_step& s, int) {
    begin(name_of(s.rule.what), s.text, s.selection, {s.a});
    if (s.rule.what == selection_rule::kind::top_p)
      text_ << "  " << s.rule.mass << " of " << s.columns;
    else text_ << "  " << s.keep << " of " << s.columns;
    if (s.list != 0) text_ << ", the sums of " << s.rule.each << " of " << s.list << " twice";
    finish({});
  }
  void line(const screen_step& s, int) {
    begin("screened", s.text, s.selection,
          {s.a, {plan_.weights[static_cast<extent>(s.weight)].storage, 0, 0}});
    text_ << "  " << s.keep << " of " << s.N << ", scores in 16 bits, survivors in full";
    finish(s.epilogues);
  }
  void line(const expert_choice_step& s, int) {
    begin(name_of(s.rule.what), s.text, s.selection, {s.scores, s.ranked});
    finish({});
  }
  void line(const pick_step& s, int) {
    begin("pick", s.text, s.c, {s.a});
    finish({});
  }
  void line(const put_step& s, int) {
    begin("put", s.text, s.c, {s.a, s.selection});
    finish({});
  }
  void line(const group_step& s, int depth) {
    text_ << "group " << s.text << ": " << s.keep << " of " << s.experts << " experts, by "
          << s.rows << " rows";
    for (const epilogue& e : s.epilogues) {
      text_ << (e.what == epilogue::kind::map   ? std::string(" | ") + name_of(e.fn)
                : e.what == epilogue::kind::add ? " | +"
                                                : " | *");
      if (e.other.storage >= 0) reads(e.other);
    }
    text_ << '\n';
    lines(s.body, depth + 1, "");
  }
  void line(const expand_step& s, int) {
    begin("expand", s.text, s.c, {s.selection});
    finish({});
  }

  void line(const exclude_step& s, int) {
    begin("exclude", s.text, s.c, {});
    for (const view& v : s.operands) reads(v);
    text_ << "  " << s.left_out.size() << " pairs in " << s.groups.size() << " of "
          << s.group.length << ", the sum made again";
    finish({});
  }

  void begin(const char* kind, const std::string& what, const view& to,
             std::initializer_list<view> from) {
    text_ << std::left << std::setw(9) << kind << ' ' << std::setw(17) << what << ' ';
    edges_ << "  x" << ++count_ << " [shape=box, fillcolor=\"" << ir::made_colour << "\", label=\""
           << kind << ' ' << what;
    pending_ << "  x" << count_ << " -> s" << to.storage << ";\n";
    used_[to.storage] = true;
    for (const view& v : from) reads(v);
  }
  void reads(const view& v) {
    used_[v.storage] = true;
    pending_ << "  s" << v.storage << " -> x" << count_ << ";\n";
  }
  void finish(const std::vector<epilogue>& passes) {
    for (const epilogue& e : passes) {
      if (e.what == epilogue::kind::map) {
        text_ << " | " << name_of(e.fn);
        edges_ << " | " << name_of(e.fn);
      } else {
        const char* op = e.what == epilogue::kind::add ? "+" : "*";
        text_ << " | " << op << " s" << e.other.storage;
        edges_ << " | " << op;
        reads(e.other);
      }
    }
    text_ << '\n';
    edges_ << "\"];\n" << pending_.str();
    pending_.str({});
  }

  const plan& plan_;
  std::ostringstream text_, dot_, edges_, pending_;
  std::map<int, bool> used_;
  int count_ = 0;
};

inline plan_text print(const plan& p, extent element_bytes) {
  const plan_printer printed(p);
  const extent kib = divide_up(p.arena * element_bytes, 1024);
  return {"tile of " + std::to_string(p.tile) + " tokens, arena " + std::to_string(kib) + " KiB",
          printed.text(), printed.dot()};
}

}  // namespace fmoe::cpu

// SPDX-License-Identifier: MIT
// A plan in words and as a drawing.
#pragma once

#include <iomanip>

#include <fmoe/base/text_stream.hpp>
#include <fmoe/ir/dot.hpp>
#include <fmoe/plan/accesses.hpp>

namespace fmoe::plan {

class plan_printer {
 public:
  // `notes` stand at the ends of the lines of the plan's steps; there may be none.
  plan_printer(const step_plan& p, std::span<const std::string> notes)
      : plan_(p),
        notes_(notes),
        used_(p.storages.size()) {
    lines(p.prologue, 1, "once: ");
    is_noted_ = true;
    lines(p.steps, 1, "");
    dot_ << ir::dot_head("plan");
    for (extent s = 0; s < p.storages.size(); ++s)
      if (used_[s])
        dot_ << "  s" << s << " [shape=ellipse, fillcolor=\"" << look_of(p.storages[s].where).colour
             << "\", label=\"" << look_of(p.storages[s].where).name << " s" << s << " ["
             << p.storages[s].elements << "]\"];\n";
    dot_ << boxes_.str() << "}\n";
  }

  std::string text() const { return text_.str(); }
  std::string dot() const { return dot_.str(); }

 private:
  struct look {
    const char *name, *colour;
  };
  static look look_of(storage_row::kind where) {
    using enum storage_row::kind;
    switch (where) {
      case arena: return {"temporary", ir::made_colour};
      case call:
      case once: return {"call's", ir::made_colour};
      case argument: return {"argument", ir::input_colour};
      case input: return {"input", ir::input_colour};
      case output: return {"output", ir::result_colour};
      case leaf: return {"parameter", ir::weight_colour};
      case constant:
      case screen: return {"constant", ir::weight_colour};
    }
    return {};
  }

  static const char* rounding(row_rounding r) {
    switch (r) {
      case row_rounding::bf16: return ", rounds its rows to bf16";
      case row_rounding::int8: return ", rounds its rows to 8 bits";
      case row_rounding::none: break;
    }
    return "";
  }

  void lines(const vector<step>& steps, int depth, const char* lead) {
    for (const step& s : steps) {
      if (is_noted_ && !notes_.empty()) {
        if (!notes_.front().empty()) note_ = "  (" + notes_.front() + ")";
        notes_ = notes_.subspan(1);
      }
      text_ << std::string(static_cast<extent>(2 * depth), ' ') << lead;
      visit([&](const auto& x) { line(x, depth); }, s);
    }
  }

  void line(const loop_step& s, int depth) {
    text_ << "loop " << s.label << ": " << s.length << " in chunks of " << s.chunk
          << std::exchange(note_, {}) << '\n';
    lines(s.body, depth + 1, "");
  }
  void line(const gemm_step& s, int) {
    const char* cut = s.k_step != 0   ? ", a chunk of k at a time"
                      : s.n_step != 0 ? ", a chunk of n at a time"
                                      : "";
    begin("gemm", s);
    text_ << "  k " << s.K << " n " << s.N
          << (s.rows.size() > 1 ? " x " + std::to_string(s.rows.size()) : "") << cut
          << rounding(plan_.weights[s.weight].rounding)
          << (s.accumulate ? ", continues the sum" : "");
    finish(s.epilogues);
  }
  void line(const batched_step& s, int) {
    begin("batched", s);
    if (s.axis == batched_step::cut::out) text_ << "  a chunk of the result at a time";
    if (s.axis == batched_step::cut::summed) text_ << "  a chunk of the sum at a time";
    finish(s.epilogues);
  }
  void line(const reduce_step& s, int) {
    begin(s.summed.empty() ? "permute" : "reduce", s);
    finish(s.epilogues);
  }
  void line(const token_sum_step& s, int) {
    begin("token sum", s);
    text_ << "  " << s.block << " tokens at a time";
    finish({});
  }
  void line(const selection_sum_step& s, int) {
    begin("token sum", s);
    text_ << "  " << s.keep << " of " << s.experts << " rows, " << s.block << " tokens at a time"
          << (s.is_sparse ? ", only the selected" : "");
    finish({});
  }
  void line(const gather_step& s, int) {
    begin("gather", s);
    text_ << "  " << s.keep << " rows of " << s.N;
    finish(s.epilogues);
  }
  void line(const rescale_step& s, int) {
    begin("rescale", s);
    finish({});
  }
  void line(const sample_step& s, int) {
    begin("sample", s);
    text_ << "  " << s.keep << " rows of " << s.K << (s.multiplies ? "" : ", not weighted");
    finish(s.epilogues);
  }
  void line(const pointwise_step& s, int) {
    begin("pointwise", s);
    finish(s.epilogues);
  }
  void line(const row_norm_step& s, int) {
    begin(name_of(s.which), s);
    finish({});
  }
  void line(const row_function_step& s, int) {
    begin(name_of(s.fn), s);
    finish({});
  }
  void line(const append_step& s, int) {
    begin("append 1", s);
    finish({});
  }
  void line(const select_step& s, int) {
    begin(name_of(s.rule.what), s);
    if (s.rule.what == selection_rule::kind::top_p)
      text_ << "  " << s.rule.mass << " of " << s.columns;
    else text_ << "  " << s.keep << " of " << s.columns;
    if (s.rule.what == selection_rule::kind::product_top_k)
      text_ << ", the sums of " << s.rule.each << " of " << s.list << " twice";
    finish({});
  }
  void line(const screen_step& s, int) {
    begin("screened", s);
    text_ << "  " << s.keep << " of " << s.N << ", scores in 16 bits, survivors in full";
    finish(s.epilogues);
  }
  void line(const expert_choice_step& s, int) {
    begin(name_of(s.rule.what), s);
    finish({});
  }
  void line(const pick_step& s, int) {
    begin("pick", s);
    finish({});
  }
  void line(const take_step& s, int) { plain(s.spreads ? "spread" : "take", s); }
  void line(const weigh_step& s, int) { plain("weigh", s); }
  void line(const reweigh_step& s, int) { plain("reweigh", s); }
  void line(const unpair_step& s, int) { plain("unpair", s); }
  void line(const keep_step& s, int) { plain("keep", s); }
  void line(const expert_sum_step& s, int) {
    begin("expert sum", s);
    text_ << "  " << s.keep << " of " << s.experts << ", " << s.block << " tokens at a time";
    finish({});
  }
  void line(const put_step& s, int) {
    begin("put", s);
    finish({});
  }
  void line(const group_step& s, int depth) {
    text_ << "group " << s.text << ": " << s.keep << " of " << s.experts << " experts, by "
          << s.rows << " rows";
    access_list own{{s.selection, access_mode::read}, {s.c, access_mode::write}};
    for (const epilogue& e : s.epilogues)
      if (e.what != pass_kind::map) own.push_back({e.other, access_mode::read});
    draw("group", s.text, own);
    finish(s.epilogues);
    lines(s.body, depth + 1, "");
  }
  void line(const kept_step& s, int) {
    begin(name_of(s.what), s);
    finish({});
  }
  void line(const expand_step& s, int) {
    begin("expand", s);
    finish({});
  }

  void line(const exclude_step& s, int) {
    begin("exclude", s);
    text_ << "  " << s.left_out.size() << " pairs in " << s.groups.size() << " of "
          << s.group.length << ", the sum made again";
    finish({});
  }

  template <class Step>
  void plain(const char* kind, const Step& s) {
    begin(kind, s);
    finish({});
  }
  // Begins the line of a step and its box in the drawing, which `finish` ends.
  template <class Step>
  void begin(const char* kind, const Step& s) {
    text_ << std::left << std::setw(9) << kind << ' ' << std::setw(17) << s.text << ' ';
    draw(kind, s.text, accesses(plan_, s));
  }
  void draw(const char* kind, const std::string& subscripts, const access_list& accessed) {
    boxes_ << "  x" << ++count_ << " [shape=box, fillcolor=\"" << ir::made_colour << "\", label=\""
           << kind << ' ' << subscripts;
    for (const access& a : accessed) {
      used_[a.where.storage] = true;
      if (a.mode != access_mode::write)
        edges_ << "  s" << a.where.storage << " -> x" << count_ << ";\n";
      if (a.mode != access_mode::read)
        edges_ << "  x" << count_ << " -> s" << a.where.storage << ";\n";
    }
  }
  void finish(const vector<epilogue>& passes) {
    for (const epilogue& e : passes) {
      const char* what = e.what == pass_kind::map ? e.f.name() : sign_of(e.what);
      text_ << " | " << what;
      if (e.what != pass_kind::map) text_ << " s" << e.other.storage;
      boxes_ << " | " << what;
    }
    text_ << std::exchange(note_, {}) << '\n';
    boxes_ << "\"];\n" << edges_.str();
    edges_.str({});
  }

  const step_plan& plan_;
  std::span<const std::string> notes_;  // of the steps to come; empty if there are none
  bool is_noted_ = false;               // the prologue is not
  std::string note_;                    // for the end of the line
  detail::text_stream text_, dot_, boxes_, edges_;
  vector<bool> used_;  // by storage
  int count_ = 0;
};

}  // namespace fmoe::plan

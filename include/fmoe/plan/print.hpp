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
  template <class Step>
  void line(const Step& s, int) {
    text_ << std::left << std::setw(9) << s.name() << ' ' << std::setw(17) << s.text << ' ';
    draw(s.name(), s.text, accesses(plan_, s));
    if constexpr (requires { s.describe(text_, plan_); }) s.describe(text_, plan_);
    if constexpr (requires { s.epilogues; }) finish(s.epilogues);
    else finish({});
  }
  // Begins the box of a step in the drawing, which `finish` ends with the line.
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

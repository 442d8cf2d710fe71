// SPDX-License-Identifier: MIT
// What the planner chose for an expression: its steps as text and as a drawing, with their costs,
// beside a drawing of the graph that it started from.
#pragma once

#include <iomanip>
#include <ostream>
#include <sstream>

#include <fmoe/ir/dot.hpp>
#include <fmoe/run/cost.hpp>

namespace fmoe {

// Drawings are for Graphviz: dot -Tsvg.
struct explanation {
  std::string text;
  std::string dot;    // the plan's drawing: a box a step, an ellipse what it reads and writes
  std::string graph;  // the expression's: a box an operation

  friend std::ostream& operator<<(std::ostream& out, const explanation& e) { return out << e.text; }
};

class plan_printer {
 public:
  explicit plan_printer(const cpu::plan& p) : plan_(p) {
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
    const cpu::storage_row& row = plan_.storages[static_cast<extent>(s)];
    constexpr const char* kinds[] = {"temporary", "call's", "call's",    "argument",
                                     "input",     "output", "parameter", "constant"};
    return std::string(kinds[static_cast<int>(row.where)]) + " s" + std::to_string(s) + " [" +
           std::to_string(row.elements) + "]";
  }

  static const char* colour(const cpu::storage_row& s) {
    constexpr const char* colours[] = {ir::made_colour,   ir::made_colour,  ir::made_colour,
                                       ir::input_colour,  ir::input_colour, ir::result_colour,
                                       ir::weight_colour, ir::weight_colour};
    return colours[static_cast<int>(s.where)];
  }

  void lines(const std::vector<cpu::step>& steps, int depth, const char* lead) {
    for (const cpu::step& s : steps) {
      text_ << std::string(static_cast<extent>(2 * depth), ' ') << lead;
      std::visit([&](const auto& x) { line(x, depth); }, s);
    }
  }

  void line(const cpu::loop_step& s, int depth) {
    text_ << "loop " << s.label << ": " << s.length << " in chunks of " << s.chunk << '\n';
    lines(s.body, depth + 1, "");
  }
  void line(const cpu::gemm_step& s, int) {
    const char* cut = s.k_step != 0   ? ", a chunk of k at a time"
                      : s.n_step != 0 ? ", a chunk of n at a time"
                                      : "";
    begin("gemm", s.text, s.c, {s.a, {plan_.weights[static_cast<extent>(s.weight)].storage, 0, 0}});
    text_ << "  k " << s.K << " n " << s.N
          << (s.rows.size() > 1 ? " x " + std::to_string(s.rows.size()) : "") << cut
          << (s.accumulate ? ", continues the sum" : "");
    finish(s.epilogues);
  }
  void line(const cpu::batched_step& s, int) {
    constexpr const char* cuts[] = {"", "  a chunk of the result at a time",
                                    "  a chunk of the sum at a time"};
    begin("batched", s.text, s.c, {s.a, s.b});
    text_ << cuts[static_cast<int>(s.axis)];
    finish(s.epilogues);
  }
  void line(const cpu::reduce_step& s, int) {
    begin(s.summed.empty() ? "permute" : "reduce", s.text, s.c, {s.a});
    finish(s.epilogues);
  }
  void line(const cpu::token_sum_step& s, int) {
    begin("token sum", s.text, s.c, {s.a});
    if (s.b.storage >= 0) reads(s.b);
    text_ << "  " << s.block << " tokens at a time";
    finish({});
  }
  void line(const cpu::gather_step& s, int) {
    begin("gather", s.text, s.c, {s.selection, s.table});
    text_ << "  " << s.keep << " rows of " << s.N;
    finish(s.epilogues);
  }
  void line(const cpu::rescale_step& s, int) {
    begin("rescale", s.text, s.c, {s.selection, s.factors});
    finish({});
  }
  void line(const cpu::sample_step& s, int) {
    begin("sample", s.text, s.c, {s.selection, s.x, s.table});
    text_ << "  " << s.keep << " rows of " << s.K;
    finish(s.epilogues);
  }
  void line(const cpu::pointwise_step& s, int) {
    begin("pointwise", s.text, s.c, {s.a});
    finish(s.epilogues);
  }
  void line(const cpu::gate_step& s, int) {
    begin(name_of(s.fn), s.text, s.c, {s.a});
    if (s.bounds != 0) reads(s.bound);
    finish({});
  }
  void line(const cpu::append_step& s, int) {
    begin("append 1", s.text, s.c, {s.a});
    finish({});
  }
  void line(const cpu::select_step& s, int) {
    begin(name_of(s.rule.what), s.text, s.selection, {s.a});
    if (s.rule.what == selection_rule::kind::top_p)
      text_ << "  " << s.rule.mass << " of " << s.columns;
    else text_ << "  " << s.keep << " of " << s.columns;
    if (s.list != 0) text_ << ", the sums of " << s.rule.each << " of " << s.list << " twice";
    finish({});
  }
  void line(const cpu::screen_step& s, int) {
    begin("screened", s.text, s.selection,
          {s.a, {plan_.weights[static_cast<extent>(s.weight)].storage, 0, 0}});
    text_ << "  " << s.keep << " of " << s.N << ", scores in 16 bits, survivors in full";
    finish(s.epilogues);
  }
  void line(const cpu::expert_choice_step& s, int) {
    begin(name_of(s.rule.what), s.text, s.selection, {s.scores, s.ranked});
    finish({});
  }
  void line(const cpu::pick_step& s, int) {
    begin("pick", s.text, s.c, {s.a});
    finish({});
  }
  void line(const cpu::put_step& s, int) {
    begin("put", s.text, s.c, {s.a, s.selection});
    finish({});
  }
  void line(const cpu::group_step& s, int depth) {
    text_ << "group " << s.text << ": " << s.keep << " of " << s.experts << " experts, by "
          << s.rows << " rows";
    for (const cpu::epilogue& e : s.epilogues) {
      text_ << (e.what == cpu::epilogue::kind::map   ? std::string(" | ") + name_of(e.fn)
                : e.what == cpu::epilogue::kind::add ? " | +"
                                                     : " | *");
      if (e.other.storage >= 0) reads(e.other);
    }
    text_ << '\n';
    lines(s.body, depth + 1, "");
  }
  void line(const cpu::expand_step& s, int) {
    begin("expand", s.text, s.c, {s.selection});
    finish({});
  }

  void line(const cpu::exclude_step& s, int) {
    begin("exclude", s.text, s.c, {});
    for (const cpu::view& v : s.operands) reads(v);
    text_ << "  " << s.left_out.size() << " pairs in " << s.groups.size() << " of "
          << s.group.length << ", the sum made again";
    finish({});
  }

  void begin(const char* kind, const std::string& what, const cpu::view& to,
             std::initializer_list<cpu::view> from) {
    text_ << std::left << std::setw(9) << kind << ' ' << std::setw(17) << what << ' ';
    edges_ << "  x" << ++count_ << " [shape=box, fillcolor=\"" << ir::made_colour << "\", label=\""
           << kind << ' ' << what;
    pending_ << "  x" << count_ << " -> s" << to.storage << ";\n";
    used_[to.storage] = true;
    for (const cpu::view& v : from) reads(v);
  }
  void reads(const cpu::view& v) {
    used_[v.storage] = true;
    pending_ << "  s" << v.storage << " -> x" << count_ << ";\n";
  }
  void finish(const std::vector<cpu::epilogue>& passes) {
    for (const cpu::epilogue& e : passes) {
      if (e.what == cpu::epilogue::kind::map) {
        text_ << " | " << name_of(e.fn);
        edges_ << " | " << name_of(e.fn);
      } else {
        const char* op = e.what == cpu::epilogue::kind::add ? "+" : "*";
        text_ << " | " << op << " s" << e.other.storage;
        edges_ << " | " << op;
        reads(e.other);
      }
    }
    text_ << '\n';
    edges_ << "\"];\n" << pending_.str();
    pending_.str({});
  }

  const cpu::plan& plan_;
  std::ostringstream text_, dot_, edges_, pending_;
  std::map<int, bool> used_;
  int count_ = 0;
};

// The plan of an expression for as many tokens as it has, as this architecture would run it.
template <class Arch = cpu::native, operand E>
explanation explain(const E& e, planner::plan_options options = {}) {
  using X = expression_t<E>;
  using T = typename X::scalar;
  ir::graph g;
  const ir::node_id root = as_expression(e).lower(g);
  const cpu::plan p = cpu::compiled_plan<T, Arch>::plan_of(g, root, unknown, options);
  const plan_printer printed(p);
  const cost_figures c = cost_counter(g, root, options.naive, p.token_count, sizeof(T)).figures;
  std::ostringstream head;
  head << "tile of " << p.tile << " tokens, arena " << divide_up(p.arena * sizeof(T), 1024)
       << " KiB; " << std::fixed << std::setprecision(0) << c.multiply_adds
       << " multiply-adds a token, " << c.parameters << " parameters, " << c.bytes << " bytes for "
       << p.token_count << " tokens\n";
  return {head.str() + printed.text(), printed.dot(), ir::graph_printer(g, root).dot()};
}

}  // namespace fmoe

// SPDX-License-Identifier: MIT
#include "plans.hpp"

#include <map>
#include <optional>

#include <fmoe/backend/cpu/schedule/planning.hpp>
#include <fmoe/plan/accesses.hpp>
#include <fmoe/planner/lower.hpp>
#include <fmoe/planner/planner.hpp>

namespace fmoe::test {

planner::program make_program(const ir::graph& g, const ir::node_list& results,
                              const planner::plan_options& how) {
  return planner::contractions(g, results, how);
}

planner::program lowered(const ir::graph& g, const ir::node_list& results,
                         const planner::plan_options& how) {
  return planner::lowering(planner::expand(g, results, how), how).take();
}

planner::program planned(const ir::graph& g, const ir::node_list& results,
                         const planner::plan_options& how) {
  return planner::lower(g, results, how);
}

plan::step_plan make_plan(const ir::graph& g, const ir::node_list& results, extent tokens,
                          const planner::plan_options& how) {
  return make_plan(planned(g, results, how), tokens, how);
}
plan::step_plan make_plan(const planner::program& p, extent tokens,
                          const planner::plan_options& how) {
  return cpu::make_plan(p, tokens, how);
}

namespace {

// "gemm" of gemm_step, as compilers write a type.
template <class Step>
std::string name_of_type() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const std::size_t end = text.find("_step", text.find("Step = ")),
                    first = text.rfind(':', end) + 1;
  return std::string(text.substr(first, end - first));
}

}  // namespace

std::string kind_of(const plan::step& s) {
  return visit([]<class Step>(const Step&) { return name_of_type<Step>(); }, s);
}

namespace {

// " | + | relu", for passes of operations and epilogues of steps.
template <class Pass>
std::string passes(const detail::vector<Pass>& all) {
  std::string s;
  for (const Pass& p : all) {
    const char* what = p.what == pass_kind::map ? p.f.name() : detail::sign_of(p.what);
    s += std::string(" | ") + what;
  }
  return s;
}

// The steps of a plan as lines.
class plan_lines {
 public:
  explicit plan_lines(const plan::step_plan& p) {
    add(p.prologue, "once ");
    add(p.steps, "");
  }

  lines take() { return std::move(lines_); }

 private:
  void add(const detail::vector<plan::step>& steps, const std::string& lead) {
    for (const plan::step& s : steps) {
      lead_ = lead;
      kind_ = kind_of(s);
      visit([&](const auto& kind) { line(kind); }, s);
    }
  }

  void line(const plan::gemm_step& s) {
    const bool continues = s.accumulate || s.k_step != 0;
    put(s.text + (continues ? " +=" : "") + passes(s.epilogues));
  }
  void line(const plan::row_norm_step& s) { named(s); }
  void line(const plan::row_function_step& s) { named(s); }
  void line(const plan::select_step& s) { named(s); }
  void line(const auto& s) {
    if constexpr (requires { s.epilogues; }) put(s.text + passes(s.epilogues));
    else put(s.text);
  }
  void named(const auto& s) {
    kind_ = s.name();
    put(s.text);
  }
  void line(const plan::loop_step& s) {
    put(s.label + (' ' + std::to_string(s.length)) + " by " + std::to_string(s.chunk));
    add(s.body, lead_ + "  ");
  }
  void line(const plan::group_step& s) {
    put(s.text + ' ' + std::to_string(s.keep) + " of " + std::to_string(s.experts));
    add(s.body, lead_ + "  ");
  }

  void put(const std::string& text) { lines_.push_back(lead_ + kind_ + ' ' + text); }

  lines lines_;
  std::string lead_, kind_;  // of the step at hand
};

}  // namespace

lines describe(const planner::program& p) {
  lines r;
  for (const planner::operation& o : p.operations) {
    const auto labels = [&](const planner::use& u) {
      return (p[u.value].per_token() ? "t" : "") + u.labels;
    };
    std::string s = std::string(o.in_group()                   ? "group "
                                : p[o.out.value].is_constant() ? "once "
                                                               : "") +
                    planner::name_of(o) + ' ';
    for (const planner::use& u : o.in) s += (&u == o.in.data() ? "" : ",") + labels(u);
    s += "->" + labels(o.out);
    if (o.start != planner::value_id::none) s += " +=";
    s += passes(o.passes);
    r.push_back(std::move(s));
  }
  return r;
}

lines describe(const plan::step_plan& p) { return plan_lines(p).take(); }

bool placement_is_sound(const plan::step_plan& p) {
  struct life {
    extent from, to;
  };
  std::map<extent, life> lives;
  const auto row = [&](extent s) -> const plan::storage_row& { return p.storages[s]; };
  const auto in_arena = [&](extent s) { return row(s).where == plan::storage_row::kind::arena; };
  std::map<extent, extent> continues;  // a sum -> what it goes on from, in the same place
  for (extent at = 0; at < p.steps.size(); ++at) {
    const auto accesses = plan::accesses(p, p.steps[at]);
    const auto with_mode = [&](auto... modes) {
      std::vector<extent> storages;
      for (const plan::access& a : accesses)
        if (((a.mode == modes) || ...)) storages.push_back(a.where.storage);
      return storages;
    };
    using enum plan::access_mode;
    const auto reads = with_mode(read), writes = with_mode(write, update),
               continued = with_mode(update);
    for (const extent s : continued) {
      std::optional<extent> last;
      for (const auto& [other, l] : lives)
        if (other != s && row(other).where == row(s).where &&
            (!in_arena(s) || row(other).offset == row(s).offset) &&
            (!last || l.from > lives[*last].from))
          last = other;
      if (!last || row(*last).stride != row(s).stride) return false;
      continues[s] = *last;
      lives[*last].to = at;
    }
    for (const extent s : writes) lives.try_emplace(s, life{at, at}).first->second.to = at;
    for (const extent s : reads) {
      const auto kind = row(s).where;
      if (kind != plan::storage_row::kind::arena && kind != plan::storage_row::kind::call &&
          kind != plan::storage_row::kind::output)
        continue;
      if (!lives.contains(s)) return false;
      lives[s].to = at;
    }
  }
  for (const auto& [s, l] : lives) {
    if (!in_arena(s)) continue;
    if (row(s).offset + row(s).stride * p.tile > p.arena) return false;
    for (const auto& [other, k] : lives) {
      if (other <= s || !in_arena(other) || k.to < l.from || l.to < k.from) continue;
      const bool handed_on =
          (continues.contains(other) && continues[other] == s && l.to == k.from) ||
          (continues.contains(s) && continues[s] == other && k.to == l.from);
      const bool apart = row(s).offset + row(s).stride * p.tile <= row(other).offset ||
                         row(other).offset + row(other).stride * p.tile <= row(s).offset;
      if (!apart && !handed_on) return false;
    }
  }
  return true;
}

}  // namespace fmoe::test

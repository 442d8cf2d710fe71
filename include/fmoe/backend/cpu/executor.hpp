// SPDX-License-Identifier: MIT
// Runs a plan on the CPU: for a tile of tokens, the steps from top to bottom. It knows steps and
// kernels, but no layer. The results of a tile do not depend on which tile it is, which thread runs
// it, or how many rows it has.
#pragma once

#include <fmoe/backend/cpu/kernels/small_product.hpp>
#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/backend/cpu/parts.hpp>
#include <fmoe/backend/cpu/steps/groups.hpp>
#include <fmoe/backend/cpu/steps/products.hpp>
#include <fmoe/backend/cpu/steps/rows.hpp>
#include <fmoe/plan/accesses.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class executor {
 public:
  // Packs the weights and computes the plan's constants. The plan's storages name the leaves by
  // number.
  executor(step_plan p, std::span<const ir::leaf_node> leaves, extent threads = 1)
      : in_(std::move(p), leaves),
        threads_(threads),
        changed_(in_.plan.storages.size(), true) {
    for (const step& s : in_.plan.prologue) prologue_accesses_.push_back(accesses(in_.plan, s));
    make_constants();
  }

  // Reads the marked leaves again, and makes what follows from them again, where it lies. Returns
  // false if it cannot.
  bool refresh(std::span<const ir::leaf_node> leaves, std::span<const bool> changed) {
    for (extent s = 0; s < in_.plan.storages.size(); ++s) {
      const storage_row& row = in_.plan.storages[s];
      const bool is_leaf =
          row.where == storage_row::kind::leaf || row.where == storage_row::kind::input;
      changed_[s] = is_leaf && changed[row.source];
      if (changed_[s] && is_quantized_type(leaves[row.source].type)) return false;
    }
    for (extent s = 0; s < in_.plan.storages.size(); ++s)
      if (changed_[s]) in_.constants.read_leaf(s, leaves[in_.plan.storages[s].source]);
    make_constants();
    return true;
  }

  const step_plan& steps() const { return in_.plan; }

  // True if a call can add to a result: one step, a sum over tokens, makes it, and none reads it.
  bool can_add(extent result) const {
    extent sums = 0, uses = 0;
    for (const step& s : in_.plan.steps) {
      const bool is_sum = get_if<token_sum_step>(&s) != nullptr ||
                          get_if<selection_sum_step>(&s) != nullptr ||
                          get_if<expert_sum_step>(&s) != nullptr;
      for (const access& a : accesses(in_.plan, s)) {
        const storage_row& row = in_.plan.storages[a.where.storage];
        if (row.where != storage_row::kind::output || row.source != result) continue;
        ++uses;
        sums += is_sum && a.mode == access_mode::write;
      }
    }
    return sums == 1 && uses == 1;
  }

  // Runs one stage of one tile of `count` rows, at most the plan's tile. Its first row is row
  // `first` of the call and of the graph's own inputs. `arena` is aligned to a cache line.
  // A crew may share products, by their columns, and the experts of groups, if there are as many
  // arenas: the first of the others is `others` elements behind this one, and each next one
  // `apart`.
  void run(const binding<T>& bound, extent first, extent count, T* arena, extent stage = 0,
           crew& threads = crew::alone(), extent others = 0, extent apart = 0) const noexcept {
    frame f{first, count, &bound, arena};
    f.threads = &threads;
    f.others = others;
    f.apart = apart;
    const auto& [is_once, begin, end] = in_.plan.stages[stage];
    run_steps(in_.plan.steps, begin, end, in_.plan.shared, in_, f, [&](extent then) {
      const std::byte* const next = in_.first_weights(in_.plan.steps, then, 0);
      return next != nullptr ? next : in_.first_weights(in_.plan.steps, 0, 0);
    });
  }

  // Returns the parts of a stage that runs once for each call: for each step as many as this number
  // of threads can use.
  extent parts(extent stage, extent tokens, extent threads) const noexcept {
    extent n = 0;
    for (extent i = in_.plan.stages[stage].first; i < in_.plan.stages[stage].end; ++i)
      n += parts_of(in_.plan.steps[i], tokens, threads);
    return n;
  }

  // Lists the rows of the sparse results that a stage makes. It comes before the stage's parts.
  void list_rows(const binding<T>& bound, extent tokens, extent stage) const noexcept {
    const frame f{0, 1, &bound, nullptr};
    for (extent i = in_.plan.stages[stage].first; i < in_.plan.stages[stage].end; ++i)
      if (const auto* s = get_if<selection_sum_step>(&in_.plan.steps[i]);
          s != nullptr && s->is_sparse)
        list(*s, in_, f, tokens);
  }

  // Runs one of these parts, for a call of `tokens` tokens. Parts are independent of each other.
  void run_part(const binding<T>& bound, extent tokens, T* arena, extent stage, extent number,
                extent threads) const noexcept {
    extent i = in_.plan.stages[stage].first;
    extent count = parts_of(in_.plan.steps[i], tokens, threads);
    for (; number >= count; count = parts_of(in_.plan.steps[i], tokens, threads)) {
      number -= count;
      ++i;
    }
    frame f{0, 1, &bound, arena};
    f.tokens = tokens;
    f.part = number;
    f.parts = count;
    run_step(in_.plan.steps[i], in_, f);
  }

 private:
  using frame = cpu::frame<T>;

  // Packs the weights that changed, and runs the steps of the prologue that they concern.
  void make_constants() {
    const auto pack = [&](bool computed) {
      for (extent w = 0; w < in_.plan.weights.size(); ++w) {
        const extent s = in_.plan.weights[w].storage;
        if (in_.is_computed(s) == computed && changed_[s])
          in_.constants.pack(in_.plan, w, threads_);
      }
    };
    pack(false);
    mark_changed();
    const binding<T> none;
    const frame f{0, 1, &none, nullptr};
    for (extent i = 0; i < in_.plan.prologue.size(); ++i) {
      const bool makes_again = std::ranges::any_of(prologue_accesses_[i], [&](const access& a) {
        return a.mode != access_mode::read && changed_[a.where.storage];
      });
      if (makes_again && !transposes(in_.plan.prologue[i], f))
        run_step(in_.plan.prologue[i], in_, f);
    }
    pack(true);
    in_.constants.release_packed(in_.plan);
  }

  // Marks the constants that follow from what changed. A constant that several steps make is made
  // by all of them again.
  void mark_changed() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (const access_list& list : prologue_accesses_) {
        const bool is_changed =
            std::ranges::any_of(list, [&](const access& a) { return changed_[a.where.storage]; });
        if (!is_changed) continue;
        for (const access& a : list) {
          if (a.mode == access_mode::read || changed_[a.where.storage]) continue;
          changed_[a.where.storage] = true;
          goes_on = true;
        }
      }
    }
  }

  // Runs a step that transposes a matrix on all threads; returns false for other steps.
  bool transposes(const step& s, const frame& f) const {
    const auto* const r = get_if<reduce_step>(&s);
    if (r == nullptr || !r->summed.empty() || !r->epilogues.empty()) return false;
    loop_axes out;
    for (const nest_axis& x : r->out) out.join(x);
    if (out.size() != 2 || out[0].a != 1 || out[1].c != 1) return false;
    constexpr extent together = 64;
    const T* const from = in_.rows(r->a, f).data;
    T* const to = in_.rows(r->c, f).data;
    const nest_axis columns = out[0], along = out[1];
    for_units(threads_, divide_up(columns.length, together), [&](extent i) {
      const extent first = i * together;
      transpose<T, Arch, true, true>(from + first, along.a, along.length,
                                     std::min(together, columns.length - first),
                                     to + first * columns.c, columns.c);
      end_lines<Arch>();
    });
    return true;
  }

  operands<T, Arch> in_;
  extent threads_;                         // that make constants
  vector<bool> changed_;                   // by storage
  vector<access_list> prologue_accesses_;  // by step
};

}  // namespace fmoe::cpu

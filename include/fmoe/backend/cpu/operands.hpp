// SPDX-License-Identifier: MIT
// A plan with its constants, and what its steps read and write: rows of arrays, tables of gathers,
// panels of weights, and the operands of the passes over a finished block. A step is run by a
// function run(step, operands, frame) of steps/.
#pragma once

#include <fmoe/backend/cpu/binding.hpp>
#include <fmoe/backend/cpu/constants.hpp>
#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/pointwise.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class operands {
 public:
  using frame = cpu::frame<T>;

  operands(step_plan p, std::span<const ir::leaf_node> leaves)
      : plan(std::move(p)),
        constants(plan, leaves) {}

  bool is_computed(extent storage) const {
    return plan.storages[storage].where == storage_row::kind::constant;
  }

  FMOE_NOINLINE rows_of<T> rows(const view& v, const frame& f) const noexcept {
    using enum storage_row::kind;
    const storage_row& s = plan.storages[v.storage];
    rows_of<T> r{nullptr, s.stride};
    switch (s.where) {
      case arena:
        r.data =
            f.arena + s.offset + (s.in_group ? f.own : 0) + (s.listed ? f.listed * s.stride : 0);
        break;
      case call: r.data = f.bound->call + s.offset * f.bound->call_rows + f.first * s.stride; break;
      case once: r.data = f.bound->call + plan.call * f.bound->call_rows + s.offset; break;
      case constant: r.data = constants.computed() + s.offset; break;
      case screen:
        if constexpr (std::is_same_v<T, float>)
          r.data = const_cast<float*>(constants.screened(s.source).row(0));
        break;
      case leaf:
      case input: r.data = const_cast<T*>(constants.leaf(v.storage)) + f.first * s.stride; break;
      case output: r = f.bound->results[s.source]; break;
      case argument: {
        const auto& a = f.bound->arguments[s.source];
        r = {const_cast<T*>(a.data), a.stride};
      }
    }
    // An array of no elements may have no address, and kernels count from one.
    static constexpr T none{};
    if (r.data == nullptr) r.data = const_cast<T*>(&none);
    r.data += v.offset + v.step * f.at + v.expert * f.expert + f.row * r.stride;
    return r;
  }

  // The table of a gather, of Ts or as it is stored.
  weight_table<T> table(const view& v, const frame& at) const noexcept {
    if (plan.storages[v.storage].where == storage_row::kind::leaf)
      return constants.table(v.storage);
    return constants.table_of(rows(v, at).data);
  }

  // Returns the rows of a weight's panels for so many k.
  extent panel_rows(extent weight, extent k) const noexcept {
    return constants.stored(weight).panel_rows(plan.weights[weight].rounding, k);
  }

  // Returns the step's panels of one of its weights, from a column and from k on.
  gemm_panels<T> part(const gemm_step& s, extent weight, extent column, extent k) const noexcept {
    const gemm_panels<T> all = constants.panels(plan, s.weight, weight);
    const auto bytes = [&](extent depth) {
      return all.kernels->bytes(panel_rows(s.weight, depth));
    };
    return {all.data + column / panel_width<T, Arch> * bytes(s.K) + bytes(k), all.kernels};
  }

  // Runs the passes over a finished block of c that starts at element `position` of its rows.
  FMOE_NOINLINE void finish(const vector<epilogue>& passes, const frame& f, T* c, extent ldc,
                            extent row, extent count, extent position,
                            extent columns) const noexcept {
    for (const epilogue& e : passes) {
      if (e.what == pass_kind::map) {
        apply<T, Arch>(e.f, c, ldc, count, columns);
        continue;
      }
      const rows_of<T> other = rows(e.other, f);
      for (extent done = 0; done < columns;) {  // `other` repeats along the row
        const extent from = (position + done) % e.period,
                     n = std::min(columns - done, e.period - from);
        const T* o = other.data + row * other.stride + from;
        join<T, Arch>(e.what, c + done, ldc, count, n, o, other.stride);
        done += n;
      }
    }
  }

  // Does the call add to this result?
  bool adds(const view& c, const frame& f) const noexcept {
    const storage_row& s = plan.storages[c.storage];
    return s.where == storage_row::kind::output && !f.bound->adds.empty() &&
           f.bound->adds[s.source];
  }

  // Returns the first panel that the steps from `from` on read, at a position of their loop or for
  // an expert of their group; the previous step prefetches it.
  const std::byte* first_weights(const vector<step>& steps, extent from, extent at,
                                 extent expert = 0) const noexcept {
    for (; from < steps.size(); ++from) {
      if (const auto* g = get_if<gemm_step>(&steps[from]))
        return part(*g, g->expert_step * expert, g->n_step * at, g->k_step * at).data;
      if (const auto* s = get_if<screen_step>(&steps[from]))
        return constants.screened(s->weight).panels.data();
      if (const auto* l = get_if<loop_step>(&steps[from]))
        if (const std::byte* w = first_weights(l->body, 0, 0)) return w;
    }
    return nullptr;
  }

  step_plan plan;
  cpu::constants<T, Arch> constants;
};

}  // namespace fmoe::cpu

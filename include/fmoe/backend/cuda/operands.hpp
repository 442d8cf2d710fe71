// SPDX-License-Identifier: MIT
// What the steps of a plan read and write on a device: rows of arrays, selections, loops, and the
// operands of passes.
#pragma once

#include <fmoe/backend/cuda/kernels/selection.hpp>
#include <fmoe/backend/cuda/kernels/sort_kernel.hpp>
#include <fmoe/backend/cuda/step_lists.hpp>
#include <fmoe/backend/cuda/weights.hpp>

namespace fmoe::cuda {

// What a call binds: the first row of each argument and result, and the memory of its caller. Rows
// may be those of the program's own arrays, which begin at any element and have any stride.
template <class T, class Queue>
struct binding {
  Queue& queue;
  std::span<const rows_at<const T>> arguments{};
  std::span<const rows_at<T>> results{};
  T* arena = nullptr;
  T* call = nullptr;  // memory of all tokens, of `call_rows`
  extent call_rows = 0;
  index* lists = nullptr;  // of groups
  T* sums = nullptr;       // between launches of a step, `sums_room` elements
  extent sums_room = 0;
  extent keep = all;  // entries that a top-k keeps at most
};

template <class T, class Device>
class operands {
 protected:
  struct frame {
    const binding<T, typename Device::queue>& bound;
    extent first, count;  // in a group as many rows as there may be
    group_rows group{};
    group_tiles tiles{};
    extent most_tiles = 0, tile_rows = 0;
    const sort_lists* sorted = nullptr;
  };

  operands(step_plan p, std::span<const ir::leaf_node> leaves, const Device& on,
           typename Device::queue& q)
      : plan_(std::move(p)),
        lists_(plan_, on, q),
        weights_(plan_, leaves, on, q) {}
  operands(const operands&) = delete;

  rows_at<T> rows(const view& v, const frame& f) const {
    using enum storage_row::kind;
    const storage_row& s = plan_.storages[v.storage];
    rows_at<T> r{nullptr, s.stride, v.expert};
    const auto& bound = f.bound;
    switch (s.where) {
      case arena: r.data = bound.arena + s.offset; break;
      case call: r.data = bound.call + s.offset * bound.call_rows + f.first * s.stride; break;
      case once: r.data = bound.call + plan_.call * bound.call_rows + s.offset; break;
      case constant: r.data = weights_.computed() + s.offset; break;
      case screen: break;  // the CPU's alone
      case leaf:
      case input: r.data = const_cast<T*>(weights_.leaf(v.storage)) + f.first * s.stride; break;
      case output: {
        const rows_at<T>& y = bound.results[s.source];
        r = {y.row(f.first), y.stride, v.expert};
        break;
      }
      case argument: {
        const rows_at<const T>& x = bound.arguments[s.source];
        r = {const_cast<T*>(x.row(f.first)), x.stride, v.expert};
      }
    }
    r.data += v.offset;
    return r;
  }
  rows_at<const T> read(const view& v, const frame& f) const {
    const rows_at<T> r = rows(v, f);
    return {r.data, r.stride, r.expert};
  }
  selections_at<T> selections(const view& v, extent keep, const frame& f) const {
    return {rows(v, f), keep, std::min(keep, f.bound.keep)};
  }

  passes<T> finish(const vector<epilogue>& all, const frame& f) const {
    passes<T> made;
    for (const epilogue& e : all) {
      pass<T>& p = made.of[made.count++];
      p = {.what = e.what, .f = e.f.fn, .parameter = static_cast<T>(e.f.parameter)};
      if (e.what == pass_kind::map) continue;
      const rows_at<const T> other = read(e.other, f);
      p.other = other.data;
      p.stride = other.stride;
      p.expert = other.expert;
      p.period = e.period;
    }
    return made;
  }

  static nest_loops<T> loops(const vector<nest_axis>& axes) {
    nest_loops<T> made;
    for (const nest_axis& a : axes) made.add({a.length, a.a, a.b, a.c});
    return made;
  }

  step_plan plan_;
  step_lists<Device> lists_;
  device_weights<T, Device> weights_;
};

}  // namespace fmoe::cuda

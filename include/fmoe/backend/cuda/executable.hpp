// SPDX-License-Identifier: MIT
// A plan on a device, with memory for the calls that run at the same time. Arrays of the device are
// read and written in place; those of the host are copied to the device and back. In between
// nothing is read on the host.
#pragma once

#include <fmoe/arrays/rows.hpp>
#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cuda/executor.hpp>
#include <fmoe/backend/cuda/kernels/strided_rows.hpp>
#include <fmoe/backend/cuda/staging.hpp>
#include <fmoe/backend/cuda/sums_room.hpp>
#include <fmoe/backend/cuda/workspaces.hpp>

namespace fmoe::cuda {

// Lengths and places of the memory of a call, in elements.
template <class T>
struct call_layout {
  struct staged {  // an argument or a result, of all tokens
    extent number, offset, elements, stride;
    bool per_token;
  };

  call_layout(const step_plan& p, math how) {
    const auto take = [&](extent n) {
      constexpr extent line = 256 / sizeof(T);
      return std::exchange(elements, elements + round_up(n, line));
    };
    arena = take(p.arena);
    call = take(p.token_count * p.call + p.once);
    sums_room = cuda::sums_room<T>(p, how).elements();
    sums = take(sums_room);
    for (const storage_row& s : p.storages) {
      using enum storage_row::kind;
      if (s.where == argument)
        arguments.push_back({s.source, take(p.token_count * s.stride), s.elements, s.stride, true});
      if (s.where == output && std::ranges::count(results, s.source, &staged::number) == 0) {
        const bool per_token = p.results[s.source].per_token;
        results.push_back({s.source, take(per_token ? p.token_count * s.stride : s.elements),
                           s.elements, s.stride, per_token});
      }
    }
  }

  extent elements = 0, arena = 0, call = 0, sums = 0, sums_room = 0;
  vector<staged> arguments, results;
};

template <class T, class Device>
class device_executable final : public executable {
 public:
  device_executable(step_plan p, std::span<const ir::leaf_node> leaves, const Device& on,
                    extent ready_callers, extent most_callers, math how)
      : executable(on.where()),
        on_(on),
        preparation_(on_),
        preparing_(on_, preparation_.handle()),
        run_(std::move(p), leaves, on_, preparing_, how),
        layout_(run_.steps(), how),
        spaces_(*this, on_, ready_callers, most_callers) {}

  // The bytes of each caller on the device.
  static extent bytes_of_call(const step_plan& p, math how) {
    return call_layout<T>(p, how).elements * sizeof(T) +
           step_lists<Device>::sorted_of(p) * sizeof(index);
  }

 private:
  using queue = typename Device::queue;
  using staged = typename call_layout<T>::staged;

  struct workspace {  // of one call
    explicit workspace(const device_executable& e)
        : memory(e.on_, e.layout_.elements),
          lists(e.on_, e.run_.lists().sorted()),
          host(e.on_, elements_of_host(e)),
          made(e.on_),
          results(e.run_.steps().results.size()) {
      for (const staged& a : e.layout_.arguments)
        arguments.resize(std::max(arguments.size(), a.number + 1));
    }

    static extent elements_of_host(const device_executable& e) {
      extent longest = 0, most = 0;
      for (const auto* list : {&e.layout_.arguments, &e.layout_.results})
        for (const staged& s : *list) {
          const extent row = s.per_token ? s.stride : s.elements;
          longest = std::max(longest, row);
          most = std::max(most, s.per_token ? e.run_.steps().token_count * row : row);
        }
      return staging<T, Device>::elements_for(longest, most);
    }

    device_array<Device, T> memory;
    device_array<Device, index> lists;
    staging<T, Device> host;
    typename Device::event made;  // after what others write for this call
    vector<rows_at<const T>> arguments;
    vector<rows_at<T>> results;
  };

  using space_list = workspaces<workspace, device_executable, Device>;

  void run_here(const call_arrays& call) const override {
    const bool all_here = std::ranges::none_of(call.arguments, is_of_host) &&
                          std::ranges::none_of(call.results, is_of_host);
    typename space_list::lease caller(spaces_, call.on);
    workspace& space = caller.space();
    queue work(on_, caller.stream());
    work.check("before a call");
    expects<value_error>(all_here || work.capture() == 0,
                         "[forward] a captured call takes arrays of the GPU alone");
    caller.queue_behind_last(work);
    for (const staged& a : layout_.arguments)
      space.arguments[a.number] = bound(call.arguments[a.number], a, call.tokens, space, work);
    for (const staged& r : layout_.results)
      space.results[r.number] = bound(call.results[r.number], r, space);
    run_stages(space, work, call);
    for (const staged& r : layout_.results)
      unload(call.results[r.number], r, call.tokens, space, work);
    if (call.on && all_here) return;
    work.wait();
    caller.ended();
  }

  void run_stages(workspace& space, queue& work, const call_arrays& call) const {
    const extent tokens = call.tokens;
    const binding<T, queue> bound{.queue = work,
                                  .arguments = space.arguments,
                                  .results = space.results,
                                  .arena = space.memory.data() + layout_.arena,
                                  .call = space.memory.data() + layout_.call,
                                  .call_rows = run_.steps().token_count,
                                  .lists = space.lists.data(),
                                  .sums = space.memory.data() + layout_.sums,
                                  .sums_room = layout_.sums_room,
                                  .keep = call.keep};
    for (const stage& stage : run_.steps().stages) {
      if (stage.per_call) {
        run_.run(bound, 0, tokens, stage);
        continue;
      }
      const extent tile = run_.steps().tile;
      for (extent first = 0; first < tokens; first += tile)
        run_.run(bound, first, std::min(tile, tokens - first), stage);
    }
  }

  static bool is_of_host(const bound_array& x) {
    return x.array.where.is_host() && x.array.span_bytes() != 0;
  }
  // True for arrays whose rows kernels read and write where they lie.
  static bool is_in_place(const bound_array& x) {
    return !x.array.where.is_host() && x.array.type == dtype_of<T> && x.has_plain_rows();
  }

  // Returns the rows of an argument, which are copied if they are not the device's dense rows of T.
  rows_at<const T> bound(const bound_array& x, const staged& a, extent tokens, workspace& space,
                         queue& work) const {
    if (x.array.made_by != nullptr && x.array.made_by != work.stream())
      work.wait_for(static_cast<CUstream_st*>(x.array.made_by), space.made);
    if (is_in_place(x)) return {static_cast<const T*>(x.array.data), x.row_stride()};
    const rows_at<T> to{space.memory.data() + a.offset, a.stride};
    if (!x.array.where.is_host()) {
      work.each("a copy of an input", read_strided<T>{strided_array(x.array), to, a.elements},
                tokens * a.elements);
    } else if (tokens * a.elements != 0) {
      space.host.copy_in(work, to.data, tokens, a.stride,
                         [&](extent t, T* row) { detail::read_row(x, t, row); });
    }
    return {to.data, to.stride};
  }

  // Returns the rows that steps write for a result.
  rows_at<T> bound(const bound_array& y, const staged& r, workspace& space) const {
    if (is_in_place(y)) return {static_cast<T*>(y.array.data), r.per_token ? y.row_stride() : 0};
    return staged_rows(r, space);
  }
  static rows_at<T> staged_rows(const staged& r, workspace& space) {
    return {space.memory.data() + r.offset, r.per_token ? r.stride : 0};
  }

  // Copies a result that steps did not write in place.
  void unload(const bound_array& y, const staged& r, extent tokens, workspace& space,
              queue& work) const {
    const extent rows = r.per_token ? tokens : 1;
    const rows_at<T> from = staged_rows(r, space);
    if (is_in_place(y) || rows * r.elements == 0) return;
    if (!y.array.where.is_host()) {
      work.each("a copy of an output",
                write_strided<T>{strided_array(y.array), {from.data, from.stride}, r.elements},
                rows * r.elements);
      return;
    }
    space.host.copy_out(work, from.data, rows, r.per_token ? r.stride : r.elements,
                        [&](extent t, const T* row) { detail::write_row(row, y, t); });
  }

  Device on_;
  own_stream<Device> preparation_;
  queue preparing_;  // weights
  executor<T, Device> run_;
  call_layout<T> layout_;
  mutable space_list spaces_;
};

}  // namespace fmoe::cuda

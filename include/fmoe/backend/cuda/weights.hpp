// SPDX-License-Identifier: MIT
// The data of a plan on a device that no call changes: leaves in the arithmetic type, the matrices
// of products, and computed constants. What derives from one parameter only is kept with its
// storage, so that all compiled layers of a device share it.
#pragma once

#include <span>
#include <vector>

#include <fmoe/backend/cpu/plan/plan.hpp>
#include <fmoe/backend/cuda/kernels/nest.hpp>
#include <fmoe/backend/cuda/memory.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::cuda {

template <class T, class Device>
class device_weights {
 public:
  using array = device_array<Device, T>;
  using queue = typename Device::queue;
  using shared = std::shared_ptr<const array>;

  device_weights(const cpu::plan& p, std::span<const ir::leaf_node> leaves, const Device& on,
                 queue& q)
      : plan_(p),
        on_(on),
        queue_(q),
        computed_(on, p.constants),
        origins_(p.storages.size()),
        leaves_(p.storages.size()),
        matrices_(p.weights.size()) {
    for (extent s = 0; s < p.storages.size(); ++s) {
      const cpu::storage_row& row = p.storages[s];
      using enum cpu::storage_row::kind;
      if (row.where != leaf && row.where != input) continue;
      origins_[s] = leaves[row.source];
      if (!row.in_place && !row.table) continue;
      const ir::leaf_node& l = origins_[s];
      leaves_[s] = derived(l, "numbers " + std::to_string(element_count(l.shape)),
                           [&] { return uploaded(l); });
    }
  }

  const T* leaf(extent storage) const { return leaves_[storage]->data(); }
  T* computed() const { return computed_.data(); }

  // The matrices of a weight, one after the other.
  const T* matrices(extent weight) const { return matrices_[weight]->data(); }

  // An array that follows from a weight's matrices, and is kept with its parameter.
  template <class Make>
  shared of_matrices(extent weight, const std::string& what, const Make& make) const {
    const cpu::packed_weight& w = plan_.weights[weight];
    return derived(origins_[w.storage], what + text(w), make);
  }

  // Makes the matrices of weights that are leaves, or of those that the prologue computes.
  void make_matrices(bool are_computed) {
    for (extent w = 0; w < plan_.weights.size(); ++w) {
      const cpu::packed_weight& weight = plan_.weights[w];
      const cpu::storage_row& row = plan_.storages[weight.storage];
      const bool is_computed = row.where == cpu::storage_row::kind::constant;
      if (is_computed != are_computed) continue;
      if (is_computed) {
        matrices_[w] = matrices_of(weight, computed() + row.offset);
        continue;
      }
      const ir::leaf_node& l = origins_[weight.storage];
      matrices_[w] = derived(l, "matrices" + text(weight),
                             [&] { return matrices_of(weight, uploaded(l)->data()); });
    }
  }

  // Returns the bytes that the weights of a plan take on a device.
  static extent bytes(const cpu::plan& p, std::span<const ir::leaf_node> leaves) {
    extent n = p.constants;
    for (const cpu::storage_row& row : p.storages) {
      const bool is_leaf = row.where == cpu::storage_row::kind::leaf;
      if (is_leaf && (row.in_place || row.table)) n += element_count(leaves[row.source].shape);
    }
    for (const cpu::packed_weight& w : p.weights)
      n += w.batches * w.K * w.N + (w.screened ? w.N * (w.K + 2) : 0);
    return n * sizeof(T);
  }

 private:
  template <class Make>
  shared derived(const ir::leaf_node& l, std::string key, const Make& make) const {
    if (!l.parameter) return make();
    for (const std::string& part :
         {std::string(" of "), std::string(name_of(l.type)), std::string(" as "),
          std::string(name_of(dtype_of<T>)), " on " + on_.key()})
      key += part;
    return std::static_pointer_cast<const array>(
        l.data->derived(key, [&] { return std::shared_ptr<const void>(make()); }));
  }

  // The leaf's numbers as Ts.
  shared uploaded(const ir::leaf_node& l) const {
    const extent n = element_count(l.shape);
    std::vector<T> numbers(n);
    with_numbers<T>(l.numbers(), [&](const auto& number) {
      for (extent i = 0; i < n; ++i) numbers[i] = number(i);
    });
    auto made = std::make_shared<array>(on_, n);
    queue_.copy_in(made->data(), numbers.data(), n * sizeof(T));
    queue_.wait();
    return made;
  }

  // [batch, depth, columns], copied on the device.
  shared matrices_of(const cpu::packed_weight& w, const T* source) const {
    auto made = std::make_shared<array>(on_, w.batches * w.K * w.N);
    nest_numbers<T> copy{.a = {source}, .c = {made->data()}, .is_copy = true};
    extent stride = made->size();
    for (const auto* axes : {&w.batch, &w.depth, &w.columns})
      for (const cpu::axis_stride& a : *axes) {
        stride /= std::max<extent>(1, a.length);
        copy.out.add({a.length, a.stride, 0, stride});
      }
    queue_.each("weights", copy, copy.out.places);
    queue_.wait();
    return made;
  }

  static std::string text(const cpu::packed_weight& w) {
    std::string s;
    for (const auto* axes : {&w.batch, &w.depth, &w.columns}) {
      s += ';';
      for (const cpu::axis_stride& a : *axes)
        s += ' ' + std::to_string(a.length) + '*' + std::to_string(a.stride);
    }
    return s;
  }

  const cpu::plan& plan_;
  const Device& on_;
  queue& queue_;  // of the preparation
  array computed_;
  std::vector<ir::leaf_node> origins_;  // by storage
  std::vector<shared> leaves_;          // by storage
  std::vector<shared> matrices_;        // by weight
};

}  // namespace fmoe::cuda

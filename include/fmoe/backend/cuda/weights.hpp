// SPDX-License-Identifier: MIT
// The data of a plan on a device that no call changes: leaves in the arithmetic type, the matrices
// of products, and computed constants. What derives from one parameter only is kept with its
// storage, so that all compiled layers of a device share it.
#pragma once

#include <span>

#include <fmoe/backend/cuda/kernels/narrow_number.hpp>
#include <fmoe/backend/cuda/kernels/nest.hpp>
#include <fmoe/backend/cuda/memory.hpp>
#include <fmoe/backend/cuda/policy.hpp>
#include <fmoe/backend/cuda/select_steps.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>
#include <fmoe/plan/plan.hpp>

namespace fmoe::cuda {

// Copies the numbers of matrices, a thread a number. bf16 numbers are those that tensor cores would
// make of them.
template <class S, class To>
struct matrix_copy {
  const S* from;
  To* to;
  nest_loops<S> axes{};

  FMOE_DEVICE void operator()(extent i) const {
    const S *x = from, *none = nullptr;
    extent at = 0;
    axes.move(i, x, none, at);
    if constexpr (std::is_same_v<S, To>) to[at] = *x;
    else to[at] = to_bf16(widened(*x));
  }
};

template <class T, class Device>
class device_weights {
 public:
  using queue = typename Device::queue;
  // Memory of the device.
  template <class S>
  using shared = std::shared_ptr<const S>;

  device_weights(const step_plan& p, std::span<const ir::leaf_node> leaves, const Device& on,
                 queue& q)
      : plan_(p),
        on_(on),
        queue_(q),
        computed_(on, p.constants),
        origins_(p.storages.size()),
        leaves_(p.storages.size()),
        tables_(p.storages.size()),
        table_scales_(p.storages.size()),
        table_types_(p.storages.size(), dtype_of<T>),
        matrices_(p.weights.size()),
        scales_(p.weights.size()),
        columns_(p.weights.size()),
        stored_(p.weights.size(), dtype_of<T>) {
    for (extent s = 0; s < p.storages.size(); ++s) {
      const storage_row& row = p.storages[s];
      using enum storage_row::kind;
      if (row.where != leaf && row.where != input) continue;
      origins_[s] = leaves[row.source];
      if (!row.in_place && !row.table) continue;
      const ir::leaf_node& l = origins_[s];
      const bool is_narrow = !row.in_place && row.where == leaf;  // of gathers only
      table_types_[s] = is_narrow ? gathered_type(p, s, l) : dtype_of<T>;
      if (table_types_[s] != dtype_of<T>) {
        if (is_quantized_type(l.type))
          table_scales_[s] = derived<float>(l, "table scales", [&] { return table_scales_of(l); });
        with_weight_type<T>(table_types_[s], [&]<class S>(S*) {
          tables_[s] = derived<S>(l, "numbers " + std::to_string(element_count(l.shape)),
                                  [&] { return uploaded<S>(l); });
        });
        continue;
      }
      leaves_[s] = derived<T>(l, "numbers " + std::to_string(element_count(l.shape)),
                              [&] { return uploaded<T>(l); });
    }
  }

  const T* leaf(extent storage) const { return leaves_[storage].get(); }
  // A leaf that gathers read, as it is stored, from an element on.
  stored_table table(extent storage, extent offset) const {
    const dtype stored = table_types_[storage];
    stored_table found{nullptr, stored};
    if (is_quantized_type(stored)) {
      found.scale_block = layout_of(origins_[storage]).block;
      found.scales = table_scales_[storage].get() + offset / found.scale_block;
    }
    with_weight_type<T>(stored, [&]<class S>(S*) {
      const bool is_wide = std::is_same_v<S, T>;
      const void* const data = is_wide ? leaves_[storage].get() : tables_[storage].get();
      found.data = static_cast<const S*>(data) + offset;
    });
    return found;
  }
  T* computed() const { return computed_.data(); }

  // The matrices of a weight, one after the other. Their rows are a `pitch` apart, which is whole
  // accesses, and hold numbers as they are stored.
  struct matrices_at {
    const void* data;
    extent pitch;
    dtype stored;
    const float* scales;  // of weights of 8 bits
    extent scale_pitch;
  };
  matrices_at matrices(extent weight) const {
    const packed_weight& w = plan_.weights[weight];
    const dtype stored = stored_[weight];
    return {matrices_[weight].get(), pitch_of(w, stored), stored, scales_[weight].get(),
            scale_pitch_of(w)};
  }

  // A screened weight by columns, as its leaf is stored: [columns, depth].
  stored_table columns(extent weight) const {
    const packed_weight& w = plan_.weights[weight];
    return {columns_[weight].get(), table_type(origins_[w.storage].type)};
  }

  // An array that follows from a weight's matrices, and is kept with its parameter.
  template <class Make>
  shared<T> of_matrices(extent weight, const std::string& what, const Make& make) const {
    const packed_weight& w = plan_.weights[weight];
    return derived<T>(origins_[w.storage], what + text(w), make);
  }

  // Makes the matrices of weights that are leaves, or of those that the prologue computes.
  void make_matrices(bool are_computed) {
    for (extent w = 0; w < plan_.weights.size(); ++w) {
      const packed_weight& weight = plan_.weights[w];
      const storage_row& row = plan_.storages[weight.storage];
      const bool is_computed = row.where == storage_row::kind::constant;
      if (is_computed != are_computed) continue;
      if (is_computed) {
        matrices_[w] = matrices_of(weight, computed() + row.offset);
        continue;
      }
      const ir::leaf_node& l = origins_[weight.storage];
      stored_[w] = weight_type(plan_, weight, l);
      if (weight.screened) {
        if constexpr (std::is_same_v<T, float>) make_screened(w, l);
        continue;
      }
      with_weight_type<T>(stored_[w], [&]<class S>(S*) {
        const auto make = [&] { return matrices_of(weight, uploaded<S>(l).get()); };
        matrices_[w] = derived<S>(l, "matrices" + text(weight), make);
        if constexpr (is_scaled<S>)
          scales_[w] =
              derived<float>(l, "scales" + text(weight), [&] { return scales_of(weight, l); });
      });
    }
  }

  // Returns the bytes that the weights of a plan take on a device.
  static extent bytes(const step_plan& p, std::span<const ir::leaf_node> leaves) {
    extent n = p.constants * sizeof(T);
    for (extent s = 0; s < p.storages.size(); ++s) {
      const storage_row& row = p.storages[s];
      if (row.where != storage_row::kind::leaf || (!row.in_place && !row.table)) continue;
      const ir::leaf_node& l = leaves[row.source];
      const dtype stored = row.in_place ? dtype_of<T> : gathered_type(p, s, l);
      n += element_count(l.shape) * bytes_of(stored);
      if (is_quantized_type(stored)) n += layout_of(l).scales() * sizeof(float);
    }
    for (const packed_weight& w : p.weights) {
      const storage_row& row = p.storages[w.storage];
      const bool is_leaf = row.where == storage_row::kind::leaf;
      const dtype stored = is_leaf ? weight_type(p, w, leaves[row.source]) : dtype_of<T>;
      n += w.batches * w.K * pitch_of(w, stored) * bytes_of(stored);
      if (is_quantized_type(stored))
        n += w.batches * divide_up(w.K, extent{scale_group}) * scale_pitch_of(w) * sizeof(float);
      if (w.screened)
        n += w.N * (w.K * size_of(table_type(leaves[row.source].type)) + 2 * sizeof(T));
    }
    return n;
  }

 private:
  // The type in which a table of this type is stored.
  static dtype table_type(dtype of_leaf) {
    dtype stored = dtype_of<T>;
    with_table_type<T>(of_leaf, [&]<class S>(S*) { stored = dtype_of<S>; });
    return stored;
  }
  // The same for all gathers of a plan. Tables of 8 bits stay so if their blocks lie along rows and
  // every row begins with one; a product with a row of a table reads whole numbers.
  static dtype gathered_type(const step_plan& p, extent storage, const ir::leaf_node& l) {
    if (!is_quantized_type(l.type)) return table_type(l.type);
    const quantized_layout layout = layout_of(l);
    bool can_stay = std::is_same_v<T, float> && layout.axis.stride == 1 && layout.block > 1 &&
                    layout.axis.length % layout.block == 0;
    const auto look_at = [&](const step& s) {
      if (const auto* gather = get_if<gather_step>(&s))
        if (gather->table.storage == storage)
          for (const extent n : {gather->N, gather->table_row, gather->table.offset})
            can_stay &= n % layout.block == 0;
      if (const auto* sample = get_if<sample_step>(&s))
        can_stay &= sample->table.storage != storage;
    };
    each_step(p.prologue, look_at);
    each_step(p.steps, look_at);
    return can_stay ? l.type : dtype_of<T>;
  }
  // The type in which matrices of a leaf are stored. Weights of 8 bits stay so if each group of a
  // sum has one scale. Screens round to bf16.
  static dtype weight_type(const step_plan& p, const packed_weight& w, const ir::leaf_node& l) {
    if (w.screened) return dtype::bfloat16;
    if (!is_quantized_type(l.type)) return table_type(l.type);
    if (!std::is_same_v<T, float> || p.sum_block % scale_group != 0) return dtype_of<T>;
    const quantized_layout layout = layout_of(l);
    const auto depth = offsets(w.depth);
    for (extent k = 0; k < depth.size(); ++k)
      if (layout.scale_of(depth[k]) != layout.scale_of(depth[k / scale_group * scale_group]))
        return dtype_of<T>;
    return l.type;
  }
  static quantized_layout layout_of(const ir::leaf_node& l) {
    return {l.type, element_count(l.shape), l.axis};
  }
  static extent bytes_of(dtype stored) { return is_quantized_type(stored) ? 1 : size_of(stored); }
  static extent pitch_of(const packed_weight& w, dtype stored) {
    return round_up(w.N, extent{access_bytes / bytes_of(stored)});
  }
  static extent scale_pitch_of(const packed_weight& w) {
    return round_up(w.N, extent{numbers_each<float>});
  }

  // Returns the offset of every combination of the axes, the last one quickest.
  static vector<extent> offsets(const vector<axis_stride>& axes) {
    vector<extent> all{0};
    for (const axis_stride& a : axes) {
      vector<extent> more;
      for (const extent base : all)
        for (extent i = 0; i < a.length; ++i) more.push_back(base + i * a.stride);
      all = std::move(more);
    }
    return all;
  }

  // [batch, groups of depth, columns].
  shared<float> scales_of(const packed_weight& w, const ir::leaf_node& l) const {
    const auto batch = offsets(w.batch), depth = offsets(w.depth), columns = offsets(w.columns);
    const quantized_layout layout = layout_of(l);
    vector<float> all;
    with_quantized_type(l.type, [&]<class Q>(Q*) {
      const auto* const bytes = static_cast<const std::byte*>(l.data->data());
      const auto* const scales =
          reinterpret_cast<const typename Q::scale*>(bytes + layout.first_scale());
      for (const extent b : batch)
        for (extent k = 0; k < depth.size(); k += scale_group) {
          for (const extent n : columns)
            all.push_back(convert<float>(scales[layout.scale_of(b + depth[k] + n)]));
          all.resize(round_up(all.size(), extent{numbers_each<float>}));
        }
    });
    return uploaded_floats(all);
  }

  shared<float> table_scales_of(const ir::leaf_node& l) const {
    const quantized_layout layout = layout_of(l);
    vector<float> all(layout.scales());
    with_quantized_type(l.type, [&]<class Q>(Q*) {
      const auto* const bytes = static_cast<const std::byte*>(l.data->data());
      const auto* const scales =
          reinterpret_cast<const typename Q::scale*>(bytes + layout.first_scale());
      for (extent i = 0; i < all.size(); ++i) all[i] = convert<float>(scales[i]);
    });
    return uploaded_floats(all);
  }
  shared<float> uploaded_floats(const vector<float>& all) const {
    const auto to = made<float>(all.size());
    queue_.copy_in(const_cast<float*>(to.get()), all.data(), all.size() * sizeof(float));
    queue_.wait();
    return to;
  }

  template <class S>
  shared<S> made(extent n) const {
    const auto memory = std::make_shared<const device_array<Device, S>>(on_, n);
    return {memory, memory->data()};
  }

  template <class S>
  static const char* name_in_memory() {
    if constexpr (is_scaled<S>) return "integers";
    else return name_of(dtype_of<S>);
  }

  template <class S, class Make>
  shared<S> derived(const ir::leaf_node& l, std::string key, const Make& make) const {
    if (!l.parameter) return make();
    for (const std::string& part :
         {std::string(" of "), std::string(name_of(l.type)), std::string(" as "),
          std::string(name_in_memory<S>()), " on " + std::string(on_.where())})
      key += part;
    return std::static_pointer_cast<const S>(
        l.data->derived(key, [&] { return std::shared_ptr<const void>(make()); }));
  }

  // The leaf's numbers as Ts, or as they are stored.
  template <class S>
  shared<S> uploaded(const ir::leaf_node& l) const {
    const extent n = element_count(l.shape);
    const auto to = made<S>(n);
    vector<T> numbers;
    const void* from = l.data->data();
    if constexpr (std::is_same_v<S, T>)
      if (l.type != dtype_of<S>) {
        numbers.resize(n);
        copy_numbers(l.numbers(), numbers.data());
        from = numbers.data();
      }
    queue_.copy_in(const_cast<S*>(to.get()), from, n * sizeof(S));
    queue_.wait();
    return to;
  }

  // [batch, depth, columns], copied on the device.
  template <class S, class To = S>
  shared<To> matrices_of(const packed_weight& w, const S* source) const {
    const extent pitch = round_up(w.N, extent{numbers_each<To>});
    return copied<S, To>(source, w.batches * w.K * pitch,
                         {{&w.batch, w.K * pitch}, {&w.depth, pitch}, {&w.columns, 1}});
  }
  // The last of some axes has this stride in a copy.
  struct copied_axes {
    const vector<axis_stride>* of;
    extent stride;
  };
  template <class S, class To>
  shared<To> copied(const S* source, extent size, std::initializer_list<copied_axes> all) const {
    const auto to = made<To>(size);
    matrix_copy<S, To> copy{.from = source, .to = const_cast<To*>(to.get())};
    for (const auto& [axes, last] : all) {
      extent stride = last;
      for (const axis_stride& a : *axes) stride *= a.length;
      for (const axis_stride& a : *axes) {
        stride /= std::max<extent>(1, a.length);
        copy.axes.add({a.length, a.stride, 0, stride});
      }
    }
    queue_.each("weights", copy, copy.axes.places);
    queue_.wait();
    return to;
  }

  // What tensor cores read, and columns for exact sums.
  void make_screened(extent weight, const ir::leaf_node& l) {
    const packed_weight& w = plan_.weights[weight];
    with_table_type<T>(table_type(l.type), [&]<class S>(S*) {
      matrices_[weight] = derived<bf16>(
          l, "matrices" + text(w), [&] { return matrices_of<S, bf16>(w, uploaded<S>(l).get()); });
      columns_[weight] = derived<S>(l, "columns" + text(w), [&] {
        return copied<S, S>(uploaded<S>(l).get(), w.N * w.K, {{&w.columns, w.K}, {&w.depth, 1}});
      });
    });
  }

  static std::string text(const packed_weight& w) {
    std::string s;
    for (const auto* axes : {&w.batch, &w.depth, &w.columns}) {
      s += ';';
      for (const axis_stride& a : *axes)
        s += ' ' + std::to_string(a.length) + '*' + std::to_string(a.stride);
    }
    return s;
  }

  const step_plan& plan_;
  const Device& on_;
  queue& queue_;  // of the preparation
  device_array<Device, T> computed_;
  vector<ir::leaf_node> origins_;       // by storage
  vector<shared<T>> leaves_;            // by storage
  vector<shared<void>> tables_;         // by storage, of narrow numbers
  vector<shared<float>> table_scales_;  // by storage, of 8 bits
  vector<dtype> table_types_;           // by storage
  vector<shared<void>> matrices_;       // by weight
  vector<shared<float>> scales_;        // by weight, of 8 bits
  vector<shared<void>> columns_;        // by weight, if it is screened
  vector<dtype> stored_;                // by weight: the type of its matrices
};

}  // namespace fmoe::cuda

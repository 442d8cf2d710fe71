// SPDX-License-Identifier: MIT
// The data of a plan that does not change between calls: leaves, computed constants and packed
// panels. Panels and the tables of gathers keep 16 bits if they are stored so; every other leaf is
// in the arithmetic type of the plan. Data that derives from one parameter only is kept with its
// storage, so that compiled calls share it; data that derives from any other leaf, which may be
// refilled, is made anew.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/backend/cpu/kernels/screen.hpp>
#include <fmoe/backend/cpu/kernels/table.hpp>
#include <fmoe/backend/cpu/plan/plan.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class constants {
 public:
  constants(const plan& p, std::span<const ir::leaf_node> leaves)
      : computed_(p.constants * sizeof(T)),
        leaves_(p.storages.size()),
        narrow_(p.storages.size()),
        panels_(p.weights.size()),
        screened_(p.weights.size()),
        kept_(p.storages.size()),
        origins_(p.storages.size()) {
    for (extent s = 0; s < p.storages.size(); ++s) {
      const storage_row& row = p.storages[s];
      if (row.where == storage_row::kind::leaf || row.where == storage_row::kind::input)
        add_leaf(s, leaves[row.source], row);
    }
  }

  // Gives up the leaves of which only packed copies are read, once all are packed.
  void release_packed(const plan& p) {
    for (extent s = 0; s < p.storages.size(); ++s)
      if (!is_read(p.storages[s])) origins_[s].data = nullptr;
  }

  // Returns the bytes that the constants of a plan take beside its leaves, or beside what an
  // earlier call made of them.
  static extent bytes(const plan& p, std::span<const ir::leaf_node> leaves) {
    extent n = p.constants * sizeof(T);
    for (const storage_row& row : p.storages) {
      if (row.where != storage_row::kind::leaf && row.where != storage_row::kind::input) continue;
      const ir::leaf_node& l = leaves[row.source];
      if (is_widened(l, row)) n += element_count(l.shape) * sizeof(T);
    }
    for (const packed_weight& w : p.weights) {
      const storage_row& row = p.storages[w.storage];
      const bool is_leaf = row.where == storage_row::kind::leaf;
      const dtype stored = is_leaf ? type_of_panels(p, w, leaves[row.source]) : dtype_of<T>;
      n += w.screened ? screened_weights<Arch>::bytes(w.K, w.N)
                      : w.batches * panel_bytes(w, *kernels_of(stored)) + panel_slack;
    }
    return n;
  }

  const T* leaf(extent storage) const { return leaves_[storage]; }
  T* computed() const { return reinterpret_cast<T*>(computed_.data()); }
  const screened_weights<Arch>& screened(extent weight) const { return *screened_[weight]; }

  // The panels of one batch of a weight.
  gemm_panels<T> panels(const plan& p, extent weight, extent batch) const {
    const gemm_panels<T>& all = panels_[weight];
    return {all.data + batch * panel_bytes(p.weights[weight], *all.kernels), all.kernels};
  }

  // Calls f with the leaf as it is stored, if gathers can read it so, otherwise with Ts.
  template <class F>
  void with_table(extent storage, const F& f) const {
    const ir::leaf_node& l = origins_[storage];
    if (!narrow_[storage]) return f(leaves_[storage]);
    if constexpr (std::is_same_v<T, float>)
      if (is_quantized_type(l.type))
        return with_quantized_type(
            l.type, [&]<class Q>(Q*) { f(int8_pointer<Q>(l.data->data(), layout_of(l))); });
    with_type(l.type, [&](auto* type) {
      using stored = std::remove_pointer_t<decltype(type)>;
      if constexpr (widens<T, stored, Arch>) f(static_cast<const stored*>(l.data->data()));
    });
  }

  // Packs a weight whose source is ready.
  [[gnu::cold]] void pack(const plan& p, extent w) {
    const packed_weight& weight = p.weights[w];
    const storage_row& row = p.storages[weight.storage];
    if (row.where != storage_row::kind::leaf) {
      keep(w, dtype_of<T>, packed(weight, computed() + row.offset, dtype_of<T>));
      return;
    }
    const ir::leaf_node& l = origins_[weight.storage];
    if (weight.screened) {
      const auto make = [&] { return screened(weight, l); };
      screened_[w] = std::static_pointer_cast<const screened_weights<Arch>>(
          derived(l, "screened " + key(weight), make));
      return;
    }
    const dtype stored = type_of_panels(p, weight, l);
    const auto make = [&] {
      if (stored == l.type && is_quantized_type(stored)) return packed_quantized(weight, l);
      if (stored == l.type) return packed(weight, l.data->data(), stored);
      return packed(weight, widened(l)->data(), stored);
    };
    keep(w, stored, derived(l, name_of(stored) + (' ' + key(weight)), make));
  }

 private:
  static extent panel_bytes(const packed_weight& w, const gemm_kernels<T>& kernels) {
    return divide_up(w.N, panel_width<T, Arch>) * kernels.bytes(w.K);
  }

  // Do gemm and gather read numbers of this type and widen them to T in registers?
  static bool is_widened_as_read(dtype type) {
    if (is_quantized_type(type)) return std::is_same_v<T, float>;
    return with_type(type,
                     [](auto* t) { return widens<T, std::remove_pointer_t<decltype(t)>, Arch>; });
  }

  // Weights of 8 bits stay so if their blocks lie along k, if a sum ends with a group of k, and if
  // every scale is a number.
  static dtype type_of_panels(const plan& p, const packed_weight& w, const ir::leaf_node& l) {
    if (!is_widened_as_read(l.type)) return dtype_of<T>;
    if (!is_quantized_type(l.type)) return l.type;
    return with_quantized_type(l.type, [&]<class Q>(Q*) {
      const bool fits = p.sum_block % panel_int8<Q, Arch>::group == 0 &&
                        has_whole_groups<Q, Arch>(offsets(w.depth), layout_of(l)) &&
                        has_finite_scales<Q>(layout_of(l), l.data->data());
      return fits ? l.type : dtype_of<T>;
    });
  }

  // The kernels for panels that are stored so.
  static const gemm_kernels<T>* kernels_of(dtype stored) {
    if (is_quantized_type(stored))
      return with_quantized_type(stored, []<class Q>(Q*) {
        using read = std::conditional_t<std::is_same_v<T, float>, panel_int8<Q, Arch>, T>;
        return &gemm_kernels_of<T, read, Arch>;
      });
    return with_type(stored, []<class S>(S*) {
      using read = std::conditional_t<widens<T, S, Arch>, S, T>;
      return &gemm_kernels_of<T, read, Arch>;
    });
  }

  static bool is_read(const storage_row& row) { return row.in_place || row.table; }

  static quantized_layout layout_of(const ir::leaf_node& l) {
    return {l.type, element_count(l.shape), l.axis};
  }

  // True if only packing and gathers read the leaf, and gathers read it as it is stored.
  static bool is_narrow(const ir::leaf_node& l, const storage_row& row) {
    if (!is_widened_as_read(l.type) || row.in_place) return false;
    return !row.table || !is_quantized_type(l.type) ||
           with_quantized_type(
               l.type, [&]<class Q>(Q*) { return int8_pointer<Q>::can_read(layout_of(l)); });
  }

  // True if steps read a copy of the leaf in the arithmetic type.
  static bool is_widened(const ir::leaf_node& l, const storage_row& row) {
    return is_read(row) && l.type != dtype_of<T> && !is_narrow(l, row);
  }

  void keep(extent w, dtype stored, std::shared_ptr<const void> block) {
    panels_[w] = {static_cast<const memory*>(block.get())->data(), kernels_of(stored)};
    blocks_.push_back(std::move(block));
  }

  void add_leaf(extent s, const ir::leaf_node& l, const storage_row& row) {
    origins_[s] = l;
    if (l.type == dtype_of<T>) {
      leaves_[s] = static_cast<const T*>(l.data->data());
      return;
    }
    narrow_[s] = is_narrow(l, row);
    if (!is_widened(l, row)) return;
    kept_[s] = derived(l, std::to_string(element_count(l.shape)), [&] { return widened(l); });
    leaves_[s] = reinterpret_cast<const T*>(static_cast<const memory*>(kept_[s].get())->data());
  }

  // The leaf's numbers as Ts.
  [[gnu::cold]] static std::shared_ptr<const memory> widened(const ir::leaf_node& l) {
    auto block = std::make_shared<memory>(element_count(l.shape) * sizeof(T));
    copy_numbers(l.numbers(), reinterpret_cast<T*>(block->data()));
    return block;
  }

  // The key has the type, because a storage may be viewed as several types and shapes.
  [[gnu::cold]] static std::shared_ptr<const void> derived(
      const ir::leaf_node& l, std::string key, function_ref<std::shared_ptr<const void>()> make) {
    if (!l.parameter) return make();
    for (const char* part : {" of ", name_of(l.type), " as ", name_of(dtype_of<T>)}) key += part;
    return l.data->derived(key, make);
  }

  [[gnu::cold]] static std::string key(const packed_weight& w) {
    std::string k = std::string("panels ") + Arch::name();
    for (const auto* axes : {&w.batch, &w.depth, &w.columns}) {
      k += ';';
      for (const axis_stride& a : *axes) {
        k += std::to_string(a.length);
        k += '*';
        k += std::to_string(a.stride);
        k += ' ';
      }
    }
    return k;
  }

  // Returns the offset of every combination of the axes, row-major.
  static std::vector<extent> offsets(const std::vector<axis_stride>& axes) {
    std::vector<extent> r{0};
    for (const axis_stride& a : axes) {
      std::vector<extent> more;
      more.reserve(r.size() * a.length);
      for (const extent base : r)
        for (extent i = 0; i < a.length; ++i) more.push_back(base + i * a.stride);
      r = std::move(more);
    }
    return r;
  }

  // Panels of elements that stand at `source` in the type that they are stored in.
  [[gnu::cold]] static std::shared_ptr<const void> packed(const packed_weight& w,
                                                          const void* source, dtype stored) {
    const auto k = offsets(w.depth), n = offsets(w.columns), batch = offsets(w.batch);
    const extent elements = packed_size<T, Arch>(w.K, w.N);
    auto block = std::make_shared<memory>(w.batches * elements * size_of(stored) + panel_slack);
    if (elements == 0) return block;  // `source` may be null
    with_type(stored, [&](auto* type) {
      using element = std::remove_pointer_t<decltype(type)>;
      if constexpr (widens<T, element, Arch>)
        for (extent b = 0; b < batch.size(); ++b)
          pack_panels<T, Arch>(k, n, static_cast<const element*>(source) + batch[b],
                               reinterpret_cast<element*>(block->data()) + b * elements);
    });
    return block;
  }

  [[gnu::cold]] static std::shared_ptr<const void> packed_quantized(const packed_weight& w,
                                                                    const ir::leaf_node& l) {
    const auto k = offsets(w.depth), n = offsets(w.columns), batch = offsets(w.batch);
    const quantized_layout layout = layout_of(l);
    const extent bytes = panel_bytes(w, *kernels_of(l.type));
    auto block = std::make_shared<memory>(w.batches * bytes + panel_slack);
    with_quantized_type(l.type, [&]<class Q>(Q*) {
      for (extent b = 0; b < batch.size(); ++b)
        pack_quantized<T, Arch, Q>(k, n, layout, batch[b],
                                   static_cast<const std::byte*>(l.data->data()),
                                   block->data() + b * bytes);
    });
    return block;
  }

  [[gnu::cold]] static std::shared_ptr<const void> screened(const packed_weight& w,
                                                            const ir::leaf_node& l) {
    const auto k = offsets(w.depth), n = offsets(w.columns);
    const auto fill = [&](float* row, extent c) {
      with_numbers<float>(l.numbers(), [&](const auto& number) {
        for (extent i = 0; i < w.K; ++i) row[i] = number(k[i] + n[c]);
      });
    };
    return std::make_shared<screened_weights<Arch>>(w.K, w.N, fill);
  }

  memory computed_;
  std::vector<const T*> leaves_;  // by storage
  std::vector<bool> narrow_;      // by storage: only panels and tables read it, in its 16 or 8 bits
  std::vector<gemm_panels<T>> panels_;
  std::vector<std::shared_ptr<const screened_weights<Arch>>> screened_;
  std::vector<std::shared_ptr<const void>> kept_, blocks_;
  std::vector<ir::leaf_node> origins_;  // by storage
};

}  // namespace fmoe::cpu

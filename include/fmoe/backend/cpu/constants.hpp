// SPDX-License-Identifier: MIT
// What a plan reads that does not change from call to call: leaves, computed constants, and packed
// panels. Panels and the tables of gathers stay in 16 bits where they are stored so; every other
// leaf is in the plan's arithmetic type. What derives from one parameter alone is kept with its
// storage, so compiled calls share it; what derives from any other leaf, which may be refilled, is
// made anew.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/backend/cpu/kernels/screen.hpp>
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
        add_leaf(s, leaves[static_cast<extent>(row.source)], row.in_place);
    }
  }

  const T* leaf(extent storage) const { return leaves_[storage]; }
  T* computed() const { return reinterpret_cast<T*>(computed_.data()); }
  const screened_weights<Arch>& screened(int weight) const {
    return *screened_[static_cast<extent>(weight)];
  }
  gemm_panels<T> panels(int weight) const { return panels_[static_cast<extent>(weight)]; }

  // Calls f with the leaf as it is stored, if gathers read it so, else as Ts.
  template <class F>
  void with_table(extent storage, const F& f) const {
    const ir::leaf_node& l = origins_[storage];
    if (!narrow_[storage]) return f(leaves_[storage]);
    with_type(l.type, [&](auto* type) {
      using stored = std::remove_pointer_t<decltype(type)>;
      if constexpr (widens<T, stored, Arch>) f(static_cast<const stored*>(l.data->data()));
    });
  }

  // Packs a weight whose source is ready.
  void pack(const plan& p, extent w) {
    const packed_weight& weight = p.weights[w];
    const auto storage = static_cast<extent>(weight.storage);
    const storage_row& row = p.storages[storage];
    if (row.where != storage_row::kind::leaf)
      return keep(w, &gemm_kernels_of<T, T, Arch>, packed<T>(weight, computed() + row.offset));
    const ir::leaf_node& l = origins_[storage];
    if (weight.screened) {
      screened_[w] = std::static_pointer_cast<const screened_weights<Arch>>(
          derived(l, "screened " + key(weight), [&] { return screened(weight, l); }));
      return;
    }
    with_type(l.type, [&](auto* type) {
      using from = std::remove_pointer_t<decltype(type)>;
      using stored = std::conditional_t<widens<T, from, Arch>, from, T>;
      const auto make = [&] {
        return packed<stored>(weight, static_cast<const from*>(l.data->data()));
      };
      keep(w, &gemm_kernels_of<T, stored, Arch>, derived(l, key(weight), make));
    });
  }

  static extent panel_elements(const packed_weight& w) { return packed_size<T, Arch>(w.K, w.N); }

 private:
  void keep(extent w, const gemm_kernels<T>* kernels, std::shared_ptr<const void> block) {
    panels_[w] = {std::static_pointer_cast<const memory>(block)->data(), kernels};
    blocks_.push_back(std::move(block));
  }

  void add_leaf(extent s, const ir::leaf_node& l, bool in_place) {
    origins_[s] = l;
    if (l.type == dtype_of<T>) {
      leaves_[s] = static_cast<const T*>(l.data->data());
      return;
    }
    const extent n = element_count(l.shape);
    const bool kept = with_type(
        l.type, [](auto* type) { return widens<T, std::remove_pointer_t<decltype(type)>, Arch>; });
    narrow_[s] = kept && !in_place;
    if (narrow_[s]) return;
    const auto widened = [&] {
      auto block = std::make_shared<memory>(n * sizeof(T));
      with_type(l.type, [&](auto* type) {
        const auto* from =
            static_cast<const std::remove_pointer_t<decltype(type)>*>(l.data->data());
        for (extent i = 0; i < n; ++i) reinterpret_cast<T*>(block->data())[i] = convert<T>(from[i]);
      });
      return block;
    };
    kept_[s] = derived(l, std::to_string(n), widened);
    leaves_[s] =
        reinterpret_cast<const T*>(std::static_pointer_cast<const memory>(kept_[s])->data());
  }

  // A storage may be seen as several types and shapes.
  template <class Make>
  static std::shared_ptr<const void> derived(const ir::leaf_node& l, std::string key, Make make) {
    if (!l.parameter) return make();
    for (const std::string_view part : {" of ", name_of(l.type), " as ", name_of(dtype_of<T>)})
      key += part;
    return l.data->derived(key, make);
  }

  static std::string key(const packed_weight& w) {
    std::string k = std::string("panels ") + Arch::name();
    for (const auto* axes : {&w.batch, &w.depth, &w.columns}) {
      k += ';';
      for (const axis_stride& a : *axes)
        k += std::to_string(a.length) + '*' + std::to_string(a.stride) + ' ';
    }
    return k;
  }

  // The offset of every combination of the axes, row-major.
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

  template <class Stored, class From>
  static std::shared_ptr<const void> packed(const packed_weight& w, const From* source) {
    const auto k = offsets(w.depth), n = offsets(w.columns), batch = offsets(w.batch);
    auto block =
        std::make_shared<memory>(w.batches * panel_elements(w) * sizeof(Stored) + panel_slack);
    for (extent b = 0; b < batch.size(); ++b)
      pack_panels<T, Arch>(
          k, n, [from = source + batch[b]](extent at) { return convert<Stored>(from[at]); },
          reinterpret_cast<Stored*>(block->data()) + b * panel_elements(w));
    return block;
  }

  static std::shared_ptr<const void> screened(const packed_weight& w, const ir::leaf_node& l) {
    const auto k = offsets(w.depth), n = offsets(w.columns);
    std::shared_ptr<const void> made;
    with_type(l.type, [&](auto* type) {
      const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(l.data->data());
      made = std::make_shared<screened_weights<Arch>>(w.K, w.N, [&](float* row, extent c) {
        for (extent i = 0; i < w.K; ++i) row[i] = convert<float>(from[k[i] + n[c]]);
      });
    });
    return made;
  }

  memory computed_;
  std::vector<const T*> leaves_;  // by storage
  std::vector<bool> narrow_;      // by storage: only panels and tables read it, in its 16 bits
  std::vector<gemm_panels<T>> panels_;
  std::vector<std::shared_ptr<const screened_weights<Arch>>> screened_;
  std::vector<std::shared_ptr<const void>> kept_, blocks_;
  std::vector<ir::leaf_node> origins_;  // by storage
};

}  // namespace fmoe::cpu

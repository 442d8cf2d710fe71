// SPDX-License-Identifier: MIT
// What a plan reads that does not change from call to call: leaves in the plan's arithmetic type, computed constants,
// and packed panels. What derives from one parameter alone is kept with its storage, so compiled calls share it; what
// derives from any other leaf, which may be refilled, is made anew.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/cpu/pack.hpp>
#include <fmoe/graph.hpp>
#include <fmoe/plan.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class constants {
 public:
  constants(const plan& p, const graph& g)
      : computed_(p.constants * sizeof(T)), leaves_(p.storages.size()), panels_(p.weights.size()), kept_(p.storages.size()),
        origins_(p.storages.size()) {
    for (extent s = 0; s < p.storages.size(); ++s) {
      const storage_row& row = p.storages[s];
      if (row.where == storage_row::kind::leaf || row.where == storage_row::kind::input)
        add_leaf(s, std::get<leaf_node>(g[static_cast<node_id>(row.source)].op));
    }
  }

  const T* leaf(extent storage) const { return leaves_[storage]; }
  T* computed() const { return reinterpret_cast<T*>(computed_.data()); }
  const T* panels(int weight) const { return panels_[static_cast<extent>(weight)]; }

  // Packs a weight whose source is ready; elements of one batch position are panel_elements apart.
  void pack(const plan& p, extent w) {
    const packed_weight& weight = p.weights[w];
    const auto storage = static_cast<extent>(weight.storage);
    const storage_row& row = p.storages[storage];
    const bool is_leaf = row.where == storage_row::kind::leaf;
    const T* source = is_leaf ? leaves_[storage] : computed() + row.offset;
    const auto make = [&] { return packed(weight, source); };
    const auto block = is_leaf ? derived(origins_[storage], key(weight), make) : make();
    blocks_.push_back(block);
    panels_[w] = reinterpret_cast<const T*>(std::static_pointer_cast<const memory>(block)->data());
  }

  static extent panel_elements(const packed_weight& w) { return packed_size<T, Arch>(w.K, w.N); }

 private:
  void add_leaf(extent s, const leaf_node& l) {
    origins_[s] = l;
    if (l.type == dtype_of<T>) {
      leaves_[s] = static_cast<const T*>(l.data->data());
      return;
    }
    const extent n = element_count(l.shape);
    const auto widened = [&] {
      auto block = std::make_shared<memory>(n * sizeof(T));
      with_type(l.type, [&](auto* type) {
        const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(l.data->data());
        for (extent i = 0; i < n; ++i) reinterpret_cast<T*>(block->data())[i] = convert<T>(from[i]);
      });
      return block;
    };
    kept_[s] = derived(l, std::to_string(n), widened);
    leaves_[s] = reinterpret_cast<const T*>(std::static_pointer_cast<const memory>(kept_[s])->data());
  }

  // A storage may be seen as several types and shapes.
  template <class Make>
  static std::shared_ptr<const void> derived(const leaf_node& l, std::string key, Make make) {
    if (!l.parameter) return make();
    for (const std::string_view part : {" of ", name_of(l.type), " as ", name_of(dtype_of<T>)}) key += part;
    return l.data->derived(key, make);
  }

  static std::string key(const packed_weight& w) {
    std::string k = std::string("panels ") + Arch::name();
    for (const auto* axes : {&w.batch, &w.depth, &w.columns}) {
      k += ';';
      for (const axis_stride& a : *axes) k += std::to_string(a.length) + '*' + std::to_string(a.stride) + ' ';
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

  static std::shared_ptr<const void> packed(const packed_weight& w, const T* source) {
    constexpr extent slack = 4096;  // elements that prefetching past the last panel may name
    const auto k = offsets(w.depth), n = offsets(w.columns), batch = offsets(w.batch);
    auto block = std::make_shared<memory>((w.batches * panel_elements(w) + slack) * sizeof(T));
    for (extent b = 0; b < batch.size(); ++b)
      pack_panels<T, Arch>(k, n, [from = source + batch[b]](extent at) { return from[at]; },
                           reinterpret_cast<T*>(block->data()) + b * panel_elements(w));
    return block;
  }

  memory computed_;
  std::vector<const T*> leaves_, panels_;
  std::vector<std::shared_ptr<const void>> kept_, blocks_;
  std::vector<leaf_node> origins_;  // by storage
};

}  // namespace fmoe::cpu

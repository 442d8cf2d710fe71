// SPDX-License-Identifier: MIT
// The data of a plan that does not change between calls: leaves, computed constants and packed
// panels. Panels and the tables of gathers keep 16 bits if they are stored so; every other leaf is
// in the arithmetic type of the plan. Data that derives from one parameter only is kept with its
// storage, so that compiled calls share it; data that derives from any other leaf, which may be
// refilled, is made anew.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <fmoe/backend/cpu/kernels/screen.hpp>
#include <fmoe/backend/cpu/stored_weights.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class constants {
 public:
  constants(const step_plan& p, std::span<const ir::leaf_node> leaves)
      : computed_(p.constants * sizeof(T)),
        leaves_(p.storages.size()),
        tables_(p.storages.size()),
        narrow_(p.storages.size()),
        widens_(p.storages.size()),
        reads_(p.storages.size()),
        types_(p.weights.size()),
        panels_(p.weights.size()),
        kept_(p.storages.size()),
        copies_(p.storages.size()),
        blocks_(p.weights.size()),
        origins_(p.storages.size()) {
    for (const packed_weight& w : p.weights)
      places_.push_back({offsets(w.depth), offsets(w.columns), offsets(w.batch), {}});
    for (extent s = 0; s < p.storages.size(); ++s) {
      const storage_row& row = p.storages[s];
      if (row.where != storage_row::kind::leaf && row.where != storage_row::kind::input) continue;
      origins_[s] = leaves[row.source];
      narrow_[s] = is_narrow(origins_[s], row);
      widens_[s] = is_widened(origins_[s], row);
      reads_[s] = is_read(row);
      if (reads_[s] && !widens_[s]) copies_[s] = std::make_shared<storage>(0);
      read_leaf(s, leaves[row.source]);
    }
  }

  // Reads a leaf, or reads it again. What was packed from it is as it was.
  void read_leaf(extent s, const ir::leaf_node& l) {
    origins_[s].data = l.may_change && copies_[s] != nullptr ? copied(s, l) : l.data;
    if (!reads_[s]) return;
    if (l.type == dtype_of<T>) leaves_[s] = static_cast<const T*>(origins_[s].data->data());
    if (widens_[s]) widen_leaf(s, l);
    tables_[s] = narrow_[s] ? weight_table<T>{&stored_as(l.type), origins_[s].numbers()}
                            : table_of(leaves_[s]);
  }

  // Gives up the leaves of which only packed copies are read, once all are packed.
  void release_packed(const step_plan& p) {
    for (extent s = 0; s < p.storages.size(); ++s)
      if (!is_read(p.storages[s])) origins_[s].data = nullptr;
  }

  // Returns the bytes that the constants of a plan take beside its leaves, or beside what an
  // earlier call made of them.
  static extent bytes(const step_plan& p, std::span<const ir::leaf_node> leaves) {
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
                      : w.batches * panel_bytes(w, stored_as(stored)) + panel_slack;
    }
    return n;
  }

  const T* leaf(extent storage) const { return leaves_[storage]; }
  T* computed() const { return reinterpret_cast<T*>(computed_.data()); }
  const screened_weights<Arch>& screened(extent weight) const {
    return *static_cast<const screened_weights<Arch>*>(blocks_[weight].get());
  }

  // What the panels of a weight hold, whose rows may be rounded.
  const stored_weights<T>& stored(extent weight) const { return *types_[weight]; }

  // The panels of one batch of a weight.
  gemm_panels<T> panels(const step_plan& p, extent weight, extent batch) const {
    const gemm_panels<T>& all = panels_[weight];
    return {all.data + batch * panel_bytes(p.weights[weight], *types_[weight]), all.kernels};
  }

  // The leaf as it is stored, if gathers can read it so, otherwise as Ts.
  const weight_table<T>& table(extent storage) const { return tables_[storage]; }
  static weight_table<T> table_of(const T* numbers) {
    return {&stored_as(dtype_of<T>), {dtype_of<T>, numbers, 0, {}}};
  }

  // Packs a weight whose source is ready on so many threads, into the memory that it has if no
  // other plan reads that.
  FMOE_COLD void pack(const step_plan& p, extent w, extent threads) {
    const packed_weight& weight = p.weights[w];
    const storage_row& row = p.storages[weight.storage];
    if (row.where != storage_row::kind::leaf) {
      if (blocks_[w] == nullptr) blocks_[w] = block_for(weight, dtype_of<T>);
      pack_into(weight, to_pack(w, weight, {dtype_of<T>, computed() + row.offset, 0, {}}), threads,
                *static_cast<memory*>(const_cast<void*>(blocks_[w].get())));
      return keep(weight, w, dtype_of<T>);
    }
    const ir::leaf_node& l = origins_[weight.storage];
    std::string& key = places_[w].key;
    if (weight.screened) {
      if (l.parameter && key.empty()) key = of_leaf("screened " + text(weight), l);
      const auto fill = [&](void* to) {
        fill_screened(w, l, threads, *static_cast<screened_weights<Arch>*>(to));
      };
      const auto make = [&] {
        auto made = std::make_shared<screened_weights<Arch>>(weight.K, weight.N);
        fill(made.get());
        return made;
      };
      return renew(l, key, blocks_[w], make, fill);
    }
    const dtype stored = type_of_panels(p, weight, l);
    if (l.parameter && key.empty()) key = of_leaf(name_of(stored) + (' ' + text(weight)), l);
    const auto fill = [&](void* to) {
      if (stored == l.type && pack_permuted(weight, l, threads, *static_cast<memory*>(to))) return;
      const memory wide = stored == l.type ? memory() : widened(l);
      const stored_numbers from =
          stored == l.type ? l.numbers() : stored_numbers{stored, wide.data(), 0, {}};
      pack_into(weight, to_pack(w, weight, from), threads, *static_cast<memory*>(to));
    };
    const auto make = [&] {
      auto block = block_for(weight, stored);
      fill(block.get());
      return block;
    };
    renew(l, key, blocks_[w], make, fill);
    keep(weight, w, stored);
  }

 private:
  void widen_leaf(extent s, const ir::leaf_node& l) {
    const auto copy = [&](void* to) {
      copy_numbers(l.numbers(), reinterpret_cast<T*>(static_cast<memory*>(to)->data()));
    };
    const auto make = [&] {
      auto block = std::make_shared<memory>(element_count(l.shape) * sizeof(T));
      copy(block.get());
      return block;
    };
    std::string key;
    if (l.parameter) key = of_leaf(std::to_string(element_count(l.shape)), l);
    renew(l, key, kept_[s], make, copy);
    leaves_[s] = reinterpret_cast<const T*>(static_cast<const memory*>(kept_[s].get())->data());
  }

  static extent panel_bytes(const packed_weight& w, const stored_weights<T>& as) {
    return divide_up(w.N, panel_width<T, Arch>) *
           as.kernels(w.rounding).bytes(as.panel_rows(w.rounding, w.K));
  }

  static const stored_weights<T>& stored_as(dtype type) { return stored_weights_as<T, Arch>(type); }

  // The type of the numbers in panels: the leaf's own if they fit, or T.
  static dtype type_of_panels(const step_plan& p, const packed_weight& w, const ir::leaf_node& l) {
    if (!is_widened_as_read<T, Arch>(l.type)) return dtype_of<T>;
    if (!is_quantized_type(l.type)) return l.type;  // refresh allocates nothing
    const auto depth = offsets(w.depth);
    const bool fits =
        stored_as(l.type).fits_panels({l.numbers(), depth, {}, {}, w.rounding}, p.sum_block);
    return fits ? l.type : dtype_of<T>;
  }

  static bool is_read(const storage_row& row) { return row.in_place || row.table; }

  // True if only packing and gathers read the leaf, and gathers read it as it is stored.
  static bool is_narrow(const ir::leaf_node& l, const storage_row& row) {
    if (!is_widened_as_read<T, Arch>(l.type) || row.in_place) return false;
    return !row.table || stored_as(l.type).fits_table(l.numbers());
  }

  // True if steps read a copy of the leaf in the arithmetic type.
  static bool is_widened(const ir::leaf_node& l, const storage_row& row) {
    return is_read(row) && l.type != dtype_of<T> && !is_narrow(l, row);
  }

  void keep(const packed_weight& weight, extent w, dtype stored) {
    types_[w] = &stored_as(stored);
    panels_[w] = {static_cast<const memory*>(blocks_[w].get())->data(),
                  &types_[w]->kernels(weight.rounding)};
  }

  // A copy of a leaf that others may write while steps read it.
  FMOE_COLD const std::shared_ptr<storage>& copied(extent s, const ir::leaf_node& l) {
    const extent bytes = l.outline().bytes();
    std::shared_ptr<storage>& copy = copies_[s];
    if (copy->size() != bytes) copy = std::make_shared<storage>(bytes);
    if (bytes > 0)
      std::memcpy(copy->written(), l.data->data(), bytes);  // what is packed of it is old
    return copy;
  }

  // The leaf's numbers as Ts.
  FMOE_COLD static memory widened(const ir::leaf_node& l) {
    memory block(element_count(l.shape) * sizeof(T));
    copy_numbers(l.numbers(), reinterpret_cast<T*>(block.data()));
    return block;
  }

  // Data that derives from a leaf that is no parameter is this plan's alone.
  FMOE_COLD static void renew(const ir::leaf_node& l, const std::string& key,
                              std::shared_ptr<const void>& held,
                              function_ref<std::shared_ptr<const void>()> make,
                              function_ref<void(void*)> fill) {
    if (l.parameter) l.data->renew(key, held, make, fill);
    else if (held == nullptr) held = make();
    else fill(const_cast<void*>(held.get()));
  }

  // The key has the type, because a storage may be viewed as several types and shapes.
  FMOE_COLD static std::string of_leaf(std::string key, const ir::leaf_node& l) {
    for (const char* part : {" of ", name_of(l.type), " as ", name_of(dtype_of<T>)}) key += part;
    return key;
  }

  FMOE_COLD static std::string text(const packed_weight& w) {
    const bool is_rounded = w.rounding != row_rounding::none;
    std::string k = std::string(is_rounded ? "rounded panels " : "panels ") + Arch::name();
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

  FMOE_COLD static std::shared_ptr<memory> block_for(const packed_weight& w, dtype stored) {
    return std::make_shared<memory>(w.batches * panel_bytes(w, stored_as(stored)) + panel_slack);
  }

  weights_to_pack to_pack(extent w, const packed_weight& weight, const stored_numbers& from) const {
    const places& at = places_[w];
    return {from, at.depth, at.columns, at.batch, weight.rounding};
  }

  FMOE_COLD static void pack_into(const packed_weight& w, const weights_to_pack& from,
                                  extent threads, memory& block) {
    const stored_weights<T>& as = stored_as(from.from.type);
    as.pack(from, threads, panel_bytes(w, as), block.data());
  }

  // Packs elements that lie in another order of axes where they lie. Returns false if they do not,
  // or if the weight has other axes than they.
  FMOE_COLD static bool pack_permuted(const packed_weight& w, const ir::leaf_node& l,
                                      extent threads, memory& block) {
    const auto from = l.data->permuted();
    if (from == nullptr || from->element_bytes != size_of(l.type)) return false;
    bool fits = true;
    const auto offsets_in = [&](vector<axis_stride> axes) {
      for (axis_stride& a : axes) {
        const auto stride = from->stride_of(a.length, a.stride);
        fits = fits && stride;
        a.stride = stride.value_or(0);
      }
      return offsets(axes);
    };
    const auto depth = offsets_in(w.depth), columns = offsets_in(w.columns),
               batch = offsets_in(w.batch);
    if (fits)
      pack_into(w, {{l.type, from->data, 0, {}}, depth, columns, batch, w.rounding}, threads,
                block);
    return fits;
  }

  FMOE_COLD void fill_screened(extent w, const ir::leaf_node& l, extent threads,
                               screened_weights<Arch>& to) const {
    const vector<extent>&k = places_[w].depth, &n = places_[w].columns;
    const auto k_step = step_of(k), n_step = step_of(n);
    const auto* const plain = l.type == dtype::float32 && k_step && n_step == 1
                                  ? static_cast<const float*>(l.data->data())
                                  : nullptr;
    const auto fill = [&](float* rows, extent first, extent count, extent stride) {
      if (plain != nullptr) {
        transpose<float, Arch>(plain + k[0] + n[first], *k_step, k.size(), count, rows, stride);
        return;
      }
      with_numbers<float>(l.numbers(), [&](const auto& number) {
        for (extent c = 0; c < count; ++c)
          for (extent i = 0; i < k.size(); ++i) rows[c * stride + i] = number(k[i] + n[first + c]);
      });
    };
    for_units(threads, to.parts(), [&](extent part) { to.fill(part, fill); });
  }

  // The places of a weight's numbers, and the key of what is packed.
  struct places {
    vector<extent> depth, columns, batch;
    std::string key;
  };

  memory computed_;
  vector<const T*> leaves_;         // by storage
  vector<weight_table<T>> tables_;  // by storage, so that a call reads one line of the cache
  vector<bool> narrow_;  // by storage: only panels and tables read it, in its 16 or 8 bits
  vector<bool> widens_;  // by storage: steps read a copy in the arithmetic type
  vector<bool> reads_;   // by storage: steps read the leaf or a copy, and not panels alone
  vector<const stored_weights<T>*> types_;  // by weight: of what its panels hold
  vector<gemm_panels<T>> panels_;
  vector<std::shared_ptr<const void>> kept_;  // by storage: widened leaves
  // By storage: of leaves that steps read as they are stored, where others may write these; null
  // for other leaves.
  vector<std::shared_ptr<storage>> copies_;
  vector<std::shared_ptr<const void>> blocks_;  // by weight: panels, or a screen
  vector<places> places_;                       // by weight
  vector<ir::leaf_node> origins_;               // by storage
};

}  // namespace fmoe::cpu

// SPDX-License-Identifier: MIT
// Predicts the time of each step of a plan from the rates of a machine: its arithmetic, and the
// reads of its weights and rows from where they lie. What a step does beside its products, and how
// much of its reads goes on during its arithmetic, was fitted to the rows of fmoe_bench
// (docs/performance.md).
#pragma once

#include <cmath>
#include <span>
#include <utility>

#include <fmoe/base/dtype.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>
#include <fmoe/plan/accesses.hpp>
#include <fmoe/planner/machine.hpp>

namespace fmoe::cpu {

// Returns the rates of one thread while so many run together. None is faster than alone, and all
// together have what the machine has.
inline machine_rates shared_rates(const machine& m, extent threads) {
  const auto t = static_cast<double>(threads);
  const auto part = [&](double one, double every) {
    return std::min(one, std::max(every, one) / t);
  };
  return {part(m.one.flops, m.every.flops),
          part(m.one.int16_dots, m.every.int16_dots),
          part(m.one.int8_dots, m.every.int8_dots),
          part(m.one.bf16_dots, m.every.bf16_dots),
          part(m.one.l2, m.every.l2),
          part(m.one.l3, m.every.l3),
          part(m.one.memory, m.every.memory)};
}

// Times are in seconds, for a call of as many tokens as the plan takes.
class prediction {
 public:
  static constexpr double hand_over = 4e-6;  // seconds that rows take to another thread

  prediction(const step_plan& p, std::span<const ir::leaf_node> leaves, const machine& m,
             extent element_bytes, extent threads)
      : plan_(p),
        machine_(m),
        element_bytes_(static_cast<double>(element_bytes)),
        threads_(threads) {
    for (const storage_row& row : p.storages) {
      const bool is_leaf = row.where == storage_row::kind::leaf;
      bytes_.push_back(is_leaf ? std::min(bytes_each(leaves[row.source].outline()), element_bytes_)
                               : element_bytes_);
    }
    weights_ = weights_of(p.steps);
    const extent tiles = tile_count(p, p.token_count, threads),
                 tasks = std::min(threads, std::max<extent>(1, tiles));
    alone_ = products_ = shared_rates(m, tasks);
    shares_ = tasks == 1 && threads > 1;
    if (shares_) products_ = rates_of(threads);  // their columns are shared
    tokens_ = static_cast<double>(p.token_count) / static_cast<double>(std::max<extent>(1, tiles));
    rounds_ = static_cast<double>(divide_up(std::max<extent>(1, tiles), tasks));
    rows_rate_ = from_cache(alone_, static_cast<double>(p.arena) * element_bytes_);
    add_stages();
  }

  // Of the whole call, and of each step in the order in which it is printed: a loop or a group
  // stands before the steps of its body and has their time.
  double seconds() const { return total_; }
  const vector<double>& of_steps() const { return steps_; }

  // What one weight takes: to read it, and its arithmetic with one row.
  double read_seconds() const { return element_bytes_ / from_cache(products_, weights_); }
  double multiply_add_seconds() const { return 2 / products_.flops; }

 private:
  // The rates of so many threads together.
  machine_rates rates_of(extent threads) const {
    machine_rates r = shared_rates(machine_, threads);
    for (double* rate :
         {&r.flops, &r.int16_dots, &r.int8_dots, &r.bf16_dots, &r.l2, &r.l3, &r.memory})
      *rate *= static_cast<double>(threads);
    return r;
  }

  // The rate of reading a set of so many bytes again and again. A share of L3 that is not known
  // belongs to others. A thread has an eighth of it, or 16 MB if that is more, but not more than a
  // half; of larger sets memory has a part in the reads.
  double from_cache(const machine_rates& r, double bytes) const {
    const auto l2 = static_cast<double>(machine_.l2), l3 = static_cast<double>(machine_.l3);
    if (bytes <= 0.75 * l2) return r.l2;
    const double own = std::min(l3 / 2, std::max(l3 / 8, 16e6));
    const double in_l3 = std::max(l2, own), in_memory = std::max(2 * in_l3, l3 / 2);
    if (bytes <= in_l3) return r.l3;
    if (bytes >= in_memory) return r.memory;
    const double part = std::log(bytes / in_l3) / std::log(in_memory / in_l3);
    return r.l3 * std::pow(r.memory / r.l3, part);
  }

  // The time of arithmetic and of reads that go on at the same time, but not quite.
  static double together(double a, double b, double hidden) {
    return std::max(a, b) + (1 - hidden) * std::min(a, b);
  }

  // One batch of a packed weight.
  double panel_bytes(extent weight) const {
    const packed_weight& w = plan_.weights[weight];
    const double elements = static_cast<double>(w.K * round_up(w.N, plan_.panel));
    return elements * (w.screened ? 2 : bytes_[w.storage]);
  }
  static double batches(const gemm_step& s) {
    extent n = 0;
    for (const gemm_step::row& r : s.rows) n = std::max(n, r.weight);
    return static_cast<double>(n + 1);
  }
  double table_bytes(const view& v) const {
    return static_cast<double>(plan_.storages[v.storage].elements) * bytes_[v.storage];
  }

  // How many experts of a group some tokens select.
  static double busy_experts(const group_step& s, double tokens) {
    const auto E = static_cast<double>(s.experts), chosen = static_cast<double>(s.keep) / E;
    return E * (1 - std::pow(1 - chosen, tokens));
  }

  // The bytes of packed weights that a call reads.
  double weights_of(const vector<step>& steps) const {
    double n = 0;
    for (const step& s : steps) visit([&](const auto& kind) { n += weights_of(kind); }, s);
    return n;
  }
  double weights_of(const gemm_step& s) const { return batches(s) * panel_bytes(s.weight); }
  double weights_of(const screen_step& s) const { return panel_bytes(s.weight); }
  double weights_of(const loop_step& s) const { return weights_of(s.body); }
  double weights_of(const group_step& s) const {
    return busy_experts(s, static_cast<double>(plan_.token_count)) * weights_of(s.body);
  }
  static double weights_of(const auto&) { return 0; }

  // The passes over so many elements. A map takes several operations, the others take one.
  double passes(const vector<epilogue>& all, double elements) const {
    double flops = 0;
    for (const epilogue& e : all) {
      const bool is_simple = e.what != pass_kind::map || e.f == number_function{pointwise::relu};
      flops += is_simple ? 4 : 50;
    }
    return elements * flops / alone_.flops;
  }

  // The operations of products a second. Those of 8 bits take a third as long again to scale the
  // sums of groups.
  double product_rate(row_rounding rounding) const {
    switch (rounding) {
      case row_rounding::bf16: return std::max(products_.flops, products_.bf16_dots);
      case row_rounding::int8: return std::max(products_.flops, 0.75 * products_.int8_dots);
      case row_rounding::none: break;
    }
    return products_.flops;
  }

  // A product of `rows` rows with each of the batches of a weight.
  double product(const gemm_step& s, double rows) const {
    const auto n = static_cast<double>(s.rows.size()), K = static_cast<double>(s.K);
    const double columns = static_cast<double>(round_up(s.N, plan_.panel));
    const double arithmetic =
        2 * rows * n * K * columns / (0.9 * product_rate(plan_.weights[s.weight].rounding));
    const double bytes = weights_of(s), read = from_cache(products_, weights_),
                 hidden = read < 1.3 * products_.memory ? 0.2 : 0.5;
    // Every panel reads all rows again, which share L2 with panels and results. Rows that leave L2
    // meet several panels at a time, unless the panels are widened.
    const double row_bytes = rows * K * element_bytes_,
                 panels = columns / static_cast<double>(plan_.panel),
                 half = 0.5 * static_cast<double>(machine_.l2),
                 panel = K * static_cast<double>(plan_.panel) * element_bytes_;
    const bool is_narrow = bytes_[plan_.weights[s.weight].storage] < element_bytes_;
    const double together_panels =
        row_bytes > half && !is_narrow ? std::max(1.0, std::floor(half / panel)) : 1;
    const double again = row_bytes < 0.5 * static_cast<double>(machine_.l1)
                             ? 0
                             : 0.3 * n * panels / together_panels * row_bytes /
                                   from_cache(products_, 1.5 * row_bytes);
    return together(arithmetic, bytes / read, hidden) + again + moved(rows * n * columns);
  }

  // Numbers that one step writes and another one reads.
  double moved(double elements) const { return elements * element_bytes_ / rows_rate_; }

  double time(const gemm_step& s, double rows) const {
    return product(s, rows) + passes(s.epilogues, rows * static_cast<double>(s.N * s.rows.size()));
  }

  double time(const screen_step& s, double rows) const {
    const auto K = static_cast<double>(s.K), N = static_cast<double>(s.N),
               keep = static_cast<double>(screened_entries(s.rule, s.keep, s.N));
    const double columns = static_cast<double>(round_up(s.N, plan_.panel));
    const double scores = together(2 * rows * K * columns / (0.9 * products_.int16_dots),
                                   panel_bytes(s.weight) / from_cache(products_, weights_), 0.4);
    const double collected = rows * columns * 60 / products_.flops;
    const double narrowed = rows * K * 16 / products_.flops;
    const double again =
        rows * (keep + 2) * (4 * K / from_cache(products_, 4 * K * N) + 6 * K / products_.flops);
    return scores + collected + narrowed + again;
  }

  double gathered(const view& table, double rows, double width, double keep) const {
    const double bytes = bytes_[table.storage];
    return together(rows * keep * width * bytes / from_cache(alone_, table_bytes(table)),
                    4 * rows * keep * width / alone_.flops, 0.5);
  }
  double time(const gather_step& s, double rows) const {
    const auto n = static_cast<double>(s.N);
    return gathered(s.table, rows * static_cast<double>(s.rows), n, static_cast<double>(s.keep)) +
           passes(s.epilogues, rows * n);
  }
  double time(const sample_step& s, double rows) const {
    const auto each = rows * static_cast<double>(s.rows), keep = static_cast<double>(s.keep);
    return gathered(s.table, each, static_cast<double>(s.K), keep) +
           passes(s.epilogues, each * keep);
  }

  static double count(const vector<nest_axis>& axes) {
    double n = 1;
    for (const nest_axis& a : axes) n *= static_cast<double>(a.length);
    return n;
  }
  double nest(const vector<nest_axis>& out, const vector<nest_axis>& summed, double rows) const {
    return rows * count(out) * (3 + 5 * count(summed)) / alone_.flops;
  }
  double time(const batched_step& s, double rows) const {
    return nest(s.out, s.summed, rows) + passes(s.epilogues, rows * static_cast<double>(s.columns));
  }
  double time(const reduce_step& s, double rows) const {
    return nest(s.out, s.summed, rows) + passes(s.epilogues, rows * static_cast<double>(s.columns));
  }
  // A sum over rows of entries, by gemm where its kernels serve.
  double sum_over_rows(const auto& s, double rows) const {
    if (s.product_room() == 0) return nest(s.out, s.summed, rows);
    return 2 * rows * count(s.out) / (0.8 * products_.flops);
  }
  double time(const token_sum_step& s, double) const {
    return sum_over_rows(s, static_cast<double>(plan_.token_count));
  }
  double time(const selection_sum_step& s, double) const {
    return per_element(static_cast<double>(plan_.token_count * s.rows * s.keep * s.N), 4);
  }

  template <class Step>
  double time(const Step& s, double rows) const {
    return s.flops(rows) / alone_.flops;
  }

  // So many floating-point operations for each of some elements.
  double per_element(double elements, double flops) const {
    return elements * flops / alone_.flops;
  }
  double time(const pointwise_step& s, double rows) const {
    const double elements = rows * static_cast<double>(s.columns);
    return per_element(elements, 4) + passes(s.epilogues, elements);
  }
  double time(const expert_choice_step& s, double) const {
    return per_element(static_cast<double>(plan_.token_count * s.experts), 100);
  }
  double time(const expert_sum_step& s, double) const {
    return sum_over_rows(s, static_cast<double>(plan_.token_count * s.keep));
  }

  // Each chunk of a loop reads and writes again what the loop sums.
  double time(const loop_step& s, double rows, double runs) {
    double sums = 0;
    for (const step& inner : s.body) {
      const gemm_step* const g =
          holds_alternative<gemm_step>(inner) ? &get<gemm_step>(inner) : nullptr;
      if (g != nullptr && g->k_step != 0) sums += static_cast<double>(g->N * g->rows.size());
    }
    const double chunks = static_cast<double>(divide_up(s.length, s.chunk));
    return add_all(s.body, s.shared, {false, 0, s.body.size()}, rows, runs, chunks) +
           (chunks - 1) * moved(2 * rows * sums);
  }

  // An expert has some rows of the tile, in chunks. With few tokens not all experts have one.
  double time(const group_step& s, double rows, double runs) {
    const double busy = busy_experts(s, rows), each = rows * static_cast<double>(s.keep) / busy;
    const double chunks = std::ceil(each / static_cast<double>(s.rows));
    const stage body{false, 0, s.body.size()};
    const bool shared = shares_ && shares_experts(busy, threads_);
    const machine_rates own = alone_;
    if (shared) alone_ = rates_of(threads_);
    shares_ = shares_ && !shared;
    // Threads that share experts end at different times: by half an expert, on average.
    const double uneven = shared ? 1 + 0.5 * static_cast<double>(threads_ - 1) / busy : 1;
    const double all = busy * chunks * uneven *
                           add_all(s.body, {}, body, each / chunks, runs * busy * chunks * uneven) +
                       passes(s.epilogues, rows * static_cast<double>(s.columns));
    shares_ = shares_ || shared;
    alone_ = own;
    return all;
  }

  // Returns the time of one run of some steps that make so many rows. Threads share the rows of
  // some of them, which are handed over in every chunk.
  double add_all(const vector<step>& steps, const vector<row_range>& shared, const stage& of,
                 double rows, double runs, double chunks = 1) {
    double sum = 0;
    for (extent i = of.first; i < of.end; ++i) {
      const auto range = std::ranges::find_if(
          shared, [&](const row_range& r) { return i >= r.first && i < r.end; });
      const extent threads =
          !shares_ || range == shared.end()
              ? 1
              : std::min(threads_, range->parts(static_cast<extent>(rows), threads_));
      if (threads == 1) {
        sum += add(steps[i], rows, runs, 0);
        continue;
      }
      const machine_rates own = std::exchange(alone_, rates_of(threads));
      shares_ = false;
      sum += add(steps[i], rows, runs, i == range->first ? chunks * hand_over : 0);
      shares_ = true;
      alone_ = own;
    }
    return sum;
  }

  // Returns the time of one run of a step, and adds the time of all its runs to the list.
  double add(const step& s, double rows, double runs, double before) {
    const extent place = steps_.size();
    steps_.push_back(0);
    const double once = before + visit([&](const auto& kind) { return time(kind, rows, runs); }, s);
    steps_[place] = once * runs;
    return once;
  }
  double time(const auto& kind, double rows, double) const { return time(kind, rows); }

  void add_stages() {
    for (const stage& of : plan_.stages) {
      // What a call has once is one row.
      const double rows = of.per_call ? 1 : tokens_, runs = of.per_call ? 1 : rounds_;
      total_ += add_all(plan_.steps, plan_.shared, of, rows, runs) * runs;
    }
  }

  const step_plan& plan_;
  const machine& machine_;
  double element_bytes_, weights_ = 0, total_ = 0;
  extent threads_;
  bool shares_ = false;             // do threads share the columns of products, and rows?
  double tokens_ = 0, rounds_ = 1;  // of a tile, and tiles one after the other
  machine_rates alone_{}, products_{};
  double rows_rate_ = 0;
  vector<double> bytes_;  // of an element, by storage
  vector<double> steps_;
};

}  // namespace fmoe::cpu

// SPDX-License-Identifier: MIT
// Runs the plan of one rank: what it computes alone, and what it exchanges with others.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/base/text_stream.hpp>
#include <fmoe/base/time_text.hpp>
#include <fmoe/distributed/exchange_text.hpp>
#include <fmoe/distributed/exchanges.hpp>
#include <fmoe/distributed/lanes.hpp>
#include <fmoe/distributed/shard_costs.hpp>
#include <fmoe/run/call_check.hpp>
#include <fmoe/run/compile.hpp>
#include <fmoe/run/explain.hpp>

namespace fmoe::detail {

// Copies rows, from row `first` on, between an array of the caller and plain rows: copy(place, run)
// for runs of elements that are neighbours in both.
template <class T, class Copy>
void copy_rows(const array_view& v, extent row_rank, extent first, extent count, std::span<T> rows,
               const Copy& copy) {
  const extent n = v.row_size(row_rank);
  const bool has_runs = row_rank > 0 && v.strides[v.rank - 1] == 1;
  const extent run = has_runs ? v.shape[v.rank - 1] : 1;
  std::array<extent, max_rank> at{};
  for (extent t = 0; t < count; ++t) {
    const extent offset = v.row_offset(row_rank, first + t);
    at.fill(0);
    for (extent i = 0; i < n; i += run) {
      extent place = offset;
      for (extent k = 0; k < row_rank; ++k) place += at[k] * v.strides[v.rank - row_rank + k];
      copy(place, rows.subspan(t * n + i, run));
      for (extent k = row_rank - (has_runs ? 1 : 0);
           k-- > 0 && ++at[k] == v.shape[v.rank - row_rank + k];)
        at[k] = 0;
    }
  }
}

template <class T>
class stage_runner {
 public:
  stage_runner(communicator& ranks, const axis_cut& cut, stage_plan plan, extent tokens,
               std::string what, network_costs network = {})
      : ranks_(&ranks),
        cut_(cut),
        plan_(std::move(plan)),
        tokens_(tokens),
        what_(std::move(what)),
        network_(std::move(network)) {}

  // Makes the graphs of the plan ready to run, for calls in so many spans of tokens, or 0 if the
  // costs decide. With `arrays` they read weights where they are written, and can be refreshed.
  template <class Level>
  void prepare(const compile_options& options, const std::optional<in_place>& arrays = {},
               extent spans = 1) {
    cpu::use_weights<T, Level, all_types>();
    const bool has_bounds = count_costs<Level>(options, 1);
    if (spans == 0) spans = rank_0_finds(pays_off_in_two()) ? 2 : 1;
    if (spans > 1 || (plan_.tells_bounds() && !rank_0_finds(has_bounds))) {
      plan_.compute_without_calls();
      count_costs<Level>(options, spans);
    }
    spans_.resize(spans);
    for (span_of_call& s : spans_)
      for (const stage_array& a : plan_.arrays)
        s.arrays.emplace_back(a.size() * (a.tokens == token_set::none ? 1 : most_of(a.tokens)));
    for (const auto& step : plan_.steps)
      if (const auto* g = get_if<stage_graph>(&step))
        programs_.push_back(compile_graph<T, Level>(g->nodes, ir::node_list(g->roots),
                                                    most_of(g->tokens), options_of(*g, options),
                                                    arrays));
  }

  const stage_plan& plan() const { return plan_; }
  extent tokens() const { return tokens_; }
  const std::vector<extent>& input_shape(extent i) const {
    return plan_.arrays[plan_.inputs.at(i)].row;
  }
  const std::vector<extent>& output_shape(extent i = 0) const {
    return plan_.arrays[plan_.results.at(i)].row;
  }
  // The numbers of a sum over the tokens of the last call, of this rank's part; none if it is 0.
  std::span<const T> sum(extent i) const {
    const auto& parts = plan_.sums.at(i);
    return parts.empty() ? std::span<const T>() : std::span<const T>(spans_[0].arrays[parts[0]]);
  }

  bool is_stale() const {
    return std::ranges::any_of(programs_, [](const auto& p) { return detail::is_stale(p); });
  }
  void refresh() {
    expects_plan();
    for (compiled_graph& p : programs_) detail::refresh(p);
  }

  std::string explain() const {
    text_stream text;
    text << what_ << '\n';
    auto graph = texts_.begin();
    auto cost = costs_.steps.begin();
    text << cost->name << " of the number of tokens: " << cost->bytes_a_call
         << " bytes a call received by each rank" << text_of_calls(*cost) << "\n\n";
    for (const auto& step : plan_.steps) {
      ++cost;
      if (holds_alternative<stage_graph>(step)) text << cost->name << ": " << *graph++ << '\n';
      else
        text << text_of(get<stage_exchange>(step), static_cast<double>(ranks_->size()), sizeof(T))
             << text_of_calls(*cost) << "\n\n";
    }
    if (costs_.spans > 1)
      text << costs_.spans << " spans of tokens: one computes while another exchanges\n";
    text << "a call of " << tokens_ << " tokens of each rank: about " << time_text(costs_.seconds())
         << ", of these " << time_text(costs_.exchanging) << " in " << costs_.calls << " calls; "
         << costs_.bytes_a_token << " bytes a token received by each rank\n";
    return text.str();
  }

  const shard_costs& cost() const { return costs_; }
  double received_a_token() const { return costs_.bytes_a_token; }
  double multiply_adds_a_token() const { return costs_.multiply_adds; }

  void run(std::span<const array_view> inputs, const array_view& y) {
    run(inputs, std::span(&y, 1));
  }
  // Takes an array of rows for each argument, and writes the rows of each result that has some.
  void run(std::span<const array_view> inputs, std::span<const array_view> outputs) {
    expects_plan();
    const call_tokens tokens = meet(check(inputs, outputs));
    for (extent s = 0, first = 0; s < spans_.size(); first += spans_[s++].tokens.own()) {
      spans_[s].tokens = tokens.span(s, spans_.size());
      for (extent i = 0; i < inputs.size(); ++i) {
        const auto* const from = static_cast<const T*>(inputs[i].data);
        copy_rows(inputs[i], input_shape(i).size(), first, spans_[s].tokens.own(),
                  std::span(spans_[s].arrays[plan_.inputs[i]]), [&](extent at, std::span<T> to) {
                    std::copy_n(from + at, to.size(), to.begin());
                  });
      }
    }
    std::mutex computing;  // a program computes one span at a time
    const auto exchanges = [&](extent step) {
      return holds_alternative<stage_exchange>(plan_.steps[step]);
    };
    run_in_lanes(plan_.steps.size(), spans_.size(), exchanges, [&](extent step, extent span) {
      span_of_call& s = spans_[span];
      if (!exchanges(step)) {
        const std::lock_guard lock(computing);
        compute(step, s);
        return;
      }
      const auto more = [&](const stage_exchange& e, std::span<const extent> of) {
        const std::lock_guard lock(computing);
        return make_more(e, s, of);
      };
      exchange_run<T>{*ranks_, cut_, s.tokens, s.arrays, s.routes, more}.run(
          get<stage_exchange>(plan_.steps[step]));
    });
    for (extent i = 0; i < outputs.size(); ++i) {
      extent first = 0;
      for (span_of_call& s : spans_) {
        copy_rows(outputs[i], output_shape(i).size(), first, s.tokens.own(),
                  std::span(s.arrays[plan_.results[i]]), [&](extent at, std::span<T> from) {
                    std::ranges::copy(from, static_cast<T*>(outputs[i].data) + at);
                  });
        first += s.tokens.own();
      }
    }
  }

 private:
  void expects_plan() const {
    expects<value_error>(!plan_.results.empty(),
                         "[shard] the compiled layer was moved: use the one that it was moved to");
  }

  // What a span of a call's tokens has for itself.
  struct span_of_call {
    call_tokens tokens;
    list_by<array_id, std::vector<T>> arrays;
    token_routes routes;
  };

  // The most rows of a span: of this rank, or of all ranks, since all may be routed here.
  extent most_of(token_set s) const {
    const extent own = divide_up(tokens_, costs_.spans);
    return s == token_set::own ? own : own * ranks_->size();
  }

  // Ranks tell each other bounds of all rows at once, so these go through the plan in one tile.
  compile_options options_of(const stage_graph& g, compile_options options) const {
    if (g.merged == 0) return options;
    options.shape = options.shape.value_or(plan_shape{});
    options.shape->tile = most_of(g.tokens);
    return options;
  }

  // Ranks may have different shares of the work, so one of them decides.
  bool rank_0_finds(bool found) const { return ranks_->first_text(found ? "yes" : "no") == "yes"; }

  // Returns true if a graph has bounds to tell of its scores.
  template <class Level>
  bool count_costs(const compile_options& options, extent spans) {
    bool has_bounds = false;
    costs_ = {};
    costs_.tokens = tokens_;
    costs_.spans = spans;
    texts_.clear();
    const auto ranks = static_cast<double>(ranks_->size()), others = ranks - 1;
    add_exchange({"all_gather", true, 0, 0, sizeof(call_number) * others, 1});
    double reached = 1;  // the share of tokens that are routed to a rank
    for (const auto& step : plan_.steps) {
      if (const auto* e = get_if<stage_exchange>(&step)) {
        if (is_routed(e->to_how)) reached = e->load.reached(ranks);
        const double counts = e->by == travel::entries ? sizeof(extent) * others : 0,
                     bytes = bytes_of(*e, ranks, sizeof(T));
        add_exchange({name_of(*e), true, 0, e->is_sum ? 0 : bytes,
                      (e->is_sum ? bytes : counts) * static_cast<double>(spans),
                      static_cast<extent>(calls_of(*e)) * spans});
        continue;
      }
      const auto& g = get<stage_graph>(step);
      const extent most = most_of(g.tokens);
      const ir::node_list roots(g.roots);
      explanation plan = explain_graph<T, Level>(g.nodes, roots, most, options_of(g, options));
      texts_.push_back(std::move(plan.text));
      has_bounds |= g.merged != 0 && plan.tells_bounds;
      const double share = g.tokens == token_set::routed ? reached : 1,
                   work = factorized_cost<T, Level>(g.nodes, roots, most, options).multiply_adds *
                          (g.tokens == token_set::own ? 1 : share * ranks);
      costs_.add({tokens_text(g.tokens), false, work, 0, 0, 0,
                  share * plan.seconds * static_cast<double>(spans)});
    }
    return has_bounds;
  }

  // True if a call in two spans takes less than 0.9 of the time of one, by the constants that the
  // network's costs have, and if a span has the 128 rows that a product needs to be fast.
  bool pays_off_in_two() const {
    if (ranks_->size() == 1 || tokens_ * ranks_->size() < 2 * 128) return false;
    const double work = 2 * costs_.multiply_adds * static_cast<double>(tokens_) / network_.flops,
                 calls = static_cast<double>(costs_.calls) * network_.latency,
                 together = work + costs_.exchanging;
    const auto [shorter, longer] = std::minmax({work, costs_.exchanging + calls});
    return longer + shorter / 2 < 0.9 * together;
  }

  static const char* tokens_text(token_set s) {
    return s == token_set::own     ? "own tokens"
           : s == token_set::every ? "all tokens"
                                   : "routed tokens";
  }

  using call_number = std::array<std::uint64_t, 3>;

  void add_exchange(shard_step step) {
    const auto all_tokens = static_cast<double>(tokens_ * ranks_->size());
    if (ranks_->size() > 1)
      step.seconds = network_.seconds(step.bytes_a_token * all_tokens + step.bytes_a_call,
                                      static_cast<double>(step.calls));
    costs_.add(std::move(step));
  }
  static std::string text_of_calls(const shard_step& step) {
    if (step.calls == 0) return {};
    return ", in " + std::to_string(step.calls) + (step.calls == 1 ? " call" : " calls") +
           ", about " + time_text(step.seconds);
  }

  // All ranks tell each other which call this is, and how many tokens they bring.
  call_tokens meet(extent tokens) {
    const call_number mine{std::hash<std::string>()(what_), calls_++, tokens};
    std::vector<std::uint64_t> theirs(3 * ranks_->size());
    ranks_->all_gather(std::span<const std::uint64_t>(mine), std::span(theirs),
                       std::vector<extent>(ranks_->size(), 3));
    call_tokens found{{}, ranks_->rank()};
    for (extent r = 0; r < ranks_->size(); ++r) {
      const bool is_same = theirs[3 * r] == theirs[0] && theirs[3 * r + 1] == theirs[1];
      if (!is_same)
        throw communication_error("the ranks disagree: rank " + std::to_string(r) +
                                  " is in another call than rank 0");
      found.of_rank.push_back(theirs[3 * r + 2]);
    }
    return found;
  }

  // Returns the tokens of a call. Throws shape_error or value_error unless its arrays fit.
  extent check(std::span<const array_view> inputs, std::span<const array_view> outputs) const {
    std::vector<expected_array> expected;
    for (extent i = 0; i < inputs.size(); ++i)
      expected.push_back({.row = input_shape(i), .type = dtype_of<T>});
    for (extent i = 0; i < outputs.size(); ++i)
      expected.push_back(
          {.row = output_shape(i), .type = dtype_of<T>, .is = expected_array::role::output});
    const auto name = [&](extent i) -> std::string {
      if (i >= inputs.size()) return i == inputs.size() ? "y" : "dx";
      return inputs.size() == 1 ? "x" : "input " + std::to_string(i);
    };
    return call_check{.call = "[shard]",
                      .computed = "the layer",
                      .name = name,
                      .arrays = expected,
                      .most_tokens = tokens_,
                      .token_axes = 1,
                      .may_overlap = true}([&](extent i) -> const array_view& {
      return i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
    });
  }

  const compiled_graph& program_of(extent step) const {
    const auto graphs =
        std::ranges::count_if(std::span(plan_.steps).first(step),
                              [](const auto& s) { return holds_alternative<stage_graph>(s); });
    return programs_[static_cast<extent>(graphs)];
  }

  void compute(extent step, span_of_call& s) const {
    const auto& g = get<stage_graph>(plan_.steps[step]);
    const extent count = g.tokens == token_set::own     ? s.tokens.own()
                         : g.tokens == token_set::every ? s.tokens.all()
                                                        : s.routes.came.size();
    const auto rows = [&](array_id id) { return s.arrays[id].data(); };
    if (g.merged == 0) return compute(g, program_of(step), count, g.keep, rows);
    told_bounds told(*ranks_, s.tokens, g.keep, g.merged);
    compute(g, program_of(step), count, g.keep, rows, &told.bounds());
    told.finish();
  }
  template <class Rows>
  void compute(const stage_graph& g, const compiled_graph& program, extent count, extent keep,
               const Rows& rows, score_bounds* bounds = nullptr) const {
    const auto bound = [&](const std::vector<array_id>& ids) {
      std::vector<bound_array> list;
      for (const array_id id : ids) {
        std::vector<extent> shape = plan_.arrays[id].row;
        const extent row_rank = shape.size();
        if (plan_.arrays[id].tokens != token_set::none) shape.insert(shape.begin(), count);
        list.push_back({view_at<all>(rows(id), shape), row_rank});
      }
      return list;
    };
    const auto arguments = bound(g.arguments), results = bound(g.results);
    program.program->run({.arguments = arguments,
                          .results = results,
                          .tokens = count,
                          .keep = keep,
                          .bounds = bounds});
  }

  // Runs the graph that has given a selection's best again, for some tokens, and now for all
  // entries that may be kept. Arrays of the call are as they were.
  best_rows<T> make_more(const stage_exchange& e, const span_of_call& s,
                         std::span<const extent> of) {
    const extent step = maker_of(plan_, e.from[0]);
    const auto& g = get<stage_graph>(plan_.steps[step]);
    std::map<array_id, std::vector<T>> some;
    for (const array_id id : g.results) some[id].resize(of.size() * plan_.arrays[id].size());
    for (const array_id id : g.arguments) {
      const extent n = plan_.arrays[id].size();
      for (const extent t : of)
        some[id].insert(some[id].end(), s.arrays[id].begin() + static_cast<std::ptrdiff_t>(t * n),
                        s.arrays[id].begin() + static_cast<std::ptrdiff_t>((t + 1) * n));
    }
    compute(g, program_of(step), of.size(), all, [&](array_id id) { return some.at(id).data(); });
    return {std::move(some.at(e.from[0])), std::move(some.at(e.from[1]))};
  }

  communicator* ranks_;
  axis_cut cut_;
  stage_plan plan_;
  extent tokens_;
  std::string what_;
  std::uint64_t calls_ = 0;
  network_costs network_;
  shard_costs costs_;
  std::vector<span_of_call> spans_;
  std::vector<compiled_graph> programs_;
  std::vector<std::string> texts_;
};

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// Compiles a layer that is cut over the ranks of a job, and calls it.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/distributed/exchanges.hpp>
#include <fmoe/run/compile.hpp>
#include <fmoe/run/explain.hpp>

namespace fmoe::detail {

// The plan of a layer in one part: its graph.
inline stage_plan plan_of_whole(const ir::graph& g, const ir::node_list& roots, ir::node_id x) {
  stage_plan plan;
  const auto row = [&](ir::node_id id) {
    auto shape = g.shape(id);
    shape.erase(shape.begin());
    return shape;
  };
  plan.input = plan.arrays.add({{x, spread::tokens}, row(x), true});
  plan.result = plan.arrays.add({{roots[0], spread::tokens}, row(roots[0]), true});
  plan.steps.push_back(stage_graph{g, roots, {plan.input}, {plan.result}, true});
  return plan;
}

// Copies rows between an array of the caller and plain rows.
template <class T, class Copy>
void copy_rows(const array_view& v, extent row_rank, std::span<T> rows, const Copy& copy) {
  const extent n = v.row_size(row_rank);
  std::array<extent, max_rank> at{};
  for (extent t = 0; t < v.tokens(row_rank); ++t) {
    const extent offset = v.row_offset(row_rank, t);
    at.fill(0);
    for (extent i = 0; i < n; ++i) {
      extent place = offset;
      for (extent k = 0; k < row_rank; ++k) place += at[k] * v.strides[v.rank - row_rank + k];
      copy(place, rows[t * n + i]);
      for (extent k = row_rank; k-- > 0 && ++at[k] == v.shape[v.rank - row_rank + k];) at[k] = 0;
    }
  }
}

// The bytes of one token that a rank receives, if ranks have the same number of tokens and of
// entries.
inline double bytes_a_token(const stage_exchange& e, double ranks, extent element_bytes) {
  using enum spread;
  const double others = (ranks - 1) / ranks;
  const double all = static_cast<double>(e.numbers * element_bytes) * others;
  if (e.merges)
    return 2 * static_cast<double>(element_bytes) * static_cast<double>(e.rule.keep + 1) * others;
  if (e.from_how == whole) return 0;
  if (e.from_how == partial) return e.to_how == whole ? 2 * all : all;
  return e.to_how == whole ? all : all / ranks;
}

inline std::string text_of(const stage_exchange& e, double ranks, extent element_bytes) {
  std::ostringstream text;
  using enum spread;
  if (e.merges) text << "merge a selection of " << e.rule.keep << " (all_to_all, all_gather)";
  else if (e.from_how == whole) text << "take this rank's rows";
  else if (e.from_how == partial) text << (e.to_how == whole ? "all_reduce" : "reduce_scatter");
  else text << (e.to_how == whole ? "all_gather" : "all_to_all");
  if (!e.merges) text << " of " << e.numbers << " numbers a token";
  text << ": " << bytes_a_token(e, ranks, element_bytes) << " bytes a token received by each rank";
  return text.str();
}

}  // namespace fmoe::detail

namespace fmoe {

// A layer over the ranks of a job, ready to be called: forward(x, y). All ranks call it together.
template <class T>
class compiled_shard {
 public:
  compiled_shard(communicator& ranks, const detail::axis_cut& cut, detail::stage_plan plan,
                 std::size_t tokens, std::string what)
      : ranks_(&ranks),
        cut_(cut),
        plan_(std::move(plan)),
        tokens_(tokens),
        what_(std::move(what)) {}

  // Makes the graphs of the plan ready to run.
  template <class Level>
  void prepare(const compile_options& options) {
    for (const detail::stage_array& a : plan_.arrays)
      arrays_.emplace_back((a.own_tokens ? 1 : ranks_->size()) * tokens_ * a.size());
    for (auto& step : plan_.steps) {
      const auto* g = get_if<detail::stage_graph>(&step);
      if (g == nullptr) continue;
      const std::size_t most = g->own_tokens ? tokens_ : tokens_ * ranks_->size();
      const ir::node_list roots(g->roots);
      programs_.push_back(detail::compile_graph<T, Level>(g->nodes, roots, most, options));
      texts_.push_back(detail::explain_graph<T, Level>(g->nodes, roots, most, options).text);
      multiply_adds_ +=
          detail::factorized_cost<T, Level>(g->nodes, roots, most, options).multiply_adds *
          (g->own_tokens ? 1 : static_cast<double>(ranks_->size()));
    }
  }

  // x [t, i] are rows of this rank, any number up to that for which the layer is compiled, and y
  // [t, o] their results. Rows of different ranks are independent. Throws communication_error, the
  // same on all ranks, if one of them fails; then what was written is undefined, and the job's
  // other calls fail at once.
  template <class X, class Y>
  void operator()(const X& x, Y&& y) {
    ranks_->guarded([&] { run(detail::view_of(x), detail::view_of(y)); });
  }

  std::size_t tokens() const { return tokens_; }
  const std::vector<std::size_t>& input_shape() const { return plan_.arrays[plan_.input].row; }
  const std::vector<std::size_t>& output_shape() const { return plan_.arrays[plan_.result].row; }

  // The plan of this rank: what it computes alone, and what it exchanges with others.
  std::string explain() const {
    std::ostringstream text;
    text << what_ << '\n';
    auto graph = texts_.begin();
    for (const auto& step : plan_.steps) {
      if (const auto* g = get_if<detail::stage_graph>(&step))
        text << (g->own_tokens ? "own tokens: " : "all tokens: ") << *graph++ << '\n';
      else
        text << detail::text_of(get<detail::stage_exchange>(step),
                                static_cast<double>(ranks_->size()), sizeof(T))
             << "\n\n";
    }
    return text.str();
  }

  // The bytes of one token that a rank receives in a call, if all ranks have equally many tokens
  // and entries. A call has 24 bytes more of each other rank.
  double received_a_token() const {
    double bytes = 0;
    for (const auto& step : plan_.steps)
      if (const auto* e = get_if<detail::stage_exchange>(&step))
        bytes += detail::bytes_a_token(*e, static_cast<double>(ranks_->size()), sizeof(T));
    return bytes;
  }

  // The multiply-adds of this rank for each of its own tokens.
  double multiply_adds_a_token() const { return multiply_adds_; }

 private:
  // All ranks tell each other which call this is, and how many tokens they bring.
  detail::call_tokens meet(std::size_t tokens) {
    const std::array<std::uint64_t, 3> mine{std::hash<std::string>()(what_), calls_++, tokens};
    std::vector<std::uint64_t> theirs(3 * ranks_->size());
    ranks_->all_gather(std::span<const std::uint64_t>(mine), std::span(theirs),
                       std::vector<std::size_t>(ranks_->size(), 3));
    detail::call_tokens found{{}, ranks_->rank()};
    for (std::size_t r = 0; r < ranks_->size(); ++r) {
      const bool is_same = theirs[3 * r] == theirs[0] && theirs[3 * r + 1] == theirs[1];
      if (!is_same)
        throw communication_error("the ranks disagree: rank " + std::to_string(r) +
                                  " is in another call than rank 0");
      found.of_rank.push_back(theirs[3 * r + 2]);
    }
    return found;
  }

  static void check(const detail::array_view& v, const std::vector<std::size_t>& row,
                    const char* what) {
    const bool fits =
        v.rank == row.size() + 1 && std::equal(row.begin(), row.end(), v.shape.begin() + 1);
    detail::expects<shape_error>(fits, "[shard] the rows of ", what,
                                 " have not the shape of the layer's");
    detail::expects<value_error>(v.type == detail::dtype_of<T>, "[shard] ", what, " is of ",
                                 fmoe::name_of(v.type), " and the layer computes in ",
                                 fmoe::name_of(detail::dtype_of<T>));
  }

  void run(const detail::array_view& x, const detail::array_view& y) {
    check(x, input_shape(), "x");
    check(y, output_shape(), "y");
    detail::expects<shape_error>(x.shape[0] == y.shape[0] && x.shape[0] <= tokens_,
                                 "[shard] 't' is ", x.shape[0], " in x and ", y.shape[0],
                                 " in y, and the layer is compiled for at most ", tokens_);
    const detail::call_tokens tokens = meet(x.shape[0]);
    detail::copy_rows(x, input_shape().size(), std::span(arrays_[plan_.input]),
                      [&](std::size_t at, T& to) { to = static_cast<const T*>(x.data)[at]; });
    auto program = programs_.begin();
    for (const auto& step : plan_.steps) {
      if (const auto* g = get_if<detail::stage_graph>(&step)) compute(*g, *program++, tokens);
      else
        detail::exchange_run<T>{*ranks_, cut_, tokens, arrays_}.run(
            get<detail::stage_exchange>(step));
    }
    detail::copy_rows(y, output_shape().size(), std::span(arrays_[plan_.result]),
                      [&](std::size_t at, T& from) { static_cast<T*>(y.data)[at] = from; });
  }

  void compute(const detail::stage_graph& g, const detail::compiled_graph& program,
               const detail::call_tokens& tokens) {
    const std::size_t count = g.own_tokens ? tokens.own() : tokens.all();
    const auto bound = [&](const std::vector<detail::array_id>& ids) {
      std::vector<detail::bound_array> list;
      for (const detail::array_id id : ids) {
        std::vector<std::size_t> shape = plan_.arrays[id].row;
        shape.insert(shape.begin(), count);
        list.push_back({view_at<all>(arrays_[id].data(), shape), shape.size() - 1});
      }
      return list;
    };
    const auto arguments = bound(g.arguments), results = bound(g.results);
    program.program->run({arguments, results, count});
  }

  communicator* ranks_;
  detail::axis_cut cut_;
  detail::stage_plan plan_;
  std::size_t tokens_;
  std::string what_;
  std::uint64_t calls_ = 0;
  double multiply_adds_ = 0;
  detail::list_by<detail::array_id, std::vector<T>> arrays_;
  std::vector<detail::compiled_graph> programs_;
  std::vector<std::string> texts_;
};

// Plans a layer that is cut over ranks, for calls of at most `tokens` rows of each rank, and packs
// the weights of this rank. All ranks do this together, with the same numbers. Throws
// communication_error if they disagree; and on all ranks what one of them throws: value_error for
// a layer that cannot be cut so.
//
//   const auto part = load_shard<mxd<>>("mxd.safetensors", ranks, 'n');
//   auto forward = compile(part, 128);
//   tensor<float, 2> y({x.shape()[0], forward.output_shape()[0]});
//   forward(x, y);  // rows of this rank
template <class Level = cpu::native, class Layer>
auto compile(const sharded<Layer>& layer, std::size_t tokens, const compile_options& options = {}) {
  using X = argument<0, 2>;
  using results = detail::result_list<std::remove_cvref_t<decltype(layer.whole(X(tokens)))>>;
  using T = typename results::scalar;
  static_assert(results::ranks::size() == 1, "compile: a layer over ranks has one result");
  communicator& ranks = *layer.ranks;
  return ranks.guarded([&] {
    Layer same = layer.whole;
    const io::released_layer list(same);
    std::string what = detail::description_of(list, layer.cut) + std::to_string(tokens) +
                       " tokens of each rank, " + std::to_string(options.sum_block) +
                       " terms a sum";
    ranks.agree(what);
    const bool is_whole = layer.cut.parts == 1;
    for (const detail::released_parameter& p : list.parameters)
      for (const detail::cut_parameter& c : layer.parameters)
        if (is_whole && p.parameter.value().elements != nullptr &&
            p.parameter.value().elements->same_elements(*c.whole.elements))
          p.parameter.assign(c.own[0]);
    ir::graph g;
    const X x(tokens);
    const ir::node_id input = x.lower(g);
    const ir::node_list roots = results::lower(same(x), g);
    detail::stage_plan plan =
        is_whole ? detail::plan_of_whole(g, roots, input)
                 : detail::plan_of(g, roots, layer.cut, layer.parameters, tokens, sizeof(T));
    compiled_shard<T> made(ranks, layer.cut, std::move(plan), tokens, std::move(what));
    made.template prepare<Level>(options);
    return made;
  });
}

}  // namespace fmoe

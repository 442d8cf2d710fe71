// SPDX-License-Identifier: MIT
// Compiles a layer that is cut over the ranks of a job, and calls it.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/distributed/stage_runner.hpp>

namespace fmoe::detail {

// What all ranks that compile a layer must have in common, a line each.
template <class Layer>
std::string shard_text(const sharded<Layer>& layer, const io::released_layer& list, extent tokens,
                       const compile_options& options) {
  return description_of(list, layer.cut) + std::to_string(tokens) + " tokens of each rank, " +
         std::to_string(options.sum_block) + " terms a sum\nspans: " + std::to_string(layer.spans) +
         "\nplaced for " + text_of(layer.network);
}

}  // namespace fmoe::detail

namespace fmoe {

// A layer over the ranks of a job, ready to be called: forward(x, y), or forward(x1, x2, y) for a
// layer of two arguments. All ranks call it together.
template <class T, std::size_t Arguments = 1>
class compiled_shard {
 public:
  compiled_shard(communicator& ranks, detail::stage_runner<T> runner)
      : ranks_(&ranks),
        runner_(std::move(runner)) {}

  // x [t, i] are rows of this rank, any number up to that for which the layer is compiled, and y
  // [t, o] their results. Rows of different ranks are independent. Throws communication_error, the
  // same on all ranks, if one of them fails; then what was written is undefined, and the job's
  // other calls fail at once.
  template <class... Arrays>
  void operator()(Arrays&&... arrays) {
    constexpr bool fits = sizeof...(Arrays) == Arguments + 1;
    static_assert(fits, "forward takes the layer's inputs and its output");
    if constexpr (fits)
      ranks_->guarded([&] {
        const std::array<detail::array_view, Arguments + 1> views{detail::view_of(arrays)...};
        runner_.run(std::span(views).first(Arguments), views[Arguments]);
      });
  }

  std::size_t tokens() const { return runner_.tokens(); }
  const std::vector<std::size_t>& input_shape(std::size_t i = 0) const {
    return runner_.input_shape(i);
  }
  const std::vector<std::size_t>& output_shape() const { return runner_.output_shape(); }

  // The plan of this rank: what it computes alone, and what it exchanges with others, with the
  // bytes, calls and predicted times that `cost` has.
  std::string explain() const { return runner_.explain(); }

  // The costs of this rank and of each step.
  const shard_costs& cost() const { return runner_.cost(); }

  // The bytes of one token that a rank receives in a call, if all ranks have equally many tokens
  // and entries. A call has 24 bytes more of each other rank.
  double received_a_token() const { return runner_.received_a_token(); }

  // The multiply-adds of this rank for each of its own tokens.
  double multiply_adds_a_token() const { return runner_.multiply_adds_a_token(); }

 private:
  communicator* ranks_;
  detail::stage_runner<T> runner_;
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
template <class Level = cpu::native, class Layer, std::size_t... Ranks>
auto compile(const sharded<Layer>& layer, arguments<Ranks...>, std::size_t tokens,
             const compile_options& options = {}) {
  constexpr auto numbers = std::make_integer_sequence<int, sizeof...(Ranks)>{};
  using E =
      decltype(detail::apply_to_arguments(layer.whole, arguments<Ranks...>{}, tokens, numbers));
  using results = detail::result_list<std::remove_cvref_t<E>>;
  using T = typename results::scalar;
  static_assert(results::ranks::size() == 1, "compile: a layer over ranks has one result");
  communicator& ranks = *layer.ranks;
  return ranks.guarded([&] {
    Layer& same = detail::only_listed(layer.whole);
    const io::released_layer list(same);
    std::string what = detail::shard_text(layer, list, tokens, options);
    ranks.agree(what);
    const bool is_whole = layer.cut.parts == 1;
    for (const detail::released_parameter& p : list.parameters)
      for (const detail::cut_parameter& c : layer.parameters)
        if (is_whole && p.parameter.value().elements != nullptr &&
            p.parameter.value().elements->same_elements(*c.whole.elements))
          p.parameter.assign(c.own[0]);
    const detail::lowered_graph whole(
        results::untyped(detail::apply_to_arguments(same, arguments<Ranks...>{}, tokens, numbers)));
    auto plan =
        detail::plan_of(whole.nodes(), whole.roots(), {detail::spread::tokens}, layer.cut,
                        layer.parameters, tokens, sizeof(T), layer.network, options.on == nullptr);
    detail::expects<value_error>(plan.inputs.size() == sizeof...(Ranks),
                                 "[compile] the layer uses ", plan.inputs.size(), " of its ",
                                 sizeof...(Ranks), " arguments");
    detail::stage_runner<T> made(ranks, layer.cut, std::move(plan), tokens, std::move(what),
                                 layer.network);
    made.template prepare<Level>(options, {}, layer.spans);
    return compiled_shard<T, sizeof...(Ranks)>(ranks, std::move(made));
  });
}
template <class Level = cpu::native, class Layer>
auto compile(const sharded<Layer>& layer, std::size_t tokens, const compile_options& options = {}) {
  return compile<Level>(layer, arguments<2>{}, tokens, options);
}

}  // namespace fmoe

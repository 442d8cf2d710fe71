// SPDX-License-Identifier: MIT
// The gradients of a layer that is cut over the ranks of a job: each rank has those of its part.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/distributed/compiled_shard.hpp>
#include <fmoe/gradients/layer_gradients.hpp>

namespace fmoe {

// A layer over ranks whose forward and backward pass are ready for many calls. All ranks call it
// together.
template <class Layer, class T>
class compiled_shard_gradients {
 public:
  // A layer of the same form with weights of T, float or double.
  using gradient_layer = typename detail::gradients_as<T, Layer>::type;

  compiled_shard_gradients(const sharded<Layer>& layer, detail::stage_runner<T> runner,
                           detail::vector<detail::gradient_result> results)
      : ranks_(layer.ranks),
        runner_(std::move(runner)),
        results_(std::move(results)),
        gradients_(detail::zeros_of<gradient_layer>(layer.own_part(), {})) {
    const auto made = detail::released_parameters(gradients_);
    for (detail::gradient_result& r : results_)
      r.to = detail::elements_of(made, r.name, detail::dtype_of<T>);
  }

  // Computes y = layer(x) and the gradient dx of sum(y dy) with respect to x, for this rank's rows,
  // and the gradients with respect to the parameters, for the rows of all ranks, which `gradients`
  // returns; if `accumulates`, they are added to what that holds. Arrays have two axes, [token,
  // ...], and the layer's arithmetic type. Throws communication_error, the same on all ranks, if
  // one of them fails; then what was written is undefined, and the job's other calls fail at once.
  template <class X, class D, class Y, class G>
  void operator()(const X& x, const D& dy, Y&& y, G&& dx, bool accumulates = false) {
    constexpr bool readable = detail::readable_array<const X> && detail::readable_array<const D>;
    constexpr bool writable = detail::writable_array<std::remove_reference_t<Y>, T> &&
                              detail::writable_array<std::remove_reference_t<G>, T>;
    static_assert(readable, "gradients read arrays of float, double, fmoe::bf16 or fmoe::f16");
    static_assert(writable,
                  "gradients write y and dx of the layer's arithmetic type that are not const");
    if constexpr (readable && writable)
      ranks_->guarded([&] {
        detail::expects<value_error>(
            !runner_.is_stale(),
            "[gradients] a weight may have been written since the layer was compiled: call "
            "refresh() before the next call");
        const std::array<detail::array_view, 2> inputs{detail::view_of(x), detail::view_of(dy)},
            outputs{detail::view_of(y), detail::view_of(dx)};
        runner_.run(inputs, outputs);
        take(accumulates);
      });
  }

  // The gradients of this rank: those of its parts of the parameters that are cut, and those of the
  // others, which all ranks have in common. own_part of the layer has the same form, so an
  // optimizer takes both. clip_norm(limit, layer, gradients()) clips by the norm of the whole
  // layer. Running statistics have zeros.
  const gradient_layer& gradients() const { return gradients_; }
  gradient_layer& gradients() { return gradients_; }

  // Reads the weights of the layer again, after they were written.
  void refresh() { runner_.refresh(); }

  std::size_t tokens() const { return runner_.tokens(); }
  // The numbers of a row of x and of y.
  std::size_t inputs() const { return runner_.input_shape(0)[0]; }
  std::size_t outputs() const { return runner_.output_shape()[0]; }

  // The plan of this rank and its costs, as those of compiled_shard. Sums over the tokens of all
  // ranks move once a call.
  std::string explain() const { return runner_.explain(); }
  const shard_costs& cost() const { return runner_.cost(); }

 private:
  // Writes what the call gave. A parameter that a layer views in several shapes has a sum for each.
  void take(bool accumulates) {
    for (std::size_t k = 0; k < results_.size(); ++k) {
      const bool is_first = k == 0 || results_[k].number != results_[k - 1].number;
      const auto from = runner_.sum(k);
      T* const to = static_cast<T*>(results_[k].to->written());
      if (is_first && !accumulates) std::fill_n(to, numbers_of(results_[k]), T{0});
      for (std::size_t i = 0; i < from.size(); ++i) to[i] += from[i];
    }
  }
  std::size_t numbers_of(const detail::gradient_result& r) const {
    return detail::element_count(r.shape);
  }

  communicator* ranks_;
  detail::stage_runner<T> runner_;
  detail::vector<detail::gradient_result> results_;
  gradient_layer gradients_;
};

// Plans the forward and the backward pass of a layer that is cut over ranks, for calls of at most
// `tokens` rows of each rank, which all go through together. Gradients are taken before the passes
// are distributed. slope(y, target) is the expression of the gradient of a loss with respect to y.
// A step reads the weights of the layer where they are. All ranks do this together, with the same
// numbers. Throws communication_error if they disagree; and on all ranks what one of them throws:
// value_error for a layer that cannot be cut so, or has several parts a rank.
//
//   auto part = shard(layer, ranks, 'n');
//   auto own = part.own_part();
//   auto step = compile_gradients(part, 256, [](const auto& y, const auto& t) { return y - t; });
//   tensor<float, 2> target({x.shape()[0], step.outputs()}), y(target.shape()), dx(x.shape());
//   step(x, target, y, dx);
//   adam optimizer({.rate = 1e-3});
//   optimizer(own, step.gradients());
//   step.refresh();
template <class Level = cpu::native, class Layer, class Slope>
  requires(!std::is_same_v<Slope, compile_options> && expression<detail::results_of<Layer>>)
auto compile_gradients(const sharded<Layer>& layer, std::size_t tokens, const Slope& slope,
                       const compile_options& options = {}) {
  using T = typename detail::results_of<Layer>::scalar;
  communicator& ranks = *layer.ranks;
  return ranks.guarded([&] {
    detail::expects<value_error>(options.sparse_gradients == 0,
                                 "[gradients] those of a layer over ranks are not sparse: compile "
                                 "them with sparse_gradients = 0");
    Layer own = layer.own_part();
    Layer& same = detail::only_listed(layer.whole);
    const io::released_layer list(same);
    std::string what = "forward and backward\n" + detail::shard_text(layer, list, tokens, options);
    ranks.agree(what);
    const bool is_alone = layer.cut.parts == 1;
    const Layer& read = is_alone ? own : layer.whole;
    ir::graph g;
    const argument<0, 2> x(tokens);
    const argument<1, 2> target(tokens);
    const auto y = detail::applied(read, x);
    static_assert(!detail::is_loss<std::remove_cvref_t<decltype(slope(y, target))>>,
                  "compile_gradients: over ranks it takes the slope of a loss, a gradient for each "
                  "number of y");
    const detail::gradient_inputs in{
        {x.lower(g)}, {y.lower(g)}, {target.lower(g)}, {as_expression(slope(y, target)).lower(g)}};
    const auto parameters =
        detail::trained_parameters(detail::released_parameters(is_alone ? own : same));
    auto found = detail::gradient_graph(g, in, parameters);
    std::vector<detail::spread> ends(2, detail::spread::tokens);  // y and dx
    for (detail::gradient_result& r : found.parameters) {
      const auto elements = parameters[r.number].parameter.value().elements;
      const auto is_it = [&](const detail::cut_parameter& c) {
        return c.whole.elements->same_elements(*elements);
      };
      const auto c = std::ranges::find_if(layer.parameters, is_it);
      ends.push_back(c == layer.parameters.end() ? detail::spread::whole : detail::spread::label);
      if (c == layer.parameters.end()) continue;
      const auto axis = detail::axis_of_label(r.shape, *c);
      if (axis) r.shape[*axis] = layer.cut.count(layer.cut.own(0));
    }
    detail::stage_runner<T> made(ranks, layer.cut,
                                 detail::plan_of(g, found.roots, ends, layer.cut, layer.parameters,
                                                 tokens, sizeof(T), layer.network),
                                 tokens, std::move(what), layer.network);
    made.template prepare<Level>(options, detail::in_place{});
    return compiled_shard_gradients<Layer, T>(layer, std::move(made), std::move(found.parameters));
  });
}

template <class Level = cpu::native, class Layer, class... More>
  requires(!expression<detail::results_of<Layer>>)
detail::refused compile_gradients(const sharded<Layer>&, std::size_t, const More&...) {
  static_assert(detail::never<Layer>,
                "compile_gradients: a layer over ranks returns one result, and not a tuple");
  return {};
}

// The same where the second input of a call is dy.
template <class Level = cpu::native, class Layer>
  requires expression<detail::results_of<Layer>>
auto compile_gradients(const sharded<Layer>& layer, std::size_t tokens,
                       const compile_options& options = {}) {
  const auto given = [](const auto&, const auto& dy) { return dy; };
  return compile_gradients<Level>(layer, tokens, given, options);
}

}  // namespace fmoe

// SPDX-License-Identifier: MIT
// Makes a layer ready for many calls.
#pragma once

#include <fmoe/run/checked_executable.hpp>
#include <fmoe/run/evaluate.hpp>

namespace fmoe {

// A layer ready to be called: `y = forward(x)`, or forward(x, y), which allocates nothing;
// forward(x1, x2, y) for a layer of two arguments, forward(x, y1, y2) for one of two results. The
// ranks are those of the results, with the token axis.
template <class T, class Level, std::size_t Arguments, class Ranks = std::index_sequence<2>>
class compiled {
  static constexpr std::size_t Results = Ranks::size();

 public:
  compiled(const detail::lowered_graph& layer, std::size_t tokens, const compile_options& options)
      : executable_(layer.nodes(),
                    detail::compile_graph<T, Level>(layer.nodes(), layer.roots(), tokens, options),
                    Arguments, detail::dtype_of<T>, tokens) {}

  // Takes inputs first, then outputs: any arrays (array_traits defines which), which are read and
  // written in place; lazy ones are evaluated first. Leading axes beyond those of a row count
  // tokens, at most as many as the layer is compiled for; a sum over tokens has none. Inputs may
  // have any strides and floating type (double only if the layer's is double); outputs have the
  // layer's arithmetic type. Throws shape_error or value_error before any output element is
  // written, and allocates nothing. Calls beyond the number of callers that the layer is compiled
  // for wait. Throws value_error if a weight may have been written since it was read: see refresh.
  template <class... Arrays>
    requires(sizeof...(Arrays) != Arguments)
  void operator()(Arrays&&... arrays) const {
    static_assert(sizeof...(Arrays) == Arguments + Results,
                  "forward takes the layer's inputs, and then either nothing or an output for each "
                  "result");
    join({}, arrays...);
  }

  // The same on a stream of the layer's device, which runs the call when it has done what was put
  // on it before: forward.on(stream)(x, y). If all arrays are the device's, it returns at once and
  // waits for nothing.
  template <class Stream>
  auto on(Stream* stream) const {
    constexpr bool known = is_stream<Stream>;
    static_assert(known, "forward.on takes a stream: a CUstream_st* with <fmoe/cuda.hpp>");
    return on_stream{*this, {const_cast<std::remove_const_t<Stream>*>(stream)}};
  }
  template <class Owner>
    requires requires(const Owner& o) { o.handle(); }
  auto on(const Owner& stream) const {
    return on(stream.handle());
  }

  // The same for results in tensors of their own: one tensor, or a tuple of them. Tokens are one
  // axis, however many axes those of the first input are.
  template <class... Arrays>
    requires(sizeof...(Arrays) == Arguments)
  auto operator()(const Arrays&... arrays) const {
    constexpr bool readable = (detail::bindable_array<const Arrays> && ...);
    static_assert(readable,
                  "forward takes arrays of float, double, fmoe::bf16 or fmoe::f16: Eigen's with "
                  "<fmoe/eigen.hpp>");
    if constexpr (readable) {
      static_assert(((sizeof(detail::element_of<const Arrays>) <= sizeof(T)) && ...),
                    "forward takes no double into a layer of float: convert it first");
      return results_of(std::make_index_sequence<Results>(), Ranks(), detail::in_memory(arrays)...);
    }
  }

  // The most tokens of a call.
  std::size_t tokens() const { return executable_.tokens(); }
  // The shapes of an input and of a result without the token axis.
  const std::vector<std::size_t>& input_shape(std::size_t i = 0) const {
    return executable_.row(i);
  }
  const std::vector<std::size_t>& output_shape(std::size_t i = 0) const {
    return executable_.row(Arguments + i);
  }

  // Reads the weights again, however they were written. Those that nobody can have written since
  // the last time are not packed again. No call may run at the same time. Throws shape_error if a
  // tensor of another shape was assigned to one.
  void refresh() { executable_.refresh(); }

  // From now on each top_k and product_top_k keeps k entries; with `all`, as many as it is compiled
  // for. The results have the bits of a layer that is compiled for k, if its plan has the same
  // steps. No call may run at the same time. Throws value_error unless 0 < k <= the compiled one.
  void keep(std::size_t k) { executable_.keep(k); }

 private:
  // A call on a stream. It owns no arrays, so that an output exists for each result.
  struct on_stream {
    const compiled& layer;
    stream_handle stream;

    template <class... Arrays>
    void operator()(Arrays&&... arrays) const {
      static_assert(sizeof...(Arrays) == Arguments + Results,
                    "forward.on(stream) takes the layer's inputs and an output for each result");
      layer.join(stream, arrays...);
    }
  };

  using stream_of_call = std::optional<stream_handle>;

  template <class... Arrays>
  void join(const stream_of_call& stream, Arrays&... arrays) const {
    constexpr bool readable = (detail::bindable_array<Arrays> && ...);
    static_assert(readable,
                  "forward takes arrays of float, double, fmoe::bf16 or fmoe::f16: Eigen's with "
                  "<fmoe/eigen.hpp>");
    if constexpr (sizeof...(Arrays) == Arguments + Results && readable) {
      constexpr bool writable = are_outputs<Arrays...>(std::make_index_sequence<Results>());
      static_assert(writable,
                    "forward writes an output of the layer's arithmetic type that is not const");
      static_assert(!writable || ((sizeof(detail::element_of<Arrays>) <= sizeof(T)) && ...),
                    "forward takes no double into a layer of float: convert it first");
      bind(stream, detail::in_memory(arrays)...);
    }
  }

  template <class... Arrays, std::size_t... Result>
  static constexpr bool are_outputs(std::index_sequence<Result...>) {
    return (detail::writable_array<std::tuple_element_t<Arguments + Result, std::tuple<Arrays...>>,
                                   T> &&
            ...);
  }

  template <class... Arrays>
  void bind(const stream_of_call& stream, Arrays&&... arrays) const {
    call({detail::view_of(arrays)...}, stream);  // a parameter keeps the evaluated array
  }

  template <std::size_t... I, std::size_t... Rank, class... Arrays>
  auto results_of(std::index_sequence<I...>, std::index_sequence<Rank...>,
                  const Arrays&... arrays) const {
    const std::array<detail::array_view, Arguments> inputs{detail::view_of(arrays)...};
    const std::size_t tokens = executable_.tokens_in(0, inputs[0]);
    std::tuple<tensor<T, Rank>...> results{tensor<T, Rank>(shape_of<Rank>(I, tokens))...};
    call({detail::view_of(arrays)..., detail::view_of(std::get<I>(results))...}, {});
    if constexpr (Results == 1) return std::get<0>(std::move(results));
    else return results;
  }

  template <std::size_t Rank>
  std::array<std::size_t, Rank> shape_of(std::size_t result, std::size_t tokens) const {
    const std::vector<std::size_t>& row = output_shape(result);
    std::array<std::size_t, Rank> shape{};
    for (std::size_t a = 0; a < Rank; ++a)
      shape[a] = a + row.size() < Rank ? tokens : row[a + row.size() - Rank];
    return shape;
  }

  void call(const std::array<detail::array_view, Arguments + Results>& views,
            const stream_of_call& stream) const {
    std::array<detail::bound_array, Arguments + Results> arrays;
    for (std::size_t i = 0; i < views.size(); ++i) arrays[i].array = views[i];
    executable_.call(arrays, stream);
  }

  detail::checked_executable executable_;
};

// The ranks of a layer's arguments, for compile.
template <std::size_t... Ranks>
struct arguments {};

}  // namespace fmoe

namespace fmoe::detail {

template <class E>
inline constexpr bool is_result = expression<E>;
template <operand... Es>
inline constexpr bool is_result<std::tuple<Es...>> = true;

// Returns what the layer makes of these arguments, which is an expression or a tuple of them.
template <class Layer, class... Arguments>
auto applied(const Layer& layer, const Arguments&... xs) {
  if constexpr (requires { layer(xs...); }) {
    constexpr bool returns = is_result<decltype(layer(xs...))>;
    static_assert(returns || refuses_result<decltype(layer(xs...))>,
                  "compile: the layer returns an expression or a tuple of them, and not what "
                  "evaluate makes of one");
    if constexpr (returns) return layer(xs...);
    else return refused();
  } else {
    constexpr bool writes = requires(Layer& l) { l(xs...); };
    static_assert(!writes, "compile: the layer's operator() is const, and a lambda not mutable");
    static_assert(writes,
                  "compile: the layer is called with expressions; for several inputs write "
                  "compile(layer, arguments<2, 3>{}, tokens)");
    return refused();
  }
}

template <class Layer, extent... Ranks, int... Index>
auto apply_to_arguments(const Layer& layer, arguments<Ranks...>, extent tokens,
                        std::integer_sequence<int, Index...>) {
  return applied(layer, argument<Index, Ranks>{tokens}...);
}

}  // namespace fmoe::detail

namespace fmoe {

// Plans a layer for up to `tokens` rows, packs its weights once, and reserves memory for
// calls on the threads of the current arena, of as many callers as the options say. With 0 tokens
// only empty calls fit. A layer is anything that can be called with expressions while it is const.
// By default it has one argument of rank 2, [token, input]. It may return a tuple of expressions,
// to show parts of it beside its output; these cost only the time to write them. Throws shape_error
// and value_error as the layer's operations say.
//
//   const auto forward = compile(layer, 128);  // for up to 128 tokens a call
//   tensor<float, 2> out = forward(x);
//   forward(x, out);  // allocates nothing
//   const auto product = compile([&](const auto& a) { return einsum<"ti,io->to">(a, w); }, 128,
//                                {.threads = 1});
template <class Level = cpu::native, class Layer, std::size_t... Ranks>
auto compile(const Layer& layer, arguments<Ranks...>, std::size_t tokens,
             const compile_options& options = {}) {
  const auto e = detail::apply_to_arguments(layer, arguments<Ranks...>{}, tokens,
                                            std::make_integer_sequence<int, sizeof...(Ranks)>{});
  using results = detail::result_list<std::remove_const_t<decltype(e)>>;
  cpu::use_weights<typename results::scalar, Level, results::types>();
  return compiled<typename results::scalar, Level, sizeof...(Ranks), typename results::ranks>(
      detail::lowered_graph(results::untyped(e)), tokens, options);
}
template <class Level = cpu::native, class Layer>
auto compile(const Layer& layer, std::size_t tokens, const compile_options& options = {}) {
  return compile<Level>(layer, arguments<2>{}, tokens, options);
}

}  // namespace fmoe

namespace fmoe::detail {

template <class Tokens = void, class... More>
inline constexpr bool counts_tokens = std::convertible_to<Tokens, extent>;
template <extent... Ranks, class Tokens, class... More>
inline constexpr bool counts_tokens<arguments<Ranks...>, Tokens, More...> =
    std::convertible_to<Tokens, extent>;

}  // namespace fmoe::detail

namespace fmoe {

template <class Level = cpu::native, class Layer, class... More>
  requires(!detail::counts_tokens<More...>)
compiled<float, Level, 1> compile(const Layer&, const More&...) {
  static_assert(detail::never<Layer>,
                "compile(layer, tokens): say for how many tokens at most, not with which input");
}

template <class Level = cpu::native, class Layer, class Options>
  requires(!std::convertible_to<const Options&, compile_options>)
compiled<float, Level, 1> compile(const Layer&, std::size_t, const Options&) {
  static_assert(detail::never<Options>,
                "compile: options are named, as in fmoe::compile(layer, 128, {.threads = 2})");
}
template <class Level = cpu::native, class Layer>
compiled<float, Level, 1> compile(const Layer&, std::size_t,
                                  const detail::misnamed_options_of_threads&) {
  static_assert(detail::never<Layer>,
                "compile: the option is .threads, as in fmoe::compile(layer, 128, {.threads = 2})");
}

}  // namespace fmoe

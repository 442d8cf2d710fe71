// SPDX-License-Identifier: MIT
// The gradients of layers whose kind is known when the program runs.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/dynamic/executable.hpp>
#include <fmoe/dynamic/layer.hpp>
#include <fmoe/gradients/both_passes.hpp>

namespace fmoe::dynamic {

// The forward and the backward pass of a layer, ready for many calls; see fmoe::compiled_gradients.
// Copies are the same step.
template <class Level = cpu::native>
class compiled_gradients {
 public:
  compiled_gradients(layer l, const std::vector<expression>& results,
                     const std::vector<expression>& slopes, std::size_t tokens,
                     compile_options options)
      : layer_(std::move(l)),
        has_loss_(slopes.size() == 1 && slopes[0].rank() <= 1) {
    using detail::expects;
    expects<value_error>(!results.empty(), "[gradients] there is no result");
    expects<value_error>(slopes.empty() || has_loss_ || slopes.size() == results.size(),
                         "[gradients] the results are ", results.size(), " and the slopes ",
                         slopes.size(), ": pass one loss, or a slope for each result");
    options.sparse_gradients = 0;
    ir::graph g;
    input(0).lower(g);
    detail::gradient_inputs in{.x = {}, .y = {}};
    for (const expression& y : results) in.y.push_back(y.lower(g));
    in.x = detail::arguments_from(g, 0);
    const std::size_t inputs = in.x.size();
    if (slopes.empty())
      for (const expression& y : results)
        in.dy.push_back(input(inputs + in.dy.size(), y.rank()).lower(g));
    else if (has_loss_) slopes[0].lower(g);
    else
      for (const expression& dy : slopes) in.dy.push_back(dy.lower(g));
    in.given = detail::arguments_from(g, inputs);
    if (has_loss_) in.loss = detail::add_loss(g, slopes[0], inputs + in.given.size(), tokens);
    for (const ir::node_id argument : detail::arguments_from(g, 0)) g.fix(argument, 0, tokens);
    const auto trained = detail::trained_parameters(layer_.layer_->parameters());
    for (layer_parameter& p : layer_.parameters())
      if (parameters_.size() < trained.size() && p.name == trained[parameters_.size()].name.name)
        parameters_.push_back(std::move(p));
    passes_ = std::make_shared<detail::both_passes<float, Level>>(std::move(g), in, trained, tokens,
                                                                  options);
  }

  // The parameters that have gradients, in the order in which a call takes these.
  const std::vector<layer_parameter>& parameters() const { return parameters_; }

  // The numbers of a row of x and of a result; the results, and the shape of one without the axis
  // of tokens; and the tokens that go through both passes at a time.
  std::size_t inputs() const { return passes().run().inputs(); }
  std::size_t outputs(std::size_t result = 0) const { return passes().run().outputs(result); }
  std::size_t results() const { return passes().run().rows().y.size(); }
  // The inputs that have gradients: x, and what else the results name as input(1), input(2)...
  std::size_t arguments() const { return passes().run().rows().x.size(); }
  // The other inputs: a dy for each result, or what the loss or slopes alone name.
  std::size_t given() const { return passes().run().rows().given.size(); }
  // The shape of one of both without the axis of tokens.
  std::vector<std::size_t> input_shape(std::size_t i) const {
    const detail::gradient_rows& rows = passes().run().rows();
    const auto& row = i < rows.x.size() ? rows.x[i] : rows.given[i - rows.x.size()];
    return {row.begin(), row.end()};
  }
  bool has_loss() const { return has_loss_; }
  // The loss of the last call, the mean of those of its tokens.
  double loss() const { return passes().run().loss(); }
  std::vector<std::size_t> output_shape(std::size_t result = 0) const {
    const auto& row = passes().run().rows().y[result];
    return {row.begin(), row.end()};
  }
  std::size_t span() const { return passes().run().span(); }

  // Takes the `arguments`, of which x [t, i] is the first, what is `given`, the results, the
  // gradient of each argument, and then that of each of `parameters`, row-major and with the shape
  // of its value: those after what is given are float32, and are written, or the gradients added to
  // what they hold if the call accumulates. Throws shape_error or value_error before an element is
  // written. Calls follow each other.
  void operator()(std::span<const array> arrays, bool accumulates = false) {
    using detail::expects;
    const std::size_t n = arguments(), m = given(), r = results(),
                      first = 2 * n + m + r;  // of the gradients
    expects<value_error>(arrays.size() == first + parameters_.size(), "[gradients] takes ",
                         detail::gradient_arrays_text(passes().run().rows()), " and ",
                         parameters_.size(), " gradients, and not ", arrays.size(), " arrays");
    std::vector<detail::array_view> views;
    for (const array& a : arrays) views.push_back(detail::view_of_dynamic(a));
    check(views);
    for (detail::gradient_result& made : passes().run().parameters()) {
      const array& to = arrays[first + made.number];
      made.to = std::make_shared<storage>(to.data, detail::element_count(to.shape) * sizeof(float));
    }
    const std::span<const detail::array_view> all_of_them = views;
    passes().run().call({all_of_them.first(n), all_of_them.subspan(n, m),
                         all_of_them.subspan(n + m, r), all_of_them.subspan(n + m + r, n)},
                        accumulates);
    for (std::size_t k = 0; k < parameters_.size() && !accumulates; ++k)
      if (std::ranges::count(passes().run().parameters(), k, &detail::gradient_result::number) == 0)
        std::fill_n(static_cast<float*>(arrays[first + k].data),
                    detail::element_count(arrays[first + k].shape),
                    0.0f);  // y does not depend on it
  }

  // As those of fmoe::compiled_gradients.
  void refresh() { passes().run().refresh(); }
  void keep(std::size_t k) { passes().run().keep(k); }
  explanation explain() const { return passes().explain(); }
  step_costs cost() const { return passes().cost(); }

 private:
  detail::both_passes<float, Level>& passes() const {
    detail::expects<value_error>(passes_ != nullptr,
                                 "[gradients] these were moved: use those that they were moved to");
    return *passes_;
  }

  // Throws unless the arrays of a call fit: x, what is given, the results, dx, and the gradients.
  void check(std::span<const detail::array_view> views) const {
    const detail::gradient_rows& rows = passes().run().rows();
    std::vector<detail::expected_array> expected = rows.expected(dtype::float32);
    const std::size_t first = expected.size();
    for (const layer_parameter& p : parameters_)
      expected.push_back({.row = p.value.shape,
                          .type = dtype::float32,
                          .is = detail::expected_array::role::output,
                          .per_token = false,
                          .is_plain = true});
    const auto name = [&](std::size_t i) {
      return i < first ? rows.name(i) : "the gradient of " + parameters_[i - first].name;
    };
    detail::call_check{
        .call = "[gradients]",
        .computed = "the layer",
        .name = name,
        .arrays = expected,
        .token_axes = 1}([&](std::size_t i) -> const detail::array_view& { return views[i]; });
  }

  layer layer_;
  bool has_loss_;
  std::vector<layer_parameter> parameters_;
  std::shared_ptr<detail::both_passes<float, Level>> passes_;
};

// Plans both passes of a layer for calls of up to `tokens` rows. `results` are expressions of
// input(0) and of the layer, such as its output and its coefficients; those of a Monet layer that
// takes its routing name it as input(1, 3) and input(2, 3), which then have gradients, too. The
// gradients are those of `slopes`: a loss, which is one expression of [t] or of one number, made of
// the results and of the next inputs; or the gradient of a loss with respect to each result. If
// there are none, a call takes dy for each result. Plans and bits are those of
// fmoe::compile_gradients, whose errors it throws; gradients are dense. An edit, which has no
// parameters of its own, throws value_error.
//
//   const dynamic::layer any = dynamic::load<mxd<>>("layer.safetensors");
//   auto step = dynamic::compile_gradients(any, 1024);
//   std::vector<dynamic::array> arrays(4 + step.parameters().size());  // x, dy, y, dx, gradients
//   step(arrays);
template <class Level = cpu::native>
compiled_gradients<Level> compile_gradients(const layer& l, const std::vector<expression>& results,
                                            const std::vector<expression>& slopes,
                                            std::size_t tokens,
                                            const compile_options& options = {}) {
  return {l, results, slopes, tokens, options};
}
// The same of the layer's output alone. A Monet layer whose router is another layer's throws
// value_error.
template <class Level = cpu::native>
compiled_gradients<Level> compile_gradients(const layer& l, std::size_t tokens,
                                            const compile_options& options = {}) {
  detail::expects<value_error>(
      !l.needs_routing(),
      "[gradients] the layer has no router, and x alone does not tell "
      "its routing: pass the result that it makes of x and of input(1, 3) and input(2, 3)");
  return {l, {l(input(0))}, {}, tokens, options};
}

}  // namespace fmoe::dynamic

// SPDX-License-Identifier: MIT
// What every kind of layer can be asked when the program runs, and a type of it that edits take.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmoe/analysis/edit.hpp>
#include <fmoe/expr/operations.hpp>
#include <fmoe/io/load.hpp>

namespace fmoe::detail {

using pair_of_expressions = std::pair<dynamic::expression, dynamic::expression>;

// What every kind of layer can be asked. Functions that a kind does not have throw value_error.
class any_layer {
 public:
  virtual ~any_layer() = default;
  virtual extent levels() const = 0;
  virtual extent axes_of_coefficients() const = 0;  // 3 with heads
  virtual extent axes_of_output() const = 0;        // 3 for a cross-layer transcoder
  virtual extent expert_count(extent level) const = 0;
  virtual dynamic::expression output(const dynamic::expression& x) const = 0;
  virtual dynamic::expression routed_output(const dynamic::expression& x,
                                            const pair_of_expressions& routing) const = 0;
  // What a member of the layer's class of this name makes of x.
  virtual dynamic::expression result(std::string_view name, const dynamic::expression& x) const = 0;
  virtual bool needs_routing() const = 0;  // a Monet layer whose router is another layer's
  virtual dynamic::expression coefficients(const dynamic::expression& x, extent level) const = 0;
  virtual dynamic::expression mixed(const dynamic::expression& x,
                                    const std::vector<dynamic::expression>& a) const = 0;
  virtual dynamic::expression expert_output(const dynamic::expression& x, extent n) const = 0;
  // [n] -> the shape of a row of the coefficients.
  virtual dynamic::tensor like_coefficients(const parameter<float, 1>& of_experts) const = 0;
  // The column of the gate of a muMoE, towards which it is steered; others have none.
  virtual std::optional<dynamic::tensor> centre(extent n, extent level) const = 0;
  virtual dynamic::expression expert(const std::vector<extent>& n) const = 0;
  virtual pair_of_expressions routing(const dynamic::expression& x) const = 0;
  virtual std::shared_ptr<any_layer> without(const std::vector<index_pair>& experts) const = 0;
  virtual io::strings_by_name settings() const = 0;
  virtual io::layer_arrays arrays(const save_options& options) const = 0;
  virtual std::vector<released_parameter> parameters() = 0;  // throws value_error for an edit
  virtual std::shared_ptr<any_layer> copy() const = 0;       // whose parameters are its own
  virtual std::shared_ptr<any_layer> quantized(dtype type) const = 0;
  virtual void train(bool is_training) = 0;
  virtual void keep(extent k) = 0;
  virtual void update_statistics(const tensor<float, 2>& x, double momentum) = 0;
};

// A layer of any kind in a type that tells its levels and the axes of its coefficients and of its
// output, so that edits take it.
template <extent Levels, extent Axes, extent Outputs>
struct typed_layer {
  static constexpr extent levels = Levels;

  std::shared_ptr<const any_layer> hidden;

  template <extent Level = 0>
  auto coefficients(const operand_of<2> auto& x) const {
    return expr<float, Axes>(hidden->coefficients(dynamic::expression(x), Level));
  }
  auto mixed(const operand_of<2> auto& x, const operand auto&... a) const {
    return expr<float, Outputs>(hidden->mixed(dynamic::expression(x), {dynamic::expression(a)...}));
  }
  auto operator()(const operand_of<2> auto& x) const {
    return expr<float, Outputs>(hidden->output(dynamic::expression(x)));
  }
  auto operator()(const auto&... x) const { return not_rows(x...); }

  std::size_t expert_count() const
    requires(Axes == 3)
  {
    return hidden->expert_count(0);
  }
  parameter<float, 2> like_coefficients(const parameter<float, 1>& of_experts) const
    requires(Axes == 3)
  {
    return tensor_of<float, 2>(hidden->like_coefficients(of_experts));
  }
};

// What is added to y. A row of a decoder has no axis of tokens: a sum repeats it for each of them.
template <extent Levels, extent Axes, extent Outputs>
auto expert_output(const typed_layer<Levels, Axes, Outputs>& layer, const operand_of<2> auto& x,
                   extent n) {
  return expr<float, Outputs>(typed_as(), layer.hidden->expert_output(dynamic::expression(x), n));
}

}  // namespace fmoe::detail

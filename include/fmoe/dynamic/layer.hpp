// SPDX-License-Identifier: MIT
// A layer whose kind is known when the program runs.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/analysis/edit.hpp>
#include <fmoe/dynamic/any_layer.hpp>
#include <fmoe/dynamic/named_results.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/load.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/models/quantize.hpp>
#include <fmoe/optimizers/running_statistics.hpp>

namespace fmoe::detail {

// Of a layer, its edits, or one of a user's namespace.
auto output_of_expert(const auto& layer, const auto& x, extent n) {
  using fmoe::expert_output;
  return expert_output(layer, x, n);
}

// True for a layer, and not an edit, whose weights are floating-point numbers.
template <class Layer>
constexpr bool has_floats = false;
template <class Layer>
  requires(has_released_names<Layer> && requires { typename stored_as<q8, Layer>::type; })
constexpr bool has_floats<Layer> = !std::is_same_v<Layer, typename stored_as<q8, Layer>::type> &&
                                   !std::is_same_v<Layer, typename stored_as<q8c, Layer>::type>;

template <class Layer>
class layer_of final : public any_layer {
 public:
  explicit layer_of(Layer layer) : layer_(std::move(layer)) {}

  extent levels() const override { return has_coefficients ? levels_of<Layer> : 0; }
  extent axes_of_coefficients() const override {
    if constexpr (has_coefficients) return axes<0>;
    else lacks("coefficients");
  }
  extent axes_of_output() const override {
    if constexpr (takes_routing) return 2;
    else
      return expression_t<decltype(std::declval<const Layer&>()(
          std::declval<const argument<0, 2>&>()))>::rank;
  }
  extent expert_count(extent level) const override {
    if constexpr (has_coefficients)
      return at_level(level, [&]<extent Level>(std::integral_constant<extent, Level>) {
        return fmoe::expert_count<Level>(layer_);
      });
    else lacks("coefficients");
  }
  dynamic::tensor like_coefficients(const parameter<float, 1>& of_experts) const override {
    if constexpr (has_coefficients) return any_of(detail::like_coefficients(layer_, of_experts));
    else lacks("coefficients");
  }
  std::optional<dynamic::tensor> centre(extent n, extent level) const override {
    if constexpr (requires(const Layer& l) { innermost(l).gate.projections; })
      return at_level(level, [&]<extent Level>(std::integral_constant<extent, Level>) {
        return std::optional(any_of(sliced<1>(innermost(layer_).gate.projections[Level], n)));
      });
    else if constexpr (requires(const Layer& l) { innermost(l).hidden; })
      return innermost(layer_).hidden->centre(n, level);
    else return {};
  }

  dynamic::expression output(const dynamic::expression& x) const override {
    return dynamic::expression(layer_(expr<float, 2>(x)));
  }
  dynamic::expression routed_output(const dynamic::expression& x,
                                    const pair_of_expressions& routing) const override {
    if constexpr (takes_routing) {
      return dynamic::expression(
          layer_(expr<float, 2>(x), expr<float, 3>(routing.first), expr<float, 3>(routing.second)));
    } else {
      lacks("routing");
    }
  }
  dynamic::expression result(std::string_view name, const dynamic::expression& x) const override {
    return named_result(layer_, *this, name, x);
  }
  bool needs_routing() const override {
    if constexpr (takes_routing) return !layer_.has_router();
    else return false;
  }
  dynamic::expression coefficients(const dynamic::expression& x, extent level) const override {
    if constexpr (has_coefficients)
      return at_level(level, [&]<extent Level>(std::integral_constant<extent, Level>) {
        return dynamic::expression(coefficients_of<Level>(layer_, expr<float, 2>(x)));
      });
    else lacks("coefficients");
  }
  dynamic::expression mixed(const dynamic::expression& x,
                            const std::vector<dynamic::expression>& a) const override {
    if constexpr (has_coefficients) {
      expects<value_error>(a.size() == levels_of<Layer>, "[mixed] the layer has ", levels_of<Layer>,
                           " levels of experts, and not ", a.size());
      return [&]<extent... Level>(std::index_sequence<Level...>) {
        return dynamic::expression(
            layer_.mixed(expr<float, 2>(x), expr<float, axes<Level>>(a[Level])...));
      }(std::make_index_sequence<levels_of<Layer>>());
    } else {
      lacks("mixed");
    }
  }
  dynamic::expression expert_output(const dynamic::expression& x, extent n) const override {
    if constexpr (one_expert_adds())
      return dynamic::expression(output_of_expert(layer_, expr<float, 2>(x), n));
    else lacks("expert_output");
  }
  dynamic::expression expert(const std::vector<extent>& n) const override {
    constexpr extent count = levels_of<Layer>;
    expects<value_error>(n.size() == count, "[expert] the layer has ", count,
                         " numbers of an expert, one for each level, and not ", n.size());
    return [&]<extent... Level>(std::index_sequence<Level...>) -> dynamic::expression {
      if constexpr (requires { as_expression(layer_.expert(n[Level]...)); })
        return dynamic::expression(layer_.expert(n[Level]...));
      else lacks("expert");
    }(std::make_index_sequence<count>());
  }

  pair_of_expressions routing(const dynamic::expression& x) const override {
    if constexpr (has_router) {
      expects<value_error>(!needs_routing(),
                           "[routing] the layer has no router, since the first layer of its group "
                           "routes for it: ask the first layer, with the x of that layer");
      const auto rows = expr<float, 2>(x);
      return {dynamic::expression(layer_.router.g1(rows)),
              dynamic::expression(layer_.router.g2(rows))};
    } else {
      lacks("routing");
    }
  }
  std::shared_ptr<any_layer> without(const std::vector<index_pair>& experts) const override {
    if constexpr (has_router)
      return std::make_shared<layer_of>(Layer{fmoe::ablated(layer_.layer, experts), layer_.router});
    else
      fail<value_error>(
          "[ablated] experts of Monet alone are pairs: pass the numbers of one level");
  }

  io::strings_by_name settings() const override {
    if constexpr (!has_released_names<Layer>) {
      return innermost(layer_).hidden->settings();
    } else if constexpr (has_router) {
      auto all = settings_of(layer_.layer);
      if (!needs_routing()) all.merge(settings_of(layer_.router));
      return all;
    } else {
      return settings_of(layer_);
    }
  }
  io::layer_arrays arrays(const save_options& options) const override {
    if constexpr (!has_released_names<Layer>) {
      fail<value_error>("[arrays] a file holds weights and no edit: save the original layer");
    } else if constexpr (has_router) {
      auto all = io::arrays_of(layer_.layer, {}, options);
      if (needs_routing()) return all;
      auto router = io::arrays_of(layer_.router, {}, {.prefix = options.prefix});  // not rounded
      all.arrays.merge(router.arrays);
      all.metadata.merge(router.metadata);
      return all;
    } else {
      return io::arrays_of(layer_, {}, options);
    }
  }

  std::vector<released_parameter> parameters() override {
    if constexpr (has_released_names<Layer>) return released_parameters(layer_);
    else
      fail<value_error>(
          "[parameters] an edit has no parameters of its own: ask the original layer");
  }
  std::shared_ptr<any_layer> copy() const override { return std::make_shared<layer_of>(layer_); }
  std::shared_ptr<any_layer> quantized(dtype type) const override {
    if constexpr (has_floats<Layer>)
      return with_quantized_type(type, [&]<class Q>(Q*) -> std::shared_ptr<any_layer> {
        using made = layer_of<typename stored_as<Q, Layer>::type>;
        if constexpr (has_router)
          return std::make_shared<made>(
              typename stored_as<Q, Layer>::type{quantize<Q>(layer_.layer), layer_.router});
        else return std::make_shared<made>(quantize<Q>(layer_));
      });
    else
      fail<value_error>(
          "[quantize] the layer is an edit or has weights of 8 bits: quantize the original layer");
  }
  void train(bool is_training) override {
    if constexpr (requires { layer_.gate.training; }) layer_.gate.training = is_training;
    else if constexpr (has_router) layer_.router.training = is_training;
  }
  void keep(extent k) override {
    expects<value_error>(!needs_routing(),
                         "[with_active] K is the router's: ask the first layer of its group");
    expects<value_error>(k > 0, "[with_active] K is 0 and must be at least 1");
    extent* active = nullptr;
    if constexpr (has_router) active = &layer_.router.active;
    else active = io::active_of(layer_);
    expects<value_error>(active != nullptr, "[with_active] this kind of layer has none");
    *active = k;
  }
  void update_statistics(const tensor<float, 2>& x, double momentum) override {
    if constexpr (requires { kept_statistics(layer_.gate); })
      fmoe::update_statistics(layer_.gate, x, momentum);
    else if constexpr (has_router) {
      expects<value_error>(!needs_routing(),
                           "[update_statistics] the layer has no router, whose statistics these "
                           "are: ask the first layer of its group");
      fmoe::update_statistics(layer_.router, x, momentum);
    } else {
      lacks("update_statistics");
    }
  }

 private:
  static constexpr bool has_coefficients = has_experts<Layer>;
  static constexpr bool has_router = requires(const Layer& l) { l.router.keys1; };  // Monet's
  static constexpr bool takes_routing = requires(const Layer& l) { l.has_router(); };

  static constexpr bool one_expert_adds() {
    if constexpr (levels_of<Layer> == 1) return has_expert_output<Layer>;
    else return false;  // an expert has a number for each level
  }

  // The number of axes of the coefficients of a level.
  template <extent Level>
  static constexpr extent axes = expression_t<decltype(coefficients_of<Level>(
      std::declval<const Layer&>(), std::declval<const argument<0, 2>&>()))>::rank;

  template <class F>
  static auto at_level(extent level, const F& f) {
    std::optional<decltype(f(std::integral_constant<extent, 0>()))> made;
    [&]<extent... Level>(std::index_sequence<Level...>) {
      ((Level == level ? void(made = f(std::integral_constant<extent, Level>())) : void()), ...);
    }(std::make_index_sequence<levels_of<Layer>>());
    expects<value_error>(made.has_value(), "[coefficients] there is no level ", level, " among ",
                         levels_of<Layer>);
    return *made;
  }

  template <class Part>
  static io::strings_by_name settings_of(Part part) {
    const io::released_layer all(part);
    const auto holds = [&](std::string_view name) {
      return std::ranges::any_of(all.parameters, [&](const released_parameter& p) {
        return p.name.name == name && !p.parameter.value().empty();
      });
    };
    return io::metadata_of(all, holds, {});
  }

  [[noreturn]] static void lacks(const char* what) {
    fail<value_error>("[", what, "] this kind of layer has none");
  }

  Layer layer_;
};

}  // namespace fmoe::detail

namespace fmoe::dynamic {

// A parameter of a layer, under one of its names in files.
struct layer_parameter {
  std::string name;
  tensor value;                         // in the layer's order of axes; shares the elements
  std::vector<std::size_t> file_shape;  // of the array in files
  // The place of each axis of the value among the axes of files; what files join, as in "d(nl)",
  // is counted as several axes.
  std::vector<std::size_t> file_axes;
  bool trained;  // false for statistics
};

template <class Level>
class compiled_gradients;

// A layer of any kind, [token, input] -> [token, output]; a cross-layer transcoder has [token,
// layer, output]. Copies share the weights.
class layer {
 public:
  template <class Layer>
    requires(!std::is_same_v<Layer, layer> &&
             !std::is_same_v<Layer, std::shared_ptr<detail::any_layer>>)
  explicit layer(Layer l) : layer_(std::make_shared<detail::layer_of<Layer>>(std::move(l))) {}

  // The metadata of a file of the layer: kind, K, activation and the like.
  io::strings_by_name settings() const { return layer_->settings(); }
  // The layer with an edit: see the functions of fmoe with these names.
  layer ablated(const std::vector<std::size_t>& experts, std::size_t level = 0) const {
    return edited(level, [&]<std::size_t Level>(const auto& l) {
      return layer(fmoe::ablated<Level>(l, experts));
    });
  }
  // A Monet layer without these experts (i, j): see fmoe::ablated. Throws value_error for another
  // kind.
  layer ablated_pairs(const std::vector<index_pair>& experts) const {
    return layer(layer_->without(experts));
  }
  layer rewritten(std::size_t head, const std::vector<double>& mean, double lambda,
                  std::size_t level = 0) const {
    return edited(level, [&]<std::size_t Level>(const auto& l) {
      return layer(fmoe::rewritten<Level>(l, head, mean, lambda));
    });
  }
  layer steered(std::size_t n, double lambda, std::size_t level = 0) const {
    const std::size_t experts = layer_->expert_count(level);
    detail::expects<value_error>(n < experts, "[steered] there is no expert ", n, " among ",
                                 experts);
    if (const auto centre = layer_->centre(n, level))
      return edited(level, [&]<std::size_t>(const auto& l) {
        const auto column = detail::tensor_of<float, 1>(*centre);
        return layer(fmoe::edited(l, [=](const auto& x) { return x + lambda * column; }));
      });
    return edited(level, [&]<std::size_t Level>(const auto& l) {
      return layer(fmoe::steered<Level>(l, n, lambda));
    });
  }

  // Returns the layer with weights of 8 bits, q8 or q8c: see fmoe::quantize. A Monet layer keeps
  // the floats of its router. Throws value_error for an edit, a layer of 8 bits and another type.
  layer quantize(dtype type = dtype::q8) const {
    detail::expects<value_error>(detail::is_quantized_type(type), "[quantize] the type is ",
                                 fmoe::name_of(type), ", and q8 or q8c is expected");
    return layer(layer_->quantized(type));
  }

  // What a file of the layer holds, by the names of the authors' code. A type in the options rounds
  // neither the router of a mixture nor that of Monet. Throws as save does.
  io::layer_arrays arrays(const save_options& options = {}) const {
    return layer_->arrays(options);
  }
  // The levels of experts: more than 1 in a hierarchy, 0 for a layer without coefficients.
  std::size_t levels() const { return layer_->levels(); }

  // [t, i] -> [t, o]. Throws value_error for a Monet layer whose router is another layer's.
  expression operator()(const expression& x) const { return layer_->output(x); }
  // [t, i] and [t, p, s] twice -> [t, o]: a Monet layer with this routing, which `routing` of the
  // first layer of its group makes of the x of that layer. Throws value_error for another kind.
  //
  //   const auto first = dynamic::load<monet_hd<>>("monet", {.prefix = "model.layers.0."});
  //   const auto second = dynamic::load<monet_hd<>>("monet", {.prefix = "model.layers.1."});
  //   const auto y = second(dynamic::input(1), first.routing(dynamic::input(0)));
  expression operator()(const expression& x,
                        const std::pair<expression, expression>& routing) const {
    return layer_->routed_output(x, routing);
  }
  // [t, i] -> what the layer makes of x, by the name of the member of its class: "y",
  // "coefficients", their `kept` "weights" and "indices", "coefficients[1]" of a second level, and
  // where the layer has them "scores" before the selection, "preactivations", "hidden",
  // "contribution_norms", and "g1" and "g2" of a router. Throws value_error for another name.
  expression result(std::string_view name, const expression& x) const {
    return layer_->result(name, x);
  }
  // True for a Monet layer whose router is another layer's: it cannot be called with x alone.
  bool needs_routing() const { return layer_->needs_routing(); }
  // [t, i] -> [t, n], [t, h, e] for heads: of one level of experts.
  expression coefficients(const expression& x, std::size_t level = 0) const {
    return layer_->coefficients(x, level);
  }
  // [t, i] and the coefficients of each level -> [t, o].
  expression mixed(const expression& x, const std::vector<expression>& a) const {
    return layer_->mixed(x, a);
  }
  // [t, i] -> [t, o]: what expert n adds with the coefficient 1; see fmoe::expert_output.
  expression expert_output(const expression& x, std::size_t n) const {
    return layer_->expert_output(x, n);
  }
  // [t, i] -> [t, p, s] twice: g1 and g2 of a Monet layer's router. Throws value_error for another
  // kind, and for a layer whose router is another layer's.
  std::pair<expression, expression> routing(const expression& x) const {
    return layer_->routing(x);
  }
  // The matrix of one expert, by a number for each level.
  expression expert(const std::vector<std::size_t>& n) const { return layer_->expert(n); }

  // The type of its weights, as load takes it: the one of fewest bits among its parameters, of
  // which a router may have more. Throws value_error for an edit.
  dtype type() const {
    dtype narrowest = dtype::float64;  // in the order of the enum each has no more bits
    for (const detail::released_parameter& p : layer_->parameters())
      if (!p.parameter.value().empty()) narrowest = std::max(narrowest, p.parameter.type());
    return narrowest;
  }
  // The parameters that hold something, under all of their names. Throws value_error for an edit.
  std::vector<layer_parameter> parameters() const {
    std::vector<layer_parameter> listed;
    for (const detail::released_parameter& p : layer_->parameters()) {
      const tensor value = p.parameter.value();
      if (value.empty()) continue;
      layer_parameter& made =
          listed.emplace_back(layer_parameter{p.name.name, value, {}, {}, p.name.trained});
      const std::string flat = io::without_parentheses(p.name.file_labels);
      for (const char label : p.name.layer_labels) made.file_axes.push_back(flat.find(label));
      for (const std::string& axis : io::axes_in(p.name.file_labels)) {
        std::size_t length = 1;
        for (const char label : axis) length *= value.shape[p.name.layer_labels.find(label)];
        made.file_shape.push_back(length);
      }
    }
    return listed;
  }

  // Returns the layer with these elements for some of its parameters, which it shares with the
  // tensors. The other parameters are those of this layer. Throws value_error for a name or a type
  // that the layer does not have, and shape_error for another shape.
  layer with(const std::vector<std::pair<std::string, tensor>>& given) const {
    layer made(layer_->copy());
    const auto own = layer_->parameters(), its = made.layer_->parameters();
    for (std::size_t i = 0; i < own.size(); ++i)
      if (const tensor value = own[i].parameter.value(); !value.empty())
        its[i].parameter.refer_to(value);
    for (const auto& named : given) {
      const auto& name = named.first;
      const tensor& value = named.second;
      const auto found = std::ranges::find_if(
          its, [&](const detail::released_parameter& p) { return p.name.name == name; });
      detail::expects<value_error>(found != its.end(), "[with] the layer has no parameter ", name);
      const detail::parameter_reference& p = found->parameter;
      detail::expects<value_error>(value.type == p.type(), "[with] ", name, " is ",
                                   fmoe::name_of(value.type), ", and the layer's is ",
                                   fmoe::name_of(p.type()));
      detail::expects<shape_error>(value.shape == p.value().shape, "[with] ", name,
                                   " has another shape than the layer's");
      p.refer_to(value);
    }
    return made;
  }

  // Returns the layer with batch norms that take the statistics of a call's tokens, or with those
  // that take running statistics. Layers without batch norms are returned as they are.
  layer in_training(bool is_training) const {
    layer made = with({});
    made.layer_->train(is_training);
    return made;
  }

  // The layer with weights of its own; an edit shares those of the layer that was edited.
  layer copied() const { return layer(layer_->copy()); }
  // The same with another K, or with `all` without a selection. Throws value_error for 0, and for a
  // layer that selects nothing, as a muMoE, that is an edit, or whose router is another layer's;
  // too great a K is refused where it is used.
  layer with_active(std::size_t k) const {
    layer made = copied();
    made.layer_->keep(k);
    return made;
  }

  // Moves the running statistics of the layer and its copies: see fmoe::update_statistics. Throws
  // value_error for a kind of layer that has none.
  void update_statistics(const fmoe::tensor<float, 2>& x, double momentum = 0.1) {
    layer_->update_statistics(x, momentum);
  }

  // See fmoe::save.
  void save(const std::filesystem::path& file, const save_options& options = {}) const {
    io::write_layer(arrays(options), file, options.form);
  }

 private:
  template <class Level>
  friend class compiled_gradients;

  // Calls edit<Level>(this layer in a type that edits take).
  template <class Edit>
  layer edited(std::size_t level, const Edit& edit) const {
    if (layer_->axes_of_coefficients() == 3) return edited_at<1, 3>(level, edit);
    if (layer_->axes_of_output() == 3) return edited_at<1, 2, 3>(level, edit);
    switch (levels()) {
      case 1: return edited_at<1, 2>(level, edit);
      case 2: return edited_at<2, 2>(level, edit);
      case 3: return edited_at<3, 2>(level, edit);
      default: return edited_at<4, 2>(level, edit);
    }
  }
  template <std::size_t Levels, std::size_t Axes, std::size_t Outputs = 2, class Edit>
  layer edited_at(std::size_t level, const Edit& edit) const {
    const detail::typed_layer<Levels, Axes, Outputs> self{layer_};
    std::optional<layer> made;
    [&]<std::size_t... Level>(std::index_sequence<Level...>) {
      ((Level == level ? void(made = edit.template operator()<Level>(self)) : void()), ...);
    }(std::make_index_sequence<Levels>());
    detail::expects<value_error>(made.has_value(), "[edit] there is no level ", level, " among ",
                                 Levels);
    return *made;
  }

  explicit layer(std::shared_ptr<detail::any_layer> l) : layer_(std::move(l)) {}

  std::shared_ptr<detail::any_layer> layer_;
};

}  // namespace fmoe::dynamic

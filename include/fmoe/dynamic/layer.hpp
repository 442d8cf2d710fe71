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
#include <fmoe/dynamic/operations.hpp>
#include <fmoe/io/load.hpp>
#include <fmoe/io/safetensors.hpp>

namespace fmoe::detail {

// What every kind of layer can be asked. Functions that a kind does not have throw value_error.
class any_layer {
 public:
  virtual ~any_layer() = default;
  virtual extent levels() const = 0;
  virtual dynamic::expression output(const dynamic::expression& x) const = 0;
  virtual dynamic::expression coefficients(const dynamic::expression& x, extent level) const = 0;
  virtual dynamic::expression mixed(const dynamic::expression& x,
                                    const std::vector<dynamic::expression>& a) const = 0;
  virtual dynamic::expression expert_output(const dynamic::expression& x, extent n) const = 0;
  virtual dynamic::expression expert(const std::vector<extent>& n) const = 0;
  virtual io::strings_by_name settings() const = 0;
  virtual io::layer_arrays arrays(const save_options& options) const = 0;
};

template <class Layer>
class layer_of final : public any_layer {
 public:
  explicit layer_of(Layer layer) : layer_(std::move(layer)) {}

  extent levels() const override { return has_coefficients ? levels_of<Layer> : 0; }

  dynamic::expression output(const dynamic::expression& x) const override {
    return made(x, layer_(dynamic::typed<2>(x)));
  }
  dynamic::expression coefficients(const dynamic::expression& x, extent level) const override {
    if constexpr (has_coefficients)
      return at_level(level, [&]<extent Level>(std::integral_constant<extent, Level>) {
        return made(x, coefficients_of<Level>(layer_, dynamic::typed<2>(x)));
      });
    else lacks("coefficients");
  }
  dynamic::expression mixed(const dynamic::expression& x,
                            const std::vector<dynamic::expression>& a) const override {
    if constexpr (has_coefficients) {
      expects<value_error>(a.size() == levels_of<Layer>, "[mixed] the layer has ", levels_of<Layer>,
                           " levels of experts, and not ", a.size());
      return [&]<extent... Level>(std::index_sequence<Level...>) {
        return made(x,
                    layer_.mixed(dynamic::typed<2>(x), dynamic::typed<axes<Level>>(a[Level])...));
      }(std::make_index_sequence<levels_of<Layer>>());
    } else {
      lacks("mixed");
    }
  }
  dynamic::expression expert_output(const dynamic::expression& x, extent n) const override {
    if constexpr (one_expert_adds())
      return made(x, fmoe::expert_output(layer_, dynamic::typed<2>(x), n));
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

  io::strings_by_name settings() const override {
    if constexpr (has_router) {
      auto all = settings_of(layer_.layer);
      all.merge(settings_of(layer_.router));
      return all;
    } else {
      return settings_of(layer_);
    }
  }
  io::layer_arrays arrays(const save_options& options) const override {
    if constexpr (has_router) {
      auto all = io::arrays_of(layer_.layer, {}, options);
      auto router = io::arrays_of(layer_.router, {}, options);
      all.arrays.merge(router.arrays);
      all.metadata.merge(router.metadata);
      return all;
    } else {
      return io::arrays_of(layer_, {}, options);
    }
  }

 private:
  static constexpr bool has_coefficients = has_experts<Layer>;
  static constexpr bool has_router = requires(const Layer& l) { l.router.keys1; };  // Monet's

  static constexpr bool one_expert_adds() {
    if constexpr (levels_of<Layer> == 1) return has_expert_output<Layer>;
    else return false;  // an expert has a number for each level
  }

  // The number of axes of the coefficients of a level.
  template <extent Level>
  static constexpr extent axes = expression_t<decltype(coefficients_of<Level>(
      std::declval<const Layer&>(), std::declval<const argument<0, 2>&>()))>::rank;

  template <operand E>
  static dynamic::expression made(const dynamic::expression& x, const E& e) {
    return {expression_t<E>::rank, x.type(),
            [y = as_expression(e)](ir::graph& g) { return y.lower(g); }};
  }

  template <class F>
  static dynamic::expression at_level(extent level, const F& f) {
    std::optional<dynamic::expression> made;
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

// A layer of any kind, [token, input] -> [token, output]. Copies share the weights.
class layer {
 public:
  template <class Layer>
    requires(!std::is_same_v<Layer, layer>)
  explicit layer(Layer l) : layer_(std::make_shared<detail::layer_of<Layer>>(std::move(l))) {}

  // The metadata of a file of the layer: kind, K, activation and the like.
  io::strings_by_name settings() const { return layer_->settings(); }
  // What a file of the layer holds, by the names of the authors' code. Throws as save does.
  io::layer_arrays arrays(const save_options& options = {}) const {
    return layer_->arrays(options);
  }
  // The levels of experts: more than 1 in a hierarchy, 0 for a layer without coefficients.
  std::size_t levels() const { return layer_->levels(); }

  // [t, i] -> [t, o].
  expression operator()(const expression& x) const { return layer_->output(x); }
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
  // The matrix of one expert, by a number for each level.
  expression expert(const std::vector<std::size_t>& n) const { return layer_->expert(n); }

  // See fmoe::save.
  void save(const std::filesystem::path& file, const save_options& options = {}) const {
    const io::layer_arrays all = arrays(options);
    io::safetensors::write(file, all.arrays, all.metadata);
  }

 private:
  std::shared_ptr<const detail::any_layer> layer_;
};

}  // namespace fmoe::dynamic

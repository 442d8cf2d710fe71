// SPDX-License-Identifier: MIT
// Layers of files, of any kind.
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <fmoe/dynamic/gradients.hpp>
#include <fmoe/dynamic/load.hpp>
#include <fmoe/optimizers/adam.hpp>
#include <fmoe/optimizers/clip.hpp>
#include <fmoe/optimizers/sgd.hpp>

#include "arrays.hpp"
#include "lock.hpp"

namespace fmoe::python {

using namespace nb::literals;

namespace {

// The type of weights of this name. Throws value_error if there is none.
dtype type_named(const std::string& name) {
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16, dtype::q8, dtype::q8c})
    if (name == name_of(type)) return type;
  fmoe::detail::fail<value_error>("[type] there is no type ", name,
                                  ": float32, bfloat16, float16, q8 and q8c are types of weights");
}

using strings = std::map<std::string, std::string>;

load_options options_of(const std::string& prefix, std::optional<std::size_t> active, bool narrow,
                        const strings& metadata = {}) {
  load_options options;
  options.prefix = prefix;
  options.active = active;
  options.metadata = metadata;
  if (narrow) options.narrow = io::narrow;
  return options;
}

// Returns load(options) and the names of tensors that nothing reads, which are refused unless the
// caller lists them.
using loaded_layer = std::pair<dynamic::layer, std::vector<std::string>>;
loaded_layer with_extra(load_options options, bool is_listed, const auto& load) {
  std::vector<std::string> extra;
  if (is_listed) options.extra = &extra;
  dynamic::layer made = without_lock([&] { return load(options); });
  return {std::move(made), std::move(extra)};
}

// Loads a layer with weights of this type; floats are quantised for one of 8 bits.
dynamic::layer layer_of(dtype type, const std::string& file, const load_options& options) {
  const auto as = [&]<class T>(T*) {
    return fmoe::detail::all_kinds<T>::with_layer_in(
        io::checkpoint::open(file), options,
        [](const auto& l, const std::string&) { return dynamic::layer(l); });
  };
  if (type == dtype::bfloat16) return as(static_cast<bf16*>(nullptr));
  if (type == dtype::float16) return as(static_cast<f16*>(nullptr));
  const dynamic::layer floats = dynamic::load(file, options);
  return type == dtype::float32 ? floats : floats.quantize(type);
}

using gradients = dynamic::compiled_gradients<>;

void bind_gradients(nb::module_& m) {
  nb::class_<gradients>(m, "CompiledGradients")
      .def_prop_ro("results", &gradients::results)
      .def("output_shape", &gradients::output_shape, "result"_a = 0)
      .def_prop_ro("parameters", &gradients::parameters)
      .def_prop_ro("arguments", &gradients::arguments)
      .def_prop_ro("given", &gradients::given)
      .def("input_shape", &gradients::input_shape, "input"_a)
      .def_prop_ro("has_loss", &gradients::has_loss)
      .def_prop_ro("loss", &gradients::loss)
      .def(
          "run",
          [](gradients& g, const std::vector<nb::object>& in, const std::vector<nb::object>& out) {
            const passed_arrays passed(in, out);
            without_lock([&] { g(passed.arrays); });
          },
          "inputs"_a, "outputs"_a)
      .def(
          "keep", [](gradients& e, std::optional<std::size_t> k) { e.keep(k.value_or(all)); },
          "k"_a.none())
      .def("explain", [](const gradients& g) { return without_lock([&] { return g.explain(); }); })
      .def("refresh", [](gradients& g) { without_lock([&] { g.refresh(); }); });
}

// Arrays by the names of files, with axes in the layer's order.
using named_arrays = std::vector<std::pair<std::string, nb::object>>;
std::vector<std::pair<std::string, dynamic::tensor>> tensors_of(const named_arrays& arrays) {
  std::vector<std::pair<std::string, dynamic::tensor>> tensors;
  for (const auto& [name, a] : arrays) tensors.emplace_back(name, tensor_of(imported(a)));
  return tensors;
}

// Binds an optimizer and pairs of the name and the place of a setting.
template <class Rule>
void bind_optimizer(nb::module_& m, const char* name, const auto&... settings) {
  nb::class_<Rule> rule(m, name);
  rule.def(nb::init<>())
      .def_prop_ro("steps", &Rule::steps)
      .def(
          "step",
          [](Rule& r, const dynamic::layer& l, const named_arrays& arrays) {
            const auto gradients = tensors_of(arrays);
            without_lock([&] { r(l, gradients); });
          },
          "layer"_a, "gradients"_a)
      .def(
          "save_to",
          [](const Rule& r, const std::string& file) { without_lock([&] { r.save(file); }); },
          "file"_a)
      .def(
          "load_from",
          [](Rule& r, const std::string& file) { without_lock([&] { r.load(file); }); }, "file"_a);
  const auto bind = [&]<class Options, class T>(const char* of, T Options::* setting) {
    rule.def_prop_rw(
        of, [setting](const Rule& r) { return r.options.*setting; },
        [setting](Rule& r, T value) { r.options.*setting = value; });
  };
  (bind(settings.first, settings.second), ...);
}

void bind_optimizers(nb::module_& m) {
  using s = sgd_options;
  bind_optimizer<sgd>(m, "SGD", std::pair("rate", &s::rate), std::pair("momentum", &s::momentum),
                      std::pair("dampening", &s::dampening),
                      std::pair("weight_decay", &s::weight_decay),
                      std::pair("nesterov", &s::nesterov));
  const auto bind_adam = [&]<class Rule, class Options>(const char* name, Rule*, Options*) {
    bind_optimizer<Rule>(m, name, std::pair("rate", &Options::rate),
                         std::pair("beta1", &Options::beta1), std::pair("beta2", &Options::beta2),
                         std::pair("epsilon", &Options::epsilon),
                         std::pair("weight_decay", &Options::weight_decay));
  };
  bind_adam("Adam", static_cast<adam*>(nullptr), static_cast<adam_options*>(nullptr));
  bind_adam("AdamW", static_cast<adamw*>(nullptr), static_cast<adamw_options*>(nullptr));
  m.def(
      "clip_norm",
      [](double limit, const named_arrays& arrays) {
        auto gradients = tensors_of(arrays);
        return without_lock([&] { return clip_norm(limit, gradients); });
      },
      "limit"_a, "gradients"_a, "Scales the arrays, whose rows follow each other, in place.");
}

}  // namespace

void bind_layers(nb::module_& m) {
  using dynamic::layer;
  using dynamic::layer_parameter;
  nb::class_<layer_parameter>(m, "Parameter", "A parameter of a layer, by a name that files have.")
      .def_ro("name", &layer_parameter::name)
      .def_ro("trained", &layer_parameter::trained, "False for running statistics.")
      .def_ro("file_shape", &layer_parameter::file_shape)
      .def_ro("file_axes", &layer_parameter::file_axes,
              "The place of each axis of the value among those of the file, taken apart.")
      .def_prop_ro("shape", [](const layer_parameter& p) { return p.value.shape; })
      .def_prop_ro("value", [](const layer_parameter& p) { return numpy_of(p.value); })
      .def(
          "lent",
          [](const layer_parameter& p) {
            if (p.value.type != dtype::float32 && p.value.type != dtype::float64)
              throw nb::type_error((p.name + " is " + name_of(p.value.type) +
                                    ", which numpy cannot show where it lies: arrays() copies it")
                                       .c_str());
            p.value.elements->lent();
            return numpy_of(p.value);
          },
          "The value, which may be written.");
  nb::class_<layer>(m, "Layer")
      .def_prop_ro("levels", &layer::levels)
      .def_prop_ro("type", [](const layer& l) { return name_of(l.type()); })
      .def("settings",
           [](const layer& l) {
             const auto said = l.settings();
             return std::map<std::string, std::string>(said.begin(), said.end());
           })
      .def("arrays",
           [](const layer& l) {
             nb::dict named;
             for (const auto& [name, a] : l.arrays().arrays) named[name.c_str()] = numpy_of(a);
             return named;
           })
      .def_prop_ro("needs_routing", &layer::needs_routing)
      .def(
          "output", [](const layer& l, const dynamic::expression& x) { return l(x); }, "x"_a)
      .def(
          "routed_output",
          [](const layer& l, const dynamic::expression& x, const dynamic::expression& g1,
             const dynamic::expression& g2) { return l(x, {g1, g2}); },
          "x"_a, "g1"_a, "g2"_a)
      .def("coefficients", &layer::coefficients, "x"_a, "level"_a = 0)
      .def(
          "result",
          [](const layer& l, const std::string& name, const dynamic::expression& x) {
            return l.result(name, x);
          },
          "name"_a, "x"_a)
      .def("mixed", &layer::mixed, "x"_a, "coefficients"_a)
      .def("expert_output", &layer::expert_output, "x"_a, "n"_a)
      .def("expert", &layer::expert, "n"_a)
      .def("ablated", &layer::ablated, "experts"_a, "level"_a = 0)
      .def("ablated_pairs", &layer::ablated_pairs, "experts"_a)
      .def("routing", &layer::routing, "x"_a)
      .def("steered", &layer::steered, "n"_a, "strength"_a, "level"_a = 0)
      .def("rewritten", &layer::rewritten, "head"_a, "mean"_a, "strength"_a, "level"_a = 0)
      .def(
          "quantize",
          [](const layer& l, const std::string& type) {
            return without_lock([&] { return l.quantize(type_named(type)); });
          },
          "type"_a)
      .def("parameters", &layer::parameters)
      .def(
          "with_arrays",
          [](const layer& l, const std::map<std::string, nb::object>& arrays) {
            return l.with(tensors_of({arrays.begin(), arrays.end()}));
          },
          "arrays"_a)
      .def(
          "written",
          [](const layer& l, const std::set<std::string>& names) {
            for (const layer_parameter& p : l.parameters())
              if (names.contains(p.name)) p.value.elements->was_written();
          },
          "names"_a)
      .def("copied", &layer::copied)
      .def("in_training", &layer::in_training, "is_training"_a)
      .def(
          "with_active",
          [](const layer& l, std::optional<std::size_t> k) {
            return l.with_active(k.value_or(all));
          },
          "k"_a.none())
      .def(
          "update_statistics",
          [](layer& l, nb::handle x, double momentum) {
            const dynamic::tensor rows = detail::as_floats(tensor_of(imported(x)));
            without_lock([&] { l.update_statistics(detail::tensor_of<float, 2>(rows), momentum); });
          },
          "x"_a, "momentum"_a)
      .def(
          "compile_gradients",
          [](const layer& l, std::size_t tokens, const std::vector<dynamic::expression>& results,
             const std::vector<dynamic::expression>& slopes, std::optional<std::size_t> threads) {
            return without_lock([&] {
              const compile_options options{.threads = threads.value_or(all)};
              return dynamic::compile_gradients(l, results, slopes, tokens, options);
            });
          },
          "tokens"_a, "results"_a, "slopes"_a, nb::kw_only(), "threads"_a.none() = nb::none())
      .def(
          "save_to",  // "save" is a name that nnsight gives every object
          [](const layer& l, const std::string& file, const std::string& prefix,
             bool is_of_saelens) {
            l.save(file, {.prefix = prefix,
                          .form = is_of_saelens ? file_form::saelens : file_form::fmoe});
          },
          "file"_a, "prefix"_a = "", "is_of_saelens"_a = false);
  bind_gradients(m);
  bind_optimizers(m);
  m.def(
      "load",
      [](const std::string& file, const std::string& prefix, std::optional<std::size_t> active,
         const std::string& type, bool narrow, bool mapped, const strings& metadata,
         bool lists_extra) {
        load_options options = options_of(prefix, active, narrow, metadata);
        options.mapped = mapped;
        return with_extra(std::move(options), lists_extra, [&](const load_options& o) {
          return layer_of(type_named(type), file, o);
        });
      },
      "file"_a, "prefix"_a = "", "active"_a.none() = nb::none(), "type"_a = "float32",
      "narrow"_a = false, "mapped"_a = false, "metadata"_a = strings(), "lists_extra"_a = false);
  m.def(
      "load_mixture",
      [](const std::string& model, std::size_t layer, const std::string& prefix,
         std::optional<std::size_t> active, const std::string& type, bool narrow,
         bool lists_extra) {
        return with_extra(options_of(prefix, active, narrow), lists_extra,
                          [&](const load_options& o) {
                            return dynamic::load_mixture(model, layer, type_named(type), o);
                          });
      },
      "model"_a, "layer"_a, "prefix"_a = "", "active"_a.none() = nb::none(), "type"_a = "float32",
      "narrow"_a = false, "lists_extra"_a = false);
}

}  // namespace fmoe::python

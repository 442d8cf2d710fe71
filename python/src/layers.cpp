// SPDX-License-Identifier: MIT
// Layers of files, of any kind.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <fmoe/dynamic/load.hpp>

#include "arrays.hpp"

namespace fmoe::python {

using namespace nb::literals;

void bind_layers(nb::module_& m) {
  using dynamic::layer;
  nb::class_<layer>(m, "Layer")
      .def_prop_ro("levels", &layer::levels)
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
      .def("output", &layer::operator(), "x"_a)
      .def("coefficients", &layer::coefficients, "x"_a, "level"_a = 0)
      .def("mixed", &layer::mixed, "x"_a, "coefficients"_a)
      .def("expert_output", &layer::expert_output, "x"_a, "n"_a)
      .def("expert", &layer::expert, "n"_a)
      .def("ablated", &layer::ablated, "experts"_a, "level"_a = 0)
      .def("steered", &layer::steered, "n"_a, "strength"_a, "level"_a = 0)
      .def("rewritten", &layer::rewritten, "head"_a, "mean"_a, "strength"_a, "level"_a = 0)
      .def(
          "save",
          [](const layer& l, const std::string& file, const std::string& prefix) {
            l.save(file, {.prefix = prefix});
          },
          "file"_a, "prefix"_a = "");
  m.def(
      "load",
      [](const std::string& file, const std::string& prefix, std::optional<std::size_t> active,
         bool narrow) {
        load_options options;
        options.prefix = prefix;
        options.active = active;
        if (narrow) options.narrow = io::narrow;
        const nb::gil_scoped_release others_run;
        return dynamic::load(file, options);
      },
      "file"_a, "prefix"_a = "", "active"_a.none() = nb::none(), "narrow"_a = false);
}

}  // namespace fmoe::python

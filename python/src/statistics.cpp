// SPDX-License-Identifier: MIT
// Statistics of experts over streams.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <fmoe/analysis/expert_statistics.hpp>

#include "arrays.hpp"

namespace fmoe::python {

using namespace nb::literals;

namespace {

nb::object array_of_numbers(const std::vector<double>& numbers) {
  const tensor<double, 1> copy({numbers.size()}, numbers);
  return numpy_of(detail::any_of(copy));
}

void add(expert_statistics& statistics, const plain_array_in& a,
         const std::optional<std::vector<bool>>& members) {
  const dynamic::tensor batch = tensor_of(a);
  if (batch.shape.size() != 2) throw shape_error("[statistics] coefficients are [token, expert]");
  const auto count = [&](const auto& numbers) {
    const nb::gil_scoped_release others_run;
    members ? statistics.add(numbers, *members) : statistics.add(numbers);
  };
  if (batch.type == dtype::float64) count(detail::tensor_of<double, 2>(batch));
  else count(detail::tensor_of<float, 2>(detail::as_floats(batch)));
}

}  // namespace

void bind_statistics(nb::module_& m) {
  using statistics = expert_statistics;
  nb::class_<statistics>(m, "ExpertStatistics",
                         "How often and how strongly each expert is used, over all tokens added.")
      .def(nb::init<std::size_t>(), "experts"_a)
      .def("add", &add, "coefficients"_a, "members"_a.none() = nb::none(),
           "Adds a batch [token, expert], or those of its tokens that are members.")
      .def_prop_ro("tokens", &statistics::tokens)
      .def_prop_ro("counts", &statistics::counts,
                   "The number of tokens with a coefficient other than 0.")
      .def(
          "frequency", [](const statistics& s) { return array_of_numbers(s.frequency()); },
          "The share of the tokens that use each expert.")
      .def(
          "mean_coefficients",
          [](const statistics& s) { return array_of_numbers(s.mean_coefficients()); },
          "The mean over all tokens, including those that do not use the expert.")
      .def(
          "largest", [](const statistics& s) { return array_of_numbers(s.largest()); },
          "The greatest coefficient of each expert.");
}

}  // namespace fmoe::python

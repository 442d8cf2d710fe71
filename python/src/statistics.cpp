// SPDX-License-Identifier: MIT
// Statistics of experts over streams.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <fmoe/analysis/expert_domains.hpp>
#include <fmoe/analysis/expert_statistics.hpp>

#include "arrays.hpp"

namespace fmoe::python {

using namespace nb::literals;

namespace {

nb::object array_of_numbers(const std::vector<double>& numbers) {
  const tensor<double, 1> copy({numbers.size()}, numbers);
  return numpy_of(detail::any_of(copy));
}

void add(expert_statistics& statistics, nb::handle a, nb::handle of) {
  const dynamic::tensor batch = tensor_of(imported(readable(a)));
  std::optional<std::vector<bool>> members;
  if (!of.is_none()) {
    members.emplace();
    for (const nb::handle is_member : listed(of, "members"))
      members->push_back(nb::cast<bool>(nb::bool_(nb::borrow(is_member))));
  }
  if (batch.shape.size() != 2) throw shape_error("[statistics] coefficients are [token, expert]");
  const auto count = [&](const auto& numbers) {
    members ? statistics.add(numbers, *members) : statistics.add(numbers);
  };
  if (batch.type == dtype::float64) count(detail::tensor_of<double, 2>(batch));
  else count(detail::tensor_of<float, 2>(detail::as_floats(batch)));
}

void add_routing(expert_domains& domains, nb::handle g1, nb::handle g2, nb::handle domain) {
  const auto routing = [](nb::handle g) {
    const dynamic::tensor t = detail::as_floats(tensor_of(imported(readable(g))));
    if (t.shape.size() != 3) throw shape_error("[domains] routing is [token, head, half]");
    return detail::tensor_of<float, 3>(t);
  };
  domains.add(routing(g1), routing(g2), whole_number(domain, "domain"));
}

}  // namespace

void bind_statistics(nb::module_& m) {
  using domains = expert_domains;
  nb::class_<domains>(
      m, "ExpertDomains",
      "The mean routing probabilities of Monet's experts (i, j), i and j below s, in "
      "each domain (Park et al. 2024, Secs. 5.1 and D.1).")
      .def(
          "__init__",
          [](domains* made, nb::handle s, nb::handle count) {
            new (made) domains(whole_number(s, "s"), whole_number(count, "domains"));
          },
          "s"_a.none() = nb::none(), "domains"_a.none() = nb::none())
      .def("add", &add_routing, "g1"_a.none(), "g2"_a.none(), "domain"_a.none(), nb::lock_self(),
           "Adds tokens of one domain: what layer.routing gives them.")
      .def(
          "tokens",
          [](const domains& d, nb::handle domain) {
            return d.tokens(whole_number(domain, "domain"));
          },
          "domain"_a.none(), nb::lock_self())
      .def(
          "mean_probability",
          [](const domains& d, nb::handle domain, nb::handle expert) {
            return d.mean_probability(whole_number(domain, "domain"),
                                      whole_numbers(expert, "expert"));
          },
          "domain"_a.none(), "expert"_a.none(), nb::lock_self())
      .def(
          "experts_of",
          [](const domains& d, nb::handle domain, nb::handle ratio) {
            return d.experts_of(whole_number(domain, "domain"), any_number(ratio, "ratio"));
          },
          "domain"_a.none(), "ratio"_a.none() = 2.0, nb::lock_self(),
          "The experts whose mean probability in the domain is at least `ratio` times that in each "
          "other one.");
  using statistics = expert_statistics;
  nb::class_<statistics>(m, "ExpertStatistics",
                         "How often and how strongly each expert is used, over all tokens added.")
      .def(
          "__init__",
          [](statistics* made, nb::handle experts) {
            new (made) statistics(whole_number(experts, "experts"));
          },
          "experts"_a.none() = nb::none())
      .def("add", &add, "coefficients"_a.none(), "members"_a.none() = nb::none(), nb::lock_self(),
           "Adds a batch [token, expert], or those of its tokens that are members.")
      .def_prop_ro("tokens", &statistics::tokens, nb::lock_self())
      .def_prop_ro("counts", &statistics::counts, nb::lock_self(),
                   "The number of tokens with a coefficient other than 0.")
      .def(
          "frequency", [](const statistics& s) { return array_of_numbers(s.frequency()); },
          nb::lock_self(), "The share of the tokens that use each expert.")
      .def(
          "mean_coefficients",
          [](const statistics& s) { return array_of_numbers(s.mean_coefficients()); },
          nb::lock_self(), "The mean over all tokens, including those that do not use the expert.")
      .def(
          "largest", [](const statistics& s) { return array_of_numbers(s.largest()); },
          nb::lock_self(), "The greatest coefficient of each expert.");
}

}  // namespace fmoe::python

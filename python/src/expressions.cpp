// SPDX-License-Identifier: MIT
// Expressions, and what is computed from them.
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <fmoe/dynamic/executable.hpp>
#include <fmoe/dynamic/names.hpp>
#include <fmoe/losses.hpp>
#include <fmoe/reference.hpp>

#include "arrays.hpp"
#include "lock.hpp"

namespace fmoe::python {

using namespace nb::literals;
using dynamic::expression;

namespace {

using expressions = std::vector<expression>;

compile_options options_of(std::optional<std::size_t> threads, std::optional<std::size_t> callers,
                           bool naive, bool screen, bool tune, bool bf16_products,
                           bool int8_products, bool on_reference) {
  compile_options options;
  options.threads = threads.value_or(all);
  options.callers = callers.value_or(all);
  options.naive = naive;
  options.screen = screen;
  options.tune = tune;
  options.bf16_products = bf16_products;
  options.int8_products = int8_products;
  if (on_reference) options.on = reference();
  return options;
}

// The array beside an operator, or NotImplemented of Python for what is none.
expression operand_of(nb::handle x) {
  if (!nb::hasattr(x, "__dlpack__") && !PyObject_CheckBuffer(x.ptr())) throw nb::next_overload();
  return dynamic::constant(unwatched_tensor_of(x));
}

void bind_operators(nb::class_<expression>& c) {
  const auto number = [](pointwise fn) {
    return [fn](const expression& e, double x) { return dynamic::apply(fn, e, x); };
  };
  using binary = expression (*)(const expression&, const expression&);
  const auto with_array = [](binary f) {
    return [f](const expression& e, nb::handle x) { return f(e, operand_of(x)); };
  };
  const auto after_array = [](binary f) {
    return [f](const expression& e, nb::handle x) { return f(operand_of(x), e); };
  };
  c.def("__add__", number(pointwise::shift), nb::is_operator())
      .def("__radd__", number(pointwise::shift), nb::is_operator())
      .def("__mul__", number(pointwise::scale), nb::is_operator())
      .def("__rmul__", number(pointwise::scale), nb::is_operator())
      .def("__truediv__", number(pointwise::quotient), nb::is_operator())
      .def("__rtruediv__", number(pointwise::inverse), nb::is_operator())
      .def(
          "__sub__",
          [](const expression& e, double x) { return dynamic::apply(pointwise::shift, e, -x); },
          nb::is_operator())
      .def(
          "__rsub__",
          [](const expression& e, double x) {
            return dynamic::apply(pointwise::shift, dynamic::apply(pointwise::negate, e), x);
          },
          nb::is_operator())
      .def("__add__", &dynamic::add, nb::is_operator())
      .def("__mul__", &dynamic::multiply, nb::is_operator())
      .def("__sub__", &dynamic::subtract, nb::is_operator())
      .def("__truediv__", &dynamic::divide, nb::is_operator())
      .def("__add__", with_array(&dynamic::add), nb::is_operator())
      .def("__mul__", with_array(&dynamic::multiply), nb::is_operator())
      .def("__sub__", with_array(&dynamic::subtract), nb::is_operator())
      .def("__truediv__", with_array(&dynamic::divide), nb::is_operator())
      .def("__radd__", after_array(&dynamic::add), nb::is_operator())
      .def("__rmul__", after_array(&dynamic::multiply), nb::is_operator())
      .def("__rsub__", after_array(&dynamic::subtract), nb::is_operator())
      .def("__rtruediv__", after_array(&dynamic::divide), nb::is_operator())
      .def("__neg__", [](const expression& e) { return dynamic::apply(pointwise::negate, e); });
}

void bind_operations(nb::module_& m) {
  using text = std::string_view;
  m.def(
      "apply",
      [](text function, const expression& e, double parameter) {
        return dynamic::apply(dynamic::pointwise_named(function), e, parameter);
      },
      "function"_a, "e"_a, "parameter"_a = 0);
  m.def("einsum", &dynamic::einsum, "subscripts"_a, "operands"_a);
  m.def("maximum", &dynamic::max, "a"_a, "b"_a);
  m.def("minimum", &dynamic::min, "a"_a, "b"_a);
  m.def("where", &dynamic::where, "condition"_a, "a"_a, "b"_a);
  m.def(
      "map_rows",
      [](text function, const expression& e, double parameter) {
        return dynamic::map_rows(dynamic::row_function_named(function), e, parameter);
      },
      "function"_a, "e"_a, "parameter"_a = 0);
  m.def("bounded_softmax", &dynamic::bounded_softmax, "scores"_a, "bound"_a);
  m.def(
      "norm",
      [](text which, const expression& e) {
        return dynamic::norm(dynamic::row_norm_named(which), e);
      },
      "which"_a, "e"_a);
  m.def(
      "top_k",
      [](const expression& scores, std::optional<std::size_t> k, text weights) {
        return dynamic::top_k(scores, k.value_or(all), dynamic::weighting_named(weights));
      },
      "scores"_a, "k"_a.none(), "weights"_a);
  m.def(
      "top_k_by",
      [](const expression& scores, const expression& ranked, std::optional<std::size_t> k,
         text weights) {
        return dynamic::top_k(scores, ranked, k.value_or(all), dynamic::weighting_named(weights));
      },
      "scores"_a, "ranked"_a, "k"_a.none(), "weights"_a);
  m.def(
      "best_groups",
      [](const expression& scores, std::size_t groups, std::size_t active, text score) {
        return dynamic::best_groups(scores, groups, active, dynamic::group_score_named(score));
      },
      "scores"_a, "groups"_a, "active"_a, "score"_a);
  m.def(
      "top_p",
      [](const expression& scores, double mass, text weights) {
        return dynamic::top_p(scores, mass, dynamic::weighting_named(weights));
      },
      "scores"_a, "mass"_a, "weights"_a);
  m.def("nonzeros", &dynamic::nonzeros, "scores"_a);
  m.def("jump_relu", &dynamic::jump_relu, "scores"_a, "thresholds"_a);
  m.def(
      "expert_choice",
      [](const expression& scores, const expression& ranked, text weights,
         std::optional<std::size_t> capacity, double factor) {
        return dynamic::expert_choice(scores, ranked, dynamic::weighting_named(weights),
                                      capacity.value_or(all), factor);
      },
      "scores"_a, "ranked"_a, "weights"_a, "capacity"_a.none() = nb::none(), "factor"_a = 2);
  m.def(
      "product_top_k",
      [](const expression& scores, std::size_t k, std::size_t each, text weights) {
        return dynamic::product_top_k(scores, k, each, dynamic::weighting_named(weights));
      },
      "scores"_a, "k"_a, "each"_a, "weights"_a);
  m.def("kept_values", &dynamic::kept_values, "selection"_a);
  m.def("kept_indices", &dynamic::kept_indices, "selection"_a);
  m.def("concat", &dynamic::concat, "parts"_a, "axis"_a);
  m.def("append_one", &dynamic::append_one, "e"_a);
  m.def("repeat", &dynamic::repeat, "e"_a, "n"_a);
  m.def(
      "all_except",
      [](const std::vector<std::pair<std::size_t, std::size_t>>& pairs, std::size_t rows,
         std::size_t columns) {
        std::vector<index_pair> listed;
        for (const auto& [i, j] : pairs) listed.push_back({i, j});
        return dynamic::all_except(listed, rows, columns);
      },
      "pairs"_a, "rows"_a, "columns"_a);
  m.def(
      "sized",
      [](const expression& e, const std::vector<std::optional<std::size_t>>& shape) {
        std::vector<std::size_t> extents;
        for (const auto& n : shape) extents.push_back(n.value_or(all));
        return dynamic::sized(e, extents);
      },
      "e"_a, "shape"_a);
  m.def(
      "gradient",
      [](const expression& y, const expression& of, const std::optional<expression>& dy) {
        return dy ? dynamic::gradient(y, of, *dy) : dynamic::gradient(y, of);
      },
      "y"_a, "of"_a, "dy"_a.none() = nb::none());
  m.def("stop_gradient", &dynamic::stop_gradient, "x"_a);
  m.def(
      "constant",
      [](nb::handle array, bool is_parameter) {
        return dynamic::constant(unwatched_tensor_of(array), is_parameter);
      },
      "array"_a.none(), "is_parameter"_a = false);
  m.def("input", &dynamic::input, "index"_a = 0, "rank"_a = 2);
}

void bind_losses(nb::module_& m) {
  namespace losses = dynamic::losses;
  m.def("mse", &losses::mse, "y"_a, "target"_a);
  m.def("nmse", &losses::nmse, "y"_a, "target"_a);
  m.def("normalized_error", &losses::normalized_error, "y"_a, "target"_a);
  m.def("authors_mse", &losses::authors_mse, "y"_a, "target"_a);
  m.def("fvu", &losses::fvu, "y"_a, "target"_a);
  m.def("uniformity", &losses::uniformity, "g1"_a, "g2"_a, "floor"_a);
  m.def("ambiguity", &losses::ambiguity, "g1"_a, "g2"_a);
  m.def("load_balance", &losses::load_balance, "coefficients"_a, "scores"_a);
  m.def("router_z", &losses::router_z, "scores"_a);
  m.def("entropy", &losses::entropy, "scores"_a);
  m.def(
      "l1",
      [](const expression& coefficients, const std::optional<expression>& weights) {
        return weights ? losses::l1(coefficients, *weights) : losses::l1(coefficients);
      },
      "coefficients"_a, "weights"_a.none());
  m.def("auxk", &losses::auxk, "y"_a, "target"_a, "units"_a, "dead"_a, "decoder"_a, "k"_a);
}

void bind_results(nb::module_& m) {
  nb::class_<memory_figures>(m, "Memory", "Bytes of a compiled layer.")
      .def_ro("weights", &memory_figures::weights, "as they are stored")
      .def_ro("packed", &memory_figures::packed, "what is made of them for the steps")
      .def_ro("call", &memory_figures::call, "of each call that runs at the same time");
  nb::class_<explanation>(m, "Explanation", nb::dynamic_attr(), "A plan, as text and as drawings.")
      .def_ro("text", &explanation::text, "a line for each step, with predicted times")
      .def_ro("dot", &explanation::dot, "the drawing of the plan, for Graphviz")
      .def_ro("graph", &explanation::graph, "the drawing of the expression, for Graphviz")
      .def_ro("seconds", &explanation::seconds, "of a call, as the planner predicts it")
      .def_ro("memory", &explanation::memory)
      .def("__str__", [](const explanation& e) { return e.text; })
      .def("__repr__", [](const explanation& e) { return e.text; });
  nb::class_<cost_figures>(m, "CostFigures")
      .def_ro("multiply_adds", &cost_figures::multiply_adds, "for each token")
      .def_ro("once", &cost_figures::once, "multiply-adds that make weights, for any tokens")
      .def_ro("parameters", &cost_figures::parameters, "numbers stored")
      .def_ro("bytes", &cost_figures::bytes, "read and written, for all tokens")
      .def_prop_ro("flops", &cost_figures::flops);
  nb::class_<cost_report>(m, "Cost", "The cost of an expression, factorized and naive.")
      .def_ro("factorized", &cost_report::factorized)
      .def_ro("naive", &cost_report::naive)
      .def_ro("naive_multiply_adds", &cost_report::naive_multiply_adds);
  nb::class_<dynamic::executable>(m, "Executable")
      .def_prop_ro("inputs", &dynamic::executable::inputs)
      .def_prop_ro("outputs", &dynamic::executable::outputs)
      .def_prop_ro("tokens", &dynamic::executable::tokens)
      .def_prop_ro("is_double",
                   [](const dynamic::executable& e) { return e.type() == dtype::float64; })
      .def("input_shape", &dynamic::executable::input_shape, "i"_a = 0)
      .def("output_shape", &dynamic::executable::output_shape, "i"_a = 0)
      .def("has_tokens", &dynamic::executable::has_tokens, "output"_a)
      .def(
          "run",
          [](const dynamic::executable& e, const std::vector<nb::object>& in,
             const std::vector<nb::object>& out) {
            const passed_arrays passed(in, out);
            without_lock([&] { e(passed.arrays); });
          },
          "inputs"_a, "outputs"_a)
      .def(
          "keep",
          [](dynamic::executable& e, std::optional<std::size_t> k) { e.keep(k.value_or(all)); },
          "k"_a.none())
      .def("refresh", [](dynamic::executable& e) { without_lock([&] { e.refresh(); }); });
}

}  // namespace

void bind_expressions(nb::module_& m) {
  auto c = nb::class_<expression>(m, "Expression",
                                  "A lazy expression: it is computed by evaluate or compile.");
  c.def(nb::init<const expression&>())
      .def(
          "__init__",
          [](expression* e, nb::handle array) {
            new (e) expression(dynamic::constant(unwatched_tensor_of(array)));
          },
          "array"_a.none() = nb::none())
      .def_prop_ro("ndim", &expression::rank)
      .def_prop_ro("is_double", [](const expression& e) { return e.type() == dtype::float64; });
  c.attr("__array_ufunc__") = nb::none();  // numpy leaves array + expression to the expression
  bind_operators(c);
  bind_operations(m);
  bind_losses(m);
  bind_results(m);
  m.def(
      "compile",
      [](const expressions& results, std::size_t tokens, std::optional<std::size_t> threads,
         std::optional<std::size_t> callers, bool naive, bool screen, bool tune, bool bf16_products,
         bool int8_products, bool on_reference) {
        return without_lock([&] {
          return dynamic::compile(results, tokens,
                                  options_of(threads, callers, naive, screen, tune, bf16_products,
                                             int8_products, on_reference));
        });
      },
      "results"_a, "tokens"_a, nb::kw_only(), "threads"_a.none() = nb::none(),
      "callers"_a.none() = nb::none(), "naive"_a = false, "screen"_a = true, "tune"_a = false,
      "bf16_products"_a = false, "int8_products"_a = false, "reference"_a = false);
  m.def(
      "evaluate",
      [](const expressions& results, std::optional<std::size_t> threads, bool naive, bool screen,
         bool bf16_products, bool int8_products, bool on_reference) {
        const std::vector<dynamic::tensor> values = without_lock([&] {
          return dynamic::evaluate(results, options_of(threads, {}, naive, screen, false,
                                                       bf16_products, int8_products, on_reference));
        });
        std::vector<nb::object> arrays;
        for (const dynamic::tensor& t : values) arrays.push_back(numpy_of(t));
        return arrays;
      },
      "results"_a, nb::kw_only(), "threads"_a.none() = nb::none(), "naive"_a = false,
      "screen"_a = true, "bf16_products"_a = false, "int8_products"_a = false,
      "reference"_a = false);
  m.def(
      "explain",
      [](const expressions& results, std::optional<std::size_t> tokens,
         std::optional<std::size_t> threads, bool naive, bool screen, bool bf16_products,
         bool int8_products) {
        return without_lock([&] {
          return dynamic::explain(
              results, tokens.value_or(all),
              options_of(threads, {}, naive, screen, false, bf16_products, int8_products, false));
        });
      },
      "results"_a, "tokens"_a.none() = nb::none(), nb::kw_only(), "threads"_a.none() = nb::none(),
      "naive"_a = false, "screen"_a = true, "bf16_products"_a = false, "int8_products"_a = false);
  m.def(
      "cost",
      [](const expression& e, std::optional<std::size_t> tokens) {
        return dynamic::cost(e, tokens.value_or(all));
      },
      "e"_a, "tokens"_a.none() = nb::none());
}

}  // namespace fmoe::python

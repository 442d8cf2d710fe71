// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include <fmoe/base/vector.hpp>
#include <fmoe/gradients/gradient_run.hpp>
#include <fmoe/ir/algebra.hpp>

namespace fmoe::detail {

FMOE_INLINE std::vector<released_parameter> trained_parameters(
    const std::vector<released_parameter>& all) {
  std::vector<released_parameter> trained;
  for (const released_parameter& p : all) {
    const any_tensor value = p.parameter.value();
    const auto is_same = [&](const released_parameter& other) {
      return other.parameter.value().elements == value.elements;
    };
    if (p.name.trained && !value.empty() && std::ranges::none_of(trained, is_same))
      trained.push_back(p);
  }
  return trained;
}

FMOE_INLINE void make_zeros(const std::vector<released_parameter>& from,
                            const std::vector<released_parameter>& to,
                            const std::vector<std::string>& without) {
  std::vector<std::shared_ptr<storage>> left_out;
  for (extent i = 0; i < from.size(); ++i) {
    any_tensor value = from[i].parameter.value();
    if (value.empty()) continue;
    if (std::ranges::count(without, from[i].name.name) != 0) left_out.push_back(value.elements);
    if (std::ranges::count(left_out, value.elements) != 0) {  // under any of its names
      to[i].parameter.assign(
          {to[i].parameter.type(), std::vector<extent>(value.shape.size()), nullptr});
      continue;
    }
    value.type = to[i].parameter.type();
    value.elements = std::make_shared<storage>(value.numbers().bytes());
    to[i].parameter.assign(value);
  }
}

FMOE_INLINE std::shared_ptr<storage> elements_of(const std::vector<released_parameter>& gradients,
                                                 const std::string& parameter, dtype type) {
  const auto is_it = [&](const released_parameter& g) { return g.name.name == parameter; };
  const any_tensor gradient = std::ranges::find_if(gradients, is_it)->parameter.value();
  expects<value_error>(gradient.type == type, "[gradients] the gradient of ", parameter, " is ",
                       name_of(type), ", and the layer holds ", name_of(gradient.type),
                       ": make the layer a template of the type of its weights");
  return gradient.elements;
}

FMOE_INLINE loss_inputs add_loss(ir::graph& g, const dynamic::expression& loss, extent arguments,
                                 extent tokens) {
  loss_inputs in{loss.lower(g)};
  if (loss.rank() == 1) {
    in.weight = input(arguments, 1, tokens).lower(g);
    g.fix(*in.weight, 0, tokens);
  }
  return in;
}

FMOE_INLINE vector<ir::node_id> arguments_from(const ir::graph& g, extent first) {
  vector<std::pair<extent, ir::node_id>> found;
  for (const ir::node_id id : g.ids())
    if (const auto* l = get_if<ir::leaf_node>(&g[id].op);
        l != nullptr && l->argument >= static_cast<int>(first))
      found.emplace_back(static_cast<extent>(l->argument), id);
  std::ranges::sort(found);
  vector<ir::node_id> ids;
  for (const auto& [number, id] : found) {
    const extent next = first + ids.size();
    expects<value_error>(number == next, "[gradients] inputs are counted from 0, and there is no ",
                         "input ", next, " beside input ", number);
    ids.push_back(id);
  }
  return ids;
}

FMOE_INLINE gradient_graph_results gradient_graph(
    ir::graph& g, const gradient_inputs& in, const std::vector<released_parameter>& parameters) {
  // What the gradients are those of, and the cotangents of these.
  vector<ir::node_id> of = in.y, cotangents = in.dy;
  if (in.loss) {
    of = {in.loss->loss};
    cotangents = {in.loss->weight ? *in.loss->weight
                                  : ir::constant(g, {}, [](extent) { return 1.f; })};
  }
  gradient_graph_results results{ir::node_list(in.y),          {}, {}, {}, {},
                                 !in.loss && in.given == in.dy};
  vector<ir::node_id> wanted = in.x;
  for (extent i = 0; i < parameters.size(); ++i) {
    const any_tensor own = parameters[i].parameter.value();
    const std::string& name = parameters[i].name.name;
    for (extent k = 0; k < i; ++k)
      expects<value_error>(
          !own.elements->same_elements(*parameters[k].parameter.value().elements), "[gradients] ",
          parameters[k].name.name, " and ", name,
          " share their elements, so their gradients cannot be told apart: copy one of them");
    for (const ir::node_id id : g.ids()) {
      const auto* l = get_if<ir::leaf_node>(&g[id].op);
      const bool is_it =
          l != nullptr && l->data != nullptr && l->data->same_elements(*own.elements);
      if (!is_it) continue;
      wanted.push_back(id);
      results.parameters.push_back({i, l->shape, name, own.shape});
    }
  }
  const auto found = differentiate(g, of, cotangents, wanted);
  for (extent k = 0; k < wanted.size(); ++k) {
    results.roots.push_back(found[k] ? *found[k] : g.map(pointwise::scale, 0, wanted[k]));
    if (k + 1 == in.x.size() && in.loss) results.roots.push_back(in.loss->loss);
  }
  if (in.loss) results.loss_rank = g.rank(in.loss->loss);
  ir::node_list before(in.y);
  before.insert(before.end(), of.begin(), of.end());
  before.insert(before.end(), cotangents.begin(), cotangents.end());
  results.rows_depend = results.loss_rank == 0 || rows_depend(g, before);
  for (const ir::node_id x : in.x) results.x.push_back(g.shape(x));
  for (const ir::node_id result : in.y) results.y.push_back(g.shape(result));
  for (const ir::node_id given : in.given) results.given.push_back(g.shape(given));
  return results;
}

FMOE_INLINE gradient_rows::gradient_rows(const gradient_graph_results& r)
    : given_are_dy(r.given_are_dy) {
  const auto rows_of = [](const vector<vector<extent>>& shapes) {
    vector<vector<extent>> rows;
    for (const auto& shape : shapes) rows.emplace_back(shape.begin() + 1, shape.end());
    return rows;
  };
  x = rows_of(r.x);
  given = rows_of(r.given);
  y = rows_of(r.y);
}

FMOE_INLINE std::vector<expected_array> gradient_rows::expected(dtype type) const {
  using enum expected_array::role;
  std::vector<expected_array> all;
  for (const auto& row : x) all.push_back({row, type, widened_input});
  for (const auto& row : given) all.push_back({row, type, widened_input});
  for (const auto& row : y) all.push_back({row, type, output});
  for (const auto& row : x) all.push_back({row, type, output});
  return all;
}

FMOE_INLINE std::string gradient_rows::name(extent array) const {
  const auto numbered = [](const char* word, extent number, extent of) {
    return of == 1 ? word : word + (" " + std::to_string(number));
  };
  const extent first_y = x.size() + given.size(), first_dx = first_y + y.size();
  if (array < x.size()) return x.size() == 1 ? "x" : "input " + std::to_string(array);
  if (array < first_y && !given_are_dy) return "input " + std::to_string(array);
  if (array < first_y) return numbered("dy", array - x.size(), y.size());
  if (array < first_dx) return numbered("y", array - first_y, y.size());
  return numbered("dx", array - first_dx, x.size());
}

FMOE_INLINE std::string gradient_arrays_text(const gradient_rows& rows) {
  const auto some = [](const char* word, extent n) {
    return n == 1 ? word : std::to_string(n) + " " + word;
  };
  const std::string given = rows.given_are_dy
                                ? some("dy", rows.given.size())
                                : std::to_string(rows.given.size()) +
                                      (rows.given.size() == 1 ? " input more" : " inputs more");
  return some("x", rows.x.size()) + ", " + given + ", " + some("y", rows.y.size()) + ", " +
         some("dx", rows.x.size());
}

FMOE_INLINE extent check_gradient_call(const gradient_arrays& arrays, const gradient_rows& rows,
                                       std::span<const expected_array> expected,
                                       extent most_tokens) {
  const auto name = [&](extent i) { return rows.name(i); };
  const std::array parts{arrays.x, arrays.given, arrays.y, arrays.dx};
  return call_check{.call = "[gradients]",
                    .computed = "the layer",
                    .name = name,
                    .arrays = expected,
                    .most_tokens = most_tokens,
                    .token_axes = 1}([&](extent i) -> const array_view& {
    extent part = 0;
    for (; i >= parts[part].size(); ++part) i -= parts[part].size();
    return parts[part][i];
  });
}

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// The bytes and calls that benchmarks/scaling_model.py counts are those of the library's plans.
#include <fmoe/distributed.hpp>
#include <fmoe/mxd.hpp>

#include "../support/catch.hpp"
#include "../support/pages.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <std::size_t Rank>
parameter<float, Rank> outline(const std::array<std::size_t, Rank>& shape) {
  return detail::tensor_of<float, Rank>(
      {dtype::float32, {shape.begin(), shape.end()}, std::make_shared<storage>(0)});
}

// GPT-2's MxD with so many experts: shapes without numbers.
mxd<> shapes_of_mxd(std::size_t experts) {
  mxd<> layer;
  layer.encoder = outline<2>({768, 3072});
  layer.encoder_bias = outline<1>({3072});
  layer.gate = outline<2>({768, experts});
  layer.gate_bias = outline<1>({experts});
  layer.scales = outline<2>({experts, 768});
  layer.decoder = outline<2>({3072, 768});
  layer.bias = outline<1>({768});
  layer.active = 32;
  return layer;
}

struct exchanged {
  double bytes = 0;       // of a token
  std::size_t calls = 1;  // the first one tells the number of tokens
};

exchanged planned(std::size_t experts, std::size_t ranks) {
  mxd<> layer = shapes_of_mxd(experts);
  const detail::axis_cut cut{'n', experts, ranks, ranks, 0};
  const io::released_layer list(layer);
  std::vector<detail::cut_parameter> parameters;
  for (const detail::released_parameter& p : list.parameters) {
    const detail::any_tensor value = p.parameter.value();
    if (value.empty() || detail::cut_letter('n', p.name) == 0) continue;
    const std::size_t axis = detail::position_of('n', p.name.layer_labels);
    detail::any_tensor own = value;
    own.shape[axis] = cut.count(0);
    own.elements = std::make_shared<storage>(0);
    parameters.push_back({value, axis, 1, {own}});
  }
  ir::graph g;
  const ir::node_id root = detail::applied(layer, argument<0, 2>(512)).lower(g);
  const auto plan =
      detail::plan_of(g, root, {detail::spread::tokens}, cut, parameters, 512, sizeof(float));
  exchanged found;
  for (const auto& step : plan.steps)
    if (const auto* e = get_if<detail::stage_exchange>(&step)) {
      found.bytes += detail::bytes_of(*e, static_cast<double>(ranks), sizeof(float));
      found.calls += static_cast<std::size_t>(detail::calls_of(*e));
    }
  return found;
}

double number_in(std::string cell) {
  std::erase(cell, ',');
  return std::stod(cell);
}

TEST_CASE("the model of docs/distributed.md counts the bytes and calls of the plans", "[pages]") {
  const auto lines = lines_of(content("docs/distributed.md"));
  auto row = std::ranges::find(lines, "| experts | ranks | bytes a token | calls |");
  REQUIRE(row != lines.end());
  std::size_t rows = 0;
  for (row += 2; row != lines.end() && row->starts_with("| "); ++row, ++rows) {
    INFO(*row);
    std::istringstream cells(*row);
    std::string cell;
    std::vector<double> numbers;
    std::getline(cells, cell, '|');
    while (std::getline(cells, cell, '|')) numbers.push_back(number_in(cell));
    REQUIRE(numbers.size() == 4);
    const exchanged found =
        planned(static_cast<std::size_t>(numbers[0]), static_cast<std::size_t>(numbers[1]));
    CHECK(std::abs(found.bytes - numbers[2]) < 0.06);
    CHECK(static_cast<double>(found.calls) == numbers[3]);
  }
  CHECK(rows > 5);
}

}  // namespace

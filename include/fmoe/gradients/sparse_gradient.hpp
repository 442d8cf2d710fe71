// SPDX-License-Identifier: MIT
// Gradients of tables of which tokens select rows: only the rows that were selected.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/arrays/table_rows.hpp>
#include <fmoe/arrays/tensor.hpp>
#include <fmoe/base/memory.hpp>

namespace fmoe::detail {

// Memory for the rows of a table that tokens select.
struct table_memory {
  table_memory(const sparse_result& table, extent room, extent element_bytes)
      : of(table),
        numbers(room * sizeof(std::uint32_t)),
        fresh(room * sizeof(std::uint32_t)),
        places(table.rows * sizeof(std::uint32_t)),
        values(room * table.width * element_bytes) {
    const auto all_of = [](const memory& m) { return reinterpret_cast<std::uint32_t*>(m.data()); };
    rows = {
        .numbers = all_of(numbers), .fresh = all_of(fresh), .places = all_of(places), .count = 0};
  }

  sparse_result of;
  table_rows rows;
  memory numbers, fresh, places, values;
};

}  // namespace fmoe::detail

namespace fmoe {

// The gradient of a parameter of which tokens select rows (the rows of a table, or the columns of a
// matrix): those that a token selected, and all others are 0. A step of compile_gradients makes it
// if compile_options::sparse_gradients says so, and its next call changes it. Copies share the
// elements.
template <class T>
class sparse_gradient {
 public:
  sparse_gradient(std::string name, std::vector<std::size_t> shape,
                  std::shared_ptr<const detail::table_memory> table)
      : name_(std::move(name)),
        shape_(std::move(shape)),
        table_(std::move(table)) {}

  // The name of the parameter in `released`, and its shape.
  const std::string& name() const { return name_; }
  const std::vector<std::size_t>& shape() const { return shape_; }
  // The axis of the parameter that rows count: 1 for the columns of a matrix.
  std::size_t axis() const { return table_->of.axis; }

  // The numbers of the selected rows, ascending. Each comes once.
  std::span<const std::uint32_t> rows() const { return {table_->rows.numbers, table_->rows.count}; }
  // Their elements, one row behind the other, each in the order of the other axes: the bits of the
  // gradient that is not sparse.
  std::span<T> values() const {
    return {reinterpret_cast<T*>(table_->values.data()), table_->rows.count * width()};
  }
  // The elements of a row.
  std::size_t width() const { return table_->of.width; }
  // The most rows that there is room for.
  std::size_t room() const { return table_->numbers.size() / sizeof(std::uint32_t); }

  // Returns the whole gradient, with zeros for the rows that no token selected.
  template <std::size_t Rank>
  tensor<T, Rank> dense() const {
    detail::expects<shape_error>(shape_.size() == Rank, "[gradients] ", name_, " has ",
                                 shape_.size(), " axes");
    std::array<std::size_t, Rank> shape{};
    std::copy_n(shape_.begin(), Rank, shape.begin());
    tensor<T, Rank> whole(shape);
    T* const to = detail::elements_to_write(whole);
    const std::size_t inner = detail::element_count(std::span(shape_).subspan(axis() + 1)),
                      step = inner * table_->of.rows;
    for (std::size_t place = 0; place < rows().size(); ++place)
      for (std::size_t i = 0; i < width(); i += inner)
        std::copy_n(values().data() + place * width() + i, inner,
                    to + i / inner * step + rows()[place] * inner);
    return whole;
  }

 private:
  std::string name_;
  std::vector<std::size_t> shape_;
  std::shared_ptr<const detail::table_memory> table_;
};

// The gradients that a step holds: a layer, and beside it those that are sparse, which the layer
// lacks.
template <class Layer, class T>
struct step_gradients : Layer {
  std::vector<sparse_gradient<T>> sparse{};
};

}  // namespace fmoe

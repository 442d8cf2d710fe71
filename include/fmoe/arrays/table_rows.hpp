// SPDX-License-Identifier: MIT
// Some rows of a table, which lie behind each other in the order of their numbers.
#pragma once

#include <cstdint>

#include <fmoe/base/checked.hpp>

namespace fmoe::detail {

// A result that holds only the rows of a table that tokens selected.
struct sparse_result {
  extent axis;     // of the table, which counts its rows
  extent rows;     // of the table
  extent width;    // elements of a row, in the order of the other axes
  extent a_token;  // the most rows that a token selects
};

// Which rows of a table are there. Their elements lie elsewhere.
struct table_rows {
  std::uint32_t* numbers = nullptr;  // of the rows, ascending
  std::uint32_t* fresh = nullptr;    // as much room, for the numbers of rows that come
  std::uint32_t* places = nullptr;   // by number: the place of a row and 1, or 0 if it is not there
  extent count = 0;

  // The mark of a row that comes.
  static constexpr std::uint32_t is_fresh = ~std::uint32_t{0};

  extent place_of(extent number) const { return places[number] - 1; }
};

}  // namespace fmoe::detail

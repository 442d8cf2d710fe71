// SPDX-License-Identifier: MIT
// The check of a call's arrays.
#pragma once

#include <algorithm>

#include <fmoe/arrays/overlap.hpp>
#include <fmoe/run/call_check.hpp>

namespace fmoe::detail {

FMOE_INLINE void call_check::check_shape(extent i, const array_view& v) const {
  const expected_array& x = arrays[i];
  const extent row = x.row.size();
  if (x.per_token && v.rank < row)
    fail<shape_error>(call, " ", name(i), " has ", v.rank, " axes and a row alone has ", row);
  const extent axes_of_tokens = !x.per_token ? 0 : token_axes == all ? v.rank - row : token_axes;
  if (v.rank != row + axes_of_tokens)
    fail<shape_error>(call, " ", name(i), " has ", v.rank, " axes and must have ",
                      row + axes_of_tokens);
  for (extent a = 0; a < row; ++a)
    if (v.shape[v.rank - row + a] != x.row[a])
      fail<shape_error>(call, " axis ", a, x.per_token ? " of the rows of " : " of ", name(i),
                        " is ", v.shape[v.rank - row + a], " and ", computed, "'s is ", x.row[a]);
}

FMOE_INLINE void call_check::check_elements(extent i, const array_view& v) const {
  using enum expected_array::role;
  const expected_array& x = arrays[i];
  if (x.is == widened_input ? size_of(v.type) > size_of(x.type) : v.type != x.type)
    fail<value_error>(call, " ", name(i), " is of ", name_of(v.type), " and ", computed,
                      " computes in ", name_of(x.type), ": convert it first");
  if (x.is_plain && !v.has_plain_rows(v.rank))
    fail<value_error>(call, " the elements of ", name(i), " do not follow each other in memory");
  if (x.is == output && v.repeats())
    fail<value_error>(call, " an axis of ", name(i), " has stride 0");
}

FMOE_INLINE extent call_check::operator()(function_ref<const array_view&(extent)> array) const {
  const auto has_tokens = [](const expected_array& x) { return x.per_token; };
  const auto is_counted = [](const expected_array& x) {
    return x.per_token && x.is == expected_array::role::output;
  };
  auto counted = std::ranges::find_if(arrays, is_counted);
  if (counted == arrays.end()) counted = std::ranges::find_if(arrays, has_tokens);
  const bool counts = counted != arrays.end();
  const auto at = static_cast<extent>(counted - arrays.begin());
  if (counts) check_shape(at, array(at));
  const extent tokens = counts ? array(at).tokens(counted->row.size()) : 0;
  for (extent i = 0; i < arrays.size(); ++i) {
    const array_view& v = array(i);
    check_shape(i, v);
    if (arrays[i].per_token && v.tokens(arrays[i].row.size()) != tokens)
      fail<shape_error>(call, " 't' is ", v.tokens(arrays[i].row.size()), " in ", name(i), " and ",
                        tokens, " in ", name(at));
    check_elements(i, v);
    if (arrays[i].is != expected_array::role::output || may_overlap) continue;
    for (extent k = 0; k < i; ++k)
      if (overlap(array(k), v)) fail<value_error>(call, " ", name(i), " overlaps ", name(k));
  }
  if (tokens > most_tokens)
    fail<shape_error>(call, " 't' is ", tokens, " and ", computed, " is compiled for at most ",
                      most_tokens, ": say more to compile");
  return tokens;
}

}  // namespace fmoe::detail

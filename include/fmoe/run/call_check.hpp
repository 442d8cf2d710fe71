// SPDX-License-Identifier: MIT
// The check of a call's arrays, before an element is written: ranks, shapes, types, strides,
// overlap and the number of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <fmoe/arrays/array_view.hpp>
#include <fmoe/base/function_ref.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::detail {

// An array that a call takes or writes. Inputs whose elements have fewer bits than `type` are
// widened if they may be.
struct expected_array {
  enum class role : std::uint8_t { input, widened_input, output };

  std::span<const extent> row;  // its shape without the axes of tokens
  dtype type;
  role is = role::input;
  bool per_token = true;  // otherwise it has no axis of tokens
  bool is_plain = false;  // its elements follow each other
};

struct call_check {
  const char* call;                        // what the sentences begin with: "[forward]"
  const char* computed;                    // and what they are about: "the layer"
  function_ref<std::string(extent)> name;  // of an array, in a sentence
  std::span<const expected_array> arrays;
  extent most_tokens = all;
  extent token_axes = all;   // as many as there are, or 1
  bool may_overlap = false;  // all inputs are read before an output is written

  // Returns the tokens of a call, which are those of the first output that has any, or of the first
  // array; 0 if there are none. Throws shape_error or value_error; allocates nothing unless it
  // does.
  extent operator()(function_ref<const array_view&(extent)> array) const;

 private:
  void check_shape(extent i, const array_view& v) const;
  void check_elements(extent i, const array_view& v) const;
};

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/run/call_check-inl.hpp>
#endif

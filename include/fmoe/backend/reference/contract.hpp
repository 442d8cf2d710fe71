// SPDX-License-Identifier: MIT
// A sum of products over named axes, by one loop for each name. Loops take elements of vectors by
// pointers, which makes tests without optimisation several times as fast.
#pragma once

#include <array>
#include <functional>
#include <string_view>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/checked.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::reference_backend {

// The position of each label, by its character.
using positions = std::array<extent, 128>;

inline extent index_of(char label) { return static_cast<unsigned char>(label); }

// The elements of one operand, row-major, and the names of its axes. A label that occurs twice
// names the diagonal.
struct labelled {
  const double* data;
  const vector<extent>& shape;
  axis_labels labels;

  // Returns the elements from one place of a label to the next; 0 for a label that the operand does
  // not have.
  extent stride(char label) const {
    extent n = 1, sum = 0;
    for (extent i = labels.size(); i-- > 0; n *= shape[i])
      if (labels[i] == label) sum += n;
    return sum;
  }
};

class contraction {
 public:
  // `length` is that of each label. A label of `fixed` stays where `at` has it.
  contraction(vector<labelled> in, axis_labels result, const positions& length,
              std::string_view fixed = {}, const positions& at = {})
      : in_(std::move(in)),
        length_(length),
        at_(at) {
    loops_ = result;
    results_ = result.size();
    for (const labelled& x : in_)
      for (const char c : x.labels)
        if (loops_.find(c) == loops_.npos && fixed.find(c) == fixed.npos) loops_ += c;
    for (const char c : loops_)
      for (const labelled& x : in_) strides_.push_back(x.stride(c));
    for (const labelled& x : in_) {
      extent first = 0;
      for (const char c : fixed) first += x.stride(c) * at[index_of(c)];
      offsets_.push_back(first);
    }
  }

  // Only the terms that `counts` accepts count; all count if it is empty.
  std::function<bool(const positions&)> counts;

  // Writes one sum for each place of the result.
  void run(double* result) {
    to_ = result;
    each_result(0);
  }

 private:
  // Calls f at each position of loop k.
  template <class F>
  void loop(extent k, F f) {
    const extent n = length_[index_of(loops_[k])], operands = in_.size();
    const extent* const strides = strides_.data() + k * operands;
    extent* const offsets = offsets_.data();
    extent& at = at_[index_of(loops_[k])];
    for (at = 0; at < n; ++at) {
      f();
      for (extent i = 0; i < operands; ++i) offsets[i] += strides[i];
    }
    for (extent i = 0; i < operands; ++i) offsets[i] -= n * strides[i];
  }

  void each_result(extent k) {
    if (k == results_) {
      sum_ = 0;
      each_term(k);
      *to_++ = sum_;
    } else {
      loop(k, [&] { each_result(k + 1); });
    }
  }

  void each_term(extent k) {
    if (k < loops_.size()) return loop(k, [&] { each_term(k + 1); });
    if (counts && !counts(at_)) return;
    const labelled* const in = in_.data();
    const extent* const offsets = offsets_.data();
    double product = 1;
    for (extent i = 0, operands = in_.size(); i < operands; ++i) product *= in[i].data[offsets[i]];
    sum_ += product;
  }

  vector<labelled> in_;
  positions length_, at_;
  axis_labels loops_;  // the result's labels, then those that are summed
  extent results_;
  vector<extent> strides_;  // by loop and operand
  vector<extent> offsets_;  // by operand
  double sum_ = 0;
  double* to_ = nullptr;
};

}  // namespace fmoe::reference_backend

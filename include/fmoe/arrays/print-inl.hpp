// SPDX-License-Identifier: MIT
// The text of a tensor.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include <fmoe/arrays/print.hpp>

namespace fmoe::detail {

// Makes the text of one tensor. It visits the shown elements twice, to learn the widest number and
// to write each as wide as that.
class tensor_printer {
 public:
  explicit tensor_printer(const any_tensor& t) : t_(t), shortened_(count(t.shape) > most_shown) {}

  std::string text() {
    visit(0, 0, [this](extent at) { width_ = std::max(width_, number(at).size()); });
    print(0, 0);
    return std::move(text_);
  }

 private:
  static constexpr extent most_shown = 1000, edge = 3;

  static extent count(std::span<const extent> shape) {
    extent n = 1;
    for (const extent length : shape) n *= length;
    return n;
  }

  bool is_cut(extent axis) const { return shortened_ && t_.shape[axis] > 2 * edge; }

  // Calls f(position) for each shown position of an axis, in order, and dots() at a cut.
  void for_each_shown(extent axis, const auto& f, const auto& dots) const {
    const extent length = t_.shape[axis];
    for (extent i = 0; i < length; ++i) {
      if (is_cut(axis) && i == edge) {
        dots();
        i = length - edge;
      }
      f(i);
    }
  }

  // Calls f(place in memory) for each shown element of the part of the tensor that begins at `at`.
  void visit(extent axis, extent at, const auto& f) const {
    if (axis == t_.shape.size()) return f(at);
    for_each_shown(axis, [&](extent i) { visit(axis + 1, at + i * stride(axis), f); }, [] {});
  }

  void print(extent axis, extent at) {
    if (axis == t_.shape.size()) {
      const std::string n = number(at);
      text_.append(width_ - n.size(), ' ') += n;
      return;
    }
    const extent inner_axes = t_.shape.size() - axis - 1;
    const auto separate = [&] {
      if (text_.back() == '[') return;
      if (inner_axes == 0) text_ += ' ';
      else text_.append(inner_axes, '\n').append(axis + 1, ' ');
    };
    text_ += '[';
    for_each_shown(
        axis,
        [&](extent i) {
          separate();
          print(axis + 1, at + i * stride(axis));
        },
        [&] {
          separate();
          text_ += "...";
        });
    text_ += ']';
  }

  extent stride(extent axis) const { return count(std::span(t_.shape).subspan(axis + 1)); }

  std::string number(extent at) const {
    double x = 0;
    with_numbers<double>(t_.numbers(), [&](const auto& number) { x = number(at); });
    if (std::isnan(x)) return "nan";  // of either sign
    char digits[32];
    const auto end = std::to_chars(digits, digits + 32, x, std::chars_format::general, 6).ptr;
    return {digits, end};
  }

  const any_tensor& t_;
  const bool shortened_;
  extent width_ = 0;
  std::string text_;
};

FMOE_INLINE std::string text_of(const any_tensor& t) {
  return t.empty() ? "(empty)" : tensor_printer(t).text();
}

}  // namespace fmoe::detail

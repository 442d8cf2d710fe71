// SPDX-License-Identifier: MIT
// The labels of an operand's axes, such as "ti", as a value that has no memory of its own: copies
// cannot throw and nothing is destroyed, so an operand costs a compiler less than with std::string.
#pragma once

#include <algorithm>
#include <concepts>
#include <stdexcept>
#include <string_view>

#include <fmoe/base/checked.hpp>

namespace fmoe::detail {

class axis_labels {
 public:
  static constexpr extent npos = std::string_view::npos;
  static constexpr extent most = 63;  // there are 52 letters

  axis_labels() noexcept = default;
  template <std::convertible_to<std::string_view> Text>
  axis_labels(const Text& text) {
    *this += text;
  }
  axis_labels(extent count, char label) {
    for (; count > 0; --count) *this += label;
  }

  operator std::string_view() const noexcept { return {letters_, size_}; }
  const char* begin() const noexcept { return letters_; }
  const char* end() const noexcept { return letters_ + size_; }
  extent size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  char& operator[](extent i) noexcept { return letters_[i]; }
  char operator[](extent i) const noexcept { return letters_[i]; }
  char back() const noexcept { return letters_[size_ - 1]; }

  // The place of a label, npos if there is none.
  extent find(char label) const noexcept { return view().find(label); }
  axis_labels substr(extent first, extent count = npos) const {
    return view().substr(first, count);
  }
  bool ends_with(std::string_view text) const noexcept { return view().ends_with(text); }

  // Throws std::length_error if there are too many.
  axis_labels& operator+=(std::string_view text) {
    for (const char label : text) *this += label;
    return *this;
  }
  axis_labels& operator+=(char label) {
    if (size_ == most) throw std::length_error("fmoe: labels of an operand");
    letters_[size_++] = label;
    return *this;
  }
  void insert(extent at, char label) { *this = substr(0, at) + label + substr(at); }
  void erase(char label) noexcept {
    size_ = static_cast<unsigned char>(std::remove(letters_, letters_ + size_, label) - letters_);
  }

  friend axis_labels operator+(axis_labels a, std::string_view b) { return a += b; }
  friend axis_labels operator+(axis_labels a, char b) { return a += b; }
  friend axis_labels operator+(char a, std::string_view b) { return axis_labels(1, a) += b; }
  template <std::convertible_to<std::string_view> Text>
  friend bool operator==(const axis_labels& a, const Text& b) noexcept {
    return a.view() == std::string_view(b);
  }

 private:
  std::string_view view() const noexcept { return *this; }

  char letters_[most]{};
  unsigned char size_ = 0;
};

}  // namespace fmoe::detail

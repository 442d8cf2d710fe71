// SPDX-License-Identifier: MIT
// Compares the results of a layer with those of the authors' code in double: max|y - y64| /
// max|y64| over the tensor and over the worst row, and the experts that a row selects. A number
// made of all bits tells whether two machines have the same results.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <fmoe/tensor.hpp>

namespace fmoe::golden {

struct deviation {
  double tensor = 0, row = 0;
};

template <class T>
inline deviation limit = {1e-12, std::numeric_limits<double>::infinity()};
// Arithmetic that rounds more than float has another one. What is selected has not.
inline constexpr deviation float_limit = {2e-6, 6e-6};
template <>
inline deviation limit<float> = float_limit;

inline std::string text_of(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", x);
  return text;
}

// Infinite if a row or tensor of zeros is not met exactly, and if only one of the two is a NaN or
// the same infinity. Errors up to two units in the last place of the row's magnitude, if given,
// count as none.
template <class T>
deviation deviation_of(const tensor<T, 2>& y, const tensor<double, 2>& expected,
                       const std::vector<double>& magnitudes) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto ratio = [](double error, double norm) {
    return error == 0 ? 0 : norm == 0 ? infinity : error / norm;
  };
  deviation result;
  double worst_error = 0, largest = 0;
  for (extent t = 0; t < expected.shape()[0]; ++t) {
    double error = 0, norm = 0;
    for (extent o = 0; o < expected.shape()[1]; ++o) {
      const double a = static_cast<double>(y(t, o)), b = expected(t, o);
      if (std::isfinite(b)) norm = std::max(norm, std::abs(b));
      if (std::isfinite(a) && std::isfinite(b)) error = std::max(error, std::abs(a - b));
      else if (!(std::isnan(a) && std::isnan(b)) && a != b) error = infinity;
    }
    if (norm != 0 && !magnitudes.empty() &&
        error <= 2 * static_cast<double>(std::numeric_limits<T>::epsilon()) * magnitudes[t])
      error = 0;
    if (norm == 0 && error != 0) result.tensor = infinity;
    result.row = std::max(result.row, ratio(error, norm));
    worst_error = std::max(worst_error, error);
    largest = std::max(largest, norm);
  }
  result.tensor = std::max(result.tensor, ratio(worst_error, largest));
  return result;
}

class report {
 public:
  void fault(const std::string& text) { faults_.push_back(text); }
  const std::vector<std::string>& faults() const { return faults_; }
  bool passed() const { return faults_.empty(); }

  // Both are [rows, columns]. `name` is "y" for the output of the layer, which the line of the case
  // shows. A row of intermediates may be a few sums that nearly cancel: `magnitudes` are its
  // largest sums of absolute values.
  template <class T>
  void compare(const std::string& name, const tensor<T, 2>& found,
               const tensor<double, 2>& expected, const std::vector<double>& magnitudes = {}) {
    for (extent i = 0; i < found.size(); ++i) count_bits(found.data()[i]);
    judge(name, found, expected, magnitudes);
  }

  // The same for numbers that the bits of the line leave out, because another library made them.
  template <class T>
  void judge(const std::string& name, const tensor<T, 2>& found, const tensor<double, 2>& expected,
             const std::vector<double>& magnitudes = {}) {
    const std::string what = label<T>(name);
    if (found.shape() != expected.shape()) {
      fault(what + " is " + shape_text(found.shape()) + " and " + shape_text(expected.shape()) +
            " is expected");
      return;
    }
    const deviation d = deviation_of(found, expected, magnitudes);
    if (name == "y") (std::is_same_v<T, float> ? single_ : double_) = d;
    // not "above": a NaN is a fault
    if (!(d.tensor <= limit<T>.tensor))
      fault(what + " is off by " + text_of(d.tensor) + " of the largest");
    if (!(d.row <= limit<T>.row))
      fault(what + " is off by " + text_of(d.row) + " of a row's largest");
  }

  // Gradients are compared by tensor: `found` is one of T, as doubles.
  template <class T>
  void compare_gradient(const std::string& name, const std::vector<double>& found,
                        const std::vector<double>& expected) {
    double worst = 0, largest = 0;
    for (const double x : found) count_bits(x);
    for (extent i = 0; i < std::min(found.size(), expected.size()); ++i) {
      const double error = std::abs(found[i] - expected[i]);
      worst = std::max(worst, std::isnan(error) ? INFINITY : error);
      largest = std::max(largest, std::abs(expected[i]));
    }
    const double ratio = worst == 0 ? 0 : worst / largest;
    const double most = std::is_same_v<T, float> ? std::max(1e-5, limit<T>.tensor) : 1e-13;
    if (found.size() != expected.size() || !(ratio <= most))
      fault(label<T>("gradient of ") + name + " is off by " + text_of(ratio) + " of the largest");
    ++gradients_;
  }
  extent gradients() const { return gradients_; }

  // Checks that the same columns of each row are nonzero. Columns are not compared where the larger
  // of the two values is below the limit of what can be told from zero.
  template <class T>
  void compare_selection(const std::string& name, const tensor<T, 2>& found,
                         const tensor<double, 2>& expected) {
    if (found.shape() != expected.shape()) return;
    for (extent t = 0; t < expected.shape()[0]; ++t) {
      double norm = 0;
      for (extent n = 0; n < expected.shape()[1]; ++n)
        norm = std::max(norm, std::abs(expected(t, n)));
      for (extent n = 0; n < expected.shape()[1]; ++n) {
        const double a = static_cast<double>(found(t, n)), b = expected(t, n);
        if ((a != 0) == (b != 0) || std::max(std::abs(a), std::abs(b)) < float_limit.row * norm)
          continue;
        fault(label<T>(name) + " row " + std::to_string(t) +
              (a != 0 ? " selects " : " does not select ") + std::to_string(n));
        return;
      }
    }
  }

  std::string text() const {
    const auto column = [](const char* type, const deviation& d) {
      return std::string(type) + ' ' + text_of(d.tensor) + " row " + text_of(d.row);
    };
    return column("float", single_) + "   " + column("double", double_) +
           (gradients_ == 0 ? "" : "   " + std::to_string(gradients_) + " gradients") + "   bits " +
           bits_text();
  }

 private:
  // FNV-1a of all numbers that are compared. All NaNs count as one: CPUs make different ones.
  template <class T>
  void count_bits(T x) {
    using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const std::uint64_t number = x == x ? std::bit_cast<word>(x) : ~std::uint64_t{0};
    bits_ = (bits_ ^ number) * 0x100000001b3u;
  }
  std::string bits_text() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits_));
    return text;
  }

  template <class T>
  static std::string label(const std::string& name) {
    return (std::is_same_v<T, float> ? "float " : "double ") + name;
  }
  static std::string shape_text(const std::array<extent, 2>& s) {
    return '[' + std::to_string(s[0]) + ", " + std::to_string(s[1]) + ']';
  }

  static constexpr double unknown_yet = std::numeric_limits<double>::quiet_NaN();
  deviation single_{unknown_yet, unknown_yet}, double_{unknown_yet, unknown_yet};
  std::vector<std::string> faults_;
  extent gradients_ = 0;  // compared
  std::uint64_t bits_ = 0xcbf29ce484222325u;
};

}  // namespace fmoe::golden

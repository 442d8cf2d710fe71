// SPDX-License-Identifier: MIT
// A function of one number: one of the library's with its parameter, or one of the user's.
#pragma once

#include <memory>
#include <string>

#include <fmoe/base/functions.hpp>

namespace fmoe::detail {

// A function of the user's, for a run of numbers in place.
struct own_function {
  explicit own_function(std::string n, std::shared_ptr<const own_function> derivative = nullptr)
      : name(std::move(n)),
        slope(std::move(derivative)) {}
  virtual ~own_function() = default;

  virtual void apply(float* x, extent n) const = 0;
  virtual void apply(double* x, extent n) const = 0;

  std::string name;
  std::shared_ptr<const own_function> slope;  // the derivative, if it is known
};

struct number_function {
  pointwise fn{};
  double parameter = 0;
  std::shared_ptr<const own_function> own{};  // if there is one, it stands for fn

  const char* name() const { return own != nullptr ? own->name.c_str() : name_of(fn); }
  bool operator==(const number_function&) const = default;
};

}  // namespace fmoe::detail

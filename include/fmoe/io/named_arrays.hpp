// SPDX-License-Identifier: MIT
// The arrays of a file, by name.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmoe/io/array.hpp>

namespace fmoe::io {

class named_arrays {
 public:
  const std::filesystem::path& file() const { return *file_; }

  // Ordered by name; valid as long as this object.
  std::span<const array> arrays() const& { return arrays_; }
  template <class Self = named_arrays>
  std::span<const array> arrays() const&& {
    static_assert(never<Self>, "io: the file is a temporary, and its arrays end with it");
    return arrays_;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const array& a : arrays_) result.push_back(a.name());
    return result;
  }
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  // Returns null if there is none; valid as long as this object.
  const array* find(std::string_view name) const& {
    const auto at = std::ranges::lower_bound(arrays_, name, {}, &array::name);
    return at != arrays_.end() && at->name() == name ? &*at : nullptr;
  }
  template <class Self = named_arrays>
  const array* find(std::string_view) const&& {
    static_assert(never<Self>, "io: the file is a temporary, and its arrays end with it");
    return nullptr;
  }

  // Throws missing_tensor.
  array at(std::string_view name) const {
    if (const array* found = find(name)) return *found;
    throw error(errc::missing_tensor, "is missing", 0, std::string(name), *file_);
  }

  // The next functions work like array::get and array::integers.
  template <class T, std::size_t Rank>
  tensor<T, Rank> get(std::string_view name, narrowing may = narrowing::refuse) const {
    return at(name).template get<T, Rank>(may);
  }
  template <class T, std::size_t Rank>
  tensor<T, Rank> get(std::string_view name, const std::array<extent, Rank>& expected,
                      narrowing may = narrowing::refuse) const {
    return at(name).template get<T, Rank>(expected, may);
  }
  template <class T, class... Arguments>
  tensor<T, 1> get(std::string_view, const Arguments&...) const {
    static_assert(never<T>, "get: say the number of axes, too, as in get<float, 2>(name)");
    return {};
  }
  template <integer I>
  std::vector<I> integers(std::string_view name) const {
    return at(name).template integers<I>();
  }

 protected:
  explicit named_arrays(std::filesystem::path file)
      : file_(std::make_shared<const std::filesystem::path>(std::move(file))) {}

  // Takes the arrays of the file, in any order.
  void hold(std::vector<array> arrays) {
    arrays_ = std::move(arrays);
    std::ranges::sort(arrays_, {}, &array::name);
  }
  const std::shared_ptr<const std::filesystem::path>& shared_file() const { return file_; }

 private:
  std::shared_ptr<const std::filesystem::path> file_;
  std::vector<array> arrays_;
};

}  // namespace fmoe::io

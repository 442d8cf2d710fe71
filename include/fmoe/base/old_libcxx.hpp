// SPDX-License-Identifier: MIT
// The algorithms of std::ranges that fmoe and its tests call, for LLVM's libc++ 14 and 15, which
// lack them. A program may not add names to namespace std, but these releases get no others. Each
// calls the algorithm of iterators that has its name, and takes a whole range.
#pragma once

#include <version>
#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 16000 && !defined(__cpp_lib_ranges)

#include <algorithm>
#include <functional>
#include <iterator>
#include <random>
#include <ranges>
#include <type_traits>
#include <utility>

namespace fmoe::detail {

// What an algorithm of iterators calls in place of f: f of projections.
template <class F, class Projection>
auto of_projected(F& f, Projection& projection) {
  return [&f, &projection](auto&&... x) -> decltype(auto) {
    return std::invoke(f, std::invoke(projection, std::forward<decltype(x)>(x))...);
  };
}
// Numbers are compared in the type of the range, without a warning.
template <class T, class Projection>
auto equals_projected(const T& value, Projection& projection) {
  return [&value, &projection](auto&& x) -> bool {
    const auto& item = std::invoke(projection, std::forward<decltype(x)>(x));
    using type = std::remove_cvref_t<decltype(item)>;
    if constexpr (std::is_arithmetic_v<type> && std::is_arithmetic_v<T>)
      return item == static_cast<type>(value);
    else return item == value;
  };
}

}  // namespace fmoe::detail

namespace std::ranges {

using fmoe::detail::equals_projected, fmoe::detail::of_projected;

template <class R, class F, class Projection = identity>
constexpr bool all_of(R&& r, F f, Projection projection = {}) {
  return std::all_of(ranges::begin(r), ranges::end(r), of_projected(f, projection));
}
template <class R, class F, class Projection = identity>
constexpr bool any_of(R&& r, F f, Projection projection = {}) {
  return std::any_of(ranges::begin(r), ranges::end(r), of_projected(f, projection));
}
template <class R, class F, class Projection = identity>
constexpr bool none_of(R&& r, F f, Projection projection = {}) {
  return std::none_of(ranges::begin(r), ranges::end(r), of_projected(f, projection));
}
template <class R, class F, class Projection = identity>
constexpr void for_each(R&& r, F f, Projection projection = {}) {
  std::for_each(ranges::begin(r), ranges::end(r), of_projected(f, projection));
}

template <class R, class T, class Projection = identity>
constexpr auto count(R&& r, const T& value, Projection projection = {}) {
  return std::count_if(ranges::begin(r), ranges::end(r), equals_projected(value, projection));
}
template <class R, class F, class Projection = identity>
constexpr auto count_if(R&& r, F f, Projection projection = {}) {
  return std::count_if(ranges::begin(r), ranges::end(r), of_projected(f, projection));
}
template <class R, class T, class Projection = identity>
constexpr auto find(R&& r, const T& value, Projection projection = {}) {
  return std::find_if(ranges::begin(r), ranges::end(r), equals_projected(value, projection));
}
template <class R, class F, class Projection = identity>
constexpr auto find_if(R&& r, F f, Projection projection = {}) {
  return std::find_if(ranges::begin(r), ranges::end(r), of_projected(f, projection));
}
template <class R>
constexpr auto distance(R&& r) {
  return std::distance(ranges::begin(r), ranges::end(r));
}
template <class R, class S, class F = std::equal_to<>, class Left = identity,
          class Right = identity>
constexpr bool equal(R&& r, S&& s, F f = {}, Left left = {}, Right right = {}) {
  return std::equal(ranges::begin(r), ranges::end(r), ranges::begin(s), ranges::end(s),
                    [&](const auto& x, const auto& y) -> bool {
                      return std::invoke(f, std::invoke(left, x), std::invoke(right, y));
                    });
}
template <class R, class F = std::equal_to<>>
constexpr auto adjacent_find(R&& r, F f = {}) {
  return std::adjacent_find(ranges::begin(r), ranges::end(r), f);
}

template <class R, class Less = std::less<>, class Projection = identity>
constexpr auto max_element(R&& r, Less before = {}, Projection projection = {}) {
  return std::max_element(ranges::begin(r), ranges::end(r), of_projected(before, projection));
}
template <class R, class Less = std::less<>, class Projection = identity>
constexpr auto min_element(R&& r, Less before = {}, Projection projection = {}) {
  return std::min_element(ranges::begin(r), ranges::end(r), of_projected(before, projection));
}
template <class R, class Less = std::less<>, class Projection = identity>
constexpr auto max(R&& r, Less before = {}, Projection projection = {}) {
  return *ranges::max_element(r, before, projection);
}
template <class R, class Less = std::less<>, class Projection = identity>
constexpr auto min(R&& r, Less before = {}, Projection projection = {}) {
  return *ranges::min_element(r, before, projection);
}

template <class R, class Less = std::less<>, class Projection = identity>
constexpr void sort(R&& r, Less before = {}, Projection projection = {}) {
  std::sort(ranges::begin(r), ranges::end(r), of_projected(before, projection));
}
template <class R, class Less = std::less<>, class Projection = identity>
constexpr void stable_sort(R&& r, Less before = {}, Projection projection = {}) {
  std::stable_sort(ranges::begin(r), ranges::end(r), of_projected(before, projection));
}
template <class R, class Less = std::less<>, class Projection = identity>
constexpr void sort_heap(R&& r, Less before = {}, Projection projection = {}) {
  std::sort_heap(ranges::begin(r), ranges::end(r), of_projected(before, projection));
}
template <class R, class Less = std::less<>, class Projection = identity>
constexpr bool is_sorted(R&& r, Less before = {}, Projection projection = {}) {
  return std::is_sorted(ranges::begin(r), ranges::end(r), of_projected(before, projection));
}
template <class R, class T, class Less = std::less<>, class Projection = identity>
constexpr auto lower_bound(R&& r, const T& value, Less before = {}, Projection projection = {}) {
  return std::lower_bound(ranges::begin(r), ranges::end(r), value,
                          [&](const auto& x, const T& limit) {
                            return std::invoke(before, std::invoke(projection, x), limit);
                          });
}
template <class R, class T, class Less = std::less<>>
constexpr bool binary_search(R&& r, const T& value, Less before = {}) {
  return std::binary_search(ranges::begin(r), ranges::end(r), value, before);
}

template <class R, class T>
constexpr void fill(R&& r, const T& value) {
  std::fill(ranges::begin(r), ranges::end(r), value);
}
template <class Out>
struct out_result {
  Out out;
};
template <class R, class Out>
constexpr out_result<Out> copy(R&& r, Out out) {
  return {std::copy(ranges::begin(r), ranges::end(r), out)};
}
template <class R, class Out>
constexpr void move(R&& r, Out out) {
  std::move(ranges::begin(r), ranges::end(r), out);
}
template <class R, class Out, class F>
constexpr void transform(R&& r, Out out, F f) {
  std::transform(ranges::begin(r), ranges::end(r), out, std::ref(f));
}
template <class R>
constexpr void reverse(R&& r) {
  std::reverse(ranges::begin(r), ranges::end(r));
}
template <class R, class Engine>
void shuffle(R&& r, Engine&& engine) {
  std::shuffle(ranges::begin(r), ranges::end(r), engine);
}

}  // namespace std::ranges

#endif

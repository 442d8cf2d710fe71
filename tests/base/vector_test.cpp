// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmoe/base/vector.hpp>
#include "../support/catch.hpp"

using fmoe::detail::extent;

namespace {

template <class T>
using list = fmoe::detail::vector<T>;

// A number in memory of its own, of which all are counted that live. Copies throw when as many
// were made as may be.
struct counted {
  static inline int living = 0, copies_left = 1000;

  std::unique_ptr<int> number;

  counted(int n = 0) : number(std::make_unique<int>(n)) { ++living; }
  counted(const counted& o) : number(std::make_unique<int>(*o.number)) {
    if (copies_left-- == 0) throw 1;
    ++living;
  }
  counted(counted&& o) noexcept : number(std::move(o.number)) { ++living; }
  counted& operator=(counted o) noexcept {
    number = std::move(o.number);
    return *this;
  }
  ~counted() { --living; }
  friend bool operator==(const counted& a, const counted& b) { return *a.number == *b.number; }
};

// Calls f while the copy after so many throws. Returns whether it threw.
bool throws_after(int copies, const auto& f) {
  counted::copies_left = copies;
  bool thrown = false;
  try {
    f();
  } catch (int) {
    thrown = true;
  }
  counted::copies_left = 1000;
  return thrown;
}

// An element whose moves may throw, so that growth copies.
struct throws_in_moves : counted {
  using counted::counted;
  throws_in_moves(const throws_in_moves&) = default;
  throws_in_moves(throws_in_moves&& o) noexcept(false) : counted(std::move(o)) {}
};

struct tree {
  int number = 0;
  list<tree> branches{};
  friend bool operator==(const tree&, const tree&) = default;
};

}  // namespace

TEST_CASE("a vector is made of numbers of elements, lists, iterators and other arrays") {
  CHECK(list<int>().empty());
  CHECK(list<int>(3) == list<int>{0, 0, 0});
  CHECK(list<extent>(2, 7) == list<extent>{7, 7});
  const std::vector<int> from{1, 2, 3};
  CHECK(list<int>(from.begin(), from.end()) == list<int>{1, 2, 3});
  CHECK(list<int>(from) == from);
  CHECK(list<int>(std::array{1, 2, 3}) == from);
  CHECK(list<int>(std::span(from).first(2)) == list<int>{1, 2});
  CHECK(list<bool>{true, false}.data()[0]);
  STATIC_REQUIRE(std::is_same_v<decltype(fmoe::detail::vector{1, 2}), list<int>>);
}

TEST_CASE("a vector grows, shrinks and keeps its elements") {
  list<std::string> v;
  for (int i = 0; i < 100; ++i) {
    v.push_back(std::to_string(i) + std::string(20, ' '));
    CHECK(v.size() == static_cast<extent>(i) + 1);
  }
  CHECK(v.capacity() >= 100);
  for (int i = 0; i < 100; ++i) CHECK(v[static_cast<extent>(i)].starts_with(std::to_string(i)));
  v.emplace_back(extent{3}, 'x') += "y";
  CHECK(v.back() == "xxxy");
  v.pop_back();
  v.resize(1);
  CHECK(v.front() == v.back());
  v.resize(3, "z");
  v.resize(4);
  CHECK(v == list<std::string>{v[0], "z", "z", ""});
  v.clear();
  CHECK(v.empty());
}

TEST_CASE("elements are inserted and erased anywhere") {
  list<int> v{1, 4};
  CHECK(*v.insert(v.begin() + 1, 2) == 2);
  CHECK(*v.insert(v.end(), 5) == 5);
  CHECK(*v.insert(v.begin(), 0) == 0);
  CHECK(v == list<int>{0, 1, 2, 4, 5});
  const std::array more{7, 8};
  v.insert(v.begin() + 2, more.begin(), more.end());
  CHECK(v == list<int>{0, 1, 7, 8, 2, 4, 5});
  CHECK(*v.erase(v.begin()) == 1);
  const int* const behind = v.erase(v.end() - 2, v.end());
  CHECK(behind == v.end());
  CHECK(v.erase(v.begin() + 1, v.begin() + 1) == v.begin() + 1);
  CHECK(*v.erase(v.begin() + 1, v.begin() + 3) == 2);
  CHECK(v == list<int>{1, 2});
}

TEST_CASE("an element of a vector is added to it, whether or not it grows") {
  list<std::string> v{std::string(30, 'a'), "b"};
  for (int i = 0; i < 20; ++i) v.push_back(v[0]);
  for (int i = 0; i < 20; ++i) v.insert(v.begin() + 1, v.back());
  for (int i = 0; i < 20; ++i) v.emplace_back(v[0]);
  v.resize(v.size() + 40, v[0]);
  CHECK(std::ranges::count(v, std::string(30, 'a')) == 101);
}

TEST_CASE("a vector is a value: copies are apart, moves leave nothing") {
  const auto shared = std::make_shared<int>(1);
  {
    list<std::shared_ptr<int>> a(3, shared), b = a;
    CHECK(a == b);
    CHECK(shared.use_count() == 7);
    b.push_back(nullptr);
    CHECK(a != b);
    list<std::shared_ptr<int>> c = std::move(b);
    CHECK(b.empty());
    CHECK(shared.use_count() == 7);
    a = *&a;  // to itself
    a = c;
    CHECK(a == c);
    CHECK(shared.use_count() == 7);
    c = {shared};
    CHECK(shared.use_count() == 5);
    c = {};
    a = std::move(c);
    CHECK(a.empty());
  }
  CHECK(shared.use_count() == 1);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<list<int>>);
  STATIC_REQUIRE(std::is_nothrow_move_assignable_v<list<int>>);

  const tree a{1, {{2, {}}, {3, {{4, {}}}}}};
  tree b = a;
  CHECK(a == b);
  b.branches[1].branches.clear();
  CHECK(a != b);
}

TEST_CASE("elements may be types that only move") {
  list<std::unique_ptr<int>> v;
  for (int i = 0; i < 10; ++i) v.push_back(std::make_unique<int>(i));
  v.insert(v.begin(), std::make_unique<int>(-1));
  v.erase(v.begin() + 1);
  v.resize(12);
  CHECK(*v[0] == -1);
  CHECK(*v[9] == 9);
  CHECK(v[11] == nullptr);
  const auto moved = std::move(v);
  CHECK(moved.size() == 12);
}

TEST_CASE("each element is destroyed once") {
  {
    list<counted> v;
    for (int i = 0; i < 9; ++i) v.push_back(i);
    CHECK(counted::living == 9);
    v.erase(v.begin() + 2, v.begin() + 5);
    v.insert(v.begin(), 3);
    v.reserve(100);
    CHECK(counted::living == 7);
    const list<counted> copy = v;
    v.resize(2);
    CHECK(counted::living == 9);
    v = copy;
    CHECK(counted::living == 14);
  }
  CHECK(counted::living == 0);
}

TEST_CASE("what a copy that throws had made is destroyed, and the vector is as it was") {
  {
    const list<counted> from{1, 2, 3, 4};
    for (int copies = 0; copies < 4; ++copies) {
      CHECK(throws_after(copies, [&] { const list<counted> copy = from; }));
      CHECK(throws_after(copies, [&] { const list<counted> copy(4, from[0]); }));
      CHECK(throws_after(copies, [&] { const list<counted> copy(from.begin(), from.end()); }));
      list<counted> v{7};
      CHECK(throws_after(copies, [&] { v = from; }));
      CHECK(v == list<counted>{7});
      CHECK(counted::living == 5);
    }
    list<counted> v{7};
    CHECK(throws_after(0, [&] { v.push_back(from[0]); }));
    CHECK(throws_after(0, [&] { v.insert(v.begin(), from[0]); }));
    CHECK(v == list<counted>{7});

    list<throws_in_moves> copied;
    while (copied.size() < 5 || copied.size() < copied.capacity()) copied.emplace_back(1);
    const extent n = copied.size();
    CHECK(throws_after(2, [&] { copied.reserve(n + 1); }));
    CHECK(copied == list<throws_in_moves>(n, 1));
    copied.reserve(n + 1);
    CHECK(copied == list<throws_in_moves>(n, 1));
  }
  CHECK(counted::living == 0);
}

TEST_CASE("a vector that finds no memory is as it was") {
  list<extent> v{1, 2};
  CHECK_THROWS_AS(v.reserve(~extent{0}), std::bad_alloc);
  CHECK_THROWS_AS(v.reserve(~extent{0} / 8 + 2), std::bad_alloc);
  CHECK_THROWS_AS(list<extent>(~extent{0} / 4), std::bad_alloc);
  CHECK(v == list<extent>{1, 2});
}

TEST_CASE("a class that has a vector can fail to be copied, and not to be moved") {
  struct derived : list<int> {};  // clang says of it what the operators of the vector say
  STATIC_REQUIRE(!std::is_nothrow_copy_assignable_v<derived>);
  STATIC_REQUIRE(!std::is_nothrow_copy_constructible_v<derived>);
  STATIC_REQUIRE(std::is_nothrow_move_assignable_v<derived>);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<derived>);
}

TEST_CASE("ranges and spans take a vector") {
  list<int> v{3, 1, 2};
  STATIC_REQUIRE(std::ranges::contiguous_range<list<int>>);
  std::ranges::sort(v);
  CHECK(v == list<int>{1, 2, 3});
  CHECK(std::span(v).last(2)[0] == 2);
  const std::span<const int> view = std::as_const(v);
  CHECK(view.data() == v.data());
  CHECK(std::ranges::equal(v, std::array{1, 2, 3}));
}

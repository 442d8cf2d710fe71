// SPDX-License-Identifier: MIT
// A sequence of elements side by side in memory, with the functions of std::vector that graphs,
// programs and plans need. Iterators are pointers, elements are taken by value, and memory grows in
// a function that is never inlined, so that a sequence of one more type costs a compiler little.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/compiler.hpp>

namespace fmoe::detail {

// The memory of a vector. These functions need no type of its elements, so they are compiled once.
struct vector_memory {
  void* begin = nullptr;
  void* end = nullptr;    // of the elements
  void* limit = nullptr;  // of the memory

  // Throws std::bad_alloc.
  FMOE_NOINLINE void allocate(extent count, extent bytes_each) {
    extent bytes = 0;
    if (!multiply(count, bytes_each, bytes)) throw std::bad_array_new_length();
    begin = end = ::operator new(bytes);
    limit = static_cast<std::byte*>(begin) + bytes;
  }
  // Adds a copy of some bytes, for which there is room.
  void add(const void* from, extent bytes) noexcept {
    if (bytes != 0) std::memcpy(end, from, bytes);
    end = static_cast<std::byte*>(end) + bytes;
  }
  // Moves elements that are copied as bytes to larger memory.
  FMOE_NOINLINE void grow(extent count, extent bytes_each) {
    vector_memory larger;
    larger.allocate(count, bytes_each);
    larger.add(begin,
               static_cast<extent>(static_cast<std::byte*>(end) - static_cast<std::byte*>(begin)));
    ::operator delete(begin);
    *this = larger;
  }
  // Becomes a copy of some elements, from none.
  FMOE_NOINLINE void copy(const void* from, extent count, extent bytes_each) {
    if (count == 0) return;
    allocate(count, bytes_each);
    add(from, count * bytes_each);
  }
};

// A type with elements of type T side by side in memory, such as std::vector, std::array,
// std::span.
template <class Range, class T>
concept contiguous_range_of = requires(const Range& range) {
  { range.data() } -> std::convertible_to<const T*>;
  { range.size() } -> std::same_as<extent>;
};

template <class T>
class vector {
 public:
  using value_type = T;
  using size_type = extent;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;

  // Each other constructor calls this one, so that the destructor runs if a copy throws.
  vector() noexcept = default;
  explicit vector(extent count) : vector() { resize(count); }
  vector(extent count, const T& value) : vector() {
    reserve(count);
    for (; count > 0; --count) construct(value);
  }
  template <class Iterator>
    requires requires(Iterator i) { *i; }
  vector(Iterator first, Iterator last) : vector() {
    for (; first != last; ++first) push_back(*first);
  }
  vector(std::initializer_list<T> all) : vector() { copy(all.begin(), all.size()); }
  template <contiguous_range_of<T> Range>
    requires(!std::is_base_of_v<vector, Range>)
  vector(const Range& range) : vector() {
    copy(range.data(), range.size());
  }
  vector(const vector& o) : vector() { copy(o.begin(), o.size()); }
  vector(vector&& o) noexcept : memory_(std::exchange(o.memory_, {})) {}
  vector& operator=(const vector& o) { return *this = vector(o); }
  vector& operator=(vector&& o) noexcept {
    vector moved(std::move(o));
    std::swap(memory_, moved.memory_);
    return *this;
  }
  ~vector() {
    clear();
    ::operator delete(memory_.begin);
  }

  T* begin() noexcept { return static_cast<T*>(memory_.begin); }
  const T* begin() const noexcept { return static_cast<const T*>(memory_.begin); }
  T* end() noexcept { return static_cast<T*>(memory_.end); }
  const T* end() const noexcept { return static_cast<const T*>(memory_.end); }
  T* data() noexcept { return begin(); }
  const T* data() const noexcept { return begin(); }
  extent size() const noexcept { return static_cast<extent>(end() - begin()); }
  extent capacity() const noexcept {
    return static_cast<extent>(static_cast<const T*>(memory_.limit) - begin());
  }
  bool empty() const noexcept { return memory_.begin == memory_.end; }
  T& operator[](extent i) noexcept { return begin()[i]; }
  const T& operator[](extent i) const noexcept { return begin()[i]; }
  T& front() noexcept { return *begin(); }
  const T& front() const noexcept { return *begin(); }
  T& back() noexcept { return end()[-1]; }
  const T& back() const noexcept { return end()[-1]; }

  void reserve(extent count) {
    if (count > capacity()) grow(count);
  }
  void resize(extent count) {
    reserve(count);
    while (size() < count) construct();
    while (size() > count) pop_back();
  }
  void resize(extent count, T value) {
    reserve(count);
    while (size() < count) construct(value);
    while (size() > count) pop_back();
  }
  void clear() noexcept {
    if constexpr (std::is_trivially_destructible_v<T>) memory_.end = memory_.begin;
    else destroy_all();
  }

  void push_back(T value) {
    if (memory_.end == memory_.limit) grow(2 * size() + 4);
    construct(std::move(value));
  }
  template <class... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    push_back(T(std::forward<Arguments>(arguments)...));
    return back();
  }
  void pop_back() noexcept {
    memory_.end = end() - 1;
    end()->~T();
  }

  FMOE_NOINLINE T* insert(const T* at, T value) {
    const std::ptrdiff_t i = at - begin();
    push_back(std::move(value));
    T last = std::move(back());
    for (T* to = end() - 1; to != begin() + i; --to) *to = std::move(to[-1]);
    begin()[i] = std::move(last);
    return begin() + i;
  }
  template <class Iterator>
  void insert(const T* at, Iterator first, Iterator last) {
    for (; first != last; ++first) at = insert(at, *first) + 1;
  }
  T* erase(const T* at) { return erase(at, at + 1); }
  FMOE_NOINLINE T* erase(const T* first, const T* last) {
    T* const at = begin() + (first - begin());
    if (first == last) return at;
    T* to = at;
    for (T* from = begin() + (last - begin()); from != end(); ++from, ++to) *to = std::move(*from);
    while (end() != to) pop_back();
    return at;
  }

  friend bool operator==(const vector& a, const vector& b) {
    if (a.size() != b.size()) return false;
    for (extent i = 0; i < a.size(); ++i)
      if (!(a[i] == b[i])) return false;
    return true;
  }

 private:
  template <class... Arguments>
  void construct(Arguments&&... arguments) {
    ::new (memory_.end) T(std::forward<Arguments>(arguments)...);
    memory_.end = end() + 1;
  }
  FMOE_NOINLINE void destroy_all() noexcept {
    while (!empty()) pop_back();
  }

  // Copies elements into a vector without memory.
  void copy(const T* from, extent count) {
    if constexpr (std::is_trivially_copyable_v<T>) memory_.copy(from, count, sizeof(T));
    else copy_each(from, count);
  }
  FMOE_NOINLINE void copy_each(const T* from, extent count) {
    reserve(count);
    for (; count > 0; --count) construct(*from++);
  }

  void grow(extent count) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if constexpr (std::is_trivially_copyable_v<T>) memory_.grow(count, sizeof(T));
    else move_each(count);
  }
  // Nothing is lost if a move throws, unless elements can only move.
  FMOE_NOINLINE void move_each(extent count) {
    vector larger;
    larger.memory_.allocate(count, sizeof(T));
    for (T& x : *this) larger.construct(std::move_if_noexcept(x));
    std::swap(memory_, larger.memory_);
  }

  vector_memory memory_;
};

}  // namespace fmoe::detail

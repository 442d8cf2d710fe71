// SPDX-License-Identifier: MIT
// Lists that an enumeration indexes, such as the values of a program by value_id: the number of one
// thing cannot index a list of other things.
#pragma once

#include <utility>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::detail {

// The first numbers of an enumeration, for a loop.
template <class Id>
struct id_range {
  struct iterator {
    extent at;
    Id operator*() const { return static_cast<Id>(at); }
    iterator& operator++() {
      ++at;
      return *this;
    }
    bool operator==(const iterator&) const = default;
  };

  extent count;
  iterator begin() const { return {0}; }
  iterator end() const { return {count}; }
};

template <class Id, class T>
struct list_by : vector<T> {
  using vector<T>::vector;

  decltype(auto) operator[](Id id) { return vector<T>::operator[](static_cast<extent>(id)); }
  decltype(auto) operator[](Id id) const { return vector<T>::operator[](static_cast<extent>(id)); }
  bool contains(Id id) const { return static_cast<extent>(id) < this->size(); }
  id_range<Id> ids() const { return {this->size()}; }

  // Adds an entry and returns its number.
  Id add(T entry) {
    this->push_back(std::move(entry));
    return static_cast<Id>(this->size() - 1);
  }
};

}  // namespace fmoe::detail

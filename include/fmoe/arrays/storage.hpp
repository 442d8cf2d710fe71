// SPDX-License-Identifier: MIT
// The memory behind tensors. Copies of a tensor share their elements until one of them is written.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/base/memory.hpp>

namespace fmoe::detail {

// Elements, owned or borrowed, and what backends derived from them (packed panels), so that all
// compiled calls of a layer and of its copies share one packing. What was derived from elements
// that have been written since is dropped as soon as something is asked for again.
class elements {
 public:
  explicit elements(extent bytes) : owned_(bytes), data_(owned_.data()), bytes_(bytes) {}
  elements(const void* borrowed, extent bytes, std::shared_ptr<const void> owner = nullptr)
      : data_(const_cast<void*>(borrowed)),
        bytes_(bytes),
        is_borrowed_(true),
        owner_(std::move(owner)) {}
  elements(const elements& other) : elements(other.bytes_) {
    if (bytes_ > 0) std::memcpy(data_, other.data_, bytes_);
  }

  void* data() const { return data_; }
  bool is_borrowed() const { return is_borrowed_; }

  void written() { writes_.fetch_add(1, std::memory_order_relaxed); }

  template <class Make>
  std::shared_ptr<const void> derived(const std::string& key, Make make) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t writes = writes_.load(std::memory_order_relaxed);
    std::erase_if(derived_, [&](const derivation& d) { return d.writes != writes; });
    for (const derivation& d : derived_)
      if (d.key == key) return d.made;
    return derived_.emplace_back(derivation{key, make(), writes}).made;
  }

  template <class Make, class Renew>
  void renew(const std::string& key, std::shared_ptr<const void>& held, Make make, Renew renew) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t writes = writes_.load(std::memory_order_relaxed);
    std::erase_if(derived_, [&](const derivation& d) {
      return d.writes != writes && d.made.use_count() == 1;
    });
    const auto known = std::find_if(derived_.begin(), derived_.end(),
                                    [&](const derivation& d) { return d.key == key; });
    const bool is_known = known != derived_.end();
    if (is_known && known->writes == writes) {
      held = known->made;
      return;
    }
    const auto mine = is_known && known->made == held ? 2 : 1;
    if (held != nullptr && held.use_count() == mine) renew(const_cast<void*>(held.get()));
    else held = make();
    if (is_known) *known = {std::move(known->key), held, writes};
    else derived_.push_back({key, held, writes});
  }

 private:
  memory owned_;
  void* data_;
  extent bytes_;
  bool is_borrowed_ = false;
  std::shared_ptr<const void> owner_;  // of what is borrowed; may be null
  struct derivation {
    std::string key;
    std::shared_ptr<const void> made;
    std::uint64_t writes;  // that went before it
  };

  std::atomic<std::uint64_t> writes_ = 0;
  std::mutex mutex_;
  std::vector<derivation> derived_;
};

}  // namespace fmoe::detail

namespace fmoe {

// The elements of a tensor, of its views, and of the expressions that read it: all of these see
// each write. A copy has the same elements until one of the two is written, which then gets
// elements of its own. What borrows elements writes them in place, unless they are const, and its
// copies see that until they are written themselves.
class storage {
 public:
  explicit storage(std::size_t bytes) : elements_(std::make_shared<detail::elements>(bytes)) {}
  storage(const void* borrowed, std::size_t bytes)
      : elements_(std::make_shared<detail::elements>(borrowed, bytes)) {}
  // The elements live until the last of their users has gone if they come with an owner.
  storage(void* borrowed, std::size_t bytes, std::shared_ptr<const void> owner = nullptr)
      : elements_(std::make_shared<detail::elements>(borrowed, bytes, std::move(owner))),
        writes_borrowed_(true) {}
  storage(const storage& other) : elements_(other.elements_) {}
  storage& operator=(const storage& other) {
    elements_ = other.elements_;
    writes_borrowed_ = false;
    count_write();
    return *this;
  }
  storage(storage&&) = delete;
  // Moves what `other` refers to: where that is borrowed, it is written in place here, too.
  storage& operator=(storage&& other) noexcept {
    elements_ = other.elements_;
    writes_borrowed_ = other.writes_borrowed_;
    count_write();
    return *this;
  }

  void* data() const { return elements_->data(); }
  bool same_elements(const storage& other) const { return elements_ == other.elements_; }

  // Counts the times that the elements may have been written. Tensors count for themselves; who
  // writes to borrowed elements calls written(). Any thread may ask at any time.
  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }

  // Returns the elements to write, which no copy shares.
  void* written() {
    const bool is_shared = elements_->is_borrowed() || elements_.use_count() > 1;
    if (is_shared && !writes_borrowed_) elements_ = std::make_shared<detail::elements>(*elements_);
    elements_->written();
    count_write();
    return data();
  }

  // Says that others write to the elements without calling written(): whoever wants to read them as
  // they are forgets what was derived from them first.
  void set_unwatched() { is_unwatched_ = true; }
  bool is_unwatched() const { return is_unwatched_; }
  void forget_derived() { elements_->written(); }

  // The result of make() for this key and version, which is called once.
  template <class Make>
  std::shared_ptr<const void> derived(const std::string& key, Make make) {
    return elements_->derived(key, make);
  }

  // Makes `held`, which may be null, the data of this key and version: what is known, or `held`
  // after renew(held.get()) if nobody else has it, or else the result of make().
  template <class Make, class Renew>
  void renew(const std::string& key, std::shared_ptr<const void>& held, Make make, Renew renew) {
    elements_->renew(key, held, make, renew);
  }

 private:
  void count_write() { version_.store(version() + 1, std::memory_order_relaxed); }

  std::shared_ptr<detail::elements> elements_;
  bool writes_borrowed_ = false;
  bool is_unwatched_ = false;
  std::atomic<std::uint64_t> version_ = 0;
};

}  // namespace fmoe

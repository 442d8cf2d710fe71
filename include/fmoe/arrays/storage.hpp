// SPDX-License-Identifier: MIT
// The memory behind tensors. Copies of a tensor share their elements until one of them is written.
#pragma once

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

// Which elements these are, and how often they may have been written.
struct elements_version {
  std::uint64_t number = 0, writes = 0;
  bool operator==(const elements_version&) const = default;
};

// Elements, owned or borrowed, and what backends derived from them (packed panels), so that all
// compiled calls of a layer and of its copies share one packing. What was derived from elements
// that have been written since is dropped as soon as something is asked for again.
class elements {
 public:
  explicit elements(extent bytes) : owned_(bytes), data_(owned_.data()), bytes_(bytes) {}
  elements(const void* borrowed, extent bytes)
      : data_(const_cast<void*>(borrowed)),
        bytes_(bytes),
        is_borrowed_(true) {}
  elements(const elements& other) : elements(other.bytes_) {
    if (bytes_ > 0) std::memcpy(data_, other.data_, bytes_);
  }

  void* data() const { return data_; }
  bool is_borrowed() const { return is_borrowed_; }

  elements_version version() const { return {number_, writes_.load(std::memory_order_relaxed)}; }
  void written() { writes_.store(version().writes + 1, std::memory_order_relaxed); }

  template <class Make>
  std::shared_ptr<const void> derived(const std::string& key, Make make) {
    const std::lock_guard lock(mutex_);
    if (derived_from_ != version()) derived_.clear();
    derived_from_ = version();
    for (const auto& [known, made] : derived_)
      if (known == key) return made;
    return derived_.emplace_back(key, make()).second;
  }

 private:
  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> last = 0;
    return ++last;
  }

  memory owned_;
  void* data_;
  extent bytes_;
  bool is_borrowed_ = false;
  std::uint64_t number_ = next_number();
  std::atomic<std::uint64_t> writes_ = 0;
  std::mutex mutex_;
  elements_version derived_from_;
  std::vector<std::pair<std::string, std::shared_ptr<const void>>> derived_;  // with their keys
};

}  // namespace fmoe::detail

namespace fmoe {

// The elements of a tensor, of its views, and of the expressions and compiled layers that read it:
// all of these see each write. A copy has the same elements until one of the two is written, which
// then gets elements of its own. Borrowed elements are written in place, unless they are const.
class storage {
 public:
  explicit storage(std::size_t bytes) : elements_(std::make_shared<detail::elements>(bytes)) {}
  storage(const void* borrowed, std::size_t bytes)
      : elements_(std::make_shared<detail::elements>(borrowed, bytes)) {}
  storage(void* borrowed, std::size_t bytes)
      : elements_(std::make_shared<detail::elements>(borrowed, bytes)),
        writes_borrowed_(true) {}
  storage(const storage& other) : elements_(other.elements_) {}
  storage& operator=(const storage& other) {
    elements_ = other.elements_;
    writes_borrowed_ = false;
    return *this;
  }
  storage(storage&&) = delete;
  // Moves what `other` refers to: where that is borrowed, it is written in place here, too.
  storage& operator=(storage&& other) noexcept {
    elements_ = other.elements_;
    writes_borrowed_ = other.writes_borrowed_;
    return *this;
  }

  void* data() const { return elements_->data(); }
  detail::memory_space space() const { return detail::memory_space::host; }
  bool same_elements(const storage& other) const { return elements_ == other.elements_; }

  // Changes with every write. Tensors count their writes; who writes to borrowed elements calls
  // written().
  detail::elements_version version() const { return elements_->version(); }

  // Returns the elements to write, which no copy shares.
  void* written() {
    if (!writes_borrowed_ && (elements_->is_borrowed() || elements_.use_count() > 1))
      elements_ = std::make_shared<detail::elements>(*elements_);
    elements_->written();
    return data();
  }

  // The result of make() for this key and version, which is called once.
  template <class Make>
  std::shared_ptr<const void> derived(const std::string& key, Make make) {
    return elements_->derived(key, make);
  }

 private:
  std::shared_ptr<detail::elements> elements_;
  bool writes_borrowed_ = false;
};

}  // namespace fmoe

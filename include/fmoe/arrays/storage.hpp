// SPDX-License-Identifier: MIT
// The memory behind tensors. Copies of a tensor share their elements until one of them is written.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/base/memory.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::detail {

// An array of somebody else, who may move it. read returns where its elements are now: there, or at
// `own`, where it has copied them to because they lie in another order.
struct element_source {
  std::shared_ptr<const void> from = nullptr;
  const void* (*read)(const void* from, void* own) = nullptr;
};

// An array that nobody writes, in another order of its axes than that of the elements.
struct permuted_array {
  const void* data;
  std::shared_ptr<const void> owner;
  std::vector<extent> shape;    // of the elements
  std::vector<extent> strides;  // of these axes in `data`
  extent element_bytes;
  void (*copy)(const permuted_array& from, void* to);  // to row-major order

  // Returns the distance in `data` of neighbours along the axis of this length whose neighbours
  // have this distance in row-major order; nothing if there is no such axis.
  std::optional<extent> stride_of(extent length, extent row_major) const;
};

// Elements, owned or borrowed, and what backends derived from them (packed panels), so that all
// compiled calls of a layer and of its copies share one packing. What was derived from elements
// that have been written since is dropped as soon as something is asked for again. Of unwatched
// elements, which others may write at any time, nothing is kept. Elements of a permuted array are
// copied when somebody first reads them; until then they take no memory.
class elements {
 public:
  explicit elements(extent bytes) : owned_(bytes), data_(owned_.data()), bytes_(bytes) {}
  elements(const void* borrowed, extent bytes, std::shared_ptr<const void> owner = nullptr)
      : data_(const_cast<void*>(borrowed)),
        bytes_(bytes),
        is_borrowed_(true),
        owner_(std::move(owner)) {}
  explicit elements(permuted_array from);
  elements(const elements& other) : elements(other.bytes_) {
    if (const auto from = other.permuted(); from != nullptr) from->copy(*from, data());
    else if (bytes_ > 0) std::memcpy(data(), other.data(), bytes_);
  }
  ~elements();

  // Any thread may ask.
  void* data() const {
    if (is_permuted_.load(std::memory_order_acquire)) copy_permuted();
    return address();
  }
  // Where the elements are, or will be when they are copied.
  void* address() const { return data_.load(std::memory_order_relaxed); }
  // The array that the elements are to be copied of, or null. Any thread may ask.
  std::shared_ptr<const permuted_array> permuted() const;
  extent bytes() const { return bytes_; }
  bool is_borrowed() const { return is_borrowed_; }

  void written() {
    if (!is_unwatched()) writes_.fetch_add(1, std::memory_order_relaxed);
  }

  // Any thread may ask, and say it again.
  bool is_unwatched() const { return is_unwatched_.load(std::memory_order_relaxed); }
  void set_unwatched() {
    if (is_unwatched() || is_unwatched_.exchange(true, std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    derived_.clear();
  }

  void set_source(element_source source) {
    source_ = std::move(source);
    set_unwatched();
  }
  void read_source() {
    if (source_.from == nullptr) return;
    const std::lock_guard lock(reading_);
    void* const now = const_cast<void*>(source_.read(source_.from.get(), owned_.data()));
    if (now != address()) data_.store(now, std::memory_order_relaxed);
  }

  template <class Make>
  std::shared_ptr<const void> derived(const std::string& key, Make make) {
    if (is_unwatched()) return make();
    const std::lock_guard lock(mutex_);
    const std::uint64_t writes = writes_.load(std::memory_order_relaxed);
    std::erase_if(derived_, [&](const derivation& d) { return d.writes != writes; });
    for (const derivation& d : derived_)
      if (d.key == key) return d.made;
    return derived_.emplace_back(derivation{key, make(), writes}).made;
  }

  template <class Make, class Renew>
  void renew(const std::string& key, std::shared_ptr<const void>& held, Make make, Renew renew) {
    if (is_unwatched()) {
      if (held != nullptr && held.use_count() == 1) renew(const_cast<void*>(held.get()));
      else held = make();
      return;
    }
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
  void copy_permuted() const;

  memory owned_;
  std::atomic<void*> data_;  // another place only if a source has moved
  extent bytes_;
  bool is_borrowed_ = false;
  std::shared_ptr<const void> owner_;  // of what is borrowed; may be null
  element_source source_;
  std::mutex reading_;  // of the source

  mutable std::shared_ptr<const permuted_array> permuted_;  // until it is copied
  mutable std::atomic<bool> is_permuted_ = false;
  mutable std::mutex copying_;

  struct derivation {
    std::string key;
    std::shared_ptr<const void> made;
    std::uint64_t writes;  // that went before it
  };

  std::atomic<std::uint64_t> writes_ = 0;
  std::atomic<bool> is_unwatched_ = false;
  std::mutex mutex_;
  std::vector<derivation> derived_;
};

}  // namespace fmoe::detail

namespace fmoe {

// The elements of a tensor, of its views, and of the expressions that read it: all of these see
// each write. A copy has the same elements until one of the two is written, which then gets
// elements of its own. Elements are unwatched once they were lent, or if they are borrowed: others
// may write them without telling, so whoever reads them reads them anew. A copy of lent elements
// has elements of its own at once. What borrows elements writes them in place, unless they are
// const, and its copies see that until they are written themselves.
class storage {
 public:
  explicit storage(std::size_t bytes);
  storage(const void* borrowed, std::size_t bytes)
      : elements_(std::make_shared<detail::elements>(borrowed, bytes)) {
    set_unwatched();
  }
  storage(void* borrowed, std::size_t bytes)
      : elements_(std::make_shared<detail::elements>(borrowed, bytes)),
        writes_borrowed_(true) {
    set_unwatched();
  }
  // The elements live until the last of their users has gone. They are watched: whoever writes them
  // calls was_written().
  storage(void* borrowed, std::size_t bytes, std::shared_ptr<const void> owner)
      : elements_(std::make_shared<detail::elements>(borrowed, bytes, std::move(owner))),
        writes_borrowed_(true) {}
  // The same for elements that nobody writes while they are borrowed: whoever writes the storage
  // writes a copy.
  storage(const void* borrowed, std::size_t bytes, std::shared_ptr<const void> owner)
      : elements_(std::make_shared<detail::elements>(borrowed, bytes, std::move(owner))) {}
  // The elements of an array whose axes are in another order, which are copied when data() is
  // first asked for.
  explicit storage(detail::permuted_array from);
  storage(const storage& other) : elements_(other.copied()) {}
  // Elements that were lent stay where they are, and pointers to them valid.
  storage& operator=(const storage& other) {
    if (this == &other) return count_write();
    if (is_lent() && size() == other.size()) {
      if (size() > 0) std::memmove(data(), other.data(), size());  // it may borrow these
    } else {
      elements_ = other.copied();
      writes_borrowed_ = false;
    }
    return count_write();
  }
  storage(storage&&) = delete;
  // Moves what `other` refers to: where that is borrowed, it is written in place here, too.
  storage& operator=(storage&& other) noexcept {
    elements_ = other.elements_;
    writes_borrowed_ = other.writes_borrowed_;
    return count_write();
  }

  void* data() const { return elements_->data(); }
  // The same for somebody who reads nothing there.
  void* address() const { return elements_->address(); }
  // The array in another order that is all there is of the elements, or null.
  std::shared_ptr<const detail::permuted_array> permuted() const { return elements_->permuted(); }
  std::size_t size() const { return elements_->bytes(); }  // in bytes
  // Whoever has it may read the elements that the storage has now.
  std::shared_ptr<const void> holder() const { return elements_; }
  // Of two storages that borrow the same memory, too.
  bool same_elements(const storage& other) const {
    return elements_ == other.elements_ || (address() == other.address() && size() > 0);
  }

  // Counts the times that the elements may have been written. Any thread may ask at any time.
  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }

  // Returns the elements to write, which no copy shares, to somebody who lets them go before
  // anything else is done with the storage.
  void* written();

  // Returns the elements to write to somebody who may keep the pointer: they are unwatched from
  // now on.
  void* lent() {
    void* const to = written();
    set_unwatched();
    return to;
  }

  // Says that others have written the elements.
  void was_written() {
    elements_->written();
    count_write();
  }

  // Says that others write the elements without telling.
  void set_unwatched() { elements_->set_unwatched(); }
  bool is_unwatched() const { return elements_->is_unwatched(); }

  // Says that the elements are those of an array of somebody else, who may write and move it.
  // Whoever reads them asks for them before; a copy leaves alone what is as it was, for those that
  // read it now. Throws what the source throws.
  void set_source(detail::element_source source) { elements_->set_source(std::move(source)); }
  void read_source() { elements_->read_source(); }

  // Says that the tensor whose elements these were has got elements of another shape, or none, and
  // that these are as they were: what was made of the tensor cannot take the new ones.
  void set_replaced() { is_replaced_.store(true, std::memory_order_relaxed); }
  bool is_replaced() const { return is_replaced_.load(std::memory_order_relaxed); }

  // The result of make() for this key and version, which is called once, or each time if the
  // elements are unwatched.
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
  storage& count_write() {
    version_.store(version() + 1, std::memory_order_relaxed);
    return *this;
  }

  bool is_lent() const { return is_unwatched() && !elements_->is_borrowed(); }
  std::shared_ptr<detail::elements> copied() const {
    return is_lent() ? std::make_shared<detail::elements>(*elements_) : elements_;
  }

  std::shared_ptr<detail::elements> elements_;
  bool writes_borrowed_ = false;
  std::atomic<bool> is_replaced_ = false;
  std::atomic<std::uint64_t> version_ = 0;
};

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/arrays/storage-inl.hpp>
#endif

// SPDX-License-Identifier: MIT
// Visits the coefficients of Monet's experts token after token, q_t[i,j] = sum over heads p of
// g1[t,p,i] g2[t,p,j] (Park et al. 2024, Eq. 12). It never holds the s^2 coefficients of a token:
// it visits one i at a time, and only those j whose coefficient is not 0.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmoe/arrays/tensor.hpp>
#include <fmoe/backend/cpu/kernels/nonzeros.hpp>
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/backend/cpu/parallel.hpp>

namespace fmoe {

// The coefficients of experts (i, j) for one token and one i. Each j occurs at most once; a j that
// does not occur has the coefficient 0.
struct routed_row {
  const std::uint32_t* experts;  // j of each coefficient; null means 0, 1, 2, ...
  const double* coefficients;
  std::size_t count;

  void each(const auto& f) const {
    if (experts == nullptr)
      for (std::size_t j = 0; j < count; ++j) f(j, coefficients[j]);
    else
      for (std::size_t k = 0; k < count; ++k) f(std::size_t{experts[k]}, coefficients[k]);
  }
};

}  // namespace fmoe

namespace fmoe::detail {

// Throws shape_error unless both are [t, p, s] with this s.
template <class T>
void expects_routing(const tensor<T, 3>& g1, const tensor<T, 3>& g2, extent s) {
  static_assert(std::is_floating_point_v<T>, "routing is of float or double, as a router makes it");
  const auto [tokens, heads, halves] = g1.shape();
  expects<shape_error>(g1.shape() == g2.shape() && halves == s, "[routing] g1 is [", tokens, ", ",
                       heads, ", ", halves, "] and g2 [", g2.shape()[0], ", ", g2.shape()[1], ", ",
                       g2.shape()[2], "]; both are [t, p, s], and s is ", s);
}

// Throws value_error if one of them, both [t, p, s], holds a NaN or an infinity.
template <class Arch = cpu::native, class T>
void expects_finite_routing(const tensor<T, 3>& g1, const tensor<T, 3>& g2) {
  const extent tokens = g1.shape()[0], width = g1.shape()[1] * g1.shape()[2];
  const auto is_finite = [width](const T* x) {
    constexpr extent lanes = 16;
    T zeros[lanes] = {};  // a NaN or an infinity makes one of them NaN
    extent k = 0;
    for (; k + lanes <= width; k += lanes)
      for (extent l = 0; l < lanes; ++l) zeros[l] += 0 * x[k + l];
    for (; k < width; ++k) zeros[0] += 0 * x[k];
    for (extent l = 1; l < lanes; ++l) zeros[0] += zeros[l];
    return zeros[0] == 0;
  };
  const auto finite = std::make_unique<bool[]>(tokens);
  constexpr extent some = 16;
  cpu::parallel(divide_up(tokens, some), [&](extent part) {
    for (extent t = part * some; t < std::min(tokens, (part + 1) * some); ++t)
      finite[t] = is_finite(g1.data() + t * width) && is_finite(g2.data() + t * width);
  });
  for (extent t = 0; t < tokens; ++t)
    expects<value_error>(finite[t], "[routing] g1 or g2 of token ", t,
                         " has an entry that is not finite");
}

}  // namespace fmoe::detail

namespace fmoe {

// Calls visit(i, t, routed_row) for each i and, one after the other, for each token t in which some
// head uses i. One thread owns each i, so the sums of visit for an i have one owner and the order
// of the tokens, whatever the threads and batches. g1 and g2 are of one shape and finite. q is
// computed in double, and heads are added in order.
template <class T, class Arch = cpu::native>
class routed_rows {
 public:
  routed_rows(const tensor<T, 3>& g1, const tensor<T, 3>& g2)
      : g1_(g1.data()),
        g2_(g2.data()),
        tokens_(g1.shape()[0]),
        p_(g1.shape()[1]),
        s_(g1.shape()[2]) {}

  void each(const auto& visit) {
    if (tokens_ * p_ * s_ == 0) return;
    for (std::size_t first = 0; first < tokens_; first += block) {
      const std::size_t count = std::min(block, tokens_ - first);
      cpu::parallel(count, [&](std::size_t t) { list(first, t); });
      cpu::parallel(tasks_.size(),
                    [&](std::size_t task) { visit_rows(task, first, count, visit); });
    }
  }

 private:
  // Tokens of a block. Their lists, 2 KB each if 8 heads keep 32, stay in L2.
  static constexpr std::size_t block = 64;
  static constexpr std::size_t rows =
      16;  // the i's of a task: a cache line of floats in each g1[t,p]

  // The entries of g2[t,p] that are not 0; count is s if there are too many for a list.
  struct head_list {
    std::size_t first, count;
  };
  // Heads are numbered through the tokens of a block.
  struct task_memory {
    std::vector<std::uint64_t> users;  // for each i one bit for each head
    std::vector<std::uint32_t> heads;  // the heads that use one i
    std::vector<std::uint32_t> experts;
    std::vector<double> coefficients;
    std::vector<double> sums;  // q by j; zeros between rows
  };

  void list(std::size_t first, std::size_t t) {
    const T* g2 = g2_ + (first + t) * p_ * s_;
    std::size_t at = t * list_room_;
    for (std::size_t head = t * p_; head < (t + 1) * p_; ++head, g2 += s_) {
      std::size_t end = at;
      cpu::each_nonzero<T, cpu::native_arch>(
          g2, s_, [&, experts = experts_.data(), values = values_.data()](std::size_t j, T value) {
            experts[end] = static_cast<std::uint32_t>(j);
            values[end++] = value;
          });
      const bool listed = end - at <= longest_;
      lists_[head] = {at, listed ? end - at : s_};
      if (listed) at = end;
    }
  }

  void visit_rows(std::size_t task, std::size_t first, std::size_t count, const auto& visit) {
    task_memory& m = tasks_[task];
    const std::size_t begin = task * rows, end = std::min(begin + rows, s_),
                      words = m.users.size() / rows;
    const T *const g1 = g1_ + first * p_ * s_, *const g2 = g2_ + first * p_ * s_;
    std::ranges::fill(m.users, 0);
    for (std::size_t head = 0; head < count * p_; ++head) {
      // This fetches a line of each row, which no hardware prefetcher foresees.
      FMOE_PREFETCH(g1 + (head + 16) * s_ + begin);
      cpu::each_nonzero<T, cpu::native_arch>(
          g1 + head * s_ + begin, end - begin, [&, users = m.users.data()](std::size_t row, T) {
            users[row * words + head / 64] |= std::uint64_t{1} << head % 64;
          });
    }
    for (std::size_t i = begin; i < end; ++i) {
      const std::span heads =
          heads_of(std::span(m.users).subspan((i - begin) * words, words), m.heads);
      for (std::size_t k = 0, next; k < heads.size(); k = next) {
        const std::size_t t = heads[k] / p_;
        for (next = k + 1; next < heads.size() && heads[next] < (t + 1) * p_; ++next) {
        }
        visit(i, first + t, row_of(heads.subspan(k, next - k), g1 + i, g2, m));
      }
    }
  }

  static std::span<const std::uint32_t> heads_of(std::span<const std::uint64_t> users,
                                                 std::vector<std::uint32_t>& heads) {
    std::size_t n = 0;
    for (std::size_t w = 0; w < users.size(); ++w)
      for (std::uint64_t bits = users[w]; bits != 0; bits &= bits - 1)
        heads[n++] =
            static_cast<std::uint32_t>(w * 64) + static_cast<std::uint32_t>(std::countr_zero(bits));
    return {heads.data(), n};
  }

  // Adds weight x to q, both of s numbers. Compilers do not make vectors of a plain loop at -O2.
  void add_scaled(double weight, const T* x, double* q) const {
    constexpr std::size_t lanes = 8;
    using numbers = detail::vector_of<T, lanes>;
    using doubles = detail::vector_of<double, lanes>;
    std::size_t j = 0;
    for (; j + lanes <= s_; j += lanes) {
      numbers some;
      doubles sums;
      std::memcpy(&some, x + j, sizeof some);
      std::memcpy(&sums, q + j, sizeof sums);
      sums += weight * FMOE_CONVERTED(some, doubles);
      std::memcpy(q + j, &sums, sizeof sums);
    }
    for (; j < s_; ++j) q[j] += weight * static_cast<double>(x[j]);
  }

  // Returns the sum over `heads` of g1[head,0] g2[head].
  routed_row row_of(std::span<const std::uint32_t> heads, const T* g1, const T* g2,
                    task_memory& m) const {
    double* const q = m.coefficients.data();
    std::size_t most = 0;
    for (const std::size_t head : heads) most += lists_[head].count;
    if (most > longest_) {
      std::fill_n(q, s_, 0.0);
      for (const std::size_t head : heads) {
        add_scaled(static_cast<double>(g1[head * s_]), g2 + head * s_, q);
      }
      return {nullptr, q, s_};
    }
    if (heads.size() == 1) {
      const auto [at, count] = lists_[heads[0]];
      const T* const values = values_.data() + at;
      const double weight = g1[heads[0] * s_];
      for (std::size_t k = 0; k < count; ++k) q[k] = weight * static_cast<double>(values[k]);
      return {experts_.data() + at, q, count};
    }
    double* const sums = m.sums.data();
    for (const std::size_t head : heads) {
      const auto [at, count] = lists_[head];
      const double weight = g1[head * s_];
      for (std::size_t k = at; k < at + count; ++k)
        sums[experts_[k]] += weight * static_cast<double>(values_[k]);
    }
    std::size_t n = 0;
    for (const std::size_t head : heads) {
      const auto [at, count] = lists_[head];
      for (std::size_t k = at; k < at + count; ++k) {
        const std::uint32_t j = experts_[k];
        m.experts[n] = j;
        q[n] = std::exchange(sums[j], 0.0);  // it is 0 the second time
        n += q[n] != 0;
      }
    }
    return {m.experts.data(), q, n};
  }

  const T *g1_, *g2_;
  std::size_t tokens_, p_, s_;
  std::size_t at_once_ = std::min(block, tokens_);
  std::size_t longest_ =
      s_ / 4;  // longer lists, of all heads together, are no faster than all of s
  std::size_t list_room_ = p_ * longest_ + s_;
  std::vector<head_list> lists_ = std::vector<head_list>(at_once_ * p_);
  // j and g2 of the lists of each token.
  std::vector<std::uint32_t> experts_ = std::vector<std::uint32_t>(at_once_ * list_room_);
  std::vector<T> values_ = std::vector<T>(at_once_ * list_room_);
  std::vector<task_memory> tasks_{
      detail::divide_up(s_, rows),
      {std::vector<std::uint64_t>(rows * detail::divide_up(at_once_ * p_, 64)),
       std::vector<std::uint32_t>(at_once_* p_), std::vector<std::uint32_t>(s_ + 1),
       std::vector<double>(s_ + 1), std::vector<double>(s_)}};
};

// Adds a batch, g1 and g2 [t, p, s], to several statistics in one pass over it: add_routing(g1, g2,
// domains.batch(0), correlation.batch(scores)). Throws as their `add`, before anything is added to
// any of them.
template <class Arch = cpu::native, class T, class... Batch>
void add_routing(const tensor<T, 3>& g1, const tensor<T, 3>& g2, Batch... batches) {
  (batches.check(g1, g2), ...);
  detail::expects_finite_routing<Arch>(g1, g2);
  (batches.begin(), ...);
  routed_rows<T, Arch>(g1, g2).each([&](std::size_t i, std::size_t t, const routed_row& row) {
    (batches.visit(i, t, row), ...);
  });
  (batches.end(g1.shape()[0]), ...);
}

}  // namespace fmoe

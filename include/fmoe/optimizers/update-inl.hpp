// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmoe/backend/cpu/kernels/update.hpp>
#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/optimizers/update.hpp>

namespace fmoe::detail {

// The elements that a thread takes at a time: five arrays of so many floats fit L2.
inline constexpr extent update_part = 1 << 15;

// Calls f(first, count) for parts of `count` elements, on all threads.
template <class F>
void each_part(extent count, const F& f) {
  cpu::parallel(divide_up(count, update_part), [&](extent part) {
    const extent first = part * update_part;
    f(part, first, std::min(update_part, count - first));
  });
}

// A rule as it goes over some of the elements: update(w, g, first, second, count) for arrays of T.
template <class T, class Update>
class element_updates {
 public:
  element_updates(const weight_update& to, const Update& update)
      : to_(to),
        update_(update),
        w_(static_cast<T*>(to.weights)),
        first_(static_cast<T*>(to.first)),
        second_(static_cast<T*>(to.second)) {}

  // Neighbours from element `from` on.
  void run(extent from, const T* g, extent count) const {
    update_(w_ + from, g, first_ == nullptr ? nullptr : first_ + from,
            second_ == nullptr ? nullptr : second_ + from, count);
    round(from, count);
  }

  static constexpr extent most = 64;  // elements at `places`

  // Elements that lie at `places` behind `from`.
  void run_at(extent from, const std::uint32_t* places, const T* g, extent count) const {
    T w[most]{}, first[most]{}, second[most]{};
    const auto each = [&](T* all, T* some, const auto& f) {
      for (extent i = 0; all != nullptr && i < count; ++i) f(all[from + places[i]], some[i]);
    };
    const auto take = [](const T& one, T& some) { some = one; };
    const auto put = [](T& one, const T& some) { one = some; };
    each(w_, w, take);
    each(first_, first, take);
    each(second_, second, take);
    update_(w, g, first, second, count);
    each(w_, w, put);
    each(first_, first, put);
    each(second_, second, put);
    for (extent i = 0; to_.rounded != nullptr && i < count; ++i) round(from + places[i], 1);
  }

 private:
  void round(extent from, extent count) const {
    if constexpr (std::is_same_v<T, float>) {
      if (to_.rounded == nullptr) return;
      with_type(to_.rounded_type, [&](auto* type) {
        using S = std::remove_pointer_t<decltype(type)>;
        if constexpr (sizeof(S) == 2)
          cpu::narrow_weights<S, cpu::native_arch>(w_ + from, static_cast<S*>(to_.rounded) + from,
                                                   count);
      });
    }
  }

  const weight_update& to_;
  const Update& update_;
  T *w_, *first_, *second_;
};

// Rows of which neighbours in the parameter are neighbours in the gradient.
template <class T, class Update>
void update_rows(const element_updates<T, Update>& elements, const row_update& s, const T* g) {
  const std::vector<T> zeros(s.leaves_others ? 0 : s.inner);
  const extent count = s.leaves_others ? s.rows.size() : s.all_rows,
               together = std::max<extent>(1, update_part / std::max<extent>(1, s.width));
  cpu::parallel(divide_up(count, together), [&](extent part) {
    const extent end = std::min(count, (part + 1) * together);
    const auto first = std::ranges::lower_bound(s.rows, part * together);
    auto place = s.leaves_others ? part * together : static_cast<extent>(first - s.rows.begin());
    for (extent i = part * together; i < end; ++i) {
      const bool is_there = s.leaves_others || (place < s.rows.size() && s.rows[place] == i);
      const extent row = s.leaves_others ? s.rows[i] : i;
      for (extent o = 0; o < s.width; o += s.inner)
        elements.run(o * s.all_rows + row * s.inner,
                     is_there ? g + place * s.width + o : zeros.data(), s.inner);
      place += is_there;
    }
  });
}

// Columns: the elements of a row of the gradient lie in as many rows of the parameter.
template <class T, class Update>
void update_columns(const element_updates<T, Update>& elements, const row_update& s, const T* g) {
  constexpr extent together = 16, most = element_updates<T, Update>::most;
  cpu::parallel(divide_up(s.width, together), [&](extent part) {
    const extent from = part * together, end = std::min(s.width, from + together);
    std::vector<T> dense(s.leaves_others ? 0 : s.all_rows * together);
    for (extent place = 0; place < s.rows.size(); place += most) {
      const extent count = std::min(most, s.rows.size() - place);
      for (extent o = from; o < end; ++o) {
        const T* const column = g + place * s.width + o;
        T some[most];
        for (extent i = 0; i < count; ++i) some[i] = column[i * s.width];
        if (s.leaves_others) elements.run_at(o * s.all_rows, &s.rows[place], some, count);
        else
          for (extent i = 0; i < count; ++i)
            dense[(o - from) * s.all_rows + s.rows[place + i]] = some[i];
      }
    }
    if (!s.leaves_others) elements.run(from * s.all_rows, dense.data(), (end - from) * s.all_rows);
  });
}

// Runs a rule: update(w, g, first, second, count) for arrays of T.
template <class T, class Update>
void run_update(const weight_update& to, const Update& update) {
  const auto* const g = static_cast<const T*>(to.gradient);
  const element_updates<T, Update> elements(to, update);
  if (!to.sparse)
    each_part(to.count,
              [&](extent, extent from, extent count) { elements.run(from, g + from, count); });
  else if (to.sparse->inner == 1) update_columns(elements, *to.sparse, g);
  else update_rows(elements, *to.sparse, g);
}

template <class Level>
void update_weights(const cpu::sgd_numbers& rule, const weight_update& to) {
  const auto run = [&]<class T>(T*) {
    run_update<T>(to, [&](T* w, const T* g, T* buffer, T*, extent count) {
      cpu::sgd_update<T, cpu::native_arch>(rule, w, g, buffer, count);
    });
  };
  to.type == dtype::float64 ? run(static_cast<double*>(nullptr))
                            : run(static_cast<float*>(nullptr));
}

template <class Level>
void update_weights(const cpu::adam_numbers& rule, const weight_update& to) {
  const auto run = [&]<class T>(T*) {
    run_update<T>(to, [&](T* w, const T* g, T* first, T* second, extent count) {
      cpu::adam_update<T, cpu::native_arch>(rule, w, g, first, second, count);
    });
  };
  to.type == dtype::float64 ? run(static_cast<double*>(nullptr))
                            : run(static_cast<float*>(nullptr));
}

template <class Level>
double squares_of(const number_array& x) {
  std::vector<double> sums(divide_up(x.count, update_part));
  const auto run = [&]<class T>(const T* elements) {
    each_part(x.count, [&](extent part, extent from, extent length) {
      sums[part] = cpu::sum_of_squares<T, cpu::native_arch>(elements + from, length);
    });
  };
  if (x.type == dtype::float64) run(static_cast<const double*>(x.elements));
  else run(static_cast<const float*>(x.elements));
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template <class Level>
void scale_array(const number_array& x, double factor) {
  const auto run = [&]<class T>(T* elements) {
    each_part(x.count, [&](extent, extent from, extent length) {
      cpu::scale_in_place<T, cpu::native_arch>(elements + from, static_cast<T>(factor), length);
    });
  };
  if (x.type == dtype::float64) run(static_cast<double*>(x.elements));
  else run(static_cast<float*>(x.elements));
}

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// Selections of rows that are cut, merged over the parts, are those of the reference.
#include <algorithm>
#include <fmoe/backend/reference/selections.hpp>

#include "../support/catch.hpp"
#include "../support/shard_checks.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using namespace fmoe::detail;

constexpr extent length = 43, tokens = 11;

// Rows with many equal scores, zeros and numbers below 0. Rows 3 and 4 have what is no number, row
// 5 is 0 and row 6 below 0. Row 7 has two zeros before numbers below 0 that are kept, row 8
// four numbers above 0, which stand side by side.
template <class T>
std::vector<T> scores() {
  std::vector<T> x;
  for (extent i = 0; i < tokens * length; ++i)
    x.push_back(static_cast<T>(static_cast<int>(i * 7919 % 97 % 13) - 6) / T(4));
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  x[3 * length + 40] = x[4 * length + 2] = x[4 * length + 41] = nan;
  std::fill_n(x.begin() + 5 * length, length, T(0));
  for (extent k = 0; k < length; ++k) {
    x[6 * length + k] = -1 - static_cast<T>(k % 5);
    x[7 * length + k] = k == 3 ? T(2) : k == 5 || k == 9 ? T(0) : k < 21 ? T(-0.25) : T(-1);
    x[8 * length + k] = k < 4 ? T(2) : T(0);
  }
  return x;
}

template <class T>
std::vector<T> expected(const selection_rule& rule) {
  std::vector<T> y;
  for (extent t = 0; t < tokens; ++t) {
    const auto x = scores<T>();
    std::vector<double> row(x.begin() + static_cast<std::ptrdiff_t>(t * length),
                            x.begin() + static_cast<std::ptrdiff_t>((t + 1) * length));
    const std::vector<double> ranked = row;
    reference_backend::top_k(row, ranked, rule.keep, rule.weights);
    for (const double v : row) y.push_back(static_cast<T>(v));
  }
  return y;
}

// What a part gives to the merge: all its scores, or the values and the places of its best.
template <class T>
std::vector<std::vector<T>> given(const selection_rule& rule, extent begin, extent count) {
  const std::vector<T> x = scores<T>();
  std::vector<std::vector<T>> lists(has_scores(rule, count) ? 1 : 2);
  for (extent t = 0; t < tokens; ++t) {
    std::vector<double> part;
    for (extent k = 0; k < count; ++k)
      part.push_back(static_cast<double>(x[t * length + begin + k]));
    if (lists.size() == 1) {
      for (const double v : part) lists[0].push_back(static_cast<T>(v));
      continue;
    }
    auto places = reference_backend::best_first(part);
    places.resize(rule.keep);
    std::ranges::sort(places);
    const auto is_zero = [&](extent k) { return part[k] == 0; };
    places.erase(std::remove_if(places.begin(), places.end(), is_zero), places.end());
    for (extent i = 0; i < rule.keep; ++i) {
      lists[0].push_back(i < places.size() ? static_cast<T>(part[places[i]]) : T(0));
      lists[1].push_back(i < places.size() ? static_cast<T>(places[i]) : T(-1));
    }
  }
  return lists;
}

// The same for some tokens alone.
template <class T>
best_rows<T> given_again(const selection_rule& rule, extent begin, extent count,
                         std::span<const extent> of) {
  const auto every = given<T>(rule, begin, count);
  best_rows<T> some;
  for (const extent t : of)
    for (extent i = t * rule.keep; i < (t + 1) * rule.keep; ++i) {
      some.values.push_back(every[0][i]);
      some.places.push_back(every[1][i]);
    }
  return some;
}

// The lists of a selection that keeps fewer entries, with room for all.
template <class T>
std::vector<std::vector<T>> given_first(selection_rule rule, extent begin, extent count,
                                        extent first) {
  const extent room = std::exchange(rule.keep, first);
  const auto few = given<T>(rule, begin, count);
  std::vector<std::vector<T>> lists{std::vector<T>(tokens * room, T(0)),
                                    std::vector<T>(tokens * room, T(-1))};
  for (extent l = 0; l < 2; ++l)
    for (extent t = 0; t < tokens; ++t)
      std::copy_n(few[l].data() + t * first, first, lists[l].data() + t * room);
  return lists;
}

// The rows of the merged selection, and those that its lists have. Ranks give `first` of their best
// before they are asked for more.
template <class T>
std::array<std::vector<T>, 2> merged(extent P, extent parts, const selection_rule& rule,
                                     extent first) {
  std::array<std::vector<T>, 2> y{std::vector<T>(tokens * length), std::vector<T>(tokens * length)};
  run_on_threads(P, [&](communicator& ranks) {
    const axis_cut cut{'n', length, parts, P, ranks.rank()};
    call_tokens share{{}, ranks.rank()};
    for (extent r = 0; r < P; ++r)
      share.of_rank.push_back(begin_of_part(tokens, P, r + 1) - begin_of_part(tokens, P, r));
    stage_exchange e{.id = {},
                     .from_how = spread::label,
                     .to_how = spread::label,
                     .merges = true,
                     .rule = rule,
                     .first = first,
                     .from = {},
                     .to = {}};
    list_by<array_id, std::vector<T>> arrays;
    for (extent i = 0; i < cut.parts_a_rank(); ++i) {
      const extent begin = cut.begin(cut.own(i)), count = cut.count(cut.own(i));
      for (auto& list : first == rule.keep ? given<T>(rule, begin, count)
                                           : given_first<T>(rule, begin, count, first))
        e.from.push_back(arrays.add(std::move(list)));
      // What a call before this one has left.
      e.to.push_back(arrays.add(std::vector<T>(tokens * count, T(7))));
      e.lists.push_back(arrays.add(std::vector<T>(tokens * 2 * rule.keep, T(2))));
    }
    const auto more = [&](std::span<const extent> of) {
      return given_again<T>(rule, cut.begin(cut.own(0)), cut.count(cut.own(0)), of);
    };
    selection_merge<T>{ranks, cut, share, arrays, more}.run(e);
    for (extent i = 0; i < cut.parts_a_rank(); ++i) {
      const extent begin = cut.begin(cut.own(i)), count = cut.count(cut.own(i));
      for (extent t = 0; t < tokens; ++t) {
        std::copy_n(arrays[e.to[i]].data() + t * count, count, y[0].data() + t * length + begin);
        const T *const values = arrays[e.lists[i]].data() + 2 * t * rule.keep, *const places =
                                                                                   values +
                                                                                   rule.keep;
        for (extent k = 0; k < rule.keep; ++k) {
          if (places[k] < 0) continue;
          require(k == 0 || places[k] > places[k - 1], "places ascend");
          y[1][t * length + begin + static_cast<extent>(places[k])] = values[k];
        }
      }
    }
  });
  return y;
}

template <class T>
void check_merge(const selection_rule& rule) {
  const std::vector<T> wanted = expected<T>(rule), one = merged<T>(1, 8, rule, rule.keep)[0];
  for (const extent P : {1u, 2u, 3u, 4u, 8u}) {
    const extent parts = P == 3 ? 6 : 8;
    const auto [rows, lists] = merged<T>(P, parts, rule, rule.keep);
    INFO("weighting " << static_cast<int>(rule.weights) << ", K " << rule.keep << ", " << P
                      << " ranks");
    CHECK(same_bits(rows, lists));
    if (parts == 8) CHECK(same_bits(rows, one));
    for (extent i = 0; i < rows.size(); ++i) {
      CAPTURE(i / length, i % length, rows[i], wanted[i]);
      REQUIRE(std::isnan(rows[i]) == std::isnan(wanted[i]));
      REQUIRE((rows[i] != 0) == (wanted[i] != 0));
      if (!std::isnan(wanted[i]))
        REQUIRE(std::abs(rows[i] - wanted[i]) <= 2 * std::numeric_limits<T>::epsilon());
    }
  }
}

TEST_CASE("merged selections are those of whole rows, with the same bits on any ranks") {
  using enum weighting;
  for (const weighting w : {score, one, relu, softmax, softmax_of_all})
    for (const extent keep : {1u, 3u, 5u, 12u}) {
      const selection_rule rule{selection_rule::kind::top_k, keep, 0, w};
      check_merge<float>(rule);
      check_merge<double>(rule);
    }
}

TEST_CASE("ranks that give few of their best are asked for more, and the selection is the same") {
  for (const weighting w : {weighting::score, weighting::relu})
    for (const extent P : {2u, 4u, 7u})
      for (const extent keep : {3u, 5u})
        for (extent first = (keep + P - 1) / P; first < keep; ++first) {
          const selection_rule rule{selection_rule::kind::top_k, keep, 0, w};
          INFO("weighting " << static_cast<int>(w) << ", " << P << " ranks, first " << first
                            << " of " << keep);
          const auto all = merged<float>(P, P, rule, keep), few = merged<float>(P, P, rule, first);
          CHECK(same_bits(few[0], all[0]));
          CHECK(same_bits(few[1], all[1]));
        }
}

}  // namespace

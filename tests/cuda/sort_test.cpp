// SPDX-License-Identifier: MIT
// A sort by warps makes the lists of the plain one, in which one thread walks over a chunk.
#include <random>

#include <fmoe/backend/cuda/emulated/emulated_device.hpp>
#include <fmoe/backend/cuda/kernels/sort_kernel.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

// Selections of up to `keep` experts, many of them of the first ones.
std::vector<float> selected(extent tokens, extent keep, extent experts) {
  std::mt19937 bits(3);
  std::vector<float> of(tokens * selection_row<float>::size(keep));
  const selections_at<float> at{{of.data(), selection_row<float>::size(keep)}, keep};
  for (extent t = 0; t < tokens; ++t) {
    const auto s = at.row(t, 0);
    s.count() = 0;
    for (extent e = t % 5 == 0 ? 0 : bits() % 3; e < experts && s.count() < keep && t % 7 != 3;
         e += 1 + bits() % (experts / 2))
      s.add(1, e);
  }
  return of;
}

TEST_CASE("warps sort the entries of a group as single threads do", "[cuda]") {
  for (const auto& [tokens, experts, tile_rows] :
       {std::tuple<extent, extent, extent>{1, 8, 16}, {70, 40, 16}, {700, 8, 64}, {70, 2, 128}}) {
    INFO(tokens << " tokens, " << experts << " experts");
    constexpr extent keep = 3;
    auto entries = selected(tokens, keep, experts);
    const selections_at<float> from{{entries.data(), selection_row<float>::size(keep)}, keep};
    const sort_places places{tokens, keep, experts, tile_rows};
    std::vector<cuda::index> plain(places.size(), 77), quick(plain);
    const sort_lists lists{places, plain.data()};
    const auto each = [](const auto& f, extent n) {
      for (extent i = 0; i < n; ++i) f(i);
    };
    each(count_entries<float>{lists, from}, experts * places.chunks());
    each(add_chunks{lists}, experts);
    each(add_experts{lists}, 1);
    each(place_entries<float>{lists, from}, experts * places.chunks());
    const emulated_device on(0, {.order = thread_order::shuffled});
    emulated_device::queue queue(on, nullptr);
    sort_entries(queue, {places, quick.data()}, from);
    CHECK(*lists.row_count() > 0);
    CHECK(plain == quick);
  }
}

}  // namespace

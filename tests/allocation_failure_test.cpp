// SPDX-License-Identifier: MIT
// Memory runs out at each allocation in turn. What was being done throws std::bad_alloc and leaves
// everything as it was, so that the next attempt succeeds.
#include <fmoe/compile.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

#include <cstring>
#include <optional>

#include "support/agree.hpp"
#include "support/allocations.hpp"
#include "support/files.hpp"
#include "support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using rows = tensor<float, 2>;

constexpr auto golden = "tests/golden/mxd/mxd_glu_silu_k4.weights.safetensors";

mxd<> loaded() { return load<mxd<>>(golden, {.active = 4, .activation = pointwise::silu}); }

const rows x = random<rows>({5, 13}, 1);

constexpr auto nothing = [] {};

TEST_CASE("a layer that cannot be loaded leaves the layer of before") {
  mxd<> other = loaded(), layer;
  other.decoder(0, 0) = 100;
  const rows before = evaluate(other(x)), after = evaluate(loaded()(x));
  const long attempts =
      fail_each_allocation([&] { layer = other; }, [&] { layer = loaded(); },
                           [&] { REQUIRE(same_bits(evaluate(layer(x)), before)); });
  CHECK(attempts > 50);
  CHECK(same_bits(evaluate(layer(x)), after));
}

TEST_CASE("a file that cannot be saved stays as it is, and no other one is left") {
  const temporary_folder here;
  const auto file = here / "layer.safetensors";
  mxd<> layer = loaded();
  save(layer, file);
  const std::string before = content(file);
  layer.decoder(0, 0) = 100;
  const long attempts = fail_each_allocation([&] { put(file, before); }, [&] { save(layer, file); },
                                             [&] {
                                               REQUIRE(content(file) == before);
                                               REQUIRE(here.entries() == 1);
                                             });
  CHECK(attempts > 50);
  CHECK(same_bits(evaluate(load<mxd<>>(file, {.active = 4})(x)), evaluate(layer(x))));
}

TEST_CASE("evaluate, compile and a call that fail can be repeated") {
  const rows expected = evaluate(loaded()(x));
  mxd<> layer;
  const auto load_anew = [&] { layer = loaded(); };
  rows y;
  CHECK(fail_each_allocation(load_anew, [&] { y = evaluate(layer(x)); }, nothing) > 50);
  CHECK(same_bits(y, expected));

  using forward = decltype(compile(layer, 5));
  std::optional<forward> ready;
  CHECK(fail_each_allocation(load_anew, [&] { ready.emplace(compile(layer, 5)); }, nothing) > 50);
  CHECK(same_bits((*ready)(x), expected));

  CHECK(fail_each_allocation(nothing, [&] { y = (*ready)(x); }, nothing) > 0);
  CHECK(same_bits(y, expected));
}

TEST_CASE("a layer that cannot be refreshed waits for the next refresh") {
  mxd<> layer = loaded(), other = layer;
  other.decoder(0, 0) += 1;
  const mxd<> next = other;
  auto ready = compile(layer, 5);
  rows y = ready(x);
  const long attempts = fail_each_allocation([&] { layer = next; }, [&] { ready.refresh(); },
                                             [&] { REQUIRE_THROWS_AS(ready(x, y), value_error); });
  CHECK(attempts > 1);
  CHECK(same_bits(ready(x), evaluate(layer(x))));
}

}  // namespace

// SPDX-License-Identifier: MIT
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/backend/cpu/stored_weights.hpp>
#include <fmoe/backend/cpu/use_weights.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

TEST_CASE("there are functions for each type that is widened when it is read", "[cpu]") {
  cpu::use_weights<float, cpu::native, all_types>();
  const auto rows = [](dtype type) {
    return cpu::stored_weights_as<float, arch>(type).panel_rows(plan::row_rounding::none, 70);
  };
  extent types = 0;
  cpu::for_narrow_types<arch>([&]<class S>(S*) {
    CHECK(cpu::is_widened_as_read<float, arch>(dtype_of<S>));
    CHECK_FALSE(cpu::is_widened_as_read<double, arch>(dtype_of<S>));
    CHECK(rows(dtype_of<S>) == 70);
    ++types;
  });
  CHECK(types >= 3);
  CHECK(rows(dtype::float32) == 70);
}

TEST_CASE("a type without kernels is refused", "[cpu]") {
  CHECK_FALSE(cpu::is_widened_as_read<float, arch>(dtype::float64));
  CHECK_THROWS_AS((cpu::stored_weights_as<float, arch>(dtype::float64)), value_error);
}

}  // namespace

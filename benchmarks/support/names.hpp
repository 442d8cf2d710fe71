// SPDX-License-Identifier: MIT
// Benchmarks see the helpers that users of the library do not.
#pragma once

#include <fmoe/base/checked.hpp>

namespace fmoe::bench {

using namespace detail;

}  // namespace fmoe::bench

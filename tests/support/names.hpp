// SPDX-License-Identifier: MIT
// Tests see the helpers that users of the library do not.
#pragma once

#include <fmoe/base/checked.hpp>

namespace fmoe::test {

using namespace detail;

}  // namespace fmoe::test

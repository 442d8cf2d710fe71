// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/arrays/xtensor.hpp>

#include <fmoe/implementation.hpp>

// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/analysis/rank.hpp>

#include <fmoe/implementation.hpp>

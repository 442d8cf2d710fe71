// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/analysis/rank.hpp>

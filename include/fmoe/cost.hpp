// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/run/cost.hpp>

#include <fmoe/implementation.hpp>

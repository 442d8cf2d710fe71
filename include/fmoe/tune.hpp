// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/planner/tuned_shapes.hpp>

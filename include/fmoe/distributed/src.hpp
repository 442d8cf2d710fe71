// SPDX-License-Identifier: MIT
// Everything behind the wall of ranks.
#pragma once

#include <fmoe/distributed/save_shard-inl.hpp>
#include <fmoe/distributed/stage_plan-inl.hpp>

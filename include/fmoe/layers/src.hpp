// SPDX-License-Identifier: MIT
// What layers have behind the walls.
#pragma once

#include <fmoe/layers/monet_routing-inl.hpp>
#include <fmoe/layers/zero_experts-inl.hpp>

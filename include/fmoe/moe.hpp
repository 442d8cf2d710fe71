// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/layers/glu_expert.hpp>
#include <fmoe/layers/moe.hpp>
#include <fmoe/layers/mov.hpp>
#include <fmoe/layers/routing.hpp>
#include <fmoe/layers/soft_moe.hpp>

#include <fmoe/implementation.hpp>

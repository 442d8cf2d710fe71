// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/layers/aoe.hpp>

#include <fmoe/implementation.hpp>

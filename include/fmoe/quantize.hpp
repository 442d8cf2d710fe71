// SPDX-License-Identifier: MIT
// Layers with weights of 8 bits.
#pragma once

#include <fmoe/models/quantize.hpp>

#include <fmoe/implementation.hpp>

// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/gradients/gradient.hpp>
#include <fmoe/gradients/layer_gradients.hpp>

#include <fmoe/implementation.hpp>

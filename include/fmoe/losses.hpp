// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/gradients/gradient.hpp>
#include <fmoe/gradients/losses.hpp>

#include <fmoe/implementation.hpp>

// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/gradients/gradient.hpp>

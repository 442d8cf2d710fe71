// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/arrays/eigen.hpp>

#include <fmoe/implementation.hpp>

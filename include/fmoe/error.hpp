// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/base/error.hpp>

#include <fmoe/implementation.hpp>

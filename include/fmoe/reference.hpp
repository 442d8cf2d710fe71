// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/backend/reference/reference.hpp>

#include <fmoe/implementation.hpp>

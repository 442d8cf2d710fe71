// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/layers/mumoe.hpp>

#include <fmoe/implementation.hpp>

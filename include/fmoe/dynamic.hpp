// SPDX-License-Identifier: MIT
// Expressions and layers whose kinds are known when the program runs.
#pragma once

#include <fmoe/dynamic/executable.hpp>
#include <fmoe/dynamic/gradients.hpp>
#include <fmoe/dynamic/load.hpp>
#include <fmoe/dynamic/names.hpp>

#include <fmoe/implementation.hpp>

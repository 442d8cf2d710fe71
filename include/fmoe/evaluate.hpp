// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/run/compile.hpp>
#include <fmoe/run/evaluate.hpp>

#include <fmoe/implementation.hpp>

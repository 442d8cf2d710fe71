// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/run/explain.hpp>

#include <fmoe/implementation.hpp>

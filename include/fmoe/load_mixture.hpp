// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/models/load_mixture.hpp>

#include <fmoe/implementation.hpp>

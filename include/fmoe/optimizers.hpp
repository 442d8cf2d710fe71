// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/optimizers/adam.hpp>
#include <fmoe/optimizers/clip.hpp>
#include <fmoe/optimizers/running_statistics.hpp>
#include <fmoe/optimizers/sgd.hpp>
#include <fmoe/optimizers/unit_norm.hpp>

#include <fmoe/implementation.hpp>

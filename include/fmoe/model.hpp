// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/run/model.hpp>

#include <fmoe/implementation.hpp>

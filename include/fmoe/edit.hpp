// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/analysis/edit.hpp>

#include <fmoe/implementation.hpp>

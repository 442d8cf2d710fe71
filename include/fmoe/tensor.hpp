// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/arrays/print.hpp>
#include <fmoe/arrays/tensor.hpp>

#include <fmoe/implementation.hpp>

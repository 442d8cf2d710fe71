// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/arrays/tensor.hpp>

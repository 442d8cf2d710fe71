// SPDX-License-Identifier: MIT
#include <fmoe/src.hpp>

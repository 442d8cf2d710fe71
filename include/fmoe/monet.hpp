// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/layers/monet.hpp>

#include <fmoe/implementation.hpp>

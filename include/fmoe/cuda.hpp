// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/backend/cuda/device.hpp>

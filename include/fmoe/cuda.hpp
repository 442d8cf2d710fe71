// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/foreign.hpp>
#include <fmoe/backend/cuda/tensor.hpp>

#include <fmoe/implementation.hpp>

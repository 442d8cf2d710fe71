// SPDX-License-Identifier: MIT
// A part of fmoe::fmoe, compiled for the lowest instruction set: compiled layers, gradients,
// optimizers and ranks.
#include <fmoe/distributed/src.hpp>
#include <fmoe/gradients/src.hpp>
#include <fmoe/layers/src.hpp>
#include <fmoe/optimizers/src.hpp>
#include <fmoe/run/src.hpp>

// SPDX-License-Identifier: MIT
// Everything behind the wall of gradients.
#pragma once

#include <fmoe/gradients/differentiate-inl.hpp>
#include <fmoe/gradients/gradient-inl.hpp>
#include <fmoe/gradients/gradient_run-inl.hpp>
#include <fmoe/gradients/losses-inl.hpp>

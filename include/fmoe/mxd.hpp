// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/layers/cross_layer_transcoder.hpp>
#include <fmoe/layers/mxd.hpp>
#include <fmoe/layers/sparse_mlp.hpp>

#include <fmoe/implementation.hpp>

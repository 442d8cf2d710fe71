// SPDX-License-Identifier: MIT
// Every layer, the weights that training starts from, and what runs and explains layers: evaluate,
// compile, model, cost and explain. Other headers are <fmoe/io/safetensors.hpp> and
// <fmoe/io/npy.hpp> for files, <fmoe/analysis.hpp> for statistics of experts, <fmoe/edit.hpp> for
// layers with an edit, <fmoe/rank.hpp> for ranks, <fmoe/eigen.hpp> and <fmoe/xtensor.hpp> for
// arrays of other libraries, and <fmoe/reference.hpp> for the reference backend.
#pragma once

#include <fmoe/aoe.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/layers/initialise.hpp>
#include <fmoe/model.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/version.hpp>

#include <fmoe/implementation.hpp>

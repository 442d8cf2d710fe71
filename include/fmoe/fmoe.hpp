// SPDX-License-Identifier: MIT
// Every layer, with evaluate, compile, cost and explain. Other headers are
// <fmoe/io/safetensors.hpp> and <fmoe/io/npy.hpp> for weights, <fmoe/analysis.hpp> for statistics
// of experts, <fmoe/edit.hpp> for layers with an edit, and <fmoe/reference.hpp> for the reference
// backend.
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

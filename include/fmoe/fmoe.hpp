// SPDX-License-Identifier: MIT
// Every layer, what it costs, how it is planned and what its experts do. Weights come with <fmoe/io/safetensors.hpp> and <fmoe/io/npy.hpp>.
#pragma once

#include <fmoe/analysis.hpp>
#include <fmoe/aoe.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/initialise.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/version.hpp>

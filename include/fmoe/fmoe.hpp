// SPDX-License-Identifier: MIT
// Every layer, what it costs and how it is planned. Weights come with <fmoe/io/safetensors.hpp> and <fmoe/io/npy.hpp>, what experts do
// with <fmoe/analysis.hpp>, edits with <fmoe/edit.hpp>.
#pragma once

#include <fmoe/aoe.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/initialise.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/version.hpp>

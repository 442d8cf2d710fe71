// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/distributed/clip_shard.hpp>
#include <fmoe/distributed/compiled_shard.hpp>
#include <fmoe/distributed/gradient_sum.hpp>
#include <fmoe/distributed/load_shard.hpp>
#include <fmoe/distributed/measure_network.hpp>
#include <fmoe/distributed/save_shard.hpp>
#include <fmoe/distributed/shard_gradients.hpp>
#include <fmoe/distributed/thread_communicator.hpp>

#include <fmoe/implementation.hpp>

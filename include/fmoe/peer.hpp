// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/layers/peer.hpp>

#include <fmoe/implementation.hpp>

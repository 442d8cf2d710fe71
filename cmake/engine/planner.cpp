// SPDX-License-Identifier: MIT
// A part of fmoe::fmoe, compiled for the lowest instruction set: graphs, and the passes that all
// backends share.
#include <fmoe/planner/src.hpp>

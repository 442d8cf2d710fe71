// SPDX-License-Identifier: MIT
// load_model: a file's layer of any kind, ready to run.
#pragma once

#include <fmoe/models/load_model.hpp>

#include <fmoe/implementation.hpp>

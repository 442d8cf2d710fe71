// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/distributed.hpp>
#include <fmoe/distributed/mpi_communicator.hpp>

#include <fmoe/implementation.hpp>

// SPDX-License-Identifier: MIT
// Everything to look at experts and at their work on a stream of tokens. The ranks of their
// matrices need Eigen: <fmoe/analysis/rank.hpp>.
#pragma once

#include <fmoe/analysis/expert_correlation.hpp>
#include <fmoe/analysis/expert_domains.hpp>
#include <fmoe/analysis/expert_load.hpp>
#include <fmoe/analysis/expert_statistics.hpp>
#include <fmoe/analysis/polysemanticity.hpp>
#include <fmoe/analysis/top_tokens.hpp>

#include <fmoe/implementation.hpp>

// SPDX-License-Identifier: MIT
// The checks that every backend shares.
#pragma once

#include <fmoe/backend/backend.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe {

inline void backend::check(const planner::program& program) const {
  for (const planner::operation& o : program.operations)
    if (const auto reason = refusal(o))
      throw value_error("[" + name() + "] " + *reason + ", in \"" + planner::text_of(program, o) +
                        '"');
}

inline std::unique_ptr<executable> backend::compile(const job& work) const {
  check(work.program);
  return compiled(work);
}

inline backend::description backend::explain(const job& work) const {
  check(work.program);
  return explained(work);
}

}  // namespace fmoe

// SPDX-License-Identifier: MIT
// What every backend checks.
#pragma once

#include <fmoe/backend/backend.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe {

FMOE_INLINE void executable::run(const call_arrays& call) const {
  for (const auto* arrays : {&call.arguments, &call.results})
    for (std::size_t i = 0; i < arrays->size(); ++i) {
      const place& of = (*arrays)[i].array.where;
      if (of.is_host() || of == where_) continue;
      detail::fail<value_error>("[forward] ", arrays == &call.arguments ? "input " : "output ", i,
                                " lies on ", std::string(of), ", and the layer runs on ",
                                std::string(where_), ": copy the array, or compile for its device");
    }
  detail::expects<value_error>(!call.on || !where_.is_host(),
                               "[forward] the layer runs on the host, which has no streams");
  run_here(call);
}

FMOE_INLINE void backend::check(const planner::program& program) const {
  for (const planner::operation& o : program.operations)
    if (const auto reason = refusal(o))
      throw value_error("[" + name() + "] " + *reason + ", in \"" + planner::text_of(program, o) +
                        '"');
}

FMOE_INLINE std::unique_ptr<executable> backend::compile(const job& work) const {
  check(work.program);
  return compiled(work);
}

FMOE_INLINE backend::description backend::explain(const job& work) const {
  check(work.program);
  return explained(work);
}

}  // namespace fmoe

// SPDX-License-Identifier: MIT
// What the pages about layers quote is what the headers say.
#include "support/catch.hpp"
#include "support/pages.hpp"

namespace {

using namespace fmoe::test;

TEST_CASE("each page about a layer quotes its header", "[pages]") {
  for (const std::string name : {"mumoe", "mxd", "monet", "aoe", "moe", "peer"}) {
    const auto header = lines_of(content("include/fmoe/" + name + ".hpp"));
    const auto quoted = blocks_of("docs/" + name + ".md", "cpp");
    CHECK(!quoted.empty());
    for (const auto& block : quoted) {
      INFO(name << ": " << block.front());
      CHECK(holds(header, block));
    }
  }
}

}  // namespace

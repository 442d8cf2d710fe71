// SPDX-License-Identifier: MIT
// Checks that the pages are true: each block of code is in a file that is compiled, and each output
// is in one that is compared.
#include "support/pages.hpp"
#include "support/catch.hpp"

namespace {

using namespace fmoe::test;

std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder,
                                            std::string_view extension) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == extension) found.push_back(entry.path());
  return found;
}

std::vector<std::filesystem::path> pages() {
  auto found = files_of("docs", ".md");
  found.push_back("README.md");
  return found;
}

TEST_CASE("each block of code of a page is quoted from a source that is compiled", "[pages]") {
  std::vector<std::vector<std::string>> sources;
  for (const auto& [folder, extension] : {std::pair{"include", ".hpp"},
                                          {"examples", ".cpp"},
                                          {"examples", ".hpp"},
                                          {"python/src", ".cpp"},
                                          {"tests", ".cpp"}})
    for (const auto& file : files_of(folder, extension)) sources.push_back(lines_of(content(file)));
  std::size_t blocks = 0;
  for (const auto& page : pages())
    for (const auto& block : blocks_of(page, "cpp")) {
      INFO(page << ": " << block.front());
      CHECK(std::ranges::any_of(sources, [&](const auto& source) { return holds(source, block); }));
      ++blocks;
    }
  CHECK(blocks > 20);
}

TEST_CASE("no block of a page is C++ by another name", "[pages]") {
  for (const auto& page : pages())
    for (const std::string& language : languages_of(page)) {
      INFO(page << ": " << language);
      CHECK((language == "" || language == "cpp" || language == "cmake" || language == "math" ||
             language == "text" || language == "bibtex" || language == "python" ||
             language == "c" || language == "json"));
    }
}

TEST_CASE("each page about a layer quotes its header", "[pages]") {
  for (const std::string name : {"mumoe", "mxd", "monet", "aoe", "moe", "peer"}) {
    INFO(name);
    const auto header = lines_of(content("include/fmoe/layers/" + name + ".hpp"));
    const auto quoted = blocks_of("docs/" + name + ".md", "cpp");
    CHECK(std::ranges::any_of(quoted, [&](const auto& block) { return holds(header, block); }));
  }
}

TEST_CASE("the guide quotes its example alone, and what that prints", "[pages]") {
  const auto example = lines_of(content("examples/guide.cpp")),
             printed = lines_of(content("examples/guide.expected"));
  for (const auto& block : blocks_of("docs/guide.md", "cpp")) {
    INFO(block.front());
    CHECK(holds(example, block));
  }
  const auto outputs = blocks_of("docs/guide.md", "");
  CHECK(outputs.size() == 7);
  for (const auto& block : outputs) {
    INFO(block.front());
    CHECK(holds(printed, block));
  }
}

TEST_CASE("the drawings of the guide are of the plan that it prints", "[pages]") {
  const auto of_svg = [](const std::string& text) {
    std::string escaped;
    for (const char c : text) escaped += c == '-' ? "&#45;" : c == '>' ? "&gt;" : std::string(1, c);
    return escaped;
  };
  const std::string plan = content("docs/images/mixture_plan.svg"),
                    all = content("docs/images/mixture.svg");
  const auto outputs = blocks_of("docs/guide.md", "");
  const auto explained = std::ranges::find_if(
      outputs, [](const auto& block) { return block.front().starts_with("cpu, "); });
  REQUIRE(explained != outputs.end());
  for (auto line = explained->begin() + 3; line != explained->end(); ++line) {
    std::istringstream words(*line);
    std::string kind, what;
    words >> kind >> what;
    INFO(*line);
    CHECK(plan.find(of_svg(kind + ' ' + what)) != plan.npos);
    CHECK(all.find(of_svg(kind + ' ' + what)) != all.npos);
  }
}

}  // namespace

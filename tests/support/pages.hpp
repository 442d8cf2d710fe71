// SPDX-License-Identifier: MIT
// Reads the blocks of code of the pages in docs. Tests run in the root of the repository.
#pragma once

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "files.hpp"

namespace fmoe::test {

// Returns the lines without leading and trailing spaces.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find_first_not_of(' ');
    all.push_back(first == line.npos ? ""
                                     : line.substr(first, line.find_last_not_of(' ') - first + 1));
  }
  return all;
}

// Returns the texts after the three backquotes of a page's blocks of code.
inline std::vector<std::string> languages_of(const std::filesystem::path& page) {
  std::vector<std::string> found;
  bool inside = false;
  for (const std::string& line : lines_of(content(page)))
    if (line.starts_with("```") && (inside = !inside)) found.push_back(line.substr(3));
  return found;
}

// Returns a plan without the times that are predicted on this machine, which pages leave out.
inline std::string without_times(const std::string& plan) {
  static const std::regex time(R"(time: about .*\n|  \([0-9.e+]+ [mu]s\))");
  return std::regex_replace(plan, time, "");
}

// Returns the lines of a page's blocks of code whose three backquotes are followed by `language`.
inline std::vector<std::vector<std::string>> blocks_of(const std::filesystem::path& page,
                                                       const std::string& language) {
  std::vector<std::vector<std::string>> found;
  bool inside = false, wanted = false;
  for (const std::string& line : lines_of(content(page))) {
    if (line.starts_with("```")) {
      inside = !inside;
      wanted = inside && line == "```" + language;
      if (wanted) found.emplace_back();
    } else if (wanted) {
      found.back().push_back(line);
    }
  }
  return found;
}

inline bool holds(const std::vector<std::string>& text, const std::vector<std::string>& block) {
  return !block.empty() &&
         std::search(text.begin(), text.end(), block.begin(), block.end()) != text.end();
}

}  // namespace fmoe::test

// SPDX-License-Identifier: MIT
// Judges every case of golden data in a directory and below it, and prints one line for each.
#pragma once

#include <cstdio>
#include <map>
#include <string_view>

#include "moe.hpp"
#include "monet.hpp"
#include "mumoe.hpp"
#include "mxd.hpp"
#include "over_ranks.hpp"
#include "peer.hpp"

namespace fmoe::golden {

inline constexpr std::pair<std::string_view, void (*)(golden_case&, report&)> families[] = {
    {"mumoe", judge_mumoe}, {"mxd", judge_mxd}, {"monet", judge_monet},
    {"aoe", judge_aoe},     {"moe", judge_moe}, {"peer", judge_peer},
};

inline report judge(const std::filesystem::path& stem) {
  report r;
  try {
    golden_case c(stem.string());
    const std::string family = c.required("family");
    const auto* known = std::ranges::find(families, family, [](const auto& f) { return f.first; });
    if (known == std::end(families)) throw not_understood("family " + family);
    known->second(c, r);
    for (const std::string& tensor : c.unread()) r.fault("not understood: tensor " + tensor);
    if (c.gradients() && r.gradients() == 0) r.fault("not understood: the gradients");
  } catch (const not_understood& e) {
    r.fault(std::string("not understood: ") + e.what());
  } catch (const std::exception& e) {
    r.fault(e.what());
  }
  return r;
}

// Takes "name.part.safetensors" and returns the names by part.
inline std::map<std::string, std::vector<std::string>> files_by_part(
    const std::filesystem::path& directory) {
  std::map<std::string, std::vector<std::string>> parts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string file = entry.path().lexically_relative(directory).generic_string();
    if (!file.ends_with(extension)) continue;
    const std::string stem = file.substr(0, file.size() - extension.size());
    const auto dot = stem.rfind('.');
    parts[dot == stem.npos ? "" : stem.substr(dot + 1)].push_back(stem.substr(0, dot));
  }
  for (auto& [part, names] : parts) std::ranges::sort(names);
  return parts;
}

// Prints to `to`, and returns the exit status of the program.
inline int judge_directory(const std::filesystem::path& directory, std::FILE* to = stdout) {
  auto parts = files_by_part(directory);
  int passed = 0, failed = 0;
  for (const std::string& name : parts["io"]) {
    const report r = judge(directory / name);
    ++(r.passed() ? passed : failed);
    std::fprintf(to, "%-42s %s   %s\n", name.c_str(), r.text().c_str(),
                 r.passed() ? "pass" : "FAIL");
    for (const std::string& fault : r.faults()) std::fprintf(to, "    %s\n", fault.c_str());
  }
  for (const auto& [part, names] : parts)
    for (const std::string& name : names) {
      const bool has_case = std::ranges::binary_search(parts["io"], name);
      const bool is_used =
          part == "io" || part == "weights" || ((part == "experts" || part == "grad") && has_case);
      if (is_used) continue;
      ++failed;
      std::fprintf(to, "%-42s not understood: nothing reads this file   FAIL\n",
                   (name + '.' + part).c_str());
    }
  for (const auto& [label, times] : cut_over_ranks.cut)
    std::fprintf(to, "cut over '%c' %zu times\n", label, times);
  for (const auto& [why, times] : cut_over_ranks.refused)
    std::fprintf(to, "refused %zu times: %s\n", times, why.c_str());
  std::fprintf(to, "%d passed, %d failed, gradients in %zu cases\n", passed, failed,
               parts["grad"].size());
  return failed == 0 && passed != 0 ? 0 : 1;
}

}  // namespace fmoe::golden

// SPDX-License-Identifier: MIT
// fmoe_golden [--on cpu|reference|cuda] [--math exact|fp32|tf32x3|tf32|bf16] DIR runs every case of
// golden data in a directory and below it, in float and in double, and compares it with the results
// of the authors' code. It prints one line for each case, its faults below that line, and the
// totals at the end.
#include <cstdio>
#include <map>
#include <string_view>

#include <fmoe/cuda.hpp>
#include <fmoe/reference.hpp>

#include "golden/moe.hpp"
#include "golden/monet.hpp"
#include "golden/mumoe.hpp"
#include "golden/mxd.hpp"
#include "golden/peer.hpp"
#include "golden/value_of.hpp"

namespace {

using fmoe::golden::extension;
using fmoe::golden::golden_case;
using fmoe::golden::not_understood;
using fmoe::golden::report;

constexpr std::pair<std::string_view, void (*)(golden_case&, report&)> families[] = {
    {"mumoe", fmoe::golden::judge_mumoe}, {"mxd", fmoe::golden::judge_mxd},
    {"monet", fmoe::golden::judge_monet}, {"aoe", fmoe::golden::judge_aoe},
    {"moe", fmoe::golden::judge_moe},     {"peer", fmoe::golden::judge_peer},
};

report judge(const std::filesystem::path& stem) {
  report r;
  try {
    golden_case c(stem);
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
std::map<std::string, std::vector<std::string>> files_by_part(
    const std::filesystem::path& directory) {
  std::map<std::string, std::vector<std::string>> parts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string file = entry.path().lexically_relative(directory);
    if (!file.ends_with(extension)) continue;
    const std::string stem = file.substr(0, file.size() - extension.size());
    const auto dot = stem.rfind('.');
    parts[dot == stem.npos ? "" : stem.substr(dot + 1)].push_back(stem.substr(0, dot));
  }
  for (auto& [part, names] : parts) std::ranges::sort(names);
  return parts;
}

int run(const std::filesystem::path& directory) {
  auto parts = files_by_part(directory);
  int passed = 0, failed = 0;
  for (const std::string& name : parts["io"]) {
    const report r = judge(directory / name);
    ++(r.passed() ? passed : failed);
    std::printf("%-42s %s   %s\n", name.c_str(), r.text().c_str(), r.passed() ? "pass" : "FAIL");
    for (const std::string& fault : r.faults()) std::printf("    %s\n", fault.c_str());
  }
  for (const auto& [part, names] : parts)
    for (const std::string& name : names) {
      const bool has_case = std::ranges::binary_search(parts["io"], name);
      const bool is_used =
          part == "io" || part == "weights" || ((part == "experts" || part == "grad") && has_case);
      if (is_used) continue;
      ++failed;
      std::printf("%-42s not understood: nothing reads this file   FAIL\n",
                  (name + '.' + part).c_str());
    }
  std::printf("%d passed, %d failed, gradients in %zu cases\n", passed, failed,
              parts["grad"].size());
  return failed == 0 && passed != 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  using fmoe::cuda::math;
  constexpr std::string_view usage =
      "usage: fmoe_golden [--on cpu|reference|cuda] [--math exact|fp32|tf32x3|tf32|bf16] DIR, a "
      "directory of <case>.io.safetensors and <case>.weights.safetensors; --math is for cuda\n";
  std::map<std::string_view, std::string_view> options{{"--on", "cpu"}, {"--math", "exact"}};
  bool is_known = argc % 2 == 0 && std::filesystem::is_directory(argv[argc - 1]);
  for (int i = 1; is_known && i + 1 < argc; i += 2) {
    is_known = options.contains(argv[i]);
    options[argv[i]] = argv[i + 1];
  }
  const std::string_view on = options["--on"];
  constexpr math all[] = {math::exact, math::fp32, math::tf32x3, math::tf32, math::bf16};
  const auto* const how = std::ranges::find(all, options["--math"], fmoe::cuda::name_of);
  is_known = is_known && (on == "cpu" || on == "reference" || on == "cuda") && how != std::end(all);
  if (!is_known) {
    std::fputs(usage.data(), stderr);
    return 2;
  }
  if (on == "reference") fmoe::golden::judged.on = fmoe::reference();
  if (on == "cuda")
    fmoe::golden::judged.on =
        fmoe::cuda::device(0, {.math = *how, .tensor_sums = fmoe::cuda::tensor_sums::cut_off});
  if (*how == math::tf32) fmoe::golden::limit<float> = {2e-3, 6e-3};
  if (*how == math::bf16) fmoe::golden::limit<float> = {2e-2, 6e-2};
  return run(argv[argc - 1]);
}

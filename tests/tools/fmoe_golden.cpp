// SPDX-License-Identifier: MIT
// fmoe_golden [--on cpu|reference|cuda] [--math exact|fp32|tf32x3|tf32|bf16] [--ranks N] DIR runs
// every case of golden data in a directory and below it, in float and in double, and compares it
// with the results of the authors' code. It prints one line for each case, its faults below that
// line, and the totals at the end.
#include <cstdio>
#include <map>
#include <string_view>

#include <fmoe/cuda.hpp>
#include <fmoe/reference.hpp>

#include "golden/directory.hpp"
#include "golden/value_of.hpp"

int main(int argc, char** argv) {
  using fmoe::cuda::math;
  constexpr std::string_view usage =
      "usage: fmoe_golden [--on cpu|reference|cuda] [--math exact|fp32|tf32x3|tf32|bf16] [--ranks "
      "N] "
      "DIR, a directory of <case>.io.safetensors and <case>.weights.safetensors; --math is for "
      "cuda, and --ranks also cuts the layers over N threads\n";
  std::map<std::string_view, std::string_view> options{
      {"--on", "cpu"}, {"--math", "exact"}, {"--ranks", "0"}};
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
#if !defined(_WIN32)  // where there are no GPUs yet
  if (on == "cuda")
    fmoe::golden::judged.on = fmoe::cuda::gpu_or_emulated(
        {.math = *how, .tensor_sums = fmoe::cuda::tensor_sums::cut_off});
#endif
  if (*how == math::tf32) fmoe::golden::limit<float> = {2e-3, 6e-3};
  if (*how == math::bf16) fmoe::golden::limit<float> = {2e-2, 6e-2};
  const auto ranks = static_cast<std::size_t>(std::atoi(std::string(options["--ranks"]).c_str()));
  fmoe::golden::job = {ranks, [=](const auto& body) { fmoe::run_on_threads(ranks, body); }};
  return fmoe::golden::judge_directory(argv[argc - 1]);
}

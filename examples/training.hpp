// SPDX-License-Identifier: MIT
// What the programs that train share: arguments, batches of rows, a progress line, checkpoints.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include <fmoe/base/random.hpp>
#include <fmoe/io/safetensors.hpp>

namespace training {

// Returns the text behind "--name", or `otherwise`.
inline std::string argument(int argc, char** argv, const char* name,
                            const std::string& otherwise = {}) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], name) == 0) return argv[i + 1];
  return otherwise;
}

// Random numbers of one step. They follow from the seed and the step alone, so that training which
// is resumed draws what it would have drawn.
inline fmoe::random_stream drawn(std::size_t seed, std::size_t step) {
  return fmoe::random_stream(seed * 0x9e3779b97f4a7c15u + step * 0xd1342543de82ef95u);
}

// Returns a number below n.
inline std::size_t below(std::size_t n, fmoe::random_stream& random) {
  return static_cast<std::size_t>(random.bits() >> 32) * n >> 32;
}

// Copies row `from` of one matrix to row `to` of another.
inline void copy_row(const fmoe::tensor<float, 2>& all, std::size_t from, float* to) {
  const std::size_t width = all.shape()[1];
  std::copy_n(all.data() + from * width, width, to);
}

// The rate of a step: it rises over the first twentieth and falls to 0 at the end.
inline double warmed_up(double rate, std::size_t step, std::size_t steps) {
  const double at = static_cast<double>(step + 1) / static_cast<double>(steps);
  return rate * (at < 0.05 ? at / 0.05 : (1 - at) / 0.95);
}

// Says how far a run is: on a terminal in one line that changes, else in a line for each call of
// `report`.
class progress {
 public:
  progress(std::string name, std::size_t first, std::size_t steps)
      : name_(std::move(name)),
        first_(first),
        steps_(steps) {}

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  // After so many steps; `numbers` is what the program measures.
  void report(std::size_t step, const std::string& numbers) const {
    const double each = seconds() / static_cast<double>(std::max<std::size_t>(step - first_, 1));
    std::fprintf(stderr, "\r%s: step %zu of %zu, %s, %.0f ms a step, %.0f s left   %s",
                 name_.c_str(), step, steps_, numbers.c_str(), 1e3 * each,
                 each * static_cast<double>(steps_ - step), step == steps_ ? "\n" : "");
  }

 private:
  std::string name_;
  std::size_t first_, steps_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A folder with the newest state of a run: NAME.STEP.layer.safetensors and
// NAME.STEP.optimizer.safetensors. An older pair goes when a new one is whole.
class checkpoints {
 public:
  checkpoints(std::filesystem::path folder, std::string name)
      : folder_(std::move(folder)),
        name_(std::move(name)) {}

  template <class Layer, class Optimizer>
  void save(const Layer& layer, const Optimizer& optimizer) const {
    if (folder_.empty()) return;
    std::filesystem::create_directories(folder_);
    const std::size_t step = optimizer.steps(), before = newest();
    optimizer.save(file(step, "optimizer"));
    fmoe::save(layer, file(step, "layer"));  // the last one: with it the pair is whole
    if (before == 0 || before == step) return;
    std::filesystem::remove(file(before, "layer"));
    std::filesystem::remove(file(before, "optimizer"));
  }

  // Loads the newest state, if there is one, into a layer of the same settings.
  template <class Layer, class Optimizer>
  void resume(Layer& layer, Optimizer& optimizer) const {
    const std::size_t step = newest();
    if (step == 0) return;
    layer = fmoe::load<Layer>(file(step, "layer"));
    optimizer.load(file(step, "optimizer"));
  }

 private:
  std::filesystem::path file(std::size_t step, const char* what) const {
    return folder_ / (name_ + "." + std::to_string(step) + "." + what + ".safetensors");
  }

  // The steps of the newest whole pair; 0 if there is none.
  std::size_t newest() const {
    std::size_t most = 0;
    if (folder_.empty() || !exists(folder_)) return most;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string text = entry.path().filename().string();
      if (!text.starts_with(name_ + ".") || !text.ends_with(".layer.safetensors")) continue;
      most =
          std::max<std::size_t>(most, std::strtoull(text.c_str() + name_.size() + 1, nullptr, 10));
    }
    return most;
  }

  std::filesystem::path folder_;
  std::string name_;
};

}  // namespace training

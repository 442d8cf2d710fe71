// SPDX-License-Identifier: MIT
// A contestant is a program that holds one layer and times a round of it on command; peers.py
// starts all of them and lets them take turns. Each line of its input is a command, each line of
// its output an answer:
//
//   layer KIND FILE   reads the weights and the rows x of a layer, which has as many outputs: "ok"
//   rows COUNT FILE   prepares calls on the first rows of x, and writes the result: "ok", or "none"
//   if
//                     there is no such layer here
//   time              the seconds of a call, of those that 20 ms hold after as many that warm up; a
//                     call of more than 0.1 s needs no other before it
#pragma once

#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <sstream>

#include <fmoe/base/memory.hpp>
#include <fmoe/io/safetensors.hpp>

namespace fmoe::peers {

using detail::extent;

// Zeroed floats, in huge pages where these are many.
class floats {
 public:
  floats() = default;
  explicit floats(extent size) : memory_(size * sizeof(float)) {}

  float* data() { return reinterpret_cast<float*>(memory_.data()); }
  const float* data() const { return reinterpret_cast<const float*>(memory_.data()); }
  extent size() const { return memory_.size() / sizeof(float); }

 private:
  detail::memory memory_;
};

// A layer for the rows that it was made for: call(x, y), and what else a call computes.
struct forward {
  std::function<void(const float* x, float* y)> call;
  std::function<void(std::ostream&)> write_more{};

  explicit operator bool() const { return call != nullptr; }
};
// Makes the calls of a layer on so many rows; empty if the contestant has no layer of this kind.
using maker =
    std::function<forward(const std::string& kind, const io::safetensors& weights, extent tokens)>;
// Answers a command that only this contestant has.
using extra_command = std::function<std::string(const std::string& command)>;

inline double now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

inline double seconds_of_call(const std::function<void()>& call) {
  constexpr double shortest = 0.02;
  const auto many = [&] {
    extent calls = 0;
    const double start = now();
    double spent = 0;
    for (; spent < shortest; spent = now() - start, ++calls) call();
    return spent / static_cast<double>(calls);
  };
  const double first = many();
  return first > 0.1 ? first : many();
}

class contestant {
 public:
  contestant(maker make, extra_command extra) : make_(std::move(make)), extra_(std::move(extra)) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string command, first, second;
    words >> command >> first >> second;
    if (command == "layer") return read(first, second);
    if (command == "rows") return prepare(std::stoull(first), second);
    if (command != "time") return extra_ ? extra_(command) : "unknown";
    std::ostringstream seconds;
    seconds << seconds_of_call([this] { run_.call(x_.data(), y_.data()); });
    return seconds.str();
  }

 private:
  std::string read(const std::string& kind, const std::string& file) {
    run_ = {};
    weights_.emplace(io::safetensors::read(file));
    kind_ = kind;
    x_ = weights_->get<float, 2>("x");
    return "ok";
  }

  std::string prepare(extent tokens, const std::string& file) {
    run_ = {};
    run_ = make_(kind_, *weights_, tokens);
    if (!run_) return "none";
    y_ = floats(tokens * x_.shape()[1]);
    run_.call(x_.data(), y_.data());
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(y_.data()),
              static_cast<std::streamsize>(y_.size() * sizeof(float)));
    if (run_.write_more) run_.write_more(out);
    return "ok";
  }

  maker make_;
  extra_command extra_;
  std::optional<io::safetensors> weights_;
  std::string kind_;
  tensor<float, 2> x_;
  floats y_;
  forward run_;
};

inline int serve(maker make, extra_command extra = {}) {
  contestant c(std::move(make), std::move(extra));
  for (std::string line; std::getline(std::cin, line);) try {
      std::cout << c.answer(line) << std::endl;
    } catch (const std::exception& e) {
      std::cout << "error: " << e.what() << std::endl;
    }
  return 0;
}

}  // namespace fmoe::peers

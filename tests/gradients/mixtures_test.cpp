// SPDX-License-Identifier: MIT
// The gradients of the mixtures of released models are those of central differences, for each
// parameter and for x, on the CPU and on the reference backend.
#include <cmath>
#include <map>
#include <random>
#include <string>

#include <fmoe/gradients.hpp>
#include <fmoe/load_mixture.hpp>
#include <fmoe/reference.hpp>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using layer = moe<double>;

// Calls f with each parameter that has a gradient, by name.
template <class F>
void each_trained(layer& l, const F& f) {
  auto visit = [&](const released_name& n, auto& p) {
    if (n.trained && !p.empty()) f(n.name, p);
  };
  layer::released(l, visit);
}

double loss(const layer& l, const tensor<double, 2>& x, const tensor<double, 2>& dy) {
  const auto y = evaluate(l(x));
  double sum = 0;
  for (extent i = 0; i < y.size(); ++i) sum += y.data()[i] * dy.data()[i];
  return sum;
}

TEST_CASE("the gradients of released mixtures are those of differences", "[gradients]") {
  for (const char* name :
       {"mixtral", "qwen2_moe", "olmoe", "deepseek_v3", "llama4", "gpt_oss", "nemotron_h",
        "nemotron_h_latent", "step3p5_limits", "glm5_next", "longcat_flash", "phimoe_jitter"}) {
    auto l = load_mixture<double>(std::filesystem::path("tests/mixtures") / name, 1);
    const extent width = l.router.shape()[0], tokens = 5;
    const auto x = random<tensor<double, 2>>({tokens, width}, 1);
    const auto dy = random<tensor<double, 2>>({tokens, width}, 2);
    for (const bool on_reference : {false, true}) {
      INFO(name << (on_reference ? " on the reference backend" : " on the CPU"));
      compile_options options;
      if (on_reference) options.on = reference();
      auto step = compile_gradients(l, tokens, options);
      tensor<double, 2> y({tokens, width}), dx({tokens, width});
      step(x, dy, y, dx);
      layer gradients = step.gradients();
      std::map<std::string, std::vector<double>> made;
      each_trained(gradients, [&](const std::string& parameter, const auto& g) {
        made[parameter].assign(g.data(), g.data() + g.size());
      });
      constexpr double h = 1e-6;
      each_trained(l, [&](const std::string& parameter, auto& numbers) {
        INFO(parameter);
        const extent n = numbers.size();
        REQUIRE(made[parameter].size() == n);
        std::mt19937 bits(3);
        std::normal_distribution<double> normal;
        const std::vector<double> before(numbers.begin(), numbers.end());
        std::vector<double> direction(n);
        double expected = 0;
        for (extent i = 0; i < n; ++i) {
          direction[i] = normal(bits);
          expected += direction[i] * made[parameter][i];
        }
        const auto moved = [&](double by) {
          for (extent i = 0; i < n; ++i) numbers.data()[i] = before[i] + by * direction[i];
          return loss(l, x, dy);
        };
        const double slope = (moved(h) - moved(-h)) / (2 * h);
        std::copy(before.begin(), before.end(), numbers.data());
        CHECK(std::abs(slope - expected) <= 1e-6 * (1 + std::abs(expected)));
      });
      tensor<double, 2> up = x, down = x;
      const auto along = random<tensor<double, 2>>({tokens, width}, 4);
      double expected = 0;
      for (extent i = 0; i < x.size(); ++i) {
        up.data()[i] += h * along.data()[i];
        down.data()[i] -= h * along.data()[i];
        expected += along.data()[i] * dx.data()[i];
      }
      const double slope = (loss(l, up, dy) - loss(l, down, dy)) / (2 * h);
      CHECK(std::abs(slope - expected) <= 1e-6 * (1 + std::abs(expected)));
    }
  }
}

}  // namespace

// SPDX-License-Identifier: MIT
// A trained mixture of decoders replaces the MLP of a language model. This program loads it, runs
// it, and shows the tokens on which its experts are active.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <set>
#include <sstream>

#include <fmoe/cost.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main(int argc, char** argv) {
  const std::filesystem::path data = argc > 1 ? argv[1] : "examples/data";
  const auto layer = load<mxd<>>(data / "minilm_l3_mxd_bf16.safetensors");
  const auto rows = io::safetensors::read(data / "minilm_l3_rows.safetensors");
  const auto x = rows.get<float, 2>("x"), authors = rows.get<float, 2>("y_bf16"),
             mlp = rows.get<float, 2>("target");
  const std::size_t tokens = x.shape()[0], experts = layer.gate.shape()[1];
  const cost_report work = cost(layer(x));
  std::printf("MxD: %zu experts, %zu active, %.0f parameters\n", experts, layer.active,
              work.factorized.parameters);
  std::printf("multiply-adds a token: %.3g, naive %.3g\n", work.factorized.multiply_adds,
              work.naive_multiply_adds);

  auto y = evaluate(layer(x));                  // once, or
  const auto forward = compile(layer, tokens);  // plan and pack now
  const auto start = std::chrono::steady_clock::now();
  for (int call = 0; call < 20; ++call) forward(x, y);  // and only compute here
  const std::chrono::duration<float> seconds = std::chrono::steady_clock::now() - start;
  const float count = static_cast<float>(tokens);
  std::printf("tokens a second: %.0f\n", 20 * count / seconds.count());

  float error = 0, largest = 0, relative = 0, loss = 0;
  for (std::size_t i = 0; i < y.size(); ++i)
    error = std::max(error, std::abs(y.data()[i] - authors.data()[i]));
  for (std::size_t i = 0; i < y.size(); ++i)
    largest = std::max(largest, std::abs(authors.data()[i]));
  std::printf("off the authors' output by %.1e of its largest\n", error / largest);
  const auto missed = evaluate(einsum<"to,to->t">(y - mlp, y - mlp)),
             whole = evaluate(einsum<"to,to->t">(mlp, mlp));
  for (std::size_t t = 0; t < tokens; ++t) {
    relative += missed(t) / whole(t);
    loss += missed(t) / std::sqrt(whole(t));
  }
  std::printf("off the MLP's t: mean |y-t|^2/|t|^2 %.4f, mean |y-t|^2/|t| %.4f\n", relative / count,
              loss / count);

  // The norms of the experts' contributions are an expression, too: [t, n].
  const auto added = evaluate(layer.contribution_norms(x));
  std::set<std::pair<float, std::size_t>, std::greater<>>
      specialists;  // active on under 5% of the tokens
  for (std::size_t n = 0; n < experts; ++n) {
    float sum = 0, active = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      sum += added(t, n);
      active += added(t, n) > 0;
    }
    if (active / count < 0.05f) specialists.emplace(sum, n);
    if (specialists.size() > 3) specialists.erase(std::prev(specialists.end()));
  }
  std::istringstream text(rows.metadata().at("words"));
  const std::vector<std::string> words(std::istream_iterator<std::string>(text), {});
  for (const auto& [sum, n] : specialists) {
    std::printf("expert %zu adds %.1f in all, on:", n, sum);
    for (std::size_t t = 0; t < tokens; ++t)
      if (added(t, n) > 0) std::printf(" %s", words[t].c_str());
    std::puts("");
  }
}

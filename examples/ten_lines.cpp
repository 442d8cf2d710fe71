// SPDX-License-Identifier: MIT
// This is the example of README.md. It takes a trained layer from its file to its output, and shows
// the plan of the layer.
#include <iostream>

#include <fmoe/explain.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

int main() {
  const auto layer = fmoe::load<fmoe::mxd<>>("examples/data/minilm_l3_mxd_bf16.safetensors");
  const auto rows = fmoe::io::safetensors::read("examples/data/minilm_l3_rows.safetensors");
  const auto x = rows.get<float, 2>("x");  // 256 tokens
  auto y = fmoe::evaluate(layer(x));       // once, or
  const auto forward =
      fmoe::compile(layer, 1024);  // plan and pack now, for up to 1,024 tokens a call,
  forward(x, y);                   // and only compute here
  std::cout << y(0, 0) << '\n' << fmoe::explain(layer(x));
}

// SPDX-License-Identifier: MIT
// Runs a layer on a GPU, or on emulated blocks where there is none, and compares its bits with the
// CPU's.
#include <algorithm>
#include <cmath>
#include <iostream>

#include <fmoe/base/random.hpp>
#include <fmoe/cuda.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

tensor<float, 2> numbers(random_stream& random, std::size_t rows, std::size_t columns) {
  tensor<float, 2> made({rows, columns});
  std::generate_n(made.data(), made.size(), [&] { return static_cast<float>(random.uniform()); });
  return made;
}

float greatest_difference(const tensor<float, 2>& a, const tensor<float, 2>& b) {
  float greatest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    greatest = std::max(greatest, std::abs(a.data()[i] - b.data()[i]));
  return greatest;
}

int main() {
  mxd<> layer;  // 64 inputs and outputs, 256 hidden units, 500 experts, of which a token uses 8
  random_stream random(1);
  layer.encoder = numbers(random, 64, 256);
  layer.gate = numbers(random, 64, 500);
  layer.scales = numbers(random, 500, 64);
  layer.decoder = numbers(random, 256, 64);
  layer.active = 8;

  const auto on_gpu = compile(layer, 32, {.on = cuda::gpu_or_emulated()});
  const tensor<float, 2> x = numbers(random, 32, 64);
  const tensor<float, 2> y = on_gpu(x);

  const compile_options options{.on = cuda::gpu_or_emulated({.workspace = std::size_t{256} << 20})};
  std::cout << explain(layer(x), options);

  const auto gpu = cuda::gpu_or_emulated();
  const auto forward = compile(layer, 32, {.on = gpu, .callers = 2});
  const cuda::tensor<float, 2> in(x, gpu);
  cuda::tensor<float, 2> out({32, 64}, gpu);
  forward(in, out);

  const cuda::stream stream(gpu);
  forward.on(stream)(in, out);
  const tensor<float, 2> made = out.to_host(stream.handle());

  const cuda::graph graph(gpu, stream, [&] { forward.on(stream)(in, out); });
  graph.launch(stream);
  stream.synchronize();

  const auto faster = compile(layer, 32, {.on = cuda::gpu_or_emulated({.math = cuda::math::tf32})});
  std::cout << "tf32 changes a number by up to " << greatest_difference(faster(x), y) << '\n';

  std::cout << explain(layer(x), {.on = cuda::emulated(), .as = cuda::h100()});

  const tensor<float, 2> on_cpu = compile(layer, 32)(x);
  bool is_same = true;
  for (const tensor<float, 2>& other : {y, made, out.to_host()})
    is_same &= std::equal(other.data(), other.data() + other.size(), on_cpu.data());
  std::cout << (is_same ? "the CPU's numbers\n" : "other numbers than the CPU's\n");
}

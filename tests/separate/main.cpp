// SPDX-License-Identifier: MIT
// This translation unit knows neither planner nor kernels: its program compiles them once, in the
// source of the engine.
#include <cmath>
#include <cstdio>

#include <fmoe/fmoe.hpp>

#include <fmoe/io/safetensors.hpp>

#if defined(XSIMD_HPP) || defined(__TBB_parallel_for_H) || defined(TBB_INTERFACE_VERSION) || \
    defined(NLOHMANN_JSON_VERSION_MAJOR)
#error "a package behind the wall reaches translation units that are compiled separately"
#endif

namespace {

// The largest difference of (x w)[t, o] from a plain sum, evaluated and compiled.
template <class T>
double error() {
  fmoe::tensor<T, 2> x({3, 5}), y({3, 4});
  fmoe::parameter<T, 2> w({5, 4});
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = static_cast<T>(i) / 7;
  for (std::size_t i = 0; i < w.size(); ++i) w.data()[i] = static_cast<T>(i % 3);
  const auto layer = [&](const auto& in) { return fmoe::einsum<"ti,io->to">(in, w); };
  const auto z = fmoe::evaluate(layer(x));
  fmoe::compile(layer, fmoe::arguments<2>{}, 3)(x, y);
  double most = 0;
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t o = 0; o < 4; ++o) {
      double sum = 0;
      for (std::size_t i = 0; i < 5; ++i)
        sum += static_cast<double>(x.data()[5 * t + i]) * static_cast<double>(w.data()[4 * i + o]);
      for (const T v : {y.data()[4 * t + o], z.data()[4 * t + o]})
        most = std::max(most, std::abs(static_cast<double>(v) - sum));
    }
  return most;
}

// Is a file in memory read as it was written?
bool file_is_read_back() {
  const fmoe::tensor<float, 2> x({2, 3});
  const auto bytes = fmoe::io::safetensors::serialize({{"x", x}}, {{"kind", "zeros"}});
  const auto file = fmoe::io::safetensors::parse(bytes);
  return file.get<float, 2>("x").shape() == x.shape() && file.metadata().at("kind") == "zeros";
}

}  // namespace

int main() {
  const double single = error<float>(), twice = error<double>();
  std::printf("float differs by %g, double by %g\n", single, twice);
  return single < 1e-5 && twice < 1e-13 && file_is_read_back() ? 0 : 1;
}

// SPDX-License-Identifier: MIT
// A header-only program has kernels for the weight types of its own expressions. Here each way to
// run an expression with weights of fewer bits is the first of its process, so that one which does
// not ask for their kernels has none.
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include <fmoe/dynamic.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/gradients.hpp>

#if defined(FMOE_SEPARATE_COMPILATION)
#error "this program is header-only"
#endif

namespace {

using fmoe::bf16, fmoe::einsum, fmoe::parameter, fmoe::tensor;

tensor<float, 2> ones(std::size_t rows) {
  tensor<float, 2> x({rows, 3});
  std::fill(x.begin(), x.end(), 1.f);
  return x;
}

// y = x w, where each y is 1 + 2 + 3.
template <class T>
struct product {
  parameter<T, 2> w{{3, 2}};
  auto operator()(const auto& x) const { return einsum<"ti,io->to">(x, w); }
  static void released(auto& layer, auto&& visit) {
    visit(fmoe::released_name{"w", fmoe::presence::required, "io"}, layer.w);
  }
};

bool is_six(const tensor<float, 2>& y) {
  return y.size() == 4 && std::all_of(y.begin(), y.end(), [](float v) { return v == 6; });
}

fmoe::dynamic::array array_of(const tensor<float, 2>& t) {
  return {const_cast<float*>(t.data()), fmoe::dtype::float32, {t.shape()[0], t.shape()[1]}};
}

bool has_kernels() {
  return fmoe::cpu::narrow_weights<fmoe::cpu::native_arch>(fmoe::dtype::bfloat16) != nullptr;
}

// True in a child process that starts with no kernels of narrow weights and ends with true.
bool in_new_process(const std::function<bool()>& run) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    bool ok = false;
    try {
      ok = !has_kernels() && run();
    } catch (const std::exception& e) {
      std::printf("%s\n", e.what());
    }
    std::fflush(stdout);
    _exit(ok ? 0 : 1);
  }
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

int failures = 0;

void check(const char* what, const std::function<bool()>& run) {
  const bool ok = in_new_process(run);
  std::printf("%s: %s\n", ok ? "ok" : "FAILED", what);
  failures += !ok;
}

}  // namespace

int main() {
  product<bf16> f;
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t o = 0; o < 2; ++o) f.w(i, o) = bf16(static_cast<float>(i + 1));
  const tensor<float, 2> x = ones(2);
  check("evaluate", [&] { return is_six(fmoe::evaluate(f(x))); });
  check("evaluate into an array", [&] {
    tensor<float, 2> y({2, 2});
    fmoe::evaluate(f(x), y);
    return is_six(y);
  });
  check("evaluate several", [&] {
    const auto [y, z] = fmoe::evaluate(std::tuple(f(x), fmoe::relu(x)));
    return is_six(y) && z.size() == 6;
  });
  check("compile", [&] { return is_six(fmoe::compile(f, 2)(x)); });
  check("explain", [&] { return fmoe::explain(f(x)).memory.packed > 0; });
  check("an expression of any types",
        [&] { return is_six(fmoe::evaluate(fmoe::expr<float, 2>(f(x)))); });
  check("gradient", [&] {
    const tensor<float, 2> dy = fmoe::evaluate(f(x));
    return fmoe::evaluate(fmoe::gradient(f(x), f.w, dy))(0, 0) == 12;
  });
  check("compile_gradients", [&] {
    auto step = fmoe::compile_gradients(f, 2);
    tensor<float, 2> y({2, 2}), dy({2, 2}), dx({2, 3});
    std::fill(dy.begin(), dy.end(), 1.f);
    step(x, dy, y, dx);
    return is_six(y) && dx(0, 2) == 6;
  });
  const auto made = [&] {
    return fmoe::dynamic::einsum("ti,io->to",
                                 {fmoe::dynamic::input(0), fmoe::dynamic::expression(f.w)});
  };
  check("dynamic::compile", [&] {
    tensor<float, 2> y({2, 2});
    fmoe::dynamic::compile({made()}, 2)(std::array{array_of(x), array_of(y)});
    return is_six(y);
  });
  check("dynamic::explain", [&] { return fmoe::dynamic::explain({made()}, 2).memory.packed > 0; });
  check("a program of floats has no kernels of other weights", [&] {
    const parameter<float, 2> w({3, 2});
    fmoe::evaluate(einsum<"ti,io->to">(x, w));
    return !has_kernels();
  });
  return failures;
}

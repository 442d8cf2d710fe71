// SPDX-License-Identifier: MIT
// What explain says of a step's time on a GPU, and the sums for whole layers beside the floors of
// the study of issue 17.
#include <fmoe/aoe.hpp>
#include <fmoe/cuda.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/tune.hpp>

#include <sstream>

#include "../support/agree.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using cuda::math;

parameter<float, 2> zeros(extent a, extent b) { return tensor<float, 2>({a, b}); }
parameter<float, 3> zeros(extent a, extent b, extent c) { return tensor<float, 3>({a, b, c}); }

template <class Weight = float>
auto gpt2() {
  const auto zeros = [](extent a, extent b) { return tensor<Weight, 2>({a, b}); };
  mxd<Weight> l;
  l.encoder = zeros(768, 3072);
  l.gate = zeros(768, 21490);
  l.scales = zeros(21490, 768);
  l.decoder = zeros(3072, 768);
  l.active = 32;
  return l;
}

auto router() {
  monet_router<float> r;
  for (auto* keys : {&r.keys1, &r.keys2}) *keys = zeros(2048, 8 * 512);
  r.heads = 8;
  r.active = 8;
  return r;
}
auto monet_horizontal() {
  monet_hd<float> l;
  l.encoder = zeros(2048, 512 * 16);
  l.decoder = zeros(512 * 16, 2048);
  l.bias = zeros(512, 2048);
  return [l, r = router()](const auto& x) { return l(x, r.g1(x), r.g2(x)); };
}
auto monet_vertical() {
  monet_vd<float> l;
  for (auto* u : {&l.encoder1, &l.encoder2}) *u = zeros(2048, 512 * 16);
  for (auto* v : {&l.decoder11, &l.decoder12, &l.decoder21, &l.decoder22})
    *v = zeros(512 * 16, 1024);
  for (auto* b : {&l.bias1, &l.bias2}) *b = zeros(512, 1024);
  return [l, r = router()](const auto& x) { return l(x, r.g1(x), r.g2(x)); };
}

auto autonomous() {
  aoe<float> l;
  l.down = zeros(768, 8, 256);
  l.up = zeros(8, 256, 3840);
  l.linear = zeros(8, 768, 3840);
  l.output = zeros(8, 3840, 768);
  l.route.active = 2;
  return l;
}

auto cp() {
  mumoe<cp_experts<1>> l;
  l.gate.projections[0] = zeros(768, 512);
  l.experts.experts[0] = zeros(512, 512);
  l.experts.input = zeros(769, 512);
  l.experts.output = zeros(768, 512);
  return l;
}
auto ring() {
  mumoe<tr_experts<1>> l;
  l.gate.projections[0] = zeros(768, 512);
  l.experts.experts[0] = zeros(4, 512, 4);
  l.experts.input = zeros(4, 769, 512);
  l.experts.output = zeros(512, 768, 4);
  return l;
}

constexpr extent tokens[] = {1, 16, 128, 1024, 16384};
using times = std::array<double, 5>;  // in microseconds, of so many tokens

// Launches are left out, as in the study.
times predicted(const auto& l, extent width, math how, bool screen) {
  machine m = cuda::h100();
  m.gpu.launch = 1e-12;
  times t{};
  for (extent i = 0; i < 5; ++i) {
    const tensor<float, 2> x({tokens[i], width});
    const auto on = cuda::emulated({.math = how, .workspace = std::size_t{8} << 30});
    t[i] = 1e6 * explain(l(x), {.on = on, .screen = screen, .as = m}).seconds;
  }
  return t;
}

TEST_CASE("sums of whole layers are near the floors of the study, in fp32", "[cuda][explain]") {
  const auto check = [](const auto& l, extent width, const times& floors) {
    const times t = predicted(l, width, math::exact, false);
    for (extent i = 0; i < 5; ++i) {
      INFO(tokens[i] << " tokens: " << t[i] << " and " << floors[i] << " us");
      CHECK((t[i] > 0.85 * floors[i] && t[i] < 1.15 * floors[i]));
    }
  };
  check(gpt2(), 768, {25.4, 26.8, 88.0, 692.3, 10849.8});
  check(monet_horizontal(), 2048, {61.4, 62.8, 202.6, 1620.6, 25930.1});
  check(monet_vertical(), 2048, {101.6, 103.9, 334.5, 2676.3, 42821.5});
  check(autonomous(), 768, {18.4, 67.6, 76.5, 474.1, 7585.3});
  check(cp(), 768, {1.7, 1.8, 5.7, 45.3, 725.2});
  check(ring(), 768, {4.3, 4.5, 14.4, 115.1, 1841.3});
}

// Scores lie in memory as floats; the study has them in 16 bits, which matters where they do not
// fit L2: for many tokens, and most with weights of 16 bits.
TEST_CASE("a screened gate is near the study's floor", "[cuda][explain]") {
  const auto check = [](const auto& l, math how, const times& floors, extent counts) {
    const times t = predicted(l, 768, how, true);
    for (extent i = 0; i < counts; ++i) {
      INFO(tokens[i] << " tokens: " << t[i] << " and " << floors[i] << " us");
      CHECK((t[i] > 0.85 * floors[i] && t[i] < 1.4 * floors[i]));
    }
  };
  check(gpt2(), math::exact, {15.6, 17.6, 42.4, 246.4, 3153.4}, 5);
  check(gpt2<bf16>(), math::bf16, {12.9, 14, 23, 85, 1160}, 3);
}

// The study lets experts be ranked in tf32, and has no time for what passes and gathers read again.
TEST_CASE("sums in tf32 exceed the study's floors by what ranks experts and by what L2 reads again",
          "[cuda][explain]") {
  const auto check = [](const auto& l, extent width, extent ranking, double again,
                        const times& floors) {
    const times t = predicted(l, width, math::tf32, false);
    for (extent i = 0; i < 5; ++i) {
      const auto rows = static_cast<double>(tokens[i]);
      const double twice = 2 * 2 * rows * static_cast<double>(width * ranking) / 495e6;
      INFO(tokens[i] << " tokens: " << t[i] << " and " << floors[i] << " us");
      CHECK(t[i] > 0.8 * floors[i]);
      CHECK(t[i] < 1.2 * (floors[i] + twice + rows * again / 3.35e6));
    }
  };
  check(gpt2(), 768, 21490, 32 * 768 * 4, {25.4, 26.8, 36.9, 131.4, 1875.1});
  check(monet_horizontal(), 2048, 8192, 0, {61.4, 62.8, 72.7, 262.7, 4202.6});
  check(monet_vertical(), 2048, 8192, 0, {101.6, 103.9, 121.1, 431.5, 6904.6});
  check(autonomous(), 768, 2048, 2 * 3840 * 4, {18.4, 67.6, 72.8, 110.1, 1139.8});
  check(cp(), 768, 512, 0, {1.7, 1.8, 2.6, 8.9, 118.5});
  check(ring(), 768, 512, 0, {4.3, 4.5, 6.2, 22.0, 344.8});
}

TEST_CASE("explain says what each step does and what bounds it", "[cuda][explain]") {
  const tensor<float, 2> x({1024, 768});
  const auto text = [&](const machine& m, math how) {
    return explain(gpt2()(x), {.on = cuda::emulated({.math = how}), .screen = false, .as = m}).text;
  };
  const std::string exact = text(cuda::h100(), math::exact);
  INFO(exact);
  const auto has = [](const std::string& whole, const std::string& part) {
    return whole.find(part) != whole.npos;
  };
  CHECK(exact.starts_with("cuda, NVIDIA H100 80GB HBM3\n"));
  CHECK(has(exact, "\ntime: about "));
  CHECK(has(exact, " for 1024 tokens\n"));
  // 2 * 1024 * 768 * 21490 operations at 67e12 a second.
  CHECK(has(exact, "(exact; 157 MB, 33.8 GFLOP, 504 us by arithmetic)"));
  CHECK(has(text(cuda::h100(), math::tf32), "(tf32x3; 157 MB, 101 GFLOP, 205 us by arithmetic)"));
  CHECK(has(text(cuda::a100(), math::exact), "(exact; 157 MB, 33.8 GFLOP, 1.73 ms by arithmetic)"));
  std::ostringstream written;
  written << cuda::h100();
  CHECK(text(machine_from(written.str()), math::exact) == exact);
  // Nothing is known of emulated blocks.
  const auto emulated = explain(gpt2()(x), {.on = cuda::emulated(), .screen = false});
  CHECK(!has(emulated.text, "time: "));
  CHECK(emulated.seconds == 0);
}

TEST_CASE("a step takes at least as long as its launch", "[cuda][explain]") {
  const tensor<float, 2> x({1, 64});
  const auto w = random<parameter<float, 2>>({64, 8}, 1);
  const auto plan =
      explain(einsum<"ti,io->to">(x, w), {.on = cuda::emulated(), .as = cuda::h100()});
  CHECK(plan.seconds == 2e-6);
  CHECK(plan.text.find("2 us by launch)") != plan.text.npos);
}

// Prints the rows of docs/measurements/cuda_roofline.csv: cuda_roofline "the table of the page".
TEST_CASE("the table of the page", "[.]") {
  const auto print = [](const char* name, math how, const auto& l, extent width, bool screen) {
    std::printf("| %s, %s%s |", name, cuda::name_of(how), screen ? ", screened" : "");
    for (const double t : predicted(l, width, how, screen))
      std::printf(t < 100 ? " %.1f |" : " %.0f |", t);
    std::printf("\n");
  };
  for (const math how : {math::exact, math::tf32, math::bf16}) {
    print("MxD GPT-2", how, gpt2(), 768, false);
    print("MxD GPT-2", how, gpt2(), 768, true);
    print("Monet 1.4B HD", how, monet_horizontal(), 2048, false);
    print("Monet 1.4B VD", how, monet_vertical(), 2048, false);
    print("AoE 2 of 8", how, autonomous(), 768, false);
    print("CP", how, cp(), 768, false);
    print("TR", how, ring(), 768, false);
  }
  print("MxD GPT-2 with weights in bf16", math::bf16, gpt2<bf16>(), 768, true);
}

}  // namespace

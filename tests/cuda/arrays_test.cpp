// SPDX-License-Identifier: MIT
// Arrays of a device as inputs and outputs: where they are read and written in place, where they
// are converted, and where they are refused.
#include <cstdint>

#include <fmoe/analysis.hpp>
#include <fmoe/cuda.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/reference.hpp>

#include <fmoe/backend/cuda/emulated/emulated_memory.hpp>

#if defined(FMOE_ADDRESS_SANITIZER)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "../support/agree.hpp"
#include "../support/failures.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

const auto gpu = cuda::gpu_or_emulated();
const std::string here_text = gpu->where();
const bool is_emulated = here_text.starts_with("emulated");
const compile_options on_gpu{.on = gpu};

template <class T = float>
tensor<T, 2> numbers(extent rows, extent columns, unsigned seed = 7) {
  return random<tensor<T, 2>>({rows, columns}, seed);
}

template <class T>
auto product(const parameter<T, 2>& w) {
  return [&w](const auto& x) { return relu(einsum<"ti,io->to">(x, w)); };
}

TEST_CASE("a layer reads and writes arrays of the device", "[cuda]") {
  const auto w = random<parameter<float, 2>>({12, 7}, 3);
  const auto forward = compile(product(w), 16, on_gpu);
  for (const extent tokens : {extent{16}, extent{3}, extent{0}}) {
    const auto x = numbers(tokens, 12);
    const tensor<float, 2> expected = forward(x);
    const cuda::tensor<float, 2> on(x, gpu);
    cuda::tensor<float, 2> y({tokens, 7}, gpu);
    forward(on, y);
    CHECK(same_bits(y.to_host(), expected));
    CHECK(same_bits(forward(on), expected));  // into the host's memory
    cuda::tensor<float, 2> z({tokens, 7}, gpu);
    forward(x, z);  // out of it
    CHECK(same_bits(z.to_host(), expected));
  }
}

#if defined(FMOE_ADDRESS_SANITIZER)
// Returns what a process of its own says while it makes the calls.
std::string said_by_a_process(const auto& calls) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("there is no pipe");
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    calls();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char some[4096];
  for (ssize_t n = 0; (n = read(ends[0], some, sizeof some)) > 0;)
    text.append(some, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return text + " status " + std::to_string(status);
}

TEST_CASE("the address sanitizer sees kernels reach behind an array of an emulated device",
          "[cuda]") {
  const auto w = random<parameter<float, 2>>({12, 7}, 3);
  const auto forward = compile(product(w), 16, on_gpu);
  const auto said = [&](extent rows_of_x, extent rows_of_y) {
    cuda::tensor<float, 2> x({rows_of_x, 12}, gpu), y({rows_of_y, 7}, gpu);
    return said_by_a_process([&] {
      auto whole = cuda::at(y.data(), {16, 7});
      forward(cuda::at(x.data(), {16, 12}), whole);
    });
  };
  CHECK(said(16, 16) == " status 0");
  CHECK_THAT(said(15, 16), containing("heap-buffer-overflow") && containing("READ of size"));
  CHECK_THAT(said(16, 15), containing("heap-buffer-overflow") && containing("WRITE of size"));
}
#endif

// Counts the kernels of a call; on a GPU nobody does.
long launches(const auto& call) {
  const long before = cuda::failures.launches;
  call();
  return cuda::failures.launches - before;
}

TEST_CASE("dense rows of the arithmetic's type are used in place", "[cuda]") {
  const auto w = random<parameter<float, 2>>({12, 7}, 3);
  const auto forward = compile(product(w), 16, on_gpu);
  const auto x = numbers(16, 12);
  const tensor<float, 2> expected = forward(x);
  // Rows of 12 and of 7 numbers begin at odd places of wider rows.
  cuda::tensor<float, 2> wide(numbers(16, 31), gpu), out({16, 29}, gpu);
  for (extent t = 0; t < 16; ++t)
    gpu->copy_in(wide.data() + t * 31 + 3, x.data() + t * 12, 12 * sizeof(float));
  tensor<float, 2> before({16, 29});
  std::fill_n(before.data(), before.size(), 5.f);
  out.copy_from(before);
  const auto all = [&](const auto& in, const auto& y) { return [&] { forward(in, y); }; };
  const auto from = cuda::at(wide.data() + 3, {16, 12}, {31, 1});
  const auto to = cuda::at(out.data() + 1, {16, 7}, {29, 1});
  const auto turned = cuda::at(wide.data(), {16, 12}, {1, 16});
  CHECK(launches(all(from, to)) == launches([&] { forward(x); }));
  CHECK(launches(all(turned, to)) == is_emulated + launches(all(from, to)));
  forward(from, to);
  const tensor<float, 2> after = out.to_host();
  for (extent t = 0; t < 16; ++t)
    for (extent c = 0; c < 29; ++c)
      CHECK(after(t, c) == (c >= 1 && c < 8 ? expected(t, c - 1) : 5.f));
}

TEST_CASE("other strides and types are converted on the device", "[cuda]") {
  const auto w = random<parameter<float, 2>>({12, 7}, 3);
  const auto forward = compile(product(w), 16, on_gpu);
  const auto x = numbers(16, 12);
  tensor<float, 2> turned({12, 16});
  tensor<bf16, 2> narrow({16, 12});
  tensor<f16, 2> half({16, 12});
  for (extent t = 0; t < 16; ++t)
    for (extent i = 0; i < 12; ++i) {
      turned(i, t) = x(t, i);
      narrow(t, i) = bf16(x(t, i));
      half(t, i) = f16(x(t, i));
    }
  cuda::tensor<float, 2> columns(turned, gpu), out({7, 16}, gpu), y({16, 7}, gpu);
  forward(cuda::at(columns.data(), {16, 12}, {1, 16}), cuda::at(out.data(), {16, 7}, {1, 16}));
  const tensor<float, 2> expected = forward(x), made = out.to_host();
  for (extent t = 0; t < 16; ++t)
    for (extent o = 0; o < 7; ++o) CHECK(made(o, t) == expected(t, o));
  forward(cuda::tensor<bf16, 2>(narrow, gpu), y);
  CHECK(same_bits(y.to_host(), forward(narrow)));
  forward(cuda::tensor<f16, 2>(half, gpu), y);
  CHECK(same_bits(y.to_host(), forward(half)));

  const auto wide = random<parameter<double, 2>>({12, 7}, 3);
  const auto in_double = compile(product(wide), 16, on_gpu);
  cuda::tensor<double, 2> z({16, 7}, gpu);
  in_double(cuda::tensor<float, 2>(x, gpu), z);
  CHECK(same_bits(z.to_host(), in_double(x)));
}

TEST_CASE("several inputs and results, and a sum without tokens, may lie anywhere", "[cuda]") {
  const auto w = random<parameter<float, 2>>({12, 7}, 3),
             v = random<parameter<float, 2>>({5, 3}, 4);
  const auto layer = [&](const auto& x, const auto& y) {
    return std::tuple(einsum<"ti,io->to">(x, w), einsum<"ti,tj->ij">(x, einsum<"tk,kj->tj">(y, v)));
  };
  const auto forward = compile(layer, arguments<2, 2>{}, 300, on_gpu);
  const auto x = numbers(300, 12), y = numbers(300, 5, 9);
  const auto [first, second] = forward(x, y);
  cuda::tensor<float, 2> made({300, 7}, gpu), sum({3, 12}, gpu);
  tensor<float, 2> on_host({300, 7});
  forward(cuda::tensor<float, 2>(x, gpu), y, made, cuda::at(sum.data(), {12, 3}, {1, 12}));
  CHECK(same_bits(made.to_host(), first));
  for (extent i = 0; i < 12; ++i)
    for (extent j = 0; j < 3; ++j) CHECK(sum.to_host()(j, i) == second(i, j));
  cuda::tensor<float, 2> dense({12, 3}, gpu);
  forward(x, cuda::tensor<float, 2>(y, gpu), on_host, dense);
  CHECK(same_bits(on_host, first));
  CHECK(same_bits(dense.to_host(), second));
}

TEST_CASE("evaluate writes an array of the device", "[cuda]") {
  const auto x = numbers(5, 12), w = numbers(12, 7);
  cuda::tensor<float, 2> y({5, 7}, gpu);
  evaluate(einsum<"ti,io->to">(x, w), y, on_gpu);
  CHECK(same_bits(y.to_host(), evaluate(einsum<"ti,io->to">(x, w), on_gpu)));
}

TEST_CASE("a DLTensor is read and written as it is", "[cuda]") {
  const auto device = cuda::gpu_or_emulated();  // whose number a DLTensor has
  const auto w = random<parameter<float, 2>>({12, 7}, 3);
  const auto forward = compile(product(w), 16, {.on = device});
  const auto x = numbers(16, 12);
  const tensor<float, 2> expected = forward(x);
  cuda::tensor<float, 2> in(x, device), out({16, 7}, device);
  std::int64_t shape[]{16, 12}, strides[]{12, 1}, out_shape[]{15, 7};
  dl_tensor read{in.data(), {2, 0}, 2, {2, 32, 1}, shape, strides, 0};
  dl_tensor written{out.data(), {2, 0}, 2, {2, 32, 1}, out_shape, nullptr, 0};
  written.shape[0] = 16;
  forward(read, written);
  CHECK(same_bits(out.to_host(), expected));
  shape[0] = out_shape[0] = 15;  // without the first row
  read.byte_offset = 12 * sizeof(float);
  forward(read, written);
  out_shape[0] = 16;
  CHECK(out.to_host()(14, 6) == expected(15, 6));

  tensor<float, 2> copy = x, y({16, 7});  // on the CPU
  shape[0] = 16;
  const dl_tensor host{copy.data(), {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0};
  forward(host, y);
  CHECK(same_bits(y, expected));
  compile(product(w), 16)(host, y);
  CHECK(relative_error(y.data(), test::reference(product(w)(x))) <= 1e-6);

  auto bad = host;
  bad.dtype = {0, 32, 1};
  CHECK_THROWS_WITH(forward(bad, y), containing("this one has code 0, 32 bits and 1 lanes"));
  bad = host;
  bad.device.device_type = 10;
  CHECK_THROWS_WITH(forward(bad, y), containing("this one is of device type 10"));
  auto output = written;
  output.dtype.bits = 64;
  CHECK_THROWS_WITH(forward(x, output),
                    "[forward] the output is of float64 and the layer computes in float32: convert "
                    "it first");
  auto input = host;
  input.dtype.bits = 64;
  CHECK_THROWS_WITH(forward(input, y),
                    "[forward] input 0 is of float64 and the layer computes in float32: convert it "
                    "first");
}

TEST_CASE("what __cuda_array_interface__ describes is read and written as it is", "[cuda]") {
  const auto w = random<parameter<float, 2>>({12, 7}, 3);
  const auto forward = compile(product(w), 16, on_gpu);
  const auto x = numbers(16, 12);
  const tensor<float, 2> expected = forward(x);
  cuda::tensor<float, 2> wide({16, 24}, gpu), out({16, 7}, gpu);
  for (extent t = 0; t < 16; ++t)
    gpu->copy_in(wide.data() + t * 24, x.data() + t * 12, 12 * sizeof(float));
  forward(cuda_array{wide.data(), {16, 12}, "<f4", {96, 4}},
          cuda_array{out.data(), {16, 7}, "<f4"});
  CHECK(same_bits(out.to_host(), expected));
  tensor<f16, 2> half({16, 12});
  for (extent i = 0; i < half.size(); ++i) half.data()[i] = f16(x.data()[i]);
  const cuda::tensor<f16, 2> narrow(half, gpu);
  CHECK(same_bits(forward(cuda_array{narrow.data(), {16, 12}, "<f2"}), forward(half)));
  CHECK_THROWS_WITH(forward(cuda_array{wide.data(), {16, 12}, "<i4"}), containing("\"<i4\""));
  CHECK_THROWS_WITH(forward(cuda_array{wide.data(), {16, 12}, "<f4", {-96, 4}}),
                    containing("bytes, which is no number of elements"));
  CHECK_THROWS_WITH(forward(cuda_array{wide.data(), {16, 12}, "<f4", {6, 4}}),
                    containing("bytes, which is no number of elements"));
  CHECK_THROWS_WITH(forward(cuda_array{x.data(), {16, 12}, "<f4"}),
                    "[cuda] this pointer is of no device's memory");
}

TEST_CASE("a pointer tells on which device it lies", "[cuda]") {
  const cuda::device_options two{.emulated_devices = 2};
  cuda::tensor<float, 1> a({4}, cuda::emulated(two, 0)), b({4}, cuda::emulated(two, 1));
  CHECK(std::string(cuda::at(a.data(), {4}).place()) == "emulated GPU 0");
  CHECK(std::string(cuda::at(b.data() + 2, {2}).place()) == "emulated GPU 1");
  CHECK(a.place() != b.place());
  CHECK(cuda::at(a.data(), {2, 2}).strides() == std::array<std::size_t, 2>{2, 1});
  const float mine = 0;
  CHECK_THROWS_WITH(cuda::at(&mine, {1}), "[cuda] this pointer is of no device's memory");
}

TEST_CASE("arrays that lie elsewhere are refused", "[cuda]") {
  const auto w = random<parameter<float, 2>>({12, 7}, 3);
  const cuda::device_options two{.emulated_devices = 2};
  const auto other = cuda::emulated(two, 1);
  const auto x = numbers(16, 12);
  const cuda::tensor<float, 2> here(x, gpu), there(x, other);
  cuda::tensor<float, 2> y({16, 7}, gpu);
  tensor<float, 2> z({16, 7});
  const auto forward = compile(product(w), 16, on_gpu), on_cpu = compile(product(w), 16);
  CHECK_THROWS_WITH(forward(there, y),
                    "[forward] input 0 lies on emulated GPU 1, and the layer runs on " + here_text +
                        ": copy the array, or compile for its device");
  CHECK_THROWS_WITH(
      compile(product(w), 16, {.on = other})(x, y),
      containing("output 0 lies on " + here_text + ", and the layer runs on emulated GPU 1"));
  CHECK_THROWS_WITH(on_cpu(here, z), containing("input 0 lies on " + here_text +
                                                ", and the layer runs on the host"));
  CHECK_THROWS_WITH(compile(product(w), 16, {.on = fmoe::reference()})(here, z),
                    containing("the layer runs on the host"));
  const std::string by_host = "[array] this array lies on " + here_text +
                              ", and only a call that runs there reads it: copy it to the host "
                              "first";
  CHECK_THROWS_WITH(to_tensor(here), by_host);
  CHECK_THROWS_WITH(borrow(y), by_host);
  CHECK_THROWS_WITH(relu(here), by_host);
  CHECK_THROWS_WITH(expert_statistics(12).add(here), by_host);
  CHECK(std::all_of(z.data(), z.data() + z.size(), [](float v) { return v == 0; }));
}

TEST_CASE("an output that overlaps an input of the device is refused", "[cuda]") {
  const auto w = random<parameter<float, 2>>({6, 6}, 3);
  const auto forward = compile(product(w), 4, on_gpu);
  cuda::tensor<float, 2> x(numbers(4, 6), gpu);
  CHECK_THROWS_WITH(forward(x, x), containing("the output overlaps input 0"));
}

}  // namespace

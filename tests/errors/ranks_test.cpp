// SPDX-License-Identifier: MIT
#include <fmoe/arrays/viewed.hpp>
#include <fmoe/distributed.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/quantize.hpp>

#include "../support/failures.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// Layers of one weight, w [i, n], that a cut along n refuses.
template <class Result>
struct layer_of_weight {
  parameter<float, 2> w = tensor<float, 2>({8, 4});
  auto operator()(const operand_of<2> auto& x) const { return Result::of(x, w); }
  static void released(auto& layer, auto&& visit) {
    visit({"w", presence::required, "in"}, layer.w);
  }
};
struct softmax_of_weight {
  static auto of(const auto& x, const auto& w) { return einsum<"ti,in->tn">(x, softmax(w)); }
};
struct tokens_last {
  static auto of(const auto& x, const auto& w) { return einsum<"ti,in->nt">(x, w); }
};
struct sum_over_tokens {
  static auto of(const auto& x, const auto& w) { return einsum<"ti,in,tj->nj">(x, w, x); }
};
struct weight_as_a_cube {
  static auto of(const auto& x, const auto& w) {
    return einsum<"ti,inm->tn">(x, viewed(w, std::array<std::size_t, 3>{8, 2, 2}));
  }
};

// A job of one rank.
void on_one_rank(const std::function<void(communicator&)>& body) { run_on_threads(1, body); }

// clang-format off: scripts/errors_page reads the table.
const failure ranks_errors[] = {
{R"(rank 0 failed: [shard] 3 parts on 2 ranks: the number of parts is a multiple of that of the ranks)",
"Each rank has the same number of parts.",
"Ask for a multiple of the ranks, or for none, which means one part a rank.",
[] {
run_on_threads(2, [](communicator& ranks) {
  if (ranks.rank() == 0) shard(small_mxd(), ranks, 'n', {.parts = 3});
});
}},
{R"(rank 0 failed: [shard] the compiled layer was moved: use the one that it was moved to)",
"A compiled layer of several ranks is used after `std::move` took what it had.",
"Call the one that it was moved to.",
[] {
on_one_rank([](communicator& ranks) {
  auto forward = compile(shard(small_mxd(), ranks, 'n'), 4);
  const auto moved = std::move(forward);
  const tensor<float, 2> x({4, 8});
  tensor<float, 2> y({4, 3});
  forward(x, y);
});
}},
{R"(rank 0 failed: [shard] no parameter has the label 'e': the layer's are ihno)",
"A layer is cut along a label of its parameters, one of those in `released`.",
"Take one of these labels.",
[] {
on_one_rank([](communicator& ranks) { shard(small_mxd(), ranks, 'e'); });
}},
{R"(rank 0 failed: [shard] no parameter is called router)",
"`shard_options::whole` has names of parameters, those in `released`.",
"Write the name as the file of the layer has it.",
[] {
on_one_rank([](communicator& ranks) {
  shard(small_mxd(), ranks, 'n', {.parts = 1, .whole = {"router"}});
});
}},
{R"(rank 0 failed: [shard] 'n' is 5 and has no 8 parts)",
"Each part has an entry of the axis at least.",
"Ask for fewer parts.",
[] {
on_one_rank([](communicator& ranks) { shard(small_mxd(), ranks, 'n', {.parts = 8}); });
}},
{R"(rank 0 failed: [shard] 'h' of 40 in 2 parts cuts a block of 32 weights of W_dec, which have one scale)",
"The blocks of 8-bit weights lie along the axis that is cut, and a part would begin within one.",
"Ask for parts whose lengths are multiples of 32, name the parameter in `whole`, or take `q8c`.",
[] {
on_one_rank([](communicator& ranks) {
  auto layer = quantize(small_mxd());
  layer.encoder = quantized<q8>(tensor<float, 2>({8, 40}), 0);
  layer.decoder = quantized<q8>(tensor<float, 2>({40, 3}), 0);
  shard(layer, ranks, 'h', {.parts = 2});
});
}},
{R"(rank 0 failed: [shard] this label cannot be cut: an operation on weights needs the whole axis)",
"A function of a row of weights needs the whole row, and ranks do not exchange weights.",
"Cut the layer along another label.",
[] {
on_one_rank([](communicator& ranks) {
  compile(shard(layer_of_weight<softmax_of_weight>(), ranks, 'n', {.parts = 2}), 4);
});
}},
{R"(rank 0 failed: [shard] the layer has no axis of tokens)",
"The first axis of the input is not the first one of the result.",
"Write the result of the layer with the token first.",
[] {
on_one_rank([](communicator& ranks) {
  compile(shard(layer_of_weight<tokens_last>(), ranks, 'n', {.parts = 2}), 4);
});
}},
{R"(rank 0 failed: [shard] the layer sums over tokens, which are cut over the ranks)",
"Each rank brings rows of its own, and a sum over all of them is not made yet.",
"Sum what the ranks return, with `all_reduce`.",
[] {
on_one_rank([](communicator& ranks) {
  compile(shard(layer_of_weight<sum_over_tokens>(), ranks, 'n', {.parts = 2}), 4);
});
}},
{R"(rank 0 failed: [shard] the layer reads a parameter that is cut in another shape)",
"An axis that is viewed as several ones is not cut yet.",
"Cut the layer along a label of other parameters.",
[] {
on_one_rank([](communicator& ranks) {
  compile(shard(layer_of_weight<weight_as_a_cube>(), ranks, 'n', {.parts = 2}), 4);
});
}},
{R"(rank 0 failed: [shard] a rank has 2 parts: a layer of its own has one)",
"The gradients and the weights of a rank are a layer, which has one part.",
"Leave out `parts`, which means one part a rank.",
[] {
on_one_rank([](communicator& ranks) {
  compile_gradients(shard(small_mxd(), ranks, 'n', {.parts = 2}), 4);
});
}},
{R"(rank 0 failed: [gradients] those of a layer over ranks are not sparse: compile them with sparse_gradients = 0)",
"A step over ranks makes whole gradients of its parts.",
"Leave out `sparse_gradients`.",
[] {
on_one_rank([](communicator& ranks) {
  compile_gradients(shard(small_mxd(), ranks, 'n'), 4, {.sparse_gradients = all});
});
}},
{R"(rank 0 failed: [shard] 't' is 3 in dx and 4 in y)",
"The arrays of a call have a row for each token of the rank.",
"Make dx as long as x.",
[] {
on_one_rank([](communicator& ranks) {
  auto step = compile_gradients(shard(small_mxd(), ranks, 'n'), 4);
  const tensor<float, 2> x({4, 8}), dy({4, 3});
  tensor<float, 2> y({4, 3}), dx({3, 8});
  step(x, dy, y, dx);
});
}},
{R"(rank 0 failed: [shard] axis 0 of the rows of x is 9 and the layer's is 8)",
"The input or the output of a call has not two axes, or rows of another length.",
"Pass arrays with the rows that `input_shape` and `output_shape` say.",
[] {
on_one_rank([](communicator& ranks) {
  auto forward = compile(shard(small_mxd(), ranks, 'n'), 4);
  tensor<float, 2> x({4, 9}), y({4, 3});
  forward(x, y);
});
}},
{R"(rank 0 failed: [shard] x is of float64 and the layer computes in float32: convert it first)",
"Ranks read and write rows of the layer's arithmetic type.",
"Convert the array first.",
[] {
on_one_rank([](communicator& ranks) {
  auto forward = compile(shard(small_mxd(), ranks, 'n'), 4);
  tensor<double, 2> x({4, 8});
  tensor<float, 2> y({4, 3});
  forward(x, y);
});
}},
{R"(rank 0 failed: [shard] 't' is 5 and the layer is compiled for at most 4: say more to compile)",
"A rank brings more tokens than the layer is compiled for.",
"Compile for more tokens, or bring fewer.",
[] {
on_one_rank([](communicator& ranks) {
  auto forward = compile(shard(small_mxd(), ranks, 'n'), 4);
  tensor<float, 2> x({5, 8}), y({5, 3});
  forward(x, y);
});
}},
{R"(rank 0 failed: [save] ranks write numbers in the layer's type)",
"A file of ranks has the numbers that they hold.",
"Leave out `type`.",
[] {
on_one_rank([](communicator& ranks) {
  save(shard(small_mxd(), ranks, 'n'), "mxd.safetensors", {.type = dtype::bfloat16});
});
}},
{R"(rank 0 failed: [gradient_sum] a rank has no part of a batch)",
"Each rank adds the gradients of a part before all of them finish the batch.",
"Share out the parts of a batch so that each rank has one at least.",
[] {
on_one_rank([](communicator& ranks) {
  auto step = compile_gradients(small_mxd(), 4);
  gradient_sum<float>(ranks).finish(step.gradients());
});
}},
{R"(rank 0 failed: [gradient_sum] W_enc is float32, not float64)",
"The type of a sum is that of the gradients that it adds.",
"Name the type of the gradients: `gradient_sum<float>`.",
[] {
on_one_rank([](communicator& ranks) {
  const auto step = compile_gradients(small_mxd(), 4);
  gradient_sum<double>(ranks).add(step.gradients());
});
}},
{R"(rank 0 failed: [gradient_sum] sparse gradients are not summed over ranks: compile them with sparse_gradients = 0)",
"Each rank has selected other rows of a table.",
"Leave out `sparse_gradients`.",
[] {
on_one_rank([](communicator& ranks) {
  auto layer = small_mxd();
  layer.gate = tensor<float, 2>({8, 40});
  layer.scales = tensor<float, 2>({40, 32});
  layer.decoder = tensor<float, 2>({16, 32});
  const auto step = compile_gradients(layer, 4, {.sparse_gradients = all});
  gradient_sum<float>(ranks).add(step.gradients());
});
}},
};
// clang-format on

TEST_CASE("faults of ranks make all of them throw these sentences", "[errors]") {
  check<communication_error>(ranks_errors);
}

}  // namespace

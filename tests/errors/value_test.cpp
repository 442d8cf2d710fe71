// SPDX-License-Identifier: MIT
#include <cstdint>

#include <fmoe/analysis.hpp>
#include <fmoe/backend/cpu/dispatch.hpp>
#include <fmoe/cuda.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/expr/selection.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/losses.hpp>
#include <fmoe/model.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/optimizers.hpp>
#include <fmoe/quantize.hpp>
#include <fmoe/rank.hpp>
#include <fmoe/tune.hpp>

#include "../support/failures.hpp"
#include "../support/svd.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// Its type does not say what it stores.
struct layer_of_bf16 {
  parameter<bf16, 2> weight;  // i o
  auto operator()(const operand auto& x) const { return einsum<"ti,io->to">(x, weight); }
  static void released(auto& layer, auto&& visit) {
    visit({"weight", presence::required, "io"}, layer.weight);
  }
};

// clang-format off: scripts/errors_page reads the table.
const failure value_errors[] = {
{R"([einsum] the operand "no" of "tn,no,th,ho->to" holds nothing: set or load the parameter)",
"A parameter of a layer, or a tensor, was never given elements; the letters of the operand tell which one.",
"Set it, or load the layer from a file.",
[] {
const mxd<> layer;
evaluate(layer(tensor<float, 2>({4, 8})));
}},
{R"([einsum] there are 65 operands, above 64: multiply some of them first)",
"The planner searches for an order of at most 64 operands.",
"Make an einsum of some of them an operand of the other one.",
[] {
std::array<tensor<float, 1>, 65> x;
x.fill(tensor<float, 1>({4}));
std::apply([](const auto&... xs) { return evaluate(einsum<"i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i->i">(xs...)); }, x);
}},
{R"([compile] the cheapest plan makes 16000000000000 numbers of each token between two steps, in 1.6e+13 multiply-adds a token: name fewer labels at a time, or smaller ones)",
"A function stands between two einsums, so that all products of four rows would have to be in memory at once.",
"Apply the function to smaller parts, or take fewer factors.",
[] {
const tensor<float, 2> x({2, 2000});
const auto products = einsum<"ta,tb,tc,td->tabcd">(x, x, x, x);
evaluate(einsum<"tabcd->t">(relu(products)));
}},
{R"([refresh] the layer was compiled without keeping its weights: compile it again)",
"A layer that is compiled with `keep_weights = false` holds its weights only as they are packed.",
"Compile the layer again, or keep the weights.",
[] {
auto forward = compile(small_mxd(), 16, {.keep_weights = false});
forward.refresh();
}},
{R"([forward] the compiled layer was moved: use the one that it was moved to)",
"A compiled layer is used after `std::move` took what it had.",
"Call the one that it was moved to.",
[] {
auto forward = compile(small_mxd(), 4);
const auto moved = std::move(forward);
forward(tensor<float, 2>({4, 8}));
}},
{R"([model] it was moved: use the one that it was moved to)",
"A model is used after `std::move` took what it had.",
"Call the one that it was moved to.",
[] {
model m(compile(small_mxd(), 4));
const auto moved = std::move(m);
m(tensor<float, 2>({4, 8}));
}},
{R"([optimizer] b_dec_out has no gradient)",
"The gradients are of a layer that has fewer parameters than the one that is trained.",
"Take the gradients from the step that was compiled for this layer.",
[] {
mxd<> layer = small_mxd(), gradients = layer;
layer.bias = tensor<float, 1>({3});
sgd()(layer, gradients);
}},
{R"([optimizer] the gradient of W_enc is bfloat16 and must be float32)",
"Gradients of weights of 16 bits are float: their sums would lose too much otherwise.",
"Pass a layer of float that holds the gradients.",
[] {
mxd<bf16> layer;
layer.encoder = tensor<bf16, 2>({8, 16});
sgd()(layer, layer);
}},
{R"([optimizer] W_enc is q8c, and weights of 8 bits are not trained)",
"Weights of 8 bits are made of trained ones.",
"Train the layer of floats, and quantize it afterwards.",
[] {
auto layer = quantize<q8c>(small_mxd());
sgd()(layer, layer);
}},
{R"([optimizer] the state has no numbers for W_enc: an optimizer belongs to one layer)",
"The optimizer has made a step, or loaded a state, for a layer with other parameters.",
"Use an optimizer for each layer, or give the layers one struct whose `released` lists both.",
[] {
mxd<> layer = small_mxd(), other;
other.bias = tensor<float, 1>({3});
sgd optimizer;
optimizer(other, other);
optimizer(layer, layer);
}},
{R"([optimizer] W_enc is bfloat16, and the state is of a layer of another type)",
"The state of a layer of 16 bits has masters in float, and that of a layer of float has none.",
"Load the state of this layer, or start a new one.",
[] {
mxd<> wide = small_mxd();
mxd<bf16> narrow;
narrow.encoder = tensor<bf16, 2>({8, 16});
sgd optimizer;
optimizer(wide, wide);
optimizer(narrow, wide);
}},
{R"([optimizer] the state of b_dec_out has another shape or type than the parameter)",
"The optimizer has made a step, or loaded a state, for a layer of another size.",
"Use an optimizer for each layer.",
[] {
mxd<> layer, other;
layer.bias = tensor<float, 1>({3});
other.bias = tensor<float, 1>({4});
sgd optimizer({.momentum = 0.9});
optimizer(other, other);
optimizer(layer, layer);
}},
{R"([adamw] the rate is -1 and must be a number that is at least 0)",
"A setting is negative or not finite.",
"Correct it; the comments of `adamw_options` say what each one means.",
[] {
mxd<> layer = small_mxd();
adamw({.rate = -1})(layer, layer);
}},
{R"([adam] beta1 is 1 and must be less than 1)",
"An average that keeps all of itself never sees a gradient.",
"Take a number from 0 to 1, such as 0.9.",
[] {
mxd<> layer = small_mxd();
adam({.beta1 = 1})(layer, layer);
}},
{R"([sgd] Nesterov's momentum needs a momentum above 0 and no dampening)",
"PyTorch refuses the same settings.",
"Set `momentum`, and `dampening` to 0.",
[] {
mxd<> layer = small_mxd();
sgd({.nesterov = true})(layer, layer);
}},
{R"([clip_norm] the limit is -1 and must be at least 0)",
"No norm is below 0.",
"Pass the largest norm that the gradients may have.",
[] {
mxd<> gradients = small_mxd();
clip_norm(-1, gradients);
}},
{R"([clip_norm] the gradient of W_enc is bfloat16 and must be float32 or float64)",
"Gradients of weights of 16 bits are float, and so is their norm.",
"Pass a layer of float that holds the gradients.",
[] {
mxd<bf16> gradients;
gradients.encoder = tensor<bf16, 2>({8, 16});
clip_norm(1, gradients);
}},
{R"([update_statistics] the gate has no running statistics)",
"There is no batch norm whose statistics could follow.",
"Set the means to 0 and the variances to 1, as PyTorch starts.",
[] {
expert_gate<1> gate;
gate.projections = {parameter<float, 2>({4, 3})};
update_statistics(gate, tensor<float, 2>({5, 4}));
}},
{R"([update_statistics] the momentum is 2 and must be from 0 to 1)",
"The momentum is the part of a batch in the new statistics.",
"Take a number such as 0.1.",
[] {
expert_gate<1> gate;
gate.projections = {parameter<float, 2>({4, 3})};
gate.means = gate.variances = {parameter<float, 1>({3})};
update_statistics(gate, tensor<float, 2>({5, 4}), 2);
}},
{R"([update_statistics] a variance is taken of 1 number, and at least 2 are needed: pass more tokens, or leave a batch of one token out of training)",
"The variance of a single number does not exist, and would stay NaN in the running statistics.",
"Drop the last batch of a data set if it has one token, as `drop_last=True` of PyTorch's DataLoader does.",
[] {
expert_gate<1> gate;
gate.projections = {parameter<float, 2>({4, 3})};
gate.means = gate.variances = {parameter<float, 1>({3})};
update_statistics(gate, tensor<float, 2>({1, 4}));
}},
{R"([uniformity] the floor is 0, and a number between 0 and 1 is expected)",
"The logarithm of the mean probability of an expert that no token keeps needs a floor.",
"Pass a small number, such as 1e-10.",
[] {
const tensor<float, 3> g({4, 2, 8});
losses::uniformity(g, g, 0);
}},
{R"([gradient] y does not depend on what the gradient is asked of: ask it of the parameter or the tensor that y was made of, or of a part of y)",
"The gradient is asked of a tensor that is no operand of y, such as one that was made a second time.",
"Name the tensor or the expression that y was made of.",
[] {
const tensor<float, 2> x({4, 8}), w({8, 3}), other({8, 3}), dy({4, 3});
evaluate(gradient(einsum<"ti,io->to">(x, w), other, dy));
}},
{R"([gradient] mish is a function of the user's, which has no derivative)",
"A `pointwise_function` is the user's own, and nothing tells its slope.",
"Pass the derivative behind the function, or write it with functions of fmoe.",
[] {
const tensor<float, 2> x({4, 8}), dy({4, 8});
const pointwise_function mish("mish", [](auto v) { return v * std::tanh(std::log1p(std::exp(v))); });
evaluate(gradient(mish(x), x, dy));
}},
{R"([keep] the layer has no top_k that leaves out entries)",
"A layer keeps fewer entries by its `top_k` or `product_top_k`, and it has neither, or one that keeps all.",
"Compile a layer whose `active` is the greatest K that calls want.",
[] {
const tensor<float, 2> w({8, 4});
compile([&](const auto& x) { return einsum<"ti,io->to">(x, w); }, 4).keep(2);
}},
{R"([keep] 17 entries: the layer is compiled for 1 to 2)",
"A call cannot keep more entries than the layer has room for.",
"Compile the layer for the greatest K that calls want.",
[] {
const tensor<float, 2> w({8, 4});
compile([&](const auto& x) { return top_k(einsum<"ti,io->to">(x, w), 2); }, 4).keep(17);
}},
{R"([gradients] W_enc and W_glu.weight share their elements, so their gradients cannot be told apart: copy one of them)",
"Two parameters of a layer were assigned the same tensor.",
"Give each parameter elements of its own: write to one of them, as a copy does then.",
[] {
mxd<> layer = small_mxd();
layer.linear = layer.encoder;
compile_gradients(layer, 4);
}},
{R"([gradients] the gradient of weight is float32, and the layer holds bfloat16: make the layer a template of the type of its weights)",
"Gradients of weights of 16 bits are `float`, and a layer whose type does not say what it stores cannot hold them.",
"Make the layer a template, as `mxd<T>` is: its gradients are a layer of `float` then.",
[] {
compile_gradients(layer_of_bf16{tensor<bf16, 2>({8, 3})}, 4);
}},
{R"([gradients] a weight may have been written since the layer was compiled: call refresh() before the next call)",
"A step keeps the packed weights that it was compiled with, and a weight was reached through a tensor that is not const.",
"Call `step.refresh()` after each change of the weights.",
[] {
mxd<> layer = small_mxd();
auto step = compile_gradients(layer, 4);
layer.decoder(0, 0) = 1;
tensor<float, 2> x({4, 8}), dy({4, 3}), y({4, 3}), dx({4, 8});
step(x, dy, y, dx);
}},
{R"([gradients] the sums of 2 tokens have rows for 1: say more in sparse_gradients)",
"Sparse gradients have room for the rows of so many tokens, and calls that accumulate had more.",
"Say for how many tokens gradients add up: `{.sparse_gradients = 4096}`.",
[] {
mxd<> layer = small_mxd();
layer.encoder = tensor<float, 2>({20, 16});
layer.gate = tensor<float, 2>({20, 100});
layer.scales = tensor<float, 2>({100, 3});
auto step = compile_gradients(layer, 1, {.sparse_gradients = fmoe::all});
tensor<float, 2> x({1, 20}), dy({1, 3}), y({1, 3}), dx({1, 20});
step(x, dy, y, dx);
step(x, dy, y, dx, true);
}},
{R"([gradients] dx overlaps x)",
"An output is written before all inputs are read.",
"Give each array memory of its own.",
[] {
auto step = compile_gradients(small_mxd(), 4);
tensor<float, 2> x({4, 8}), dy({4, 3}), y({4, 3});
step(x, dy, y, x);
}},
{R"([gradients] an axis of y has stride 0)",
"All rows of the output would lie in one place.",
"Pass an array whose elements each have a place.",
[] {
auto step = compile_gradients(small_mxd(), 4);
tensor<float, 2> x({4, 8}), dy({4, 3}), dx({4, 8});
std::vector<float> row(3);
step(x, dy, foreign{row.data(), {4, 3}, {0, 1}}, dx);
}},
{R"([quantized] weight 5 is not finite)",
"A scale of 8-bit weights is made from the greatest magnitude of its block, which an infinity or a NaN has not.",
"Find out where the weight comes from: no layer computes anything useful with it.",
[] {
tensor<float, 2> w({4, 3});
w(1, 2) = std::numeric_limits<float>::infinity();
quantized<q8>(w, 0);
}},
{R"([quantized] a weight of 1e+07 is too large for the scales of q8: take q8c)",
"The scales of q8 are f16, at most 65504.",
"Take `q8c`, whose scales are floats.",
[] {
tensor<float, 2> w({4, 3});
w(1, 2) = 1e7f;
quantized<q8>(w, 0);
}},
{R"([quantized] there is no axis 2 among 2)",
"Axes count from 0.",
"Name the axis that the layer's product sums over.",
[] {
quantized<q8>(tensor<float, 2>({4, 3}), 2);
}},
{R"([use_tuned_shapes] this is no line of tuned_shapes(): "tile 96")",
"The text is not what `tuned_shapes()` returned in another process, or it was cut.",
"Give it the whole text.",
[] {
use_tuned_shapes("tile 96");
}},
{R"([machine_from] the line of "one.flops" is missing: here is "one.int8_dots 3e11")",
"The text is not what `std::cout << this_machine()` prints, or a line of it was lost.",
"Give it the whole text.",
[] {
machine_from("name mine\nthreads 2\none.int8_dots 3e11\n");
}},
{R"([machine_from] "threads" is a number above 0, and not "-2")",
"A machine of which a number is 0, negative, infinite or no number at all exists nowhere.",
"Write the number that the machine has; `std::cout << this_machine()` prints those of this one.",
[] {
machine_from("name mine\nthreads -2\n");
}},
{R"([machine_from] there is "name" after the last line of a machine)",
"The text of a machine ends with its last number. Two machines in one file are not read as one.",
"Give it the text of one machine.",
[] {
std::ostringstream text;
text << machine() << machine();
machine_from(text.str());
}},
{R"([kept] takes a selection that keeps K entries of each row: top_k or product_top_k, and not fmoe::all)",
"Only a selection of a fixed number of entries has rows of that many values and indices.",
"Give it what `top_k` or `product_top_k` returns.",
[] {
const tensor<float, 2> x({4, 8});
evaluate(kept(relu(x)).values);
}},
{R"([tensor] of rank 2 is used but holds nothing: set or load it)",
"A tensor that was only declared holds nothing, not even zeros.",
"Give it a shape: `tensor<float, 2> x({4, 8})`.",
[] {
const tensor<float, 2> x;
evaluate(relu(x));
}},
{R"([top_k] K is 32 and the scores' last axis has 5: fmoe::all keeps every score)",
"A token would use more experts than there are.",
"Set the layer's `active` to at most the number of experts.",
[] {
mxd<> layer = small_mxd();
layer.active = 32;
evaluate(layer(tensor<float, 2>({4, 8})));
}},
{R"([top_k] K is -1: fmoe::all keeps every score)",
"K is negative; only files write -1 for all.",
"Pass fmoe::all to keep every score.",
[] {
const tensor<float, 2> scores({4, 5});
top_k(scores, -1);
}},
{R"([top_p] the mass is 1.5, not within 0 and 1)",
"The mass of a top-p selection must be a probability.",
"Pass a number from 0 to 1.",
[] {
const tensor<float, 2> scores({4, 5});
evaluate(top_p(scores, 1.5, weighting::softmax));
}},
{R"([entmax] alpha is 0.5 and must be at least 1)",
"alpha of entmax must be at least 1.",
"Pass 1 for softmax, 1.5 for the usual entmax, 2 for sparsemax.",
[] {
const tensor<float, 2> scores({4, 5});
evaluate(entmax(scores, 0.5));
}},
{R"([product_top_k] softmax_of_all would need all pairs of two lists)",
"`product_top_k` makes only the sums of the greatest of each list, and `softmax_of_all` divides by a sum over all pairs.",
"Weight what was selected with `weighting::softmax` or `weighting::relu`.",
[] { evaluate(product_top_k(tensor<float, 3>({4, 2, 8}), 2, 2, weighting::softmax_of_all)); }},
{R"([product_top_k] K is 10 and two lists of 3 have fewer pairs)",
"Product keys keep fewer of each list than K needs.",
"Raise `candidates`: its square must be at least K.",
[] {
const tensor<float, 3> scores({4, 2, 8});
evaluate(product_top_k(scores, 10, 3));
}},
{R"([product_top_k] each list keeps 9 entries and has only 8)",
"Product keys keep more of each list than it has.",
"Lower `candidates`, or K if `candidates` is 0 and so follows from K.",
[] {
const tensor<float, 3> scores({4, 2, 8});
evaluate(product_top_k(scores, 10, 9));
}},
{R"([product_top_k] a list has 65536 entries, above 65,535)",
"The index of a pair of keys would not fit.",
"Use lists of at most 65,535 keys.",
[] {
const tensor<float, 3> scores({1, 2, 65536});
evaluate(product_top_k(scores, 2, 2));
}},
{R"([best_groups] a row of 10 entries is not 4 groups of one length, at most 64)",
"The groups of `best_groups` are neighbours, as many in each, and there are at most 64.",
"Take a number of groups that divides the number of experts.",
[] { evaluate(best_groups(tensor<float, 2>({3, 10}), 4, 2)); }},
{R"([group_max] a row of 10 entries is not 4 groups of one length)",
"The groups of `group_max` are neighbours, as many in each.", "Take a number of groups that divides the length of a row.",
[] { evaluate(group_max(tensor<float, 2>({3, 10}), 4)); }},
{R"([sparse_mixer] the jitter is 1 and must be at least 0 and below 1)",
"A jitter says how far from the greatest score others take part, as a part of them: with 1 all would.",
"Take the jitter of the model, such as 0.01.",
[] { evaluate(sparse_mixer(tensor<float, 2>({3, 10}), 1)); }},
{R"([sparse_mixer] a row has 1 of the two entries that are weighed)",
"A sparse mixer weighs the two greatest entries of a row.",
"Give it at least two experts.",
[] { evaluate(sparse_mixer(tensor<float, 2>({3, 1}))); }},
{R"([routing] a sparse mixer weighs two experts by itself: `active` is 2 and `weights` score, without groups and without a balance)",
"`score_function::sparse_mixer` chooses two experts of a token and gives them their weights, as Phi-3.5-MoE does.",
"Set `route.active` to 2 and `route.weights` to `weighting::score`, and leave out groups and the balance.",
[] {
moe<> layer;
layer.route.scoring = score_function::sparse_mixer;
evaluate(layer(tensor<float, 2>({3, 10})));
}},
{R"([best_groups] 5 groups are wanted of 2)",
"At least one group keeps its entries, and at most all of them do.",
"Ask for 1 group to all groups.",
[] { evaluate(best_groups(tensor<float, 2>({3, 10}), 2, 5)); }},
{R"([moe] an input that is weighed goes to experts without biases and without a limit)",
"`weighs_input`, which is Llama 4's, multiplies the input of an expert, and fmoe does so behind the first product.",
"Leave out the biases and the limit, or set `weighs_input` to false.",
[] {
moe<> layer;
layer.weighs_input = true;
layer.limit = 7;
layer.linear = tensor<float, 3>({4, 10, 5});
evaluate(layer(tensor<float, 2>({3, 10})));
}},
{R"([moe] a limit is of gated experts, and these have no linear part)",
"`limit` bounds both parts of a gated linear unit, and the experts have no `linear`.",
"Set `linear`, or leave `limit` 0.",
[] {
moe<> layer;
layer.limit = 7;
evaluate(layer(tensor<float, 2>({3, 10})));
}},
{R"([moe] experts of a latent have latent_down and latent_up)",
"Experts of a latent take a projection of x and make rows that are projected back, and one of the two projections is empty.",
"Set both `latent_down` and `latent_up`, or none.",
[] {
moe<> layer;
layer.latent_down = tensor<float, 2>({10, 4});
evaluate(layer(tensor<float, 2>({3, 10})));
}},
{R"([moe] zero experts have a balance where the other experts have one)",
"A balance is added to what ranks all experts of a token, and some of them have none.",
"Set both `balance` and `zero_balance`, or none.",
[] {
moe<> layer;
layer.zero_router = tensor<float, 2>({10, 2});
layer.zero_balance = tensor<float, 1>({2});
evaluate(layer(tensor<float, 2>({3, 10})));
}},
{R"([expert_choice] the scores' first axis does not count tokens)",
"Experts choose among the tokens of a call, and here the scores of a token depend on other tokens.",
"Compute the scores of each token from its own row: `einsum<\"ti,in->tn\">(x, router)`.",
[] {
const tensor<float, 2> x({4, 8});
const auto scores = einsum<"ti,ui->tu">(x, x);
evaluate(expert_choice(scores, scores, weighting::softmax));
}},
{R"([all_except] the pair (2, 5) is outside 4 x 5)",
"A pair of experts to leave out does not exist.",
"Pass pairs (row, column), counted from 0.",
[] {
const std::vector<index_pair> pairs{{2, 5}};
all_except(pairs, 4, 5);
}},
{R"([all_except] is an operand of einsum only)",
"`all_except` has no elements: it changes what an einsum sums over.",
"Make it an operand of einsum, with labels that other operands also have.",
[] { evaluate(relu(all_except({}, 4, 5))); }},
{R"([all_except] needs two different labels that other operands have: 'j' of "ij")",
"The two axes of the mask must be axes of other operands, too.",
"Give the mask two different letters, each of which another operand has.",
[] {
const tensor<float, 2> g({3, 4});
evaluate(einsum<"ti,ij->tj">(g, all_except({}, 4, 5)));
}},
{R"([all_except] an einsum has one mask: "ti,tj,ij,ij->t")",
"An einsum can leave out one list of pairs only.",
"Put all pairs into one list.",
[] {
const tensor<float, 2> g({3, 4}), h({3, 5});
const auto kept = all_except({}, 4, 5);
evaluate(einsum<"ti,tj,ij,ij->t">(g, h, kept, kept));
}},
{R"([all_except] goes with at most 8 operands, not 9)",
"An einsum with a mask can have at most 8 other operands.",
"First multiply some operands in another einsum.",
[] {
const tensor<float, 2> g({3, 4}), h({3, 5});
evaluate(einsum<"ti,tj,ti,ti,ti,ti,ti,ti,ti,ij->t">(g, h, g, g, g, g, g, g, g, all_except({}, 4, 5)));
}},
{R"([all_except] leaves no pair out of a sum of parameters only)",
"Pairs can be left out of sums that depend on tokens, but not of sums of parameters only, which are computed once.",
"Set the entries of these pairs to zero in the parameters.",
[] {
const parameter<float, 2> w({4, 5}), v({5, 2});
const parameter<float, 3> u({4, 5, 2});
const tensor<float, 2> g({3, 4});
const std::vector<index_pair> pairs{{2, 3}};
evaluate(einsum<"ti,ijk->tjk">(g, u) + einsum<"ij,ij,jk->jk">(w, all_except(pairs, 4, 5), v));
}},
{R"([expert] there is no expert 5 among 5)",
"The number of an expert is not below the number of experts.",
"Experts are counted from 0.",
[] {
mxd<> layer = small_mxd();
layer.expert(5);
}},
{R"([expert] there is no expert 3 among 3 of level 1)",
"One of the indices of an expert is not below the number of experts of its level.",
"Pass one index for each level; experts and levels are counted from 0.",
[] {
cp_mumoe<2> layer;
layer.experts.experts = {tensor<float, 2>({5, 2}), tensor<float, 2>({3, 2})};
layer.expert(4, 3);
}},
{R"([expert] there is no bottom half 4 among 4)",
"An expert (i, j) of Monet is a bottom half i and a top half j, and one of them is not below their number.",
"Halves are counted from 0; `layer.bias` has a row for each.",
[] {
monet_hd<> layer;
layer.encoder = tensor<float, 2>({8, 12});
layer.decoder = tensor<float, 2>({12, 8});
layer.bias = tensor<float, 2>({4, 8});
layer.expert(4, 0);
}},
{R"([sliced] there is no index 5 in an axis of 5)",
"The index of a slice is not below the length of the axis.",
"Indices are counted from 0; the axis is the template argument.",
[] { sliced<0>(tensor<float, 2>({5, 2}), 5); }},
{R"([compile] callers and threads are at least 1: fmoe::all sets no limit)",
"With 0 callers or threads no call could ever run.",
"Leave the option out, or pass `fmoe::all`.",
[] { compile(small_mxd(), 16, {.callers = 0}); }},
{R"([compile] bf16_products adds two terms at a time: sum_block is even, not 5)",
"A block of an odd number of terms would end between two terms that are added together.",
"Pass an even `sum_block`, or leave it out.",
[] { compile(small_mxd(), 16, {.sum_block = 5, .bf16_products = true}); }},
{R"([compile] int8_products rounds 32 terms together: sum_block is a multiple of 32, not 40)",
"A block of 40 terms would end between terms that share a scale.",
"Pass a `sum_block` that is a multiple of 32, or leave it out.",
[] { compile(small_mxd(), 16, {.sum_block = 40, .int8_products = true}); }},
{R"([compile] bf16_products rounds the rows that meet weights of bfloat16, and no product of floats has such weights: load them as bfloat16, or leave the option out)",
"The option would change nothing: `load` widens weights to the type of the layer.",
"Load the layer with weights of `bf16`, as `load<mxd<bf16>>(file)` does.",
[] { compile(small_mxd(), 16, {.bf16_products = true}); }},
{R"([compile] int8_products rounds the rows that meet weights of q8, and no product of floats has such weights: load them as q8, or leave the option out)",
"The option would change nothing: the weights are floats, or have one scale for each column (`q8c`).",
"Make weights of `q8`, as `quantize<q8>(layer)` does.",
[] { compile(small_mxd(), 16, {.int8_products = true}); }},
{R"([expert_statistics] there are no tokens yet: add some first)",
"A frequency or a mean is asked for before any token was added, or for a subpopulation without tokens.",
"Check `tokens()` first if a subpopulation may be empty.",
[] { expert_statistics(5).mean_coefficients(); }},
{R"([top_tokens] there is no expert 5 of 5)",
"The number of an expert is not below the number of experts.",
"Experts are counted from 0.",
[] { top_tokens(5, 10).of(5); }},
{R"([polysemanticity] there are no classes)",
"The list of losses is empty.",
"Pass the loss of accuracy of every class.",
[] { polysemanticity({}); }},
{R"([polysemanticity] no expert changes the accuracy of a class)",
"The mean is taken over the experts whose ablation changes an accuracy, and there is none.",
"Measure with more data, or more experts.",
[] { mean_polysemanticity(std::vector<std::vector<double>>{{0, 0, 0}}); }},
{R"([singular_values] an entry of the matrix is not finite)",
"A matrix with a NaN or an infinity has no rank.",
"Search the weights for it with `std::isfinite`.",
[] { numerical_rank(tensor<float, 2>({2, 2}, {1, 0, NAN, 1})); }},
{R"([batch norm] the running variance of expert 1 of level 0 is -1)",
"A running variance is negative or not finite: the weights are damaged, or the tensor is not a variance.",
"Check the file that the layer was loaded from.",
[] {
expert_gate<> gate;
gate.projections[0] = tensor<float, 2>({8, 2});
gate.means[0] = tensor<float, 1>({2});
gate.variances[0] = tensor<float, 1>({2}, {1, -1});
gate.coefficients(tensor<float, 2>({4, 8}));
}},
{R"([batch norm] there are 1 running statistics and 2 are needed, means and variances, or none)",
"Some levels have running statistics and others do not.",
"Set the mean and the variance of every level, or of none.",
[] {
expert_gate<> gate;
gate.projections[0] = tensor<float, 2>({8, 2});
gate.means[0] = tensor<float, 1>({2});
gate.coefficients(tensor<float, 2>({4, 8}));
}},
{R"([monet_router] without running statistics `heads` must be set)",
"Without running statistics nothing tells the number of heads.",
"Set `heads`.",
[] {
monet_router<> router;
router.keys1 = router.keys2 = tensor<float, 2>({8, 12});
router.g1(tensor<float, 2>({4, 8}));
}},
{R"([monet_router] a running mean needs a variance, and the reverse)",
"A router has a running mean but no variance, or the reverse.",
"Set both, or none.",
[] {
monet_router<> router;
router.keys1 = tensor<float, 2>({8, 12});
router.mean1 = tensor<float, 1>({2});
router.g1(tensor<float, 2>({4, 8}));
}},
{R"([monet_router] a variance is -1)",
"A running variance is negative or not finite: the weights are damaged, or the tensor is not a variance.",
"Check the file that the layer was loaded from.",
[] {
monet_router<> router;
router.keys1 = tensor<float, 2>({8, 12});
router.mean1 = tensor<float, 1>({2});
router.variance1 = tensor<float, 1>({2}, {1, -1});
router.active = 2;
router.g1(tensor<float, 2>({4, 8}));
}},
{R"([monet_router] K is 32 and a head has 6 experts)",
"A head of a Monet router would keep more experts than it has.",
"Lower `active`.",
[] {
monet_router<> router;
router.keys1 = router.keys2 = tensor<float, 2>({8, 12});
router.heads = 2;
router.g1(tensor<float, 2>({4, 8}));
}},
{R"([monet] the output bias holds nothing, and tells the number of experts: set it, if only to zeros)",
"A Monet layer takes its number of experts from its output bias.",
"Set `bias`; use zeros if the model has no bias.",
[] {
const monet_hd<> layer;
layer.hidden(tensor<float, 2>({4, 8}));
}},
{R"([contribution_norms] the list of experts is empty)",
"A Monet layer gives the norms of the experts (i, j) of a list, and this list has none.",
"Pass at least one pair; `expert_domains` may have found none.",
[] {
monet_hd<> layer;
layer.bias = tensor<float, 2>({5, 8});
const tensor<float, 3> g({4, 2, 5});
layer.contribution_norms(tensor<float, 2>({4, 8}), g, g, std::vector<index_pair>());
}},
{R"([compile] the layer uses 0 of its 1 arguments)",
"The layer ignores its argument, so its result does not depend on the input.",
"Use the argument, or compute an expression without input with evaluate.",
[] {
const tensor<float, 2> w({4, 8});
compile([&](const auto&) { return relu(w); }, 4);
}},
{R"([compile] rows of the result depend on other rows of the arguments)",
"A row of the result depends on other rows of the input, but a compiled call may have any number of rows.",
"Keep the token axis first in every operand and in the result, or use evaluate.",
[] {
const tensor<float, 2> w({4, 4});
compile([&](const auto& x) { return einsum<"ts,so->to">(w, sized(x, {all, 4})); }, 4);
}},
{R"([forward] the output overlaps input 0)",
"The output would be written while the input is still read.",
"Use other memory for the output, or other columns of the same matrix.",
[] {
mxd<> layer = small_mxd();
layer.scales = tensor<float, 2>({5, 8});
layer.decoder = tensor<float, 2>({16, 8});
const auto forward = compile(layer, 4);
tensor<float, 2> x({4, 8});
forward(x, x);
}},
{R"([forward] a weight may have been written since the layer was compiled: call refresh() before the next call)",
"A compiled layer has its own form of the weights, which is now older than they are.",
"Call `forward.refresh()` after writing. Read weights through a const layer: what can be written counts as written.",
[] {
mxd<> layer = small_mxd();
const auto forward = compile(layer, 4);
layer.decoder(0, 0) = 2;
tensor<float, 2> x({4, 8}), y({4, 3});
forward(x, y);
}},
#ifndef NDEBUG
{R"([tensor] the index 3 of axis 1 is not below its length, 3)",
"A program without NDEBUG checks every index of a tensor.",
"Indices are counted from 0, so the last one is the length minus 1.",
[] {
const tensor<float, 2> x({2, 3});
x(1, 3);
}},
#endif
{R"([forward] output 1 overlaps output 0)",
"One result would be written over another.",
"Use other memory for each output.",
[] {
const mxd<> layer = small_mxd();
const auto forward = compile([&](const auto& x) { return std::tuple(layer(x), layer(x)); }, 4);
tensor<float, 2> x({4, 8}), y({4, 3});
forward(x, y, y);
}},
{R"([ablated] there is no expert 5 among 5)",
"The number of an expert is not below the number of experts.",
"Experts are counted from 0; `expert_count(layer)` tells how many there are.",
[] { ablated(small_mxd(), {0, 5}); }},
{R"([steered] there is no expert 5 among 5)",
"The number of an expert is not below the number of experts.",
"Experts are counted from 0; `expert_count(layer)` tells how many there are.",
[] { steered(small_mxd(), 5, 1); }},
{R"([rewritten] there is no head 3 among 3)",
"The number of a head is not below the layer's number of outputs.",
"Heads are counted from 0.",
[] { rewritten(small_mxd(), 3, std::vector<double>(5), 1); }},
{R"([borrow] the array's rows do not follow each other: to_tensor copies it)",
"A tensor is row-major without gaps, but the borrowed array is not.",
"Copy it: `to_tensor<2>(x)`.",
[] {
std::vector<float> values(24);
foreign transposed{values.data(), {4, 6}, {1, 4}};
borrow<2>(transposed);
}},
{R"([evaluate] the output overlaps an operand)",
"The output would be written while an operand is still read.",
"Use other memory for the output.",
[] {
tensor<float, 1> x({4});
evaluate(relu(x), x);
}},
{R"([evaluate] an axis of the output has stride 0)",
"Several elements of the output have the same address.",
"Pass an output with its own element for each value.",
[] {
tensor<float, 2> x({4, 8}), y({4, 8});
evaluate(relu(x), foreign{y.data(), {4, 8}, {0, 1}});
}},
{R"([forward] an axis of the output has stride 0)",
"Several rows of the output have the same address.",
"Pass an output with its own element for each value.",
[] {
const auto forward = compile(small_mxd(), 4);
tensor<float, 2> x({4, 8}), y({4, 3});
forward(x, foreign{y.data(), {4, 3}, {0, 1}});
}},
{R"([call] axis 0 of an array has a negative stride)",
"The elements of an array go backwards through memory.",
"Copy it first.",
[] {
const auto forward = compile(small_mxd(), 4);
tensor<float, 2> x({4, 8}), y({4, 3});
forward(foreign{x.data() + 24, {4, 8}, {-8, 1}}, y);
}},
{R"([routing] g1 or g2 of token 1 has an entry that is not finite)",
"A NaN or an infinity would make the sums of its experts useless, so no token of the batch is added.",
"Check the input of the router: a token with NaN or infinity has such a routing.",
[] {
tensor<float, 3> g1({4, 2, 6}), g2({4, 2, 6});
g2(1, 0, 3) = std::numeric_limits<float>::quiet_NaN();
expert_domains(6, 14).add(g1, g2, 0);
}},
{R"([expert_domains] domain 14 is asked for and there are 14)",
"Domains are numbered from 0.",
"Tell the constructor how many domains there are.",
[] { expert_domains(6, 14).tokens(14); }},
{R"([expert_domains] expert (0, 6) is asked for and there are 6 x 6)",
"An expert is a pair of halves, and each half must be below s.",
"Swap or correct the indices.",
[] { expert_domains(6, 14).mean_probability(0, {0, 6}); }},
{R"([expert_domains] the ratio is 0.5 and has to be 1 at least)",
"With a ratio below 1 an expert could belong to a domain in which it is less probable than in another.",
"Pass the ratio of the paper, 2, or more; with a larger ratio more experts belong to no domain.",
[] { expert_domains(6, 1).experts_of(0, 0.5); }},
{R"([expert_domains] domain 0 has no tokens, and its experts are asked for)",
"Without tokens of a domain, nothing tells which experts belong to it.",
"Add tokens of each domain first, and do not tell the constructor of more domains than there are.",
[] { expert_domains(6, 14).experts_of(3); }},
{R"([expert_correlation] expert (6, 0) is asked for and there are 6 x 6)",
"An expert is a pair of halves, and each half must be below s.",
"Swap or correct the indices.",
[] { expert_correlation(6).correlation({6, 0}); }},
{R"([expert_correlation] the score of token 1 is inf and has to be a number of at most 1e100)",
"A single NaN or infinite score would make the correlation of every expert useless.",
"Do not add tokens without a score.",
[] {
const std::vector<double> scores = {0.25, std::numeric_limits<double>::infinity()};
expert_correlation(6).add(tensor<float, 3>({2, 2, 6}), tensor<float, 3>({2, 2, 6}), scores);
}},
{R"([cuda] there is no GPU -1: the program can use 0, since its kernels are compiled without nvcc; cuda::emulated() runs the kernels on the CPU)",
"There are fewer GPUs, which count from 0 as `nvidia-smi` shows them; or the file with the kernels is not compiled by nvcc.",
"Pass the number of a GPU, compile the component `cuda` with nvcc, or take `cuda::emulated()` or `cuda::gpu_or_emulated()`.",
[] { cuda::device(-1); }},
{R"([cuda] the temporaries of one token take 2816 bytes, and the workspace has 1024)",
"A GPU makes whole rows between two steps, at least those of one token.",
"Give the device a larger workspace.",
[] {
const tensor<float, 2> x({9, 12}), w({12, 700});
evaluate(softmax(relu(einsum<"ti,io->to">(x, w))), {.on = cuda::emulated({.workspace = 1024})});
}},
{R"([cuda] a function of the program's own code does not run on a GPU: write it with fmoe's functions, or leave it out of the layer and call it on what the layer returns, in "tb->tb")",
"A `pointwise_function` is code of the CPU, which a GPU has not.",
"Write it with the functions of fmoe, call it on what the layer returns, or run the layer on the CPU.",
[] {
const pointwise_function twice("twice", [](auto v) { return v + v; });
evaluate(twice(tensor<float, 2>({9, 12})), {.on = cuda::emulated()});
}},
{R"([cuda] the layer takes 4504 bytes of the GPU, 1176 of them for weights and 3328 for each caller, and may take 1024)",
"The weights of the layer, and the memory of its callers for one token at a time, are more than the device's options allow.",
"Allow more memory, compile for fewer callers or tokens, or split the layer.",
[] {
const tensor<float, 2> x({9, 12});
const parameter<float, 2> w({12, 24});
evaluate(einsum<"ti,io->to">(x, w), {.on = cuda::emulated({.memory = 1024})});
}},
{R"([cuda] there is no emulated device 1: the options say 1)",
"Where there is no GPU, there are as many emulated ones as the options say.",
"Take device 0, or set `emulated_devices`.",
[] { cuda::emulated({}, 1); }},
{R"([cuda] this pointer is of no device's memory)",
"`cuda::at` asks CUDA to which device a pointer belongs, and this one belongs to the host.",
"Pass a pointer of the GPU's memory; an array of the host needs no `cuda::at`.",
[] {
const float here[6] = {};
cuda::at(here, {2, 3});
}},
{R"([array] this array lies on emulated GPU 0, and only a call that runs there reads it: copy it to the host first)",
"Only compiled layers of a GPU read its memory; expressions, statistics and copies are code of the host.",
"Copy the array: `x.to_host()`.",
[] {
const cuda::tensor<float, 2> x({2, 3}, cuda::emulated());
to_tensor(x);
}},
{R"([forward] input 0 lies on emulated GPU 0, and the layer runs on the host: copy the array, or compile for its device)",
"A layer reads and writes arrays of the host and of the device that it is compiled for.",
"Compile the layer with the device of the array in `on`, or copy the array.",
[] {
const cuda::tensor<float, 2> x({2, 8}, cuda::emulated());
tensor<float, 2> y({2, 3});
compile(small_mxd(), 2)(x, y);
}},
{R"([forward] the layer runs on the host, which has no streams)",
"`forward.on(stream)` is of layers that run on a GPU.",
"Call `forward(x, y)`, or compile for a GPU.",
[] {
const cuda::stream stream(cuda::emulated());
tensor<float, 2> x({2, 8}), y({2, 3});
compile(small_mxd(), 2).on(stream)(x, y);
}},
{R"([forward] a captured call takes arrays of the GPU alone)",
"A CUDA graph holds no copies between the host and the device, because the host would have to wait for them.",
"Copy the arrays to the GPU before the capture.",
[] {
const auto gpu = cuda::emulated();
const auto forward = compile(small_mxd(), 2, {.on = gpu});
tensor<float, 2> x({2, 8}), y({2, 3});
const cuda::stream s(gpu);
cuda::graph(gpu, s, [&] { forward.on(s)(x, y); });
}},
{R"([forward] a captured call keeps memory of its own, and other calls have all that the layer has: compile it for more callers)",
"A graph may run at any time, so its memory must be nobody else's; here a call has it that may still run.",
"Wait for the stream of that call before the capture, or compile with more `callers`.",
[] {
const auto gpu = cuda::emulated({.streams = cuda::stream_order::deferred});
const auto forward = compile(small_mxd(), 2, {.on = gpu});
cuda::tensor<float, 2> x({2, 8}, gpu), y({2, 3}, gpu);
const cuda::stream s(gpu), other(gpu);
forward.on(other)(x, y);
cuda::graph(gpu, s, [&] { forward.on(s)(x, y); });
}},
{R"([forward] a captured call keeps the memory of the only caller: compile the layer for more callers)",
"A graph may run at any time, so other calls cannot have its memory.",
"Compile with one caller more than calls run at the same time.",
[] {
const auto gpu = cuda::emulated();
const auto forward = compile(small_mxd(), 2, {.on = gpu, .callers = 1});
cuda::tensor<float, 2> x({2, 8}, gpu), y({2, 3}, gpu);
const cuda::stream s(gpu);
const cuda::graph g(gpu, s, [&] { forward.on(s)(x, y); });
forward(x, y);
}},
{R"([call] a DLTensor is of float, double, bfloat16 or float16, and this one has code 0, 32 bits and 1 lanes)",
"Layers compute with floating-point numbers; code 0 are integers.",
"Convert the array where it was made.",
[] {
std::int64_t shape[]{2, 8};
tensor<float, 2> x({2, 8});
compile(small_mxd(), 2)(dl_tensor{x.data(), {1, 0}, 2, {0, 32, 1}, shape, nullptr, 0});
}},
{R"([call] a DLTensor lies on the CPU or on an NVIDIA GPU, and this one is of device type 10)",
"The device types of DLPack that layers read are 1, 2, 3 and 13; 10 is a GPU of AMD.",
"Copy the array to the host.",
[] {
std::int64_t shape[]{2, 8};
tensor<float, 2> x({2, 8});
compile(small_mxd(), 2)(dl_tensor{x.data(), {10, 0}, 2, {2, 32, 1}, shape, nullptr, 0});
}},
{R"([call] an array's typestr is "<f4", "<f8" or "<f2", and this one is "<i4")",
"Layers compute with floating-point numbers in the machine's order of bytes; `<i4` are integers.",
"Convert the array where it was made.",
[] {
const cuda::tensor<float, 2> x({2, 8}, cuda::emulated());
compile(small_mxd(), 2)(cuda_array{x.data(), {2, 8}, "<i4"});
}},
{R"([call] axis 0 of an array has a stride of -32 bytes, which is no number of elements)",
"The strides of `__cuda_array_interface__` are bytes, at least 0 and whole elements.",
"Copy the array, so that its rows follow each other.",
[] {
const cuda::tensor<float, 2> x({2, 8}, cuda::emulated());
compile(small_mxd(), 2)(cuda_array{x.data(), {2, 8}, "<f4", {-32, 4}});
}},
{R"([evaluate] the output is of float64 and the expression computes in float32: convert it first)",
"The type of a DLTensor is known only when the program runs, and a result is not converted.",
"Pass an array of the expression's type.",
[] {
std::int64_t shape[]{2, 8};
tensor<double, 2> y({2, 8});
dl_tensor output{y.data(), {1, 0}, 2, {2, 64, 1}, shape, nullptr, 0};
evaluate(relu(tensor<float, 2>({2, 8})), output);
}},
{R"([forward] input 0 is of float64 and the layer computes in float32: convert it first)",
"The type of a DLTensor is known only when the program runs, and this one is wider than the layer's.",
"Pass an array of float, bf16 or f16.",
[] {
std::int64_t shape[]{2, 8};
tensor<double, 2> x({2, 8});
compile(small_mxd(), 2)(dl_tensor{x.data(), {1, 0}, 2, {2, 64, 1}, shape, nullptr, 0});
}},
{R"([dispatch] FMOE_LEVEL is AVX2, and the program holds kernels of x86-64-v2, x86-64-v3, x86-64-v4)",
"The variable of the environment must have the name of a level, as `explain` prints it.",
"Set it to one of those names, or leave it unset: then the program takes the best level of the CPU.",
[] {
cpu::place_of_level("AVX2", 3);
}},
{R"([dispatch] FMOE_LEVEL asks for x86-64-v4, and this CPU runs x86-64-v3 at most)",
"The CPU lacks instructions of the level that the environment names.",
"Name a lower level, or leave `FMOE_LEVEL` unset.",
[] {
cpu::place_of_level("x86-64-v4", 2);
}},
{R"([dispatch] this CPU lacks instructions of x86-64-v2, the lowest level that the program holds kernels of)",
"The engine has kernels for CPUs from about 2009 on.",
"Link `fmoe::header_only`, which has the kernels of your own flags.",
[] {
cpu::place_of_level("", 0);
}},
};
// clang-format on

TEST_CASE("values that are out of range are refused by these sentences", "[errors]") {
  check<value_error>(value_errors);
}

}  // namespace

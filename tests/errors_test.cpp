// SPDX-License-Identifier: MIT
// Every kind of error that a program meets when it runs: the whole message, why it comes, and what
// to do. scripts/errors_page makes docs/errors.md of the tables below, and of tests/compile_fail.
#include <fmoe/analysis.hpp>
#include <fmoe/aoe.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/npy.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/rank.hpp>

#include "support/catch.hpp"
#include "support/files.hpp"

namespace {

using namespace fmoe;

// 8 inputs, 16 hidden units, 5 experts, 3 outputs; a token uses 2 experts.
mxd<> small_mxd() {
  mxd<> layer;
  layer.encoder = tensor<float, 2>({8, 16});
  layer.gate = tensor<float, 2>({8, 5});
  layer.scales = tensor<float, 2>({5, 3});
  layer.decoder = tensor<float, 2>({16, 3});
  layer.active = 2;
  return layer;
}

// Its file as `mxd.safetensors` with these arrays in place of its own, and this metadata.
io::safetensors small_file(const io::arrays_by_name& other,
                           const io::strings_by_name& metadata = {}) {
  auto arrays = io::arrays_of(small_mxd(), "mxd.safetensors", {}).arrays;
  for (const auto& [name, array] : other) arrays.insert_or_assign(name, array);
  return io::safetensors::parse(io::safetensors::serialize(arrays, metadata), "mxd.safetensors");
}

// Elements of elsewhere with the shape and the strides of their owner.
struct foreign {
  float* elements;
  std::vector<std::size_t> extents;
  std::vector<std::ptrdiff_t> steps;

  float* data() const { return elements; }
  const std::vector<std::size_t>& shape() const { return extents; }
  const std::vector<std::ptrdiff_t>& strides() const { return steps; }
};

struct failure {
  const char* message;
  const char* cause;
  const char* cure;
  void (*provoke)();
};

// clang-format off: scripts/errors_page reads the table.
const failure shape_errors[] = {
    {R"([einsum] 'i' is 8 in operand 0 and 3 in operand 1 of "ti,io->to")",
     "An axis has one length in one operand and another in the next, although both are named by the same letter.",
     "Name the axes in the order they are stored in, or pass the tensor that was meant.",
     [] {
       const tensor<float, 2> x({4, 8}), w({3, 8});
       evaluate(einsum<"ti,io->to">(x, w));
     }},
    {R"([einsum] 'i' is 9 in operand 0 and 8 in operand 1 of "ti,in->tn")",
     "The input has another width than the layer's weights.",
     "Pass rows of as many entries as the layer has inputs.",
     [] {
       const mxd<> layer = small_mxd();
       const tensor<float, 2> x({4, 9});
       evaluate(layer(x));
     }},
    {R"([rewritten] there are 4 mean coefficients and 5 experts)",
     "The subpopulation's mean coefficients are not one for each expert.",
     "Take them of this layer's `coefficients(x)`.",
     [] { rewritten(small_mxd(), 0, std::vector<double>(4), 1); }},
    {R"([add] axis 1 is 8 and 4: operands of 2 and 1 axes align at the last)",
     "The operands of + align at their last axis, and differ there.",
     "Check the bias; an axis to repeat along comes first.",
     [] {
       const tensor<float, 2> x({4, 8});
       const tensor<float, 1> bias({4});
       evaluate(x + bias);
     }},
    {R"([multiply] axis 1 is 8 and 4: operands of 2 and 1 axes align at the last)",
     "As with +: the operands align at their last axis.",
     "Use an einsum where other axes should meet: `einsum<\"ti,t->ti\">(x, scale)`.",
     [] {
       const tensor<float, 2> x({4, 8});
       const tensor<float, 1> scale({4});
       evaluate(x * scale);
     }},
    {R"([concat] axis 0 is 4 and 5: operands differ along axis 1 alone)",
     "Operands of concat have the same extents but along the axis that joins them.",
     "Join along the other axis, or bring the operands to one length.",
     [] {
       const tensor<float, 2> a({4, 8}), b({5, 8});
       evaluate(concat<1>(a, b));
     }},
    {R"([concat] the parts of an axis of 3 are 6 long together)",
     "What follows from the sum's other operand is shorter than one part alone.",
     "Check the bias that is added to the joined columns.",
     [] {
       const parameter<float, 2> w({4, 6});
       const parameter<float, 1> bias({3});
       compile([&](const auto& x) { return concat<1>(x, w) + bias; }, 4);
     }},
    {R"([sized] axis 1 is 8 and is said to be 9)",
     "sized says an extent that the expression does not have.",
     "Say `unknown` where the extent follows from the operands.",
     [] {
       const tensor<float, 2> x({4, 8});
       evaluate(sized(x, {unknown, 9}));
     }},
    {R"([bounded softmax] axis 0 is 4 and the bound's is 8)",
     "The bound of a softmax has an entry for each row of the scores.",
     "Leave out the last axis of the scores, and no other.",
     [] {
       const tensor<float, 2> scores({4, 8});
       const tensor<float, 1> bound({8});
       evaluate(bounded_softmax(scores, bound));
     }},
    {R"([product_top_k] the scores' last axes are two lists, not 3 of 8)",
     "Product keys are two lists of scores, along the axis before the last.",
     "Give the scores the shape [token, ..., 2, keys].",
     [] {
       const tensor<float, 3> scores({4, 3, 8});
       evaluate(product_top_k(scores, 2, 2));
     }},
    {R"([tensor] the shape has 6 elements and there are 5 values)",
     "There are more or fewer values than the shape has elements.",
     "Change the shape, or pass as many values.",
     [] {
       const std::vector<float> values(5);
       tensor<float, 2> x({2, 3}, values);
     }},
    {R"([borrow] the shape has 6 elements and the container 5)",
     "A borrowed container is shorter than the shape says.",
     "Change the shape, or borrow the container that was meant.",
     [] {
       const std::vector<float> values(5);
       borrow(values, std::array<std::size_t, 2>{2, 3});
     }},
    {R"([tensor] the bytes of the shape [1099511627776, 1099511627776] do not fit 64 bits: a negative number is no extent)",
     "An extent is a negative number, or not a number of elements.",
     "Check the arithmetic that made the extents.",
     [] { tensor<float, 2>({std::size_t{1} << 40, std::size_t{1} << 40}); }},
    {R"([view] the shape has 64 elements and the parameter 48)",
     "A parameter is viewed in a shape with another number of elements.",
     "The product of the extents stays the same in a view.",
     [] { viewed<3>(parameter<float, 2>({8, 6}), {8, 2, 4}); }},
    {R"([compile] nothing in the layer fixes the extent of axis 1 of an argument: say it with fmoe::sized)",
     "No weight meets this axis of the input, so that compile cannot know how long it is.",
     "Say it: `sized(x, {unknown, 8})`.",
     [] { compile([](const auto& x) { return relu(x); }, 4); }},
    {R"([tensor] an array has 3 axes, not 2)",
     "An array whose type does not tell its rank has another than was said.",
     "Say the rank that it has: `to_tensor<3>(x)`.",
     [] {
       std::vector<float> values(24);
       to_tensor<2>(foreign{values.data(), {2, 3, 4}, {12, 4, 1}});
     }},
    {R"([evaluate] the output has 1 axes and the expression 2)",
     "The array that the value is to be written to has not one axis for each of the expression's.",
     "Pass an array of the expression's shape.",
     [] {
       tensor<float, 1> y({12});
       evaluate(small_mxd()(tensor<float, 2>({4, 8})), y);
     }},
    {R"([evaluate] axis 1 of the output is 8 and 3)",
     "The array that the value is to be written to has another shape than the expression.",
     "Pass an array of the expression's shape.",
     [] {
       tensor<float, 2> y({4, 8});
       evaluate(small_mxd()(tensor<float, 2>({4, 8})), y);
     }},
    {R"([forward] axis 0 of the rows of input 0 is 9 and the layer's is 8)",
     "The rows of an input have another width than those the layer is compiled for.",
     "Pass rows as the layer's weights have them.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({4, 9}), y({4, 3});
       forward(x, y);
     }},
    {R"([forward] axis 0 of the rows of the output is 8 and the layer's is 3)",
     "The output has not as many columns as the layer makes.",
     "Make the output as wide as the layer's result.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({4, 8}), y({4, 8});
       forward(x, y);
     }},
    {R"([forward] 't' is 4 in input 0 and 3 in the output)",
     "The output has not as many rows as the input.",
     "Make the output [token, output], with the input's tokens.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({4, 8}), y({3, 3});
       forward(x, y);
     }},
    {R"([forward] 't' is 5 and the layer is compiled for at most 4: say more to compile)",
     "A call brings more tokens than the layer is compiled for; fewer are fine.",
     "Compile the layer for the most tokens of any call, or make several calls.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({5, 8}), y({5, 3});
       forward(x, y);
     }},
    {R"([forward] input 0 has 0 axes and a row alone has 1)",
     "An input has fewer axes than one row of it.",
     "Pass [token, ...], also for a single token.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 0> x(std::array<std::size_t, 0>{});
       tensor<float, 2> y({1, 3});
       forward(x, y);
     }},
    {R"([call] an array has more than 16 axes)",
     "Arrays of a call have at most 16 axes, leading axes of tokens included.",
     "Fold leading axes into one.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({1, 8}), y({1, 3});
       forward(foreign{x.data(), std::vector<std::size_t>(17, 1), std::vector<std::ptrdiff_t>(17, 1)}, y);
     }},
    {R"([mumoe] 'i' is 7 in the experts, and their input has 8 columns)",
     "The experts of a μMoE layer have as many input rows as the gate, or one more for their bias.",
     "Give gate and experts the same inputs.",
     [] {
       cp_mumoe<> layer;
       layer.gate.projections[0] = tensor<float, 2>({8, 5});
       layer.experts = {{tensor<float, 2>({5, 2})}, tensor<float, 2>({7, 2}), tensor<float, 2>({3, 2})};
       save(layer, "layer.safetensors");
     }},
    {R"([monet_router] 12 keys are not of 5 heads)",
     "A Monet router's keys are columns of all heads, side by side.",
     "Set `heads` to a divisor of the number of keys.",
     [] {
       monet_router<> router;
       router.keys1 = router.keys2 = tensor<float, 2>({8, 12});
       router.heads = 5;
       router.g1(tensor<float, 2>({4, 8}));
     }},
    {R"([monet_router] there are 2 heads and statistics of 3)",
     "The running statistics of a router are of another number of heads than `heads` says.",
     "Leave `heads` 0: the statistics tell it.",
     [] {
       monet_router<> router;
       router.keys1 = tensor<float, 2>({8, 12});
       router.mean1 = router.variance1 = tensor<float, 1>({3});
       router.heads = 2;
       router.g1(tensor<float, 2>({4, 8}));
     }},
    {R"([monet] 10 hidden units are not of 4 experts)",
     "The hidden units of a Monet layer are not the same number for each expert.",
     "The bias has a row for each half of the experts; check it against the encoder.",
     [] {
       monet_hd<> layer;
       layer.encoder = tensor<float, 2>({8, 10});
       layer.bias = tensor<float, 2>({4, 8});
       layer.hidden(tensor<float, 2>({3, 8}));
     }},
    {R"([monet] 10 hidden biases are not of 4 experts)",
     "The hidden biases of a Monet layer are not the same number for each expert.",
     "Check `encoder_bias` against the encoder's columns.",
     [] {
       monet_hd<> layer;
       layer.encoder = tensor<float, 2>({8, 12});
       layer.encoder_bias = tensor<float, 1>({10});
       layer.bias = tensor<float, 2>({4, 8});
       layer.hidden(tensor<float, 2>({3, 8}));
     }},
    {R"([peer] 10 experts for 2 heads with two lists of 3 keys)",
     "PEER has keys squared experts, or as many for each head.",
     "Check the number of keys and of rows of `down` and `up`.",
     [] {
       peer<> layer;
       layer.keys = tensor<float, 4>({2, 3, 2, 4});
       layer.down = layer.up = tensor<float, 2>({10, 8});
       layer(tensor<float, 2>({4, 8}));
     }},
    {R"([peer] 7 inputs have no halves)",
     "Without a map of queries PEER's query is the input's two halves, and the input has an odd length.",
     "Set `queries`, or use an even number of inputs.",
     [] {
       peer<> layer;
       layer.keys = tensor<float, 4>({2, 3, 2, 4});
       layer.down = layer.up = tensor<float, 2>({9, 7});
       layer(tensor<float, 2>({4, 7}));
     }},
    {R"([expert_load] chosen is [4, 6] and scores [4, 6]; there are 5 experts)",
     "A load is counted from chosen experts and scores of the same shape.",
     "Pass both as [token, expert], with as many experts as were said.",
     [] { expert_load(5).add(tensor<float, 2>({4, 6}), tensor<float, 2>({4, 6})); }},
    {R"([token_batch] the batch is [4, 6] and there are 5 experts)",
     "A batch of coefficients has a column for each expert that the statistics were made for.",
     "Make `expert_statistics` and `top_tokens` for as many experts as the layer has.",
     [] { expert_statistics(5).add(tensor<float, 2>({4, 6})); }},
    {R"([token_batch] a batch has the axes token and expert, and this one has 3)",
     "The statistics count tokens, one a row.",
     "Fold the leading axes: `flattened(a)` of `<fmoe/arrays/viewed.hpp>`.",
     [] { expert_statistics(5).add(tensor<float, 3>({2, 4, 5})); }},
    {R"([expert_statistics] there are 4 tokens and 3 members)",
     "A subpopulation is told by a bool for each token of the batch.",
     "Pass as many as the batch has rows: of this batch, not of the whole stream.",
     [] { expert_statistics(5).add(tensor<float, 2>({4, 5}), std::vector<bool>(3)); }},
    {R"([accuracy_loss] there are 3 classes before and 2 after)",
     "Accuracies of the same classes are compared, before and after an expert is ablated.",
     "Measure every class both times.",
     [] { accuracy_loss(std::vector<double>{1, 1, 1}, std::vector<double>{1, 1}); }},
    {R"([routing] g1 is [4, 2, 6] and g2 [4, 2, 6]; both are [t, p, s], and s is 5)",
     "Statistics of a router's output were made for another number of expert halves, or g1 and g2 are not of one router and batch.",
     "Pass `router.g1(x)` and `router.g2(x)`, [token, head, half], evaluated, and say their last extent to the constructor.",
     [] { expert_domains(5, 14).add(tensor<float, 3>({4, 2, 6}), tensor<float, 3>({4, 2, 6}), 0); }},
    {R"([expert_domains] there are domains of 3 tokens and g1 is of 4)",
     "A batch has a domain for each token, in a span of as many.",
     "Pass one number for each token, or one for them all.",
     [] { expert_domains(6, 14).add(tensor<float, 3>({4, 2, 6}), tensor<float, 3>({4, 2, 6}), std::vector<std::size_t>(3)); }},
    {R"([expert_correlation] there are scores of 3 tokens and g1 is of 4)",
     "A batch has a score for each token.",
     "Give each token of a text its text's score, if texts have scores.",
     [] { expert_correlation(6).add(tensor<float, 3>({4, 2, 6}), tensor<float, 3>({4, 2, 6}), std::vector<float>(3)); }},
};
// clang-format on

// clang-format off: scripts/errors_page reads the table.
const failure value_errors[] = {
    {R"([einsum] the operand "no" of "tn,no,th,ho->to" holds nothing: set or load the parameter)",
     "A parameter of a layer, or a tensor, was never given elements; the letters of the operand tell which one.",
     "Set it, or load the layer from a file.",
     [] {
       const mxd<> layer;
       evaluate(layer(tensor<float, 2>({4, 8})));
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
     "K is negative; files write -1 for all.",
     "Pass fmoe::all to keep every score.",
     [] {
       const tensor<float, 2> scores({4, 5});
       top_k(scores, -1);
     }},
    {R"([top_p] the mass is 1.5, not within 0 and 1)",
     "The mass of a top-p selection is a probability.",
     "Pass a number from 0 to 1.",
     [] {
       const tensor<float, 2> scores({4, 5});
       evaluate(top_p(scores, 1.5, weighting::softmax));
     }},
    {R"([entmax] alpha is 0.5, below 1, which is softmax)",
     "entmax has alpha 1, which is softmax, or more.",
     "Pass 1 for softmax, 1.5 for the usual entmax, 2 for sparsemax.",
     [] {
       const tensor<float, 2> scores({4, 5});
       evaluate(entmax(scores, 0.5));
     }},
    {R"([product_top_k] K is 10 and two lists of 3 have fewer pairs)",
     "Product keys keep fewer of each list than K needs.",
     "Raise `candidates`: its square is at least K.",
     [] {
       const tensor<float, 3> scores({4, 2, 8});
       evaluate(product_top_k(scores, 10, 3));
     }},
    {R"([product_top_k] each list keeps 9 and has 8)",
     "Product keys keep more of each list than it has.",
     "Lower `candidates`, or K where it follows from it.",
     [] {
       const tensor<float, 3> scores({4, 2, 8});
       evaluate(product_top_k(scores, 10, 9));
     }},
    {R"([product_top_k] a list has 65536 entries, above 65,535)",
     "The number of a pair of keys would not fit.",
     "Use lists of at most 65,535 keys.",
     [] {
       const tensor<float, 3> scores({1, 2, 65536});
       evaluate(product_top_k(scores, 2, 2));
     }},
    {R"([expert_choice] the scores' first axis does not count tokens)",
     "Experts choose among the tokens of a call, and parameters have none.",
     "Make the scores of an input: `einsum<\"ti,in->tn\">(x, router)`.",
     [] {
       const parameter<float, 2> scores({4, 5});
       evaluate(expert_choice(scores, scores, weighting::softmax));
     }},
    {R"([all_except] the pair (2, 5) is outside 4 x 5)",
     "A pair of experts to leave out does not exist.",
     "Pairs are (row, column), counted from 0.",
     [] {
       const std::vector<index_pair> pairs{{2, 5}};
       all_except(pairs, 4, 5);
     }},
    {R"([all_except] is an operand of einsum only)",
     "`all_except` has no elements: it changes what an einsum sums over.",
     "Make it an operand of einsum, with labels that other operands have too.",
     [] { evaluate(relu(all_except({}, 4, 5))); }},
    {R"([all_except] its labels differ, and other operands have them too: 'j' of "ij")",
     "The pairs are of two axes that meet in the other operands.",
     "Give the mask two letters, each of which another operand has.",
     [] {
       const tensor<float, 2> g({3, 4});
       evaluate(einsum<"ti,ij->tj">(g, all_except({}, 4, 5)));
     }},
    {R"([all_except] an einsum has one mask: "ti,tj,ij,ij->t")",
     "An einsum leaves out one list of pairs.",
     "Put all pairs into one list.",
     [] {
       const tensor<float, 2> g({3, 4}), h({3, 5});
       const auto kept = all_except({}, 4, 5);
       evaluate(einsum<"ti,tj,ij,ij->t">(g, h, kept, kept));
     }},
    {R"([all_except] goes with at most 8 operands, not 9)",
     "A sum without pairs is made again for some places, of at most 8 operands.",
     "Multiply some operands first, in an einsum of their own.",
     [] {
       const tensor<float, 2> g({3, 4}), h({3, 5});
       evaluate(einsum<"ti,tj,ti,ti,ti,ti,ti,ti,ti,ij->t">(g, h, g, g, g, g, g, g, g, all_except({}, 4, 5)));
     }},
    {R"([all_except] selects from parameters alone)",
     "Pairs are left out of sums over tokens, not of sums that are made once of parameters.",
     "Multiply the mask's pairs into the parameters instead.",
     [] {
       const parameter<float, 2> w({4, 5}), v({5, 2});
       const parameter<float, 3> u({4, 5, 2});
       const tensor<float, 2> g({3, 4});
       const std::vector<index_pair> pairs{{2, 3}};
       evaluate(einsum<"ti,ijk->tjk">(g, u) + einsum<"ij,ij,jk->jk">(w, all_except(pairs, 4, 5), v));
     }},
    {R"([slice] there is no entry 5 in an axis of 5)",
     "An expert is asked for by a number that is not below the number of experts.",
     "Experts are counted from 0.",
     [] {
       cp_experts<> experts;
       experts.experts[0] = tensor<float, 2>({5, 2});
       experts.expert(5);
     }},
    {R"([expert_statistics] nothing is known of no tokens: add some first)",
     "A frequency or a mean is asked for before a token was added, or of a subpopulation that no token belongs to.",
     "Look at `tokens()` first where a subpopulation may be empty.",
     [] { expert_statistics(5).mean_coefficients(); }},
    {R"([top_tokens] there is no expert 5 of 5)",
     "The tokens of an expert are asked for by a number that is not below the number of experts.",
     "Experts are counted from 0.",
     [] { top_tokens(5, 10).of(5); }},
    {R"([polysemanticity] there are no classes)",
     "The distance from one class is asked for, of no class.",
     "Pass the loss of accuracy of each class.",
     [] { polysemanticity({}); }},
    {R"([polysemanticity] no expert changes the accuracy of a class)",
     "The mean is taken over the experts whose ablation changes something, and there is none.",
     "Measure on more data, or more experts.",
     [] { mean_polysemanticity(std::vector<std::vector<double>>{{0, 0, 0}}); }},
    {R"([singular_values] an entry of the matrix is not finite)",
     "A NaN or an infinity has no rank.",
     "Look for it in the weights: `std::isfinite` of each.",
     [] { numerical_rank(tensor<float, 2>({2, 2}, {1, 0, NAN, 1})); }},
    {R"([batch norm] the running variance of expert 1 of level 0 is -1)",
     "A running variance is negative or not finite: the weights are damaged, or not a variance.",
     "Check the file the layer is loaded from.",
     [] {
       expert_gate<> gate;
       gate.projections[0] = tensor<float, 2>({8, 2});
       gate.means[0] = tensor<float, 1>({2});
       gate.variances[0] = tensor<float, 1>({2}, {1, -1});
       gate.coefficients(tensor<float, 2>({4, 8}));
     }},
    {R"([batch norm] there are 1 running statistics and 2 are needed, means and variances, or none)",
     "Some levels have running statistics and others do not.",
     "Set mean and variance of every level, or none.",
     [] {
       expert_gate<> gate;
       gate.projections[0] = tensor<float, 2>({8, 2});
       gate.means[0] = tensor<float, 1>({2});
       gate.coefficients(tensor<float, 2>({4, 8}));
     }},
    {R"([monet_router] without running statistics `heads` must be set)",
     "Without running statistics nothing tells how many heads share the keys.",
     "Set `heads`.",
     [] {
       monet_router<> router;
       router.keys1 = router.keys2 = tensor<float, 2>({8, 12});
       router.g1(tensor<float, 2>({4, 8}));
     }},
    {R"([monet_router] a running mean needs a variance, and the reverse)",
     "A router has a running mean and no variance.",
     "Set both, or none.",
     [] {
       monet_router<> router;
       router.keys1 = tensor<float, 2>({8, 12});
       router.mean1 = tensor<float, 1>({2});
       router.g1(tensor<float, 2>({4, 8}));
     }},
    {R"([monet_router] a variance is -1)",
     "A router's running variance is negative or not finite: the weights are damaged, or not a variance.",
     "Check the file the layer is loaded from.",
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
     "A Monet layer without a bias has no number of experts.",
     "Set `bias`, zeros where the model has none.",
     [] {
       const monet_hd<> layer;
       layer.hidden(tensor<float, 2>({4, 8}));
     }},
    {R"([compile] the layer uses 0 of its 1 arguments)",
     "The layer ignores its argument, so that nothing depends on the input.",
     "Use the argument; evaluate computes what needs no input.",
     [] {
       const tensor<float, 2> w({4, 8});
       compile([&](const auto&) { return relu(w); }, 4);
     }},
    {R"([compile] rows of the result depend on other rows of the arguments)",
     "A row of the result needs other rows of the input, and a compiled call may bring any number of rows.",
     "Keep the token axis first in every operand and in the result; evaluate computes the rest.",
     [] {
       const tensor<float, 2> w({4, 4});
       compile([&](const auto& x) { return einsum<"ts,so->to">(w, sized(x, {unknown, 4})); }, 4);
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
     "A tensor lies row-major and without gaps, and the array it would be borrowed from does not.",
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
     "Several elements of the output lie at the same place.",
     "Pass an output with an element for each value.",
     [] {
       tensor<float, 2> x({4, 8}), y({4, 8});
       evaluate(relu(x), foreign{y.data(), {4, 8}, {0, 1}});
     }},
    {R"([forward] an axis of the output has stride 0)",
     "Several rows of the output lie at the same place.",
     "Pass an output with an element for each value.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({4, 8}), y({4, 3});
       forward(x, foreign{y.data(), {4, 3}, {0, 1}});
     }},
    {R"([call] axis 0 of an array has a negative stride)",
     "An array goes backwards through its memory.",
     "Copy it first.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({4, 8}), y({4, 3});
       forward(foreign{x.data() + 24, {4, 8}, {-8, 1}}, y);
     }},
    {R"([routing] g1 or g2 of token 1 has an entry that is not finite)",
     "A NaN or an infinity would make every sum of its experts useless, so that nothing of the batch is added.",
     "Look at what the router was given: a token of NaN or infinity has such a routing.",
     [] {
       tensor<float, 3> g1({4, 2, 6}), g2({4, 2, 6});
       g2(1, 0, 3) = std::numeric_limits<float>::quiet_NaN();
       expert_domains(6, 14).add(g1, g2, 0);
     }},
    {R"([expert_domains] domain 14 is asked for and there are 14)",
     "Domains are numbered from 0.",
     "Say to the constructor how many there are.",
     [] { expert_domains(6, 14).tokens(14); }},
    {R"([expert_domains] expert (0, 6) is asked for and there are 6 x 6)",
     "An expert is a pair of halves, each of which is below s.",
     "Swap or correct the indices.",
     [] { expert_domains(6, 14).mean_probability(0, {0, 6}); }},
    {R"([expert_domains] the ratio is 0.5 and has to be 1 at least)",
     "An expert cannot belong to a domain in which it is less probable than in another.",
     "The paper's ratio is 2; a larger one leaves more generalists.",
     [] { expert_domains(6, 1).experts_of(0, 0.5); }},
    {R"([expert_domains] domain 0 has no tokens, and its experts are asked for)",
     "Any expert might be of a domain that no token has shown yet.",
     "Add tokens of each domain first, and say no more domains than there are.",
     [] { expert_domains(6, 14).experts_of(3); }},
    {R"([expert_correlation] expert (6, 0) is asked for and there are 6 x 6)",
     "An expert is a pair of halves, each of which is below s.",
     "Swap or correct the indices.",
     [] { expert_correlation(6).correlation({6, 0}); }},
    {R"([expert_correlation] the score of token 1 is inf and has to be a number of at most 1e100)",
     "One score that is NaN or infinite would leave no correlation of any expert.",
     "Leave out tokens without a score.",
     [] {
       const std::vector<double> scores = {0.25, std::numeric_limits<double>::infinity()};
       expert_correlation(6).add(tensor<float, 3>({2, 2, 6}), tensor<float, 3>({2, 2, 6}), scores);
     }},
};
// clang-format on

// clang-format off: scripts/errors_page reads the table.
const failure file_errors[] = {
    {R"([io] "nothing.safetensors": cannot be opened: No such file or directory (io))", "There is no such file, or it may not be read.", "Check the path; it is relative to the working directory.",
     [] { load<mxd<>>("nothing.safetensors"); }},
    {R"([io] "tests": is not a regular file (io))", "The path is a folder, which only a checkpoint may be.", "Open a model of several files with io::checkpoint::open.",
     [] { load<mxd<>>("tests"); }},
    {R"([io] "mxd.safetensors": tensor "W_enc" is missing: [*, *] (ih) is expected (missing_tensor))", "The file lacks a tensor that the layer needs.",
     "Say what stands before the names with .prefix, or load the kind of layer that the file holds.",
     [] { load<mxd<>>(io::safetensors::parse(io::safetensors::serialize({}), "mxd.safetensors")); }},
    {R"([io] "mxd.safetensors": tensor "W_cond" is [3, 5] and [*, 4] (on, n = 4 in "gate") is expected (shape))", "A tensor has another shape than the others of the layer agree on.",
     "The file holds another layer, or a transposed one: the layer's page lists names and axes.",
     [] { load<mxd<>>(small_file({{"gate", tensor<float, 2>({4, 8})}, {"W_cond", tensor<float, 2>({3, 5})}})); }},
    {R"([io] "mxd.safetensors": tensor "W_enc" is F64, which float32 would round: pass fmoe::io::narrow to allow it (dtype))", "The file stores double, and the layer float.", "Load a layer of double, or allow rounding: `{.narrow = io::narrow}`.",
     [] { load<mxd<>>(small_file({{"W_enc", tensor<double, 2>({8, 16})}})); }},
    {R"([io] "mxd.safetensors": tensor "W_enc" is I32 and F64, F32, BF16 or F16 is expected (dtype))", "The file stores integers where weights belong.", "Weights that are quantised are not read: convert them first.",
     [] { load<mxd<>>(small_file({{"W_enc", io::array({8, 16}, std::span<const int>(std::vector<int>(128)))}})); }},
    {R"([io] "mxd.safetensors": has K = 2 in its metadata, and 3 is asked for (conflict))", "The call and the file's metadata name different numbers of experts.", "Leave out .active, or correct the metadata.",
     [] { load<mxd<>>(small_file({}, {{"K", "2"}}), {.active = 3}); }},
    {R"([io] "mxd.safetensors": has K = "two" in its metadata, which is no number of experts and not -1 (schema))", "The metadata's K is not a number.", "Write a number of experts, or -1 for all.",
     [] { load<mxd<>>(small_file({}, {{"K", "two"}})); }},
    {R"([io] "mxd.safetensors": has the activation "mish" in its metadata, which is not known (schema))", "The metadata names an activation that fmoe does not know.", "Correct the metadata.",
     [] { load<mxd<>>(small_file({}, {{"activation", "mish"}})); }},
    {R"([io] "mxd.safetensors": has the kind "mxd_glu" in its metadata and the tensors of a mxd_mlp (conflict))", "The metadata says another kind of layer than the tensors make.", "Correct the metadata, or load another layer.",
     [] { load<mxd<>>(small_file({}, {{"kind", "mxd_glu"}})); }},
    {R"([io] "mxd.safetensors": holds tensors that make none of sae, skip_transcoder, transcoder (conflict))", "The tensors are those of another layer.", "Load the layer that the file holds.",
     [] { load<sparse_mlp<>>(small_file({})); }},
    {R"([io] is loaded with a K into a layer that has none (conflict))", "The layer chooses no experts by number.", "Leave out .active.",
     [] { load<cp_experts<>>(io::safetensors::parse(io::safetensors::serialize({{"factors.0", tensor<float, 2>({5, 2})}, {"factors.1", tensor<float, 2>({8, 2})}, {"factors.2", tensor<float, 2>({3, 2})}})), {.active = 2}); }},
    {R"([io] "mxd.safetensors": tensor "W_enc" is required and the layer's holds nothing (missing_tensor))", "A layer is saved before all of its required parameters are set.", "Set or load the parameter.",
     [] { save(mxd<>(), "mxd.safetensors"); }},
    {R"([io] "block.safetensors": [mumoe] one layer of the block has a bias (shape))", "One of the two layers of a μMoE block has a bias, and files say it of both.", "Give both a row more, or neither.",
     [] {
       cp_mumoe_block<> block;
       block.gate.projections[0] = block.first.experts[0] = block.second.experts[0] = tensor<float, 2>({8, 8});
       block.first.input = tensor<float, 2>({9, 8});
       block.first.output = block.second.input = block.second.output = tensor<float, 2>({8, 8});
       save(block, "block.safetensors");
     }},
    {R"([io] "mxd.safetensors": cannot name the activation exp (schema))", "The layer has a K or an activation that no metadata can name.", "Save the parameters by io::safetensors::write.",
     [] {
       mxd<> layer = small_mxd();
       layer.activation = pointwise::exp;
       save(layer, "mxd.safetensors");
     }},
    {R"([io] "tests/bad_inputs/st-ok-scalar.safetensors": tensor "model.gate" is in no shard (missing_tensor))", "A checkpoint has no tensor of this name.", "Look at `names()`; the prefix of a layer ends with a dot.",
     [] { io::checkpoint::open("tests/bad_inputs/st-ok-scalar.safetensors").at("model.gate"); }},
    {R"([io] "mxd.safetensors": tensor "gate" is [5, 8] and [8, 5] is expected (shape))", "An array is asked for in another shape.", "Ask for the shape that the file has, or io::any for any extent.",
     [] { small_file({}).get<float, 2>("gate", {8, 5}); }},
    {R"([io] "tests/bad_inputs/st-trunc-all.safetensors": tensor "a" has data beyond the file's end (truncated at byte 62))", "The file ends before its header says so: the download or the copy was cut off.", "Fetch the file again.",
     [] { io::safetensors::read("tests/bad_inputs/st-trunc-all.safetensors"); }},
    {R"([io] "tests/bad_inputs/st-only-len.safetensors": has a header of 60 bytes, more than the file or the limit of 100 MB (header_len))", "The first eight bytes are no length: the file is not a safetensors file, or is cut off.",
     "Fetch the file again; pickles (.bin, .pt) are not read.",
     [] { io::safetensors::read("tests/bad_inputs/st-only-len.safetensors"); }},
    {R"([io] "tests/bad_inputs/st-json-comment.safetensors": has a header that is not JSON (json at byte 9))", "The header is damaged.", "Fetch the file again, or write it anew.",
     [] { io::safetensors::read("tests/bad_inputs/st-json-comment.safetensors"); }},
    {R"([io] "tests/bad_inputs/st-dup-name-diff.safetensors": tensor "a" has the name "a" twice in one object of its header (duplicate_key at byte 62))", "Two tensors of the file have the same name, of which one would be lost.", "Write the file anew, with two names.",
     [] { io::safetensors::read("tests/bad_inputs/st-dup-name-diff.safetensors"); }},
    {R"([io] "tests/bad_inputs/st-extra-field.safetensors": tensor "a" has the unknown field "strides" (schema at byte 61))", "The header has what the format does not describe.", "Write the file anew.",
     [] { io::safetensors::read("tests/bad_inputs/st-extra-field.safetensors"); }},
    {R"([io] "tests/bad_inputs/st-dtype-F128.safetensors": tensor "a" has the unknown dtype "F128" (dtype at byte 22))", "A tensor has an element type that fmoe does not know.", "Convert it to F64, F32, BF16 or F16.",
     [] { io::safetensors::read("tests/bad_inputs/st-dtype-F128.safetensors"); }},
    {R"([io] "tests/bad_inputs/st-dim-2p64.safetensors": tensor "a" has the number "18446744073709551616", above 2^48-1 (overflow at byte 37))", "An extent is larger than any tensor.", "The file is damaged: fetch it again.",
     [] { io::safetensors::read("tests/bad_inputs/st-dim-2p64.safetensors"); }},
    {R"([io] "tests/bad_inputs/st-size-small.safetensors": tensor "a" takes 32 bits by its shape and has 8 bytes (size_mismatch at byte 9))", "A shape needs another number of bytes than the tensor has.", "The file is damaged: fetch it again.",
     [] { io::safetensors::read("tests/bad_inputs/st-size-small.safetensors"); }},
    {R"([io] "tests/bad_inputs/st-overlap-same.safetensors": tensor "b" begins at byte 0 of the data, where byte 8 is next (layout at byte 62))", "Tensors overlap, or there is a hole between them.", "The file is damaged: fetch it again.",
     [] { io::safetensors::read("tests/bad_inputs/st-overlap-same.safetensors"); }},
    {R"([io] tensor "a" has more than 32 axes (limit at byte 101))", "A tensor has more axes than any reader takes.", "The file is damaged: fetch it again.",
     [] { io::safetensors::serialize({{"a", io::array(io::element_type::f32, std::vector<std::size_t>(33, 1), std::vector<std::byte>(4))}}); }},
    {R"([io] has a header that is not UTF-8 (utf8 at byte 9))", "The header is not text.", "The file is damaged: fetch it again.",
     [] { io::safetensors::parse(bytes_of({"\x02\0\0\0\0\0\0\0{\xff", 10})); }},
    {R"([io] "tests/bad_inputs/npy-is-pickle.npy": is not a .npy file (magic))", "The file is not numpy's .npy: it may be a pickle, which is never opened.", "Save with `numpy.save(..., allow_pickle=False)`.",
     [] { io::npy::read("tests/bad_inputs/npy-is-pickle.npy"); }},
    {R"([io] "tests/bad_inputs/npy-ver-1.1.npy": has the unknown version 1.1 (version at byte 6))", "The file is of a version of the format that does not exist.", "Save it again with numpy.save.",
     [] { io::npy::read("tests/bad_inputs/npy-ver-1.1.npy"); }},
    {R"([io] "tests/bad_inputs/npy-fo-string.npy": has a header without True or False in this place (header at byte 44))", "The header of the .npy file is damaged.", "Save it again with numpy.save.",
     [] { io::npy::read("tests/bad_inputs/npy-fo-string.npy"); }},
    {R"([io] "tests/bad_inputs/npy-object.npy": has the unsupported dtype "|O" (dtype at byte 20))", "The array holds Python objects.", "Save numbers: `array.astype(\"float32\")`.",
     [] { io::npy::read("tests/bad_inputs/npy-object.npy"); }},
    {R"([io] holds 300, which does not fit U8 (overflow))", "A value of the array is larger than the integer type it is asked for in.", "Ask for a wider type: `integers<std::int64_t>()`.",
     [] { io::array({1}, std::span<const int>(std::vector<int>{300})).integers<std::uint8_t>(); }},
};
// clang-format on

template <class Error>
void check(const failure& f) {
  INFO(f.message);
  std::string message = "nothing was thrown";
  try {
    f.provoke();
  } catch (const Error& e) {
    message = e.what();
  }
  CHECK(message == f.message);
}

TEST_CASE("shapes that do not fit are refused by these sentences", "[errors]") {
  for (const failure& f : shape_errors) check<shape_error>(f);
}

TEST_CASE("values that are out of range are refused by these sentences", "[errors]") {
  for (const failure& f : value_errors) check<value_error>(f);
}

TEST_CASE("files that cannot be read or do not fit are refused by these sentences", "[errors]") {
  for (const failure& f : file_errors) check<io::error>(f);
}

// The last code of io::errc is the one that the loop ends with.
TEST_CASE("each kind of fault in a file has its sentence", "[errors]") {
  for (int code = 0; code <= static_cast<int>(io::errc::conflict); ++code) {
    const std::string_view name = io::name_of(static_cast<io::errc>(code));
    INFO(name);
    const auto ends = [&](const failure& f) {
      return std::string_view(f.message).find(std::string("(").append(name)) !=
             std::string_view::npos;
    };
    CHECK(std::ranges::any_of(file_errors, ends));
  }
}

}  // namespace

// SPDX-License-Identifier: MIT
// Every kind of error that a program meets when it runs, with the whole message, its cause and its
// cure. scripts/errors_page makes docs/errors.md from the tables below and from tests/compile_fail.
#include <fmoe/analysis.hpp>
#include <fmoe/aoe.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/expr/selection.hpp>
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

// A user's expression whose type says one axis and whose node has two.
struct flat_relu : expression_base {
  using scalar = float;
  static constexpr std::size_t rank = 1;

  tensor<float, 2> arg;

  ir::node_id lower(ir::graph& g) const { return relu(arg).lower(g); }
};

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

// Its file `mxd.safetensors`, with these arrays instead of its own and with this metadata.
io::safetensors small_file(const io::arrays_by_name& other,
                           const io::strings_by_name& metadata = {}) {
  auto arrays = io::arrays_of(small_mxd(), "mxd.safetensors", {}).arrays;
  for (const auto& [name, array] : other) arrays.insert_or_assign(name, array);
  return io::safetensors::parse(io::safetensors::serialize(arrays, metadata), "mxd.safetensors");
}

// Elements of another object, with the shape and the strides that it gives.
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
     "The same letter names two axes of different lengths.",
     "Name the axes in the order in which they are stored, or pass the right tensor.",
     [] {
       const tensor<float, 2> x({4, 8}), w({3, 8});
       evaluate(einsum<"ti,io->to">(x, w));
     }},
    {R"([einsum] 'i' is 9 in operand 0 and 8 in operand 1 of "ti,in->tn")",
     "The rows of the input are longer or shorter than the layer's weights allow.",
     "Pass rows with as many entries as the layer has inputs.",
     [] {
       const mxd<> layer = small_mxd();
       const tensor<float, 2> x({4, 9});
       evaluate(layer(x));
     }},
    {R"([rewritten] there are 4 mean coefficients and 5 experts)",
     "The number of mean coefficients is not the number of experts.",
     "Compute them from the `coefficients(x)` of this layer.",
     [] { rewritten(small_mxd(), 0, std::vector<double>(4), 1); }},
    {R"([add] axis 1 is 8 and 4: operands of 2 and 1 axes align at their last axes)",
     "The operands of + are aligned at their last axes, and these differ.",
     "Check the bias; an operand is repeated only along first axes that it does not have.",
     [] {
       const tensor<float, 2> x({4, 8});
       const tensor<float, 1> bias({4});
       evaluate(x + bias);
     }},
    {R"([multiply] axis 1 is 8 and 4: operands of 2 and 1 axes align at their last axes)",
     "As with +, the operands are aligned at their last axes.",
     "Use an einsum where other axes should meet: `einsum<\"ti,t->ti\">(x, scale)`.",
     [] {
       const tensor<float, 2> x({4, 8});
       const tensor<float, 1> scale({4});
       evaluate(x * scale);
     }},
    {R"([concat] axis 0 is 4 and 5: operands may differ along axis 1 only)",
     "Operands of concat must have the same extents along all axes but the one that joins them.",
     "Join along the other axis, or bring the operands to one length.",
     [] {
       const tensor<float, 2> a({4, 8}), b({5, 8});
       evaluate(concat<1>(a, b));
     }},
    {R"([concat] the joined axis is 3 long, and its parts are 6 long together)",
     "The bias fixes the length of the joined axis, which is shorter than one part of it.",
     "Check the bias that is added to the joined columns.",
     [] {
       const parameter<float, 2> w({4, 6});
       const parameter<float, 1> bias({3});
       compile([&](const auto& x) { return concat<1>(x, w) + bias; }, 4);
     }},
    {R"([sized] axis 1 is 8 and is said to be 9)",
     "The extent given to `sized` is not that of the expression.",
     "Pass `fmoe::all` for an extent that follows from the operands.",
     [] {
       const tensor<float, 2> x({4, 8});
       evaluate(sized(x, {all, 9}));
     }},
    {R"([bounded softmax] axis 0 is 4 and the bound's is 8)",
     "The bound of a softmax needs one entry for each row of the scores.",
     "Give the bound the shape of the scores without their last axis.",
     [] {
       const tensor<float, 2> scores({4, 8});
       const tensor<float, 1> bound({8});
       evaluate(bounded_softmax(scores, bound));
     }},
    {R"([product_top_k] the scores' last axes are two lists, not 3 of 8)",
     "Product keys need exactly two lists of scores, along the axis before the last.",
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
     "Change the shape, or borrow the right container.",
     [] {
       const std::vector<float> values(5);
       borrow(values, std::array<std::size_t, 2>{2, 3});
     }},
    {R"([tensor] the bytes of the shape [1099511627776, 1099511627776] do not fit 64 bits: a negative number is no extent)",
     "An extent is negative or far too large.",
     "Check the computation of the extents.",
     [] { tensor<float, 2>({std::size_t{1} << 40, std::size_t{1} << 40}); }},
    {R"([view] the shape has 64 elements and the parameter 48)",
     "The shape of a view has another number of elements than the parameter.",
     "Choose extents with the same product.",
     [] { viewed<3>(parameter<float, 2>({8, 6}), {8, 2, 4}); }},
    {R"([compile] nothing in the layer fixes the extent of axis 1 of an argument: say it with fmoe::sized)",
     "No weight shares this axis of the input, so compile cannot know its length.",
     "Say the length: `sized(x, {fmoe::all, 8})`.",
     [] { compile([](const auto& x) { return relu(x); }, 4); }},
    {R"([tensor] an array has 3 axes, not 2)",
     "The type of the array does not tell its rank, and the given rank is wrong.",
     "Say the rank that it has: `to_tensor<3>(x)`.",
     [] {
       std::vector<float> values(24);
       to_tensor<2>(foreign{values.data(), {2, 3, 4}, {12, 4, 1}});
     }},
    {R"([evaluate] the expression says that it has 1 axes and has 2)",
     "The `rank` of an expression of your own is not the rank of the node that it lowers to.",
     "Set `rank` to the number of axes of the node.",
     [] { evaluate(flat_relu{{}, tensor<float, 2>({4, 8})}); }},
    {R"([evaluate] the output has 1 axes and the expression 2)",
     "The output does not have as many axes as the expression.",
     "Pass an array of the expression's shape.",
     [] {
       tensor<float, 1> y({12});
       evaluate(small_mxd()(tensor<float, 2>({4, 8})), y);
     }},
    {R"([evaluate] axis 1 is 8 in the output and 3 in the expression)",
     "The output has another shape than the expression.",
     "Pass an array of the expression's shape.",
     [] {
       tensor<float, 2> y({4, 8});
       evaluate(small_mxd()(tensor<float, 2>({4, 8})), y);
     }},
    {R"([forward] axis 0 of the rows of input 0 is 9 and the layer's is 8)",
     "The rows of an input are longer or shorter than those that the layer is compiled for.",
     "Pass rows with as many entries as the layer has inputs.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({4, 9}), y({4, 3});
       forward(x, y);
     }},
    {R"([forward] axis 0 of the rows of the output is 8 and the layer's is 3)",
     "The output does not have as many columns as the layer's result.",
     "Make the output as wide as the layer's result.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({4, 8}), y({4, 8});
       forward(x, y);
     }},
    {R"([forward] 't' is 4 in input 0 and 3 in the output)",
     "The output does not have as many rows as the input.",
     "Make the output [token, output], with the input's tokens.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({4, 8}), y({3, 3});
       forward(x, y);
     }},
    {R"([forward] 't' is 5 and the layer is compiled for at most 4: say more to compile)",
     "A call has more tokens than the layer is compiled for; fewer are allowed.",
     "Compile the layer for the greatest number of tokens of a call, or make several calls.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({5, 8}), y({5, 3});
       forward(x, y);
     }},
    {R"([forward] input 0 has 0 axes and a row alone has 1)",
     "An input has fewer axes than one of its rows needs.",
     "Pass an array [token, ...], also for a single token.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 0> x(std::array<std::size_t, 0>{});
       tensor<float, 2> y({1, 3});
       forward(x, y);
     }},
    {R"([forward] the output has 3 axes and the layer's result, which has no tokens, has 2)",
     "The result is a sum over the tokens of the call, so its output has no leading axes.",
     "Pass an array of exactly the result's axes.",
     [] {
       const auto forward = compile(
           [](const auto& x) {
             const auto in = sized(x, {all, 4});
             return einsum<"ti,tj->ij">(in, in);
           },
           4);
       tensor<float, 2> x({4, 4});
       tensor<float, 3> sum({1, 4, 4});
       forward(x, sum);
     }},
    {R"([call] an array has more than 16 axes)",
     "Arrays of a call have at most 16 axes, including the leading axes of tokens.",
     "Fold the leading axes into one.",
     [] {
       const auto forward = compile(small_mxd(), 4);
       tensor<float, 2> x({1, 8}), y({1, 3});
       forward(foreign{x.data(), std::vector<std::size_t>(17, 1), std::vector<std::ptrdiff_t>(17, 1)}, y);
     }},
    {R"([monet_router] 12 keys do not divide into 5 heads)",
     "The keys of a Monet router are the columns of all heads side by side, so their number must be a multiple of `heads`.",
     "Set `heads` to a divisor of the number of keys.",
     [] {
       monet_router<> router;
       router.keys1 = router.keys2 = tensor<float, 2>({8, 12});
       router.heads = 5;
       router.g1(tensor<float, 2>({4, 8}));
     }},
    {R"([monet_router] there are 2 heads and statistics of 3)",
     "The running statistics of a router have another number of heads than `heads`.",
     "Leave `heads` at 0: the statistics tell the number of heads.",
     [] {
       monet_router<> router;
       router.keys1 = tensor<float, 2>({8, 12});
       router.mean1 = router.variance1 = tensor<float, 1>({3});
       router.heads = 2;
       router.g1(tensor<float, 2>({4, 8}));
     }},
    {R"([monet] 10 hidden units do not divide into 4 experts)",
     "The hidden units of a Monet layer are not the same number for each expert.",
     "The bias has a row for each half of the experts; check it against the encoder.",
     [] {
       monet_hd<> layer;
       layer.encoder = tensor<float, 2>({8, 10});
       layer.bias = tensor<float, 2>({4, 8});
       layer.hidden(tensor<float, 2>({3, 8}));
     }},
    {R"([monet] 10 hidden biases do not divide into 4 experts)",
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
     "PEER has as many experts as the square of the number of keys, in all or for each head.",
     "Check the number of keys and the number of rows of `down` and `up`.",
     [] {
       peer<> layer;
       layer.keys = tensor<float, 4>({2, 3, 2, 4});
       layer.down = layer.up = tensor<float, 2>({10, 8});
       layer(tensor<float, 2>({4, 8}));
     }},
    {R"([peer] 7 inputs cannot be halved)",
     "Without `queries`, the query of PEER is the two halves of the input, whose length is odd here.",
     "Set `queries`, or use an even number of inputs.",
     [] {
       peer<> layer;
       layer.keys = tensor<float, 4>({2, 3, 2, 4});
       layer.down = layer.up = tensor<float, 2>({9, 7});
       layer(tensor<float, 2>({4, 7}));
     }},
    {R"([expert_load] chosen is [4, 6] and scores [4, 6]; there are 5 experts)",
     "`expert_load` needs chosen experts and scores of the same shape.",
     "Pass both as [token, expert], with as many experts as the constructor was given.",
     [] { expert_load(5).add(tensor<float, 2>({4, 6}), tensor<float, 2>({4, 6})); }},
    {R"([token_batch] the batch is [4, 6] and there are 5 experts)",
     "A batch of coefficients needs one column for each expert that the statistics were made for.",
     "Make `expert_statistics` and `top_tokens` for as many experts as the layer has.",
     [] { expert_statistics(5).add(tensor<float, 2>({4, 6})); }},
    {R"([token_batch] a batch has the axes token and expert, and this one has 3)",
     "The statistics count tokens, and each row is a token.",
     "Fold the leading axes: `flattened(a)` of `<fmoe/arrays/viewed.hpp>`.",
     [] { expert_statistics(5).add(tensor<float, 3>({2, 4, 5})); }},
    {R"([expert_statistics] there are 4 tokens and 3 members)",
     "A subpopulation needs one bool for each token of the batch.",
     "Pass as many bools as this batch has rows, not as many as the whole stream has.",
     [] { expert_statistics(5).add(tensor<float, 2>({4, 5}), std::vector<bool>(3)); }},
    {R"([accuracy_loss] there are 3 classes before and 2 after)",
     "The accuracies before and after an ablation must be of the same classes.",
     "Measure every class both times.",
     [] { accuracy_loss(std::vector<double>{1, 1, 1}, std::vector<double>{1, 1}); }},
    {R"([routing] g1 is [4, 2, 6] and g2 [4, 2, 6]; both are [t, p, s], and s is 5)",
     "The statistics were made for another number of expert halves, or g1 and g2 do not come from the same router and batch.",
     "Evaluate `router.g1(x)` and `router.g2(x)`, [token, head, half], pass the results, and give their last extent to the constructor.",
     [] { expert_domains(5, 14).add(tensor<float, 3>({4, 2, 6}), tensor<float, 3>({4, 2, 6}), 0); }},
    {R"([expert_domains] there are domains of 3 tokens and g1 is of 4)",
     "The span of domains needs one number for each token of the batch.",
     "Pass one number for each token, or one number for all.",
     [] { expert_domains(6, 14).add(tensor<float, 3>({4, 2, 6}), tensor<float, 3>({4, 2, 6}), std::vector<std::size_t>(3)); }},
    {R"([expert_correlation] there are scores of 3 tokens and g1 is of 4)",
     "A batch needs one score for each token.",
     "If the scores belong to texts, give each token the score of its text.",
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
{R"([kept] takes a selection that keeps K entries of each row: top_k or product_top_k, and not fmoe::all)",
"Only a selection of a fixed number of entries has rows of that many values and indices.",
"Give it what `top_k` or `product_top_k` returns.",
[] {
const tensor<float, 2> x({4, 8});
evaluate(kept(relu(x)).first);
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
{R"([expert_choice] the scores' first axis does not count tokens)",
"Experts choose among the tokens of a call, and parameters have no tokens.",
"Compute the scores from an input: `einsum<\"ti,in->tn\">(x, router)`.",
[] {
const parameter<float, 2> scores({4, 5});
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
{R"([slice] there is no entry 5 in an axis of 5)",
"The number of an expert is not below the number of experts.",
"Experts are counted from 0.",
[] {
cp_experts<> experts;
experts.experts[0] = tensor<float, 2>({5, 2});
experts.expert(5);
}},
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
};
// clang-format on

// clang-format off: scripts/errors_page reads the table.
const failure file_errors[] = {
    {R"([io] "layer.safetensors": [mumoe] 'i' is 7 in the experts, and their input has 8 columns (shape))",
     "The experts of a μMoE layer must have as many input rows as the gate, or one more for their bias.",
     "Give the gate and the experts the same number of inputs.",
     [] {
       cp_mumoe<> layer;
       layer.gate.projections[0] = tensor<float, 2>({8, 5});
       layer.experts = {{tensor<float, 2>({5, 2})}, tensor<float, 2>({7, 2}), tensor<float, 2>({3, 2})};
       save(layer, "layer.safetensors");
     }},
{R"([io] "nothing.safetensors": cannot be opened: No such file or directory (io))", "There is no such file, or the program may not read it.", "Check the path; a relative path starts at the working directory.",
[] { load<mxd<>>("nothing.safetensors"); }},
{R"([io] "tests": is not a regular file (io))", "The path is a folder, which only a checkpoint can be.", "Open a model of several files with io::checkpoint::open.",
[] { load<mxd<>>("tests"); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is missing: [*, *] (ih) is expected (missing_tensor))", "The file lacks a tensor that the layer needs.",
"If the names in the file have a prefix, pass it as `.prefix`; or load the kind of layer that the file holds.",
[] { load<mxd<>>(io::safetensors::parse(io::safetensors::serialize({}), "mxd.safetensors")); }},
{R"([io] "mxd.safetensors": tensor "W_cond" is [3, 5] and [*, 4] (on, n = 4 in "gate") is expected (shape))", "The shape of a tensor contradicts the other tensors of the layer.",
"Load the layer that the file holds, in the orientation that its page lists with names and axes.",
[] { load<mxd<>>(small_file({{"gate", tensor<float, 2>({4, 8})}, {"W_cond", tensor<float, 2>({3, 5})}})); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is F64, which float32 would round: pass fmoe::io::narrow to allow it (dtype))", "The file stores double, and the layer float.", "Load a layer of double, or allow rounding: `{.narrow = io::narrow}`.",
[] { load<mxd<>>(small_file({{"W_enc", tensor<double, 2>({8, 16})}})); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is I32 and F64, F32, BF16 or F16 is expected (dtype))", "The file stores integers where weights belong.", "fmoe does not read quantised weights: convert them first.",
[] { load<mxd<>>(small_file({{"W_enc", io::array({8, 16}, std::span<const int>(std::vector<int>(128)))}})); }},
{R"([io] "mxd.safetensors": has K = 2 in its metadata, and 3 is asked for (conflict))", "The call and the file's metadata name different numbers of experts.", "Leave out .active, or correct the metadata.",
[] { load<mxd<>>(small_file({}, {{"K", "2"}}), {.active = 3}); }},
{R"([io] "mxd.safetensors": has K = "two" in its metadata, which is no number of experts and not -1 (schema))", "The metadata's K is not a number.", "Write a number of experts, or -1 for all.",
[] { load<mxd<>>(small_file({}, {{"K", "two"}})); }},
{R"([io] "mxd.safetensors": has the activation "mish" in its metadata, which is not known (schema))", "The metadata names an activation that fmoe does not know.", "Correct the metadata.",
[] { load<mxd<>>(small_file({}, {{"activation", "mish"}})); }},
{R"([io] "mxd.safetensors": has the kind "mxd_glu" in its metadata and the tensors of a mxd_mlp (conflict))", "The metadata names another kind of layer than the tensors are.", "Correct the metadata, or load another layer.",
[] { load<mxd<>>(small_file({}, {{"kind", "mxd_glu"}})); }},
{R"([io] "mxd.safetensors": holds tensors that make none of sae, skip_transcoder, transcoder (conflict))", "The tensors belong to another kind of layer.", "Load the layer that the file holds.",
[] { load<sparse_mlp<>>(small_file({})); }},
{R"([io] is loaded with a K into a layer that has none (conflict))", "The layer does not choose a number of experts.", "Leave out .active.",
[] { load<cp_experts<>>(io::safetensors::parse(io::safetensors::serialize({{"factors.0", tensor<float, 2>({5, 2})}, {"factors.1", tensor<float, 2>({8, 2})}, {"factors.2", tensor<float, 2>({3, 2})}})), {.active = 2}); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is required and the layer's holds nothing (missing_tensor))", "A layer is saved before all of its required parameters are set.", "Set or load the parameter.",
[] { save(mxd<>(), "mxd.safetensors"); }},
{R"([io] "block.safetensors": [mumoe] only one layer of the block has a bias (shape))", "Only one of the two layers of a μMoE block has a bias, but files can describe a bias only for both.", "Give both layers one more input row, or neither.",
[] {
cp_mumoe_block<> block;
block.gate.projections[0] = block.first.experts[0] = block.second.experts[0] = tensor<float, 2>({8, 8});
block.first.input = tensor<float, 2>({9, 8});
block.first.output = block.second.input = block.second.output = tensor<float, 2>({8, 8});
save(block, "block.safetensors");
}},
{R"([io] "mxd.safetensors": cannot name the activation exp (schema))", "The layer has an activation or a K for which the metadata has no name.", "Save the parameters with io::safetensors::write.",
[] {
mxd<> layer = small_mxd();
layer.activation = pointwise::exp;
save(layer, "mxd.safetensors");
}},
{R"([io] "tests/bad_inputs/st-ok-scalar.safetensors": tensor "model.gate" is in no shard (missing_tensor))", "A checkpoint has no tensor of this name.", "Check `names()`; the prefix of a layer ends with a dot.",
[] { io::checkpoint::open("tests/bad_inputs/st-ok-scalar.safetensors").at("model.gate"); }},
{R"([io] "mxd.safetensors": tensor "gate" is [5, 8] and [8, 5] is expected (shape))", "The program asks for the array in another shape than the file has.", "Ask for the shape of the file; `io::any` allows any extent.",
[] { small_file({}).get<float, 2>("gate", {8, 5}); }},
{R"([io] "tests/bad_inputs/st-trunc-all.safetensors": tensor "a" has data beyond the file's end (truncated at byte 62))", "The file is shorter than its header says: the download or the copy was cut off.", "Fetch the file again.",
[] { io::safetensors::read("tests/bad_inputs/st-trunc-all.safetensors"); }},
{R"([io] "tests/bad_inputs/st-only-len.safetensors": has a header of 60 bytes, more than the file or the limit of 100 MB (header_len))", "The first eight bytes are not a valid length: the file is not a safetensors file, or is cut off.",
"Fetch the file again; fmoe does not read pickles (.bin, .pt).",
[] { io::safetensors::read("tests/bad_inputs/st-only-len.safetensors"); }},
{R"([io] "tests/bad_inputs/st-json-comment.safetensors": has a header that is not JSON (json at byte 9))", "The header is damaged.", "Fetch the file again, or write it anew.",
[] { io::safetensors::read("tests/bad_inputs/st-json-comment.safetensors"); }},
{R"([io] "tests/bad_inputs/st-dup-name-diff.safetensors": tensor "a" has the name "a" twice in one object of its header (duplicate_key at byte 62))", "Two tensors of the file have the same name, so one of them would be lost.", "Write the file anew, with two names.",
[] { io::safetensors::read("tests/bad_inputs/st-dup-name-diff.safetensors"); }},
{R"([io] "tests/bad_inputs/st-extra-field.safetensors": tensor "a" has the unknown field "strides" (schema at byte 61))", "The header has a field that the format does not describe.", "Write the file anew.",
[] { io::safetensors::read("tests/bad_inputs/st-extra-field.safetensors"); }},
{R"([io] "tests/bad_inputs/st-dtype-F128.safetensors": tensor "a" has the unknown dtype "F128" (dtype at byte 22))", "A tensor has an element type that fmoe does not know.", "Convert it to F64, F32, BF16 or F16.",
[] { io::safetensors::read("tests/bad_inputs/st-dtype-F128.safetensors"); }},
{R"([io] "tests/bad_inputs/st-dim-2p64.safetensors": tensor "a" has the number "18446744073709551616", above 2^48-1 (overflow at byte 37))", "An extent is larger than any tensor can be.", "The file is damaged: fetch it again.",
[] { io::safetensors::read("tests/bad_inputs/st-dim-2p64.safetensors"); }},
{R"([io] "tests/bad_inputs/st-size-small.safetensors": tensor "a" takes 32 bits by its shape and has 8 bytes (size_mismatch at byte 9))", "The shape needs another number of bytes than the tensor has.", "The file is damaged: fetch it again.",
[] { io::safetensors::read("tests/bad_inputs/st-size-small.safetensors"); }},
{R"([io] "tests/bad_inputs/st-overlap-same.safetensors": tensor "b" begins at byte 0 of the data, where byte 8 is next (layout at byte 62))", "Two tensors overlap, or there is a gap between them.", "The file is damaged: fetch it again.",
[] { io::safetensors::read("tests/bad_inputs/st-overlap-same.safetensors"); }},
{R"([io] tensor "a" has more than 32 axes (limit at byte 101))", "A tensor has more axes than readers accept.", "The file is damaged: fetch it again.",
[] { io::safetensors::serialize({{"a", io::array(io::element_type::f32, std::vector<std::size_t>(33, 1), std::vector<std::byte>(4))}}); }},
{R"([io] has a header that is not UTF-8 (utf8 at byte 9))", "The header is not text.", "The file is damaged: fetch it again.",
[] { io::safetensors::parse(bytes_of({"\x02\0\0\0\0\0\0\0{\xff", 10})); }},
{R"([io] "tests/bad_inputs/npy-is-pickle.npy": is not a .npy file (magic))", "The file is not a .npy file of numpy: it may be a pickle, which fmoe never opens.", "Save with `numpy.save(..., allow_pickle=False)`.",
[] { io::npy::read("tests/bad_inputs/npy-is-pickle.npy"); }},
{R"([io] "tests/bad_inputs/npy-ver-1.1.npy": has the unknown version 1.1 (version at byte 6))", "The file names a version of the format that does not exist.", "Save it again with numpy.save.",
[] { io::npy::read("tests/bad_inputs/npy-ver-1.1.npy"); }},
{R"([io] "tests/bad_inputs/npy-fo-string.npy": has a header without True or False in this place (header at byte 44))", "The header of the .npy file is damaged.", "Save it again with numpy.save.",
[] { io::npy::read("tests/bad_inputs/npy-fo-string.npy"); }},
{R"([io] "tests/bad_inputs/npy-object.npy": has the unsupported dtype "|O" (dtype at byte 20))", "The array holds Python objects.", "Save numbers: `array.astype(\"float32\")`.",
[] { io::npy::read("tests/bad_inputs/npy-object.npy"); }},
{R"([io] holds 300, which does not fit U8 (overflow))", "A value of the array does not fit the integer type that the program asks for.", "Ask for a wider type: `integers<std::int64_t>()`.",
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

// The loop ends with the last code of io::errc.
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

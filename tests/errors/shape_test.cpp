// SPDX-License-Identifier: MIT
#include <fmoe/analysis.hpp>
#include <fmoe/analysis/expert_page.hpp>
#include <fmoe/cuda.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/expr/selection.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/losses.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/optimizers.hpp>
#include <fmoe/peer.hpp>

#include "../support/failures.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// clang-format off: scripts/errors_page reads the table.
const failure shape_errors[] = {
    {R"([einsum] 'i' is 8 in operand 0 and 3 in operand 1 of "ti,io->to")",
     "The same letter names two axes of different lengths.",
     "Name the axes in the order in which they are stored, or pass the right tensor.",
     [] {
       const tensor<float, 2> x({4, 8}), w({3, 8});
       evaluate(einsum<"ti,io->to">(x, w));
     }},
    {R"([einsum] 't' is 4 in operand 0 and 1 in operand 1 of "ti,ti->ti": an axis of extent 1 is not repeated; give it a letter of its own, which the result leaves out)",
     "numpy and PyTorch would use the one entry along the axis of extent 1 for all of the other axis.",
     "Give the axis of extent 1 a letter that nothing else has, as in `einsum<\"ti,zi->ti\">(x, row)`, or pass a tensor without that axis.",
     [] {
       const tensor<float, 2> x({4, 8}), row({1, 8});
       evaluate(einsum<"ti,ti->ti">(x, row));
     }},
    {R"([evaluate] a weight of the expression was assigned a tensor of another shape, or none, and another weight was written: make the expression again)",
     "An expression keeps a weight to which one of another shape is assigned as it was, and the value would mix it with what was written since.",
     "Make the expression after the assignments.",
     [] {
       mxd<> layer = small_mxd();
       const auto y = layer(tensor<float, 2>({4, 8}));
       layer.decoder = tensor<float, 2>({16, 2});
       layer.scales(0, 0) = 1;
       evaluate(y);
     }},
    {R"([refresh] a weight was assigned a tensor of another shape, or none: compile the layer again)",
     "A compiled layer has the shapes that it was compiled with.",
     "Compile the layer after the assignment.",
     [] {
       mxd<> layer = small_mxd();
       auto forward = compile(layer, 4);
       layer = mxd<>();
       forward.refresh();
     }},
    {R"([gradient] y has 2 axes: pass dy, the weight of each of its numbers)",
     "Only one number has a gradient without dy.",
     "Pass dy, of the shape of y, or sum y up.",
     [] {
       const dynamic::expression x(tensor<float, 2>({4, 8}));
       dynamic::gradient(x, x);
     }},
    {R"([mse] an operand has 1 axes, and 2 or more are expected)",
     "The first axis of what a loss takes counts tokens.",
     "Pass rows, [token, output].",
     [] {
       const dynamic::expression y(tensor<float, 1>({8}));
       dynamic::losses::mse(y, y);
     }},
    {R"([gradient] dy has not the shape of y)",
     "dy weights each number of y, and has another shape.",
     "Make dy of the shape of y.",
     [] {
       const tensor<float, 2> x({4, 8}), dy({4, 9});
       evaluate(gradient(relu(x), x, dy));
     }},
    {R"([optimizer] the gradient of b_dec_out has another shape than the parameter)",
     "The gradients are of a layer of another size.",
     "Take the gradients from the step that was compiled for this layer.",
     [] {
mxd<> layer, gradients;
layer.bias = tensor<float, 1>({3});
gradients.bias = tensor<float, 1>({4});
sgd()(layer, gradients);
     }},
    {R"([remove_parallel] the gradient and the weights have two shapes)",
     "The rows of the gradient are those of other weights.",
     "Pass the gradient of these weights.",
     [] {
tensor<float, 2> gradient({3, 4});
remove_parallel(gradient, tensor<float, 2>({4, 4}));
     }},
    {R"([gradients] x has 3 axes and must have 2)",
     "A step of gradients takes rows of tokens, [token, input].",
     "Give all tokens one axis: `flattened(x)`.",
     [] {
       auto step = compile_gradients(small_mxd(), 4);
       tensor<float, 3> x({2, 2, 8});
       tensor<float, 2> dy({4, 3}), y({4, 3}), dx({4, 8});
       step(x, dy, y, dx);
     }},
    {R"([gradients] axis 0 of the rows of dy is 8 and the layer's is 3)",
     "dy has the shape of the layer's output.",
     "Pass the gradient of the loss with respect to y.",
     [] {
       auto step = compile_gradients(small_mxd(), 4);
       tensor<float, 2> x({4, 8}), y({4, 3}), dx({4, 8});
       step(x, x, y, dx);
     }},
    {R"([gradients] 't' is 4 in x and 3 in y)",
     "All arrays of a call have one row for each token.",
     "Make the arrays for as many tokens as x has.",
     [] {
       auto step = compile_gradients(small_mxd(), 4);
       tensor<float, 2> x({4, 8}), dy({4, 3}), y({3, 3}), dx({4, 8});
       step(x, dy, y, dx);
     }},
    {R"([gradients] 't' is 5 and the layer is compiled for at most 4: say more to compile)",
     "A step has memory for the tokens that it was compiled for.",
     "Compile it for more, or call it several times and accumulate.",
     [] {
       auto step = compile_gradients(small_mxd(), 4);
       tensor<float, 2> x({5, 8}), dy({5, 3}), y({5, 3}), dx({5, 8});
       step(x, dy, y, dx);
     }},
    {R"([einsum] 'i' is 9 in operand 0 and 8 in operand 1 of "ti,in->tn": the input has rows of 9 and the weight takes 8)",
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
    {R"([monet] compile does not know the heads of g1 and g2: set the layer's heads to those of its router)",
    "A Monet layer gets its routing as arguments of the call, and no weight tells how many heads they have.",
    "`layer.heads = router.heads`, or for a router with statistics the number of their rows.",
    [] {
    monet_hd<> layer;
    layer.encoder = tensor<float, 2>({8, 12});
    layer.decoder = tensor<float, 2>({12, 8});
    layer.bias = tensor<float, 2>({4, 8});
    compile(layer, arguments<2, 3, 3>{}, 16);
    }},
    {R"([monet] g1 has 2 heads and the layer's heads are 3)",
    "The layer is told another number of heads than its routing has.",
    "Set `layer.heads` to the heads of the router, or leave it out if the layer is not compiled.",
    [] {
    monet_hd<> layer;
    layer.encoder = tensor<float, 2>({8, 12});
    layer.decoder = tensor<float, 2>({12, 8});
    layer.bias = tensor<float, 2>({4, 8});
    layer.heads = 3;
    const tensor<float, 2> x({5, 8});
    const tensor<float, 3> g({5, 2, 4});
    evaluate(layer(x, g, g));
    }},
    {R"([monet] g2 has 6 halves of experts and the layer 4)",
    "The routing has another number of expert halves than the layer's bias has rows.",
    "Route with the router that belongs to the layer.",
    [] {
    monet_hd<> layer;
    layer.encoder = tensor<float, 2>({8, 12});
    layer.decoder = tensor<float, 2>({12, 8});
    layer.bias = tensor<float, 2>({4, 8});
    const tensor<float, 2> x({5, 8});
    evaluate(layer(x, tensor<float, 3>({5, 2, 4}), tensor<float, 3>({5, 2, 6})));
    }},
    {R"([page] token 0 has no place in the text of 0 tokens)",
    "The statistics have seen more tokens than the text has places for.",
    "Add a place to `page_text::tokens` for each token, in the order of the stream.",
    [] {
      expert_statistics seen(2);
      top_tokens strongest(2, 1);
      const tensor<float, 2> a({1, 2}, {1, 0});
      seen.add(a);
      strongest.add(a, 0);
      page_experts(seen, seen, strongest, page_text(), {.most_frequency = 2});
    }},
    {R"([page] token 0 is word 3 of passage 0, which the text does not have)",
    "The place of a token names a word or a passage that does not exist.",
    "Number passages and words from 0.",
    [] {
      expert_statistics seen(2);
      top_tokens strongest(2, 1);
      const tensor<float, 2> a({1, 2}, {1, 0});
      seen.add(a);
      strongest.add(a, 0);
      const page_text text{{{"title", "licence", {"one", "word"}}}, {{0, 3}}};
      page_experts(seen, seen, strongest, text, {.most_frequency = 2});
    }},
    {R"([tensor] the extent -1 of axis 1 is negative)",
    "A difference of sizes went wrong, or the size of another library is not known yet.",
    "Compute the extent before.",
    [] {
      const long rows = 4, columns = -1;
      tensor<float, 2>({rows, columns});
    }},
    {R"([compile] nothing in the layer fixes the extent of axis 1 of argument 0: say it with fmoe::sized)",
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
    {R"([evaluate] the output has 1 axes and must have 2)",
     "The output does not have as many axes as the expression.",
     "Pass an array of the expression's shape.",
     [] {
       tensor<float, 1> y({12});
       evaluate(small_mxd()(tensor<float, 2>({4, 8})), y);
     }},
    {R"([evaluate] axis 1 of the output is 8 and the expression's is 3)",
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
    {R"([forward] the output has 3 axes and must have 2)",
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
    {R"([call] an array has 1 strides and 2 axes)",
     "`__cuda_array_interface__` has a stride for each axis, or none.",
     "Pass as many strides as axes, or an empty list for an array whose rows follow each other.",
     [] {
       const cuda::tensor<float, 2> x({2, 8}, cuda::emulated());
       compile(small_mxd(), 2)(cuda_array{x.data(), {2, 8}, "<f4", {32}});
     }},
    {R"([cuda] axis 0 is 3 in the copied array and 2 in the tensor)",
     "A tensor on a GPU keeps the shape that it was made with.",
     "Make a new one: `cuda::tensor<float, 2> x(a, gpu)`.",
     [] { cuda::tensor<float, 2>({2, 8}, cuda::emulated()).copy_from(tensor<float, 2>({3, 8})); }},
};
// clang-format on

TEST_CASE("shapes that do not fit are refused by these sentences", "[errors]") {
  check<shape_error>(shape_errors);
}

}  // namespace

// SPDX-License-Identifier: MIT
#include <functional>
#include <stdexcept>
#include <vector>

#include <fmoe/dynamic.hpp>
#include <fmoe/losses.hpp>
#include <fmoe/optimizers.hpp>

#include "../support/failures.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

dynamic::expression zeros(std::vector<std::size_t> shape) {
  const std::size_t bytes = sizeof(float) * detail::element_count(shape);
  return dynamic::constant({dtype::float32, std::move(shape), std::make_shared<storage>(bytes)});
}

// Calls a step of a small layer with other arrays than it takes.
void step_with(const std::function<void(std::vector<dynamic::array>&)>& change) {
  auto step = dynamic::compile_gradients(dynamic::layer{small_mxd()}, 4);
  std::vector<std::vector<float>> held;
  std::vector<dynamic::array> arrays;
  const auto add = [&](std::vector<std::size_t> shape) {
    held.emplace_back(detail::element_count(shape));
    arrays.push_back({held.back().data(), dtype::float32, std::move(shape)});
  };
  for (const std::size_t width : {step.inputs(), step.outputs(), step.outputs(), step.inputs()})
    add({4, width});
  for (const auto& p : step.parameters()) add(p.value.shape);
  change(arrays);
  step(arrays);
}

// clang-format off: scripts/errors_page reads the table.
const failure dynamic_errors[] = {
{R"([gradients] these were moved: use those that they were moved to)",
"Compiled gradients are used after `std::move` took what they had.",
"Call those that they were moved to.",
[] {
auto step = dynamic::compile_gradients(dynamic::layer{small_mxd()}, 4);
const auto moved = std::move(step);
step.refresh();
}},
{R"([einsum] "...i,io->...o": write a letter for each axis instead of "...")", "The subscripts have three dots, with which numpy and PyTorch leave axes without a letter.", "Write a letter for each axis of each operand, and those of the result behind the arrow.",
[] { dynamic::einsum("...i,io->...o", {zeros({4, 8}), zeros({8, 3})}); }},
{R"([einsum] "ti,io>to": subscripts are letters, a comma between operands and at most one arrow, as in "ti,io->to")", "The subscripts have another character, a part of an arrow, a second arrow, or a comma behind the arrow.", "Write the labels of each operand, an arrow, and those of the result.",
[] { dynamic::einsum("ti,io>to", {zeros({4, 8}), zeros({8, 3})}); }},
{R"([einsum] "ti,io->tz": each label of the result comes once, and from an operand)", "The result has a label twice, or one that no operand has.", "Use each label of the result once.",
[] { dynamic::einsum("ti,io->tz", {zeros({4, 8}), zeros({8, 3})}); }},
{R"([einsum] "ti,io->to" names 2 operands and there are 1)", "The subscripts have another number of operands than the list.", "Pass an operand for each part of the subscripts.",
[] { dynamic::einsum("ti,io->to", {zeros({4, 8})}); }},
{R"([einsum] operand 1 of "ti,io->to" has 3 axes, and 'io' are 2)", "An operand has another number of axes than labels.", "Write one label for each axis.",
[] { dynamic::einsum("ti,io->to", {zeros({4, 8}), zeros({2, 8, 3})}); }},
{R"([apply] there is no "rule" among relu, gelu, gelu_tanh, silu, sigmoid, squared_relu, exp, sqrt, inverse_sqrt, negate, scale, shift, threshold, tanh, log, abs, at_least, at_most, quotient, inverse, power)", "A function, a norm or a weighting was asked for by a name that fmoe does not know.", "Take one of the names.",
[] { dynamic::pointwise_named("rule"); }},
{R"([where] the condition has no more axes than the two values)", "The condition is repeated along the leading axes of the values, and not the reverse.", "Give the values as many axes as the condition.",
[] { dynamic::where(zeros({4, 8}), zeros({8}), zeros({8})); }},
{R"([softmax] the operand has a last axis)", "A function of rows was called with a single number.", "Call it with rows.",
[] { dynamic::map_rows(row_function::softmax, zeros({})); }},
{R"([bounded softmax] is a function of its own: it takes more than a number)", "`map_rows` takes functions of a row and of at most a number.", "Call `bounded_softmax(scores, bound)`, or `best_groups(scores, groups, active)`.",
[] { dynamic::map_rows(row_function::bounded_softmax, zeros({4, 8})); }},
{R"([bounded softmax] the bound has one number for each row)", "The bound has as many axes as the scores.", "Leave out the last axis of the bound.",
[] { dynamic::bounded_softmax(zeros({4, 8}), zeros({4, 8})); }},
{R"([expert_choice] scores and ranking are [token, expert])", "Experts choose among the rows of a matrix.", "Pass scores of two axes.",
[] { dynamic::expert_choice(zeros({4, 2, 8}), zeros({4, 8}), weighting::softmax); }},
{R"([top_k] scores and what ranks them have the same axes)", "Each score has one number that ranks it.", "Pass two expressions of one shape.",
[] { dynamic::top_k(zeros({4, 8}), zeros({8}), 2); }},
{R"([jump_relu] the thresholds have the last axes of the scores)", "There is a threshold for each column, or for each number, and the thresholds have more axes than the scores, or none.", "Pass a number for each column.",
[] { dynamic::jump_relu(zeros({8}), zeros({4, 8})); }},
{R"([product_top_k] the scores are [token, ..., 2, s])", "The last two axes are two lists of s scores each.", "Pass the scores of both halves of the keys, beside each other.",
[] { dynamic::product_top_k(zeros({4, 8}), 2, 2); }},
{R"([repeat] a result has at most 8 axes)", "The operand has 8 axes already, and `repeat` adds one.", "Repeat an expression of fewer axes.",
[] { dynamic::repeat(zeros({1, 1, 1, 1, 1, 1, 1, 1}), 2); }},
{R"([load_mixture] there are no weights of float64)", "The weights of mixtures are of 32, 16 or 8 bits.", "Load float32.",
[] { dynamic::load_mixture("tests/mixtures/olmoe", 1, dtype::float64); }},
{R"([concat] there is no operand)", "The list of operands is empty.", "Pass at least one.",
[] { dynamic::concat({}, 0); }},
{R"([concat] all operands have the same number of axes, above 2)", "The operands have different numbers of axes, or the axis, which counts from 0, is not below that number.", "Use an axis that all operands have.",
[] { dynamic::concat({zeros({4, 8}), zeros({4, 8})}, 2); }},
{R"([sized] the expression has 2 axes and is said to have 1)", "`sized` takes an extent for each axis.", "Write `fmoe::all` for an extent that is not known.",
[] { dynamic::sized(zeros({4, 8}), {4}); }},
{R"([constant] a tensor of rank 2 holds nothing: set or load it)", "The tensor has a shape and no elements.", "Set its elements, or load it.",
[] { dynamic::constant({dtype::float32, {4, 8}, nullptr}); }},
{R"([input] an input has a leading token axis)", "An input of a compiled expression has a row for each token.", "Use rank 1 or more, or a constant.",
[] { dynamic::input(0, 0); }},
{R"([typed] the expression has 3 axes, not 2)", "A layer takes rows, [token, input].", "Pass an expression of two axes.",
[] { dynamic::layer{small_mxd()}(zeros({4, 2, 8})); }},
{R"([coefficients] there is no level 1 among 1)", "Levels of experts are counted from 0, and the layer has fewer.", "See `levels()`.",
[] { dynamic::layer{small_mxd()}.coefficients(zeros({4, 8}), 1); }},
{R"([routing] this kind of layer has none)", "Only a Monet layer has a router of two halves of experts.", "Ask for `coefficients`.",
[] { dynamic::layer{small_mxd()}.routing(zeros({4, 8})); }},
{R"([routing] the layer has no router, since the first layer of its group routes for it: ask the first layer, with the x of that layer)", "A group of Monet's layers shares the router of its first layer.", "Load the first layer, too, and ask it: `first.routing(x0)`.",
[] { dynamic::load<monet_hd<>>("tests/io/monet/model.safetensors", {.prefix = "model.layers.3."}).routing(zeros({4, 2})); }},
{R"([monet] the layer has no router, since the first layer of its group routes for it: pass the routing, g1 and g2, that the first layer makes of its own x)", "A group of Monet's layers shares the router of its first layer, which sees the hidden state of that layer alone.", "`layer(x, first.routing(x0))`, in Python `layer(x, routing=first.routing(x0))`, in C `fmoe_layer_routed_output`.",
[] { dynamic::load<monet_hd<>>("tests/io/monet/model.safetensors", {.prefix = "model.layers.3."})(zeros({4, 2})); }},
{R"([update_statistics] the layer has no router, whose statistics these are: ask the first layer of its group)", "The running statistics of a Monet layer are those of its router.", "Call it for the first layer of the group alone.",
[] { dynamic::load<monet_hd<>>("tests/io/monet/model.safetensors", {.prefix = "model.layers.3."}).update_statistics(tensor<float, 2>({4, 2})); }},
{R"([with_active] K is the router's: ask the first layer of its group)", "A Monet layer whose router is another layer's selects no experts itself.", "Call it for the first layer of the group alone.",
[] { dynamic::load<monet_hd<>>("tests/io/monet/model.safetensors", {.prefix = "model.layers.3."}).with_active(2); }},
{R"([gradients] the layer has no router, and x alone does not tell its routing: pass the result that it makes of x and of input(1, 3) and input(2, 3))", "Without results `compile_gradients` takes layers of x alone.", "`dynamic::compile_gradients(layer, {layer(x, {input(1, 3), input(2, 3)})}, {}, tokens)`.",
[] { dynamic::compile_gradients(dynamic::load<monet_hd<>>("tests/io/monet/model.safetensors", {.prefix = "model.layers.3."}), 4); }},
{R"([ablated] experts of Monet alone are pairs: pass the numbers of one level)", "Another layer than one of Monet has no pairs of experts.", "Call `ablated` with numbers, and with the level if there are several.",
[] { dynamic::layer{small_mxd()}.ablated_pairs({{1, 2}}); }},
{R"([coefficients] this kind of layer has none)", "Not every layer has coefficients of experts: those of a Monet layer are two lists for each head.", "Ask a layer whose `levels()` is not 0.",
[] { dynamic::layer{monet_router<>{}}.coefficients(zeros({4, 8})); }},
{R"([edit] there is no level 1 among 1)", "Levels of experts are counted from 0, and the layer has fewer.", "See `levels()`.",
[] { dynamic::layer{small_mxd()}.ablated({0}, 1); }},
{R"([arrays] a file holds weights and no edit: save the original layer)", "A layer with an edit has no file.", "Save the layer that was edited, and edit it again when it is loaded.",
[] { dynamic::layer{small_mxd()}.ablated({0}).save("edited.safetensors"); }},
{R"([mixed] the layer has 1 levels of experts, and not 2)", "`mixed` takes the coefficients of each level.", "Pass `levels()` of them.",
[] { dynamic::layer{small_mxd()}.mixed(zeros({4, 8}), {zeros({4, 5}), zeros({4, 5})}); }},
{R"([expert] the layer has 1 numbers of an expert, one for each level, and not 2)", "An expert of a hierarchy has a number for each level.", "Pass `levels()` numbers.",
[] { dynamic::layer{small_mxd()}.expert({0, 1}); }},
{R"([quantize] the layer is an edit or has weights of 8 bits: quantize the original layer)", "The weights of an edit are those of the layer that was edited, and 8 bits are rounded from the original numbers.", "Quantize the original layer, and edit the result.",
[] { dynamic::layer{small_mxd()}.ablated({0}).quantize(); }},
{R"([quantize] the type is bfloat16, and q8 or q8c is expected)", "`quantize` makes weights of 8 bits.", "Pass `q8` or `q8c`, or load the layer as bfloat16.",
[] { dynamic::layer{small_mxd()}.quantize(dtype::bfloat16); }},
{R"([parameters] an edit has no parameters of its own: ask the original layer)", "The parameters of a layer with an edit are those of the layer that was edited.", "Ask that layer.",
[] { dynamic::layer{small_mxd()}.ablated({0}).parameters(); }},
{R"([with] the layer has no parameter W_other)", "A parameter was given by a name that files of the layer do not have.", "Take a name of `parameters()`.",
[] { dynamic::layer{small_mxd()}.with({{"W_other", {dtype::float32, {8, 6}, std::make_shared<storage>(192)}}}); }},
{R"([with] W_enc has another shape than the layer's)", "The elements of a parameter are replaced, and not its shape.", "Pass a tensor of the shape that `parameters()` has; that of files may have its axes in another order.",
[] { dynamic::layer{small_mxd()}.with({{"W_enc", {dtype::float32, {1, 8}, std::make_shared<storage>(32)}}}); }},
{R"([with] W_enc is float64, and the layer's is float32)", "A layer reads elements where they lie, so they have its type.", "Convert the tensor first.",
[] { dynamic::layer{small_mxd()}.with({{"W_enc", {dtype::float64, {1, 8}, std::make_shared<storage>(64)}}}); }},
{R"([result] the layer has y, coefficients, weights, indices, scores, hidden, contribution_norms, and no gates)", "A result is asked by the name of a member of the layer's class.", "Take one of those that the sentence lists.",
[] { dynamic::layer{small_mxd()}.result("gates", dynamic::input(0)); }},
{R"([with_active] K is 0 and must be at least 1)", "A selection of nothing makes an output of zeros.", "Pass the number of experts, or of hidden units, that count.",
[] { dynamic::layer{small_mxd()}.with_active(0); }},
{R"([with_active] this kind of layer has none)", "The layer selects nothing, as a muMoE, which weighs all of its experts, or is an edit.", "Call it of the layer that is edited, and edit the result.",
[] { dynamic::layer{cp_mumoe<1>()}.with_active(2); }},
{R"([update_statistics] this kind of layer has none)", "Only a muMoE with batch norms and a Monet layer with a router have running statistics.", "Leave the call out.",
[] { dynamic::layer{small_mxd()}.update_statistics(tensor<float, 2>({4, 8})); }},
{R"([gradients] takes x, dy, y, dx and 4 gradients, and not 1 arrays)", "A call lists x, dy, y, dx and a gradient for each of `parameters()`.", "Pass all of them.",
[] { dynamic::compile_gradients(dynamic::layer{small_mxd()}, 4)(std::vector<dynamic::array>(1)); }},
{R"([gradients] takes x, 2 dy, 2 y, dx and 4 gradients, and not 1 arrays)", "A call lists x, a dy for each result, the results, dx and a gradient for each of `parameters()`.", "Pass all of them.",
[] {
  const dynamic::layer l{small_mxd()};
  const auto x = dynamic::input(0);
  dynamic::compile_gradients(l, {l(x), l.coefficients(x)}, {}, 4)(std::vector<dynamic::array>(1)); }},
{R"([gradients] there is no result)", "Gradients are those of what the layer makes.", "List the layer's output, or leave the list out.",
[] { dynamic::compile_gradients(dynamic::layer{small_mxd()}, std::vector<dynamic::expression>(), {}, 4); }},
{R"([gradients] the results are 1 and the slopes 2: pass one loss, or a slope for each result)", "A loss is one expression of at most one axis, [token]; a slope has the axes of its result.", "Add losses up to one, or pass as many slopes as results.",
[] {
  const dynamic::layer l{small_mxd()};
  const auto y = l(dynamic::input(0));
  dynamic::compile_gradients(l, {y}, {y, y}, 4); }},
{R"([gradients] inputs are counted from 0, and there is no input 1 beside input 2)", "`input(0)` is x; a loss names the target and what else it needs from `input(1)` on.", "Count them without a gap.",
[] {
  const dynamic::layer l{small_mxd()};
  const auto y = l(dynamic::input(0));
  dynamic::compile_gradients(l, {y}, {dynamic::losses::mse(y, dynamic::input(2))}, 4); }},
{R"([gradients] takes x, 2 inputs more, y, dx and 4 gradients, and not 1 arrays)", "A call lists x, the inputs of the loss, the results, dx and a gradient for each of `parameters()`.", "Pass all of them.",
[] {
  const dynamic::layer l{small_mxd()};
  const auto y = l(dynamic::input(0)), target = dynamic::add(dynamic::input(1), dynamic::input(2));
  dynamic::compile_gradients(l, {y}, {dynamic::losses::mse(y, target)}, 4)(std::vector<dynamic::array>(1)); }},
{R"([gradients] dy is of float64 and the layer computes in float32: convert it first)", "x and dy have at most 32 bits, and what is written is `float32`.", "Convert the array, or pass one of `float32` to write to.",
[] { step_with([](auto& a) { a[1].type = dtype::float64; }); }},
{R"([gradients] the gradient of gate has 3 axes and must have 2)", "A gradient has the shape of `value` in `parameters()`; that of files may have its axes in another order.", "Take that shape.",
[] { step_with([](auto& a) { a[5].shape.push_back(1); }); }},
{R"([gradients] the elements of the gradient of gate do not follow each other in memory)", "Gradients are written row by row, without gaps.", "Pass an array without strides, and copy it.",
[] { step_with([](auto& a) { a[5].strides = {1, a[5].shape[0]}; }); }},
{R"([gradients] the gradient of W_dec overlaps the gradient of W_cond)", "Two results would be written to one place.", "Pass an array for each.",
[] { step_with([](auto& a) { a[6].data = a[7].data; }); }},
{R"([optimizer] the layer trains no parameter W_other)", "A gradient has the name of no trained parameter: those of running statistics have none.", "Take the names of `parameters()` of the step that was compiled for this layer.",
[] {
  const dynamic::layer layer{small_mxd()};
  const std::vector<std::pair<std::string, dynamic::tensor>> gradients{{"W_other", {dtype::float32, {1, 8}, std::make_shared<storage>(32)}}};
  sgd()(layer, gradients);
}},
{R"([compile] there is no result)", "The list of expressions is empty.", "Pass at least one.",
[] { dynamic::compile({}, 4); }},
{R"([compile] an input has 4 rows, and calls have up to 9)", "An input meets an array with another number of rows than the calls shall have.", "Compile for that number of tokens, or make the array an input, too.",
[] { dynamic::compile({dynamic::multiply(dynamic::input(0), zeros({4, 8}))}, 9); }},
{R"([forward] takes 1 inputs and 1 outputs, and not 1 arrays)", "A call lists the inputs and then the outputs.", "Pass an array for each.",
[] {
  const auto forward = dynamic::compile({dynamic::einsum("ti,io->to", {dynamic::input(0), zeros({8, 3})})}, 4);
  forward(std::vector<dynamic::array>(1));
}},
{R"([evaluate] an expression has inputs: compile it and call it)", "`evaluate` computes expressions whose arrays are all there.", "Call `compile`, and the executable with the inputs.",
[] { dynamic::evaluate({dynamic::input(0)}); }},
};
// clang-format on

TEST_CASE("dynamic expressions that cannot be are refused by these sentences", "[errors]") {
  check<std::logic_error>(dynamic_errors);
}

}  // namespace

// SPDX-License-Identifier: MIT
#include <cstdint>

#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/gguf.hpp>
#include <fmoe/io/npy.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/io/scaled_arrays.hpp>
#include <fmoe/load_model.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/optimizers.hpp>
#include <fmoe/peer.hpp>

#include "../support/failures.hpp"
#include "../support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// The file `mumoe.safetensors` of a layer of one level, with this metadata.
io::safetensors small_mumoe_file(const io::strings_by_name& metadata) {
  const io::arrays_by_name arrays{{"projs.0", tensor<float, 2>({8, 5})},
                                  {"MuMoE.factors.0", tensor<float, 2>({5, 2})},
                                  {"MuMoE.factors.1", tensor<float, 2>({8, 2})},
                                  {"MuMoE.factors.2", tensor<float, 2>({3, 2})}};
  return io::safetensors::parse(io::safetensors::serialize(arrays, metadata), "mumoe.safetensors");
}

template <class T>
io::array zeros_of(const std::vector<std::size_t>& shape) {
  const std::vector<T> zeros(detail::element_count(shape));
  if constexpr (std::is_same_v<T, float>)
    return {io::element_type::f32, shape, std::as_bytes(std::span(zeros))};
  else return {shape, std::span<const T>(zeros)};
}
io::array shape_of_weight() { return {{2}, std::span<const int>(std::vector{24, 64})}; }

// Reads the weight w [24, 64] of four bits as compressed-tensors has it, with these arrays in place
// of its own.
void compressed_with(io::arrays_by_name arrays) {
  arrays.insert(
      {{"w_packed", zeros_of<std::int32_t>({24, 8})}, {"w_scale", zeros_of<float>({24, 2})}});
  const auto file = io::safetensors::parse(io::safetensors::serialize(arrays));
  io::weight_of("w", [&](const std::string& name) {
    return file.contains(name) ? std::optional(file.at(name)) : std::nullopt;
  });
}

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
{R"([io] "a.safetensors\x00.txt": has a NUL in its path (io))", "The system would cut the path at the NUL, and use another file.", "Cut the path at the NUL, or refuse it where it comes from.",
[] { load<mxd<>>(std::string("a.safetensors\0.txt", 18)); }},
{R"([io] "tests": is not a regular file (io))", "The path is a folder, which only a checkpoint can be.", "Open a model of several files with io::checkpoint::open.",
[] { load<mxd<>>("tests"); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is missing: [*, *] (ih) is expected; the file has "keys", "values" (missing_tensor))", "The file lacks a tensor that the layer needs, and has others.",
"Load the kind of layer that the file holds; `fmoe_inspect` lists its layers.",
[] { load<mxd<>>(io::safetensors::parse(io::safetensors::serialize({{"keys", tensor<float, 2>({5, 2})}, {"values", tensor<float, 2>({5, 2})}}), "mxd.safetensors")); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is missing: [*, *] (ih) is expected; the file has it behind "model.layers.3.": pass this as .prefix (missing_tensor))", "The names in the file have a prefix.",
"Pass it: `load<mxd<>>(file, {.prefix = \"model.layers.3.\"})`.",
[] { load<mxd<>>(io::safetensors::parse(io::safetensors::serialize({{"model.layers.3.W_enc", tensor<float, 2>({8, 16})}}), "mxd.safetensors")); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is missing: [*, *] (ih) is expected; the file has "Wenc" (missing_tensor))", "The tensor has another name in the file.",
"Save it under the name that the layer's page lists.",
[] { load<mxd<>>(io::safetensors::parse(io::safetensors::serialize({{"Wenc", tensor<float, 2>({8, 16})}}), "mxd.safetensors")); }},
{R"([io] "aoe.safetensors": tensor "experts.mlp.w2" is missing, and so is "W_o": [15, 4] ((nw)d, n = 3 in "W_up", w = 5 in "W_up", d = 4 in "W_down") is expected; the file has "Wo" (missing_tensor))", "The file has the tensor under neither of its names.",
"Save it under one of the names that the layer's page lists.",
[] { load<aoe<>>(io::safetensors::parse(io::safetensors::serialize({{"W_down", tensor<float, 2>({4, 6})}, {"W_up", tensor<float, 3>({3, 2, 5})}, {"experts.mlp.v1", tensor<float, 2>({15, 4})}, {"Wo", tensor<float, 3>({3, 5, 4})}}), "aoe.safetensors")); }},
{R"([io] "examples/data/minilm_l3_mxd_bf16.safetensors": tensor "W_enc" is BF16 without scales of 8-bit weights: load the layer in floats, and fmoe::quantize makes one of 8 bits (dtype))", "The layer's weights have 8 bits and those of the file do not.",
"`quantize(load<mxd<>>(file))` makes the layer; `save` keeps it.",
[] { load<mxd<q8>>("examples/data/minilm_l3_mxd_bf16.safetensors"); }},
{R"([io] "small.safetensors": tensor "W_enc" is I8 in the layout of q8, and q8c is expected (dtype))", "The file has a scale for each block of 32 weights, and the layer one for each column.",
"Load an `mxd<q8>`.",
[] { load<mxd<q8c>>(io::safetensors::parse(io::safetensors::serialize({{"W_enc", io::array({64, 3}, std::span<const std::int8_t>(std::vector<std::int8_t>(192)))}, {"W_enc.scale", tensor<f16, 2>({2, 3})}}), "small.safetensors")); }},
{R"([io] "small.safetensors": tensor "W_enc" is I8 [64, 3] and its scales F16 [3, 3], which is neither one F16 for 32 weights along an axis nor one F32 for all (dtype))", "The array `W_enc.scale` has another shape or type than the scales of 8-bit weights.",
"Write the scales as docs/guide.md says.",
[] { load<mxd<q8>>(io::safetensors::parse(io::safetensors::serialize({{"W_enc", io::array({64, 3}, std::span<const std::int8_t>(std::vector<std::int8_t>(192)))}, {"W_enc.scale", tensor<f16, 2>({3, 3})}}), "small.safetensors")); }},
{R"([io] "small.safetensors": tensor "W_enc" is float32: fmoe::quantize makes a layer of 8-bit weights, which is saved so (conflict))", "`save` rounds to 16 bits, but does not know along which axis blocks of 8-bit weights lie.",
"`save(quantize(layer), file)`.",
[] { save(small_mxd(), "small.safetensors", {.type = dtype::q8}); }},
{R"([io] "tests/bad_inputs/st-ok-scalar.safetensors": holds no layer that takes x alone; it has "a" (missing_tensor))", "The file has no tensor with the name of one of these layers. If it has some, the message tells which layer is nearest and what it lacks.", "Look at the names: `fmoe_inspect` lists them.",
[] { load_model<mxd<>, soft_moe<>>("tests/bad_inputs/st-ok-scalar.safetensors", 4); }},
{R"([io] "model.pt": is a zip archive, as torch.save and numpy.savez write it: write its tensors with safetensors.torch.save_file (header_len))", "torch.save writes zip archives of pickles, which could run programs when they are read.",
"In Python: `safetensors.torch.save_file(torch.load(\"model.pt\", weights_only=True), \"model.safetensors\")`.",
[] { io::safetensors::parse(std::as_bytes(std::span("PK\x03\x04 and the rest")), "model.pt"); }},
{R"([io] "weights.csv": is not a safetensors file: it begins with "expert,w", which is no length of a header up to 100 MB (header_len))", "The file is of another format.", "Write its tensors with `safetensors.torch.save_file`.",
[] { io::safetensors::parse(bytes_of("expert,weight\n0,0.25\n"), "weights.csv"); }},
{R"([io] "weights.npy": is an .npy file, which fmoe::io::npy::read reads (header_len))", "The file holds one array without a name.", "Read it with `io::npy::read`, or write a safetensors file.",
[] { io::safetensors::parse(io::npy::serialize(tensor<float, 2>({8, 5})), "weights.npy"); }},
{R"([io] "model.gguf": is not a GGUF file (magic))", "The file is of another format, or damaged.", "Read a safetensors file with `io::safetensors::read`; `io::checkpoint::open` and `load` take either format.",
[] { io::gguf::parse(bytes_of("<!DOCTYPE html>"), "model.gguf"); }},
{R"([io] "model.gguf": is a GGUF file of version 1, and 2 or 3 is expected (version at byte 4))", "The file is of an old or of a future version of ggml.", "Make it again with a newer version of llama.cpp, or convert it with ggml's gguf for Python.",
[] { io::gguf::parse(bytes_of({"GGUF\1\0\0\0", 8}), "model.gguf"); }},
{R"([io] "model.gguf": is a GGUF file in big-endian order (version at byte 4))", "The file is made for machines of another byte order.", "`gguf-convert-endian` of ggml's gguf for Python converts it.",
[] { io::gguf::parse(bytes_of({"GGUF\0\0\0\3", 8}), "model.gguf"); }},
{R"([io] "model.gguf": ends before its header does (truncated at byte 20))", "The file is cut, as after a download that failed.", "Fetch the file again.",
[] { io::gguf::parse(bytes_of({"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20}), "model.gguf"); }},
{R"([io] "tests/io/blocks.gguf": has no "llama.expert_count" in its metadata (schema))", "The metadata of a GGUF file lack a key that the program asks for.", "Ask with `find_value`, which returns nothing then; `fmoe.read(file).metadata` in Python lists the keys.",
[] { io::gguf::read("tests/io/blocks.gguf").value<int>("llama.expert_count"); }},
{R"([io] "tests/io/blocks.gguf": has the metadata "a.f32", which is FLOAT32, and an integer is expected (schema at byte 235))", "A value of the metadata is of another kind than the program asks for.", "Ask for the kind that the message names.",
[] { io::gguf::read("tests/io/blocks.gguf").value<int>("a.f32"); }},
{R"([io] "tests/io/part-00001-of-00003.gguf": is a part of the model, which is not there (io))", "A GGUF model lies in several files, and one of them is missing.", "Put all parts into one folder, under the names that they were made with.",
[] { io::checkpoint::open("tests/io/part-00002-of-00003.gguf"); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is F8_E4M3, and its scales are expected beside it as "W_enc_scale_inv" or "W_enc_scale" (dtype))", "The weights are FP8, and the file has no scales of them, named `W_enc_scale_inv` or `W_enc_scale`.", "Convert the weights, or write their scales beside them as DeepSeek-V3 or compressed-tensors does.",
[] { load<mxd<>>(small_file({{"W_enc", io::array(io::element_type::f8_e4m3, {8, 16}, std::vector<std::byte>(128))}})); }},
{R"([io] tensor "w_scale_inv" is [3, 1] and [1, 2] is expected (shape))", "The scales of FP8 weights are not one for each matrix, each row or each block of 128 x 128, and are not those of blocks of another power of two without a rest.", "Write one scale, or as many as the weights have rows or blocks of 128, where the last ones may be smaller.",
[] { io::fp8_weights(io::array(io::element_type::f8_e4m3, {128, 256}, std::vector<std::byte>(32768)), io::safetensors::parse(io::safetensors::serialize({{"w_scale_inv", tensor<float, 2>({3, 1})}})).at("w_scale_inv")); }},
{R"([io] is F8_E4M3 with scales I8: F8_E4M3, F4, I8, I4 or blocks of ggml with scales of floating-point numbers are expected, or F8_E4M3 or F4 with F8_E8M0 or U8, or F4 with F8_E4M3 (dtype))", "There are no such weights with scales.", "Pass codes and scales as `fp8_weights` and `mxfp4_weights` take them.",
[] { io::array(io::element_type::f8_e4m3, {2}, std::vector<std::byte>(2)).scaled(io::array({1}, std::span<const std::int8_t>(std::vector<std::int8_t>(1))), 1, 2); }},
{R"([io] tensor "w_packed" is [24, 7] of I32, which is not [24, 64] in four bits: fmoe reads whole words of eight numbers (shape))", "The words of compressed-tensors hold other integers than those of four bits, or a row ends within a word.", "Decompress the weights with compressed-tensors, and save the floats.",
[] { compressed_with({{"w_packed", zeros_of<std::int32_t>({24, 7})}, {"w_shape", shape_of_weight()}}); }},
{R"([io] tensor "w_scale" is [24, 5], which does not divide rows of 64 evenly (shape))", "The groups of weights that share a scale are not all of one size.", "Decompress the weights with the library that wrote them.",
[] { compressed_with({{"w_scale", zeros_of<float>({24, 5})}, {"w_shape", shape_of_weight()}}); }},
{R"([io] tensor "w_shape" is missing, and has the shape of "w_packed" (missing_tensor))", "compressed-tensors writes the shape of a packed weight beside it, and the file lacks it.", "Save the model with all of its tensors.",
[] { compressed_with({}); }},
{R"([io] tensor "w_g_idx" gives columns groups of their own, which fmoe does not read (extra_tensor))", "The weights were quantised with the columns in the order of their activations.", "Decompress the weights with compressed-tensors, and save the floats.",
[] { compressed_with({{"w_g_idx", zeros_of<std::int32_t>({64})}}); }},
{R"([io] tensor "w_zero_point" is F32, the codes of 0 of I4: I8 of I8, and I32 of I4 in blocks of one row, are expected (dtype))", "The codes of 0 beside a weight are of a type that compressed-tensors does not write.", "Decompress the weights with the library that wrote them.",
[] { compressed_with({{"w_zero_point", zeros_of<float>({3, 2})}, {"w_shape", shape_of_weight()}}); }},
{R"([io] tensor "w_scale_2" is [3] and one number, or one for each matrix, is expected (shape))", "The second scales of NVFP4 are not as many as matrices.", "Write one for the weight, or one for each of its matrices.",
[] { compressed_with({{"w_packed", zeros_of<std::uint8_t>({24, 32})}, {"w_scale", zeros_of<std::uint8_t>({24, 2})}, {"w_scale_2", tensor<float, 1>({3})}}); }},
{R"([io] tensor "w_scale_2" is missing, and so is "w_global_scale": a weight of NVFP4 has one of them (missing_tensor))", "The file lacks the scale of the whole of a weight in NVFP4, without which its numbers are not known.", "Save the model with all of its tensors.",
[] { compressed_with({{"w_packed", zeros_of<std::uint8_t>({24, 32})}, {"w_scale", io::array(io::element_type::f8_e4m3, {24, 4}, std::vector<std::byte>(96))}}); }},
{R"([io] tensor "w_packed" is [24, 48] of U8 with scales [24, 2], and MXFP4 has one for 32 numbers of four bits (shape))", "The bytes hold other numbers than those of four bits, as MXFP6 does.", "Decompress the weights with the library that wrote them.",
[] { compressed_with({{"w_packed", zeros_of<std::uint8_t>({24, 48})}, {"w_scale", zeros_of<std::uint8_t>({24, 2})}}); }},
{R"([io] tensor "w_packed" is U8 with scales F32: I32 is expected, or U8 with scales F8_E4M3, F8_E8M0 or U8 (dtype))", "A packed weight has scales of a type that no form has which fmoe reads.", "Decompress the weights with the library that wrote them.",
[] { compressed_with({{"w_packed", zeros_of<std::uint8_t>({24, 32})}}); }},
{R"([io] tensor "w_packed" is [], which has no rows of codes (shape))", "A packed weight has no axes.", "Write it as [o, i / 8].",
[] { compressed_with({{"w_packed", zeros_of<std::int32_t>({})}, {"w_shape", shape_of_weight()}}); }},
{R"([io] tensor "w" has scales beside it: write the floats that get makes of it (dtype))", "safetensors files have no elements with scales.", "`io::array(a.get<float, 2>())` has the same numbers.",
[] {
const io::array codes(io::element_type::f8_e4m3, {1, 2}, std::vector<std::byte>(2));
io::safetensors::serialize({{"w", io::fp8_weights(codes, tensor<float, 2>({1, 1}))}});
}},
{R"([io] is [3, 2] and has no rows 2 to 4 (shape))", "`rows` asks for more than the array has.", "Ask for rows that exist.",
[] { io::array(tensor<float, 2>({3, 2})).rows(2, 2); }},
{R"([io] is [4, 16], whose rows 1 to 3 cut a block of Q8_0 (shape))", "The rows of blocks of 32 numbers are shorter than a block, as after `reshaped`.", "Ask for rows between whose ends the blocks are whole.",
[] { io::array(io::element_type::q8_0, {4, 16}, std::vector<std::byte>(68)).rows(1, 2); }},
{R"([io] "nothing/mxd.safetensors": cannot be created: No such file or directory (io))", "The folder does not exist, or the program may not write there.", "Make the folder first: `std::filesystem::create_directories`.",
[] { save(small_mxd(), "nothing/mxd.safetensors"); }},
{R"([io] "mxd.safetensors": has "Activation" in its metadata, which is not known: "activation" is (schema))", "A key of the metadata is misspelt, and the setting would be ignored. A file may have any other keys.",
"Write the key as the layer's page lists it.",
[] { load<mxd<>>(small_file({}, {{"Activation", "relu"}})); }},
{R"([io] "mxd.safetensors": tensor "W_cond" is [3, 5] and [*, 4] (on, n = 4 in "gate") is expected (shape))", "The shape of a tensor contradicts the other tensors of the layer.",
"Load the layer that the file holds, in the orientation that its page lists with names and axes.",
[] { load<mxd<>>(small_file({{"gate", tensor<float, 2>({4, 8})}, {"W_cond", tensor<float, 2>({3, 5})}})); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is F64, which float32 would round: pass fmoe::io::narrow to allow it (dtype))", "The file stores double, and the layer float.", "Load a layer of double, or allow rounding: `{.narrow = io::narrow}`.",
[] { load<mxd<>>(small_file({{"W_enc", tensor<double, 2>({8, 16})}})); }},
{R"([io] "mxd.safetensors": tensor "W_enc" is I32 and F64, F32, BF16 or F16 is expected (dtype))", "The file stores integers where weights belong, or blocks that fmoe does not decode.", "Convert them first: docs/formats.md lists the formats of quantised weights that fmoe reads.",
[] { load<mxd<>>(small_file({{"W_enc", io::array({8, 16}, std::span<const int>(std::vector<int>(128)))}})); }},
{R"([io] "mxd.safetensors": has K = 2 in its metadata, and 3 is asked for: set the layer's `active` after load instead (conflict))", "The call and the file's metadata name different numbers of experts.", "Leave out `.active`, and set `layer.active` (`layer.route.active` of an `aoe` or a `moe`) to run the layer with another number.",
[] { load<mxd<>>(small_file({}, {{"K", "2"}}), {.active = 3}); }},
{R"([io] "mxd.safetensors": has K = "two" in its metadata, which is no number of experts and not -1 (schema))", "The metadata's K is not a number.", "Write a number of experts, or -1 for all.",
[] { load<mxd<>>(small_file({}, {{"K", "two"}})); }},
{R"([io] "mxd.safetensors": has the activation "mish" in its metadata, which is not known (schema))", "The metadata names an activation that fmoe does not know.", "Correct the metadata.",
[] { load<mxd<>>(small_file({}, {{"activation", "mish"}})); }},
{R"([io] "mxd.safetensors": has the kind "mxd_glu" in its metadata and the tensors of a mxd_mlp (conflict))", "The metadata names another kind of layer than the tensors are.", "Correct the metadata, or load another layer.",
[] { load<mxd<>>(small_file({}, {{"kind", "mxd_glu"}})); }},
{R"([io] "moe.safetensors": has the kind "mxd_mlp" in its metadata, which is another layer's (conflict))", "The metadata names a kind of layer that is not loaded.", "Load the layer that the file holds, or correct the metadata.",
[] { load<soft_moe<>>(io::safetensors::parse(io::safetensors::serialize({{"G", tensor<float, 2>({8, 5})}, {"W", tensor<float, 3>({5, 8, 3})}}, {{"kind", "mxd_mlp"}}), "moe.safetensors")); }},
{R"([io] "mxd.safetensors": tensor "W_more" is not read by this layer: a list passed as `extra` takes such names, and they are left out (extra_tensor))", "The file has a tensor of the layer that fmoe does not know. Without it the layer may give other numbers than its authors' code.",
"Look what the tensor is. `{.extra = &names}` loads the layer without it, and `names` tells what was left out.",
[] { load<mxd<>>(small_file({{"W_more", tensor<float, 1>({3})}}), {.active = 2, .activation = pointwise::gelu}); }},
{R"([io] "moe.safetensors": [moe] gated experts have W_p, and ungated ones have none (conflict))", "`experts` in the metadata is not what the tensors make.", "Write the tensor `W_p` of gated experts, or correct the metadata.",
[] {
const io::arrays_by_name arrays{{"router", tensor<float, 2>({8, 3})},
                                {"W_g", tensor<float, 3>({3, 8, 4})},
                                {"W_o", tensor<float, 3>({3, 4, 8})}};
const io::strings_by_name metadata{{"K", "2"}, {"experts", "gated"}};
load<moe<>>(io::safetensors::parse(io::safetensors::serialize(arrays, metadata), "moe.safetensors"));
}},
{R"([io] "moe.safetensors": [moe] the router takes rows of 8 and the experts make rows of 6: experts of a latent have latent_down and latent_up (conflict))", "The experts have another width than the router, and the file has no projections that stand between.", "Write the tensors `latent.W_in` and `latent.W_out`, or experts of the router's width.",
[] {
const io::arrays_by_name arrays{{"router", tensor<float, 2>({8, 3})},
                                {"W_g", tensor<float, 3>({3, 6, 4})},
                                {"W_o", tensor<float, 3>({3, 4, 6})}};
const io::strings_by_name metadata{{"K", "2"}, {"experts", "ungated"}};
load<moe<>>(io::safetensors::parse(io::safetensors::serialize(arrays, metadata), "moe.safetensors"));
}},
{R"([io] "mxd.safetensors": does not say "K", which the layer needs: pass K as `active` (missing_setting))", "Tensors do not tell K, and the file has no metadata that do.", "`{.active = 32}` says it; -1, which is `all`, stands for ReLU without a selection.",
[] { load<mxd<>>(small_file({}), {.activation = pointwise::gelu}); }},
{R"([io] "mxd.safetensors": does not say "activation", which the layer needs: pass it in `metadata` (missing_setting))", "Tensors do not tell the activation of the network that the layer replaces, and the file has no metadata that do.", "`{.activation = pointwise::gelu}` and `{.metadata = {{\"activation\", \"gelu\"}}}` say it.",
[] { load<mxd<>>(small_file({}), {.active = 2}); }},
{R"([io] "mxd.safetensors": has K = "2" in its metadata, and "3" is asked for (conflict))", "The call and the file's metadata say different settings.", "Leave out the one that is wrong.",
[] { load<mxd<>>(small_file({}, {{"K", "2"}}), {.metadata = {{"K", "3"}}}); }},
{R"([io] "mxd.safetensors": is loaded with norm = "layer" into a layer that has no such setting (conflict))", "The `metadata` of the options name a setting of another layer, which would be ignored.", "Leave it out, or write the key as the layer's page lists it.",
[] { load<mxd<>>(small_file({}), {.metadata = {{"norm", "layer"}}}); }},
{R"([io] "tests/io/temporal_sae/cfg.json": has "architecture" = "temporal", which fmoe does not compute; it computes standard, topk, abstopk, jumprelu, gated, batchtopk, matryoshka_batchtopk, transcoder, skip_transcoder, jumprelu_transcoder, jumprelu_skip_transcoder (schema))", "SAELens wrote an autoencoder of another architecture, which has other tensors and another formula.", "Run it with SAELens.",
[] {
const io::arrays_by_name arrays{{"W_enc", tensor<float, 2>({4, 8})}, {"W_dec", tensor<float, 2>({8, 4})}};
load<sparse_mlp<>>(io::safetensors::parse(io::safetensors::serialize(arrays), "tests/io/temporal_sae/sae_weights.safetensors"));
}},
{R"([io] "tests/errors/model.safetensors": is not there; the folder has no file of tensors (io))", "The folder holds neither `model.safetensors` nor an index of its parts.", "Pass the folder of a model, or the path of one file.",
[] { io::checkpoint::open("tests/errors"); }},
{R"([io] "mumoe.safetensors": has levels = "2" in its metadata, and its tensors make "1" (conflict))", "The metadata names another number of levels than the tensors have.", "Load the layer with these levels, `cp_mumoe<2>`, or correct the metadata.",
[] { load<cp_mumoe<1>>(small_mumoe_file({{"levels", "2"}})); }},
{R"([io] "mumoe.safetensors": has norm = "batch" in its metadata, and its tensors make "layer" (conflict))", "The metadata names a batch norm, and the file has no running statistics, which are its weights.", "Save `bn.e.running_mean` and `bn.e.running_var` too, or correct the metadata.",
[] { load<cp_mumoe<>>(small_mumoe_file({{"norm", "batch"}})); }},
{R"([io] "tests/io/monet/model.safetensors": tensor "model.layers.3.router.w1.weight" is missing, so the layer takes the routing of the first layer of its group, and a model takes x alone: dynamic::load loads such a layer (missing_tensor))", "A group of Monet's layers shares the router of its first layer, which sees the hidden state of that layer alone.", "Call the layer that `dynamic::load` returns with the routing that the first layer gives: `layer(x, first.routing(x0))`.",
[] { load_model<monet_hd<>>("tests/io/monet/model.safetensors", 4, {.prefix = "model.layers.3."}); }},
{R"([io] "tests/io/monet/model.safetensors": tensor "model.layers.2.router.w1.weight" is missing, and config.json says moe_groups = 2: layer 2 has a router (missing_tensor))", "By its config.json the layer is the first one of a group, and the file has no router for it.", "Take all files of the model, and the config.json that belongs to them.",
[] { load_model<monet_hd<>>("tests/io/monet/model.safetensors", 4, {.prefix = "model.layers.2."}); }},
{R"([io] "tests/io/monet/model.safetensors": tensor "model.layers.1.router.w1.weight" is there, and config.json says moe_groups = 2: layer 1 takes the routing of layer 0 and has none (conflict))", "By its config.json the layer takes the routing of another one, and the file has a router for it.", "Take the config.json that belongs to the files.",
[] { load_model<monet_hd<>>("tests/io/monet/model.safetensors", 4, {.prefix = "model.layers.1."}); }},
{R"([io] "tests/io/monet/model.safetensors": has K = "1" in its metadata, and "2" is in "config.json" beside it (conflict))", "Two files of a model say different settings.", "Correct the one that is wrong.",
[] { load_model<monet_hd<>>("tests/io/monet/model.safetensors", 4, {.prefix = "model.layers.0."}); }},
{R"([io] "monet.safetensors": has deleted = "3" in its metadata, which are no pairs of numbers such as 3,1;0,2 (schema))", "The metadata lists deleted experts in another form.", "Write pairs, `i,j`, with a semicolon between two of them.",
[] { load<monet_hd<>>(io::safetensors::parse(io::safetensors::serialize({{"moe.u.weight", tensor<float, 2>({8, 5})}, {"moe.v.weight", tensor<float, 2>({5, 8})}, {"moe.b", tensor<float, 2>({4, 5})}}, {{"deleted", "3"}}), "monet.safetensors")); }},
{R"([io] "model.safetensors.index.json": has shards with different texts for "K" in their metadata (conflict))", "The layer lies in several shards, whose metadata contradict each other.", "Correct the metadata of one of them.",
[] {
io::layer_arrays shards = io::arrays_in(small_file({}));  // as a checkpoint reads them
shards.file = "model.safetensors.index.json";
shards.disputed = {"K"};
io::layer_from<mxd<>>(shards, {});
}},
{R"([io] "mxd.safetensors": has the selection "topp" in its metadata, which is not known (schema))", "The metadata names a selection that the layer does not have.", "Write `topk`, `relu` or `none`.",
[] { load<mxd<>>(small_file({}, {{"selection", "topp"}})); }},
{R"([io] "mxd.safetensors": has the selection "relu" and K = 2 in its metadata (conflict))", "ReLU alone keeps all positive coefficients, and not K of them.", "Leave out one of the two, or write -1 for K.",
[] { load<mxd<>>(small_file({}, {{"K", "2"}, {"selection", "relu"}})); }},
{R"([io] "peer.safetensors": cannot name the layer's weighting (schema))", "The layer has a setting for which the metadata has no name.", "Choose a setting that the layer's page lists, or save the parameters with `io::safetensors::write`.",
[] {
peer<> layer;
layer.keys = tensor<float, 4>({1, 4, 2, 3});
layer.down = layer.up = tensor<float, 2>({16, 6});
layer.weights = weighting::one;
save(layer, "peer.safetensors");
}},
{R"([io] "sae.safetensors": tensor "b_dec" would be ignored beside "b_dec_out" (conflict))", "A file holds either bias: with `b_dec_out` no layer reads `b_dec`.", "Set `bias` or `input_bias`, but not both.",
[] {
sparse_mlp<> layer;
layer.encoder = tensor<float, 2>({8, 16});
layer.decoder = tensor<float, 2>({16, 8});
layer.bias = tensor<float, 1>({8});
layer.input_bias = tensor<float, 1>({8});
save(layer, "sae.safetensors");
}},
{R"([io] "tests/io/unknown_sae/cfg.json": has "activation" = "median", which fmoe does not compute (schema))", "eai-sparsify has trained a dictionary with units that fmoe does not know.", "Run it with eai-sparsify.",
[] {
const io::arrays_by_name arrays{{"encoder.weight", tensor<float, 2>({8, 4})}, {"W_dec", tensor<float, 2>({8, 4})}};
load<sparse_mlp<>>(io::safetensors::parse(io::safetensors::serialize(arrays), "tests/io/unknown_sae/sae.safetensors"));
}},
{R"([io] "dictionary": has the activation "gelu" in place of relu: no architecture of SAELens has that (conflict))", "A layer is to be saved as SAELens has it, and none of its classes computes such a layer.", "Save it in the form of fmoe, without `.form`.",
[] {
sparse_mlp<> layer;
layer.encoder = tensor<float, 2>({8, 16});
layer.decoder = tensor<float, 2>({16, 8});
layer.activation = pointwise::gelu;
save(layer, "dictionary", {.form = file_form::saelens});
}},
{R"([io] "mxd.safetensors": holds tensors that make none of sae, skip_transcoder, transcoder (conflict))", "The tensors belong to another kind of layer.", "Load the layer that the file holds.",
[] { load<sparse_mlp<>>(small_file({})); }},
{R"([io] is loaded with a K into a layer that has none (conflict))", "The layer does not choose a number of experts.", "Leave out .active.",
[] { load<cp_experts<>>(io::safetensors::parse(io::safetensors::serialize({{"factors.0", tensor<float, 2>({5, 2})}, {"factors.1", tensor<float, 2>({8, 2})}, {"factors.2", tensor<float, 2>({3, 2})}})), {.active = 2}); }},
{R"([io] is loaded with an activation into a layer that has none (conflict))", "The layer has no activation.", "Leave out `.activation`.",
[] { load<soft_moe<>>(io::safetensors::parse(io::safetensors::serialize({{"G", tensor<float, 2>({8, 5})}, {"W", tensor<float, 3>({5, 8, 3})}})), {.activation = pointwise::relu}); }},
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
{R"([io] "mxd.safetensors": tensor "gate" is [5, 8] and [8, 5] is expected (shape))", "The program asks for the array in another shape than the file has.", "Ask for the shape of the file; `fmoe::all` allows any extent.",
[] { small_file({}).get<float, 2>("gate", {8, 5}); }},
{R"([io] "tests/bad_inputs/st-trunc-all.safetensors": tensor "a" has data beyond the file's end (truncated at byte 62))", "The file is shorter than its header says: the download or the copy was cut off.", "Fetch the file again.",
[] { io::safetensors::read("tests/bad_inputs/st-trunc-all.safetensors"); }},
{R"([io] "tests/bad_inputs/st-only-len.safetensors": has a header of 60 bytes, which end behind the file (header_len))", "The first eight bytes are the length of the header: the file is not a safetensors file, or is cut off.",
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

TEST_CASE("files that cannot be read or do not fit are refused by these sentences", "[errors]") {
  check<io::error>(file_errors);
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

// SPDX-License-Identifier: MIT
#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/npy.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mumoe.hpp>

#include "../support/failures.hpp"
#include "../support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

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
{R"([io] "model.pt": is a zip archive, as torch.save and numpy.savez write it: write its tensors with safetensors.torch.save_file (header_len))", "torch.save writes zip archives of pickles, which could run programs when they are read.",
"In Python: `safetensors.torch.save_file(torch.load(\"model.pt\", weights_only=True), \"model.safetensors\")`.",
[] { io::safetensors::parse(std::as_bytes(std::span("PK\x03\x04 and the rest")), "model.pt"); }},
{R"([io] "mxd.safetensors": has "Activation" in its metadata, which is not known: "activation" is (schema))", "A key of the metadata is misspelt, and the setting would be ignored. A file may have any other keys.",
"Write the key as the layer's page lists it.",
[] { load<mxd<>>(small_file({}, {{"Activation", "relu"}})); }},
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
{R"([io] "mxd.safetensors": tensor "gate" is [5, 8] and [8, 5] is expected (shape))", "The program asks for the array in another shape than the file has.", "Ask for the shape of the file; `fmoe::all` allows any extent.",
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

// SPDX-License-Identifier: MIT
#include <fmoe/aoe.hpp>
#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/hints.hpp>
#include <fmoe/io/layers_in.hpp>
#include <fmoe/io/npy.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::io;

using names = std::vector<std::string>;

TEST_CASE("edits between two texts", "[hints]") {
  CHECK(edits_between("", "") == 0);
  CHECK(edits_between("gate", "gate") == 0);
  CHECK(edits_between("gate", "") == 4);
  CHECK(edits_between("gate", "gates") == 1);
  CHECK(edits_between("gate", "gaet") == 1);
  CHECK(edits_between("gate", "rate") == 1);
  CHECK(edits_between("gate", "at") == 2);
  CHECK(edits_between("W_enc", "W_dec") == 2);
}

TEST_CASE("a tensor that a file does not have: where it may be", "[hints]") {
  CHECK(hint_of_names("gate", "", {}) == "; the file has no tensors");
  CHECK(hint_of_names("gate", "", names{"gates", "down"}) == "; the file has \"gates\"");
  CHECK(hint_of_names("gate", "", names{"0.gate", "1.gate", "10.gate", "2.gate", "2.gate.bias"}) ==
        "; the file has it behind \"0.\", \"1.\", \"10.\" and 1 more: pass this as .prefix");
  CHECK(hint_of_names("gate", "3.", names{"0.gate"}) ==
        "; the file has it behind \"0.\": pass this as .prefix");
  CHECK(hint_of_names("gate", "model.", names{"gate"}) == "; the file has it without a prefix");
  CHECK(hint_of_names("gate", "model.", names{"down", "up"}) ==
        "; no name begins with \"model.\", the file has \"down\", \"up\"");
  CHECK(hint_of_names("keys", "", names{"a", "b", "c", "d", "e"}) ==
        "; the file has \"a\", \"b\", \"c\" and 2 more");
  CHECK(hint_of_names("gate", "", names{"delegate"}) == "; the file has \"delegate\"");
}

TEST_CASE("a key of metadata that is misspelt", "[hints]") {
  const names known{"K", "activation", "kind", "capacity_factor"};
  CHECK(meant_by("Activation", known) == "activation");
  CHECK(meant_by("activaton", known) == "activation");
  CHECK(meant_by("Kind", known) == "kind");
  CHECK(meant_by("capacityFactor", known) == "capacity_factor");
  for (const char* other : {"activation", "K", "n", "seed", "format", "mind", "activities", ""})
    CHECK(!meant_by(other, known));
}

TEST_CASE("settings of a layer that are misspelt are refused, other keys are the file's own") {
  const auto layer = load<aoe<>>(
      "tests/golden/aoe/aoe_kn.weights.safetensors",
      {.active = 2, .activation = pointwise::silu, .metadata = {{"weighting", "paper"}}});
  const auto message = [&](const char* key, const char* value) {
    auto from = arrays_of(layer, "aoe.safetensors", {});
    from.metadata[key] = value;
    try {
      load<aoe<>>(safetensors::parse(safetensors::serialize(from.arrays, from.metadata)));
    } catch (const error& e) {
      CHECK(e.code == errc::schema);
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(message("wieghting", "score") ==
        "[io] has \"wieghting\" in its metadata, which is not known: \"weighting\" is (schema)");
  CHECK(message("seed", "1").empty());
  CHECK(message("format", "pt").empty());
}

TEST_CASE("files of other formats are named", "[hints]") {
  const auto refused = [](std::string text, const char* name) {
    text.resize(100, ' ');
    try {
      safetensors::parse(bytes_of(text), name);
    } catch (const error& e) {
      CHECK(e.code == errc::header_len);
      return std::string(e.what());
    }
    return std::string();
  };
  using namespace std::string_literals;
  CHECK(refused("PK\x03\x04"s, "model.pt").find("zip archive") != std::string::npos);
  CHECK(refused("\x80\x02}q"s, "model.bin").find("pickle") != std::string::npos);
  CHECK(refused("GGUF\x03\0\0\0"s, "model.gguf").find("gguf::read") != std::string::npos);
  CHECK(refused("\x89HDF\r\n\x1a\n"s, "model.h5").find("HDF5") != std::string::npos);
  CHECK(refused("\x93NUMPY\x01\0"s, "x.npy").find("npy::read") != std::string::npos);
  CHECK(refused("\x08\x07\x12\x07pytorch"s, "model.onnx").find("ONNX") != std::string::npos);
  CHECK(refused("\x08\x07\x12\x07pytorch"s, "model").find("is not a safetensors file") !=
        std::string::npos);
}

TEST_CASE("a checkpoint's hints know all its names", "[hints]") {
  const temporary_folder here;
  safetensors::write(here / "model.safetensors", {{"blocks.0.W_enc", tensor<float, 2>({2, 3})}});
  const auto from = checkpoint::open(here.path());
  for (const auto& attempt : std::initializer_list<void (*)(const checkpoint&)>{
           [](const checkpoint& c) { load<mxd<>>(c); },
           [](const checkpoint& c) { outline<mxd<>>(c); }}) {
    std::string message;
    try {
      attempt(from);
    } catch (const error& e) {
      message = e.what();
    }
    CHECK(message.find("behind \"blocks.0.\"") != std::string::npos);
  }
}

}  // namespace

// SPDX-License-Identifier: MIT
// The text and the Graphviz form of a plan.
#include <fmoe/explain.hpp>
#include <fmoe/mxd.hpp>

#include <sstream>

#include "support/catch.hpp"

using namespace fmoe;

namespace {

mxd<float> gpt2() {
  mxd<float> m;
  m.encoder = parameter<float, 2>({768, 3072});
  m.encoder_bias = parameter<float, 1>({3072});
  m.gate = parameter<float, 2>({768, 21490});
  m.gate_bias = parameter<float, 1>({21490});
  m.scales = parameter<float, 2>({21490, 768});
  m.decoder = parameter<float, 2>({3072, 768});
  m.bias = parameter<float, 1>({768});
  return m;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("MxD at GPT-2's size, line by line") {
  const auto lines = lines_of(explain(gpt2()(argument<0, 2>{128})).text);
  REQUIRE(lines.size() == 8);
  CHECK(contains(lines[0], "tile of 96 tokens, arena "));
  CHECK(contains(lines[0], "21247488 multiply-adds a token, 37752562 parameters"));
  CHECK(contains(lines[0], "for 128 tokens"));
  CHECK(contains(lines[1], "loop n: 21490 in chunks of 768"));
  CHECK(contains(lines[2], "gemm      ti,in->tn"));
  CHECK(contains(lines[2], "| + s"));
  CHECK(contains(lines[2], "| relu"));
  CHECK(contains(lines[3], "top_k     tn->tn              32 of 21490"));
  CHECK(contains(lines[4], "loop h: 3072 in chunks of 768"));
  CHECK(contains(lines[5], "| gelu"));
  CHECK(contains(lines[6], "gemm      th,ho->to"));
  CHECK(contains(lines[7], "gather    tn,no->to           32 rows of 768 | * s"));
}

TEST_CASE("what runs once is marked") {
  const tensor<float, 2> x({4, 8});
  const parameter<float, 2> w({8, 3});
  const auto text = explain(einsum<"ti,io->to">(x, exp(w))).text;
  CHECK(contains(text, "once: pointwise"));
  CHECK(contains(text, "| exp"));
}

TEST_CASE("the Graphviz form names every step once and every edge's ends") {
  const auto e = explain(gpt2()(argument<0, 2>{128}));
  const auto lines = lines_of(e.dot);
  CHECK(lines.front() == "digraph plan {");
  CHECK(lines.back() == "}");
  for (const char* step : {"gemm ti,in->tn", "top_k tn->tn", "gemm ti,ih->th", "gemm th,ho->to", "gather tn,no->to"})
    CHECK(contains(e.dot, std::string("label=\"") + step));
  for (const auto& line : lines) {
    const auto arrow = line.find(" -> ");
    if (arrow == std::string::npos) continue;
    const std::string from = line.substr(2, arrow - 2), to = line.substr(arrow + 4, line.size() - arrow - 5);
    CHECK(contains(e.dot, "  " + from + " ["));
    CHECK(contains(e.dot, "  " + to + " ["));
  }
  std::ostringstream out;
  out << e;
  CHECK(out.str() == e.text);
}

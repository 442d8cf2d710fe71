// SPDX-License-Identifier: MIT
#include <fmoe/base/time_text.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/expr/all_except.hpp>
#include <fmoe/mxd.hpp>

#include <sstream>

#include "support/catch.hpp"
#include "support/limits.hpp"
#include "support/pages.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <std::size_t Rank>
tensor<float, Rank> blank(const std::array<extent, Rank>& shape) {
  return {shape, std::make_shared<storage>(extent{0})};  // explain reads no element
}
using two = std::array<extent, 2>;
using one = std::array<extent, 1>;

mxd<> mxd_of_gpt2() {
  mxd<> l;
  l.encoder = blank(two{768, 3072});
  l.encoder_bias = blank(one{3072});
  l.gate = blank(two{768, 21490});
  l.gate_bias = blank(one{21490});
  l.scales = blank(two{21490, 768});
  l.decoder = blank(two{3072, 768});
  l.bias = blank(one{768});
  return l;
}
auto mxd_of_gpt2(extent tokens) { return mxd_of_gpt2()(blank(two{tokens, 768})); }

// Computes all scores, in tiles that are the same on every machine.
explanation explain_unscreened(const auto& expression) {
  return explain(expression, {.screen = false, .shape = plan_shape{}});
}

extent count(const std::string& text, std::string_view what) {
  extent n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size()))
    ++n;
  return n;
}

TEST_CASE("a parameter that is the input is planned as an input", "[explain]") {
  const parameter<float, 2> x = blank(two{128, 768});
  const auto of_parameter = explain_unscreened(mxd_of_gpt2()(x));
  CHECK(of_parameter.text == explain_unscreened(mxd_of_gpt2(128)).text);
}

TEST_CASE("the memory of a compiled layer", "[explain]") {
  const tensor<float, 2> x({16, 256});
  const parameter<float, 2> w({256, 512});
  const parameter<bf16, 2> narrow({256, 512});
  const auto whole = explain(einsum<"ti,io->to">(x, w)),
             half = explain(einsum<"ti,io->to">(x, narrow)),
             twice = explain(einsum<"ti,io->to">(x, w) + einsum<"ti,io->to">(relu(x), w));
  constexpr std::size_t bytes = 256 * 512 * sizeof(float);
  CHECK(whole.memory.weights == bytes);
  CHECK(whole.memory.packed >= bytes);
  CHECK(whole.memory.packed < bytes + bytes / 8);
  CHECK(half.memory.weights == bytes / 2);
  CHECK(half.memory.packed >= bytes / 2);
  CHECK(half.memory.packed < bytes / 2 + bytes / 8);
  CHECK(twice.memory.weights == bytes);
  CHECK(twice.memory.packed == whole.memory.packed);
  const auto with_threads = [&](std::size_t n) {
    return explain(softmax(einsum<"ti,io->to">(x, w)) * 2, {.threads = n}).memory.call;
  };
  CHECK(with_threads(1) > 0);
  CHECK(with_threads(3) == 3 * with_threads(1));
  std::ostringstream line;
  line << "\nmemory: " << bytes << " bytes of weights, " << whole.memory.packed << " packed, "
       << whole.memory.call << " a call\n";
  CHECK(whole.text.find(line.str()) != std::string::npos);
}

TEST_CASE("the text names tile, arena, costs and every step", "[explain]") {
  const auto e = explain_unscreened(mxd_of_gpt2(128));
  INFO(e.text);
  const std::string text = without_times(e.text);
  CHECK(text.starts_with("cpu, "));
  CHECK(text.find("\ntile of 96 tokens, arena ") != std::string::npos);
  CHECK(text.find("21247488 multiply-adds a token, 37752562 parameters, ") != std::string::npos);
  CHECK(text.find("for 128 tokens\n") != std::string::npos);
  extent at = 0;  // in this order
  for (const char* line :
       {"loop n: 21490 in chunks of 768\n", "gemm      ti,in->tn", "k 768 n 21490", " | relu",
        "top_k     tn->tn", "32 of 21490", "loop h: 3072 in chunks of 768\n", "gemm      ti,ih->th",
        " | gelu", "gemm      th,ho->to", "a chunk of k at a time", "gather    tn,no->to",
        "32 rows of 768", " | * s", " | + s"}) {
    INFO(line);
    const auto here = text.find(line, at);
    REQUIRE(here != std::string::npos);
    at = here;
  }
  CHECK(count(text, "\n") == 10);
  std::ostringstream out;
  out << e;
  CHECK(out.str() == e.text);
}

TEST_CASE("the text has the predicted times of the call and of every step", "[explain]") {
  const auto e = explain(mxd_of_gpt2(128), {.as = machine{}});
  INFO(e.text);
  CHECK(e.seconds > 0.01);
  CHECK(e.seconds < 1);
  CHECK(e.text.find("\ntime: about " + detail::time_text(e.seconds) + " for 128 tokens on ") !=
        std::string::npos);
  CHECK(count(e.text, "s)\n") + 4 == count(e.text, "\n"));
}

TEST_CASE(
    "the graph is Graphviz: a box a step, an ellipse a storage, every edge between two that are "
    "there",
    "[explain]") {
  const auto e = explain_unscreened(mxd_of_gpt2(128));
  INFO(e.dot);
  CHECK(e.dot.starts_with("digraph plan {\n"));
  CHECK(e.dot.ends_with("}\n"));
  CHECK(count(e.dot, "{") == 1);
  CHECK(count(e.dot, "}") == 1);
  CHECK(count(e.dot, "[") ==
        1 + count(e.dot, "label=") +
            count(e.dot, "ellipse"));  // the sizes of the storages stand in brackets
  CHECK(count(e.dot, "\"") % 2 == 0);
  CHECK(count(e.dot, "shape=box") == 5);
  for (const char* step : {"label=\"gemm ti,in->tn | + | relu\"", "label=\"top_k tn->tn\"",
                           "label=\"gemm ti,ih->th | + | gelu\"", "label=\"gemm th,ho->to\"",
                           "label=\"gather tn,no->to | * | +\""})
    CHECK(count(e.dot, step) == 1);
  CHECK(count(e.dot, "input s") == 1);
  CHECK(count(e.dot, "output s") == 1);
  CHECK(count(e.dot, "parameter s") == 7);
  std::istringstream lines(e.dot);
  for (std::string line; std::getline(lines, line);) {
    const auto arrow = line.find(" -> ");
    if (arrow == std::string::npos) continue;
    const std::string from = line.substr(2, arrow - 2),
                      to = line.substr(arrow + 4, line.size() - arrow - 5);
    INFO(line);
    CHECK(count(e.dot, "  " + from + " [shape=") == 1);
    CHECK(count(e.dot, "  " + to + " [shape=") == 1);
  }
}

TEST_CASE("the expression's graph has a box an operation and an ellipse a leaf, equal ones once",
          "[explain]") {
  const std::string dot = explain_unscreened(mxd_of_gpt2(128)).graph;
  INFO(dot);
  CHECK(dot.starts_with("digraph expression {\n"));
  CHECK(dot.ends_with("}\n"));
  CHECK(count(dot, "shape=box") == 9);
  CHECK(count(dot, "shape=ellipse") == 8);
  CHECK(count(dot, "parameter\\n") == 7);
  CHECK(count(dot, "label=\"input\\n128 x 768\"") == 1);
  for (const char* made : {"ti,in->tn\\n128 x 21490", "top_k\\n128 x 21490",
                           "ti,ih->th\\n128 x 3072", "tn,no,th,ho->to\\n128 x 768"})
    CHECK(count(dot, std::string("shape=box, fillcolor=\"#ffffff\", label=\"") + made) == 1);
  CHECK(count(dot, "fillcolor=\"#fbe5d0\", label=\"add\\n128 x 768\"") == 1);  // the result
  CHECK(count(dot, " -> ") == 2 + 2 + 1 + 1 + 2 + 2 + 1 + 4 + 2);
}

TEST_CASE("every kind of operation is in the graph's drawing", "[explain]") {
  const auto x = blank(two{8, 12});
  const std::vector<index_pair> pairs{{1, 2}};
  const auto bound = norm(row_norm::l2, x);
  const auto masked = einsum<"ti,tj,ij->tj">(x, x, all_except(pairs, 12, 12));
  const auto chosen = expert_choice(x, softmax(x), weighting::one);
  const std::string dot =
      explain(concat<1>(bounded_softmax(x, bound), masked, chosen, append_one(relu(x)))).graph;
  INFO(dot);
  for (const char* what : {"bounded softmax", "L2 norm", "all but a few pairs\\n12 x 12",
                           "expert_choice", "concat\\n8 x 49", "append 1\\n8 x 13", "relu"})
    CHECK(count(dot, std::string("label=\"") + what) == 1);
}

TEST_CASE("a screened selection is one line in place of its scores", "[explain]") {
  const auto e = explain(mxd_of_gpt2(4), {.shape = plan_shape{}});
  INFO(e.text);
  INFO(e.dot);
  CHECK(count(e.text, "  screened  ti,in->tn ") == 1);
  CHECK(count(e.text, "32 of 21490, scores in 16 bits, survivors in full | + s") == 1);
  CHECK(count(e.dot, "label=\"screened ti,in->tn | + | relu\"") == 1);
  for (const char* gone : {"loop n", "gemm      ti,in->tn", "top_k"})
    CHECK(count(e.text, gone) == 0);
}

TEST_CASE("a threshold or a gate tells which rows of a decoder are read", "[explain]") {
  const auto x = blank(two{16, 32});
  const auto gathers = [](const auto& y, const std::string& subscripts) {
    return explain(y).text.find("gather    " + subscripts) != std::string::npos;
  };
  sparse_mlp<> layer;
  layer.encoder = blank(two{32, 256});
  layer.decoder = blank(two{256, 32});
  layer.active = all;
  CHECK_FALSE(gathers(layer(x), "th,ho->to"));
  layer.threshold = blank(one{256});
  CHECK(gathers(layer(x), "th,ho->to"));
  layer.threshold = {};
  layer.gate_bias = blank(one{256});
  CHECK(gathers(layer(x), "th,ho->to"));

  cross_layer_transcoder<> all_layers;
  all_layers.encoder = blank(two{32, 256});
  all_layers.decoder = blank(std::array<extent, 3>{256, 2, 32});
  CHECK_FALSE(gathers(all_layers(x), "th,hlo->tlo"));
  all_layers.threshold = blank(one{256});
  CHECK(gathers(all_layers(x), "th,hlo->tlo"));
}

TEST_CASE("every kind of step has its line", "[explain]") {
  const auto x = blank(two{8, 12});
  const auto outer = softmax(einsum<"ti,tj->tij">(x, relu(x)));
  const auto e = explain(concat<1>(einsum<"tij->ti">(outer), top_k(x, 3),
                                   einsum<"ti,io->to">(x, parameter<float, 2>(blank(two{12, 6})))));
  INFO(e.text);
  for (const char* kind : {"pointwise ", "batched ", "softmax ", "reduce ", "permute ", "top_k ",
                           "expand ", "gemm "}) {
    INFO(kind);
    CHECK(count(e.text, kind) >= 1);
    CHECK(count(e.dot, std::string("label=\"") + kind) == count(e.text, kind));
  }
}

TEST_CASE("constants come first, whatever runs once", "[explain]") {
  const auto x = blank(two{8, 12});
  const parameter<float, 2> w(blank(two{6, 12}));
  compile_options naive;
  naive.naive = true;
  const auto text =
      explain(einsum<"tn,rn,or->to">(x, w, parameter<float, 2>(blank(two{5, 6}))), naive).text;
  INFO(text);
  CHECK(text.find("once: batched   rn,or->no") != std::string::npos);
  const auto whole = explain(einsum<"ti,tj->ij">(x, x)).text;
  INFO(whole);
  CHECK(whole.find("for 8 tokens") != std::string::npos);
}

}  // namespace

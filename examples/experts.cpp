// SPDX-License-Identifier: MIT
// This program shows the specialists of a trained mixture of decoders. For each expert that is
// active on under 5% of the tokens it lists the tokens to which the expert adds most. `experts
// WEIGHTS ROWS WORDS OUT` writes OUT.json and OUT.html, a page to browse them.
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include <fmoe/analysis.hpp>
#include <fmoe/analysis/expert_page.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;
using nlohmann::json;

template <class Stream>
Stream opened(const std::string& file) {
  Stream stream(file);
  if (!stream) throw std::runtime_error("cannot open " + file);
  return stream;
}

// Returns the windows as passages of whole words (the pieces "ass ##oc ##iating" form one), and the
// word of each token.
page_text text_of(const json& text) {
  page_text result;
  std::vector<std::vector<std::size_t>> word_of_piece;
  for (const json& window : text.at("windows")) {
    std::vector<std::string> words;
    word_of_piece.emplace_back();
    for (const std::string piece : window.at("tokens")) {
      if (!words.empty() && piece.starts_with("##")) words.back() += piece.substr(2);
      else words.push_back(piece);
      word_of_piece.back().push_back(words.size() - 1);
    }
    result.passages.push_back({window.at("document"), window.at("licence"), std::move(words)});
  }
  for (std::size_t token = 0; token < text.at("window").size(); ++token) {
    const std::size_t window = text.at("window")[token], position = text.at("position").at(token);
    result.tokens.push_back({window, word_of_piece.at(window).at(position)});
  }
  return result;
}

int main(int argc, char** argv) {
  const auto argument = [&](int i, const char* otherwise) {
    return i < argc ? argv[i] : otherwise;
  };
  const auto layer = load<mxd<>>(argument(1, "examples/data/minilm_l3_mxd_bf16.safetensors"));
  const auto x = io::safetensors::read(argument(2, "examples/data/minilm_l3_rows.safetensors"))
                     .get<float, 2>("x");
  const auto text =
      json::parse(opened<std::ifstream>(argument(3, "examples/data/minilm_l3_rows.json")));
  const std::string out = argument(4, "build/experts");
  const std::size_t tokens = x.shape()[0], inputs = x.shape()[1], experts = layer.gate.shape()[1],
                    batch = 128;

  // Both results are [t, n]: the coefficients of the experts, and the norms of their contributions.
  const auto observed = [&](const auto& rows) {
    return std::tuple(layer.coefficients(rows), layer.contribution_norms(rows));
  };
  const auto forward = compile(observed, batch);
  expert_statistics coefficients(experts), norms(experts);
  top_tokens top(experts, 24);
  for (std::size_t first = 0; first < tokens;
       first += batch) {  // any number of tokens in the memory of one batch
    const std::size_t count = std::min(batch, tokens - first);
    const tensor<float, 2> rows({count, inputs},
                                std::span(x.data() + first * inputs, count * inputs));
    tensor<float, 2> a({count, experts}), added({count, experts});
    forward(rows, a, added);
    coefficients.add(a);
    norms.add(added);
    top.add(added, first);
  }

  const page_options options{.model = text.at("model"), .layer = text.at("layer").dump()};
  const page_text words = text_of(text);
  const auto specialists = page_experts(coefficients, norms, top, words, options);
  std::printf("%zu of %zu experts are active on under 5%% of %zu tokens\n", specialists.size(),
              experts, tokens);
  std::puts(" norm expert active most on");
  for (std::size_t i = 0; i < specialists.size() && i < 12; ++i) {
    const page_expert& e = specialists[i];
    std::printf("%7.1f %7zu %6.1f%% ", e.norm, e.expert, 100 * e.frequency);
    for (std::size_t k = 0; k < e.words.size() && k < 6; ++k)
      std::printf(" %s", e.words[k].c_str());
    std::puts("");
  }
  opened<std::ofstream>(out + ".json") << page_data(specialists, coefficients, words, options);
  write_expert_page(out + ".html", coefficients, norms, top, words, options);
}

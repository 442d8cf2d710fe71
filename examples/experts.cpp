// SPDX-License-Identifier: MIT
// This program shows the specialists of a trained mixture of decoders. For each expert that is
// active on under 5% of the tokens it lists the tokens to which the expert adds most. `experts
// WEIGHTS ROWS WORDS OUT` writes OUT.json and OUT.html, a page to browse them.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include <fmoe/analysis.hpp>
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

// Returns the windows with whole words (the pieces "ass ##oc ##iating" form one), and the word
// number of each of their pieces.
std::pair<json, json> whole_words(const json& text) {
  json windows, word_of_piece;
  for (const json& window : text.at("windows")) {
    json words = json::array(), numbers;
    for (const std::string piece : window.at("tokens")) {
      if (!words.empty() && piece.starts_with("##"))
        words.back().get_ref<std::string&>() += piece.substr(2);
      else words.push_back(piece);
      numbers.push_back(words.size() - 1);
    }
    word_of_piece.push_back(numbers);
    windows.push_back(
        {{"document", window.at("document")}, {"licence", window.at("licence")}, {"words", words}});
  }
  return {windows, word_of_piece};
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

  const auto frequency = coefficients.frequency(), mean = coefficients.mean_coefficients(),
             mean_norm = norms.mean_coefficients();
  std::vector<std::size_t> specialists;
  for (std::size_t n = 0; n < experts; ++n)
    if (mean_norm[n] > 0 && frequency[n] < 0.05) specialists.push_back(n);
  std::ranges::stable_sort(specialists, std::greater(),
                           [&](std::size_t n) { return mean_norm[n]; });
  std::printf("%zu of %zu experts are active on under 5%% of %zu tokens\n", specialists.size(),
              experts, tokens);
  std::puts(" norm expert active most on");

  const auto [windows, word_of_piece] = whole_words(text);
  json found = json::array();
  for (const std::size_t n : specialists) {
    std::vector<std::string> words;  // the words of its tokens, each once
    json strongest;
    for (const auto& [token, value] : top.of(n)) {
      const std::size_t window = text.at("window").at(token),
                        position = text.at("position").at(token);
      const std::size_t number = word_of_piece.at(window).at(position);
      const std::string word = windows[window]["words"][number];
      if (std::ranges::find(words, word) == words.end()) words.push_back(word);
      strongest.push_back({token, window, number, value});
    }
    const double norm = mean_norm[n] * static_cast<double>(tokens);
    if (found.size() < 12) {
      std::printf("%7.1f %7zu %6.1f%% ", norm, n, 100 * frequency[n]);
      for (std::size_t i = 0; i < words.size() && i < 6; ++i) std::printf(" %s", words[i].c_str());
      std::puts("");
    }
    found.push_back({{"expert", n},
                     {"frequency", frequency[n]},
                     {"norm", norm},
                     {"mean_coefficient", mean[n]},
                     {"words", words},
                     {"tokens", strongest}});
  }
  const json result{
      {"model", text.at("model")}, {"layer", text.at("layer")},       {"tokens", tokens},
      {"experts", found},          {"counts", coefficients.counts()}, {"windows", windows}};
  std::string data = result.dump(-1, ' ', true);
  opened<std::ofstream>(out + ".json") << data;
  for (auto at = data.find('<'); at != data.npos; at = data.find('<', at))
    data.replace(at, 1, "\\u003c");  // keeps </script> out of the page
  std::string page(
      std::istreambuf_iterator<char>(opened<std::ifstream>("examples/experts.html").rdbuf()), {});
  opened<std::ofstream>(out + ".html") << page.replace(page.find("{{data}}"), 8, data);
}

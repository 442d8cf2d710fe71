// SPDX-License-Identifier: MIT
// One HTML page to browse experts and the tokens that they are strongest on, for any layer.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <fmoe/analysis/expert_page_html.hpp>
#include <fmoe/analysis/expert_statistics.hpp>
#include <fmoe/analysis/top_tokens.hpp>
#include <fmoe/io/file.hpp>

namespace fmoe {

// The text that a stream of tokens comes from, in UTF-8: passages of words, and for each token of
// the stream the passage and the word that it is part of.
struct page_text {
  struct passage {
    std::string title, licence;
    std::vector<std::string> words;
  };
  struct place {
    std::size_t passage, word;
  };
  std::vector<passage> passages;
  std::vector<place> tokens;
};

// What a page tells of its layer, and which experts it shows: those that are active on fewer than
// this part of the tokens, by the sum of their contributions.
struct page_options {
  std::string model = "model", layer = "0";
  double most_frequency = 0.05;
};

// An expert of a page.
struct page_expert {
  std::size_t expert;
  double frequency, norm, mean_coefficient;  // the norm is the sum over all tokens
  std::vector<std::string> words;            // of its strongest tokens, each once
  std::vector<top_tokens::entry> tokens;
};

// Returns the experts that a page shows, in its order. `coefficients` and `norms` have counted the
// same tokens, and `strongest` holds each expert's; where a layer has no contribution_norms, norms
// may be the coefficients. Throws shape_error if a token has no place in the text.
inline std::vector<page_expert> page_experts(const expert_statistics& coefficients,
                                             const expert_statistics& norms,
                                             const top_tokens& strongest, const page_text& text,
                                             const page_options& options = {}) {
  const auto frequency = coefficients.frequency(), mean = coefficients.mean_coefficients(),
             mean_norm = norms.mean_coefficients();
  std::vector<page_expert> shown;
  for (std::size_t n = 0; n < frequency.size(); ++n) {
    if (!(mean_norm[n] > 0 && frequency[n] < options.most_frequency)) continue;
    const double norm = mean_norm[n] * static_cast<double>(text.tokens.size());
    shown.push_back({n, frequency[n], norm, mean[n], {}, strongest.of(n)});
    for (const top_tokens::entry& e : shown.back().tokens) {
      detail::expects<shape_error>(e.token < text.tokens.size(), "[page] token ", e.token,
                                   " has no place in the text of ", text.tokens.size(), " tokens");
      const page_text::place& at = text.tokens[e.token];
      const bool is_there =
          at.passage < text.passages.size() && at.word < text.passages[at.passage].words.size();
      detail::expects<shape_error>(is_there, "[page] token ", e.token, " is word ", at.word,
                                   " of passage ", at.passage, ", which the text does not have");
      const std::string& word = text.passages[at.passage].words[at.word];
      if (std::ranges::count(shown.back().words, word) == 0) shown.back().words.push_back(word);
    }
  }
  std::ranges::stable_sort(shown, std::greater(), &page_expert::norm);
  return shown;
}

// Returns the data of a page as JSON: the experts, how many tokens each expert is active on, and
// the text. Numbers that are not finite are null, and bytes that are not UTF-8 are replaced.
inline std::string page_data(const std::vector<page_expert>& experts,
                             const expert_statistics& coefficients, const page_text& text,
                             const page_options& options = {}) {
  using nlohmann::json;
  json shown = json::array(), windows = json::array();
  for (const page_expert& e : experts) {
    json tokens = json::array();
    for (const top_tokens::entry& t : e.tokens) {
      const page_text::place& at = text.tokens[t.token];
      tokens.push_back({t.token, at.passage, at.word, t.value});
    }
    shown.push_back({{"expert", e.expert},
                     {"frequency", e.frequency},
                     {"norm", e.norm},
                     {"mean_coefficient", e.mean_coefficient},
                     {"words", e.words},
                     {"tokens", tokens}});
  }
  for (const page_text::passage& p : text.passages)
    windows.push_back({{"document", p.title}, {"licence", p.licence}, {"words", p.words}});
  const json data{{"model", options.model},
                  {"layer", options.layer},
                  {"most", options.most_frequency},
                  {"tokens", text.tokens.size()},
                  {"experts", shown},
                  {"counts", coefficients.counts()},
                  {"windows", windows}};
  return data.dump(-1, ' ', true, json::error_handler_t::replace);
}

// Writes one page, which needs nothing else and asks no server, to browse the experts of any layer.
// Throws as page_experts does, and io::error if the file cannot be written; an old file then stays
// unchanged.
inline void write_expert_page(const std::filesystem::path& file,
                              const expert_statistics& coefficients, const expert_statistics& norms,
                              const top_tokens& strongest, const page_text& text,
                              const page_options& options = {}) {
  std::string data = page_data(page_experts(coefficients, norms, strongest, text, options),
                               coefficients, text, options);
  for (auto at = data.find('<'); at != data.npos; at = data.find('<', at))
    data.replace(at, 1, "\\u003c");  // keeps </script> out of the page
  std::string page(detail::expert_page_html);
  page.replace(page.find("{{data}}"), 8, data);
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span<const char>(page))};
  io::write_file(file, pieces);
}

}  // namespace fmoe

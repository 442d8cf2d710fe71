// SPDX-License-Identifier: MIT
// One HTML page to browse experts and the tokens that they are strongest on, for any layer.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmoe/analysis/expert_page_html.hpp>
#include <fmoe/analysis/expert_statistics.hpp>
#include <fmoe/analysis/top_tokens.hpp>
#include <fmoe/base/json_string.hpp>

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

}  // namespace fmoe

namespace fmoe::detail {

// Appends values of JSON.
class json_writer {
 public:
  void put(const std::string& text) { json_ += json_quoted(text); }
  void put(std::size_t n) { json_ += std::to_string(n); }
  void put(double x) {  // JSON has no other numbers
    if (!std::isfinite(x)) return void(json_ += "null");
    char digits[32];
    json_.append(digits, std::to_chars(digits, std::end(digits), x).ptr);
  }
  template <class T>
  void put(const std::vector<T>& values) {
    list('[', ']', values, [&](const T& v) { put(v); });
  }
  // Calls each(v) for every value, with commas between.
  void list(char open, char close, const auto& values, const auto& each) {
    json_ += open;
    bool is_first = true;
    for (const auto& v : values) {
      if (!std::exchange(is_first, false)) json_ += ',';
      each(v);
    }
    json_ += close;
  }
  void begin() { json_ += '{'; }
  // Begins a member of an object, whose value comes next.
  void key(const char* name) {
    json_ += json_.back() == '{' ? "\"" : ",\"";
    json_ += name;
    json_ += "\":";
  }
  void member(const char* name, const auto& value) {
    key(name);
    put(value);
  }
  void end() { json_ += '}'; }
  std::string take() { return std::move(json_); }

 private:
  std::string json_;
};

}  // namespace fmoe::detail

namespace fmoe {

// Returns the data of a page as JSON: the experts, how many tokens each expert is active on, and
// the text.
inline std::string page_data(const std::vector<page_expert>& experts,
                             const expert_statistics& coefficients, const page_text& text,
                             const page_options& options = {}) {
  detail::json_writer json;
  json.begin();
  json.member("model", options.model);
  json.member("layer", options.layer);
  json.member("most", options.most_frequency);
  json.member("tokens", text.tokens.size());
  json.key("experts");
  json.list('[', ']', experts, [&](const page_expert& e) {
    json.begin();
    json.member("expert", e.expert);
    json.member("frequency", e.frequency);
    json.member("norm", e.norm);
    json.member("mean_coefficient", e.mean_coefficient);
    json.member("words", e.words);
    json.key("tokens");
    json.list('[', ']', e.tokens, [&](const top_tokens::entry& t) {
      const page_text::place& at = text.tokens[t.token];
      const double entry[] = {static_cast<double>(t.token), static_cast<double>(at.passage),
                              static_cast<double>(at.word), t.value};
      json.list('[', ']', entry, [&](double v) { json.put(v); });
    });
    json.end();
  });
  json.member("counts", coefficients.counts());
  json.key("windows");
  json.list('[', ']', text.passages, [&](const page_text::passage& p) {
    json.begin();
    json.member("document", p.title);
    json.member("licence", p.licence);
    json.member("words", p.words);
    json.end();
  });
  json.end();
  return json.take();
}

// Writes one page, which needs nothing else and asks no server, to browse the experts of any layer.
// Throws as page_experts does, and std::ios_base::failure if the file cannot be written.
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
  std::ofstream out;
  out.exceptions(std::ios::failbit | std::ios::badbit);
  out.open(file, std::ios::binary);
  out << page;
  out.close();
}

}  // namespace fmoe

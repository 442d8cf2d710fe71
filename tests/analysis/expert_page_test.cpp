// SPDX-License-Identifier: MIT
#include <fmoe/analysis/expert_page.hpp>

#include <nlohmann/json.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// 40 tokens, in two passages of 20 words each. Expert 0 is active on all of them, expert 1 on token
// 3, expert 2 on token 25, and expert 3 on none.
struct stream {
  stream() : coefficients(4), norms(4), strongest(4, 8) {
    tensor<float, 2> a({40, 4}), added({40, 4});
    for (std::size_t t = 0; t < 40; ++t) a(t, 0) = added(t, 0) = 1;
    a(3, 1) = 0.5f;
    added(3, 1) = 2;
    a(25, 2) = 0.25f;
    added(25, 2) = 6;
    coefficients.add(a);
    norms.add(added);
    strongest.add(added, 0);
    for (std::size_t p = 0; p < 2; ++p) {
      text.passages.push_back({"\"page\" " + std::to_string(p), "MIT", {}});
      for (std::size_t w = 0; w < 20; ++w) {
        text.passages[p].words.push_back(w == 5 ? "</script>" : "word" + std::to_string(w));
        text.tokens.push_back({p, w});
      }
    }
  }

  expert_statistics coefficients, norms;
  top_tokens strongest;
  page_text text;
};

TEST_CASE("a page shows experts that few tokens use, the loudest first", "[page]") {
  const stream s;
  const auto experts = page_experts(s.coefficients, s.norms, s.strongest, s.text);
  REQUIRE(experts.size() == 2);
  CHECK(experts[0].expert == 2);
  CHECK(experts[0].words == std::vector<std::string>{"</script>"});
  CHECK(experts[0].frequency == 1. / 40);
  CHECK(experts[0].norm == Approx(6));
  CHECK(experts[0].mean_coefficient == Approx(0.25 / 40));
  CHECK(experts[1].expert == 1);
  CHECK(experts[1].words == std::vector<std::string>{"word3"});
  CHECK(page_experts(s.coefficients, s.norms, s.strongest, s.text, {.most_frequency = 2}).size() ==
        3);
}

TEST_CASE("the data of a page is JSON", "[page]") {
  const stream s;
  const page_options options{.model = "a \\ model", .layer = "3"};
  const auto experts = page_experts(s.coefficients, s.norms, s.strongest, s.text, options);
  const auto data = nlohmann::json::parse(page_data(experts, s.coefficients, s.text, options));
  CHECK(data["model"] == "a \\ model");
  CHECK(data["layer"] == "3");
  CHECK(data["tokens"] == 40);
  CHECK(data["counts"] == nlohmann::json({40, 1, 1, 0}));
  CHECK(data["experts"].size() == 2);
  CHECK(data["experts"][0]["expert"] == 2);
  CHECK(data["experts"][0]["tokens"] == nlohmann::json({{25, 1, 5, 6}}));
  CHECK(data["windows"][1]["document"] == "\"page\" 1");
  CHECK(data["windows"][0]["words"][5] == "</script>");
}

TEST_CASE("a page is one file, which words cannot leave", "[page]") {
  const stream s;
  const temporary_folder here;
  write_expert_page(here / "page.html", s.coefficients, s.norms, s.strongest, s.text);
  const std::string page = content(here / "page.html");
  CHECK(page.find("{{data}}") == page.npos);
  CHECK(page.find("\\u003c/script>") != page.npos);
  std::size_t ends = 0;
  for (auto at = page.find("</script>"); at != page.npos; at = page.find("</script>", at + 1))
    ++ends;
  std::size_t begins = 0;
  for (auto at = page.find("<script"); at != page.npos; at = page.find("<script", at + 1)) ++begins;
  CHECK(ends == begins);
  CHECK(page.find("http") == page.find("http-equiv"));  // it asks no server
  const io::error e = caught([&] {
    write_expert_page(here / "no/page.html", s.coefficients, s.norms, s.strongest, s.text);
  });
  CHECK(e.code == io::errc::io);
  CHECK(e.file == here / "no/page.html");
  CHECK(std::string(e.what()).ends_with("cannot be created: No such file or directory (io)"));
}

TEST_CASE("a token without a place in the text is refused", "[page]") {
  stream s;
  s.text.tokens[25].word = 20;
  CHECK_THROWS_AS(page_experts(s.coefficients, s.norms, s.strongest, s.text), shape_error);
  s.text.tokens.resize(10);
  CHECK_THROWS_AS(page_experts(s.coefficients, s.norms, s.strongest, s.text), shape_error);
}

}  // namespace

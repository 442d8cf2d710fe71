// SPDX-License-Identifier: MIT
#include <fmoe/planner/order.hpp>

#include <algorithm>
#include <map>
#include <random>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using set = unsigned;  // a set of operands

planner::contraction_operand rows(detail::axis_labels labels) { return {labels, true, false}; }
planner::contraction_operand weight(detail::axis_labels labels) { return {labels, false, true}; }
planner::contraction_operand selection(detail::axis_labels labels, extent keep) {
  return {labels, true, false, keep, true};
}

planner::contraction_problem problem(detail::vector<planner::contraction_operand> operands,
                                     const char* result, std::map<char, extent> extents) {
  return {std::move(operands), result, {extents.begin(), extents.end()}};
}

// Each step brings two sets of operands together, the smaller half first.
using merges = std::vector<std::pair<set, set>>;

merges steps_of(const planner::contraction_problem& p,
                const detail::vector<planner::pairing>& order) {
  merges r;
  std::vector<set> parts;
  for (extent i = 0; i < p.operands.size(); ++i) parts.push_back(set{1} << i);
  for (const planner::pairing& s : order) {
    const set a = parts.at(s.left), b = parts.at(s.right);
    REQUIRE((a & b) == 0);
    r.emplace_back(std::min(a, b), std::max(a, b));
    parts.push_back(a | b);
  }
  REQUIRE(parts.back() == (set{1} << p.operands.size()) - 1);
  std::ranges::sort(r);
  return r;
}

// The letters of the operands, as in "ab", in the steps that join them.
merges expected(std::initializer_list<std::pair<const char*, const char*>> steps) {
  const auto parse = [](const char* s) {
    set r = 0;
    for (; *s != 0; ++s) r |= set{1} << (*s - 'a');
    return r;
  };
  merges r;
  for (const auto& [x, y] : steps)
    r.emplace_back(std::min(parse(x), parse(y)), std::max(parse(x), parse(y)));
  std::ranges::sort(r);
  return r;
}

// Computes the cost of one step and of a whole order again from the rules: a tile of 96 tokens, 2
// FLOPs for a multiply-add, 8 for each byte of the result, and 64 times that beyond 65,536 elements
// for each token.
double cost_of(const planner::contraction_problem& p, set a, set b, double cap = 65536) {
  const std::map<char, extent> lengths(p.extents.begin(), p.extents.end());
  bool tokens = false, parameter = true, all = true;
  for (extent i = 0; i < p.operands.size(); ++i) {
    all = all && p.operands[i].parameter;
    if (((a | b) >> i & 1) == 0) continue;
    tokens = tokens || p.operands[i].tokens;
    parameter = parameter && p.operands[i].parameter;
  }
  if (parameter && !all) return std::numeric_limits<double>::infinity();
  const auto labels_of = [&](set s) {  // labels that a part still has
    std::string own, others(p.result);
    for (extent i = 0; i < p.operands.size(); ++i)
      (s >> i & 1 ? own : others) += p.operands[i].labels;
    std::string r;
    for (const char c : own)
      if ((std::has_single_bit(s) || has(others, c)) && !has(r, c)) r += c;
    return r;
  };
  // As long as the label of a selection is there, it counts its k: in the operand itself, and in
  // others that have the label, too.
  const auto kept_in = [&](set s) -> std::pair<char, double> {
    for (extent i = 0; i < p.operands.size(); ++i) {
      const auto& o = p.operands[i];
      if ((s >> i & 1) == 0 || !o.selection || !has(labels_of(s), o.labels.back())) continue;
      bool shared = std::has_single_bit(s);
      for (extent j = 0; j < p.operands.size(); ++j)
        shared =
            shared || (j != i && (s >> j & 1) != 0 && has(p.operands[j].labels, o.labels.back()));
      if (shared) return {o.labels.back(), static_cast<double>(std::max<extent>(1, o.keep))};
    }
    return {0, 1};
  };
  const auto volume = [&](const std::string& labels, std::pair<char, double> kept) {
    double v = 1;
    std::string seen;
    for (const char c : labels) {
      if (has(seen, c)) continue;
      seen += c;
      v *= kept.first == c ? kept.second : static_cast<double>(lengths.at(c));
    }
    return v;
  };
  const auto first = kept_in(std::max(a, b)), second = kept_in(std::min(a, b));
  const double work = volume(labels_of(a) + labels_of(b), first.first != 0 ? first : second),
               size = volume(labels_of(a | b), kept_in(a | b));
  return (tokens ? 96 : 1) * (2 * work + 32 * size * (size > cap ? 64 : 1));
}

double cost_of(const planner::contraction_problem& p, const merges& steps, double cap = 65536) {
  double sum = 0;
  for (const auto& [a, b] : steps) sum += cost_of(p, a, b, cap);
  return sum;
}

// Returns the cost of the cheapest order, by trying every pair in every stage.
double cheapest(const planner::contraction_problem& p, std::vector<set> parts, double cap = 65536) {
  if (parts.size() == 1) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (extent i = 0; i < parts.size(); ++i)
    for (extent j = i + 1; j < parts.size(); ++j) {
      const double here = cost_of(p, parts[i], parts[j], cap);
      if (here >= best) continue;
      auto rest = parts;
      rest[i] |= rest[j];
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(j));
      best = std::min(best, here + cheapest(p, std::move(rest), cap));
    }
  return best;
}
double cheapest(const planner::contraction_problem& p, double cap = 65536) {
  std::vector<set> parts;
  for (extent i = 0; i < p.operands.size(); ++i) parts.push_back(set{1} << i);
  return cheapest(p, parts, cap);
}

TEST_CASE("the factorized forward passes are found", "[order]") {
  const auto found = [](const planner::contraction_problem& p) {
    return steps_of(p, planner::find_order(p));
  };
  // tn,nr,ti,ir,or->to
  const auto cp = problem({rows("n"), weight("nr"), rows("i"), weight("ir"), weight("or")}, "o",
                          {{'n', 512}, {'r', 512}, {'i', 769}, {'o', 1000}});
  CHECK(found(cp) == expected({{"a", "b"}, {"c", "d"}, {"ab", "cd"}, {"abcd", "e"}}));
  // tn,pnq,ti,qis,sop->to
  const auto tr = problem({rows("n"), weight("pnq"), rows("i"), weight("qis"), weight("sop")}, "o",
                          {{'n', 512}, {'p', 4}, {'q', 4}, {'i', 769}, {'s', 512}, {'o', 1000}});
  CHECK(found(tr) == expected({{"a", "b"}, {"c", "d"}, {"ab", "cd"}, {"abcd", "e"}}));
  // tn,no,th,ho->to, K = 32 of 21,490
  const auto mxd = problem({selection("n", 32), weight("no"), rows("h"), weight("ho")}, "o",
                           {{'n', 21490}, {'o', 768}, {'h', 3072}});
  CHECK(found(mxd) == expected({{"a", "b"}, {"c", "d"}, {"ab", "cd"}}));
  // tn,na,ti,ib,oc,abc->to
  for (const extent r : {extent{64}, extent{384}}) {
    const auto tucker =
        problem({rows("n"), weight("na"), rows("i"), weight("ib"), weight("oc"), weight("abc")},
                "o", {{'n', 128}, {'a', r}, {'i', 768}, {'b', r}, {'o', 768}, {'c', r}});
    const auto steps = found(tucker);
    CHECK(std::ranges::count(steps, std::pair(set{1}, set{2})) == 1);
    CHECK(std::ranges::count(steps, std::pair(set{4}, set{8})) == 1);
    CHECK(steps.back().first + steps.back().second == 63);
    CHECK(std::isfinite(cost_of(tucker, steps)));
  }
}

TEST_CASE("one operand needs no step, two need one", "[order]") {
  CHECK(planner::find_order(problem({rows("n")}, "n", {{'n', 3}})).empty());
  CHECK(planner::find_order(problem({rows("n"), weight("no")}, "o", {{'n', 3}, {'o', 4}})).size() ==
        1);
}

TEST_CASE("a selection counts its kept entries", "[order]") {
  // The gather comes first and the product later, or the reverse: if few entries are kept, the
  // gather of a wide table is cheap.
  const std::map<char, extent> lengths{{'n', 1000}, {'h', 100}, {'o', 100}};
  const auto p = problem({selection("n", 2), rows("h"), weight("nho")}, "o", lengths);
  CHECK(steps_of(p, planner::find_order(p)) == expected({{"a", "c"}, {"ac", "b"}}));
  CHECK(cost_of(p, set{1}, set{4}) == 96 * (2. * 2 * 100 * 100 + 32. * 100 * 100));
  auto dense = p;
  dense.operands[0] = rows("n");
  CHECK(cost_of(dense, set{1}, set{4}) == 96 * (2. * 1000 * 100 * 100 + 32. * 100 * 100));
}

planner::contraction_problem random_problem(std::mt19937& bits, extent operands) {
  const auto number = [&](extent below) { return bits() % below; };
  planner::contraction_problem p;
  const std::string letters = std::string("abcdEF").substr(0, 3 + number(4));
  const bool wide = number(3) == 0;
  for (const char c : letters)
    p.extents.emplace_back(c, wide ? std::array<extent, 4>{40, 300, 900, 2}[number(4)]
                                   : std::array<extent, 6>{0, 1, 2, 7, 30, 100}[number(6)]);
  for (extent i = 0; i < operands; ++i) {
    detail::axis_labels labels;
    for (const char c : letters)
      if (number(2) == 0) labels += c;
    const extent kind = number(10);
    planner::contraction_operand o{labels, kind < 4,
                                   kind >= 5};  // kind 4: a constant that is no parameter
    const extent last =
        labels.empty()
            ? 0
            : std::ranges::find(p.extents, labels.back(), &std::pair<char, extent>::first)->second;
    if (o.tokens && last > 0 && number(3) == 0) {
      o.selection = true;
      o.keep = 1 + number(std::min<extent>(5, last));
    }
    p.operands.push_back(std::move(o));
  }
  for (const char c : letters) {
    const bool bound =
        std::ranges::any_of(p.operands, [&](const auto& o) { return has(o.labels, c); });
    if (bound && number(3) == 0) p.result += c;
  }
  return p;
}

std::string text(const planner::contraction_problem& p) {
  std::string s;
  for (const auto& o : p.operands)
    s += (o.parameter ? "w:" : o.tokens ? "x:" : "c:") + o.labels + (o.selection ? "*" : "") + ' ';
  s += "-> " + p.result;
  for (const auto& [c, n] : p.extents) s += std::string(" ") + c + '=' + std::to_string(n);
  return s;
}

TEST_CASE("the exact search is as cheap as the best of all orders", "[order]") {
  std::mt19937 bits(1);
  int crowded = 0;
  for (int i = 0; i < 400; ++i) {
    const auto p = random_problem(bits, 2 + bits() % 5);
    INFO(text(p));
    const auto steps = steps_of(p, planner::find_order(p));
    const double best = cheapest(p);
    CHECK(cost_of(p, steps) <= best * (1 + 1e-12));
    CHECK(std::isfinite(best));
    const double uncapped = std::numeric_limits<double>::infinity();
    crowded +=
        p.operands.size() <= 4 && cost_of(p, steps, uncapped) > cheapest(p, uncapped) * (1 + 1e-12);
  }
  CHECK(crowded > 0);  // the cap has changed an order
}

TEST_CASE("nine operands, of which two can only be contracted first, are searched as eight",
          "[order]") {
  std::mt19937 bits(3);
  int selections = 0;
  for (int i = 0; i < 200; ++i) {
    auto eight = random_problem(bits, 8);
    eight.operands[0] = rows("a");
    eight.result = {};  // every letter is in the result, so that no other pair is alone
    std::string bound;
    for (const auto& o : eight.operands) bound += o.labels;
    for (const auto& letter : eight.extents)
      if (has(bound, letter.first)) eight.result += letter.first;
    auto nine = eight;
    nine.operands[0] = weight("ga");
    nine.operands.insert(nine.operands.begin(), rows("g"));
    nine.extents.emplace_back('g', 10);
    INFO(text(nine));
    auto steps = steps_of(eight, planner::find_order(eight));
    for (auto& [left, right] : steps)  // the first operand is the first two
      for (set* s : {&left, &right}) *s = (*s << 1) | (*s & 1);
    steps.insert(steps.begin(), {set{1}, set{2}});
    CHECK(steps_of(nine, planner::find_order(nine)) == steps);
    selections += std::ranges::any_of(eight.operands, [](const auto& o) { return o.selection; });
  }
  CHECK(selections > 50);
}

TEST_CASE("no parameter meets a parameter unless all operands are", "[order]") {
  std::mt19937 bits(2);
  for (int i = 0; i < 300; ++i) {
    const auto p = random_problem(bits, 3 + bits() % 10);
    INFO(text(p));
    const auto steps = steps_of(p, planner::find_order(p));
    CHECK(steps.size() + 1 == p.operands.size());
    const auto parameters = [&](set s) {
      for (extent k = 0; k < p.operands.size(); ++k)
        if ((s >> k & 1) != 0 && !p.operands[k].parameter) return false;
      return true;
    };
    if (parameters((set{1} << p.operands.size()) - 1)) continue;
    CHECK(
        std::ranges::none_of(steps, [&](const auto& s) { return parameters(s.first | s.second); }));
  }
  const auto all = problem({weight("ab"), weight("bc"), weight("cd")}, "ad",
                           {{'a', 10}, {'b', 1000}, {'c', 10}, {'d', 1000}});
  CHECK(steps_of(all, planner::find_order(all)) == expected({{"a", "b"}, {"ab", "c"}}));
}

TEST_CASE("eight operands are searched exactly, nine greedily", "[order]") {
  // A chain of matrices follows one row: from left to right is best, and the greedy search finds
  // that, too.
  for (const extent n : {extent{8}, extent{9}, extent{14}}) {
    planner::contraction_problem p;
    p.operands.push_back(rows("a"));
    for (extent i = 0; i + 1 < n; ++i) {
      const char from = static_cast<char>('a' + i), to = static_cast<char>(from + 1);
      p.operands.push_back(weight(detail::axis_labels(1, from) + to));
    }
    for (extent i = 0; i < n; ++i) p.extents.emplace_back(static_cast<char>('a' + i), 50);
    p.result += static_cast<char>('a' + n - 1);
    const auto order = planner::find_order(p);
    const auto steps = steps_of(p, order);
    CHECK(cost_of(p, steps) == 96 * static_cast<double>(n - 1) * (2 * 2500 + 32 * 50));
  }
  static_assert(planner::order_search::exact_limit == 8);
}

TEST_CASE("hierarchies of three to six levels are contracted level by level", "[order]") {
  const std::string experts = "nmlkjh", ranks = "pqrsuvwx";
  for (extent levels = 3; levels <= 6; ++levels)
    for (const extent few : {extent{2}, extent{64}}) {
      INFO(levels << " levels, the last ones of " << few);
      planner::contraction_problem cp{{}, "o", {{'r', 512}, {'i', 769}, {'o', 1000}, {'n', 128}}},
          tr = cp, tucker = cp;
      merges inputs;  // a_e with U_e, and z with its factor
      for (extent e = 0; e <= levels; ++e) {
        const std::string n(1, e == levels ? 'i' : experts[e]), before(1, ranks[e]),
            behind(1, ranks[e + 1]);
        for (planner::contraction_problem* p : {&cp, &tr, &tucker}) p->operands.push_back(rows(n));
        cp.operands.push_back(weight(n + 'r'));
        tr.operands.push_back(weight(before + n + behind));
        tucker.operands.push_back(weight(n + before));
        inputs.emplace_back(set{1} << (2 * e), set{2} << (2 * e));
        if (e != 0 && e != levels)
          for (planner::contraction_problem* p : {&cp, &tr, &tucker})
            p->extents.emplace_back(experts[e], few);
      }
      const char last = ranks[levels + 1];
      cp.operands.push_back(weight("or"));
      tr.operands.push_back(weight(detail::axis_labels(1, last) + "op"));
      tucker.operands.push_back(weight(detail::axis_labels(1, 'o') + last));
      tucker.operands.push_back(weight(ranks.substr(0, levels + 2)));
      for (auto* p : {&tr, &tucker}) {
        const auto is_r = [](const auto& x) { return x.first == 'r'; };
        auto& all = p->extents;
        all.erase(std::remove_if(all.begin(), all.end(), is_r), all.end());
      }
      for (extent e = 0; e <= levels + 1; ++e) {
        tr.extents.emplace_back(ranks[e], e > levels ? 512 : 4);
        tucker.extents.emplace_back(ranks[e], 4);
      }
      for (const planner::contraction_problem* p : {&cp, &tr, &tucker}) {
        const auto steps = steps_of(*p, planner::find_order(*p));
        for (const auto& pair : inputs) CHECK(std::ranges::count(steps, pair) == 1);
      }
      // The factor of the output comes last: earlier products have R numbers for each token, or R x
      // R.
      const set output = set{1} << (2 * levels + 2);
      for (const planner::contraction_problem* p : {&cp, &tr}) {
        const auto steps = steps_of(*p, planner::find_order(*p));
        CHECK(std::ranges::count(steps, std::pair(output - 1, output)) == 1);
      }
      const double sizes = 512 * (128 + static_cast<double>((levels - 1) * few) + 769 + 1000);
      const double e = static_cast<double>(levels), hadamard = 512 * e,
                   made = 512 * (2 * e + 1) + 1000;
      CHECK(cost_of(cp, steps_of(cp, planner::find_order(cp))) ==
            96 * (2 * (sizes + hadamard) + 32 * made));
    }
}

}  // namespace

// SPDX-License-Identifier: MIT
// Compares random einsums of 2 to 6 operands, of every kind of operand, with brute force over the
// labels: the plan, the naive plan and one with tiny limits, in float and double. A failing seed
// prints the line that reproduces it in a test with support/agree.hpp.
#include <fmoe/expr/all_except.hpp>
#include <fmoe/expr/concat.hpp>
#include <fmoe/expr/einsum.hpp>
#include <fmoe/expr/rows.hpp>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <random>
#include <sstream>

#include "support/census.hpp"
#include "support/magnitudes.hpp"
#include "support/run.hpp"
#include "support/seeds.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// It has small integers and operations that keep them exact, so that results are compared for
// equality, or real numbers.
class random_contraction {
 public:
  explicit random_contraction(unsigned seed) : bits_(seed) {
    exact_ = chance(40);
    const extent form = number(20);
    if (form < 4) group_form();
    else if (form < 7) sample_form();
    else if (form < 9) excluding_form();
    else any_form();
    finish();
  }

  ir::graph g;
  ir::node_id root() const { return root_; }
  bool exact() const { return exact_ && bound_ <= 1 << 23; }

  // "const auto x = ...; CHECK(agrees(einsum<"ti,io->to">(x, ...)));"
  std::string text() const { return shared_text_ + "CHECK(agrees(" + text_ + "));"; }

 private:
  static constexpr extent most = 20000;  // combinations of all labels

  struct piece {
    ir::node_id id;
    std::string labels, text;
    double bound = 2;
    bool tokens = false;  // has rows of tokens
  };

  extent number(extent below) { return bits_() % below; }
  bool chance(unsigned percent) { return bits_() % 100 < percent; }
  extent pick(std::initializer_list<extent> from) { return from.begin()[number(from.size())]; }
  void shuffle(auto& list) {
    for (extent k = list.size(); k > 1; --k) std::swap(list[k - 1], list[number(k)]);
  }

  extent& length(char c) { return lengths_[static_cast<unsigned char>(c)]; }
  std::vector<extent> shape(const std::string& labels) {
    std::vector<extent> s;
    for (const char c : labels) s.push_back(length(c));
    return s;
  }
  static std::string in_braces(const std::vector<extent>& s) {
    std::string text = "{";
    for (const extent e : s) text += (text.size() == 1 ? "" : ", ") + std::to_string(e);
    return text + '}';
  }

  piece leaf(const std::string& labels, bool parameter) {
    return leaf(labels, shape(labels), parameter);
  }
  piece leaf(const std::string& labels, std::vector<extent> s, bool parameter) {
    const dtype type = chance(85) ? dtype::float32 : chance(50) ? dtype::bfloat16 : dtype::float16;
    const unsigned seed = ++leaves_;
    const extent n = element_count(s);
    ir::leaf_node l{nullptr, type, s, parameter};
    with_type(type, [&](auto* of) {
      using row = tensor<std::remove_pointer_t<decltype(of)>, 1>;
      l.data = (exact_ ? integers<row>({n}, seed) : random<row>({n}, seed)).shared_storage();
    });
    std::ostringstream text;
    text << (exact_ ? "integers<" : "random<") << (parameter ? "parameter<" : "tensor<")
         << (type == dtype::float32    ? "float"
             : type == dtype::bfloat16 ? "bf16"
                                       : "f16")
         << ", " << s.size() << ">>(" << in_braces(s) << ", " << seed << ')';
    return {g.leaf(std::move(l)), labels, text.str(), 2, !parameter && labels.starts_with('t')};
  }

  // Gives it a name, for expressions that use it twice.
  piece shared(piece p, const char* name) {
    shared_text_ += std::string("const auto ") + name + " = " + p.text + "; ";
    p.text = name;
    return p;
  }

  piece mapped(piece p) {
    using enum pointwise;
    const auto f = exact_ ? std::array{relu, negate, squared_relu}[number(3)]
                          : std::array{relu, gelu, silu, sigmoid, squared_relu, negate}[number(6)];
    if (f == squared_relu) p.bound *= p.bound;
    p.text = f == negate ? "-" + p.text : std::string(name_of(f)) + '(' + p.text + ')';
    p.id = g.map(f, 0, p.id);
    return p;
  }

  piece joined(piece a, const piece& b, bool product) {
    a.id = product ? g.multiply(a.id, b.id) : g.add(a.id, b.id);
    a.text = a.text + (product ? " * " : " + ") + b.text;
    a.text = '(' + a.text + ')';
    a.bound = product ? a.bound * b.bound : a.bound + b.bound;
    a.tokens |= b.tokens;
    return a;
  }

  piece contracted(const std::vector<piece>& in, const std::string& result) {
    piece made{{}, result, "einsum<\"", 1};
    std::vector<ir::node_id> ids;
    std::string all, operands;
    for (const piece& p : in) {
      made.text += (all.empty() && ids.empty() ? "" : ",") + p.labels;
      operands += (ids.empty() ? "" : ", ") + p.text;
      all += p.labels;
      ids.push_back(p.id);
      made.bound *= p.bound;
      made.tokens |= p.tokens;
    }
    for (extent k = 0; k < all.size(); ++k)
      if (!has(result, all[k]) && all.find(all[k]) == k)
        made.bound *= static_cast<double>(std::max<extent>(1, length(all[k])));
    std::string subscripts = made.text.substr(8) + "->" + result;
    made.text += "->" + result + "\">(" + operands + ')';
    made.id = g.einsum(subscripts, std::move(ids));
    return made;
  }

  // Selects some of the last axis of p, at most `most_kept`.
  piece selected(piece p, extent most_kept) {
    const extent n = length(p.labels.back()), k = number(std::min(n, most_kept) + 1);
    static constexpr const char* names[] = {"score", "softmax", "softmax_of_all", "one", "relu"};
    const auto w = static_cast<weighting>(exact_ ? std::array{0, 3, 4}[number(3)]
                                                 : static_cast<int>(number(5)));
    const std::string weights = std::string(", weighting::") + names[static_cast<int>(w)] + ')';
    const extent kind = number(10);
    if (kind == 0 && n == length(p.labels.back())) {
      p.id = g.select({selection_rule::kind::nonzero}, p.id);
      p.text = "nonzeros(" + p.text + ')';
    } else if (kind == 1 && !exact_) {
      p.id = g.select({selection_rule::kind::top_p, 0, 0.6, w}, p.id);
      p.text = "top_p(" + p.text + ", 0.6" + weights;
    } else {
      p.id = g.select({selection_rule::kind::top_k, k, 0, w}, p.id);
      p.text = "top_k(" + p.text + ", " + std::to_string(k) + weights;
    }
    return p;
  }

  // Returns the next factor, with these labels.
  piece operand_of(const std::string& labels) {
    const bool tokens = has(labels, 't');
    const bool parameter = tokens ? chance(1) : chance(65);
    const extent kind = number(20);
    if (!labels.empty() && kind < 4) return selected(leaf(labels, parameter && chance(50)), 6);
    if (!labels.empty() && kind == 4 && length(labels.back()) > 0) {
      auto s = shape(labels);
      --s.back();
      piece p = leaf(labels, s, parameter);
      p.id = g.make(ir::append_node{p.id});
      p.text = "append_one(" + p.text + ')';
      return p;
    }
    if (kind == 5 || kind == 6) return mapped(leaf(labels, parameter));
    if (kind == 7 || kind == 8) {
      const std::string trailing = labels.substr(number(labels.size() + 1));
      const piece left = leaf(labels, parameter),
                  right = leaf(trailing, !has(trailing, 't') && (parameter || chance(60)));
      return joined(left, right, chance(60));
    }
    return leaf(labels, parameter);
  }

  void any_form() {
    std::string all = std::string("abcdefgh").substr(0, 1 + number(6));
    for (const char c : all) length(c) = chance(5) ? 0 : pick({1, 1, 2, 3, 4, 5, 7, 9, 17, 33});
    if (chance(85)) {
      all.insert(0, 1, 't');
      length('t') = chance(2) ? 0 : pick({1, 2, 3, 5, 8, 13, 30});
    }
    limit(all);
    piece common;
    const bool has_common = chance(12);
    if (has_common) common = shared(leaf(some(all, 3), false), "x");
    const extent operands = 2 + number(5);
    while (in_.size() < operands)
      in_.push_back(has_common && chance(50) ? common : operand_of(some(all, 4)));
    std::string used;
    for (const char c : all)
      if (std::ranges::any_of(in_, [&](const piece& p) { return has(p.labels, c); })) used += c;
    exclude_some(used, chance(15));
    for (const char c : used)
      if (chance(c == 't' ? 92 : 40) && result_.size() < 6) result_ += c;
    if (chance(30) && result_.size() > 1) {
      std::string rest = result_.substr(result_[0] == 't' && chance(90));
      result_.resize(result_.size() - rest.size());
      shuffle(rest);
      result_ += rest;
    }
  }

  // Returns labels for an operand: the token first, if any; sometimes a label occurs twice.
  std::string some(const std::string& all, extent at_most) {
    std::string labels;
    for (extent k = number(at_most + 1); k > 0; --k) labels += all[number(all.size())];
    if (!chance(12)) {
      std::string once;
      for (const char c : labels)
        if (!has(once, c)) once += c;
      labels = once;
    }
    if (has(labels, 't') && !chance(3)) {
      std::erase(labels, 't');
      labels.insert(0, 1, 't');
    }
    return labels;
  }

  // Halves the longest axes until the brute force is small enough.
  void limit(const std::string& all) {
    for (;;) {
      extent total = 1;
      for (const char c : all) total *= std::max<extent>(1, length(c));
      if (total <= most) return;
      char longest = all[0];
      for (const char c : all)
        if (length(c) > length(longest)) longest = c;
      length(longest) /= 2;
    }
  }

  void exclude_some(std::string labels, bool wanted) {
    if (!wanted || labels.size() < 2 || std::ranges::none_of(in_, &piece::tokens)) return;
    if (chance(95)) std::erase(labels, 't');
    if (labels.size() < 2) return;
    shuffle(labels);
    labels.resize(2);
    const extent rows = length(labels[0]), columns = length(labels[1]);
    std::vector<index_pair> pairs;
    std::string list;
    const unsigned share = std::array{3u, 20u, 50u, 95u}[number(4)];
    for (extent i = 0; i < rows; ++i)
      for (extent j = 0; j < columns; ++j)
        if (chance(share)) {
          pairs.push_back({i, j});
          list += (list.empty() ? "{" : ", {") + std::to_string(i) + ", " + std::to_string(j) + '}';
        }
    const piece mask{all_except(pairs, rows, columns).lower(g), labels,
                     "all_except(std::vector<index_pair>{" + list + "}, " + std::to_string(rows) +
                         ", " + std::to_string(columns) + ')',
                     1};
    in_.insert(in_.begin() + static_cast<std::ptrdiff_t>(number(in_.size() + 1)), mask);
  }

  // Sometimes adds a parameter, so that a sum over a selection also has a weight, or a product with
  // one.
  void extra_parameter(const std::string& labels) {
    if (!chance(25)) return;
    std::string own;
    for (const char c : labels)
      if (chance(50)) own += c;
    in_.push_back(leaf(own, true));
  }
  std::string shuffled(std::string labels, unsigned percent) {
    if (chance(percent)) shuffle(labels);
    return labels;
  }
  void token_result(std::string labels) { result_ = 't' + shuffled(std::move(labels), 30); }

  // AoE's form: a selection of experts multiplies values that each expert makes from x, and a
  // product with a weight sums over both.
  void group_form() {
    length('t') = pick({0, 1, 2, 5, 9, 20});
    length('d') = pick({1, 2, 3, 5});
    length('n') = pick({1, 2, 3, 5, 8});
    length('w') = pick({1, 2, 4, 7});
    length('l') = pick({1, 2, 3});
    length('o') = pick({1, 3, 5, 8});
    const piece x = shared(leaf("td", false), "x");
    const std::string made = "t" + shuffled("nw", 25);
    const auto low_rank = [&] { return contracted({x, leaf(shuffled("dnl", 50), true)}, "tnl"); };
    const bool cached = exact_ && chance(40);  // the scores are norms of it
    piece cache, scores;
    if (cached) {
      cache = shared(low_rank(), "c");
      scores = {g.norm(row_norm::l1, cache.id), "tn", "norm(row_norm::l1, c)", cache.bound * 3,
                true};
    } else {
      scores = leaf("tn", false);
      if (chance(20)) scores = mapped(scores);
    }
    const auto once = [&](bool by_rank) {
      if (!by_rank) return contracted({x, leaf(shuffled("ndw", 50), true)}, made);
      const piece low = cached ? cache : low_rank();
      return contracted({low, leaf(shuffled("nlw", 50), true)}, made);
    };
    piece values = once(cached || chance(35));
    if (chance(35)) {
      const bool product =
          chance(30);  // by itself: compilers differ in which argument they draw first
      values = joined(values, leaf(chance(50) ? made.substr(1) : made.substr(2), true), product);
    }
    if (chance(65)) values = mapped(values);
    if (chance(40)) values = joined(values, once(chance(25)), true);
    in_ = {selected(scores, 3), values, leaf(shuffled("nwo", 60), true)};
    extra_parameter("nwo");
    shuffle(in_);
    token_result(chance(85) ? "o" : chance(50) ? "wo" : "");
  }

  // PEER's form: few of many experts of one neuron each.
  void sample_form() {
    const bool heads = chance(60);
    length('t') = pick({0, 1, 2, 3, 5});
    length('d') = pick({1, 2, 3, 7});
    length('h') = heads ? pick({1, 2, 3}) : 1;
    length('e') = pick({48, 70, 100, 150});
    length('o') = pick({1, 2, 3, 5});
    const piece x = shared(leaf("td", false), "x");
    const bool separate = heads && chance(40);
    const std::string own = separate ? "he" : "e", rows = heads ? "the" : "te";
    piece numbers = contracted({x, leaf(shuffled(own + 'd', 40), true)}, 't' + own);
    for (extent k = number(3); k > 0; --k) numbers = mapped(numbers);
    in_ = {selected(leaf(rows, false), heads ? 1 : 4), numbers,
           leaf(shuffled(own + 'o', 40), true)};
    extra_parameter("o");
    shuffle(in_);
    token_result(chance(90) ? "o" : heads ? "ho" : "eo");
  }

  // Monet's form: routings over two halves, hidden units of one half, and pairs that are left out.
  void excluding_form() {
    length('t') = pick({0, 1, 2, 5, 9});
    length('p') = pick({1, 2, 3});
    length('i') = pick({1, 2, 5, 9});
    length('j') = pick({1, 3, 4, 7});
    length('m') = pick({1, 2, 5});
    limit("tpijm");
    const auto routing = [&](const char* labels) {
      return chance(40) ? selected(leaf(labels, false), 3) : leaf(labels, false);
    };
    in_ = {routing("tpi"), routing("tpj")};
    const bool hidden = chance(70);
    if (hidden) in_.push_back(chance(50) ? mapped(leaf("tim", false)) : leaf("tim", false));
    extra_parameter("jm");
    shuffle(in_);
    std::string labels;
    for (const char c : hidden ? std::string("pijm") : std::string("pij"))
      if (chance(c == 'p' ? 15 : 50)) labels += c;
    exclude_some("ij", true);
    token_result(labels);
  }

  void finish() {
    const piece made = contracted(in_, result_);
    root_ = made.id;
    text_ = made.text;
    bound_ = made.bound;
  }

  std::mt19937 bits_;
  bool exact_ = false;
  unsigned leaves_ = 0;
  std::array<extent, 128> lengths_{};
  std::vector<piece> in_;
  std::string result_, text_, shared_text_;
  ir::node_id root_{};
  double bound_ = 0;
};

// True for an einsum of parameters only; a value made from parameters counts as one.
bool multiplies_parameters(const ir::graph& g) {
  std::vector<bool> parameter;
  const auto is = [&](ir::node_id id) { return parameter[static_cast<extent>(id)]; };
  for (const ir::node_id id : g.ids()) {
    const auto& op = g[id].op;
    bool all = false;
    if (const auto* l = get_if<ir::leaf_node>(&op)) all = l->parameter;
    if (const auto* m = get_if<ir::map_node>(&op)) all = is(m->arg);
    if (const auto* s = get_if<ir::select_node>(&op)) all = is(s->arg);
    if (const auto* a = get_if<ir::append_node>(&op)) all = is(a->arg);
    if (const auto* a = get_if<ir::join_node>(&op)) all = is(a->left) && is(a->right);
    if (const auto* e = get_if<ir::einsum_node>(&op)) {
      all = std::ranges::all_of(e->args, is);
      if (all) return true;
    }
    parameter.push_back(all);
  }
  return false;
}

bool multiplies_parameters(const planner::program& p) {
  return std::ranges::any_of(p.operations, [&](const planner::operation& o) {
    using namespace planner;
    const auto parameter = [&](const planner::use& u) { return p[u.value].parameter; };
    if (is<pointwise_op>(o))
      return parameter(o.in[0]) && std::ranges::any_of(o.passes, [&](const planner::pass& q) {
               return q.what == pass_kind::multiply && p[q.other].parameter;
             });
    const bool is_product = is<product_op, gemm_op, batched_op, gather_op, sample_op>(o);
    return is_product && std::ranges::all_of(o.in, parameter);
  });
}

// Collects whether the checks of a contraction hold, and prints its line if one does not.
class verdict {
 public:
  explicit verdict(const random_contraction& e) : contraction_(e) {}
  // It is printed separately, because Catch2 breaks lines.
  ~verdict() {
    if (!good_ || std::uncaught_exceptions() > 0) std::cerr << contraction_.text() << std::endl;
  }

  void operator()(const char* what, bool holds) {
    INFO(what);
    good_ &= holds;
    CHECK(holds);
  }
  void near(const char* what, double error, double tolerance) {
    CAPTURE(error);
    (*this)(what, error <= tolerance);
  }

 private:
  const random_contraction& contraction_;
  bool good_ = true;
};

template <class T>
void check(verdict& holds, const random_contraction& e, const std::vector<double>& expected,
           const std::vector<double>& magnitude, double tolerance) {
  const runner<T> normal(e.g, e.root(), all, usual_limits()),
      cut(e.g, e.root(), all, tiny_limits()), original(e.g, e.root(), all, naive_limits());
  const extent tokens = normal.steps().token_count;
  const std::vector<T> y = normal.all();
  REQUIRE(y.size() == expected.size());
  holds.near("the plan", error_to_magnitudes(y, expected, magnitude), tolerance);
  holds.near("the naive plan", error_to_magnitudes(original.all(), expected, magnitude), tolerance);
  holds("tiny limits", same_bits(cut.all(), y));
  for (const runner<T>* r : {&normal, &cut, &original})
    holds("placement", placement_is_sound(r->steps()));
  if (normal.steps().tokens && tokens != 0)
    holds("rows", same_bits(cut.rows(0, tokens, std::min<extent>(3, cut.steps().tile)), y));
}

void check(unsigned seed, census& seen) {
  const random_contraction e(seed);
  INFO("FMOE_SEED=" << seed << '\n' << e.text());
  verdict holds(e);
  const oracle values(e.g);
  const magnitudes scales(e.g, values);
  check<float>(holds, e, values[e.root()], scales[e.root()], e.exact() ? 0 : 2e-5);
  check<double>(holds, e, values[e.root()], scales[e.root()], e.exact() ? 0 : 1e-13);
  const auto on_reference = by_reference(e.g, e.root());
  holds.near("the reference", error_to_magnitudes(on_reference, values[e.root()], scales[e.root()]),
             e.exact() ? 0 : 1e-13);
  const planner::plan_options options = on_this_cpu<float>(usual_limits());
  holds("no product of parameters",
        multiplies_parameters(e.g) || !multiplies_parameters(make_program(e.g, e.root(), options)));
  seen.add(make_plan(e.g, e.root(), all, options));
}

TEST_CASE("random contractions agree with brute force") {
  census seen;
  const bool all = for_each_seed(1700, [&](unsigned seed) { check(seed, seen); });
  if (std::getenv("FMOE_CENSUS") != nullptr)
    for (const auto& [what, n] : seen.plans) WARN(what << ' ' << n);
  if (all)
    seen.require(20,
                 {"append",          "batched",        "exclude", "expand",        "gather",
                  "gather epilogue", "gather of rows", "gemm",    "gemm epilogue", "group",
                  "many rows",       "no tokens",      "nonzero", "once batched",  "once expand",
                  "once select",     "pointwise",      "reduce",  "sample",        "token_sum",
                  "top_k",           "top_p"});
}

bool drew(unsigned seed, const operand auto& line) {
  const random_contraction e(seed);
  return oracle(e.g)[e.root()] == reference(line);
}

TEST_CASE("the line of a seed is what it drew") {
  CHECK(drew(
      2, einsum<"tpj,tim,ji,tpi,j->t">(
             random<tensor<f16, 3>>({1, 1, 7}, 2), relu(random<tensor<bf16, 3>>({1, 5, 1}, 3)),
             all_except(
                 std::vector<index_pair>{{0, 2}, {2, 0}, {4, 0}, {4, 1}, {5, 2}, {5, 4}, {6, 3}}, 7,
                 5),
             top_p(random<tensor<float, 3>>({1, 1, 5}, 1), 0.6, weighting::score),
             random<parameter<float, 1>>({7}, 4))));
  {
    const auto x = integers<tensor<float, 2>>({2, 1}, 1);
    CHECK(drew(10, einsum<"the,the,eho->to">(nonzeros(integers<tensor<float, 3>>({2, 3, 150}, 3)),
                                             squared_relu(einsum<"td,hed->the">(
                                                 x, integers<parameter<float, 3>>({3, 150, 1}, 2))),
                                             integers<parameter<float, 3>>({150, 3, 1}, 4))));
  }
  {
    const auto x = random<tensor<bf16, 2>>({9, 2}, 1);
    CHECK(
        drew(12, einsum<"tn,tnw,nwo->to">(
                     top_k(random<tensor<f16, 2>>({9, 5}, 2), 1, weighting::softmax),
                     sigmoid((einsum<"td,nwd->tnw">(x, random<parameter<float, 3>>({5, 4, 2}, 3)) +
                              random<parameter<float, 2>>({5, 4}, 4))),
                     random<parameter<float, 3>>({5, 4, 8}, 5))));
  }
  CHECK(drew(
      15,
      einsum<"taa,taa,a,ta,ta,ta->t">(
          integers<tensor<float, 3>>({1, 9, 9}, 1), integers<tensor<float, 3>>({1, 9, 9}, 2),
          append_one(integers<parameter<float, 1>>({8}, 3)), integers<tensor<float, 2>>({1, 9}, 4),
          append_one(integers<tensor<float, 2>>({1, 8}, 5)),
          (integers<tensor<float, 2>>({1, 9}, 6) + integers<tensor<float, 2>>({1, 9}, 7)))));
  {
    const auto x = integers<tensor<float, 2>>({20, 2}, 1);
    const auto c = einsum<"td,dnl->tnl">(x, integers<parameter<float, 3>>({2, 3, 3}, 2));
    CHECK(drew(40, einsum<"nwo,twn,tn,nwo->to">(
                       integers<parameter<float, 3>>({3, 1, 3}, 5),
                       squared_relu(
                           (einsum<"tnl,nwl->twn">(c, integers<parameter<float, 3>>({3, 1, 3}, 3)) +
                            integers<parameter<float, 2>>({1, 3}, 4))),
                       top_k(norm(row_norm::l1, c), 2, weighting::relu),
                       integers<parameter<float, 3>>({3, 1, 3}, 6))));
  }
}

// Computes it in memory that is not zero by chance.
template <class T>
double error_of_line(const operand auto& line) {
  ir::graph g;
  const ir::node_id root = line.lower(g);
  const oracle values(g);
  const extent tokens = g.shape(root)[0];
  double worst = 0;
  for (const planner::plan_options& o : {usual_limits(), tiny_limits(), naive_limits()})
    worst = std::max(worst, error_to_magnitudes(runner<T>(g, root, tokens, o).all(tokens),
                                                values[root], magnitudes(g, values)[root]));
  return worst;
}

TEST_CASE("contractions that once failed") {
  const auto holds = [](const auto& line) {
    return error_of_line<float>(line) <= 2e-5 && error_of_line<double>(line) <= 1e-13;
  };
  // The product of the selection and the values is the result.
  CHECK(holds(einsum<"ta,tab->tab">(top_k(random<tensor<float, 2>>({3, 7}, 1), 2),
                                    random<tensor<float, 3>>({3, 7, 4}, 2))));
  // There is nothing to select from, and there are no rows of selections.
  CHECK(holds(
      einsum<"ab,tab->t">(random<parameter<float, 2>>({33, 0}, 1),
                          top_k(random<tensor<float, 3>>({2, 33, 0}, 2), 0, weighting::relu))));
  CHECK(holds(einsum<"ta,ab->tb">(top_k(random<tensor<float, 2>>({3, 0}, 1), 0, weighting::one),
                                  random<parameter<float, 2>>({0, 5}, 2))));
  CHECK(holds(einsum<"ab,tab->t">(random<parameter<float, 2>>({0, 5}, 1),
                                  top_k(random<tensor<float, 3>>({2, 0, 5}, 2), 2))));
}

}  // namespace

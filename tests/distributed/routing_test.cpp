// SPDX-License-Identifier: MIT
// Tokens travel to the ranks that have their experts: sparse mixtures, AoE and PEER.
#include "../support/shard_checks.hpp"

#include <fmoe/aoe.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/peer.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// Rows are so long that the search routes tokens.
constexpr std::size_t width = 640;

moe<float> sparse_mixture(std::size_t experts = 21, std::size_t hidden = 6) {
  moe<float> l;
  fill_with(l.router, {width, experts}, 1, 1000);
  fill_with(l.activated, {experts, width, hidden}, 2, 1000);
  fill_with(l.linear, {experts, width, hidden}, 3, 1000);
  fill_with(l.output, {experts, hidden, width}, 4, 1000);
  return l;
}

aoe<float> autonomous() {
  aoe<float> l;
  fill_with(l.down, {width, 21, 4}, 1, 1000);
  fill_with(l.up, {21, 4, 5}, 2, 1000);
  fill_with(l.linear, {21, width, 5}, 3, 1000);
  fill_with(l.output, {21, 5, width}, 4, 1000);
  fill_with(l.bias, {width}, 5, 1000);
  return l;
}

peer<float> retrieval() {
  peer<float> l;
  fill_with(l.queries, {64, 1024}, 1, 1000);
  fill_with(l.keys, {2, 64, 2, 256}, 2, 1000);
  fill_with(l.down, {4096, 64}, 3, 1000);
  fill_with(l.up, {4096, 64}, 4, 1000);
  l.active = 3;
  return l;
}

// The plan of a layer whose experts are cut, with these parameters whole.
template <class Layer>
void require_in_plan(const sharded<Layer>& layer, const std::string& text) {
  const std::string plan = compile(layer, 8, {.threads = 1}).explain();
  require(plan.find(text) != plan.npos, text + " in\n" + plan);
}

template <class Layer>
void check_routed(communicator& ranks, const Layer& layer, const shard_options& how,
                  const tensor<float, 2>& x, const std::string& name) {
  const auto y = result_on(ranks, shard(layer, ranks, 'n', how), x, 2);
  const double error = difference(y, result_alone(layer, x));
  require(error <= 4e-6,
          name + " on " + std::to_string(ranks.size()) + " ranks: " + std::to_string(error));
}

TEST_CASE("mixtures with zero experts, and those of a latent, are cut along their experts") {
  for (const std::size_t P : {2u, 3u})
    run_on_threads(P, [](communicator& ranks) {
      auto zeros = sparse_mixture();
      zeros.route.active = 4;
      fill_with(zeros.zero_router, {width, 7}, 5, 1000);
      auto latent = sparse_mixture();
      fill_with(latent.activated, {21, 320, 6}, 2, 1000);
      fill_with(latent.linear, {21, 320, 6}, 3, 1000);
      fill_with(latent.output, {21, 6, 320}, 4, 1000);
      fill_with(latent.latent_down, {width, 320}, 6, 1000);
      fill_with(latent.latent_up, {320, width}, 7, 1000);
      for (const shard_options& how : {shard_options{0, {"router"}}, shard_options{}}) {
        check_routed(ranks, zeros, how, rows(23, width, 1000), "a mixture with zero experts");
        check_routed(ranks, latent, how, rows(23, width, 1000), "a mixture of a latent");
      }
    });
}

TEST_CASE("tokens of a sparse mixture travel to their experts and back") {
  for (const std::size_t P : {2u, 3u, 4u, 7u})
    run_on_threads(P, [](communicator& ranks) {
      auto layer = sparse_mixture();
      const shard_options how{0, {"router"}};
      require_in_plan(shard(layer, ranks, 'n', how), "2 a token, which routes tokens");
      require_in_plan(shard(layer, ranks, 'n', how), "routed tokens: ");
      for (const weighting w : {weighting::softmax, weighting::softmax_of_all}) {
        layer.route.weights = w;
        check_routed(ranks, layer, how, rows(23, width, 1000), "a sparse mixture");
        check_routed(ranks, layer, {}, rows(23, width, 1000),
                     "a sparse mixture whose router is cut");
      }
      layer.route.how = routing::by::top_p;
      check_routed(ranks, layer, how, rows(23, width, 1000), "a sparse mixture with top-P");
      layer.route = {};
      layer.route.weights = weighting::score;
      layer.route.scoring = score_function::sparse_mixer;
      layer.route.jitter = 0.4;
      check_routed(ranks, layer, how, rows(23, width, 1000), "a sparse mixer");
      check_routed(ranks, layer, {}, rows(23, width, 1000), "a sparse mixer whose router is cut");
    });
}

TEST_CASE("no token is dropped where all select the same experts, or ranks have no tokens") {
  run_on_threads(7, [](communicator& ranks) {
    const auto layer = sparse_mixture();
    auto x = rows(40, width, 1000);
    for (std::size_t t = 1; t < 40; ++t) std::copy_n(x.data(), width, x.data() + t * width);
    check_routed(ranks, layer, {0, {"router"}}, x, "equal tokens");
    check_routed(ranks, layer, {0, {"router"}}, rows(3, width, 1000), "three tokens");
  });
}

TEST_CASE("AoE sends to the selected experts what each made of its token") {
  for (const std::size_t P : {2u, 4u, 7u})
    run_on_threads(P, [](communicator& ranks) {
      const auto layer = autonomous();
      const shard_options how{0, {"W_down"}};
      require_in_plan(shard(layer, ranks, 'n', how), "all_to_all of 4 numbers of each selected");
      check_routed(ranks, layer, how, rows(23, width, 1000), "AoE");
      check_routed(ranks, layer, {2 * ranks.size(), {"W_down"}}, rows(23, width, 1000), "AoE");
    });
}

TEST_CASE("tokens whose router is cut are there, and their results travel back") {
  const auto layer = sparse_mixture(600, 1);
  for (const std::size_t P : {3u, 4u})
    run_on_threads(P, [&](communicator& ranks) {
      require_in_plan(shard(layer, ranks, 'n'), "of the numbers of the tokens that are routed");
      require_in_plan(shard(layer, ranks, 'n'), "take routed rows of 640");
      check_routed(ranks, layer, {}, rows(23, width, 1000), "a sparse mixture");
    });
}

template <class Layer>
void check_bits(const Layer& layer, char label, const std::vector<std::string>& whole,
                const tensor<float, 2>& x) {
  run_on_threads(1, [&](communicator& ranks) {
    require(same_bits(result_on(ranks, shard(layer, ranks, label, {1, whole}), x),
                      result_alone(layer, x)),
            "the bits of one part");
  });
  tensor<float, 2> first;
  for (const std::size_t P : {1u, 2u, 4u, 8u})
    run_on_threads(P, [&](communicator& ranks) {
      const auto y = result_on(ranks, shard(layer, ranks, label, {8, whole}), x);
      if (ranks.rank() != 0) return;
      if (P == 1) first = y;
      require(same_bits(first, y), "the bits of " + std::to_string(P) + " ranks");
    });
}

TEST_CASE("routed tokens have the same bits for 1, 2, 4 and 8 ranks") {
  const auto x = rows(23, width, 1000);
  auto layer = sparse_mixture();
  for (const weighting w : {weighting::softmax, weighting::softmax_of_all}) {
    layer.route.weights = w;
    check_bits(layer, 'n', {"router"}, x);
    check_bits(layer, 'n', {}, x);
  }
  check_bits(autonomous(), 'n', {"W_down"}, x);
  check_bits(retrieval(), 'e', {}, rows(23, 64, 1000));
}

// Tokens t and t + 28 select the same two of 8 experts, and of 28 neighbours each selects another
// pair, so that the load is even.
tensor<float, 2> pairs(std::size_t tokens) {
  tensor<float, 2> x = rows(tokens, width, 1000);
  for (std::size_t t = 0, a = 0, b = 1; t < tokens; ++t) {
    std::fill_n(x.data() + width * t, 8, 0.f);
    x(t, a) = 2;
    x(t, b) = 1;
    if (++b == 8) b = ++a + 1;
    if (a < 7) continue;
    a = 0;
    b = 1;
  }
  return x;
}
moe<float> router_of_pairs() {
  auto layer = sparse_mixture(8);
  std::fill_n(layer.router.data(), layer.router.size(), 0.f);
  for (std::size_t n = 0; n < 8; ++n) layer.router.data()[n * 8 + n] = 1;
  return layer;
}

TEST_CASE("under even load a rank receives the bytes of the formula") {
  for (const std::size_t P : {2u, 4u})
    run_on_threads(P, [P](communicator& ranks) {
      const std::size_t own = 56, T = own * P;
      auto forward =
          compile(shard(router_of_pairs(), ranks, 'n', {0, {"router"}}), own, {.threads = 1});
      const double others = static_cast<double>(P - 1) / static_cast<double>(P),
                   reached = P == 2 ? 1 - 4. * 3 / (8 * 7) : 1 - 6. * 5 / (8 * 7),
                   formula = 8 * width * reached * others + 8 * 2 * others / static_cast<double>(P);
      require(std::abs(forward.received_a_token() - formula) < 1e-9, forward.explain());
      const auto x = pairs(own);
      tensor<float, 2> y({own, width});
      const std::size_t before = ranks.received();
      forward(x, y);
      const auto received = static_cast<double>(ranks.received() - before),
                 a_call = static_cast<double>((24 + 8) * (P - 1));
      require(std::abs(received - a_call - formula * static_cast<double>(T)) < 1e-6,
              "received " + std::to_string(received));
      require(forward.explain().find("expected under even load") != std::string::npos,
              forward.explain());
    });
}

TEST_CASE("the bytes that travel by a selection, under even load") {
  using enum detail::spread;
  const detail::routing_load load{2, 3, 16};  // 3 heads select 2 of 16
  const double reached = 1 - std::pow(12. * 11 / (16 * 15), 3);
  CHECK(std::abs(load.reached(4) - reached) < 1e-12);
  // Of a token: 6 entries with 7 numbers each, of 4 bytes; 3 of 4 ranks are others.
  const auto bytes = [&](detail::spread from, detail::spread to, detail::travel by) {
    return detail::bytes_to_move({from, to, by, 6 * 7 * 8, 7, load}, 4, 4);
  };
  CHECK(bytes(tokens, routed_label, detail::travel::sampled) == 6 * 7 * 4 * 0.75 / 4);
  CHECK(bytes(tokens, routed_label, detail::travel::entries) == 6 * 8 * 0.75 / 4);
  CHECK(std::abs(bytes(label, routed_label, detail::travel::entries) - 4 * reached * 0.75) < 1e-12);
}

// Experts each token selected, of `experts` in all, as the rank sees them that has some of them.
struct load {
  std::size_t tokens = 0, entries = 0;  // of other ranks that come here
};
load load_of(const tensor<float, 2>& a, std::size_t P, std::size_t rank) {
  const auto [tokens, experts] = a.shape();
  const auto begin = [P](std::size_t n, std::size_t r) { return detail::begin_of_part(n, P, r); };
  load found;
  for (std::size_t t = 0; t < tokens; ++t) {
    if (t >= begin(tokens, rank) && t < begin(tokens, rank + 1)) continue;
    std::size_t entries = 0;
    for (std::size_t n = begin(experts, rank); n < begin(experts, rank + 1); ++n)
      entries += a(t, n) != 0;
    found.entries += entries;
    found.tokens += entries != 0;
  }
  return found;
}

TEST_CASE("tokens and entries travel with exact counts") {
  const auto x = rows(96, width, 1000);
  const auto layer = autonomous();
  const auto a = evaluate(layer.coefficients(x));
  run_on_threads(4, [&](communicator& ranks) {
    const load here = load_of(a, 4, ranks.rank());
    std::size_t back = 0;  // results of this rank's tokens, from others
    for (std::size_t r = 0; r < 4; ++r) {
      const std::size_t first = 24 * ranks.rank(), own = detail::begin_of_part(21, 4, r),
                        end = detail::begin_of_part(21, 4, r + 1);
      for (std::size_t t = first; t < first + 24 && r != ranks.rank(); ++t)
        back += std::any_of(a.data() + t * 21 + own, a.data() + t * 21 + end,
                            [](float v) { return v != 0; });
    }
    auto forward = compile(shard(layer, ranks, 'n', {0, {"W_down"}}), 24, {.threads = 1});
    tensor<float, 2> mine({24, width}), y({24, width});
    std::copy_n(x.data() + 24 * width * ranks.rank(), mine.size(), mine.data());
    const std::size_t before = ranks.received();
    forward(mine, y);
    const std::size_t expected =
        (24 + 8) * 3 + here.entries * (8 + 4 * 4) + (here.tokens + back) * 4 * width;
    require(ranks.received() - before == expected, std::to_string(ranks.received() - before) +
                                                       " bytes, not " + std::to_string(expected) +
                                                       '\n' + forward.explain());
  });
}

TEST_CASE("PEER's selected pairs travel, not rows of all experts") {
  for (const std::size_t P : {2u, 3u})
    run_on_threads(P, [](communicator& ranks) {
      const auto layer = retrieval();
      const auto part = shard(layer, ranks, 'e');
      require_in_plan(part, "of the entries of a selection, 6 a token");
      const auto x = rows(24, 64, 1000);
      const double error = difference(result_on(ranks, part, x), result_alone(layer, x));
      require(error <= 4e-6, "PEER: " + std::to_string(error));
    });
}

// The selected scores of a router, weighted in any way.
struct weighted_selection {
  parameter<float, 2> gate;  // i n
  weighting weights = weighting::softmax;
  std::size_t active = 5;

  auto operator()(const operand_of<2> auto& x) const {
    return top_k(einsum<"ti,in->tn">(x, gate), active, weights);
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"gate", presence::required, "in"}, layer.gate);
  }
};

TEST_CASE("weighted selections over ranks are those of one process") {
  for (const std::size_t P : {1u, 2u, 3u, 7u})
    run_on_threads(P, [P](communicator& ranks) {
      for (const weighting w : {weighting::score, weighting::softmax, weighting::softmax_of_all,
                                weighting::one, weighting::relu})
        for (const std::size_t active : {1u, 5u, 37u})
          for (const int steps : {1, 50}) {
            weighted_selection layer{{}, w, active};
            fill_with(layer.gate, {6, 37}, 4, steps);
            const auto x = rows(19, 6, steps);
            const auto expected = result_alone(layer, x),
                       y = result_on(ranks, shard(layer, ranks, 'n', {2 * P, {}}), x);
            for (std::size_t i = 0; i < y.size(); ++i) {
              const float a = std::as_const(y).data()[i], b = expected.data()[i];
              require((a != 0) == (b != 0) && std::abs(a - b) <= 4e-7f * std::max(1.f, b),
                      "a selection of " + std::to_string(active) + ": " + std::to_string(a) +
                          " and " + std::to_string(b));
            }
          }
    });
}

// A sum of rows of selected experts, whose scores need the router of all ranks.
struct weighted_rows {
  parameter<float, 2> gate, scales;  // i n, n o

  auto operator()(const operand_of<2> auto& x) const {
    return einsum<"tn,no->to">(top_k(einsum<"ti,in->tn">(x, gate), 5, weighting::softmax), scales);
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"gate", presence::required, "in"}, layer.gate);
    visit(released_name{"scales", presence::required, "no"}, layer.scales);
  }
};

TEST_CASE("a selection weighted by a softmax moves K pairs and a sum") {
  run_on_threads(4, [](communicator& ranks) {
    weighted_rows layer;
    fill_with(layer.gate, {32, 4096}, 1, 1000);
    fill_with(layer.scales, {4096, 16}, 2, 1000);
    auto forward = compile(shard(layer, ranks, 'n'), 16, {.threads = 1});
    require(forward.received_a_token() == (4 * (32 + 16) + 8 * 5 + 16) * 0.75, forward.explain());
    const auto x = rows(16, 32, 1000);
    tensor<float, 2> y({16, 16});
    const std::size_t before = ranks.received();
    forward(x, y);
    require(ranks.received() - before == (4 * (32 + 16) + 8 * 5 + 16) * 48 + 24 * 3, "received");
  });
}

TEST_CASE("places of entries that lie far apart have entries between them") {
  for (const std::size_t far : {all, std::size_t{1}})
    run_on_threads(2, [far](communicator& ranks) {
      const detail::axis_cut cut{'n', 10, 2, 2, ranks.rank()};
      const detail::call_tokens tokens{{9, 9}, ranks.rank()};
      detail::list_by<detail::array_id, std::vector<float>> arrays;
      std::vector<float> mine(90, 0), all(18 * 5, -1);
      for (const std::size_t at : {3u, 47u, 85u}) mine[at] = 1.f + static_cast<float>(at);
      const auto from = arrays.add(mine), to = arrays.add(all);
      detail::token_routes routes;
      detail::stage_exchange e{.id = {},
                               .from_how = detail::spread::tokens,
                               .to_how = detail::spread::label,
                               .merges = false,
                               .from = {from},
                               .to = {to},
                               .by = detail::travel::entries};
      detail::route_run<float>{ranks, cut, tokens, arrays, routes, far}.run(e);
      for (std::size_t t = 0; t < 18; ++t)
        for (std::size_t n = 0; n < 5; ++n)
          require(arrays[to][t * 5 + n] == mine[t % 9 * 10 + 5 * ranks.rank() + n], "an entry");
    });
}

TEST_CASE("load_shard reads whole what stays whole") {
  const temporary_folder folder;
  const auto layer = autonomous();
  save(layer, folder / "aoe.safetensors");
  const auto x = rows(23, width, 1000);
  run_on_threads(3, [&](communicator& ranks) {
    const auto held = shard(layer, ranks, 'n', {.whole = {"W_down"}});
    const shard_options how{0, {"W_down"}};
    const auto cut = load_shard<aoe<float>>(folder / "aoe.safetensors", ranks, 'n'),
               part = load_shard<aoe<float>>(folder / "aoe.safetensors", ranks, 'n', {}, how);
    require(part.bytes_read - cut.bytes_read == 4 * width * 14 * 4, "the bytes of W_down");
    require(same_bits(result_on(ranks, part, x), result_on(ranks, held, x)),
            "the bits of the loaded layer");
    const std::string got = sentence_of([&] { shard(layer, ranks, 'n', {0, {"W_left"}}); });
    require(got.find("[shard] no parameter is called W_left") != got.npos, got);
  });
}

}  // namespace

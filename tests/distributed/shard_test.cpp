// SPDX-License-Identifier: MIT
#include <fmoe/aoe.hpp>
#include <fmoe/peer.hpp>

#include "../support/catch.hpp"
#include "../support/routed_monet.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("MxD over ranks agrees with one process, and selections are the same") {
  for (const std::size_t P : {1u, 2u, 3u, 4u}) run_on_threads(P, check_layers);
}

TEST_CASE("one rank and one part have the bits of plain fmoe") {
  const auto layer = mixture_of_decoders(1000);
  const auto x = rows(23, 12, 1000);
  run_on_threads(1, [&](communicator& ranks) {
    const auto y = result_on(ranks, shard(layer, ranks, 'n'), x);
    require(same_bits(y, result_alone(layer, x)), "the bits of one part");
  });
}

TEST_CASE("a fixed number of parts has the same bits for 1, 2, 4 and 8 ranks") {
  const auto x = rows(23, 12, 1000);
  for (const char label : {'n', 'h'}) {
    tensor<float, 2> first;
    for (const std::size_t P : {1u, 2u, 4u, 8u})
      run_on_threads(P, [&](communicator& ranks) {
        const auto layer = shard(mixture_of_decoders(1000), ranks, label, {.parts = 8});
        const auto y = result_on(ranks, layer, x);
        if (ranks.rank() != 0) return;
        if (P == 1) first = y;
        require(same_bits(first, y), "the bits of " + std::to_string(P) + " ranks");
      });
  }
}

// Rows [12, 12] with these strides between tokens and between numbers.
struct strided_rows {
  float* first;
  std::array<std::size_t, 2> between;

  float* data() const { return first; }
  std::array<std::size_t, 2> shape() const { return {12, 12}; }
  std::array<std::size_t, 2> strides() const { return between; }
};

TEST_CASE("ranks take and write rows of any strides") {
  const auto layer = mixture_of_decoders(1000);
  const auto x = rows(24, 12, 1000);
  const auto expected = result_alone(layer, x);
  for (const std::array<std::size_t, 2>& between :
       {std::array<std::size_t, 2>{12, 1}, {31, 1}, {1, 12}, {25, 2}})
    run_on_threads(2, [&](communicator& ranks) {
      auto forward = compile(shard(layer, ranks, 'n'), 12, {.threads = 1});
      std::vector<float> in(400, 7), out(400, 7);
      const std::size_t first = 12 * ranks.rank();
      const auto place = [&](std::size_t t, std::size_t i) {
        return t * between[0] + i * between[1];
      };
      for (std::size_t t = 0; t < 12; ++t)
        for (std::size_t i = 0; i < 12; ++i) in[place(t, i)] = x(first + t, i);
      forward(strided_rows{in.data(), between}, strided_rows{out.data(), between});
      tensor<float, 2> y({12, 12}), theirs({12, 12});
      for (std::size_t t = 0; t < 12; ++t)
        for (std::size_t i = 0; i < 12; ++i) {
          y(t, i) = std::exchange(out[place(t, i)], 7.0f);
          theirs(t, i) = expected(first + t, i);
        }
      require(difference(y, theirs) <= 4e-6, "the results");
      require(out == std::vector<float>(400, 7), "what lies between them");
    });
}

TEST_CASE("more ranks than tokens") {
  run_on_threads(7, [](communicator& ranks) {
    check_layer(ranks, mixture_of_decoders(1000), 'n', rows(3, 12, 1000), "MxD");
  });
}

TEST_CASE("the plan of MxD is the schedule of the study, and its bytes are counted") {
  const std::size_t I = 32, O = 16, K = 8, P = 4, T = 64;
  const mxd<> layer = wide_mixture();
  run_on_threads(P, [&](communicator& ranks) {
    auto forward = compile(shard(layer, ranks, 'n'), T / P, {.threads = 1});
    const std::string plan = forward.explain();
    std::size_t at = 0;
    for (const char* step :
         {"all_gather of 32 numbers", "merge a selection of 8", "reduce_scatter of 16 numbers"}) {
      at = plan.find(step, at);
      require(at != plan.npos, std::string(step) + " in\n" + plan);
    }
    const double formula = static_cast<double>(4 * (I + O) + 8 * K + 8) * (P - 1) / P;
    require(forward.received_a_token() == formula, "the formula");
    const std::size_t before = ranks.received();
    const auto x = rows(T / P, I, 100);
    tensor<float, 2> y({T / P, O});
    forward(x, y);
    const auto received = static_cast<double>(ranks.received() - before);
    require(received == formula * T + 24 * (P - 1), "received " + std::to_string(received));
  });
}

TEST_CASE("a rank gives few of its best, and all where it has all that are kept") {
  struct example {
    std::size_t begin, end, calls;  // two calls more where ranks are asked
  };
  run_on_threads(4, [&](communicator& ranks) {
    for (const example& e : {example{0, 640, 5}, example{160, 320, 7}, example{160, 170, 5}}) {
      const mxd<> layer = mixture_of_many(e.begin, e.end);
      const auto x = rows(9, 12, 1000);
      check_layer(ranks, layer, 'n', x, "32 of 640");
      auto forward = compile(shard(layer, ranks, 'n'), 9, {.threads = 1});
      const std::string plan = forward.explain();
      require(plan.find("a selection of 32 from the 18 best of each rank") != plan.npos, plan);
      tensor<float, 2> y({9, 12});
      const std::size_t before = ranks.calls();
      forward(x, y);
      require(ranks.calls() - before == e.calls, std::to_string(e.calls) + " calls");
    }
  });
}

TEST_CASE(
    "the costs of a layer over ranks have its calls, bytes and times, and explain shows them") {
  const std::size_t P = 4, T = 64;
  const mxd<> layer = wide_mixture();
  run_on_threads(P, [&](communicator& ranks) {
    const network_costs slow{2e12, 1e9, 1e-3, 512, "a slow network"};
    auto forward = compile(shard(layer, ranks, 'n', {.network = slow}), T / P, {.threads = 1});
    const shard_costs cost = forward.cost();
    std::string steps;
    double seconds = 0, computing = 0;
    for (const shard_step& s : cost.steps) {
      steps += s.name + ", ";
      require(s.is_exchange ? s.calls > 0 : s.multiply_adds > 0, "the costs of " + s.name);
      if (!s.is_exchange) computing += s.seconds;
      else seconds += (s.bytes_a_token * T + s.bytes_a_call) / 1e9 + 1e-3 * double(s.calls);
    }
    require(
        steps ==
            "all_gather, all_gather, all tokens, merge, all tokens, reduce_scatter, own tokens, ",
        steps);
    require(cost.tokens == T / P && cost.calls == 5, "the sums of calls and tokens");
    require(cost.bytes_a_token == forward.received_a_token(), "the sum of bytes");
    require(std::abs(cost.exchanging - seconds) < 1e-9 && cost.exchanging > 5e-3, "the exchanges");
    require(cost.computing == computing && computing > 0, "the graphs");
    const std::string plan = forward.explain();
    for (const std::string& text :
         {std::string("placed for a slow network (2000 GFLOP/s, 1 GB/s, 1000 us a call), at 512"),
          std::string("bytes a token received by each rank, in 2 calls, about 2 ms"),
          "a call of 16 tokens of each rank: about " + detail::time_text(cost.seconds())})
      require(plan.find(text) != plan.npos, text + " in\n" + plan);
    const auto x = rows(T / P, 32, 100);
    tensor<float, 2> y({T / P, 16});
    const std::size_t calls = ranks.calls(), bytes = ranks.received();
    forward(x, y);
    require(ranks.calls() - calls == cost.calls, "the calls");
    require(double(ranks.received() - bytes) == cost.bytes_a_token * T + cost.bytes_a_call,
            "the bytes");
  });
}

TEST_CASE("another network makes another layout, and ranks that disagree on it are refused") {
  const mxd<> layer = wide_mixture();
  run_on_threads(4, [&](communicator& ranks) {
    const network_costs far{2e12, 25e9, 1, 512, "ranks on two planets"};
    const auto calls = [&](const network_costs& network) {
      return compile(shard(layer, ranks, 'n', {.network = network}), 16, {.threads = 1})
          .cost()
          .calls;
    };
    require(calls(far) < calls({}), "a call less where calls are dear");
    network_costs mine;
    if (ranks.rank() == 1) mine.latency = 1;
    const std::string got = sentence_of([&] { calls(mine); });
    require(got.find("the ranks disagree: rank 0 has \"placed for") == 0, got);
  });
}

TEST_CASE("ranks measure the same network") {
  run_on_threads(3, [](communicator& ranks) {
    const network_costs found = measure_network(ranks, {.tokens = 64});
    require(found.latency > 0 && found.bytes_per_second > 0 && found.tokens == 64, "its numbers");
    require(found.name == "3 ranks as measured", found.name);
    ranks.agree(detail::text_of(found));
  });
  run_on_threads(1, [](communicator& ranks) {
    require(measure_network(ranks).latency == network_costs{}.latency, "one rank has no network");
  });
}

TEST_CASE("muMoE over its experts and its ranks") {
  for (const std::size_t P : {2u, 3u})
    run_on_threads(P, [](communicator& ranks) {
      cp_mumoe<1> layer;
      fill_with(layer.gate.projections[0], {12, 9}, 1, 1000);
      fill_with(layer.experts.experts[0], {9, 20}, 2, 1000);
      fill_with(layer.experts.input, {13, 20}, 3, 1000);
      fill_with(layer.experts.output, {10, 20}, 4, 1000);
      const auto x = rows(23, 12, 1000);
      for (const char label : {'n', 'r'}) check_layer(ranks, layer, label, x, "CP");
    });
}

// An operation between two einsums whose rows are columns.
struct turned {
  parameter<float, 2> first, second;  // i n, n o

  auto operator()(const operand_of<2> auto& x) const {
    const auto sums = einsum<"ti,in,no->ot">(x, first, second);
    return einsum<"ot,no->tn">(relu(sums), second);
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"first", presence::required, "in"}, layer.first);
    visit(released_name{"second", presence::required, "no"}, layer.second);
  }
};

TEST_CASE("values whose tokens are not the first axis travel, too") {
  run_on_threads(3, [](communicator& ranks) {
    turned layer;
    fill_with(layer.first, {12, 10}, 1, 1000);
    fill_with(layer.second, {10, 9}, 2, 1000);
    check_layer(ranks, layer, 'n', rows(23, 12, 1000), "columns");
  });
}

TEST_CASE("AoE over its experts") {
  for (const std::size_t P : {2u, 4u})
    run_on_threads(P, [](communicator& ranks) {
      aoe<float> layer;
      fill_with(layer.down, {12, 30, 4}, 1, 1000);
      fill_with(layer.up, {30, 4, 17}, 2, 1000);
      fill_with(layer.linear, {30, 12, 17}, 3, 1000);
      fill_with(layer.output, {30, 17, 12}, 4, 1000);
      check_layer(ranks, layer, 'n', rows(23, 12, 1000), "AoE");
      const std::string plan = compile(shard(layer, ranks, 'n'), 8, {.threads = 1}).explain();
      require(plan.find("group") != plan.npos,
              "experts that nobody selects are left out:\n" + plan);
    });
}

TEST_CASE("tensor rings over their experts and their ranks") {
  run_on_threads(3, [](communicator& ranks) {
    tr_mumoe<1> layer;
    fill_with(layer.gate.projections[0], {12, 9}, 1, 1000);
    fill_with(layer.experts.experts[0], {3, 9, 4}, 2, 1000);
    fill_with(layer.experts.input, {4, 13, 5}, 3, 1000);
    fill_with(layer.experts.output, {5, 10, 3}, 4, 1000);
    for (const char label : {'n', 'p', 'q', 'r', 'o'})
      check_layer(ranks, layer, label, rows(23, 12, 1000), "TR");
  });
}

TEST_CASE("Monet over the halves of its experts") {
  for (const std::size_t P : {2u, 3u, 4u})
    run_on_threads(P, [](communicator& ranks) {
      const auto x = rows(23, 12, 1000);
      for (const bool has_statistics : {false, true})
        for (const bool edited : {false, true}) {
          routed<float, monet_hd<>> hd{small_router(has_statistics), small_hd()};
          routed<float, monet_vd<>> vd{small_router(has_statistics), small_vd()};
          if (edited) hd.experts.deleted = vd.experts.deleted = {{1, 2}, {5, 5}};
          check_layer(ranks, hd, 's', x, "Monet HD");
          check_layer(ranks, vd, 's', x, "Monet VD");
        }
    });
}

TEST_CASE("a label that only statistics have is refused") {
  run_on_threads(2, [](communicator& ranks) {
    const routed<float, monet_hd<>> layer{small_router(true), small_hd()};
    const std::string got = sentence_of([&] { shard(layer, ranks, 'P'); });
    require(got.find("[shard] no parameter has the label 'P'") != got.npos, got);
  });
}

TEST_CASE("a layer of several arguments") {
  const auto router = small_router(false);
  auto layer = small_hd();
  layer.heads = 2;
  const auto x = rows(24, 12, 1000);
  const auto g1 = evaluate(router.g1(x)), g2 = evaluate(router.g2(x));
  const auto expected = compile(layer, arguments<2, 3, 3>{}, 24, {.threads = 1})(x, g1, g2);
  run_on_threads(3, [&](communicator& ranks) {
    auto forward = compile(shard(layer, ranks, 's'), arguments<2, 3, 3>{}, 8, {.threads = 1});
    const auto part = [&]<std::size_t Rank>(const tensor<float, Rank>& whole) {
      auto shape = whole.shape();
      shape[0] = 8;
      tensor<float, Rank> own(shape);
      std::copy_n(whole.data() + ranks.rank() * own.size(), own.size(), own.data());
      return own;
    };
    tensor<float, 2> y({8, 12});
    forward(part(x), part(g1), part(g2), y);
    require(difference(y, part(expected)) <= 4e-6, "Monet HD of three arguments");
    const std::string got = sentence_of([&] { forward(part(x), part(g1), part(x), y); });
    require(got.find("input 2 has 2 axes and must have 3") != got.npos, got);
  });
}

TEST_CASE("PEER over its experts") {
  run_on_threads(2, [](communicator& ranks) {
    peer<float> layer;
    fill_with(layer.queries, {12, 16}, 1, 1000);
    fill_with(layer.keys, {2, 20, 2, 4}, 2, 1000);
    fill_with(layer.down, {400, 12}, 3, 1000);
    fill_with(layer.up, {400, 12}, 4, 1000);
    layer.active = 3;
    check_layer(ranks, layer, 'e', rows(23, 12, 1000), "PEER");
  });
}

TEST_CASE("ranks that disagree on the layer are refused") {
  run_on_threads(2, [](communicator& ranks) {
    auto layer = mixture_of_decoders(1000);
    if (ranks.rank() == 1) layer.active = 4;
    const std::string got = sentence_of([&] { shard(layer, ranks, 'n'); });
    require(got == "the ranks disagree: rank 0 has \"K: 5\", and rank 1 has \"K: 4\"", got);
  });
}

TEST_CASE("ranks that are in different calls are refused") {
  const auto x = rows(4, 12, 1000);
  const std::string refusal = "the ranks disagree: rank 1 is in another call than rank 0";
  for (const bool other_layer : {false, true})
    run_on_threads(2, [&](communicator& ranks) {
      const auto layer = mixture_of_decoders(1000);
      auto forward = compile(shard(layer, ranks, 'n'), 4, {.threads = 1});
      auto other = compile(shard(layer, ranks, 'n'), other_layer ? 5 : 4, {.threads = 1});
      tensor<float, 2> y({4, 12});
      if (!other_layer) forward(x, y);  // `other` has made a call less
      const std::string got = sentence_of([&] { ranks.rank() == 0 ? forward(x, y) : other(x, y); });
      require(got == refusal, got);
    });
}

TEST_CASE("a rank that throws in a call makes all ranks throw its sentence") {
  run_on_threads(3, [](communicator& ranks) {
    auto forward = compile(shard(mixture_of_decoders(1000), ranks, 'n'), 4, {.threads = 1});
    const std::size_t tokens = ranks.rank() == 1 ? 5 : 4;
    const auto x = rows(tokens, 12, 1000);
    tensor<float, 2> y({tokens, 12});
    const std::string got = sentence_of([&] { forward(x, y); });
    require(got ==
                "rank 1 failed: [shard] 't' is 5 and the layer is compiled for at most 4: say more "
                "to compile",
            got);
    require(sentence_of([&] { forward(x, y); }) == got, "the next call");
  });
}

}  // namespace

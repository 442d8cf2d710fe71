// SPDX-License-Identifier: MIT
// Plans of every shape have the same bits, so tuning changes nothing but time.
#include <fmoe/aoe.hpp>
#include <fmoe/backend/cpu/host.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/expr/sized.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/tune.hpp>

#include <cstring>
#include <sstream>

#include "support/agree.hpp"
#include "support/same_bits.hpp"
#include "support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using rows = tensor<float, 2>;

constexpr extent tokens = 50;

// A machine so slow that threads share the rows of every step, and whose memory is so slow that no
// thread has a tile of its own.
machine slow_machine(extent threads) {
  machine m = cpu::host<float, cpu::native>()->machine(dtype::float32);
  m.one = {1e6, 2e6, 4e6, 1e6, 1e6, 1e6, 1e4};
  m.every = m.one;
  for (double* rate :
       {&m.every.flops, &m.every.int16_dots, &m.every.l2, &m.every.l3, &m.every.memory})
    *rate *= static_cast<double>(threads);
  return m;
}

// Compiles a layer of x in many shapes, and tuned, and for several threads.
template <class Forward>
void check_shapes(extent width, const Forward& forward) {
  const auto x = random<rows>({tokens, width}, 1);
  const rows expected = compile(forward, tokens)(x);
  bool screen = false;  // by turns, so that each tile and each chunk meets both
  for (const extent tile : {extent{1}, extent{7}, extent{50}, extent{96}})
    for (const extent chunk : {extent{1}, extent{64}, extent{768}}) {
      screen = !screen;
      const plan_shape shape{.tile = tile,
                             .group_rows = chunk / 16 + 1,
                             .streamed = 1,
                             .chunk = chunk,
                             .own_ahead = tile * chunk,
                             .side_by_side = 1 + tile % 4,
                             .screen = screen};
      INFO("tile " << tile << ", chunk " << chunk << ", screen " << screen);
      CHECK(same_bits(compile(forward, tokens, {.shape = shape})(x), expected));
    }
  CHECK(same_bits(compile(forward, tokens, {.tune = true})(x), expected));
  for (const extent threads : {extent{2}, extent{5}})
    for (const extent chunk : {extent{16}, extent{768}})
      on_threads(static_cast<int>(threads), [&] {
        INFO("chunk " << chunk << ", " << threads << " threads share rows");
        const auto shared =
            compile(forward, tokens,
                    {.threads = threads,
                     .as = slow_machine(threads),
                     .shape = plan_shape{.tile = tokens, .streamed = 1, .chunk = chunk}});
        for (int run = 0; run < 3; ++run) CHECK(same_bits(shared(x), expected));
      });
}

std::string golden(const std::string& name) {
  return "tests/golden/" + name + ".weights.safetensors";
}

TEST_CASE("every shape of a plan of MxD has the same bits", "[tune]") {
  check_shapes(
      13, load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4, .activation = pointwise::silu}));
  check_shapes(13, load<sparse_mlp<>>(golden("mxd/mxd_transcoder_relu"),
                                      {.active = all, .activation = pointwise::relu}));
  const auto weight = [](extent i, extent o, unsigned seed) {
    return random<parameter<float, 2>>({i, o}, seed, 0.1f);
  };
  mxd<> large;  // is screened
  large.encoder = weight(64, 90, 2);
  large.gate = weight(64, 2100, 3);
  large.scales = weight(2100, 40, 4);
  large.decoder = weight(90, 40, 5);
  large.active = 6;
  check_shapes(64, large);
}

TEST_CASE("every shape of a plan of muMoE has the same bits", "[tune]") {
  check_shapes(13, load<mumoe<cp_experts<2>>>(golden("mumoe/cp_e2_entmax_ln_bias_iln_odd")));
  check_shapes(13, load<mumoe<tr_experts<2>>>(golden("mumoe/tr_e2_entmax_none_bias_odd")));
  check_shapes(13, load<mumoe<dense_experts<1>>>(golden("mumoe/dense_e1_entmax_bn_bias")));
}

TEST_CASE("every shape of a plan of Monet has the same bits", "[tune]") {
  const load_options of_layer{.activation = pointwise::gelu};
  const auto check = [](const auto& layer, const std::string& file) {
    auto router = load<monet_router<>>(file, {.active = 3});
    router.heads = 3;
    check_shapes(14, [=](const auto& x) { return layer(x, router.g1(x), router.g2(x)); });
  };
  const std::string hd = golden("monet/monet_hd_topk_t1"), vd = golden("monet/monet_vd_topk_kS");
  check(load<monet_hd<>>(hd, of_layer), hd);
  check(load<monet_vd<>>(vd, of_layer), vd);
}

TEST_CASE("every shape of a plan of a mixture has the same bits", "[tune]") {
  check_shapes(11, load<aoe<>>(golden("aoe/aoe_kn"), {.active = 2,
                                                      .activation = pointwise::silu,
                                                      .metadata = {{"weighting", "paper"}}}));
  check_shapes(14, load<moe<>>(golden("moe/moe_odd"), {.active = 2}));
  check_shapes(13, load<soft_moe<>>(golden("moe/moe_dense")));
  check_shapes(16, load<peer<>>(golden("peer/peer_h2_n64"),
                                {.active = 4, .metadata = {{"weighting", "softmax"}}}));
}

TEST_CASE("sums over tokens, and what is computed whole, are tuned, too", "[tune]") {
  const auto w = random<parameter<float, 2>>({70, 120}, 6, 1);
  const auto check = [](extent width, const auto& layer) {
    const auto x = random<rows>({300, width}, 1);
    CHECK(same_bits(compile(layer, 300, {.tune = true})(x), compile(layer, 300)(x)));
  };
  check(70, [&](const auto& x) {
    const auto h = einsum<"ti,io->to">(x, w);
    return einsum<"ti,tj->ij">(h, h);
  });
  check(70, [](const auto& x) {
    const auto y = sized(x, {all, 70});
    return einsum<"ti,tj->ij">(y, y);
  });
  const auto x = random<rows>({300, 70}, 1);
  const auto is_tuned = [](const auto& e) {
    return same_bits(rows(evaluate(e, {.tune = true})), rows(evaluate(e)));
  };
  CHECK(is_tuned(einsum<"ti->it">(x)));
  CHECK(is_tuned(einsum<"ti,si->ts">(x, x)));
  CHECK(is_tuned(einsum<"ti,io->ot">(x, w)));
}

TEST_CASE("tuned shapes are text, which another process may read", "[tune]") {
  const auto layer = [w = random<parameter<float, 2>>({70, 900}, 6, 1),
                      v = random<parameter<float, 2>>({900, 5}, 7, 1)](const auto& x) {
    return einsum<"ti,io->to">(relu(einsum<"ti,io->to">(x, w)), v);
  };
  const std::string before = tuned_shapes();
  const auto tuned = compile(layer, 300, {.tune = true});
  const std::string after = tuned_shapes();
  CHECK(after.size() > before.size());
  use_tuned_shapes(after);
  CHECK(tuned_shapes() == after);

  // A shape that nobody would choose is taken if it is the one that is known.
  std::string line = after.substr(0, after.find('\n') + 1);
  for (std::istringstream lines(after); std::getline(lines, line);)
    if (before.find(line) == std::string::npos) break;
  const std::string key = line.substr(0, line.find(':'));
  use_tuned_shapes(key + ": tile 3 group_rows 96 streamed 1000000 chunk 768 screen 1\n");
  const tensor<float, 2> x({300, 70});
  CHECK(explain(layer(x)).text.find("tile of 3 tokens") != std::string::npos);
  CHECK(same_bits(compile(layer, 300)(random<rows>({300, 70}, 1)),
                  tuned(random<rows>({300, 70}, 1))));
}

// A shape of which every number is another than the default.
const std::string seven_numbers =
    "beef: tile 3 group_rows 4 streamed 5000 chunk 64 screen 0 own_ahead 4096 side_by_side 2\n";

bool is_known(const std::string& line) { return tuned_shapes().find(line) != std::string::npos; }

TEST_CASE("every number of a shape is in its text, and older text has one or two less", "[tune]") {
  use_tuned_shapes(seven_numbers);
  CHECK(is_known(seven_numbers));
  const std::string five = "cafe: tile 3 group_rows 4 streamed 5000 chunk 64 screen 0";
  use_tuned_shapes(five + "\n");
  CHECK(is_known(five + " own_ahead 2048 side_by_side 4\n"));
  use_tuned_shapes(five + " own_ahead 3\n");
  CHECK(is_known(five + " own_ahead 3 side_by_side 4\n"));
}

TEST_CASE("text that is not that of shapes is refused, and nothing of it is kept", "[tune]") {
  const std::string before = tuned_shapes();
  const std::string good = "f00d: tile 3 group_rows 4 streamed 5000 chunk 64 screen 0";
  for (const std::string& bad : std::vector<std::string>{
           "f00d", "f00d:", "f00d tile 3 group_rows 4 streamed 5000 chunk 64 screen 0",
           "f00d: tile 3 group_rows 4 streamed 5000 chunk 64",
           "f00d: tile 3 group_rows 4 streamed 5000 chunk 64 screen",
           "f00d: tile x group_rows 4 streamed 5000 chunk 64 screen 0",
           "f00d: tile 0 group_rows 4 streamed 5000 chunk 64 screen 0",
           "f00d: tile 3 group_rows 0 streamed 5000 chunk 64 screen 0",
           "f00d: tile 3 group_rows 4 streamed 5000 chunk 0 screen 0",
           "f00d: group_rows 4 tile 3 streamed 5000 chunk 64 screen 0", good + " own_ahead",
           good + " ahead 3", good + " own_ahead 3 more",
           good + " own_ahead 3 side_by_side 2 more"}) {
    INFO(bad);
    CHECK_THROWS_AS(use_tuned_shapes(good + "\n" + bad + "\n"), value_error);
  }
  CHECK(tuned_shapes() == before);
}

}  // namespace

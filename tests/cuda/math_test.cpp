// SPDX-License-Identifier: MIT
// Arithmetic as a policy: what rounds, what never does, and that no tile and no split of a call
// changes a bit.
#include <fmoe/backend/cuda/emulated/emulated_device.hpp>
#include <fmoe/backend/cuda/product_steps.hpp>
#include <fmoe/cuda.hpp>
#include <fmoe/fmoe.hpp>

#include <map>
#include <sstream>

#include "../support/agree.hpp"
#include "../support/same_bits.hpp"
#include "../support/small_layers.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using cuda::math;

compile_options with(math how) {
  return {.on = cuda::gpu_or_emulated({.math = how, .order = cuda::thread_order::shuffled})};
}

TEST_CASE("each policy has its own error", "[cuda][math]") {
  const auto x = random<tensor<float, 2>>({21, 300}, 1);
  const auto w = random<parameter<float, 2>>({300, 140}, 2);
  const auto product = einsum<"ti,io->to">(x, w);
  const auto error = [&](math how) { return error_of(product, with(how)); };
  CHECK(same_bits(evaluate(product, with(math::exact)),
                  evaluate(product, {.on = cuda::gpu_or_emulated()})));
  CHECK(error(math::exact) < 1e-6);
  CHECK(error(math::tf32x3) < 2e-6);
  CHECK((error(math::tf32) > 1e-5 && error(math::tf32) < 1e-3));
  CHECK((error(math::bf16) > 1e-4 && error(math::bf16) < 1e-2));
}

TEST_CASE("products of any sizes run on tensor cores, with batches, sums and passes",
          "[cuda][math]") {
  const auto near = [](const auto& e) {
    CHECK(error_of(e, with(math::tf32x3)) < 1e-6);
    CHECK(error_of(e, with(math::bf16)) < 2e-2);
  };
  for (const auto& [tokens, depth, columns] :
       {std::array<extent, 3>{1, 1, 1}, {5, 33, 131}, {17, 64, 4}, {3, 259, 24}}) {
    INFO(tokens << " tokens, " << depth << " by " << columns);
    const auto x = random<tensor<float, 2>>({tokens, depth}, 1);
    const auto w = random<parameter<float, 2>>({depth, columns}, 2);
    const auto bias = random<parameter<float, 1>>({columns}, 3);
    const auto other = random<tensor<float, 2>>({tokens, columns}, 4);
    near(gelu(einsum<"ti,io->to">(x, w) + bias) * other);
    near(einsum<"ti,io->to">(x, w) + einsum<"ti,io->to">(x + 1.0, w));
  }
  const auto heads = random<tensor<float, 3>>({6, 4, 30}, 1);
  near(einsum<"thi,hio->tho">(heads, random<parameter<float, 3>>({4, 30, 70}, 3)));
  near(einsum<"thi,oi->tho">(heads, random<parameter<float, 2>>({70, 30}, 4)));
}

// The tokens of x from `first` on.
tensor<float, 2> some(const tensor<float, 2>& x, extent first, extent count) {
  tensor<float, 2> y({count, x.shape()[1]});
  std::copy_n(x.data() + first * x.shape()[1], y.size(), y.data());
  return y;
}

// x w, by tiles of so many rows, or as its shape says, with blocks that share sums.
template <class Kernel, math How = math::exact, bool Shares = false>
tensor<float, 2> tiled_product(const tensor<float, 2>& x, const tensor<float, 2>& w) {
  const cuda::gemm_position whole{};
  tensor<float, 2> y({x.shape()[0], w.shape()[1]});
  const auto count = [](extent n) { return static_cast<cuda::index>(n); };
  const auto [depth, columns] = w.shape();
  tensor<float, 2> padded({depth, detail::round_up(columns, extent{4})});  // rows of whole accesses
  for (extent k = 0; k < depth; ++k) std::copy_n(&w(k, 0), columns, &padded(k, 0));
  const Kernel kernel{{.a = {x.data(), x.shape()[1]},
                       .c = {y.data(), y.shape()[1]},
                       .weights = padded.data(),
                       .pitch = count(padded.shape()[1]),
                       .positions = &whole,
                       .position_count = 1,
                       .rows = count(x.shape()[0]),
                       .depth = count(depth),
                       .columns = count(columns),
                       .sum_block = 256}};
  if constexpr (Shares) {
    const cuda::emulated_device on(0, {.order = cuda::thread_order::shuffled});
    cuda::emulated_device::queue queue(on, nullptr);
    std::vector<float> sums(1 << 19, std::numeric_limits<float>::quiet_NaN());
    cuda::launch_tensor_product<How>(queue, kernel.of, dtype::float32, sums.data(), sums.size(), 0,
                                     0);
    CHECK(!std::isnan(sums[0]));
    return y;
  }
  cuda::block_runner runner(cuda::thread_order::descending);
  cuda::run_emulated(runner,
                     {"gemm", kernel.threads, kernel.shared_bytes,
                      kernel.blocks(detail::divide_up(y.shape()[0], extent{Kernel::tile_rows}))},
                     kernel);
  return y;
}

TEMPLATE_TEST_CASE_SIG("tiles of 16, 64 and 128 rows have the same bits", "[cuda][math]",
                       ((math How), How), math::tf32x3, math::tf32, math::bf16) {
  for (const auto& [rows, depth, columns] :
       {std::array<extent, 3>{130, 264, 20}, {18, 37, 131}, {7, 600, 5}}) {  // aligned, and not
    const auto x = random<tensor<float, 2>>({rows, depth}, 1),
               w = random<tensor<float, 2>>({depth, columns}, 2);
    const auto y = tiled_product<cuda::tensor_product<How, 16>>(x, w);
    CHECK(same_bits(tiled_product<cuda::tensor_product<How, 64>>(x, w), y));
    CHECK(same_bits(tiled_product<cuda::tensor_product<How, 128>>(x, w), y));
    CHECK(same_bits(tiled_product<cuda::warpgroup_product<How>>(x, w), y));
    CHECK(relative_error(y.data(), test::reference(einsum<"ti,io->to">(x, w))) < 1e-2);
  }
}

TEMPLATE_TEST_CASE_SIG("blocks that share a sum change no bit", "[cuda][math]", ((math How), How),
                       math::tf32x3, math::tf32, math::bf16) {
  const auto w = random<tensor<float, 2>>({600, 440}, 2);
  for (const extent rows : {extent{3}, extent{18}}) {
    const auto x = random<tensor<float, 2>>({rows, 600}, 1);
    using tiles = cuda::tensor_product<How, 16>;
    CHECK(same_bits(tiled_product<tiles, How, true>(x, w), tiled_product<tiles>(x, w)));
  }
}

TEST_CASE("few tiles of large weights share sums", "[cuda][math]") {
  const auto choice = [](extent rows, extent depth, extent columns, extent block,
                         bool has_warpgroups = false) {
    return cuda::choose_tensor_product({rows, depth, columns, 1, block, 0, true}, cuda::most_sums,
                                       has_warpgroups);
  };
  CHECK(choice(1, 768, 3072, 256) == cuda::tensor_choice{16, 1});
  CHECK(choice(1, 768, 3072, 32) == cuda::tensor_choice{16, 4});  // 128 terms or more
  CHECK(choice(1, 8192, 3072, 32).sums_each == 24);               // no more blocks than wanted
  CHECK(choice(1, 768, 21490, 256).sums_each == 0);               // enough tiles
  CHECK(choice(1, 768, 300, 256).sums_each == 0);                 // small weights
  CHECK(choice(4096, 768, 3072, 256) == cuda::tensor_choice{128});
  CHECK(choice(1024, 768, 3072, 256) == cuda::tensor_choice{64});
  CHECK(choice(1024, 768, 3072, 256, true) == cuda::tensor_choice{128});
  CHECK(cuda::fits_warpgroups(extent{1} << 24));
  CHECK(!cuda::fits_warpgroups(extent{1} << 25));  // 128 rows would count to 2^32
}

TEST_CASE("no split of a call changes a bit", "[cuda][math]") {
  const extent width = 40;
  const auto x = random<tensor<float, 2>>({66, width}, 1);
  const auto w = random<parameter<float, 2>>({width, 140}, 2);
  const auto gate = random<parameter<float, 2>>({width, 3}, 3);
  const auto first = random<parameter<float, 3>>({3, width, 33}, 4);
  const auto experts = [&](const auto& a) {
    return einsum<"tn,tnh->th">(top_k(einsum<"ti,in->tn">(a, gate), 2),
                                relu(einsum<"ti,nih->tnh">(a, first)));
  };
  for (const math how : {math::tf32x3, math::tf32, math::bf16}) {
    INFO(cuda::name_of(how));
    const auto check = [&](const auto& layer, extent tokens) {
      const auto all = evaluate(layer(x), with(how));
      for (extent at = 0; at < 66; at += tokens) {
        const extent count = std::min(tokens, 66 - at);
        CHECK(same_bits(evaluate(layer(some(x, at, count)), with(how)), some(all, at, count)));
      }
    };
    check([&](const auto& a) { return einsum<"ti,io->to">(a, w); }, 16);  // a tile of 16 rows
    check([&](const auto& a) { return experts(a); }, 40);
  }
}

// Tokens that fill large tiles take another kernel, and on an H100 other instructions.
TEMPLATE_TEST_CASE_SIG("a few of many tokens have the same bits", "[cuda][math]", ((math How), How),
                       math::tf32x3, math::tf32, math::bf16) {
  constexpr extent tokens = 129, columns = 67 * cuda::large_tile;  // 134 large tiles
  REQUIRE(cuda::choose_tensor_product({tokens, 40, columns, 1, 256, 0, true}, 0, true) ==
          cuda::tensor_choice{cuda::large_tile});
  const auto w = random<parameter<float, 2>>({40, columns}, 2);
  const auto x = random<tensor<float, 2>>({tokens, 40}, 1);
  const auto product = [&](const tensor<float, 2>& of) {
    return evaluate(einsum<"ti,io->to">(of, w), with(How));
  };
  const auto all = product(x);
  CHECK(same_bits(product(some(x, 0, 3)), some(all, 0, 3)));
  CHECK(same_bits(product(some(x, 100, 29)), some(all, 100, 29)));
}

TEST_CASE("blocks of a sum may have any length in any arithmetic", "[cuda][math]") {
  const auto product = einsum<"ti,io->to">(random<tensor<float, 2>>({3, 100}, 1),
                                           random<parameter<float, 2>>({100, 40}, 2));
  for (const extent block : {extent{1}, extent{10}, extent{36}, extent{1000}}) {
    compile_options options = with(math::tf32x3);
    options.sum_block = block;
    CHECK(error_of(product, options) < 1e-6);
  }
}

small_layer decoders(bool has_top_k) {
  mxd<float> l;
  fill(l.encoder, {width, 20}, 1);
  fill(l.gate, {width, 30}, 2);
  fill(l.scales, {30, width}, 3);
  fill(l.decoder, {20, width}, 4);
  l.active = has_top_k ? 3 : all;
  return layer(l);
}

small_layer dictionary() {
  sparse_mlp<float> l;
  fill(l.encoder, {width, 20}, 1);
  fill(l.decoder, {20, width}, 2);
  fill(l.skip, {width, width}, 3);
  l.active = 3;
  return layer(l);
}

small_layer chosen_by_experts() { return mixture(routing::by::expert_choice); }

// The arithmetic of each product, as explain prints it.
std::string arithmetic(const small_layer& l, math how) {
  const auto x = random<tensor<float, 2>>({20, width}, 1);
  std::istringstream lines(explain(l(expr(x)), with(how)).text);
  std::string all;
  for (std::string line; std::getline(lines, line);)
    if (line.find(" gemm ") != line.npos && line.find("once:") == line.npos) {
      const auto open = line.rfind('('), close = line.find_first_of(";)", open);
      std::istringstream words(line);
      std::string kind, subscripts;
      words >> kind >> subscripts;
      all += subscripts + ' ' + line.substr(open + 1, close - open - 1) + '\n';
    }
  return all;
}

using lines = std::vector<std::string>;

// What ranks experts stands in tf32x3; the layers are listed with their products in order.
TEST_CASE("what ranks experts is never rounded, whatever the layer is", "[cuda][math]") {
  const std::string cp = "ti,in->tn tf32x3\nti,ir->tr bf16\ntn,nr->tr bf16\ntr,or->to bf16\n",
                    ring = "ti,qir->tqr bf16\ntn,pnq->tqp bf16\ntpr,rop->to bf16\n",
                    expert = "td,ndw->tw bf16\ntl,nlw->tw bf16\ntw,nwd->td bf16\n",
                    autonomous = "td,dnl->tnl tf32x3\n" + expert,
                    keys = "td,dps->tps tf32x3\ntd,dps->tps tf32x3\n",
                    hd = "td,dim->tim bf16\n" + keys + "tjm,jmd->td bf16\ntj,jd->td bf16\n",
                    half = "tsm,smo->tso bf16\n", sum = "tsm,smo->to bf16\nts,so->to bf16\n",
                    first = "td,dim->tim bf16\n",
                    vd = first + keys + half + first + sum + half + sum;
  const std::map<std::string, std::string> expected{
      {"CP", cp},
      {"TR block", "ti,in->tn tf32x3\n" + ring + ring},
      {"dense", "ti,in->tn tf32x3\nti,nio->tno bf16\n"},
      {"AoE, top-K", autonomous},
      {"AoE, top-P", autonomous},
      {"sparse mixture", "td,dn->tn tf32x3\ntd,ndw->tw bf16\ntd,ndw->tw bf16\ntw,nwd->td bf16\n"},
      {"PEER", "td,dlhk->thlk tf32x3\nthlk,hslk->thls tf32x3\n"},
      {"Monet HD", hd},
      {"Monet HD, edited", hd},
      {"Monet VD", vd},
      {"Monet VD, edited", vd}};
  for (const auto& [name, l] : small_layers) {
    INFO(name);
    CHECK(arithmetic(l, math::bf16) == expected.at(name));
  }
  CHECK(arithmetic(chosen_by_experts(), math::bf16) == autonomous);
  CHECK(arithmetic(dictionary(), math::bf16) == "ti,ih->th tf32x3\nti,io->to bf16\n");
  const std::string units = "ti,ih->th bf16\nth,ho->to bf16\n";
  CHECK(arithmetic(decoders(true), math::bf16) == "ti,in->tn tf32x3\n" + units);
  // A ReLU alone leaves out nothing.
  CHECK(arithmetic(decoders(false), math::bf16) == "ti,in->tn bf16\n" + units + "tn,no->to bf16\n");
}

TEST_CASE("all products before a selection rank, and those behind it do not", "[cuda][math]") {
  const auto w = random<parameter<float, 2>>({width, width}, 1);
  const auto product = [&](const any& x) { return einsum<"ti,io->to">(x, w); };
  const auto check = [&](const small_layer& l, const lines& of) {
    std::string expected;
    for (const std::string& how : of) expected += "ti,io->to " + how + '\n';
    CHECK(arithmetic(l, math::tf32) == expected);
  };
  check([&](const any& x) { return product(relu(product(x))); }, {"tf32", "tf32"});
  check([&](const any& x) { return nonzeros(relu(product(gelu(product(x))))); },
        {"tf32x3", "tf32x3"});
  check([&](const any& x) { return product(top_k(product(x) * 2.0, 3) + x); }, {"tf32x3", "tf32"});
  check([&](const any& x) { return top_k(x, 2) * product(x); }, {"tf32"});
  check([&](const any& x) { return softmax(product(product(x))); }, {"tf32x3", "tf32x3"});
  check([&](const any& x) { return sparse_mixer(product(x)); }, {"tf32x3"});
  check([&](const any& x) { return layer_norm(product(x)); }, {"tf32"});
  for (const auto& [how, ranks] : {std::pair(math::exact, "exact"),
                                   {math::fp32, "exact"},
                                   {math::tf32x3, "tf32x3"},
                                   {math::tf32, "tf32x3"}})
    CHECK(arithmetic([&](const any& x) { return top_k(product(x), 3); }, how) ==
          "ti,io->to " + std::string(ranks) + '\n');
}

}  // namespace

// SPDX-License-Identifier: MIT
// Checks the costs and the plans of Monet's layers, at the sizes of the paper (Tables 1 and 6) and
// without any weight.
#include <fmoe/cost.hpp>
#include <fmoe/monet.hpp>

#include "support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

struct sizes {
  extent d, p, m, s = 512, k = 32;
};

template <std::size_t Rank>
parameter<float, Rank> hollow(const std::array<extent, Rank>& shape) {  // never read
  return parameter<float, Rank>(tensor<float, Rank>(shape, std::make_shared<storage>(extent{0})));
}

monet_router<> router_of(const sizes& n, bool) {
  monet_router<> r;
  r.keys1 = hollow<2>({n.d, n.p * n.s});
  r.keys2 = hollow<2>({n.d, n.p * n.s});
  r.heads = n.p;
  r.active = n.k;
  return r;
}
monet_router<> router_of(const sizes& n) {
  auto r = router_of(n, true);
  for (auto* v : {&r.mean1, &r.variance1, &r.mean2, &r.variance2}) *v = parameter<float, 1>({n.p});
  return r;
}
monet_hd<> hd_of(const sizes& n) {
  monet_hd<> l;
  l.encoder = hollow<2>({n.d, n.s * n.m});
  l.encoder_bias = hollow<1>({n.s * n.m});
  l.decoder = hollow<2>({n.s * n.m, n.d});
  l.bias = hollow<2>({n.s, n.d});
  return l;
}
monet_vd<> vd_of(const sizes& n) {
  const extent h = n.s * n.m / 2, o = n.d / 2;
  monet_vd<> l;
  for (auto* u : {&l.encoder1, &l.encoder2}) *u = hollow<2>({n.d, h});
  for (auto* b : {&l.encoder_bias1, &l.encoder_bias2}) *b = hollow<1>({h});
  for (auto* v : {&l.decoder11, &l.decoder12, &l.decoder21, &l.decoder22}) *v = hollow<2>({h, o});
  for (auto* b : {&l.bias1, &l.bias2}) *b = hollow<2>({n.s, o});
  return l;
}

struct inputs {
  tensor<float, 2> x;
  tensor<float, 3> g1, g2;

  explicit inputs(const sizes& n, extent tokens = 4)
      : x({tokens, n.d}, std::make_shared<storage>(extent{0})),
        g1({tokens, n.p, n.s}, std::make_shared<storage>(extent{0})),
        g2({tokens, n.p, n.s}, std::make_shared<storage>(extent{0})) {}
};

lines program_of(const expression auto& e) {
  ir::graph g;
  const ir::node_id y = e.lower(g);
  return describe(make_program(g, y, machine_options()));
}

constexpr sizes paper[] = {{1536, 6, 12}, {2048, 8, 16}, {3072, 12, 24}};  // 850M, 1.4B, 4.1B

TEST_CASE("a layer and a router of Monet at the paper's sizes", "[monet][cost]") {
  // The parameters and the multiply-adds for each token, of the layers and of the routers.
  struct expected {
    double hd, vd, router, hd_work, vd_work, router_work;
  };
  // HD has 2 s m d + s m + s d parameters and takes 2 s m d + 2 p s m + s d + p s multiply-adds. VD
  // has the same parameters, and takes p s more for the other mass and s m more for the straight
  // flows. The router has 2 p s d parameters, and 2 p bounds, which are made once from its 4 p
  // statistics.
  const expected figures[] = {{19666944, 19666944, 9437196, 19737600, 19746816, 9437184},
                              {34611200, 34611200, 16777232, 34738176, 34750464, 16777216},
                              {77082624, 77082624, 37748760, 77371392, 77389824, 37748736}};
  for (int row = 0; row < 3; ++row) {
    const sizes& n = paper[row];
    INFO("d " << n.d);
    const inputs in(n);
    const double s = static_cast<double>(n.s), m = static_cast<double>(n.m),
                 d = static_cast<double>(n.d), p = static_cast<double>(n.p);
    const auto hd = cost(hd_of(n)(in.x, in.g1, in.g2)).factorized;
    CHECK(hd.parameters == 2 * s * m * d + s * m + s * d);
    CHECK(hd.parameters == figures[row].hd);
    CHECK(hd.multiply_adds == 2 * s * m * d + 2 * p * s * m + s * d + p * s);
    CHECK(hd.multiply_adds == figures[row].hd_work);
    const auto vd = cost(vd_of(n)(in.x, in.g1, in.g2)).factorized;
    CHECK(vd.parameters == figures[row].vd);
    CHECK(vd.multiply_adds == 2 * s * m * d + 2 * p * s * m + s * m + s * d + 2 * p * s);
    CHECK(vd.multiply_adds == figures[row].vd_work);
    const auto r = router_of(n);
    const auto routing = cost(r(in.x)).factorized;
    CHECK(routing.parameters == figures[row].router);
    CHECK(routing.multiply_adds == figures[row].router_work);
    CHECK(cost(router_of(n, true)(in.x)).factorized.multiply_adds == routing.multiply_adds);
  }
}

TEST_CASE("parameters and work grow with the square root of the number of experts",
          "[monet][cost]") {
  const auto figures = [](extent s) {
    const sizes n{256, 4, 8, s, 8};
    const inputs in(n);
    return std::pair(cost(hd_of(n)(in.x, in.g1, in.g2)).factorized,
                     cost(router_of(n)(in.x)).factorized);
  };
  const auto [layer, router] = figures(64);
  const auto [wide_layer, wide_router] = figures(256);  // 16 times the experts
  CHECK(wide_layer.parameters == 4 * layer.parameters);
  CHECK(wide_layer.multiply_adds == 4 * layer.multiply_adds);
  CHECK(wide_router.multiply_adds == 4 * router.multiply_adds);
}

TEST_CASE("deleted pairs cost what their rows cost", "[monet][cost]") {
  const sizes& n = paper[1];
  const inputs in(n);
  auto layer = hd_of(n);
  const double before = cost(layer(in.x, in.g1, in.g2)).factorized.multiply_adds;
  layer.deleted = {{3, 7}};
  const double one = cost(layer(in.x, in.g1, in.g2)).factorized.multiply_adds;
  CHECK(one - before ==
        2 * 512 * 8 +
            511 * 16);  // the coefficients of a column, for both sums, and the kept ones' units
  for (extent i = 0; i < 512; ++i) layer.deleted.push_back({i, 7});
  CHECK(cost(layer(in.x, in.g1, in.g2)).factorized.multiply_adds - before == 2 * 512 * 8);
}

TEST_CASE("the plan of HD contracts the bottom experts first", "[monet][plan]") {
  for (const sizes& n : paper) {
    const inputs in(n);
    auto layer = hd_of(n);
    CHECK(program_of(layer(in.x, in.g1, in.g2)) ==
          lines{"gemm td,dim->tim", "pointwise tim->tim | +", "pointwise tim->tim | squared_relu",
                "batched tpi,tim->tpm", "batched tpj,tpm->tjm", "gemm tjm,jmd->td",
                "reduce tpi->tp", "batched tp,tpj->tj", "gemm tj,jd->td", "pointwise td->td | +"});
    layer.deleted = {{1, 2}};
    CHECK(program_of(layer(in.x, in.g1, in.g2)) ==
          lines{"gemm td,dim->tim", "pointwise tim->tim | +", "pointwise tim->tim | squared_relu",
                "batched tpi,tim->tpm", "batched tpj,tpm->tjm", "exclude tim,tpi,tpj->tjm +=",
                "gemm tjm,jmd->td", "reduce tpi->tp", "batched tp,tpj->tj",
                "exclude tpi,tpj->tj +=", "gemm tj,jd->td", "pointwise td->td | +"});
  }
}

TEST_CASE("the plan of VD crosses the halves without their product", "[monet][plan]") {
  const inputs in(paper[1]);
  const auto steps = program_of(vd_of(paper[1])(in.x, in.g1, in.g2));
  const auto count = [&](const std::string& text) { return std::ranges::count(steps, text); };
  for (const std::string& s : steps)
    CHECK(!s.starts_with("once"));  // no parameter meets a parameter
  CHECK(count("concat tb,tb->tb") + count("concat to,to->to") == 1);
  CHECK(std::ranges::count_if(steps, [](const std::string& s) { return s.starts_with("gemm"); }) ==
        8);
}

TEST_CASE("the plans of the routers", "[monet][plan]") {
  const inputs in(paper[1]);
  auto r = router_of(paper[1]);
  CHECK(program_of(r.g1(in.x)).back() == "bounded softmax tps,p->tps");
  CHECK(program_of(router_of(paper[1], true).g1(in.x)) ==
        lines{"gemm td,dps->tps", "top_k tps->tps", "expand tab->tab"});
  r.active = 512;
  CHECK(program_of(r.g1(in.x)) == lines{"gemm td,dps->tps", "softmax tps->tps"});
}

}  // namespace

// SPDX-License-Identifier: MIT
#include <fmoe/expr/pointwise.hpp>

#include "../support/agree.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <class T, extent... Shape>
tensor<T, sizeof...(Shape)> x(unsigned seed) {
  return random<tensor<T, sizeof...(Shape)>>({Shape...}, seed, 0.5f);
}
template <class T, extent... Shape>
parameter<T, sizeof...(Shape)> w(unsigned seed) {
  return random<parameter<T, sizeof...(Shape)>>({Shape...}, seed, 0.5f);
}

TEMPLATE_TEST_CASE("one and two operands", "[einsum]", float, double) {
  using T = TestType;
  const auto a = x<T, 5, 7>(1);
  const auto b = w<T, 7, 9>(2);
  CHECK(agrees(einsum<"ti,io->to">(a, b)));
  CHECK(agrees(einsum<"ti,io->ot">(a, b)));
  CHECK(agrees(einsum<"ti,io->t">(a, b)));
  CHECK(agrees(einsum<"ti,io->o">(a, b)));
  CHECK(agrees(einsum<"ti,io->">(a, b)));
  CHECK(agrees(einsum<"ti,io->tio">(a, b)));
  CHECK(agrees(einsum<"ti,io->oit">(a, b)));
  CHECK(agrees(einsum<"ti,si->ts">(a, a)));
  CHECK(agrees(einsum<"ti,ti->t">(a, a)));
  CHECK(agrees(einsum<"ti,ti->ti">(a, a)));
  CHECK(equals(einsum<"ti->it">(a)));
  CHECK(equals(einsum<"ti->ti">(a)));
  CHECK(agrees(einsum<"ti->i">(a)));
  CHECK(agrees(einsum<"ti->t">(a)));
  CHECK(agrees(einsum<"ti->">(a)));
  CHECK(agrees(einsum<"T,tI->tIT">(x<T, 3>(3), a)));
}

TEMPLATE_TEST_CASE("repeated labels and labels summed in one operand", "[einsum]", float, double) {
  using T = TestType;
  const auto square = w<T, 6, 6>(1);
  const auto a = x<T, 4, 6>(2);
  CHECK(equals(einsum<"ii->i">(square)));
  CHECK(agrees(einsum<"ii->">(square)));
  CHECK(agrees(einsum<"ti,ii->ti">(a, square)));
  CHECK(agrees(einsum<"ti,ii->t">(a, square)));
  CHECK(agrees(einsum<"ti,oi->t">(a, w<T, 5, 6>(3))));
  CHECK(agrees(einsum<"ti,oo->ti">(a, square)));
  CHECK(agrees(einsum<"tii,i->ti">(x<T, 3, 6, 6>(4), w<T, 6>(5))));
  CHECK(agrees(einsum<"tiji,jk->tk">(x<T, 3, 4, 5, 4>(6), w<T, 5, 7>(7))));
  CHECK(agrees(einsum<"tphk,hkd->tpd">(x<T, 3, 2, 4, 5>(8), w<T, 4, 5, 6>(9))));
  CHECK(agrees(einsum<"aa,aa->a">(square, square)));
}

TEMPLATE_TEST_CASE("layers straight from their equations", "[einsum]", float, double) {
  using T = TestType;
  const auto a = x<T, 5, 6>(1), z = x<T, 5, 7>(2);
  CHECK(agrees(einsum<"tn,nr,ti,ir,or->to">(a, w<T, 6, 4>(3), z, w<T, 7, 4>(4), w<T, 8, 4>(5))));
  CHECK(agrees(
      einsum<"tn,pnq,ti,qis,sop->to">(a, w<T, 2, 6, 3>(6), z, w<T, 3, 7, 4>(7), w<T, 4, 8, 2>(8))));
  CHECK(agrees(einsum<"tn,na,ti,ib,oc,abc->to">(a, w<T, 6, 3>(9), z, w<T, 7, 4>(10), w<T, 8, 5>(11),
                                                w<T, 3, 4, 5>(12))));
  CHECK(agrees(einsum<"tn,ti,nio->to">(a, z, w<T, 6, 7, 8>(13))));
  CHECK(agrees(einsum<"tn,no,th,ho->to">(a, w<T, 6, 8>(14), z, w<T, 7, 8>(15))));
  CHECK(
      agrees(einsum<"tim,tpi,tpj->tjm">(x<T, 5, 4, 3>(16), x<T, 5, 2, 4>(17), x<T, 5, 2, 6>(18))));
  const auto u = w<T, 6, 4>(19);
  CHECK(agrees(einsum<"ta,ab,tb,bc,tc,co->to">(a, u, x<T, 5, 4>(20), w<T, 4, 5>(21),
                                               relu(x<T, 5, 5>(22)), w<T, 5, 3>(23))));
}

TEMPLATE_TEST_CASE("nine operands and more go by the greedy order", "[einsum]", float, double) {
  using T = TestType;
  const auto a = x<T, 4, 5>(1);
  CHECK(agrees(einsum<"ta,ab,bc,cd,de,ef,fg,gh,ho->to">(
      a, w<T, 5, 4>(2), w<T, 4, 3>(3), w<T, 3, 4>(4), w<T, 4, 2>(5), w<T, 2, 3>(6), w<T, 3, 4>(7),
      w<T, 4, 5>(8), w<T, 5, 6>(9))));
  CHECK(agrees(
      einsum<"ta,ta,ta,ta,ta,ta,ta,ta,ta,ao->to">(a, a, a, a, a, a, a, a, a, w<T, 5, 3>(10))));
  CHECK(agrees(einsum<"a,b,c,d,e,f,g,h,i,j->acbd">(w<T, 2>(1), w<T, 3>(2), w<T, 2>(3), w<T, 3>(4),
                                                   w<T, 2>(5), w<T, 2>(6), w<T, 2>(7), w<T, 1>(8),
                                                   w<T, 2>(9), w<T, 3>(10))));
}

TEMPLATE_TEST_CASE("zero extents, extents of one, and rank 0", "[einsum]", float, double) {
  using T = TestType;
  CHECK(agrees(einsum<"ti,io->to">(x<T, 0, 7>(1), w<T, 7, 9>(2))));
  CHECK(agrees(einsum<"ti,io->to">(x<T, 5, 7>(1), w<T, 7, 0>(2))));
  const auto zeros = evaluate(einsum<"ti,io->to">(x<T, 5, 0>(1), w<T, 0, 9>(2)));
  CHECK(zeros.size() == 45);
  CHECK(std::all_of(zeros.data(), zeros.data() + 45, [](T v) { return v == 0; }));
  CHECK(agrees(einsum<"ti,io->o">(x<T, 0, 7>(1), w<T, 7, 9>(2))));
  CHECK(agrees(einsum<"ti->">(x<T, 0, 7>(1))));
  CHECK(agrees(
      einsum<"tn,no,th,ho->to">(x<T, 5, 0>(1), w<T, 0, 4>(2), x<T, 5, 3>(3), w<T, 3, 4>(4))));
  CHECK(agrees(einsum<"ti,io->to">(x<T, 1, 1>(1), w<T, 1, 1>(2))));
  CHECK(agrees(einsum<"ti,pio,p->to">(x<T, 1, 7>(1), w<T, 1, 7, 1>(2), w<T, 1>(3))));
  const tensor<T, 0> three({}, std::array<T, 1>{3});
  CHECK(*evaluate(einsum<",->">(three, three)).data() == 9);
  CHECK(agrees(einsum<",ti->ti">(three, x<T, 5, 7>(1))));
  CHECK(*evaluate(einsum<"->">(three)).data() == 3);
}

TEMPLATE_TEST_CASE("expressions of parameters only, and naive plans", "[einsum]", float, double) {
  using T = TestType;
  const auto u = w<T, 6, 4>(1), v = w<T, 5, 4>(2), s = w<T, 7, 4>(3);
  CHECK(agrees(einsum<"nr,ir,or->nio">(u, v, s)));
  CHECK(agrees(einsum<"nr,ir->">(u, v)));
  CHECK(agrees(relu(einsum<"nr,ir->ni">(u, v)) + w<T, 5>(4)));
  compile_options naive;
  naive.naive = true;
  const auto a = x<T, 3, 6>(5), z = x<T, 3, 5>(6);
  CHECK(agrees(einsum<"tn,nr,ti,ir,or->to">(a, u, z, v, s), naive));
  CHECK(agrees(einsum<"tn,no,th,ho->to">(a, w<T, 6, 8>(7), z, w<T, 5, 8>(8)), naive));
}

// True if both are expressions of one type, which has the subscripts: then numbers and gradients
// are the same, too.
template <class A, class B>
bool same_type(const A&, const B&) {
  return std::is_same_v<A, B>;
}

TEST_CASE("blanks between labels do not count", "[einsum]") {
  const auto a = x<float, 5, 7>(1);
  const auto b = w<float, 7, 9>(2);
  const auto plain = einsum<"ti,io->to">(a, b);
  CHECK(same_type(einsum<"ti, io -> to">(a, b), plain));
  CHECK(same_type(einsum<" t i ,i  o - >t o ">(a, b), plain));
  CHECK(same_type(einsum<"ti -> ">(a), einsum<"ti->">(a)));
  CHECK(agrees(einsum<"t i, i o -> t o">(a, b)));
}

TEST_CASE("without an arrow the result has the labels that occur once, in order", "[einsum]") {
  const auto a = x<float, 5, 7>(1);
  const auto b = w<float, 7, 9>(2), square = w<float, 5, 5>(3);
  const tensor<float, 0> number({}, std::array<float, 1>{3});
  CHECK(same_type(einsum<"ti,io">(a, b), einsum<"ti,io->ot">(a, b)));
  CHECK(same_type(einsum<"t i, i o">(a, b), einsum<"ti,io->ot">(a, b)));
  CHECK(same_type(einsum<"ab,bz">(a, b), einsum<"ab,bz->az">(a, b)));
  CHECK(same_type(einsum<"aB,BA">(a, b), einsum<"aB,BA->Aa">(a, b)));
  CHECK(same_type(einsum<"ti,jo">(a, b), einsum<"ti,jo->ijot">(a, b)));
  CHECK(same_type(einsum<"ii,ti">(square, b), einsum<"ii,ti->t">(square, b)));
  CHECK(same_type(einsum<"ti,ti">(a, a), einsum<"ti,ti->">(a, a)));
  CHECK(same_type(einsum<"ti">(a), einsum<"ti->it">(a)));
  CHECK(same_type(einsum<"ii">(square), einsum<"ii->">(square)));
  CHECK(same_type(einsum<"">(number), einsum<"->">(number)));
  CHECK(agrees(einsum<"ti,io">(a, b)));
  CHECK(evaluate(einsum<"ti,io">(a, b)).shape() == std::array<extent, 2>{9, 5});
}

TEST_CASE("an axis of extent 1 with a letter of its own counts for all of another", "[einsum]") {
  const auto a = x<float, 5, 7>(1), row = x<float, 1, 7>(2);
  const auto made = evaluate(einsum<"ti,zi->ti">(a, row));
  for (extent t = 0; t < 5; ++t)
    for (extent i = 0; i < 7; ++i) CHECK(made(t, i) == a(t, i) * row(0, i));
  CHECK_THROWS_AS(evaluate(einsum<"ti,ti->ti">(a, row)), shape_error);
  CHECK_THROWS_AS(evaluate(einsum<"ti,ti->ti">(row, a)), shape_error);
}

TEST_CASE("16-bit leaves are computed in float, mixed ones in double", "[einsum]") {
  const auto a = random<tensor<float, 2>>({5, 7}, 1);
  const auto b = random<parameter<bf16, 2>>({7, 9}, 2);
  const auto c = random<parameter<f16, 2>>({9, 4}, 3);
  const auto d = random<parameter<double, 2>>({7, 9}, 4);
  const auto single = einsum<"ti,io,oc->tc">(a, b, c);
  const auto mixed = einsum<"ti,io,io,oc->tc">(a, b, d, c);
  static_assert(std::is_same_v<decltype(evaluate(single))::value_type, float>);
  static_assert(std::is_same_v<decltype(evaluate(mixed))::value_type, double>);
  CHECK(agrees(single));
  CHECK(agrees(mixed));
  CHECK(agrees(
      einsum<"ti,io->to">(random<tensor<bf16, 2>>({5, 7}, 5), random<tensor<f16, 2>>({7, 3}, 6))));
  CHECK(agrees(einsum<"ti->it">(random<tensor<f16, 2>>({5, 7}, 7))));
}

TEST_CASE("one storage seen with two types and two shapes is not mixed up", "[einsum]") {
  const auto s = std::make_shared<storage>(64);
  for (int i = 0; i < 32; ++i)
    static_cast<bf16*>(s->data())[i] = bf16(static_cast<float>(i % 5 - 2));
  const auto ones = random<tensor<float, 2>>({3, 4}, 1);
  const parameter<bf16, 2> narrow(tensor<bf16, 2>({4, 2}, s)), wide(tensor<bf16, 2>({4, 8}, s));
  const parameter<f16, 2> other(tensor<f16, 2>({4, 8}, s));
  CHECK(agrees(einsum<"ti,io->to">(ones, narrow)));
  CHECK(agrees(einsum<"ti,io->to">(ones, wide)));
  CHECK(agrees(einsum<"ti,io->to">(ones, other)));
  CHECK(agrees(einsum<"ti,it->t">(random<tensor<float, 2>>({8, 4}, 1), wide)));
}

// Returns an expression whose tensors and temporaries no longer exist.
auto orphan(unsigned seed) {
  const auto a = x<float, 4, 5>(seed);
  const auto hidden = relu(einsum<"ti,ih->th">(a, w<float, 5, 6>(seed + 1)));
  return einsum<"th,ho->to">(hidden + w<float, 6>(seed + 2), w<float, 6, 3>(seed + 3));
}

TEST_CASE("an expression owns what it is made of", "[einsum]") {
  const auto e = orphan(1);
  const auto copy = [] {
    auto inner = orphan(1);
    return inner;
  }();
  CHECK(agrees(e));
  CHECK(reference(e) == reference(copy));
}

TEST_CASE("building an expression copies and runs nothing", "[einsum]") {
  const auto a = x<float, 4, 5>(1);
  const auto b = w<float, 5, 6>(2);
  std::fill_n(const_cast<float*>(a.data()), a.size(), NAN);
  CHECK(a.shared_storage().use_count() == 1);
  {
    const auto e = einsum<"ti,io->to">(a, b);
    CHECK(a.shared_storage().use_count() == 2);
    const auto f = e + e;
    CHECK(a.shared_storage().use_count() == 2);  // both operands of f are the same expression
    CHECK(b.shared_storage().use_count() == 2);
    ir::graph g;
    f.lower(g);
    CHECK(g.size() == 4);
    CHECK(get<ir::leaf_node>(g[ir::node_id{0}].op).data->data() == a.data());
  }
  CHECK(a.shared_storage().use_count() == 1);
  // A wrong expression can be built; it is refused when it is lowered.
  const auto wrong = einsum<"ti,io->to">(a, w<float, 4, 6>(3));
  CHECK_THROWS_AS(evaluate(wrong), shape_error);
}

}  // namespace

// SPDX-License-Identifier: MIT
// Eigen's objects are operands of expressions, and inputs and outputs of calls. docs/interop.md
// quotes this file.
#include <fmoe/eigen.hpp>
#include <fmoe/mxd.hpp>

#include "../support/agree.hpp"
#include "../support/allocations.hpp"
#include "../support/products.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using any_stride = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;

constexpr sizes n;
constexpr float untouched = 77;

const auto product = [](const auto& x, const auto& w) { return einsum<"ti,io->to">(x, w); };

Eigen::MatrixXf weights() {
  Eigen::MatrixXf w(n.inputs, n.outputs);
  number(w, n.inputs, n.outputs);
  return w;
}

// Checks x and y, of any kind and of the product's sizes, in an expression, as an output of
// evaluate, and in a compiled call.
template <class X, class Y>
void check_product(X&& x, Y&& y) {
  using T = typename std::remove_cvref_t<X>::Scalar;
  const auto w = weights().template cast<T>().eval();
  number(x, n.tokens, n.inputs);
  CHECK(is_product(x, w, evaluate(product(x, w))));

  y.setConstant(untouched);
  evaluate(product(x, w), y);
  CHECK(is_product(x, w, y));

  y.setConstant(untouched);
  const auto kept = to_tensor(w);
  const auto forward = compile([&](const auto& in) { return product(in, kept); }, n.tokens);
  forward(x, y);
  CHECK(is_product(x, w, y));
}

template <class T, int Order, int Rows = Eigen::Dynamic, int Columns = Eigen::Dynamic>
using matrix = Eigen::Matrix<T, Rows, Columns, Order>;

TEST_CASE("matrices and arrays of both storage orders, of fixed and dynamic sizes", "[eigen]") {
  const auto of_type = [](auto zero) {
    using T = decltype(zero);
    using Eigen::ColMajor, Eigen::RowMajor;
    check_product(matrix<T, ColMajor>(n.tokens, n.inputs),
                  matrix<T, ColMajor>(n.tokens, n.outputs));
    check_product(matrix<T, RowMajor>(n.tokens, n.inputs),
                  matrix<T, RowMajor>(n.tokens, n.outputs));
    check_product(matrix<T, ColMajor, 7, 5>(), matrix<T, RowMajor, 7, 3>());
    check_product(matrix<T, RowMajor, 7>(n.tokens, n.inputs),
                  matrix<T, ColMajor, Eigen::Dynamic, 3>(n.tokens, n.outputs));
    check_product(Eigen::Array<T, Eigen::Dynamic, Eigen::Dynamic>(n.tokens, n.inputs),
                  Eigen::Array<T, 7, 3, RowMajor>());
  };
  of_type(0.f);
  of_type(0.);
}

TEST_CASE("maps, references, blocks and transposes are read and written where they lie",
          "[eigen]") {
  std::vector<float> in(300, untouched), out(300, untouched);
  const Eigen::Map<Eigen::MatrixXf, 0, any_stride> x(in.data(), n.tokens, n.inputs,
                                                     any_stride(30, 3));
  Eigen::Map<row_major, 0, any_stride> y(out.data(), n.tokens, n.outputs, any_stride(20, 4));
  check_product(
      Eigen::Map<Eigen::MatrixXf, 0, any_stride>(in.data(), n.tokens, n.inputs, any_stride(30, 3)),
      y);
  CHECK(x(6, 4) == number_at(6, 4));
  CHECK(std::ranges::count(out, untouched) == 300 - n.tokens * n.outputs);

  Eigen::MatrixXf large = Eigen::MatrixXf::Constant(20, 20, untouched), result = large;
  row_major other = large;
  check_product(large.block(2, 3, n.tokens, n.inputs), other.block(4, 5, n.tokens, n.outputs));
  CHECK((other.array() == untouched).count() == 400 - n.tokens * n.outputs);
  check_product(other.block(1, 1, n.inputs, n.tokens).transpose(),
                result.block(3, 1, n.outputs, n.tokens).transpose());
  CHECK((result.array() == untouched).count() == 400 - n.tokens * n.outputs);
  check_product(large.topLeftCorner<7, 5>().array(),
                Eigen::Ref<Eigen::MatrixXf>(result.topLeftCorner(n.tokens, n.outputs)));
  check_product(Eigen::Ref<row_major>(other.middleRows(3, n.tokens).leftCols(n.inputs)),
                large.bottomRightCorner(n.tokens, n.outputs).matrix());
}

TEST_CASE("results without tokens, and numbers", "[eigen]") {
  Eigen::MatrixXf x(n.tokens, n.inputs), w(n.tokens, n.outputs),
      y = Eigen::MatrixXf::Constant(2 * n.inputs, n.outputs, untouched);
  number(x, n.tokens, n.inputs);
  number(w, n.tokens, n.outputs);
  evaluate(einsum<"ti,to->io">(x, w), y.topRows(n.inputs));
  CHECK(is_product(x.transpose(), w, y, {n.inputs, n.tokens, n.outputs}));
  CHECK((y.bottomRows(n.inputs).array() == untouched).all());
  tensor<float, 0> total(std::array<std::size_t, 0>{});
  evaluate(einsum<"ti->">(x), total);
  CHECK(std::abs(total() - x.sum()) < 1e-4f);
}

TEST_CASE("vectors have one axis: rows and columns of either storage order, diagonals, segments",
          "[eigen]") {
  const auto twice = compile([](const auto& v) { return v + v; }, arguments<1>{}, 7);
  const auto check = [&](auto&& from, auto&& to) {
    STATIC_REQUIRE(rank_of<std::remove_reference_t<decltype(from)>> == 1);
    for (int i = 0; i < 7; ++i) from(i) = static_cast<float>(i + 1);
    const auto right = [&](const auto& v) {
      for (int i = 0; i < 7; ++i)
        if (v(i) != 2 * static_cast<float>(i + 1)) return false;
      return true;
    };
    CHECK(right(evaluate(relu(from) + from)));
    to.setConstant(untouched);
    twice(from, to);
    CHECK(right(to));
    to.setConstant(untouched);
    evaluate(relu(from) + from, to);
    CHECK(right(to));
  };
  Eigen::MatrixXf a(7, 7), b = Eigen::MatrixXf::Constant(9, 9, untouched);
  row_major c(7, 7);
  check(Eigen::VectorXf(7), Eigen::RowVectorXf(7));
  check(Eigen::Matrix<float, 7, 1>(), Eigen::Array<float, 1, 7>());
  check(a.row(3), c.col(2));
  check(a.col(3), c.row(2));
  check(c.diagonal(), a.diagonal());
  check(c.row(4).transpose(), b.row(5).segment(1, 7));
  CHECK((b.array() == untouched).count() == 81 - 7);

  // This case has a bias and one token.
  const Eigen::VectorXf bias = Eigen::VectorXf::LinSpaced(n.outputs, 1, 3);
  Eigen::MatrixXf x(n.tokens, n.inputs), y(n.tokens, n.outputs);
  number(x, n.tokens, n.inputs);
  evaluate(product(x, weights()) + bias, y);
  y.rowwise() -= bias.transpose();
  CHECK(is_product(x, weights(), y));
  const auto forward =
      compile([w = to_tensor(weights())](const auto& in) { return product(in, w); }, n.tokens);
  Eigen::MatrixXf rows(n.tokens, n.outputs);
  for (int t = 0; t < n.tokens; ++t) forward(x.row(t), rows.row(t));
  CHECK(is_product(x, weights(), rows));
}

TEST_CASE("a compiled call copies and allocates nothing", "[eigen]") {
  const Eigen::MatrixXf x = Eigen::MatrixXf::Random(n.tokens, n.inputs);
  Eigen::MatrixXf y(2 * n.tokens, n.outputs);
  CHECK(view_of(x).data == x.data());
  const auto seen = view_of(x);
  CHECK((seen.strides[0] == 1 && seen.strides[1] == static_cast<std::size_t>(n.tokens)));
  auto block = y.middleRows(2, n.tokens);
  CHECK(view_of(block).data == &y(2, 0));
  CHECK(view_of(block).strides[1] == 2 * static_cast<std::size_t>(n.tokens));

  const auto forward =
      compile([w = to_tensor(weights())](const auto& in) { return product(in, w); }, n.tokens);
  CHECK(allocates_nothing([&] { forward(x, y.bottomRows(n.tokens)); }));
  CHECK(allocates_nothing([&] { forward(x, block); }));
  CHECK(is_product(x, weights(), block));
}

TEST_CASE("an expression holds the elements as they were, and outlives what it was made of",
          "[eigen]") {
  const auto x = std::make_unique<Eigen::MatrixXf>(Eigen::MatrixXf::Random(n.tokens, n.inputs));
  const Eigen::MatrixXf before = *x;
  const auto e = product(*x, weights());  // the weights have ended here
  x->setZero();
  CHECK(is_product(before, weights(), evaluate(e)));

  const auto made = [&] {
    const Eigen::MatrixXf a = before, b = Eigen::MatrixXf::Ones(n.tokens, n.inputs);
    return product(2 * a - b.cwiseProduct(a),
                   (weights() * Eigen::MatrixXf::Identity(n.outputs, n.outputs)).eval());
  }();
  CHECK(is_product(before, weights(), evaluate(made)));
}

TEST_CASE("Eigen's lazy expressions are evaluated", "[eigen]") {
  const Eigen::MatrixXf a = Eigen::MatrixXf::Random(n.tokens, n.inputs),
                        b = Eigen::MatrixXf::Random(n.inputs, n.inputs);
  const Eigen::MatrixXf sum = (a * b + a).reverse();
  row_major y(n.tokens, n.outputs);
  evaluate(product((a * b + a).reverse(), weights()), y);
  CHECK(is_product(sum, weights(), y));
  y.setZero();
  const auto forward =
      compile([w = to_tensor(weights())](const auto& in) { return product(in, w); }, n.tokens);
  forward((a * b + a).reverse(), y);
  CHECK(is_product(sum, weights(), y));
  CHECK(is_product(Eigen::MatrixXf(a.cast<double>().cast<float>()), weights(),
                   evaluate(product(a.cast<double>(), weights()))));
  STATIC_REQUIRE(
      std::is_same_v<decltype(evaluate(product(a.cast<double>(), weights()))), tensor<double, 2>>);
  CHECK(evaluate(relu(Eigen::VectorXf::Constant(4, 2.f)))(3) == 2);
}

TEST_CASE("a row-major matrix is borrowed without a copy, and a column-major one by its transpose",
          "[eigen]") {
  row_major x = row_major::Random(n.tokens, n.inputs);
  const auto kept = borrow(x);
  CHECK(kept.data() == x.data());
  const auto e = product(kept, weights());
  x *= 2;
  CHECK(is_product(x, weights(), evaluate(e)));

  const Eigen::MatrixXf columns = x, w = weights();
  CHECK_THROWS_AS(borrow(columns), value_error);
  const auto row = columns.row(1);
  CHECK_THROWS_AS(borrow(row), value_error);

  const auto transposed = columns.transpose();
  const auto y = fmoe::evaluate(fmoe::einsum<"it,io->to">(fmoe::borrow(transposed), w));

  CHECK(borrow(transposed).data() == columns.data());
  CHECK(is_product(x, w, y));

  const row_major fixed = x;
  STATIC_REQUIRE(std::is_same_v<decltype(borrow(fixed)), const tensor<float, 2>>);
  STATIC_REQUIRE(std::is_same_v<decltype(borrow(x)), tensor<float, 2>>);
  Eigen::Map<const Eigen::VectorXd> numbers(nullptr, 0);
  STATIC_REQUIRE(std::is_same_v<decltype(borrow(numbers)), const tensor<double, 1>>);
  CHECK(borrow(numbers).size() == 0);
}

TEST_CASE("what is const, lazy or of another type is no output", "[eigen]") {
  using Eigen::MatrixXf, Eigen::Map, Eigen::Ref;
  const auto is_output = [](auto type) {
    return writable_array<typename decltype(type)::type, float>;
  };
  using std::type_identity;
  STATIC_REQUIRE(is_output(type_identity<MatrixXf>()));
  STATIC_REQUIRE(is_output(type_identity<Map<MatrixXf>>()));
  STATIC_REQUIRE(is_output(type_identity<Ref<MatrixXf>>()));
  STATIC_REQUIRE(is_output(type_identity<decltype(std::declval<MatrixXf&>().col(0))>()));
  STATIC_REQUIRE(is_output(type_identity<decltype(std::declval<MatrixXf&>().transpose())>()));
  STATIC_REQUIRE(!is_output(type_identity<const MatrixXf>()));
  STATIC_REQUIRE(!is_output(type_identity<Map<const MatrixXf>>()));
  STATIC_REQUIRE(!is_output(type_identity<const Map<MatrixXf>>()));
  STATIC_REQUIRE(!is_output(type_identity<Ref<const MatrixXf>>()));
  STATIC_REQUIRE(!is_output(type_identity<decltype(std::declval<const MatrixXf&>().col(0))>()));
  STATIC_REQUIRE(
      !is_output(type_identity<decltype(std::declval<const MatrixXf&>().transpose())>()));
  STATIC_REQUIRE(
      !is_output(type_identity<decltype(std::declval<MatrixXf&>() + std::declval<MatrixXf&>())>()));
  STATIC_REQUIRE(!is_output(type_identity<Eigen::MatrixXd>()));
  STATIC_REQUIRE(!readable_array<Eigen::MatrixXi>);
  STATIC_REQUIRE(!readable_array<Eigen::MatrixXcf>);
  STATIC_REQUIRE(!readable_array<Eigen::Array<bool, 2, 2>>);
}

TEST_CASE("a call that is refused writes nothing to the matrix", "[eigen]") {
  row_major x = row_major::Random(n.tokens, n.inputs),
            y = row_major::Constant(n.tokens, n.outputs, untouched);
  const auto forward =
      compile([w = to_tensor(weights())](const auto& in) { return product(in, w); }, n.tokens);
  CHECK_THROWS_AS(forward(x.leftCols(4), y), shape_error);
  CHECK_THROWS_AS(forward(x.topRows(6), y), shape_error);
  CHECK_THROWS_AS(forward(x, y.transpose()), shape_error);
  CHECK_THROWS_AS(forward(Eigen::Map<row_major>(y.data(), 3, 5), y.topRows(3)), value_error);
  CHECK_THROWS_AS(forward(x, Eigen::Map<row_major, 0, any_stride>(y.data(), n.tokens, n.outputs,
                                                                  any_stride(0, 1))),
                  value_error);

  const auto e = product(x, weights());
  CHECK_THROWS_WITH(evaluate(e, y.topRows(6)),
                    "[evaluate] axis 0 of the output is 6 and the expression's is 7");
  CHECK_THROWS_AS(evaluate(e, y.row(0)), shape_error);
  Eigen::MatrixXf empty;
  CHECK_THROWS_AS(evaluate(e, empty), shape_error);
  CHECK_THROWS_AS(evaluate(e, Eigen::Map<row_major, 0, any_stride>(y.data(), n.tokens, n.outputs,
                                                                   any_stride(0, 1))),
                  value_error);
  CHECK((y.array() == untouched).all());

  // Only borrowed arrays can overlap.
  const row_major before = x;
  CHECK_THROWS_WITH(evaluate(2 * borrow(x), x), "[evaluate] the output overlaps an operand");
  CHECK(x == before);
  evaluate(relu(x), x);
  CHECK(x == before.cwiseMax(0));
}

TEST_CASE("matrices without elements", "[eigen]") {
  const auto forward =
      compile([w = to_tensor(weights())](const auto& in) { return product(in, w); }, n.tokens);
  Eigen::MatrixXf y(0, n.outputs);
  forward(Eigen::MatrixXf(0, n.inputs), y);
  evaluate(product(Eigen::MatrixXf(0, n.inputs), weights()), y);
  CHECK(evaluate(product(Eigen::MatrixXf(0, n.inputs), weights())).shape() ==
        std::array<std::size_t, 2>{0, 3});

  Eigen::MatrixXf zeros = Eigen::MatrixXf::Constant(2, 3, untouched);
  evaluate(product(Eigen::MatrixXf(2, 0), Eigen::MatrixXf(0, 3)), zeros);
  CHECK(zeros.isZero());
  CHECK(to_tensor(Eigen::VectorXf()).size() == 0);
}

TEST_CASE("operators and functions of two Eigen objects stay Eigen's", "[eigen]") {
  using namespace fmoe;
  const Eigen::MatrixXf a = Eigen::MatrixXf::Random(3, 3), b = a;
  const Eigen::ArrayXf v = Eigen::ArrayXf::Random(3);
  STATIC_REQUIRE(eigen_dense<decltype(a + b)>);
  STATIC_REQUIRE(eigen_dense<decltype(a - b)>);
  STATIC_REQUIRE(eigen_dense<decltype(a * b)>);
  STATIC_REQUIRE(eigen_dense<decltype(2.0f * a)>);
  STATIC_REQUIRE(eigen_dense<decltype(-a)>);
  STATIC_REQUIRE(eigen_dense<decltype(exp(v))>);
  STATIC_REQUIRE(eigen_dense<decltype(sqrt(v))>);
  STATIC_REQUIRE(eigen_dense<decltype(v + 1.0f)>);
  STATIC_REQUIRE(expression<decltype(relu(a) + b)>);
  STATIC_REQUIRE(expression<decltype(a * relu(b))>);
  STATIC_REQUIRE(expression<decltype(a - relu(b))>);
  CHECK(evaluate(a - relu(b))(1, 1) == a(1, 1) - std::max(b(1, 1), 0.f));
}

mxd<> layer_of(unsigned seed) {
  mxd<> l;
  l.encoder = random<parameter<float, 2>>({6, 20}, seed);
  l.encoder_bias = random<parameter<float, 1>>({20}, seed + 1);
  l.gate = random<parameter<float, 2>>({6, 30}, seed + 2);
  l.gate_bias = random<parameter<float, 1>>({30}, seed + 3);
  l.scales = random<parameter<float, 2>>({30, 4}, seed + 4);
  l.decoder = random<parameter<float, 2>>({20, 4}, seed + 5);
  l.bias = random<parameter<float, 1>>({4}, seed + 6);
  l.active = 5;
  return l;
}

TEST_CASE("a layer takes Eigen's matrices, and names them once", "[eigen]") {
  auto layer = layer_of(1);
  const Eigen::MatrixXf x = Eigen::MatrixXf::Random(9, 6);

  Eigen::MatrixXf y(9, 4);
  fmoe::evaluate(layer(x), y);                   // once, or
  const auto forward = fmoe::compile(layer, 9);  // plan and pack now
  forward(x, y);                                 // and only compute here

  const auto copy = to_tensor(x);
  const auto expected = evaluate(layer(copy));
  CHECK(as_eigen(expected) == y);

  ir::graph of_matrix, of_tensor;
  layer(x).lower(of_matrix);
  layer(copy).lower(of_tensor);
  CHECK(of_matrix.size() == of_tensor.size());

  const Eigen::MatrixXf encoder = Eigen::MatrixXf::Random(6, 20);
  layer.encoder = fmoe::to_tensor(encoder);
  CHECK(agrees(layer(x)));
}

TEST_CASE("a tensor is seen as Eigen's", "[eigen]") {
  tensor<float, 2> t({2, 3});
  auto seen = fmoe::as_eigen(t);
  seen(1, 2) = 5;
  CHECK(seen.data() == t.data());
  CHECK(t(1, 2) == 5);
  const tensor<double, 1> v({3});
  STATIC_REQUIRE(std::is_same_v<decltype(as_eigen(v)), Eigen::Map<const Eigen::VectorXd>>);
  CHECK(as_eigen(v).size() == 3);
}

}  // namespace

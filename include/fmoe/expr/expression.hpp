// SPDX-License-Identifier: MIT
// A lazy expression is its operands and a function that adds it to a graph. dynamic::expression is
// the expression; expr<T, Rank> is the same with its numbers and axes in its type, so that
// compilers refuse mistakes. Both own what they are made of, so none can dangle. Building one
// computes nothing and copies no element.
#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <fmoe/arrays/interop.hpp>
#include <fmoe/arrays/quantized.hpp>
#include <fmoe/base/counted.hpp>
#include <fmoe/base/refused_stream.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ops/ids.hpp>

namespace fmoe {

struct expression_base;

template <class T, std::size_t Rank, detail::type_set Types = detail::all_types>
class expr;

}  // namespace fmoe

namespace fmoe::ir {

class graph;  // a front reads no nodes

}  // namespace fmoe::ir

namespace fmoe::dynamic {

class expression;

}  // namespace fmoe::dynamic

namespace fmoe::detail {

struct expression_node;
dynamic::expression expression_of(const expression_node* made);

}  // namespace fmoe::detail

namespace fmoe::dynamic {

// A lazy expression whose rank and type of numbers are known when the program runs. Copies are the
// same expression, and a part that several expressions share is computed once.
class expression {
 public:
  // A typed expression, tensor or parameter.
  template <class E>
    requires requires(const E& e) { as_expression(e).untyped(); }
  explicit expression(const E& e) : expression(as_expression(e).untyped()) {}

  std::size_t rank() const;
  dtype type() const;          // float64 if an operand is, else float32
  bool holds_nothing() const;  // of a tensor

  // Adds the expression to a graph and returns its node.
  ir::node_id lower(ir::graph& g) const;

 private:
  friend expression detail::expression_of(const detail::expression_node* made);
  explicit expression(const detail::expression_node* node) : node_(node) {}

  detail::counted_ptr<detail::expression_node> node_;
};

}  // namespace fmoe::dynamic

namespace fmoe::detail {

// The type in which operands are computed together.
dtype joint_type(std::span<const dynamic::expression> operands);

// What an expression is made of.
struct expression_node : counted {
  expression_node(extent r, vector<dynamic::expression> o)
      : rank(r),
        type(joint_type(o)),
        operands(std::move(o)) {}
  expression_node(extent r, dtype t) : rank(r), type(t) {}

  // Throws for operands that hold nothing, if it can tell more than these can.
  virtual void expects_operands() const {}
  virtual bool holds_nothing() const { return false; }
  // Adds the node to a graph that has the operands.
  virtual ir::node_id lower(ir::graph& g, std::span<const ir::node_id> args) const = 0;

  extent rank;
  dtype type;
  vector<dynamic::expression> operands;
};

inline dynamic::expression expression_of(const expression_node* made) {
  return dynamic::expression(made);
}

// An expression of one operand, which is added by a function of a graph and of the
// operand's node.
template <class F>
dynamic::expression expression_of(const dynamic::expression& e, extent rank, F f) {
  struct made final : expression_node {
    made(const dynamic::expression& arg, extent r, F function)
        : expression_node(r, {arg}),
          f(std::move(function)) {}
    ir::node_id lower(ir::graph& g, std::span<const ir::node_id> args) const override {
      return f(g, args[0]);
    }

    F f;
  };
  return expression_of(new made(e, rank, std::move(f)));
}

// What a leaf is to an expression.
enum class leaf_role : std::uint8_t { tensor, parameter, copy };

dynamic::expression leaf(const std::shared_ptr<storage>& elements, dtype type,
                         std::span<const extent> shape, block_axis axis, leaf_role role);
dynamic::expression input(extent index, extent rank, extent tokens);

// Returns the expression with another type of numbers.
dynamic::expression of_type(dtype type, const dynamic::expression& e);

// Throws shape_error if the expression has another rank.
void expects_rank(const dynamic::expression& e, extent rank);

}  // namespace fmoe::detail

namespace fmoe {

// What einsum and its like return. That the base is asked for first makes the question cheap for
// the types of others.
template <class E>
concept expression = std::convertible_to<const E*, const expression_base*>;

// The base of typed expressions. Its functions refuse what only a tensor does.
struct expression_base {
  template <std::integral... Index>
  float operator()(Index...) const {
    static_assert(detail::never<Index...>,
                  "an expression has no elements; fmoe::evaluate(expression) has");
    return 0;
  }

  // What a loop asks of the iterators of an expression, so that it prints no other error.
  struct no_iterator {
    bool operator!=(no_iterator) const;
    no_iterator& operator++();
    float& operator*() const;
  };
  template <class T = void>
  no_iterator begin() const {
    static_assert(detail::never<T>,
                  "an expression has no elements to loop over; fmoe::evaluate(expression) has");
    return {};
  }
  no_iterator end() const { return {}; }
};

// Refuses to print an expression.
template <expression E>
std::ostream& operator<<(detail::refused_stream to, const E&) {
  static_assert(detail::never<E>,
                "an expression has no elements to print; fmoe::evaluate(expression) has");
  return to.out;
}

}  // namespace fmoe

namespace fmoe::detail {

// An expression or a tensor. Operators, and functions of names that others have too, want at least
// one such operand: a + b of two Eigen matrices stays Eigen's, and nothing is asked of the types of
// others but whether they are one of these.
template <class E>
concept own_operand = expression<std::remove_cvref_t<E>> ||
                      requires(const std::remove_cvref_t<E>& e) { e.shared_storage(); };

template <class T, extent Rank>
using leaf_expr = expr<arithmetic_t<T>, Rank, type_bit<T>>;

}  // namespace fmoe::detail

namespace fmoe {

// An operand as an expression.
template <expression E>
constexpr const E& as_expression(const E& e) {
  return e;
}
// A temporary is returned by value, because a reference to it would dangle. (E& is not an
// expression, so E is the type to move.)
template <expression E>
constexpr E as_expression(E&& e) {
  return std::forward<E>(e);
}
template <class T, std::size_t Rank>
detail::leaf_expr<T, Rank> as_expression(const tensor<T, Rank>& t);
template <class T, std::size_t Rank>
detail::leaf_expr<typename parameter<T, Rank>::value_type, Rank> as_expression(
    const parameter<T, Rank>& p);

// An array of another library is copied now, and a lazy one is evaluated now: a const reference may
// refer to a temporary, and no expression may dangle. A tensor from borrow() is not copied.
template <detail::array_operand A>
  requires(!detail::own_operand<A>)
auto as_expression(const A& a)
    -> detail::leaf_expr<typename detail::tensor_like<all, const A>::value_type,
                         detail::tensor_rank<all, const A>>;

// Anything from which an expression can be built.
template <class E>
concept operand = requires(const std::remove_cvref_t<E>& e) { as_expression(e); };

// The expression that an operand becomes.
template <operand E>
using expression_t =
    std::remove_cvref_t<decltype(as_expression(std::declval<const std::remove_cvref_t<E>&>()))>;

// An operand with `Rank` axes.
template <class E, std::size_t Rank>
concept operand_of = operand<E> && expression_t<E>::rank == Rank;

}  // namespace fmoe

namespace fmoe::detail {

// An operand of these numbers and axes.
template <class E, class T, extent Rank>
concept operand_like = operand_of<E, Rank> && std::same_as<typename expression_t<E>::scalar, T>;

// The expression of a graph's node, whose numbers and axes are known to be those of the type.
struct typed_as {};

}  // namespace fmoe::detail

namespace fmoe {

// A lazy expression of `Rank` axes, computed in T. Types are those in which the elements of its
// leaves may be stored: a header-only program has kernels for these alone.
template <class T, std::size_t Rank, detail::type_set Types>
class expr : public expression_base {
 public:
  using scalar = T;
  static constexpr std::size_t rank = Rank;
  static constexpr detail::type_set types = Types;

  // Throws shape_error for an expression of another rank.
  explicit expr(dynamic::expression e) : untyped_(std::move(e)) {
    detail::expects_rank(untyped_, Rank);
  }
  expr(detail::typed_as, dynamic::expression e) : untyped_(std::move(e)) {}

  template <detail::operand_like<T, Rank> E>
  expr(const E& e) : untyped_(as_expression(e).untyped()) {
    static_assert((expression_t<E>::types & ~Types) == 0,
                  "the expression has weights of a type that the variable's type does not name: "
                  "let the variable be fmoe::expr<T, Rank>");
  }
  template <operand E>
    requires(!detail::operand_like<E, T, Rank>)
  expr& operator=(const E&) {
    static_assert(detail::never<E>,
                  "an expression of other numbers or axes has another type: give it a name of its "
                  "own");
    return *this;
  }

  const dynamic::expression& untyped() const { return untyped_; }
  ir::node_id lower(ir::graph& g) const { return untyped_.lower(g); }

 private:
  dynamic::expression untyped_;
};

template <operand E>
expr(const E&) -> expr<typename expression_t<E>::scalar, expression_t<E>::rank>;

// Stands for an argument of a compiled layer. Its leading axis counts tokens, and its other extents
// follow from the layer. Any scalar would do: the rest of the expression decides.
template <int Index, std::size_t Rank>
struct argument : expr<float, Rank, 0> {
  static_assert(Rank >= 1, "an argument of a compiled layer has a leading token axis");
  static constexpr std::size_t index = Index;

  explicit argument(std::size_t tokens_at_most)
      : expr<float, Rank, 0>(detail::typed_as(), detail::input(Index, Rank, tokens_at_most)) {}
};

}  // namespace fmoe

namespace fmoe::detail {

// An expression of `Rank` axes that is made of operands.
template <extent Rank, operand... Es>
using expr_of = expr<arithmetic_t<typename expression_t<Es>::scalar...>, Rank,
                     (type_set{} | ... | expression_t<Es>::types)>;

// The expression that f makes of operands.
template <extent Rank, class F, operand... Es>
expr_of<Rank, Es...> typed(const F& f, const Es&... es) {
  return {typed_as(), f(as_expression(es).untyped()...)};
}

// The one of two operands that f chooses, or what it makes of both.
template <extent Rank, class F, operand A, operand B>
expr_of<Rank, A, B> typed_choice(const F& f, const A& a, const B& b) {
  using X = typename expression_t<A>::scalar;
  using Y = typename expression_t<B>::scalar;
  return typed<Rank>(
      [&](const dynamic::expression& x, const dynamic::expression& y) {
        if constexpr (std::is_same_v<X, Y>) return f(x, y);
        else return of_type(dtype_of<arithmetic_t<X, Y>>, f(x, y));
      },
      a, b);
}

template <class T, extent Rank>
leaf_expr<T, Rank> leaf_of(const tensor<T, Rank>& t, leaf_role role) {
  block_axis axis{};
  if constexpr (is_quantized<T>) axis = t.blocks();
  return {typed_as(), leaf(t.shared_storage(), dtype_of<T>, t.shape(), axis, role)};
}

}  // namespace fmoe::detail

namespace fmoe {

template <class T, std::size_t Rank>
detail::leaf_expr<T, Rank> as_expression(const tensor<T, Rank>& t) {
  return detail::leaf_of(t, detail::leaf_role::tensor);
}
template <class T, std::size_t Rank>
detail::leaf_expr<typename parameter<T, Rank>::value_type, Rank> as_expression(
    const parameter<T, Rank>& p) {
  return detail::leaf_of<typename parameter<T, Rank>::value_type, Rank>(
      p, detail::leaf_role::parameter);
}
template <detail::array_operand A>
  requires(!detail::own_operand<A>)
auto as_expression(const A& a)
    -> detail::leaf_expr<typename detail::tensor_like<all, const A>::value_type,
                         detail::tensor_rank<all, const A>> {
  return detail::leaf_of(to_tensor(a), detail::leaf_role::copy);
}

}  // namespace fmoe

namespace fmoe::detail {

// A layer that was not called: the caller wrote layer where layer(x) is meant. A class has an
// operator() if the name is ambiguous once with_call adds another one.
struct with_call {
  void operator()();
};
template <class E>
struct with_another_call : E, with_call {};
template <class E>
concept uncalled = !operand<E> && std::is_class_v<E> && !std::is_final_v<E> &&
                   !requires { &with_another_call<E>::operator(); };

// A function returns this after a static_assert has named a misuse. It is an expression, so that no
// further error hides the sentence.
struct refused : expr<float, 2> {
  refused();
};

// A layer of one input calls this for any other arguments.
template <class... Xs>
refused not_rows(const Xs&...) {
  static_assert(
      never<Xs...>,
      "a layer takes one tensor or expression of two axes, [token, input], or an array of "
      "another library with <fmoe/eigen.hpp> or <fmoe/xtensor.hpp>");
  return {};
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns a if `first`, else b; the other one is never computed.
template <operand A, operand B>
auto choose(bool first, const A& a, const B& b) {
  constexpr std::size_t rank = expression_t<A>::rank;
  static_assert(expression_t<B>::rank == rank, "choose: both expressions have the same rank");
  return detail::typed_choice<rank>(
      [first](const dynamic::expression& x, const dynamic::expression& y) { return first ? x : y; },
      a, b);
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/expr/expression-inl.hpp>
#endif

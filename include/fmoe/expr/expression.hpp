// SPDX-License-Identifier: MIT
// What a lazy expression is: a scalar type, a rank, and a way into a graph. Expressions own their
// leaves and hold their children by value, so none can dangle; building one runs nothing and copies
// no element.
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include <fmoe/arrays/interop.hpp>
#include <fmoe/arrays/tensor.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe {

// What einsum and its like return.
template <class E>
concept expression = requires(const E& e, ir::graph& g) {
  typename E::scalar;
  { E::rank } -> std::convertible_to<extent>;
  { e.lower(g) } -> std::same_as<ir::node_id>;
};

template <class T, extent Rank>
struct leaf {
  using scalar = arithmetic_t<T>;
  static constexpr extent rank = Rank;

  tensor<T, Rank> source;
  bool is_parameter;
  bool is_copy = false;

  // Throws value_error if the tensor holds nothing.
  ir::node_id lower(ir::graph& g) const {
    expects<value_error>(!source.empty(), "[", is_parameter ? "parameter" : "tensor", "] of rank ",
                         Rank, " is used but holds nothing: set or load it");
    const auto& s = source.shape();
    return g.leaf(
        {source.shared_storage(), dtype_of<T>, {s.begin(), s.end()}, is_parameter, -1, is_copy});
  }
};

// Stands for what a compiled layer is called with: its leading axis counts tokens, the others
// follow from the layer.
template <int Index, extent Rank>
struct argument {
  static_assert(Rank >= 1, "an argument of a compiled layer has a leading token axis");
  using scalar = float;  // whatever the rest of the expression is computed in
  static constexpr extent rank = Rank;

  extent tokens;

  ir::node_id lower(ir::graph& g) const {
    std::vector<extent> shape(Rank, unknown);
    shape[0] = tokens;
    return g.leaf({nullptr, dtype::float32, std::move(shape), false, Index});
  }
};

template <expression E>
constexpr const E& as_expression(const E& e) {
  return e;
}
// A temporary is handed on by value, since a reference to it would dangle. (E& is no expression, so
// E is what is moved.)
template <expression E>
constexpr E as_expression(E&& e) {
  return std::forward<E>(e);
}
template <class T, std::size_t Rank>
leaf<T, Rank> as_expression(const tensor<T, Rank>& t) {
  return {t, false};
}
template <class T, std::size_t Rank>
leaf<T, Rank> as_expression(const parameter<T, Rank>& p) {
  return {p, true};
}

// Of this library. Operators, and functions of names that others have too, want at least one such
// operand: a + b of two Eigen matrices stays Eigen's.
template <class E>
concept own_operand = expression<std::remove_cvref_t<E>> ||
                      requires(const std::remove_cvref_t<E>& e) { e.shared_storage(); };

// An array of another library is copied, and a lazy one evaluated, now: a const reference does not
// tell a temporary, and no expression may dangle. A tensor from borrow() is not copied.
template <array_operand A>
  requires(!own_operand<A>)
auto as_expression(const A& a)
    -> leaf<typename tensor_like<any_rank, const A>::value_type, tensor_rank<any_rank, const A>> {
  return {to_tensor(a), false, true};
}

// Anything that an expression can be built from.
template <class E>
concept operand = requires(const std::remove_cvref_t<E>& e) { as_expression(e); };

// A layer where its value belongs, layer for layer(x): a class with an operator(), whose name is
// ambiguous beside another's.
struct with_call {
  void operator()();
};
template <class E>
struct with_another_call : E, with_call {};
template <class E>
concept uncalled = !operand<E> && std::is_class_v<E> && !std::is_final_v<E> &&
                   !requires { &with_another_call<E>::operator(); };

template <operand E>
using expression_t =
    std::remove_cvref_t<decltype(as_expression(std::declval<const std::remove_cvref_t<E>&>()))>;

// An operand of so many axes.
template <class E, extent Rank>
concept operand_of = operand<E> && expression_t<E>::rank == Rank;

// What a misuse returns that a static_assert has named: an expression, so that no further error
// hides the sentence.
struct refused {
  using scalar = float;
  static constexpr extent rank = 2;

  ir::node_id lower(ir::graph&) const { return {}; }
};

// What a layer of one input does with anything else.
template <class... Xs>
refused not_rows(const Xs&...) {
  static_assert(never<Xs...>, "a layer takes one tensor or expression of two axes, [token, input]");
  return {};
}

// An expression whose type tells only scalar and rank. Layers of many parts return it, so that the
// types of what is built from them, which compilers must name, do not grow with the layer.
template <class T, extent Rank>
class any_expression {
 public:
  using scalar = T;
  static constexpr extent rank = Rank;

  template <expression E>
    requires(!std::is_same_v<E, any_expression>)
  explicit any_expression(E e) : lower_([e = std::move(e)](ir::graph& g) { return e.lower(g); }) {}

  ir::node_id lower(ir::graph& g) const { return lower_(g); }

 private:
  std::function<ir::node_id(ir::graph&)> lower_;
};

// e as an any_expression.
template <operand E>
auto erased(const E& e) {
  using X = expression_t<E>;
  return any_expression<typename X::scalar, X::rank>(as_expression(e));
}

// One of two expressions of equal rank, chosen when the layer is applied; the other is never
// lowered.
template <expression A, expression B>
struct choice {
  static_assert(A::rank == B::rank, "choose: both expressions have the same rank");
  using scalar = arithmetic_t<typename A::scalar, typename B::scalar>;
  static constexpr extent rank = A::rank;

  bool first;
  A a;
  B b;

  ir::node_id lower(ir::graph& g) const { return first ? a.lower(g) : b.lower(g); }
};

// a if `first`, else b.
template <operand A, operand B>
auto choose(bool first, const A& a, const B& b) {
  return choice<expression_t<A>, expression_t<B>>{first, as_expression(a), as_expression(b)};
}

}  // namespace fmoe

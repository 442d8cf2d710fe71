// SPDX-License-Identifier: MIT
// A lazy expression has a scalar type, a rank, and a function that adds it to a graph. Expressions
// own their leaves and hold their children by value, so none can dangle. Building an expression
// computes nothing and copies no element.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <fmoe/arrays/interop.hpp>
#include <fmoe/arrays/quantized.hpp>
#include <fmoe/base/refused_stream.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe {

struct expression_base;

// What einsum and its like return. That the base is asked for first makes the question cheap for
// the types of others.
template <class E>
concept expression =
    std::convertible_to<const E*, const expression_base*> && requires(const E& e, ir::graph& g) {
      typename E::scalar;
      { E::rank } -> std::convertible_to<std::size_t>;
      { e.lower(g) } -> std::same_as<ir::node_id>;
    };

// The base of every expression. It lies in fmoe, so that a compiler finds fmoe's operators and
// functions for whatever derives from it. Its own functions refuse what only a tensor does.
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

  // Another expression is assigned to a variable. (An expression with constructors says itself
  // what becomes one.)
  template <expression E>
    requires(std::is_aggregate_v<E>)
  operator E() const {
    static_assert(detail::never<E>,
                  "an expression of another formula has another type: give it a name of its own, "
                  "or make both fmoe::erased(expression)");
    throw;
  }
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

// The types in which the leaves of an expression are stored; all, if it does not tell them.
template <class E>
inline constexpr type_set types_of_leaves = [] {
  if constexpr (requires { E::types; }) return E::types;
  else return all_types;
}();

// The base of an expression that is made of others.
template <class... Es>
struct composed_of : expression_base {
  using scalar = arithmetic_t<typename Es::scalar...>;
  static constexpr type_set types = (type_set{} | ... | types_of_leaves<Es>);
};

// The elements of a leaf. Expressions copy their leaves dozens of times, so that to copy and to
// drop one is a call: code for each place would be a third of a unit that runs a layer.
struct leaf_elements {
  leaf_elements(std::shared_ptr<storage> e, bool parameter, bool copy)
      : elements(std::move(e)),
        version(elements == nullptr ? 0 : elements->version()),
        is_parameter(parameter),
        is_copy(copy) {}
  FMOE_NOINLINE leaf_elements(const leaf_elements& other) = default;
  FMOE_NOINLINE leaf_elements(leaf_elements&& other) noexcept = default;
  FMOE_NOINLINE leaf_elements& operator=(const leaf_elements& other) = default;
  FMOE_NOINLINE leaf_elements& operator=(leaf_elements&& other) noexcept = default;
  FMOE_NOINLINE ~leaf_elements() {}

  // Throws value_error if the tensor holds nothing.
  ir::node_id lower(ir::graph& g, dtype type, std::span<const extent> shape, block_axis axis) const;

  std::shared_ptr<storage> elements;  // the tensor's own, so that writes to it are seen
  std::uint64_t version;
  bool is_parameter, is_copy;
};

template <class T, extent Rank>
struct leaf : expression_base, leaf_elements {
  using scalar = arithmetic_t<T>;
  static constexpr type_set types = type_bit<T>;
  static constexpr extent rank = Rank;

  explicit leaf(const tensor<T, Rank>& t, bool parameter, bool copy = false)
      : leaf_elements(t.shared_storage(), parameter, copy),
        shape(t.shape()) {
    if constexpr (is_quantized<T>) axis = t.blocks();
  }

  std::array<extent, Rank> shape;
  block_axis axis{};  // of weights of 8 bits

  ir::node_id lower(ir::graph& g) const {
    return leaf_elements::lower(g, dtype_of<T>, shape, axis);
  }
};

// An expression or a tensor. Operators, and functions of names that others have too, want at least
// one such operand: a + b of two Eigen matrices stays Eigen's, and nothing is asked of the types of
// others but whether they are one of these.
template <class E>
concept own_operand = expression<std::remove_cvref_t<E>> ||
                      requires(const std::remove_cvref_t<E>& e) { e.shared_storage(); };

}  // namespace fmoe::detail

namespace fmoe {

// Stands for an argument of a compiled layer. Its leading axis counts tokens, and its other extents
// follow from the layer.
template <int Index, std::size_t Rank>
struct argument : expression_base {
  static_assert(Rank >= 1, "an argument of a compiled layer has a leading token axis");
  using scalar = float;  // any scalar will do: the rest of the expression decides
  static constexpr detail::type_set types = 0;
  static constexpr std::size_t rank = Rank;

  constexpr explicit argument(std::size_t tokens_at_most) : tokens(tokens_at_most) {}

  std::size_t tokens;

  ir::node_id lower(ir::graph& g) const {
    std::vector<std::size_t> shape(Rank, all);
    shape[0] = tokens;
    return g.leaf({nullptr, dtype::float32, std::move(shape), false, Index});
  }
};

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
detail::leaf<T, Rank> as_expression(const tensor<T, Rank>& t) {
  return detail::leaf<T, Rank>(t, false);
}
template <class T, std::size_t Rank>
auto as_expression(const parameter<T, Rank>& p) {
  return detail::leaf<typename parameter<T, Rank>::value_type, Rank>(p, true);
}

// An array of another library is copied now, and a lazy one is evaluated now: a const reference may
// refer to a temporary, and no expression may dangle. A tensor from borrow() is not copied.
template <detail::array_operand A>
  requires(!detail::own_operand<A>)
auto as_expression(const A& a)
    -> detail::leaf<typename detail::tensor_like<all, const A>::value_type,
                    detail::tensor_rank<all, const A>> {
  return detail::leaf<typename detail::tensor_like<all, const A>::value_type,
                      detail::tensor_rank<all, const A>>(to_tensor(a), false, true);
}

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
struct refused : expression_base {
  using scalar = float;
  static constexpr extent rank = 2;

  ir::node_id lower(ir::graph&) const { return {}; }
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

// One of two expressions of equal rank, chosen when the layer is applied; the other one is never
// lowered.
template <expression A, expression B>
struct choice : composed_of<A, B> {
  static_assert(A::rank == B::rank, "choose: both expressions have the same rank");
  static constexpr extent rank = A::rank;

  bool first;
  A a;
  B b;

  ir::node_id lower(ir::graph& g) const { return first ? a.lower(g) : b.lower(g); }
};

}  // namespace fmoe::detail

namespace fmoe {

// An expression whose type tells only its scalar and its rank. Layers of many parts return it;
// otherwise the types of expressions made from them, which compilers must name, would grow with the
// layer.
template <class T, std::size_t Rank>
class any_expression : public expression_base {
 public:
  using scalar = T;
  static constexpr std::size_t rank = Rank;

  template <expression E>
    requires(!std::is_same_v<E, any_expression>)
  explicit any_expression(E e)
      : hidden_(std::make_shared<const E>(std::move(e))),
        lower_([](const void* hidden, ir::graph& g) {
          return static_cast<const E*>(hidden)->lower(g);
        }) {}

  // A part that several expressions share is lowered once.
  ir::node_id lower(ir::graph& g) const {
    return g.once(hidden_, [&] { return lower_(hidden_.get(), g); });
  }

 private:
  std::shared_ptr<const void> hidden_;
  ir::node_id (*lower_)(const void*, ir::graph&);
};

// Returns e as an any_expression.
template <operand E>
auto erased(const E& e) {
  using X = expression_t<E>;
  return any_expression<typename X::scalar, X::rank>(as_expression(e));
}

// Returns a if `first`, else b.
template <operand A, operand B>
auto choose(bool first, const A& a, const B& b) {
  return detail::choice<expression_t<A>, expression_t<B>>{
      {}, first, as_expression(a), as_expression(b)};
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/expr/expression-inl.hpp>
#endif

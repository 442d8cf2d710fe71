// SPDX-License-Identifier: MIT
// What all layers share on the way to their gradients: the results of a layer's graph, and calls
// that take tokens through both passes span by span and add up what the spans give.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/arrays/overlap.hpp>
#include <fmoe/arrays/released.hpp>
#include <fmoe/gradients/differentiate.hpp>
#include <fmoe/run/compile_graph.hpp>

namespace fmoe::detail {

// The gradient with respect to a parameter, or to one of the shapes in which a layer views it.
struct gradient_result {
  extent number;  // of the parameter in its list
  std::vector<extent> shape;
  std::shared_ptr<storage> to{};  // the gradient of the parameter
};

struct gradient_inputs {
  ir::node_id x, y;
  ir::node_id target, dy;  // the second argument of a call, and what follows from it
};

struct gradient_graph_results {
  ir::node_list roots;  // y, dx, and one for each of `parameters`
  std::vector<gradient_result> parameters;
  std::vector<extent> x, y, target;  // shapes
  bool rows_depend;
};

// Adds the gradients of sum(y dy) with respect to x and to the parameters of a layer.
gradient_graph_results gradient_graph(ir::graph& g, const gradient_inputs& in,
                                      const std::vector<released_parameter>& parameters);

// Returns the parameters that hold something and are trained, each under its first name.
std::vector<released_parameter> trained_parameters(const std::vector<released_parameter>& all);

// Gives each parameter of `to` that is not empty in `from` the shape there, and elements of its
// own, which are zero.
void make_zeros(const std::vector<released_parameter>& from,
                const std::vector<released_parameter>& to);

// Returns the elements of the gradient of a parameter. Throws value_error if it has another type.
std::shared_ptr<storage> elements_of(const std::vector<released_parameter>& gradients,
                                     const std::string& parameter, dtype type);

// The numbers of a row of each array of a call.
struct gradient_widths {
  extent x, dy, y;  // dx is as wide as x
};

// Throws shape_error or value_error unless these arrays fit.
void check_gradient_call(const array_view& x, const array_view& dy, const array_view& y,
                         const array_view& dx, const gradient_widths& widths, extent tokens);

template <class T>
class gradient_run {
 public:
  // A sum over tokens is one of blocks of so many; spans end where blocks do.
  static constexpr extent block = 256;
  // The tokens of a span where each span reads and writes the weights of the experts.
  static constexpr extent long_span = 4 * block;

  // compile(roots, tokens) makes an executable for spans.
  template <class Compile>
  gradient_run(gradient_graph_results r, extent tokens, const Compile& compile)
      : tokens_(tokens),
        span_(r.rows_depend ? tokens : std::min(tokens, block)),
        widths_{r.x[1], r.target[1], r.y[1]},
        parameters_(std::move(r.parameters)),
        compiled_(compile(r.roots, span_)) {
    if (!r.rows_depend && tokens > block && can_lengthen()) {
      span_ = std::min(tokens, long_span);
      compiled_ = compile(r.roots, span_);
    }
    for (extent k = 0; k < parameters_.size(); ++k) {
      firsts_.push_back(is_first(k));
      const bool adds = firsts_[k] && !r.rows_depend && compiled_.program->can_add(2 + k);
      can_add_.push_back(adds);
      parts_.emplace_back(adds ? 0 : element_count(parameters_[k].shape) * sizeof(T));
    }
    results_.resize(2 + parameters_.size());
    adds_.resize(results_.size());
  }

  extent inputs() const { return widths_.x; }
  extent outputs() const { return widths_.y; }
  extent span() const { return span_; }
  // Bytes that the gradients of a span take beside the gradients themselves.
  extent bytes_of_span() const {
    extent n = 0;
    for (const memory& part : parts_) n += part.size();
    return n;
  }
  void refresh() { fmoe::detail::refresh(compiled_); }
  void keep(extent entries) { fmoe::detail::keep(compiled_, entries); }

  void call(const array_view& x, const array_view& dy, const array_view& y, const array_view& dx,
            bool accumulates) {
    check_gradient_call(x, dy, y, dx, widths_, tokens_);
    expects<value_error>(!is_stale(compiled_),
                         "[gradients] a weight may have been written since the layer was compiled: "
                         "call refresh() before the next call");
    const extent tokens = x.shape[0];
    for (extent first = 0; first == 0 || first < tokens; first += span_) {
      const extent count = std::min(span_, tokens - first);
      const std::array<bound_array, 2> in{rows(x, first, count), rows(dy, first, count)};
      results_[0] = rows(y, first, count);
      results_[1] = rows(dx, first, count);
      const bool adds = accumulates || first > 0;
      for (extent k = 0; k < parameters_.size(); ++k) {
        adds_[2 + k] = adds && can_add_[k];
        const bool is_direct = firsts_[k] && (!adds || can_add_[k]);
        void* const to = is_direct ? parameters_[k].to->written() : parts_[k].data();
        results_[2 + k] = {view_at(to, parameters_[k].shape), parameters_[k].shape.size()};
      }
      compiled_.program->run({in, results_, count, {}, compiled_.keep, &adds_});
      for (extent k = 0; k < parameters_.size(); ++k)
        if ((adds && !can_add_[k]) || !firsts_[k]) add(k);
      if (span_ == 0) return;
    }
  }

 private:
  static array_view view_at(void* data, const std::vector<extent>& shape) {
    array_view v{.data = data, .type = dtype_of<T>, .rank = shape.size()};
    extent stride = 1;
    for (extent i = shape.size(); i-- > 0; stride *= shape[i]) {
      v.shape[i] = shape[i];
      v.strides[i] = stride;
    }
    return v;
  }

  // Some rows of an array of two axes.
  static bound_array rows(array_view v, extent first, extent count) {
    v.data = static_cast<std::byte*>(v.data) + first * v.strides[0] * size_of(v.type);
    v.shape[0] = count;
    return {v, 1};
  }

  // True if no result before this one is of the same parameter.
  bool is_first(extent k) const {
    return std::ranges::find(parameters_, parameters_[k].number, &gradient_result::number) ==
           parameters_.begin() + static_cast<std::ptrdiff_t>(k);
  }
  // True if longer spans pay off, and change no bit since all that they sum is added in blocks.
  bool can_lengthen() const {
    for (extent k = 0; k < parameters_.size(); ++k) {
      if (!is_first(k) || !compiled_.program->can_add(2 + k)) return false;
    }
    return compiled_.program->goes_by_expert();
  }

  // Adds what a span gave to a gradient whose last step is no sum over tokens.
  void add(extent k) {
    const T* __restrict const from = reinterpret_cast<const T*>(parts_[k].data());
    T* __restrict const to = static_cast<T*>(parameters_[k].to->written());
    const extent n = element_count(parameters_[k].shape);
    for (extent i = 0; i < n; ++i) to[i] += from[i];
  }

  extent tokens_, span_;
  gradient_widths widths_;
  std::vector<gradient_result> parameters_;
  std::vector<bool> firsts_;   // the first result of its parameter
  std::vector<bool> can_add_;  // the executable adds to it
  std::vector<bool> adds_;     // by result: in this span
  std::vector<memory> parts_;  // what spans give to the others
  std::vector<bound_array> results_;
  compiled_graph compiled_;
};

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/gradients/gradient_run-inl.hpp>
#endif

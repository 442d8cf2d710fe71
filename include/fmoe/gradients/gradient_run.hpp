// SPDX-License-Identifier: MIT
// What all layers share on the way to their gradients: the results of a layer's graph, and calls
// that take tokens through both passes span by span and add up what the spans give.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/arrays/released.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/expr/expression.hpp>
#include <fmoe/gradients/differentiate.hpp>
#include <fmoe/gradients/sparse_gradient.hpp>
#include <fmoe/run/call_check.hpp>
#include <fmoe/run/compile_graph.hpp>

namespace fmoe::detail {

// The gradient with respect to a parameter, or to one of the shapes in which a layer views it.
struct gradient_result {
  extent number;  // of the parameter in its list
  vector<extent> shape;
  std::string name;  // of the parameter
  vector<extent> parameter_shape;
  std::shared_ptr<storage> to{};  // the gradient of the parameter
};

// What is differentiated in place of sum(y dy): one number, or the mean of one for each token,
// whose weight is the argument behind those that are given.
struct loss_inputs {
  ir::node_id loss;
  std::optional<ir::node_id> weight{};
};

struct gradient_inputs {
  vector<ir::node_id> x;              // the arguments that have gradients, which are the first ones
  vector<ir::node_id> y;              // the results of the layer
  vector<ir::node_id> given{}, dy{};  // the other arguments of a call, and what follows
  std::optional<loss_inputs> loss{};  // then there is no dy
};

// Adds a loss of one axis at most behind so many arguments, for calls of up to `tokens` rows.
loss_inputs add_loss(ir::graph& g, const dynamic::expression& loss, extent arguments,
                     extent tokens);

// The arguments of a graph from number `first` on, in the order of their numbers. Throws
// value_error if it leaves out one of these.
vector<ir::node_id> arguments_from(const ir::graph& g, extent first);

struct gradient_graph_results {
  ir::node_list roots;  // each y, each dx, the loss if there is one, and those of `parameters`
  vector<gradient_result> parameters;
  vector<vector<extent>> x, y, given;  // shapes
  bool given_are_dy, rows_depend = false;
  std::optional<extent> loss_rank{};
};

// Adds the gradients of a loss, or of sum(y dy) over all y, with respect to x and to the parameters
// of a layer.
gradient_graph_results gradient_graph(ir::graph& g, const gradient_inputs& in,
                                      const std::vector<released_parameter>& parameters);

// Returns the parameters that hold something and are trained, each under its first name.
std::vector<released_parameter> trained_parameters(const std::vector<released_parameter>& all);

// Gives each parameter of `to` that is not empty in `from`, and none of `without`, the shape there,
// and elements of its own, which are zero.
void make_zeros(const std::vector<released_parameter>& from,
                const std::vector<released_parameter>& to, const std::vector<std::string>& without);

// Returns the elements of the gradient of a parameter. Throws value_error if it has another type.
std::shared_ptr<storage> elements_of(const std::vector<released_parameter>& gradients,
                                     const std::string& parameter, dtype type);

// The shape of a row of each array of a call but for the gradients of parameters; dx has that of x.
struct gradient_rows {
  vector<vector<extent>> x, given, y;
  bool given_are_dy;

  explicit gradient_rows(const gradient_graph_results& r);

  // The arrays as a call takes them: each x, what is given, each y and dx; and their names in
  // sentences.
  std::vector<expected_array> expected(dtype type) const;
  std::string name(extent array) const;
};
// The same as a list in a sentence.
std::string gradient_arrays_text(const gradient_rows& rows);

struct gradient_arrays {
  std::span<const array_view> x, given, y, dx;
};

// Returns the tokens of a call. Throws shape_error or value_error unless its arrays fit.
extent check_gradient_call(const gradient_arrays& arrays, const gradient_rows& rows,
                           std::span<const expected_array> expected, extent most_tokens);

template <class T>
class gradient_run {
 public:
  // A sum over tokens is one of blocks of so many; spans end where blocks do.
  static constexpr extent block = 256;
  // The tokens of a span where each span reads or writes weights or gradients of the experts.
  static constexpr extent long_span = 4 * block;

  // compile(roots, tokens, arrays) makes an executable for spans. Gradients that can be sparse have
  // room for the rows of `sparse_tokens` tokens, at least a call's; 0: none is sparse.
  template <class Compile>
  gradient_run(gradient_graph_results r, extent tokens, extent sparse_tokens,
               const Compile& compile)
      : tokens_(tokens),
        sparse_tokens_(sparse_tokens == all ? tokens : std::max(sparse_tokens, tokens)),
        span_(r.rows_depend ? tokens : std::min(tokens, block)),
        loss_rank_(r.loss_rank),
        row_(r),
        expected_(row_.expected(dtype_of<T>)),
        parameters_(std::move(r.parameters)),
        arrays_{sparse_tokens == 0 || r.rows_depend ? vector<vector<extent>>{} : possible_tables()},
        compiled_(compile(r.roots, span_, arrays_)) {
    if (!r.rows_depend && tokens > block && can_lengthen()) {
      span_ = std::min(tokens, long_span);
      compiled_ = compile(r.roots, span_, arrays_);
    }
    rows_.resize(first() + parameters_.size());
    for (extent k = 0; k < parameters_.size(); ++k) {
      firsts_.push_back(is_first(k));
      const bool adds = firsts_[k] && !r.rows_depend && compiled_.program->can_add(first() + k);
      can_add_.push_back(adds);
      parts_.emplace_back(adds ? 0 : element_count(parameters_[k].shape) * sizeof(T));
      tables_.push_back(table_for(k));
      if (tables_[k] != nullptr) rows_[first() + k] = &tables_[k]->rows;
    }
    inputs_.resize(row_.x.size() + row_.given.size() + (has_token_losses() ? 1 : 0));
    if (loss_rank_) losses_.resize(has_token_losses() ? span_ : 1);
    if (has_token_losses()) weights_.resize(span_);
    results_.resize(first() + parameters_.size());
    adds_.resize(results_.size());
  }

  // The gradients, with their numbers as results less those of the results before them, which are
  // each y and dx, and the loss.
  vector<gradient_result>& parameters() { return parameters_; }
  // The rows of a gradient, if it is sparse.
  std::shared_ptr<const table_memory> table(extent k) const { return tables_[k]; }
  const in_place& arrays() const { return arrays_; }

  const gradient_rows& rows() const { return row_; }
  extent inputs() const { return row_.x[0][0]; }
  extent outputs(extent y = 0) const { return row_.y[y].back(); }
  extent span() const { return span_; }
  // Bytes that the gradients of a span take beside the gradients themselves.
  extent bytes_of_span() const {
    extent n = 0;
    for (const memory& part : parts_) n += part.size();
    return n;
  }
  // The loss of the last call.
  double loss() const { return loss_; }
  void refresh() {
    expects_program(compiled_);
    fmoe::detail::refresh(compiled_);
  }
  void keep(extent entries) {
    expects_program(compiled_);
    fmoe::detail::keep(compiled_, entries);
  }

  void call(const gradient_arrays& arrays, bool accumulates) {
    expects_program(compiled_);
    const extent tokens = check_gradient_call(arrays, row_, expected_, tokens_);
    expects<value_error>(!is_stale(compiled_),
                         "[gradients] a weight may have been written since the layer was compiled: "
                         "call refresh() before the next call");
    const extent added = tokens + (accumulates ? added_ : 0);
    expects<value_error>(added <= sparse_tokens_ || !has_little_room_, "[gradients] the sums of ",
                         added, " tokens have rows for ", sparse_tokens_,
                         ": say more in sparse_gradients");
    added_ = added;
    double sum_of_losses = 0;
    std::ranges::fill(weights_, static_cast<T>(1 / static_cast<double>(tokens)));
    for (extent begin = 0; begin == 0 || begin < tokens; begin += span_) {
      const extent count = std::min(span_, tokens - begin);
      const auto put = [&](std::span<const array_view> from, vector<bound_array>& to, extent at) {
        for (const array_view& a : from) to[at++] = rows(a, begin, count);
      };
      put(arrays.x, inputs_, 0);
      put(arrays.given, inputs_, arrays.x.size());
      put(arrays.y, results_, 0);
      put(arrays.dx, results_, arrays.y.size());
      const std::span of_each(&count, has_token_losses() ? 1 : 0);
      if (has_token_losses()) inputs_.back() = {view_at(weights_.data(), of_each), 0};
      if (loss_rank_) results_[first() - 1] = {view_at(losses_.data(), of_each), 0};
      const bool adds = accumulates || begin > 0;
      for (extent k = 0; k < parameters_.size(); ++k) {
        adds_[first() + k] = adds && can_add_[k];
        const bool is_direct = firsts_[k] && (!adds || can_add_[k]);
        void* const to = tables_[k] != nullptr ? tables_[k]->values.data()
                         : is_direct           ? parameters_[k].to->written()
                                               : parts_[k].data();
        results_[first() + k] = {view_at(to, parameters_[k].shape), parameters_[k].shape.size()};
      }
      compiled_.program->run({inputs_, results_, count, {}, compiled_.keep, adds_, rows_});
      for (extent k = 0; k < parameters_.size(); ++k)
        if ((adds && !can_add_[k]) || !firsts_[k]) add(k);
      for (extent t = 0; t < (has_token_losses() ? count : losses_.size()); ++t)
        sum_of_losses += static_cast<double>(losses_[t]);
      if (span_ == 0) break;
    }
    loss_ = has_token_losses() ? sum_of_losses / static_cast<double>(tokens) : sum_of_losses;
  }

 private:
  static array_view view_at(void* data, std::span<const extent> shape) {
    array_view v{.data = data, .type = dtype_of<T>, .rank = shape.size()};
    extent stride = 1;
    for (extent i = shape.size(); i-- > 0; stride *= shape[i]) {
      v.shape[i] = shape[i];
      v.strides[i] = stride;
    }
    return v;
  }

  // The number of the first gradient of a parameter among the results.
  extent first() const { return row_.y.size() + row_.x.size() + (loss_rank_ ? 1 : 0); }

  bool has_token_losses() const { return loss_rank_ == 1; }

  // Some rows of an array with one axis of tokens.
  static bound_array rows(array_view v, extent begin, extent count) {
    v.data = static_cast<std::byte*>(v.data) + begin * v.strides[0] * size_of(v.type);
    v.shape[0] = count;
    return {v, v.rank - 1};
  }

  // True if no result before this one is of the same parameter.
  bool is_first(extent k) const {
    return std::ranges::find(parameters_, parameters_[k].number, &gradient_result::number) ==
           parameters_.begin() + static_cast<std::ptrdiff_t>(k);
  }
  // The shapes of parameters with one result, by the numbers of results.
  vector<vector<extent>> possible_tables() const {
    vector<vector<extent>> tables(first());
    for (const gradient_result& p : parameters_) {
      const bool is_one = std::ranges::count(parameters_, p.number, &gradient_result::number) == 1;
      tables.push_back(is_one ? p.parameter_shape : vector<extent>{});
    }
    return tables;
  }
  std::shared_ptr<table_memory> table_for(extent k) {
    const auto sparse = compiled_.program->sparse(first() + k);
    if (!sparse) return {};
    const bool is_enough = sparse_tokens_ > sparse->rows / std::max<extent>(1, sparse->a_token);
    const extent room = is_enough ? sparse->rows : sparse_tokens_ * sparse->a_token;
    has_little_room_ = has_little_room_ || room < sparse->rows;
    return std::make_shared<table_memory>(*sparse, room, sizeof(T));
  }

  // True if longer spans pay off, and change no bit since all that they sum is added in blocks.
  bool can_lengthen() const {
    for (extent k = 0; k < parameters_.size(); ++k)
      if (!is_first(k) || !compiled_.program->can_add(first() + k)) return false;
    return compiled_.program->goes_by_expert();
  }

  // Adds what a span gave to a gradient whose last step is no sum over tokens.
  void add(extent k) {
    const T* __restrict const from = reinterpret_cast<const T*>(parts_[k].data());
    T* __restrict const to = static_cast<T*>(parameters_[k].to->written());
    const extent n = element_count(parameters_[k].shape);
    for (extent i = 0; i < n; ++i) to[i] += from[i];
  }

  extent tokens_, sparse_tokens_, span_;
  extent added_ = 0;              // the tokens whose gradients are added up
  bool has_little_room_ = false;  // for the rows of more than sparse_tokens_
  std::optional<extent> loss_rank_;
  double loss_ = 0;
  vector<T> losses_, weights_;  // of a span: of each token, or one loss; 1 by the tokens of a call
  gradient_rows row_;
  std::vector<expected_array> expected_;
  vector<gradient_result> parameters_;
  vector<bool> firsts_;   // the first result of its parameter
  vector<bool> can_add_;  // the executable adds to it
  vector<bool> adds_;     // by result: in this span
  vector<memory> parts_;  // what spans give to the others
  vector<std::shared_ptr<table_memory>> tables_;
  vector<table_rows*> rows_;  // by result
  vector<bound_array> inputs_, results_;
  in_place arrays_;
  compiled_graph compiled_;
};

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/gradients/gradient_run-inl.hpp>
#endif

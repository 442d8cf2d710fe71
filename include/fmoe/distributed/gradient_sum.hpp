// SPDX-License-Identifier: MIT
// The gradients of a batch whose tokens are shared out to ranks: each computes those of its parts,
// and all get the sum, in one order.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <fmoe/distributed/communicator.hpp>
#include <fmoe/gradients/gradient_run.hpp>
#include <fmoe/optimizers/state.hpp>

namespace fmoe {

// Sums gradients over the parts of a batch and over ranks: neighbours first, then pairs of pairs.
// The order is that of the parts, rank by rank. So a batch of a fixed number of parts has the same
// bits on 1, 2, 4, ... ranks, if that number and the ranks' are powers of two. A part is best a
// multiple of 256 tokens, as sums over tokens are cut there. T is the type of the gradients.
//
//   auto step = compile_gradients(layer, 256);
//   run_on_threads(1, [&](communicator& ranks) {
//     gradient_sum<float> batch(ranks);
//     const tensor<float, 2> dy({256, step.outputs()});
//     tensor<float, 2> y(dy.shape()), dx(x.shape());
//     for (int part = 0; part < 4; ++part) {
//       step(x, dy, y, dx);
//       batch.add(step.gradients());
//     }
//     batch.finish(step.gradients());  // for the optimizer: the same on all ranks
//   });
template <class T>
class gradient_sum {
 public:
  explicit gradient_sum(communicator& ranks) : ranks_(&ranks) {}

  // Adds the gradients of the next part of this rank. Throws value_error if some are sparse.
  template <detail::has_released_names Layer>
  void add(const Layer& gradients) {
    Layer same = gradients;  // It shares the elements.
    detail::expects<value_error>(detail::sparse_parts(same).empty(),
                                 "[gradient_sum] sparse gradients are not summed over ranks: "
                                 "compile them with sparse_gradients = 0");
    part_sum made{1, {}};
    for (const auto& p : parameters_of(same)) {
      const auto* const from = static_cast<const T*>(std::as_const(*p.elements).data());
      made.numbers.insert(made.numbers.end(), from, from + detail::element_count(p.shape));
    }
    sums_.push_back(std::move(made));
    while (sums_.size() > 1 && sums_.end()[-2].parts == sums_.back().parts) fold_last();
  }

  // Writes the sums of all parts of all ranks into the gradients of a layer, and begins a new
  // batch. All ranks do this together, and each has had a part.
  template <detail::has_released_names Layer>
  void finish(Layer& gradients) {
    ranks_->guarded([&] {
      detail::expects<value_error>(!sums_.empty(), "[gradient_sum] a rank has no part of a batch");
      while (sums_.size() > 1) fold_last();
      std::vector<T> sum = std::move(sums_[0].numbers);
      sums_.clear();
      ranks_->all_reduce(std::span(sum));
      const T* from = sum.data();
      for (const auto& p : parameters_of(gradients)) {
        const std::size_t count = detail::element_count(p.shape);
        std::copy_n(from, count, static_cast<T*>(p.elements->written()));
        from += count;
      }
    });
  }

 private:
  struct part_sum {
    std::size_t parts;
    std::vector<T> numbers;  // of all parameters, one behind the other
  };

  template <class Layer>
  static std::vector<detail::any_tensor> parameters_of(Layer& gradients) {
    std::vector<detail::any_tensor> found;
    for (const auto& p : detail::trained_parameters(detail::released_parameters(gradients))) {
      found.push_back(p.parameter.value());
      detail::expects<value_error>(found.back().type == detail::dtype_of<T>, "[gradient_sum] ",
                                   p.name.name, " is ", name_of(found.back().type), ", not ",
                                   name_of(detail::dtype_of<T>));
    }
    return found;
  }

  void fold_last() {
    part_sum& to = sums_.end()[-2];
    for (std::size_t i = 0; i < to.numbers.size(); ++i) to.numbers[i] += sums_.back().numbers[i];
    to.parts += sums_.back().parts;
    sums_.pop_back();
  }

  communicator* ranks_;
  std::vector<part_sum> sums_;  // of ever fewer parts
};

}  // namespace fmoe

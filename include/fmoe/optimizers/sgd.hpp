// SPDX-License-Identifier: MIT
// Stochastic gradient descent.
#pragma once

#include <fmoe/backend/cpu/kernels/update_numbers.hpp>
#include <fmoe/optimizers/state.hpp>

namespace fmoe {

// The settings of `sgd`; none has a unit.
struct sgd_options {
  double rate = 1e-3;       // the learning rate
  double momentum = 0;      // 0: no average is kept
  double dampening = 0;     // takes its part of each gradient that joins the average
  double weight_decay = 0;  // this factor of the weights joins the gradient
  bool nesterov = false;    // needs momentum, and no dampening
  bool lazy = false;        // as adam_options::lazy; it changes nothing without momentum and decay
};

// Stochastic gradient descent as torch.optim.SGD has it (Sutskever et al., On the importance of
// initialization and momentum in deep learning, 2013, where the rate stands outside the average):
//
// g = gradient + weight_decay w;  b = momentum b + (1 - dampening) g, in the first step with
// momentum b = g; w = w - rate b, with Nesterov's momentum w = w - rate (g + momentum b), without
// momentum w = w - rate g.
//
// The state is b, and for weights of 16 bits a master in float, from which they are rounded after
// each step. Parameters that `released` marks as statistics stay as they are.
//
//   mxd<> model = layer;
//   auto step = compile_gradients(model, 1024);
//   sgd descend({.rate = 0.1, .momentum = 0.9});
//   descend(model, step.gradients());
class sgd {
 public:
  explicit sgd(const sgd_options& settings = {}) : options(settings) {}
  template <std::convertible_to<double> Rate>
  explicit sgd(Rate) {
    static_assert(detail::never<Rate>, "sgd: settings are named, as in fmoe::sgd({.rate = 1e-3})");
  }

  // Changes the weights of a layer by their gradients, a layer with the same names; those of
  // weights of 16 bits are float. The gradients of a dynamic::layer are pairs of a name and a
  // dynamic::tensor with the shape of `value` in parameters(). An optimizer belongs to one layer.
  // Throws value_error for settings out of range, and value_error or shape_error for gradients or a
  // state that do not fit, before a weight is changed. The bits are the same for any number of
  // threads.
  template <class Level = cpu::native, class Layer, class Gradients>
    requires(detail::trained_by<Layer, Gradients>)
  void operator()(Layer& layer, const Gradients& gradients) {
    check();
    const auto pairs = detail::weight_gradients(layer, gradients);
    const cpu::sgd_numbers numbers{options.rate,         options.momentum, 1 - options.dampening,
                                   options.weight_decay, options.nesterov, !state_.has_first()};
    const bool changes_all = options.momentum != 0 || options.weight_decay != 0;
    state_.step(
        pairs, options.momentum != 0, options.lazy || !changes_all,
        [&](const detail::weight_update& to) { detail::update_weights<Level>(numbers, to); });
  }

  // The steps so far.
  std::size_t steps() const { return state_.steps(); }

  // Writes the state as safetensors, NAME.momentum_buffer and NAME.master, and reads it: training
  // that goes on with it and with the saved layer has the same bits. Settings are not in the file.
  // Throws io::error.
  void save(const std::filesystem::path& file) const { state_.save(file); }
  void load(const std::filesystem::path& file) { state_.load(file); }

  sgd_options options;  // may change between steps, as a schedule of the rate does

 private:
  void check() const {
    detail::check_setting("sgd", "the rate", options.rate, false);
    detail::check_setting("sgd", "the momentum", options.momentum, false);
    detail::check_setting("sgd", "the dampening", options.dampening, false);
    detail::check_setting("sgd", "the weight decay", options.weight_decay, false);
    detail::expects<value_error>(
        !options.nesterov || (options.momentum > 0 && options.dampening == 0),
        "[sgd] Nesterov's momentum needs a momentum above 0 and no dampening");
  }

  detail::optimizer_state state_{"sgd", "momentum_buffer", ""};
};

}  // namespace fmoe

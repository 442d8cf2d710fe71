// SPDX-License-Identifier: MIT
// Adam and AdamW.
#pragma once

#include <cmath>

#include <fmoe/base/real_functions.hpp>
#include <fmoe/optimizers/state.hpp>

namespace fmoe {

// The settings of `adam`, with the defaults of torch.optim.Adam; none has a unit.
struct adam_options {
  double rate = 1e-3;                 // the learning rate alpha
  double beta1 = 0.9, beta2 = 0.999;  // how much of the averages a step keeps
  double epsilon = 1e-8;              // joins the square root
  double weight_decay = 0;            // this factor of the weights joins the gradient
  bool lazy = false;  // a sparse gradient changes its own rows alone: docs/training.md
};

// The settings of `adamw`, with the defaults of torch.optim.AdamW.
struct adamw_options {
  double rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;  // times the rate, the part that a weight loses in a step
  bool lazy = false;           // as adam_options::lazy
};

}  // namespace fmoe

namespace fmoe::detail {

// What Adam and AdamW share. Decoupled says where the weight decay goes.
template <class Options, bool Decoupled>
class adam_rule {
 public:
  explicit adam_rule(const Options& settings = {}) : options(settings) {}
  template <std::convertible_to<double> Rate>
  explicit adam_rule(Rate) {
    static_assert(never<Rate>,
                  "adam and adamw: settings are named, as in fmoe::adam({.rate = 1e-3})");
  }

  // Changes the weights of a layer by their gradients, a layer with the same names; those of
  // weights of 16 bits are float. The gradients of a dynamic::layer are pairs of a name and a
  // dynamic::tensor with the shape of `value` in parameters(). An optimizer belongs to one layer.
  // Throws value_error for settings out of range, and value_error or shape_error for gradients or a
  // state that do not fit, before a weight is changed. The bits are the same for any number of
  // threads.
  template <class Level = cpu::native, class Layer, class Gradients>
    requires(trained_by<Layer, Gradients>)
  void operator()(Layer& layer, const Gradients& gradients) {
    check();
    const auto pairs = weight_gradients(layer, gradients);
    const auto t = static_cast<double>(state_.steps() + 1);
    const auto& o = options;
    const cpu::adam_numbers numbers{.beta1 = o.beta1,
                                    .beta2 = o.beta2,
                                    .epsilon = o.epsilon,
                                    .pull = Decoupled ? 0 : o.weight_decay,
                                    .shrink = Decoupled ? 1 - o.rate * o.weight_decay : 1,
                                    .rate = o.rate / (1 - detail::power_of(o.beta1, t)),
                                    .root = std::sqrt(1 - detail::power_of(o.beta2, t))};
    state_.step(pairs, true, options.lazy,
                [&](const weight_update& to) { update_weights<Level>(numbers, to); });
  }

  // The steps so far, t.
  std::size_t steps() const { return state_.steps(); }

  // Writes the state as safetensors, NAME.exp_avg, NAME.exp_avg_sq and NAME.master, and reads it:
  // training that goes on with it and with the saved layer has the same bits. Settings are not in
  // the file. Throws io::error.
  void save(const std::filesystem::path& file) const { state_.save(file); }
  void load(const std::filesystem::path& file) { state_.load(file); }

  Options options;  // may change between steps, as a schedule of the rate does

 private:
  static constexpr const char* name = Decoupled ? "adamw" : "adam";

  void check() const {
    check_setting(name, "the rate", options.rate, false);
    check_setting(name, "beta1", options.beta1, true);
    check_setting(name, "beta2", options.beta2, true);
    check_setting(name, "epsilon", options.epsilon, false);
    check_setting(name, "the weight decay", options.weight_decay, false);
  }

  optimizer_state state_{name, "exp_avg", "exp_avg_sq"};
};

}  // namespace fmoe::detail

namespace fmoe {

// Adam (Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015, Algorithm 1), as
// torch.optim.Adam has it. In step t:
//
// g = gradient + weight_decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// w = w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon).
//
// The state is m and v, and for weights of 16 bits a master in float, from which they are rounded
// after each step. Parameters that `released` marks as statistics stay as they are.
//
//   mxd<> model = layer;
//   auto step = compile_gradients(model, 1024);
//   adam optimizer({.rate = 1e-3});
//   optimizer(model, step.gradients());
class adam : public detail::adam_rule<adam_options, false> {
 public:
  using adam_rule::adam_rule;
};

// AdamW (Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019, Algorithm 2), as
// torch.optim.AdamW has it: w = w - rate weight_decay w before a step of Adam with the gradient
// alone. The paper multiplies the decay by the schedule and not by the rate.
class adamw : public detail::adam_rule<adamw_options, true> {
 public:
  using adam_rule::adam_rule;
};

}  // namespace fmoe

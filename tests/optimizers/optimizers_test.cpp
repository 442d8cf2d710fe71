// SPDX-License-Identifier: MIT
// Steps of the optimizers against PyTorch's, whose numbers scripts/make_training_cases made; the
// same bits for any threads and after a restart; what is refused.
#include <cmath>
#include <sstream>

#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/optimizers.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/oracle.hpp"
#include "../support/same_bits.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr double factors[] = {1.0, -0.5, 2.0, 0.25, -1.5};

const io::safetensors& numbers() {
  static const auto file = io::safetensors::read("tests/optimizers/torch.safetensors");
  return file;
}

std::string golden(const std::string& name, const char* what) {
  return "tests/golden/" + name + "." + what + ".safetensors";
}

// The layer of a golden case; the optimizers ask for no setting.
template <class Layer>
Layer golden_layer(const std::string& name) {
  Layer layer;
  io::fill_part(io::released_layer(layer),
                io::arrays_in(std::filesystem::path(golden(name, "weights"))), {});
  return layer;
}

// The gradients of a golden case, as a layer.
template <class Layer>
Layer golden_gradients(const std::string& name, const Layer& weights) {
  Layer gradients = weights;
  const auto file = io::safetensors::read(golden(name, "grad"));
  auto layer_arrays = io::arrays_of(weights, name, {});
  for (auto& [parameter, array] : layer_arrays.arrays)
    if (const auto* g = file.find("grad64." + parameter)) array = *g;
  io::fill(io::released_layer(gradients = Layer()), layer_arrays, {.narrow = io::narrow});
  return gradients;
}

template <class Layer>
void scale(Layer& gradients, double factor) {
  for (const auto& p : released_parameters(gradients)) {
    const any_tensor t = p.parameter.value();
    if (t.empty() || !p.name.trained) continue;
    with_type(t.type, [&]<class T>(T*) {
      auto* const x = static_cast<T*>(t.elements->written());
      for (extent i = 0; i < element_count(t.shape); ++i)
        x[i] = convert<T>(convert<double>(x[i]) * factor);
    });
  }
}

// The largest difference from PyTorch's numbers, over the largest of these, of all parameters.
template <class Layer>
double error_of(const Layer& layer, const std::string& prefix) {
  double worst = 0;
  const auto arrays = io::arrays_of(layer, "layer", {}).arrays;
  extent compared = 0;
  for (const auto& [name, array] : arrays) {
    const auto* expected = numbers().find(prefix + "." + name);
    if (expected == nullptr) continue;
    ++compared;
    const auto elements = [](const io::array& a) {
      const any_tensor t = a.elements_as(dtype::float64, a.shape(), io::narrowing::allow);
      const auto* const x = static_cast<const double*>(t.elements->data());
      return std::vector<double>(x, x + element_count(t.shape));
    };
    const auto a = elements(array), b = elements(*expected);
    double most = 0, difference = 0;
    for (extent i = 0; i < b.size(); ++i) {
      most = std::max(most, std::abs(b[i]));
      difference = std::max(difference, std::abs(a[i] - b[i]));
    }
    worst = std::max(worst, difference / most);
  }
  REQUIRE(compared >= 4);
  return worst;
}

// Runs the steps of a case; `before` may change the gradients of step t.
template <class Layer, class Optimizer, class Before>
void compare(const std::string& name, const std::string& prefix, Optimizer optimizer, double bound,
             const Before& before) {
  INFO(prefix);
  auto layer = golden_layer<Layer>(name);
  const auto whole = golden_gradients(name, layer);
  for (extent t = 0; t < 5; ++t) {
    Layer gradients = whole;
    scale(gradients, factors[t]);
    before(gradients, t);
    optimizer(layer, gradients);
    if (t == 0) CHECK(error_of(layer, prefix + ".1") <= bound);
  }
  CHECK(error_of(layer, prefix + ".5") <= bound);
  CHECK(optimizer.steps() == 5);
}

constexpr const char* cp = "mumoe/cp_e1_entmax_bn_bias_odd";
constexpr const char* decoders = "mxd/mxd_mlp_gelu_k4";

template <class T>
void compare_all(double bound) {
  using layer = cp_mumoe<1, T>;
  const auto nothing = [](auto&, extent) {};
  const auto run = [&](const std::string& optimizer, auto with) {
    compare<layer>(cp, "cp." + optimizer, with, bound, nothing);
  };
  run("sgd", sgd({.rate = 0.01}));
  run("sgd_decay", sgd({.rate = 0.01, .weight_decay = 0.1}));
  run("sgd_momentum", sgd({.rate = 0.01, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1}));
  run("sgd_nesterov", sgd({.rate = 0.01, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true}));
  run("adam", adam({.rate = 0.01}));
  run("adam_decay",
      adam({.rate = 0.02, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.1}));
  run("adamw",
      adamw({.rate = 0.02, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.1}));
  std::istringstream norms(numbers().metadata().at("cp.clipped.norms"));
  compare<layer>(cp, "cp.clipped", sgd({.rate = 0.01}), bound, [&](layer& gradients, extent) {
    double expected = 0;
    norms >> expected;
    CHECK(clip_norm(30.0, gradients) == Approx(expected).epsilon(bound));
    CHECK(global_norm(gradients) <= 30 * (1 + bound));
  });
  compare<mxd<T>>(decoders, "mxd.adamw", adamw(), bound, nothing);
}

TEST_CASE("optimizers make the steps of PyTorch's", "[optimizers]") {
  compare_all<double>(1e-14);
  compare_all<float>(1e-6);
}

mxd<> some_layer() { return golden_layer<mxd<>>(decoders); }

template <class Layer>
bool same_weights(const Layer& a, const Layer& b) {
  const auto left = io::arrays_of(a, "a", {}).arrays, right = io::arrays_of(b, "b", {}).arrays;
  if (left.size() != right.size()) return false;
  for (const auto& [name, array] : left)
    if (!std::ranges::equal(array.bytes(), right.at(name).bytes())) return false;
  return true;
}

TEST_CASE("a momentum that is set after a step begins with the next gradient", "[optimizers]") {
  mxd<> late = some_layer(), fresh = late;
  const mxd<> gradients = late;
  sgd plain({.rate = 0.1}), first({.rate = 0.1});
  plain(late, gradients);
  first(fresh, gradients);
  plain.options.momentum = 0.9;
  plain.options.dampening = 0.5;
  sgd begun(plain.options);
  for (int t = 0; t < 2; ++t) {
    plain(late, gradients);
    begun(fresh, gradients);
  }
  CHECK(same_weights(late, fresh));
}

TEST_CASE("statistics are not trained", "[optimizers]") {
  auto layer = golden_layer<cp_mumoe<1>>(cp);
  const auto before = layer;
  adamw optimizer;
  optimizer(layer, golden_gradients(cp, layer));
  CHECK(same_bits(layer.gate.means[0], before.gate.means[0]));
  CHECK(same_bits(layer.gate.variances[0], before.gate.variances[0]));
  CHECK_FALSE(same_bits(layer.gate.projections[0], before.gate.projections[0]));
}

#ifndef FMOE_JTHREAD_EXECUTOR
TEST_CASE("a step has the same bits for any threads", "[optimizers]") {
  mxd<> first;
  double norm = 0;
  for (const int threads : {1, 2, 4}) {
    on_threads(threads, [&] {
      mxd<> layer, gradients;
      layer.decoder = random<parameter<float, 2>>({300, 333}, 1);  // four parts
      gradients.decoder = random<parameter<float, 2>>({300, 333}, 2);
      adamw optimizer({.rate = 0.1});
      for (int t = 0; t < 3; ++t) {
        const double length = clip_norm(1.0, gradients);
        if (threads == 1 && t == 0) norm = length;
        if (t == 0) CHECK(length == norm);
        optimizer(layer, gradients);
      }
      if (threads == 1) first = layer;
      CHECK(same_bits(layer.decoder, first.decoder));
    });
  }
}
#endif

// 16 bits, beside plain loops in double.
TEST_CASE("weights of 16 bits have masters in float", "[optimizers]") {
  const auto gradients = [](float size) {
    mxd<> g;
    g.bias = tensor<float, 1>({40});
    for (float& v : g.bias) v = size;
    return g;
  };
  mxd<bf16> layer;
  layer.bias = tensor<bf16, 1>({40});
  for (bf16& w : layer.bias) w = bf16(1.f);
  sgd optimizer({.rate = 1});
  for (int t = 0; t < 100; ++t) optimizer(layer, gradients(1e-4f));  // each below half a unit
  for (const bf16& w : std::as_const(layer.bias)) REQUIRE(w == bf16(0.99f));
}

template <class Optimizer>
void resumes(const Optimizer& fresh) {
  const temporary_folder folder;
  mxd<> layer = some_layer();
  const auto x = random<tensor<float, 2>>({32, 13}, 1), dy = random<tensor<float, 2>>({32, 11}, 2);
  const auto train = [&](mxd<>& model, Optimizer& optimizer, int steps) {
    auto step = compile_gradients(model, 32);
    tensor<float, 2> y({32, 11}), dx({32, 13});
    for (int i = 0; i < steps; ++i) {
      step(x, dy, y, dx);
      optimizer(model, step.gradients());
      step.refresh();
    }
  };
  Optimizer optimizer = fresh;
  train(layer, optimizer, 3);
  save(layer, folder / "layer.safetensors");
  optimizer.save(folder / "state.safetensors");
  train(layer, optimizer, 4);

  mxd<> again = load<mxd<>>(folder / "layer.safetensors");
  Optimizer resumed = fresh;
  resumed.load(folder / "state.safetensors");
  CHECK(resumed.steps() == 3);
  train(again, resumed, 4);
  CHECK(same_weights(layer, again));
  mxd<> forgotten = load<mxd<>>(folder / "layer.safetensors");
  Optimizer without = fresh;
  train(forgotten, without, 4);
  CHECK_FALSE(same_weights(layer, forgotten));
}

TEST_CASE("training that is resumed has the same bits", "[optimizers]") {
  resumes(sgd({.rate = 0.01, .momentum = 0.9}));
  resumes(adam({.rate = 0.01}));
  resumes(adamw({.rate = 0.01}));
}

TEST_CASE("masters are resumed, too", "[optimizers]") {
  const temporary_folder folder;
  mxd<> gradients;
  gradients.bias = tensor<float, 1>({4}, {1e-4f, 2e-4f, 3e-4f, -4e-4f});
  mxd<bf16> layer;
  layer.bias = tensor<bf16, 1>({4});
  for (bf16& w : layer.bias) w = bf16(1.f);
  sgd whole({.rate = 1}), second({.rate = 1});
  for (int t = 0; t < 10; ++t) whole(layer, gradients);
  whole.save(folder / "state.safetensors");
  mxd<bf16> copy = layer;
  second.load(folder / "state.safetensors");
  for (int t = 0; t < 10; ++t) {
    whole(layer, gradients);
    second(copy, gradients);
  }
  CHECK(same_bits(layer.bias, copy.bias));
  CHECK(copy.bias(2) == bf16(1 - 20 * 3e-4f));
}

TEST_CASE("rows of length 1 stay so", "[optimizers]") {
  auto w = random<tensor<float, 2>>({5, 7}, 1);
  for (extent o = 0; o < 7; ++o) w(2, o) = 0;
  unit_rows(w);
  auto g = random<tensor<float, 2>>({5, 7}, 2);
  const auto before = g;
  remove_parallel(g, w);
  for (extent n = 0; n < 5; ++n) {
    double length = 0, along = 0, was = 0, taken = 0;
    for (extent o = 0; o < 7; ++o) {
      length += std::pow(static_cast<double>(w(n, o)), 2);
      along += static_cast<double>(g(n, o)) * static_cast<double>(w(n, o));
      was += static_cast<double>(before(n, o)) * static_cast<double>(w(n, o));
      taken += std::pow(static_cast<double>(before(n, o) - g(n, o)), 2);
    }
    CHECK(length == Approx(n == 2 ? 0 : 1).epsilon(1e-6));
    CHECK(std::abs(along) < 1e-6);
    CHECK(std::sqrt(taken) == Approx(std::abs(was)).margin(1e-6));
  }
}

TEST_CASE("optimizers refuse what does not fit", "[optimizers]") {
  mxd<> layer = some_layer();
  const auto fits = [&] {
    mxd<> gradients = layer;
    return gradients;
  };
  const auto before = layer;
  auto less = fits();
  less.encoder_bias = {};
  adamw optimizer;
  CHECK_THROWS_WITH(optimizer(layer, less), "[optimizer] b_enc has no gradient");
  auto other = fits();
  other.bias = tensor<float, 1>({12});
  CHECK_THROWS_WITH(optimizer(layer, other),
                    "[optimizer] the gradient of b_dec_out has another shape than the parameter");
  mxd<bf16> narrow;
  narrow.bias = tensor<bf16, 1>({4});
  CHECK_THROWS_WITH(optimizer(narrow, narrow),
                    "[optimizer] the gradient of b_dec_out is bfloat16 and must be float32");
  CHECK_THROWS_WITH(sgd({.rate = -1})(layer, fits()),
                    "[sgd] the rate is -1 and must be a number that is at least 0");
  CHECK_THROWS_WITH(adam({.beta1 = 1})(layer, fits()), "[adam] beta1 is 1 and must be less than 1");
  CHECK_THROWS_WITH(sgd({.nesterov = true})(layer, fits()),
                    "[sgd] Nesterov's momentum needs a momentum above 0 and no dampening");
  CHECK_THROWS_WITH(clip_norm(-1.0, less), "[clip_norm] the limit is -1 and must be at least 0");
  CHECK(same_weights(layer, before));
  mxd<> small;
  small.bias = tensor<float, 1>({4});
  optimizer(small, small);
  CHECK_THROWS_WITH(
      optimizer(layer, fits()),
      "[optimizer] the state has no numbers for W_enc: an optimizer belongs to one layer");
  const temporary_folder folder;
  optimizer.save(folder / "state.safetensors");
  adam plain;
  CHECK(caught([&] { plain.load(folder / "state.safetensors"); }).code == io::errc::conflict);
  save(layer, folder / "layer.safetensors");
  CHECK(caught([&] { plain.load(folder / "layer.safetensors"); }).code == io::errc::schema);
}

}  // namespace

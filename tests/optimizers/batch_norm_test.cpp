// SPDX-License-Identifier: MIT
// Batch norm in training mode against PyTorch's numbers, which scripts/make_training_cases made:
// gradients through the statistics of a batch, and running statistics.
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/optimizers.hpp>
#include <fmoe/reference.hpp>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"
#include "../support/same_bits.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// Monet behind its router.
template <class T>
struct routed_monet {
  monet_router<T> router;
  monet_hd<T> experts;

  auto operator()(const operand_of<2> auto& x) const {
    return experts(x, router.g1(x), router.g2(x));
  }
  static void released(auto& layer, auto&& visit) {
    layer.router.released(layer.router, released_within("", visit, "d"));
    layer.experts.released(layer.experts, visit);
  }
};

struct batch_case {
  io::safetensors file = io::safetensors::read("tests/optimizers/batch_norm.safetensors");
  std::string name;

  template <class T, extent Rank>
  tensor<T, Rank> at(const std::string& what) const {
    return file.get<T, Rank>(name + "." + what, io::narrow);
  }
  template <class T>
  tensor<T, 2> batch(extent which) const {
    const auto all = at<T, 3>("x");
    const extent rows = all.shape()[1], width = all.shape()[2];
    return {{rows, width}, std::span(all.data() + which * rows * width, rows * width)};
  }
  template <class Layer>
  Layer layer() const {
    Layer made;
    io::fill_part(io::released_layer(made), io::arrays_in(file),
                  {.prefix = name + ".", .narrow = io::narrow});
    return made;
  }
};

template <class T, extent Rank>
std::vector<double> numbers(const tensor<T, Rank>& t) {
  return {t.begin(), t.end()};
}

// The gradients of a case, laid out as in the layer, which may turn around the axes of a file.
template <class Layer>
Layer expected_gradients(const batch_case& c) {
  auto arrays = io::arrays_of(c.layer<Layer>(), c.name, {});
  for (auto& [name, array] : arrays.arrays)
    if (const auto* found = c.file.find(c.name + ".grad." + name)) array = *found;
  Layer gradients;
  io::fill_part(io::released_layer(gradients), arrays, {.narrow = io::narrow});
  return gradients;
}

// The gate of a layer, which holds the statistics.
template <class T>
auto& gate_of(cp_mumoe<1, T>& layer) {
  return layer.gate;
}
template <class T>
auto& gate_of(routed_monet<T>& layer) {
  return layer.router;
}

template <class Layer, class T>
void check(const char* name, double bound, auto prepare) {
  INFO(name);
  const batch_case c{.name = name};
  auto layer = c.layer<Layer>(), expected = c.layer<Layer>();
  prepare(layer);
  auto& gate = gate_of(layer);
  gate.training = true;
  const auto ours = detail::kept_statistics(gate),
             theirs = detail::kept_statistics(gate_of(expected));
  for (extent k = 0; k < ours.size(); ++k)
    for (T& v : *ours[k]) v = k % 2 == 0 ? T{0} : T{1};  // where PyTorch starts
  const auto x = c.batch<T>(1), dy = c.at<T, 2>("dy");
  for (const bool by_reference : {false, true}) {
    // The statistics of the batch count, so it does not matter that the running ones are others.
    auto g = gradients(layer, x, dy,
                       by_reference ? compile_options{.on = reference()} : compile_options{});
    CHECK(relative_error(g.y.data(), numbers(c.at<double, 2>("y"))) <= bound);
    CHECK(relative_error(g.dx.data(), numbers(c.at<double, 2>("dx"))) <= bound);
    auto wanted = expected_gradients<Layer>(c);
    const auto left = released_parameters(g.parameters), right = released_parameters(wanted);
    for (extent i = 0; i < left.size(); ++i) {
      if (!left[i].name.trained || right[i].parameter.value().empty()) continue;
      INFO(left[i].name.name);
      const any_tensor a = left[i].parameter.value(), b = right[i].parameter.value();
      std::vector<double> of_torch(element_count(b.shape));
      copy_numbers(b.numbers(), of_torch.data());
      CHECK(relative_error(static_cast<const T*>(a.elements->data()), of_torch) <= bound);
    }
  }
  for (const extent batch : {extent{0}, extent{1}}) update_statistics(gate, c.batch<T>(batch));
  for (extent k = 0; k < ours.size(); ++k)
    CHECK(relative_error(ours[k]->data(), numbers(*theirs[k])) <= bound);
}

TEST_CASE("batch norm in training is PyTorch's", "[optimizers]") {
  const auto multilinear = [](auto& layer) { layer.gate.alpha = 1; };
  const auto routed = [](auto& layer) { layer.router.active = 2; };
  check<cp_mumoe<1, double>, double>("mumoe", 1e-14, multilinear);
  check<routed_monet<double>, double>("monet", 1e-14, routed);
  check<cp_mumoe<1>, float>("mumoe", 1e-6, multilinear);
  check<routed_monet<float>, float>("monet", 1e-6, routed);
}

TEST_CASE("batch norm in training has the same bits for any threads", "[optimizers]") {
  const batch_case c{.name = "mumoe"};
  auto layer = c.layer<cp_mumoe<1>>();
  layer.gate.training = true;
  const auto x = random<tensor<float, 2>>({700, 6}, 1), dy = random<tensor<float, 2>>({700, 4}, 2);
  CHECK(compile_gradients(layer, 700).span() == 700);  // all tokens of a call go together
  const auto whole = gradients(layer, x, dy);
  for (const int threads : {1, 2, 4})
    on_threads(threads, [&] {
      const auto again = gradients(layer, x, dy);
      CHECK(same_bits(whole.dx, again.dx));
      CHECK(same_bits(whole.parameters.gate.projections[0], again.parameters.gate.projections[0]));
    });
}

TEST_CASE("update_statistics refuses what it cannot do", "[optimizers]") {
  expert_gate<1> gate;
  gate.projections = {parameter<float, 2>({4, 3})};
  const tensor<float, 2> x({5, 4});
  CHECK_THROWS_WITH(update_statistics(gate, x),
                    "[update_statistics] the gate has no running statistics");
  gate.means = {parameter<float, 1>({3})};
  gate.variances = {parameter<float, 1>({3})};
  CHECK_THROWS_WITH(update_statistics(gate, x, 2),
                    "[update_statistics] the momentum is 2 and must be from 0 to 1");
}

TEST_CASE("update_statistics writes nothing for a token of which there is no variance",
          "[optimizers]") {
  expert_gate<1> gate;
  gate.projections = {random<tensor<float, 2>>({4, 3}, 1)};
  gate.means = {parameter<float, 1>({3})};
  gate.variances = {parameter<float, 1>({3})};
  for (float& v : gate.variances[0]) v = 1;
  CHECK_THROWS_WITH(update_statistics(gate, random<tensor<float, 2>>({1, 4}, 2)),
                    containing("a variance is taken of 1 number"));
  update_statistics(gate, tensor<float, 2>({0, 4}));  // as PyTorch has it
  for (extent n = 0; n < 3; ++n) {
    CHECK(gate.means[0].data()[n] == 0);
    CHECK(gate.variances[0].data()[n] == 1);
  }
  update_statistics(gate, random<tensor<float, 2>>({2, 4}, 2));
  CHECK(gate.means[0].data()[0] != 0);
}

TEST_CASE("one token moves the statistics of a head that has more experts than one",
          "[optimizers]") {
  monet_router<> router;
  router.keys1 = random<tensor<float, 2>>({4, 6}, 1);
  router.keys2 = random<tensor<float, 2>>({4, 6}, 2);
  for (auto* statistic : detail::kept_statistics(router)) *statistic = parameter<float, 1>({2});
  update_statistics(router, random<tensor<float, 2>>({1, 4}, 3));
  for (const auto* statistic : detail::kept_statistics(router)) {
    CHECK(statistic->data()[0] != 0);
    CHECK(std::isfinite(statistic->data()[0]));
  }
  const float before = router.mean1.data()[0];
  update_statistics(router, tensor<float, 2>({0, 4}));
  CHECK(router.mean1.data()[0] == before);
}

}  // namespace

// SPDX-License-Identifier: MIT
// Every gradient of layers that are cut over ranks, in double, against one process.
#include <fmoe/aoe.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/peer.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/routed_monet.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// What rank r has of some rows.
tensor<double, 2> share(const communicator& ranks, const tensor<double, 2>& all) {
  const std::size_t width = all.shape()[1], tokens = all.shape()[0],
                    first = detail::begin_of_part(tokens, ranks.size(), ranks.rank()),
                    end = detail::begin_of_part(tokens, ranks.size(), ranks.rank() + 1);
  tensor<double, 2> own({end - first, width});
  std::copy_n(all.data() + first * width, own.size(), own.data());
  return own;
}

void require_near(const double* made, const double* expected, std::size_t count, double factor,
                  const std::string& what) {
  double worst = 0, greatest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::abs(made[i] - factor * expected[i]));
    greatest = std::max(greatest, std::abs(factor * expected[i]));
  }
  require(worst <= 1e-12 * greatest,
          what + ": " + std::to_string(worst) + " of " + std::to_string(greatest));
}

// The gradients of this rank are those parts of what one process has, times a factor.
template <class Layer>
void require_gradients(const sharded<Layer>& part, Layer made, Layer expected, double factor,
                       const std::string& name) {
  const auto all = detail::released_parameters(made), whole = detail::released_parameters(expected);
  std::size_t compared = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const auto own = all[k].parameter.value();
    auto of_whole = whole[k].parameter.value();
    if (own.empty()) continue;
    const char letter = detail::cut_letter(part.cut, whole, whole[k]);
    if (letter != 0) {
      const std::size_t axis = detail::position_of(letter, whole[k].name.layer_labels),
                        block = of_whole.shape[axis] / part.cut.length, i = part.cut.own(0);
      of_whole =
          detail::part_of(of_whole, axis, block * part.cut.begin(i), block * part.cut.count(i));
    }
    require(own.shape == of_whole.shape, name + ": the shape of " + all[k].name.name);
    require_near(static_cast<const double*>(own.elements->data()),
                 static_cast<const double*>(of_whole.elements->data()),
                 detail::element_count(own.shape), factor, name + ": " + all[k].name.name);
    ++compared;
  }
  require(compared > 0, name + " has parameters");
}

// Changes all weights, as a step of training does.
template <class T, class Layer>
void shrink(Layer& layer) {
  for (const auto& p : detail::released_parameters(layer)) {
    const auto value = p.parameter.value();
    if (value.empty() || !p.name.trained) continue;
    auto* const w = static_cast<T*>(value.elements->written());
    for (std::size_t i = 0; i < detail::element_count(value.shape); ++i) w[i] *= T(0.75);
  }
}

// What one process makes, which all ranks and all cuts are compared with: both passes, and again
// after all weights changed.
template <class Layer>
struct one_process {
  explicit one_process(const Layer& l, std::size_t tokens = 23)
      : layer(l),
        x(rows<double>(tokens, 12, 1000)),
        dy(rows<double>(tokens, compile(l, 1).output_shape()[0], 17)),
        passes(gradients(l, x, dy)),
        after([&] {
          Layer changed = l;
          shrink<double>(changed);
          return gradients(changed, x, dy);
        }()) {}

  Layer layer;
  tensor<double, 2> x, dy;
  decltype(gradients(layer, x, dy)) passes, after;
};

template <class Layer>
void check_gradients(communicator& ranks, const one_process<Layer>& whole, char label,
                     const std::string& of, const shard_options& how = {}) {
  const std::string name =
      of + " over '" + label + "' on " + std::to_string(ranks.size()) + " ranks";
  const auto part = shard(whole.layer, ranks, label, how);
  auto step =
      compile_gradients(part, detail::divide_up(whole.x.shape()[0], ranks.size()), {.threads = 1});
  const auto mine = share(ranks, whole.x), seed = share(ranks, whole.dy);
  tensor<double, 2> y(seed.shape()), dx(mine.shape());

  const auto compare = [&](const auto& expected, double factor) {
    const auto own_y = share(ranks, expected.y), own_dx = share(ranks, expected.dx);
    require_near(y.data(), own_y.data(), y.size(), 1, name + ": y");
    require_near(dx.data(), own_dx.data(), dx.size(), 1, name + ": dx");
    require_gradients(part, step.gradients(), expected.parameters, factor, name);
  };
  step(mine, seed, y, dx);
  compare(whole.passes, 1);
  step(mine, seed, y, dx, true);
  compare(whole.passes, 2);

  Layer own = part.own_part();
  shrink<double>(own);
  step.refresh();
  step(mine, seed, y, dx);
  compare(whole.after, 1);
}

// Ranks that compute slowly share out what they compute: they sum over their own tokens.
network_costs slow_ranks() {
  network_costs slow;
  slow.flops = 1e9;
  slow.name = "slow ranks";
  return slow;
}

// The last number of ranks is that of slow ranks, too. Each rank looks for the cheapest placement,
// which without optimisation takes a second for graphs as large as Monet's.
template <class Layer>
void check_on_ranks(const Layer& layer, const std::string& labels, const std::string& name,
                    const std::vector<std::size_t>& counts = {1, 2, 4}) {
  const one_process whole(layer);
  for (const std::size_t P : counts)
    run_on_threads(P, [&](communicator& ranks) {
      for (const char label : labels) {
        check_gradients(ranks, whole, label, name);
        if (P == counts.back())
          check_gradients(ranks, whole, label, name, {.network = slow_ranks()});
      }
    });
}

TEST_CASE("the gradients of MxD over its experts, hidden units and outputs") {
  for (const bool with_glu : {false, true}) {
    auto layer = mixture_of_decoders<double>(1000, with_glu);
    check_on_ranks(layer, "nho", with_glu ? "MxD with a GLU" : "MxD");
    layer.active = all;
    check_on_ranks(layer, "n", "MxD of all experts");
  }
}

TEST_CASE("the gradients of MxD whose selection is merged") {
  mxd<double> layer;
  fill_with(layer.encoder, {12, 64}, 1, 100);
  fill_with(layer.gate, {12, 2048}, 2, 100);
  fill_with(layer.scales, {2048, 16}, 3, 100);
  fill_with(layer.decoder, {64, 16}, 4, 100);
  layer.active = 8;
  const one_process whole(layer);
  for (const std::size_t P : {2u, 4u})
    run_on_threads(P, [&](communicator& ranks) {
      check_gradients(ranks, whole, 'n', "a wide MxD");
      const auto part = shard(layer, ranks, 'n', {.network = slow_ranks()});
      const std::string plan = compile_gradients(part, 8, {.threads = 1}).explain();
      for (const char* step : {"merge a selection of 8", "all_reduce of 768 numbers a call"})
        require(plan.find(step) != plan.npos, std::string(step) + " in\n" + plan);
    });
}

// Each rank has another number at each place of a sum [2, n, 3].
double number_of_sum(std::size_t rank, std::size_t place) {
  return static_cast<double>(100 * rank + place);
}

TEST_CASE("sums over tokens come to lie whole, or along the label") {
  using enum detail::spread;
  constexpr std::size_t outer = 2, length = 7, inner = 3, all = outer * length * inner;
  for (const std::size_t P : {2u, 3u})
    run_on_threads(P, [P](communicator& ranks) {
      const detail::axis_cut cut{'n', length, P, P, ranks.rank()};
      const detail::call_tokens tokens{std::vector<std::size_t>(P, 5), ranks.rank()};
      const std::size_t begin = cut.begin_of(cut.rank), count = cut.count_of(cut.rank);
      const auto moved = [&](detail::spread from, detail::spread to, std::vector<double> mine) {
        detail::list_by<detail::array_id, std::vector<double>> arrays;
        const auto source = arrays.add(std::move(mine)),
                   target =
                       arrays.add(std::vector<double>(to == whole ? all : outer * count * inner));
        detail::token_routes routes;
        detail::stage_exchange e{.id = {},
                                 .from_how = from,
                                 .to_how = to,
                                 .merges = false,
                                 .from = {source},
                                 .to = {target},
                                 .outer = outer,
                                 .inner = inner,
                                 .numbers = all,
                                 .is_sum = true};
        const auto no_more = [](const detail::stage_exchange&, std::span<const std::size_t>) {
          return detail::best_rows<double>();
        };
        detail::exchange_run<double>{ranks, cut, tokens, arrays, routes, no_more}.run(e);
        return arrays[target];
      };
      std::vector<double> own(all), sum(all), columns, part_of_sum;
      for (std::size_t i = 0; i < all; ++i) {
        own[i] = number_of_sum(ranks.rank(), i);
        for (std::size_t r = 0; r < P; ++r) sum[i] += number_of_sum(r, i);
        const std::size_t n = i / inner % length;
        if (n < begin || n >= begin + count) continue;
        part_of_sum.push_back(sum[i]);
        columns.push_back(number_of_sum(0, i));
      }
      require(moved(partial, whole, own) == sum, "an all_reduce");
      require(moved(partial, label, own) == part_of_sum, "a reduce_scatter");
      const auto joined = moved(label, whole, columns);
      for (std::size_t i = 0; i < all; ++i)
        require(joined[i] == number_of_sum(0, i), "an all_gather");
    });
}

TEST_CASE("what is written to a rank's part is written to the layer over ranks") {
  const temporary_folder folder;
  const auto expected = folder / "expected.safetensors", file = folder / "file.safetensors";
  const auto layer = mixture_of_decoders(1000);
  auto whole = layer;
  shrink<float>(whole);
  save(whole, expected);
  run_on_threads(3, [&](communicator& ranks) {
    const auto part = shard(layer, ranks, 'n');
    auto own = part.own_part();
    shrink<float>(own);
    save(part, file);
  });
  CHECK(content(file) == content(expected));
}

TEST_CASE("gradients on more ranks than tokens") {
  const one_process whole(mixture_of_decoders<double>(1000), 3);
  run_on_threads(7, [&](communicator& ranks) { check_gradients(ranks, whole, 'n', "MxD"); });
}

TEST_CASE("a step receives the bytes and makes the calls that its costs say") {
  constexpr std::size_t own = 8;
  run_on_threads(4, [](communicator& ranks) {
    auto layer = mixture_of_decoders<double>(1000);  // of 40 experts, 10 on each rank
    fill_with(layer.gate, {12, 40}, 4, 1000);
    fill_with(layer.gate_bias, {40}, 5, 1000);
    fill_with(layer.scales, {40, 12}, 6, 1000);
    auto step = compile_gradients(shard(layer, ranks, 'n'), own, {.threads = 1});
    const shard_costs& cost = step.cost();
    const auto x = rows<double>(own, 12, 1000);
    tensor<double, 2> y({own, 12}), dx({own, 12});
    const std::size_t calls = ranks.calls(), bytes = ranks.received();
    step(x, x, y, dx);
    require(ranks.calls() - calls == cost.calls, "the calls");
    const double expected = cost.bytes_a_token * 4 * own + cost.bytes_a_call;
    require(
        std::abs(static_cast<double>(ranks.received() - bytes) - expected) < 1e-6 * expected,
        std::to_string(ranks.received() - bytes) + " bytes and not " + std::to_string(expected));
    require(step.explain().find(" bytes a call received by each rank") != std::string::npos,
            step.explain());
  });
}

TEST_CASE("the gradients of muMoE over its experts and its ranks") {
  cp_mumoe<1, double> layer;
  fill_with(layer.gate.projections[0], {12, 9}, 1, 1000);
  fill_with(layer.experts.experts[0], {9, 20}, 2, 1000);
  fill_with(layer.experts.input, {13, 20}, 3, 1000);
  fill_with(layer.experts.output, {10, 20}, 4, 1000);
  check_on_ranks(layer, "nr", "CP");

  tr_mumoe<1, double> ring;
  fill_with(ring.gate.projections[0], {12, 9}, 1, 1000);
  fill_with(ring.experts.experts[0], {3, 9, 4}, 2, 1000);
  fill_with(ring.experts.input, {4, 13, 5}, 3, 1000);
  fill_with(ring.experts.output, {5, 10, 3}, 4, 1000);
  check_on_ranks(ring, "npqr", "TR", {3});
}

TEST_CASE("the gradients of AoE and of a sparse mixture over their experts") {
  aoe<double> l;
  fill_with(l.down, {12, 30, 4}, 1, 1000);
  fill_with(l.up, {30, 4, 17}, 2, 1000);
  fill_with(l.linear, {30, 12, 17}, 3, 1000);
  fill_with(l.output, {30, 17, 12}, 4, 1000);
  check_on_ranks(l, "n", "AoE", {1, 3});

  moe<double> m;
  fill_with(m.router, {12, 21}, 1, 1000);
  fill_with(m.activated, {21, 12, 6}, 2, 1000);
  fill_with(m.linear, {21, 12, 6}, 3, 1000);
  fill_with(m.output, {21, 6, 12}, 4, 1000);
  for (const weighting w : {weighting::softmax, weighting::softmax_of_all}) {
    m.route.weights = w;
    check_on_ranks(m, "n", "a sparse mixture", {2});
    const one_process whole(m);
    run_on_threads(3, [&](communicator& ranks) {
      check_gradients(ranks, whole, 'n', "a sparse mixture whose router is whole", {0, {"router"}});
    });
  }
}

TEST_CASE("the gradients of Monet over the halves of its experts") {
  check_on_ranks(routed<double, monet_hd<double>>{small_router<double>(false), small_hd<double>()},
                 "s", "Monet HD", {1, 2});
  check_on_ranks(routed<double, monet_vd<double>>{small_router<double>(true), small_vd<double>()},
                 "s", "Monet VD", {2});
}

peer<double> small_peer() {
  peer<double> layer;
  fill_with(layer.queries, {12, 16}, 1, 1000);
  fill_with(layer.keys, {2, 20, 2, 4}, 2, 1000);
  fill_with(layer.down, {400, 12}, 3, 1000);
  fill_with(layer.up, {400, 12}, 4, 1000);
  layer.active = 3;
  return layer;
}

TEST_CASE("the gradients of PEER over its experts") { check_on_ranks(small_peer(), "e", "PEER"); }

// All ranks clip by the norm of what one process has.
template <class Layer>
void check_clipping(communicator& ranks, const one_process<Layer>& whole, char label,
                    const std::string& name) {
  const auto part = shard(whole.layer, ranks, label);
  auto step =
      compile_gradients(part, detail::divide_up(whole.x.shape()[0], ranks.size()), {.threads = 1});
  const auto mine = share(ranks, whole.x), seed = share(ranks, whole.dy);
  tensor<double, 2> y(seed.shape()), dx(mine.shape());
  step(mine, seed, y, dx);
  const double expected = global_norm(whole.passes.parameters);
  for (const double share : {2.0, 0.25}) {  // the first limit changes nothing
    const double limit = share * expected, norm = clip_norm(limit, part, step.gradients());
    require(std::abs(norm - expected) < 1e-12 * expected, name + ": the norm");
    std::vector<double> same{norm, -norm};
    ranks.all_reduce(std::span(same), fold::max);
    require(same == std::vector{norm, -norm}, name + ": ranks have other norms");
    if (share > 1) {
      const double alone = global_norm(step.gradients());
      require((norm == alone) == (ranks.size() == 1), name + ": the norm of one rank");
    }
    require_gradients(part, step.gradients(), whole.passes.parameters,
                      std::min(limit / (expected + 1e-6), 1.0), name);
  }
}

TEST_CASE("gradients over ranks are clipped by the norm of the whole layer") {
  const one_process mxd(mixture_of_decoders<double>(1000, true));
  const one_process peers(small_peer());
  for (const std::size_t P : {1u, 2u, 4u})
    run_on_threads(P, [&](communicator& ranks) {
      check_clipping(ranks, mxd, 'n', "MxD over its experts");
      check_clipping(ranks, mxd, 'h', "MxD over its hidden units");
      check_clipping(ranks, peers, 'e', "PEER");
    });
}

TEST_CASE("a limit below 0 is refused on all ranks") {
  run_on_threads(2, [](communicator& ranks) {
    const auto part = shard(mixture_of_decoders<double>(1000), ranks, 'n');
    auto gradients = part.own_part();
    const std::string got =
        sentence_of([&] { clip_norm(ranks.rank() == 1 ? -1.0 : 1.0, part, gradients); });
    require(got == "rank 1 failed: [clip_norm] the limit is -1 and must be at least 0", got);
  });
}

// The rows of a token times the sum of all of them.
struct summed {
  parameter<double, 2> weights;  // i n

  auto operator()(const operand_of<2> auto& x) const {
    return einsum<"ti,in->tn">(x, weights) * einsum<"ti,in->n">(x, weights);
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"weights", presence::required, "in"}, layer.weights);
  }
};

template <class Layer>
void require_refusal(const Layer& layer, const shard_options& how, const compile_options& options,
                     const std::string& sentence) {
  run_on_threads(2, [&](communicator& ranks) {
    const std::string got =
        sentence_of([&] { compile_gradients(shard(layer, ranks, 'n', how), 8, options); });
    require(got.ends_with(" failed: " + sentence), got);
  });
}

TEST_CASE("what cannot be cut is refused on all ranks") {
  const auto layer = mixture_of_decoders<double>(1000);
  require_refusal(layer, {.parts = 4}, {},
                  "[shard] a rank has 2 parts: a layer of its own has one");
  require_refusal(layer, {}, {.sparse_gradients = all},
                  "[gradients] those of a layer over ranks are not sparse: compile them with "
                  "sparse_gradients = 0");
  summed sums;
  fill_with(sums.weights, {12, 10}, 1, 1000);
  require_refusal(sums, {}, {}, "[shard] the layer sums over tokens, which are cut over the ranks");
}

TEST_CASE("a step whose weights were written refuses to run on all ranks") {
  run_on_threads(2, [](communicator& ranks) {
    const auto part = shard(mixture_of_decoders<double>(1000), ranks, 'n');
    auto step = compile_gradients(part, 8, {.threads = 1});
    const auto x = rows<double>(8, 12, 1000);
    tensor<double, 2> y({8, 12}), dx({8, 12});
    auto own = part.own_part();
    if (ranks.rank() == 1) own.bias.data()[0] = 1;
    const std::string got = sentence_of([&] { step(x, x, y, dx); });
    require(got ==
                "rank 1 failed: [gradients] a weight may have been written since the layer was "
                "compiled: call refresh() before the next call",
            got);
  });
}

}  // namespace

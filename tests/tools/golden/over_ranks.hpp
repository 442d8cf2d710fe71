// SPDX-License-Identifier: MIT
// Judges layers that are cut over the ranks of a job, along each of their labels in turn.
#pragma once

#include <fmoe/distributed.hpp>

#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "report.hpp"

namespace fmoe::golden {

// The job over which layers are judged, if any: it calls a function on each of its ranks.
struct rank_job {
  extent ranks = 0;
  std::function<void(const std::function<void(communicator&)>&)> run;
  bool all_labels = true;  // or one of them, another one for each case
};
inline rank_job job;

// How often each label was cut, and the reasons why layers were not.
struct rank_census {
  std::map<char, extent> cut;
  std::map<std::string, extent> refused;
};
inline rank_census cut_over_ranks;

// The rows of this rank's share of the tokens go through the layer; returns those of all ranks.
template <class Layer, class T>
tensor<T, 2> over_ranks(communicator& ranks, const Layer& layer, char label, extent parts,
                        const tensor<T, 2>& x) {
  const auto [tokens, width] = x.shape();
  const auto begin = [&, all_tokens = tokens](extent r) {
    return begin_of_part(all_tokens, ranks.size(), r);
  };
  const extent first = begin(ranks.rank()), own = begin(ranks.rank() + 1) - first;
  auto forward = compile(shard(layer, ranks, label, {.parts = parts}),
                         divide_up(tokens, ranks.size()), {.threads = 1});
  const extent outputs = forward.output_shape()[0];
  tensor<T, 2> mine({own, width}), y({own, outputs}), every({tokens, outputs});
  std::copy_n(x.data() + first * width, mine.size(), mine.data());
  forward(mine, y);
  std::vector<extent> counts;
  for (extent r = 0; r < ranks.size(); ++r) counts.push_back((begin(r + 1) - begin(r)) * outputs);
  ranks.all_gather(std::span<const T>(y.data(), y.size()), std::span(every.data(), every.size()),
                   counts);
  return every;
}

// The coefficients of a layer, as a layer.
template <class Layer>
struct coefficients_of {
  Layer layer;

  auto operator()(const operand_of<2> auto& x) const { return layer.coefficients(x); }
  static void released(auto& of, auto&& visit) { Layer::released(of.layer, visit); }
};

template <class Layer>
inline constexpr bool has_coefficients = requires(const Layer& l, const argument<0, 2>& x) {
  { l.coefficients(x) } -> operand_of<2>;
};

// Cut into as many parts as the job has ranks, a layer must give what is expected on one rank and
// on all of them, with the same bits where that is promised.
template <class Layer, class T>
void judge_cut(report& r, const Layer& layer, char label, const tensor<T, 2>& x,
               const tensor<double, 2>& expected) {
  const extent parts = job.ranks;
  const std::string where =
      std::string(" over '") + label + "' in " + std::to_string(parts) + " parts";
  tensor<T, 2> alone, y;
  try {
    run_on_threads(1, [&](communicator& one) { alone = over_ranks(one, layer, label, parts, x); });
  } catch (const communication_error& e) {
    const std::string why = e.what();
    if (why.find("[shard]") == why.npos) r.fault("y" + where + ": " + why);
    ++cut_over_ranks.refused[why];
    return;
  }
  std::mutex mutex;
  job.run([&](communicator& ranks) {
    const auto found = over_ranks(ranks, layer, label, parts, x);
    const std::lock_guard lock(mutex);
    y = found;
  });
  ++cut_over_ranks.cut[label];
  r.compare("y on one rank" + where, alone, expected);
  r.compare("y on all ranks" + where, y, expected);
  const bool is_power_of_two = (parts & (parts - 1)) == 0;
  if (is_power_of_two && std::memcmp(alone.data(), y.data(), y.size() * sizeof(T)) != 0)
    r.fault("y" + where + " has other bits on one rank");
  if constexpr (has_coefficients<Layer>) {
    if (label != 'n') return;
    const coefficients_of<Layer> chosen{layer};
    const auto one_process = evaluate(chosen(x));
    tensor<T, 2> a;
    job.run([&](communicator& ranks) {
      const auto found = over_ranks(ranks, chosen, label, parts, x);
      const std::lock_guard lock(mutex);
      a = found;
    });
    for (extent i = 0; i < a.size(); ++i)
      if ((a.data()[i] != 0) != (one_process.data()[i] != 0))
        return r.fault("the selection" + where + " is another one");
  }
}

template <class Layer, class T>
void judge_ranks(report& r, const Layer& layer, const tensor<T, 2>& x,
                 const tensor<double, 2>& expected) {
  if (job.ranks == 0) return;
  Layer same = layer;
  std::map<char, extent> lengths;
  for (const released_parameter& p : released_parameters(same)) {
    const any_tensor value = p.parameter.value();
    for (extent k = 0; k < value.shape.size() && !value.empty(); ++k)
      lengths[p.name.layer_labels[k]] = value.shape[k];
  }
  static extent turn = 0;
  extent at = 0;
  for (const auto& [label, length] : lengths) {
    const bool is_turn = job.all_labels || turn % lengths.size() == at++;
    if (is_turn && length >= job.ranks) judge_cut(r, layer, label, x, expected);
  }
  ++turn;
}

}  // namespace fmoe::golden

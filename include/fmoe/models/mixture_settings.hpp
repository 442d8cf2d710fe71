// SPDX-License-Identifier: MIT
// What the settings of a released model say of its mixtures of experts.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <fmoe/io/model_config.hpp>
#include <fmoe/layers/moe.hpp>
#include <fmoe/models/mixture_families.hpp>

namespace fmoe::detail {

// The settings with limits of hidden units, of the chosen experts and of the shared one.
inline constexpr std::string_view limit_settings[] = {"swiglu_limit", "swiglu_limits",
                                                      "swiglu_limits_shared", "swiglu_clamp_exp",
                                                      "swiglu_clamp_shexp"};

// The settings of a moe that its tensors do not tell.
struct mixture_settings {
  routing route;
  pointwise activation = pointwise::silu;
  double scale = 1, limit = 0, shared_limit = 0;
  bool weighs_input = false, has_balance = false;
  extent zero_experts = 0;
};

// Throws schema for an activation that fmoe's experts do not have.
inline pointwise activation_in(const io::model_config& config, std::string_view name,
                               pointwise unsaid) {
  constexpr std::pair<std::string_view, pointwise> known[] = {
      {"silu", pointwise::silu},
      {"gelu", pointwise::gelu},
      {"gelu_pytorch_tanh", pointwise::gelu_tanh},
      {"relu", pointwise::relu},
      {"relu2", pointwise::squared_relu}};
  const auto said = config.text(name);
  if (!said) return unsaid;
  for (const auto& [text, f] : known)
    if (text == *said) return f;
  config.refuse(name, "is no activation of fmoe's experts");
}

// Throws schema for an architecture that has no mixture which fmoe knows.
inline const mixture_family& family_of(const io::model_config& config) {
  std::string known;
  for (const mixture_family& family : mixture_families) {
    if ((family.settings.active == gguf_settings.active) != config.is_gguf()) continue;
    if (family.name == config.architecture()) return family;
    known.append(known.empty() ? "" : ", ").append(family.name);
  }
  config.refuse(config.is_gguf() ? "general.architecture" : "model_type",
                "is no architecture whose mixtures fmoe knows; it knows " + known);
}

// The names that the settings have: the family's own, or the usual ones.
inline setting_names names_in(const io::model_config& config, const mixture_family& family) {
  constexpr setting_names usual;
  setting_names names = family.settings;
  for (const auto name : {&setting_names::active, &setting_names::normalizes, &setting_names::scale,
                          &setting_names::groups, &setting_names::active_groups,
                          &setting_names::score_function, &setting_names::activation})
    if (!config.text(names.*name) && config.text(usual.*name)) names.*name = usual.*name;
  return names;
}

// Throws schema if the settings tell another number of experts than the tensors, or more active
// ones than there are with the zero experts.
inline void check_experts(const io::model_config& config, const mixture_family& family,
                          extent experts, extent zero_experts) {
  for (const std::string_view name :
       {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "expert_count"})
    if (config.text(name) && config.count(name) != experts)
      config.refuse(name, "is not the number of its router's, " + std::to_string(experts));
  if (const std::string_view active = names_in(config, family).active;
      config.count(active) > experts + zero_experts)
    config.refuse(active, "is more than the number of its experts, " +
                              std::to_string(experts + zero_experts));
}

// Throws schema if the settings tell another width of the experts' latent than the tensors; 0 is
// without one.
inline void check_latent(const io::model_config& config, extent width) {
  constexpr std::string_view name = "moe_latent_size";
  if (config.number(name).value_or(0) != static_cast<double>(width))
    config.refuse(name, "is not the width of its experts' latent, " +
                            (width == 0 ? "of which there is none" : std::to_string(width)));
}

// True if the weights are sigmoids. A file that may have both and says neither has sigmoids if it
// has a balance of experts. Throws schema for others than those of the family.
inline bool has_sigmoids(const io::model_config& config, const mixture_family& family,
                         bool has_balance) {
  using enum expert_weights;
  const bool may_be_sigmoid = family.weights == sigmoid || family.weights == said,
             may_be_softmax = family.weights != sigmoid;
  const bool is_usual = may_be_sigmoid && (has_balance || !may_be_softmax);
  const std::string_view name = names_in(config, family).score_function;
  const std::string text = config.text(name).value_or(is_usual ? "sigmoid" : "softmax");
  constexpr std::string_view softmax_of_gguf = "1", sigmoid_of_gguf = "2";
  const bool is_sigmoid = text == "sigmoid" || text == sigmoid_of_gguf ||
                          text == "noaux_tc",  // as dots.llm1 calls it
      is_softmax = text == "softmax" || text == softmax_of_gguf;
  if (!(is_sigmoid && may_be_sigmoid) && !(is_softmax && may_be_softmax))
    config.refuse(name, "is no function of scores that this architecture has: " +
                            std::string(may_be_sigmoid && may_be_softmax ? "softmax or sigmoid"
                                        : may_be_sigmoid                 ? "sigmoid"
                                                                         : "softmax") +
                            " is expected");
  return is_sigmoid;
}

// True if the weights of a token are divided by their sum. Throws schema for what the family has
// not.
inline bool is_normalized(const io::model_config& config, const mixture_family& family,
                          bool is_sigmoid) {
  using enum normalization;
  const std::string_view name = names_in(config, family).normalizes;
  const normalization how =
      family.weights == expert_weights::said && !is_sigmoid ? if_said : family.normalizes;
  const std::optional<bool> said = config.flag(name);
  const bool result = how == always || (how != never && said.value_or(how == unless_said));
  if (said.value_or(result) != result)
    config.refuse(name, std::string("is ") + (result ? "true" : "false") + " in this architecture");
  return result;
}

// False if the experts of a token may come from any group. Only DeepSeek-V2 has that choice, and
// GGUF files have groups where it is true. Throws schema for a choice that fmoe does not know.
inline bool chooses_groups(const io::model_config& config) {
  if (config.architecture() != "deepseek_v2") return true;
  constexpr std::string_view name = "topk_method";
  const std::string said = config.text(name).value_or("greedy");
  if (said != "greedy" && said != "group_limited_greedy")
    config.refuse(name, "is no choice of experts that fmoe knows");
  return said != "greedy";
}

// `has_balance` says whether the tensors have one. Throws schema for a setting that is missing, of
// another kind, or of no model that fmoe knows.
inline mixture_settings settings_of(const io::model_config& config, const mixture_family& family,
                                    bool has_balance) {
  const setting_names names = names_in(config, family);
  mixture_settings s;
  // MiniMax-M3 calls its hidden units so, whose form its family says.
  const bool is_oai = family.limit != 0 && family.limit_form == glu_limit::swiglu_oai &&
                      config.text(names.activation) == "swigluoai";
  s.activation =
      is_oai ? family.activation : activation_in(config, names.activation, family.activation);
  const auto expect_none = [&](std::string_view name) {
    if (config.number(name).value_or(0) != 0) config.refuse(name, "is no part of fmoe's mixtures");
  };
  constexpr std::string_view zero_experts = "zero_expert_num", kind = "zero_expert_type";
  if (!family.has_zero_experts) expect_none(zero_experts);
  else if (config.number(zero_experts).value_or(0) != 0)
    s.zero_experts = config.count(zero_experts);
  if (s.zero_experts != 0 && config.text(kind).value_or("identity") != "identity")
    config.refuse(kind, "is no kind of zero experts that fmoe has");
  expect_none("moe_router_logit_softcapping");  // scores with a bound, in Laguna
  s.route.active = config.count(names.active);
  s.weighs_input = family.weighs_input;
  for (const std::string_view name : limit_settings)
    if (name != family.limited_by && name != family.shared_limited_by) expect_none(name);
  const auto limit_in = [&](std::string_view name) {
    const double said = name.empty() ? 0 : config.number(name).value_or(family.limit);
    if (!(said >= 0) || (said == 0 && !name.empty() && family.limit != 0))
      config.refuse(name, "is no limit of hidden units");
    return said;
  };
  s.limit = limit_in(family.limited_by);
  s.shared_limit = limit_in(family.shared_limited_by);
  constexpr std::string_view alpha = "swiglu_alpha";  // of MiniMax-M3's sigmoids
  if (config.number(alpha).value_or(1.702) != 1.702) config.refuse(alpha, "is 1.702 in fmoe");
  if (family.has_scale) s.scale = config.number(names.scale).value_or(1);
  if (family.weights == expert_weights::softmax_of_chosen) return s;
  if (family.weights == expert_weights::sparse_mixer) {
    constexpr std::string_view jitter = "router_jitter_noise";  // GGUF files have none
    if (s.route.active != 2) config.refuse(names.active, "is not 2, as many as a sparse mixer has");
    s.route.scoring = score_function::sparse_mixer;
    s.route.weights = weighting::score;
    s.route.jitter = config.number(jitter).value_or(s.route.jitter);
    if (s.route.jitter < 0 || s.route.jitter >= 1)
      config.refuse(jitter, "is not at least 0 and below 1");
    return s;
  }
  const bool is_sigmoid = has_sigmoids(config, family, has_balance),
             is_sum_one = is_normalized(config, family, is_sigmoid);
  s.has_balance = family.has_balance && (is_sigmoid || family.weights != expert_weights::said);
  if (is_sigmoid || s.has_balance) {
    s.route.scoring = is_sigmoid ? score_function::sigmoid : score_function::softmax;
    s.route.weights = is_sum_one ? weighting::normalized : weighting::score;
  } else {  // over the chosen scores it is that of all, divided by its sum
    s.route.weights = is_sum_one ? weighting::softmax : weighting::softmax_of_all;
  }
  if (!family.has_groups && config.number(names.groups).value_or(1) > 1)
    config.refuse(names.groups, "is no part of this architecture's mixtures in fmoe");
  if (family.has_groups && chooses_groups(config) && config.number(names.groups))
    s.route.groups = config.count(names.groups);
  if (s.route.groups > 1) {
    s.route.active_groups = config.count(names.active_groups);
    if (!is_sigmoid && !s.has_balance) s.route.score_of_group = group_score::greatest;
  }
  return s;
}

}  // namespace fmoe::detail

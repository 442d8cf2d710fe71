// SPDX-License-Identifier: MIT
// What the settings of a released model say of its mixtures of experts.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <fmoe/io/model_config.hpp>
#include <fmoe/layers/moe.hpp>

namespace fmoe::detail {

// The settings of a moe that its tensors do not tell.
struct mixture_settings {
  routing route;
  pointwise activation = pointwise::silu;
  double scale = 1, limit = 0;
  bool weighs_input = false;
};

inline pointwise activation_in(const io::model_config& config) {
  constexpr std::pair<std::string_view, pointwise> known[] = {
      {"silu", pointwise::silu},
      {"gelu", pointwise::gelu},
      {"gelu_pytorch_tanh", pointwise::gelu_tanh},
      {"relu", pointwise::relu}};
  const std::string said = config.text("hidden_act").value_or("silu");
  for (const auto& [name, f] : known)
    if (name == said) return f;
  config.refuse("hidden_act", "is no activation of fmoe's experts");
}

// The families of released mixtures, whatever file they come from.
enum class mixture_family : unsigned char {
  mixtral,   // weights are the softmax over the chosen scores
  qwen,      // weights are the softmax over all scores, or over the chosen ones
  deepseek,  // sigmoids, a balance, groups, shared experts; version 2 has softmax in their place
  llama4,    // the sigmoid of a score multiplies the input
  gpt_oss,   // biases, and a clamped SwiGLU
};

// Throws schema for an architecture that has no mixture which fmoe knows.
inline mixture_family family_of(const io::model_config& config) {
  using enum mixture_family;
  constexpr std::pair<std::string_view, mixture_family> known[] = {{"mixtral", mixtral},
                                                                   {"qwen2_moe", qwen},
                                                                   {"qwen3_moe", qwen},
                                                                   {"olmoe", qwen},
                                                                   {"deepseek_v2", deepseek},
                                                                   {"deepseek_v3", deepseek},
                                                                   {"glm4_moe", deepseek},
                                                                   {"kimi_k2", deepseek},
                                                                   {"llama4", llama4},  // GGUF, too
                                                                   {"llama4_text", llama4},
                                                                   {"gpt_oss", gpt_oss},
                                                                   // as GGUF files call them
                                                                   {"llama", mixtral},
                                                                   {"qwen2moe", qwen},
                                                                   {"qwen3moe", qwen},
                                                                   {"deepseek2", deepseek},
                                                                   {"glm4moe", deepseek},
                                                                   {"gpt-oss", gpt_oss}};
  for (const auto& [name, family] : known)
    if (name == config.architecture()) return family;
  config.refuse(config.is_gguf() ? "general.architecture" : "model_type",
                "is no architecture whose mixtures fmoe knows");
}

// The names of settings in config.json and in GGUF files.
struct setting_names {
  std::string_view active, normalizes, scale, groups, active_groups, score_function;
};
inline constexpr setting_names config_names{
    "num_experts_per_tok", "norm_topk_prob", "routed_scaling_factor", "n_group",
    "topk_group",          "scoring_func"};
inline constexpr setting_names gguf_names{"expert_used_count",       "expert_weights_norm",
                                          "expert_weights_scale",    "expert_group_count",
                                          "expert_group_used_count", "expert_gating_func"};

inline const setting_names& names_in(const io::model_config& config) {
  return config.is_gguf() ? gguf_names : config_names;
}

// Throws schema if the settings tell another number of experts than the tensors, or more active
// ones than there are.
inline void check_experts(const io::model_config& config, extent experts) {
  for (const std::string_view name :
       {"num_local_experts", "num_experts", "n_routed_experts", "expert_count"})
    if (config.text(name) && config.count(name) != experts)
      config.refuse(name, "is not the number of its router's, " + std::to_string(experts));
  if (const std::string_view active = names_in(config).active; config.count(active) > experts)
    config.refuse(active, "is more than the number of its experts, " + std::to_string(experts));
}

// True for the weights of DeepSeek-V2, false for the sigmoids of V3. GGUF files name both
// "deepseek2", and those of V2 may not say which. Throws schema for others.
inline bool is_softmax_of_all(const io::model_config& config, const setting_names& names) {
  const bool may_be_v2 = config.is_gguf() || config.architecture() == "deepseek_v2",
             may_be_v3 = config.architecture() != "deepseek_v2";
  const std::string said =
      config.text(names.score_function).value_or(may_be_v2 ? "softmax" : "sigmoid");
  constexpr std::string_view softmax_of_gguf = "1", sigmoid_of_gguf = "2";
  const bool is_v2 = may_be_v2 && (said == "softmax" || said == softmax_of_gguf),
             is_v3 = may_be_v3 && (said == "sigmoid" || said == sigmoid_of_gguf);
  if (!is_v2 && !is_v3)
    config.refuse(names.score_function, "is neither the softmax of DeepSeek-V2 nor V3's sigmoid");
  return is_v2;
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

// Throws schema for a setting that is missing, of another kind, or of no model that fmoe knows.
inline mixture_settings settings_of(const io::model_config& config) {
  const setting_names& names = names_in(config);
  const mixture_family family = family_of(config);
  mixture_settings s;
  s.activation = activation_in(config);
  s.route.active = config.count(names.active);
  switch (family) {
    case mixture_family::mixtral: break;
    case mixture_family::qwen: {
      // GGUF files of Qwen3-MoE do not say that it normalises its weights.
      const bool is_said_by_name = config.architecture() == "qwen3moe";
      if (!config.flag(names.normalizes).value_or(is_said_by_name))
        s.route.weights = weighting::softmax_of_all;
      break;
    }
    case mixture_family::deepseek: {
      const bool is_v2 = is_softmax_of_all(config, names);
      if (is_v2) {
        if (config.flag(names.normalizes).value_or(false))
          config.refuse(names.normalizes, "is false in DeepSeek-V2");
        s.route.weights = weighting::softmax_of_all;
      } else {
        s.route.sigmoid_scores = true;
        s.route.weights =
            config.flag(names.normalizes).value_or(true) ? weighting::normalized : weighting::score;
      }
      if (chooses_groups(config) && config.number(names.groups))
        s.route.groups = config.count(names.groups);
      if (s.route.groups > 1) {
        s.route.active_groups = config.count(names.active_groups);
        if (is_v2) s.route.score_of_group = group_score::greatest;
      }
      s.scale = config.number(names.scale).value_or(1);
      break;
    }
    case mixture_family::llama4:
      s.route.sigmoid_scores = true;
      s.route.weights = weighting::score;
      s.weighs_input = true;
      break;
    case mixture_family::gpt_oss: {
      constexpr double limit_of_all_releases = 7;
      s.limit = config.number("swiglu_limit").value_or(limit_of_all_releases);
      break;
    }
  }
  return s;
}

}  // namespace fmoe::detail

// SPDX-License-Identifier: MIT
// The families of released mixtures of experts, as rows of data: the names of their tensors, and
// what their settings mean. A family that computes what another one does is a row more here, and a
// case of scripts/make_mixture_cases.
#pragma once

#include <span>
#include <string_view>

#include <fmoe/layers/glu_expert.hpp>
#include <fmoe/layers/routing.hpp>
#include <fmoe/models/mixture_names.hpp>

namespace fmoe::detail {

// The names of settings in config.json and in GGUF files. A family may have names of its own, and
// its config.json may have the usual ones all the same.
struct setting_names {
  std::string_view active = "num_experts_per_tok", normalizes = "norm_topk_prob",
                   scale = "routed_scaling_factor", groups = "n_group",
                   active_groups = "topk_group", score_function = "scoring_func",
                   activation = "hidden_act";
};
inline constexpr setting_names gguf_settings{"expert_used_count",       "expert_weights_norm",
                                             "expert_weights_scale",    "expert_group_count",
                                             "expert_group_used_count", "expert_gating_func"};

// What weighs the experts of a token.
enum class expert_weights : unsigned char {
  softmax_of_chosen,  // the softmax over the chosen scores
  softmax,            // the chosen entries of the softmax over all scores
  sigmoid,            // the sigmoids of the chosen scores
  said,               // softmax or sigmoid, as the settings say; softmax where they do not
  sparse_mixer,       // those of two experts, with a jitter
};

// Whether the weights of a token are divided by their sum.
enum class normalization : unsigned char {
  never,
  always,
  if_said,      // where the settings say so
  unless_said,  // where they do not say that it is not so
};

struct mixture_family {
  std::string_view name;  // model_type in config.json, or the architecture of a GGUF file
  std::span<const mixture_names> tensors;
  expert_weights weights = expert_weights::softmax_of_chosen;
  normalization normalizes = normalization::never;
  bool has_groups = false, has_scale = false, has_balance = false, has_zero_experts = false;
  bool weighs_input = false;  // the weight multiplies the input of an expert
  double limit = 0;           // of hidden units, where the settings do not say another one
  pointwise activation = pointwise::silu;  // where they do not say another one
  setting_names settings = {};
  glu_limit limit_form = glu_limit::swiglu_oai;
  // The settings with the limits of the chosen experts and of the shared one; both may be one.
  std::string_view limited_by = {}, shared_limited_by = {};
};

// DeepSeek-V3 and those that compute the same.
constexpr mixture_family like_deepseek_v3(std::string_view name,
                                          std::span<const mixture_names> tensors = deepseek_names,
                                          normalization normalizes = normalization::unless_said,
                                          setting_names settings = {}) {
  return {.name = name,
          .tensors = tensors,
          .weights = expert_weights::sigmoid,
          .normalizes = normalizes,
          .has_groups = true,
          .has_scale = true,
          .has_balance = true,
          .settings = settings};
}
constexpr mixture_family like_qwen(std::string_view name, normalization normalizes,
                                   std::span<const mixture_names> tensors = qwen_names) {
  return {.name = name,
          .tensors = tensors,
          .weights = expert_weights::softmax,
          .normalizes = normalizes};
}
// A row whose experts have limits that these settings say, and else this one.
constexpr mixture_family limited(mixture_family family, glu_limit form, double limit,
                                 std::string_view limited_by, std::string_view shared_limited_by) {
  family.limit_form = form;
  family.limit = limit;
  family.limited_by = limited_by;
  family.shared_limited_by = shared_limited_by;
  return family;
}
// A row with sigmoids over their sum, ranked with a balance, in any layout.
constexpr mixture_family of_sigmoids(std::string_view name, std::span<const mixture_names> tensors,
                                     setting_names settings = {}) {
  return {.name = name,
          .tensors = tensors,
          .weights = expert_weights::sigmoid,
          .normalizes = normalization::always,
          .has_scale = true,
          .has_balance = true,
          .settings = settings};
}
// What GGUF files call a family. Each may say a factor of the sum.
constexpr mixture_family in_gguf(std::string_view name, mixture_family family) {
  family.name = name;
  family.tensors = gguf_tensors;
  family.has_scale = true;
  family.settings = gguf_settings;
  return family;
}

inline constexpr mixture_family mixtral_family{.name = "mixtral", .tensors = mixtral_names};
inline constexpr mixture_family llama4_family{.name = "llama4",
                                              .tensors = llama4_names,
                                              .weights = expert_weights::sigmoid,
                                              .weighs_input = true};
inline constexpr mixture_family gpt_oss_family{
    .name = "gpt_oss", .tensors = gpt_oss_names, .limit = 7, .limited_by = "swiglu_limit"};
inline constexpr mixture_family deepseek_v2_family{.name = "deepseek_v2",
                                                   .tensors = deepseek_names,
                                                   .weights = expert_weights::softmax,
                                                   .has_groups = true,
                                                   .has_scale = true};
inline constexpr mixture_family hunyuan_family{.name = "hunyuan_v1_moe",
                                               .tensors = hunyuan_names,
                                               .weights = expert_weights::softmax,
                                               .normalizes = normalization::always,
                                               .settings = {.active = "moe_topk"}};
// Its zero experts are the last rows of the router, and tensors of the others may have theirs, too.
inline constexpr mixture_family longcat_flash_family{.name = "longcat_flash",
                                                     .tensors = longcat_flash_names,
                                                     .weights = expert_weights::softmax,
                                                     .has_scale = true,
                                                     .has_balance = true,
                                                     .has_zero_experts = true,
                                                     .settings = {.active = "moe_topk"}};
inline constexpr mixture_family ernie_family{.name = "ernie4_5_moe",
                                             .tensors = ernie_names,
                                             .weights = expert_weights::softmax,
                                             .normalizes = normalization::always,
                                             .has_balance = true,
                                             .settings = {.active = "moe_k"}};
// Its groups are scored as those of DeepSeek-V3, from what a balance, if there is one, is added to.
inline constexpr mixture_family mistral4_family{.name = "mistral4",
                                                .tensors = deepseek_names,
                                                .weights = expert_weights::softmax,
                                                .normalizes = normalization::unless_said,
                                                .has_groups = true,
                                                .has_scale = true,
                                                .has_balance = true};
inline constexpr setting_names kimi_linear_settings{.active = "num_experts_per_token",
                                                    .normalizes = "moe_renormalize",
                                                    .groups = "num_expert_group"};
// Of its groups, which A.X-K2 Light has not, experts of the others may be chosen.
inline constexpr mixture_family axk2_family = [] {
  mixture_family family = like_deepseek_v3("axk2");
  family.has_groups = false;
  return family;
}();
inline constexpr mixture_family nemotron_h_family = [] {
  mixture_family family = like_deepseek_v3(
      "nemotron_h", nemotron_h_names, normalization::unless_said, {.activation = "mlp_hidden_act"});
  family.activation = pointwise::squared_relu;
  return family;
}();
inline constexpr mixture_family nemotron_h_in_gguf = [] {
  mixture_family family = in_gguf("nemotron_h_moe", nemotron_h_family);
  family.normalizes = normalization::if_said;
  family.tensors = ungated_gguf_tensors;
  return family;
}();
// Files of all versions have this name. Those of V2 may not say which they are, and those of
// Mistral Large 3 have softmaxes that are divided by their sum.
inline constexpr mixture_family deepseek_in_gguf{.name = "deepseek2",
                                                 .tensors = gguf_tensors,
                                                 .weights = expert_weights::said,
                                                 .normalizes = normalization::unless_said,
                                                 .has_groups = true,
                                                 .has_scale = true,
                                                 .has_balance = true,
                                                 .settings = gguf_settings};
inline constexpr mixture_family hy_v3_in_gguf = [] {
  mixture_family family = in_gguf("hy_v3", of_sigmoids("", {}));
  family.tensors = hy_v3_gguf_tensors;
  return family;
}();
// As llama.cpp reads them: what the file does not say to be divided by its sum is not.
constexpr mixture_family deepseek_v3_in_gguf(std::string_view name) {
  return in_gguf(name, like_deepseek_v3("", {}, normalization::if_said));
}

inline constexpr mixture_family mixture_families[] = {
    mixtral_family,
    {.name = "minimax", .tensors = mixtral_names},
    of_sigmoids("minimax_m2", minimax_m2_names),
    {.name = "phimoe", .tensors = phimoe_names, .weights = expert_weights::sparse_mixer},
    {.name = "granitemoe", .tensors = granite_names},
    {.name = "granitemoeshared", .tensors = granite_names},
    {.name = "granitemoehybrid", .tensors = granite_names},
    {.name = "granitemoe_swa", .tensors = granite_names},
    like_qwen("qwen2_moe", normalization::if_said),
    like_qwen("qwen3_moe", normalization::if_said),
    like_qwen("qwen3_next", normalization::unless_said),
    like_qwen("qwen3_5_moe_text", normalization::always),
    like_qwen("qwen4_exp_text", normalization::unless_said),
    like_qwen("lara_mini", normalization::unless_said),
    like_qwen("qwen3_vl_moe_text", normalization::always, qwen3_vl_names),
    like_qwen("qwen3_omni_moe_text", normalization::unless_said),
    like_qwen("mellum", normalization::unless_said),
    like_qwen("olmoe", normalization::if_said),
    like_qwen("flex_olmo", normalization::if_said),
    like_qwen("jamba", normalization::never, jamba_names),
    hunyuan_family,
    longcat_flash_family,
    ernie_family,
    mistral4_family,
    deepseek_v2_family,
    like_deepseek_v3("deepseek_v3"),
    like_deepseek_v3("deepseek_v32"),
    like_deepseek_v3("kimi_k2"),
    like_deepseek_v3("kimi_linear", kimi_linear_names, normalization::unless_said,
                     kimi_linear_settings),
    like_deepseek_v3("bailing_hybrid", bailing_names, normalization::unless_said,
                     kimi_linear_settings),
    like_deepseek_v3("sarvam_moe", bailing_names),
    like_deepseek_v3("sarvam_mla"),
    like_deepseek_v3("glm4_moe"),
    like_deepseek_v3("glm4_moe_lite"),
    like_deepseek_v3("glm4v_moe_text"),
    like_deepseek_v3("glm_moe_dsa"),
    like_deepseek_v3("dots1", deepseek_names, normalization::if_said),
    like_deepseek_v3("dots3_note_text"),
    like_deepseek_v3("beam"),
    like_deepseek_v3("flint", qwen_names),
    like_deepseek_v3("solar_open"),
    axk2_family,
    like_deepseek_v3("exaone_moe", exaone_names),
    like_deepseek_v3("mimo_v2_flash"),
    of_sigmoids("afmoe", afmoe_names, {.scale = "route_scale"}),
    of_sigmoids("hy_v3", hy_v3_names, {.scale = "router_scaling_factor"}),
    of_sigmoids("laguna", laguna_names, {.scale = "moe_routed_scaling_factor"}),
    limited(of_sigmoids("step3p5", step3p5_names,
                        {.active = "moe_top_k", .scale = "moe_router_scaling_factor"}),
            glu_limit::after_activation, 0, "swiglu_limits", "swiglu_limits_shared"),
    limited(of_sigmoids("minimax_m3_vl_text", minimax_m3_names), glu_limit::swiglu_oai, 7,
            "swiglu_limit", "swiglu_limit"),
    limited(like_deepseek_v3("glm5_next_text"), glu_limit::before_activation, 10, "swiglu_limit",
            "swiglu_limit"),
    limited(like_deepseek_v3("hy_v4", hy_v4_names), glu_limit::before_activation, 10,
            "swiglu_limit", {}),
    limited(like_deepseek_v3("hy_v4_vl_text", hy_v4_names), glu_limit::before_activation, 10,
            "swiglu_limit", {}),
    like_deepseek_v3("lfm2_moe", lfm2_names),
    nemotron_h_family,
    llama4_family,
    {.name = "llama4_text",
     .tensors = llama4_names,
     .weights = expert_weights::sigmoid,
     .weighs_input = true},
    gpt_oss_family,
    in_gguf("llama", mixtral_family),
    in_gguf("llama4", llama4_family),
    in_gguf("phimoe", {.name = {}, .tensors = {}, .weights = expert_weights::sparse_mixer}),
    in_gguf("granitemoe", mixtral_family),
    in_gguf("granitehybrid", mixtral_family),
    in_gguf("qwen2moe", like_qwen("", normalization::if_said)),
    in_gguf("qwen3moe", like_qwen("", normalization::unless_said)),
    in_gguf("qwen3next", like_qwen("", normalization::unless_said)),
    in_gguf("qwen35moe", like_qwen("", normalization::always)),
    in_gguf("qwen3vlmoe", like_qwen("", normalization::always)),
    in_gguf("mellum", like_qwen("", normalization::always)),
    in_gguf("olmoe", like_qwen("", normalization::if_said)),
    in_gguf("jamba", like_qwen("", normalization::never)),
    in_gguf("hunyuan-moe", hunyuan_family),
    in_gguf("ernie4_5-moe", ernie_family),
    in_gguf("mistral4", mistral4_family),
    deepseek_in_gguf,
    in_gguf("deepseek32", deepseek_in_gguf),
    in_gguf("glm4moe", like_deepseek_v3("")),
    deepseek_v3_in_gguf("glm-dsa"),
    deepseek_v3_in_gguf("dots1"),
    deepseek_v3_in_gguf("exaone-moe"),
    deepseek_v3_in_gguf("bailingmoe2"),
    limited(deepseek_v3_in_gguf("step35"), glu_limit::after_activation, 0, "swiglu_clamp_exp",
            "swiglu_clamp_shexp"),
    in_gguf("afmoe", of_sigmoids("", {})),
    in_gguf("laguna", of_sigmoids("", {})),
    hy_v3_in_gguf,
    in_gguf("kimi-linear", like_deepseek_v3("", {}, normalization::always)),
    in_gguf("minimax-m2", of_sigmoids("", {})),
    in_gguf("mimo2", of_sigmoids("", {})),
    in_gguf("lfm2moe", of_sigmoids("", {})),
    nemotron_h_in_gguf,
    in_gguf("gpt-oss", gpt_oss_family),
};

}  // namespace fmoe::detail

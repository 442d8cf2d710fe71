// SPDX-License-Identifier: MIT
// The families of released mixtures of experts, as rows of data: the names and layouts of their
// tensors, and what their settings mean. A family that computes what another one does is a row
// more here, and a case of scripts/make_mixture_cases.
#pragma once

#include <span>
#include <string_view>

#include <fmoe/layers/routing.hpp>

namespace fmoe::detail {

// How a tensor holds the matrices of the gate and of the linear part.
enum class gate_and_linear : unsigned char {
  apart,            // two tensors
  one_after_other,  // one tensor: the outputs of the gate first
  in_turns,         // one tensor: an output of the gate, then one of the linear part
  none,             // one tensor, of experts without a gate
};

// Names stand behind the prefix of a model's layer. {} is the number of an expert, if each has a
// tensor of its own; otherwise the first axis of a tensor is the experts. Empty names do not exist
// in such models, and those of biases, of balances and of shared experts may be missing.
struct mixture_names {
  std::string_view router, activated, linear, output;
  gate_and_linear joined = gate_and_linear::apart;  // else `linear` is empty
  bool inputs_first = false;                        // a matrix is [in, out] instead of [out, in]
  std::string_view router_bias = {}, balance = {};
  std::string_view activated_bias = {}, linear_bias = {}, output_bias = {};
  // Of the shared expert; without `shared_linear` the gate and the linear part are one after other,
  // or it has no gate, as the others.
  std::string_view shared_activated = {}, shared_linear = {}, shared_output = {}, shared_gate = {};
};

// Layouts of the names "mlp.": a tensor for each expert, and one for all, as transformers holds
// them.
constexpr mixture_names in_mlp(std::string_view router = "mlp.gate.weight") {
  return {.router = router,
          .activated = "mlp.experts.{}.gate_proj.weight",
          .linear = "mlp.experts.{}.up_proj.weight",
          .output = "mlp.experts.{}.down_proj.weight"};
}
constexpr mixture_names joined_in_mlp(std::string_view router = "mlp.gate.weight") {
  return {.router = router,
          .activated = "mlp.experts.gate_up_proj",
          .linear = {},
          .output = "mlp.experts.down_proj",
          .joined = gate_and_linear::one_after_other};
}
constexpr mixture_names with_balance(mixture_names names, std::string_view balance) {
  names.balance = balance;
  return names;
}
// With one shared expert of Qwen2-MoE and its gate, which may be missing.
constexpr mixture_names with_gated(mixture_names names) {
  names.shared_activated = "mlp.shared_expert.gate_proj.weight";
  names.shared_linear = "mlp.shared_expert.up_proj.weight";
  names.shared_output = "mlp.shared_expert.down_proj.weight";
  names.shared_gate = "mlp.shared_expert_gate.weight";
  return names;
}
// With the shared experts of DeepSeek, which are one.
constexpr mixture_names with_shared(mixture_names names) {
  names.shared_activated = "mlp.shared_experts.gate_proj.weight";
  names.shared_linear = "mlp.shared_experts.up_proj.weight";
  names.shared_output = "mlp.shared_experts.down_proj.weight";
  return names;
}
constexpr mixture_names with_shared_mlp(mixture_names names) {
  names.shared_activated = "mlp.shared_mlp.gate_proj.weight";
  names.shared_linear = "mlp.shared_mlp.up_proj.weight";
  names.shared_output = "mlp.shared_mlp.down_proj.weight";
  return names;
}
// Of Mixtral, which names its matrices w1, w3 and w2.
inline constexpr mixture_names in_block_sparse_moe{
    .router = "block_sparse_moe.gate.weight",
    .activated = "block_sparse_moe.experts.{}.w1.weight",
    .linear = "block_sparse_moe.experts.{}.w3.weight",
    .output = "block_sparse_moe.experts.{}.w2.weight"};

inline constexpr mixture_names mixtral_names[] = {in_block_sparse_moe, joined_in_mlp()};
inline constexpr mixture_names minimax_m2_names[] = {
    with_balance(in_block_sparse_moe, "block_sparse_moe.e_score_correction_bias"),
    with_balance(joined_in_mlp(), "mlp.e_score_correction_bias")};
inline constexpr mixture_names qwen_names[] = {with_gated(in_mlp()), with_gated(joined_in_mlp())};
// The released files of Qwen3-VL have the inputs first, which the shape tells.
inline constexpr mixture_names qwen3_vl_names[] = {in_mlp(), joined_in_mlp(), [] {
                                                     mixture_names names = joined_in_mlp();
                                                     names.inputs_first = true;
                                                     return names;
                                                   }()};
inline constexpr mixture_names deepseek_names[] = {
    with_shared(with_balance(in_mlp(), "mlp.gate.e_score_correction_bias")),
    with_shared(with_balance(joined_in_mlp(), "mlp.gate.e_score_correction_bias"))};
inline constexpr mixture_names bailing_names[] = {
    with_shared(with_balance(in_mlp(), "mlp.gate.expert_bias")), deepseek_names[1]};
inline constexpr mixture_names laguna_names[] = {
    with_gated(with_balance(in_mlp(), "mlp.experts.e_score_correction_bias")), deepseek_names[1]};
inline constexpr mixture_names kimi_linear_names[] = {
    [] {
      mixture_names names =
          with_balance(in_block_sparse_moe, "block_sparse_moe.gate.e_score_correction_bias");
      names.shared_activated = "block_sparse_moe.shared_experts.gate_proj.weight";
      names.shared_linear = "block_sparse_moe.shared_experts.up_proj.weight";
      names.shared_output = "block_sparse_moe.shared_experts.down_proj.weight";
      return names;
    }(),
    deepseek_names[1]};
inline constexpr mixture_names step3p5_names[] = {
    {.router = "moe.gate.weight",
     .activated = "moe.gate_proj.weight",
     .linear = "moe.up_proj.weight",
     .output = "moe.down_proj.weight",
     .balance = "moe.router_bias",
     .shared_activated = "share_expert.gate_proj.weight",
     .shared_linear = "share_expert.up_proj.weight",
     .shared_output = "share_expert.down_proj.weight"},
    deepseek_names[1]};
inline constexpr mixture_names hy_v3_names[] = {
    with_shared_mlp(with_balance(in_mlp("mlp.router.gate.weight"), "mlp.expert_bias")),
    with_shared(with_balance(joined_in_mlp(), "mlp.e_score_correction_bias"))};
inline constexpr mixture_names exaone_names[] = {
    with_shared(with_balance(in_mlp(), "mlp.e_score_correction_bias")),
    with_shared(with_balance(joined_in_mlp(), "mlp.gate.e_score_correction_bias"))};
inline constexpr mixture_names ernie_names[] = {
    with_shared(with_balance(in_mlp(), "mlp.moe_statics.e_score_correction_bias")),
    with_shared(with_balance(joined_in_mlp(), "mlp.gate.moe_statics.e_score_correction_bias"))};
inline constexpr mixture_names afmoe_names[] = {
    with_shared(with_balance(in_mlp("mlp.router.gate.weight"), "mlp.expert_bias")),
    with_shared(with_balance(joined_in_mlp("mlp.router.gate.weight"), "mlp.expert_bias"))};
inline constexpr mixture_names hunyuan_names[] = {
    with_shared_mlp(in_mlp("mlp.gate.wg.weight")),
    with_shared_mlp(joined_in_mlp("mlp.gate.wg.weight"))};
inline constexpr mixture_names jamba_names[] = {
    {.router = "feed_forward.router.weight",
     .activated = "feed_forward.experts.{}.gate_proj.weight",
     .linear = "feed_forward.experts.{}.up_proj.weight",
     .output = "feed_forward.experts.{}.down_proj.weight"},
    {.router = "feed_forward.router.weight",
     .activated = "feed_forward.experts.gate_up_proj",
     .linear = {},
     .output = "feed_forward.experts.down_proj",
     .joined = gate_and_linear::one_after_other}};
inline constexpr mixture_names lfm2_names[] = {{.router = "feed_forward.gate.weight",
                                                .activated = "feed_forward.experts.{}.w1.weight",
                                                .linear = "feed_forward.experts.{}.w3.weight",
                                                .output = "feed_forward.experts.{}.w2.weight",
                                                .balance = "feed_forward.expert_bias"},
                                               {.router = "feed_forward.gate.weight",
                                                .activated = "feed_forward.experts.gate_up_proj",
                                                .linear = {},
                                                .output = "feed_forward.experts.down_proj",
                                                .joined = gate_and_linear::one_after_other,
                                                .balance = "feed_forward.expert_bias"}};
inline constexpr mixture_names granite_names[] = {
    {.router = "block_sparse_moe.router.layer.weight",
     .activated = "block_sparse_moe.input_linear.weight",
     .linear = {},
     .output = "block_sparse_moe.output_linear.weight",
     .joined = gate_and_linear::one_after_other,
     .shared_activated = "shared_mlp.input_linear.weight",
     .shared_output = "shared_mlp.output_linear.weight"},
    {.router = "block_sparse_moe.router.weight",
     .activated = "block_sparse_moe.experts.gate_up_proj",
     .linear = {},
     .output = "block_sparse_moe.experts.down_proj",
     .joined = gate_and_linear::one_after_other,
     .shared_activated = "shared_mlp.input_linear.weight",
     .shared_output = "shared_mlp.output_linear.weight"}};
inline constexpr mixture_names nemotron_h_names[] = {
    {.router = "mixer.gate.weight",
     .activated = "mixer.experts.{}.up_proj.weight",
     .linear = {},
     .output = "mixer.experts.{}.down_proj.weight",
     .joined = gate_and_linear::none,
     .balance = "mixer.gate.e_score_correction_bias",
     .shared_activated = "mixer.shared_experts.up_proj.weight",
     .shared_output = "mixer.shared_experts.down_proj.weight"},
    {.router = "mixer.gate.weight",
     .activated = "mixer.experts.up_proj",
     .linear = {},
     .output = "mixer.experts.down_proj",
     .joined = gate_and_linear::none,
     .balance = "mixer.gate.e_score_correction_bias",
     .shared_activated = "mixer.shared_experts.up_proj.weight",
     .shared_output = "mixer.shared_experts.down_proj.weight"}};
inline constexpr mixture_names llama4_names[] = {
    {.router = "feed_forward.router.weight",
     .activated = "feed_forward.experts.gate_up_proj",
     .linear = {},
     .output = "feed_forward.experts.down_proj",
     .joined = gate_and_linear::one_after_other,
     .inputs_first = true,
     .shared_activated = "feed_forward.shared_expert.gate_proj.weight",
     .shared_linear = "feed_forward.shared_expert.up_proj.weight",
     .shared_output = "feed_forward.shared_expert.down_proj.weight"}};
// In floating-point numbers, and in MXFP4.
inline constexpr mixture_names gpt_oss_names[] = {
    {.router = "mlp.router.weight",
     .activated = "mlp.experts.gate_up_proj",
     .linear = {},
     .output = "mlp.experts.down_proj",
     .joined = gate_and_linear::in_turns,
     .inputs_first = true,
     .router_bias = "mlp.router.bias",
     .activated_bias = "mlp.experts.gate_up_proj_bias",
     .output_bias = "mlp.experts.down_proj_bias"},
    {.router = "mlp.router.weight",
     .activated = "mlp.experts.gate_up_proj_blocks",
     .linear = {},
     .output = "mlp.experts.down_proj_blocks",
     .joined = gate_and_linear::in_turns,
     .router_bias = "mlp.router.bias",
     .activated_bias = "mlp.experts.gate_up_proj_bias",
     .output_bias = "mlp.experts.down_proj_bias"}};
// Of every family, and of llama.cpp's converter with fuse_gate_up_exps.
inline constexpr mixture_names gguf_tensors[] = {{.router = "ffn_gate_inp.weight",
                                                  .activated = "ffn_gate_exps.weight",
                                                  .linear = "ffn_up_exps.weight",
                                                  .output = "ffn_down_exps.weight",
                                                  .router_bias = "ffn_gate_inp.bias",
                                                  .balance = "exp_probs_b.bias",
                                                  .activated_bias = "ffn_gate_exps.bias",
                                                  .linear_bias = "ffn_up_exps.bias",
                                                  .output_bias = "ffn_down_exps.bias",
                                                  .shared_activated = "ffn_gate_shexp.weight",
                                                  .shared_linear = "ffn_up_shexp.weight",
                                                  .shared_output = "ffn_down_shexp.weight",
                                                  .shared_gate = "ffn_gate_inp_shexp.weight"},
                                                 {.router = "ffn_gate_inp.weight",
                                                  .activated = "ffn_gate_up_exps.weight",
                                                  .linear = {},
                                                  .output = "ffn_down_exps.weight",
                                                  .joined = gate_and_linear::one_after_other,
                                                  .router_bias = "ffn_gate_inp.bias",
                                                  .balance = "exp_probs_b.bias",
                                                  .activated_bias = "ffn_gate_up_exps.bias",
                                                  .output_bias = "ffn_down_exps.bias",
                                                  .shared_activated = "ffn_gate_shexp.weight",
                                                  .shared_linear = "ffn_up_shexp.weight",
                                                  .shared_output = "ffn_down_shexp.weight",
                                                  .shared_gate = "ffn_gate_inp_shexp.weight"}};

// Of experts without a gate.
inline constexpr mixture_names ungated_gguf_tensors[] = {
    {.router = "ffn_gate_inp.weight",
     .activated = "ffn_up_exps.weight",
     .linear = {},
     .output = "ffn_down_exps.weight",
     .joined = gate_and_linear::none,
     .balance = "exp_probs_b.bias",
     .shared_activated = "ffn_up_shexp.weight",
     .shared_output = "ffn_down_shexp.weight"}};

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
  bool has_groups = false, has_scale = false, has_balance = false;
  bool weighs_input = false;  // the weight multiplies the input of an expert
  double limit = 0;           // of a clamped SwiGLU, where the settings do not say another one
  pointwise activation = pointwise::silu;  // where they do not say another one
  setting_names settings = {};
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
    .name = "gpt_oss", .tensors = gpt_oss_names, .limit = 7};
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
// As llama.cpp reads them: what the file does not say to be divided by its sum is not.
constexpr mixture_family deepseek_v3_in_gguf(std::string_view name) {
  return in_gguf(name, like_deepseek_v3("", {}, normalization::if_said));
}

inline constexpr mixture_family mixture_families[] = {
    mixtral_family,
    {.name = "minimax", .tensors = mixtral_names},
    of_sigmoids("minimax_m2", minimax_m2_names),
    {.name = "granitemoe", .tensors = granite_names},
    {.name = "granitemoeshared", .tensors = granite_names},
    {.name = "granitemoehybrid", .tensors = granite_names},
    {.name = "granitemoe_swa", .tensors = granite_names},
    like_qwen("qwen2_moe", normalization::if_said),
    like_qwen("qwen3_moe", normalization::if_said),
    like_qwen("qwen3_next", normalization::unless_said),
    like_qwen("qwen3_5_moe_text", normalization::always),
    like_qwen("qwen3_vl_moe_text", normalization::always, qwen3_vl_names),
    like_qwen("qwen3_omni_moe_text", normalization::unless_said),
    like_qwen("mellum", normalization::unless_said),
    like_qwen("olmoe", normalization::if_said),
    like_qwen("flex_olmo", normalization::if_said),
    like_qwen("jamba", normalization::never, jamba_names),
    hunyuan_family,
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
    like_deepseek_v3("exaone_moe", exaone_names),
    like_deepseek_v3("mimo_v2_flash"),
    of_sigmoids("afmoe", afmoe_names, {.scale = "route_scale"}),
    of_sigmoids("hy_v3", hy_v3_names, {.scale = "router_scaling_factor"}),
    of_sigmoids("laguna", laguna_names, {.scale = "moe_routed_scaling_factor"}),
    of_sigmoids("step3p5", step3p5_names,
                {.active = "moe_top_k", .scale = "moe_router_scaling_factor"}),
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
    in_gguf("granitemoe", mixtral_family),
    in_gguf("granitehybrid", mixtral_family),
    in_gguf("qwen2moe", like_qwen("", normalization::if_said)),
    in_gguf("qwen3moe", like_qwen("", normalization::unless_said)),
    in_gguf("qwen3next", like_qwen("", normalization::unless_said)),
    in_gguf("qwen35moe", like_qwen("", normalization::always)),
    in_gguf("qwen3vlmoe", like_qwen("", normalization::always)),
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
    deepseek_v3_in_gguf("step35"),
    in_gguf("afmoe", of_sigmoids("", {})),
    in_gguf("kimi-linear", like_deepseek_v3("", {}, normalization::always)),
    in_gguf("minimax-m2", of_sigmoids("", {})),
    in_gguf("mimo2", of_sigmoids("", {})),
    in_gguf("lfm2moe", of_sigmoids("", {})),
    nemotron_h_in_gguf,
    in_gguf("gpt-oss", gpt_oss_family),
};

// What stands before the number of a layer.
inline constexpr std::string_view layer_prefixes[] = {"model.layers.",
                                                      "model.language_model.layers.",
                                                      "language_model.model.layers.",
                                                      "thinker.model.layers.",
                                                      "backbone.layers.",
                                                      "blk."};

}  // namespace fmoe::detail

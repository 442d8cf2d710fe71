// SPDX-License-Identifier: MIT
// The names and layouts of the tensors of released mixtures of experts, as data for the rows of
// mixture_families.hpp.
#pragma once

#include <string_view>

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
  std::string_view saved_shared_activated = {};  // by which transformers saves shared_activated
  std::string_view latent_down = {}, latent_up = {};  // what experts of a latent are between
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
inline constexpr mixture_names phimoe_names[] = {in_block_sparse_moe,
                                                 joined_in_mlp("mlp.router.weight")};
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
// transformers 5.24 reads the gate of the shared expert by both names, and saves it by the second.
constexpr mixture_names with_saved_gate(mixture_names names) {
  names.saved_shared_activated = "mlp.shared_experts.linear_gate.weight";
  return names;
}
inline constexpr mixture_names hy_v4_names[] = {with_saved_gate(deepseek_names[0]),
                                                with_saved_gate(deepseek_names[1])};
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
inline constexpr mixture_names minimax_m3_names[] = {
    [] {
      mixture_names names =
          with_balance(in_block_sparse_moe, "block_sparse_moe.e_score_correction_bias");
      names.shared_activated = "block_sparse_moe.shared_experts.gate_proj.weight";
      names.shared_linear = "block_sparse_moe.shared_experts.up_proj.weight";
      names.shared_output = "block_sparse_moe.shared_experts.down_proj.weight";
      return names;
    }(),
    [] {
      mixture_names names = with_balance(joined_in_mlp(), "mlp.gate.e_score_correction_bias");
      names.shared_activated = "mlp.shared_experts.gate_up_proj.weight";
      names.shared_output = "mlp.shared_experts.down_proj.weight";
      return names;
    }()};
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
inline constexpr mixture_names longcat_flash_names[] = {
    with_balance(in_mlp("mlp.router.classifier.weight"), "mlp.router.e_score_correction_bias"),
    with_balance(joined_in_mlp("mlp.router.classifier.weight"),
                 "mlp.router.e_score_correction_bias")};
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
     .shared_output = "mixer.shared_experts.down_proj.weight",
     .latent_down = "mixer.fc1_latent_proj.weight",
     .latent_up = "mixer.fc2_latent_proj.weight"},
    {.router = "mixer.gate.weight",
     .activated = "mixer.experts.up_proj",
     .linear = {},
     .output = "mixer.experts.down_proj",
     .joined = gate_and_linear::none,
     .balance = "mixer.gate.e_score_correction_bias",
     .shared_activated = "mixer.shared_experts.up_proj.weight",
     .shared_output = "mixer.shared_experts.down_proj.weight",
     .latent_down = "mixer.fc1_latent_proj.weight",
     .latent_up = "mixer.fc2_latent_proj.weight"}};
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

// llama.cpp's converter writes the balance of Hy3 by the name of the family's own, and others write
// it by that of every family.
inline constexpr mixture_names hy_v3_gguf_tensors[] = {
    gguf_tensors[0], gguf_tensors[1], with_balance(gguf_tensors[0], "exp_probs_b"),
    with_balance(gguf_tensors[1], "exp_probs_b")};
// Of experts without a gate.
inline constexpr mixture_names ungated_gguf_tensors[] = {{.router = "ffn_gate_inp.weight",
                                                          .activated = "ffn_up_exps.weight",
                                                          .linear = {},
                                                          .output = "ffn_down_exps.weight",
                                                          .joined = gate_and_linear::none,
                                                          .balance = "exp_probs_b.bias",
                                                          .shared_activated = "ffn_up_shexp.weight",
                                                          .shared_output = "ffn_down_shexp.weight",
                                                          .latent_down = "ffn_latent_down.weight",
                                                          .latent_up = "ffn_latent_up.weight"}};

// What stands before the number of a layer.
inline constexpr std::string_view layer_prefixes[] = {"model.layers.",
                                                      "model.language_model.layers.",
                                                      "language_model.model.layers.",
                                                      "thinker.model.layers.",
                                                      "backbone.layers.",
                                                      "blk."};

}  // namespace fmoe::detail

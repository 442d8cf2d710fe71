// SPDX-License-Identifier: MIT
// The names and layouts that released models give the tensors of their mixtures of experts.
#pragma once

#include <string_view>

namespace fmoe::detail {

// How a tensor holds the matrices of the gate and of the linear part.
enum class gate_and_linear : unsigned char {
  apart,            // two tensors
  one_after_other,  // one tensor: the outputs of the gate first
  in_turns,         // one tensor: an output of the gate, then one of the linear part
};

// Names stand behind the prefix of a model's layer. {} is the number of an expert, if each has a
// tensor of its own; otherwise the first axis of a tensor is the experts. Empty names do not exist
// in such models, and those of biases, of balances and of shared experts may be missing.
struct mixture_names {
  std::string_view router, activated, linear, output;
  gate_and_linear joined = gate_and_linear::apart;  // then `linear` is empty
  bool inputs_first = false;                        // a matrix is [in, out] instead of [out, in]
  std::string_view router_bias = {}, balance = {};
  std::string_view activated_bias = {}, linear_bias = {}, output_bias = {};
  std::string_view shared_activated = {}, shared_linear = {}, shared_output = {}, shared_gate = {};
};

inline constexpr mixture_names known_mixtures[] = {
    // Mixtral
    {.router = "block_sparse_moe.gate.weight",
     .activated = "block_sparse_moe.experts.{}.w1.weight",
     .linear = "block_sparse_moe.experts.{}.w3.weight",
     .output = "block_sparse_moe.experts.{}.w2.weight"},
    // Qwen2-MoE, which has one shared expert and a gate of it
    {.router = "mlp.gate.weight",
     .activated = "mlp.experts.{}.gate_proj.weight",
     .linear = "mlp.experts.{}.up_proj.weight",
     .output = "mlp.experts.{}.down_proj.weight",
     .shared_activated = "mlp.shared_expert.gate_proj.weight",
     .shared_linear = "mlp.shared_expert.up_proj.weight",
     .shared_output = "mlp.shared_expert.down_proj.weight",
     .shared_gate = "mlp.shared_expert_gate.weight"},
    // Qwen3-MoE, OLMoE, DeepSeek-V2 and V3, GLM-4.5, Kimi K2
    {.router = "mlp.gate.weight",
     .activated = "mlp.experts.{}.gate_proj.weight",
     .linear = "mlp.experts.{}.up_proj.weight",
     .output = "mlp.experts.{}.down_proj.weight",
     .balance = "mlp.gate.e_score_correction_bias",
     .shared_activated = "mlp.shared_experts.gate_proj.weight",
     .shared_linear = "mlp.shared_experts.up_proj.weight",
     .shared_output = "mlp.shared_experts.down_proj.weight"},
    // the same as transformers holds them in memory, with the shared expert of Qwen2-MoE
    {.router = "mlp.gate.weight",
     .activated = "mlp.experts.gate_up_proj",
     .linear = {},
     .output = "mlp.experts.down_proj",
     .joined = gate_and_linear::one_after_other,
     .shared_activated = "mlp.shared_expert.gate_proj.weight",
     .shared_linear = "mlp.shared_expert.up_proj.weight",
     .shared_output = "mlp.shared_expert.down_proj.weight",
     .shared_gate = "mlp.shared_expert_gate.weight"},
    // and of the others
    {.router = "mlp.gate.weight",
     .activated = "mlp.experts.gate_up_proj",
     .linear = {},
     .output = "mlp.experts.down_proj",
     .joined = gate_and_linear::one_after_other,
     .balance = "mlp.gate.e_score_correction_bias",
     .shared_activated = "mlp.shared_experts.gate_proj.weight",
     .shared_linear = "mlp.shared_experts.up_proj.weight",
     .shared_output = "mlp.shared_experts.down_proj.weight"},
    // Llama 4
    {.router = "feed_forward.router.weight",
     .activated = "feed_forward.experts.gate_up_proj",
     .linear = {},
     .output = "feed_forward.experts.down_proj",
     .joined = gate_and_linear::one_after_other,
     .inputs_first = true,
     .shared_activated = "feed_forward.shared_expert.gate_proj.weight",
     .shared_linear = "feed_forward.shared_expert.up_proj.weight",
     .shared_output = "feed_forward.shared_expert.down_proj.weight"},
    // gpt-oss in floating-point numbers, and in MXFP4
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
     .output_bias = "mlp.experts.down_proj_bias"},
    // GGUF
    {.router = "ffn_gate_inp.weight",
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
    // GGUF of llama.cpp's converter with fuse_gate_up_exps
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
     .shared_gate = "ffn_gate_inp_shexp.weight"},
};

// What stands before the number of a layer.
inline constexpr std::string_view layer_prefixes[] = {
    "model.layers.", "model.language_model.layers.", "language_model.model.layers.", "blk."};

}  // namespace fmoe::detail

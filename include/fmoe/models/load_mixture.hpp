// SPDX-License-Identifier: MIT
// Loads the mixture of experts of one layer of a released model of the families that
// mixture_families.hpp lists, from safetensors or GGUF, also where weights are FP8 with scales,
// MXFP4, or blocks of ggml.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/io/quantized_arrays.hpp>
#include <fmoe/io/scaled_arrays.hpp>
#include <fmoe/io/tensors_read.hpp>
#include <fmoe/models/mixture_settings.hpp>

namespace fmoe::detail {

// Says in which layers a model has mixtures with the names of its family, and behind which prefix;
// an empty text if there are none. It begins with a semicolon.
inline std::string where_mixtures_are(const mixture_family& family,
                                      const std::vector<std::string>& names,
                                      const std::string& prefix) {
  std::map<std::string, std::set<std::size_t>> layers;  // by prefix
  std::set<std::string_view> routers;
  for (const mixture_names& known : family.tensors) routers.insert(known.router);
  for (const std::string& name : names)
    for (const std::string_view router : routers) {
      if (!name.ends_with('.' + std::string(router))) continue;
      const std::string before = name.substr(0, name.size() - router.size() - 1);
      const std::size_t digits = before.find_last_not_of("0123456789") + 1;
      extent number = 0;
      if (is_number(before.substr(digits), number)) layers[before.substr(0, digits)].insert(number);
    }
  std::string text;
  for (const auto& [before, numbers] : layers) {
    const bool is_known =
        before == prefix || (prefix.empty() && std::ranges::count(layer_prefixes, before) != 0);
    text += text.empty() ? "; layer" : ", and layer";
    text += numbers.size() == 1 ? ' ' + std::to_string(*numbers.begin()) + " has one"
                                : "s " + std::to_string(*numbers.begin()) + " to " +
                                      std::to_string(*numbers.rbegin()) + " have some";
    if (!is_known) text += " behind " + io::in_quotes(before) + ", to be passed as `prefix`";
  }
  return text;
}

// True if this layer of a GGUF file has a balance of experts.
inline bool has_gguf_balance(const io::checkpoint& model, std::size_t layer) {
  return model.contains("blk." + std::to_string(layer) + '.' +
                        std::string(gguf_tensors[0].balance));
}

// Reads the tensors of one layer's mixture.
template <class T>
class mixture_reader {
  using number = widened_t<T>;  // of what is read before it is stored as T
  using exact = typename moe<T>::exact;

 public:
  // Throws missing_tensor if the layer has no mixture with known names, and shape if the router has
  // no row but those of the zero experts.
  mixture_reader(const io::checkpoint& from, const mixture_family& family, std::size_t layer,
                 extent zero_experts, const load_options& options)
      : from_(from),
        narrow_(options.narrow),
        extra_(options.extra),
        zeros_(zero_experts) {
    find(family, layer, options.prefix);
    const io::array router = at(names_->router);
    router.check_shape({{all, all}});
    if (router.shape()[0] <= zeros_)
      throw io::error(io::errc::shape,
                      "has " + std::to_string(router.shape()[0]) + " rows, of which " +
                          std::to_string(zeros_) + " are zero experts",
                      0, name_of(names_->router), from.file());
    experts_ = router.shape()[0] - zeros_;
    width_ = router.shape()[1];
  }

  // The number of experts with weights, as the router has it.
  extent experts() const { return experts_; }
  bool has_balance() const { return contains(names_->balance); }
  // The width of the latent that experts take in place of x, or 0.
  extent latent() const {
    return contains(names_->latent_down) ? at(names_->latent_down).shape()[0] : 0;
  }

  // Fills the parameters. Throws as io::array::get does, missing_tensor, and extra_tensor.
  void read(moe<T>& to) const {
    const io::array router = at(names_->router);
    to.router = transposed<exact>(router.rows(0, experts_));
    to.router_bias = vector(names_->router_bias, experts_);
    to.balance = vector(names_->balance, experts_, 0, zeros_);
    if (zeros_ != 0) {
      to.zero_router = transposed<exact>(router.rows(experts_, zeros_));
      to.zero_balance = vector(names_->balance, zeros_, experts_, 0);
      for (const std::string_view name : {names_->activated, names_->linear})
        for (extent e = 0; e < zeros_; ++e) read_.insert(name_of(name, experts_ + e));
    }
    const bool is_gated = names_->joined != gate_and_linear::none;
    const bool is_joined = is_gated && names_->joined != gate_and_linear::apart;
    const std::string_view linear = is_joined ? names_->activated : names_->linear;
    const extent width = latent() == 0 ? width_ : latent();
    to.activated = matrices(names_->activated, width, hidden(), 0, is_joined);
    if (is_gated) to.linear = matrices(linear, width, hidden(), 1, is_joined);
    to.output = matrices(names_->output, hidden(), width, 0, false);
    if (latent() != 0) {
      to.latent_down = stored(transposed<number>(names_->latent_down), 0);
      to.latent_up = stored(transposed<number>(names_->latent_up), 0);
    }
    to.activated_bias = stored(biases(names_->activated_bias, hidden(), 0, is_joined), 1);
    to.linear_bias = stored(
        biases(is_joined ? names_->activated_bias : names_->linear_bias, hidden(), 1, is_joined),
        1);
    to.output_bias = stored(biases(names_->output_bias, width, 0, false), 1);
    if (contains(names_->shared_output)) {
      const bool is_one = is_gated && names_->shared_linear.empty();
      const std::string_view shared_activated = contains(names_->saved_shared_activated)
                                                    ? names_->saved_shared_activated
                                                    : names_->shared_activated;
      const std::string_view shared_linear = is_one ? shared_activated : names_->shared_linear;
      to.shared.activated = stored(transposed<number>(shared_activated, 0, is_one), 0);
      if (is_gated) to.shared.linear = stored(transposed<number>(shared_linear, 1, is_one), 0);
      to.shared.output = stored(transposed<number>(names_->shared_output), 0);
      to.shared_gate = vector(names_->shared_gate, width_);
    }
    read_.expect_all(own_names(), extra_, from_.file());
  }

 private:
  std::string name_of(std::string_view name, extent expert = 0) const {
    std::string text = prefix_ + std::string(name);
    if (const auto place = text.find("{}"); place != text.npos)
      text.replace(place, 2, std::to_string(expert));
    return text;
  }
  bool contains(std::string_view name) const {
    const std::string full = name_of(name);
    return !name.empty() && (from_.contains(full) || from_.contains(full + "_packed"));
  }
  static bool is_of_one(std::string_view name) { return name.find("{}") != name.npos; }

  // The names of the tensors of this mixture, whatever reads them: those in modules of mixtures
  // and, in a GGUF file, those of the feed-forward part but its norms.
  std::vector<std::string> own_names() const {
    std::vector<std::string> own;
    for (const std::string& name : from_.names()) {
      if (!name.starts_with(prefix_)) continue;
      const auto rest = std::string_view(name).substr(prefix_.size());
      const bool is_of_gguf = (rest.starts_with("ffn_") && rest.find("norm") == rest.npos) ||
                              rest.starts_with("exp_probs_b");
      if (is_of_gguf || !io::mixture_module_of(rest).empty()) own.push_back(name);
    }
    return own;
  }

  // True if the matrices of all experts have the inputs where the names say.
  bool has_inputs_there(const mixture_names& names) const {
    if (is_of_one(names.activated) || !from_.contains(name_of(names.activated))) return true;
    const auto router = from_.outline_of(name_of(names.router)).shape(),
               matrices = from_.outline_of(name_of(names.activated)).shape();
    return router.size() != 2 || matrices.size() != 3 ||
           matrices[names.inputs_first ? 1 : 2] == router[1];
  }

  // Takes the names that most tensors of the layer have; of two with the same tensors, those where
  // the matrices have the inputs where they should be. Throws shape if both have.
  void find(const mixture_family& family, std::size_t layer, const std::string& prefix) {
    int most = 0;
    for (const std::string_view start : layer_prefixes) {
      prefix_ = (prefix.empty() ? std::string(start) : prefix) + std::to_string(layer) + '.';
      for (const mixture_names& names : family.tensors) {
        if (!contains(names.router) || !contains(names.activated) || !contains(names.output))
          continue;
        int count = 0;
        for (const std::string_view name :
             {names.shared_output, names.shared_gate, names.balance, names.linear,
              names.router_bias, names.activated_bias, names.output_bias})
          count += contains(name);
        if (names_ != nullptr && names_->activated == names.activated &&
            names_->inputs_first != names.inputs_first) {
          if (has_inputs_there(names) && has_inputs_there(*names_))
            throw io::error(
                io::errc::shape,
                "has matrices with as many inputs as outputs, whose order nothing tells", 0,
                name_of(names.activated), from_.file());
          if (has_inputs_there(names)) names_ = &names;
          continue;
        }
        if (names_ != nullptr && count <= most) continue;
        names_ = &names;
        most = count;
      }
      if (names_ != nullptr) return;
    }
    throw io::error(io::errc::missing_tensor,
                    "has no mixture of experts with the names of " +
                        io::in_quotes(std::string(family.name)) +
                        where_mixtures_are(family, from_.names(), prefix),
                    0, {}, from_.file());
  }

  // The weight of this name, whatever arrays make it.
  io::array at(std::string_view name, extent expert = 0) const {
    const std::string full = name_of(name, expert);
    const auto found = io::weight_of(full, [&](const std::string& part) {
      if (!from_.contains(part)) return std::optional<io::array>();
      read_.insert(part);
      return std::optional(from_.at(part));
    });
    return found ? *found : from_.at(full);  // which throws
  }

  extent hidden() const {
    const std::vector<extent> shape = at(names_->output).shape();
    return shape[shape.size() - (names_->inputs_first ? 2 : 1)];
  }

  // Row r of a joined matrix is the output `o` of its part, 0 the gate and 1 the linear one.
  extent row_of(extent o, extent outputs, extent part, bool is_joined) const {
    if (!is_joined) return o;
    return names_->joined == gate_and_linear::in_turns ? 2 * o + part : part * outputs + o;
  }

  // Returns [n, in, out]. Only one expert at a time is held in another type than T.
  parameter<T, 3> matrices(std::string_view name, extent in, extent out, extent part,
                           bool is_joined) const {
    const std::optional<io::array> whole = is_of_one(name) ? std::nullopt : std::optional(at(name));
    const extent rows = is_joined ? 2 * out : out;
    const bool inputs_first = names_->inputs_first;
    const std::array<extent, 2> shape = inputs_first ? std::array{in, rows} : std::array{rows, in};
    // transformers has rows of zero experts in what it makes of gates and linear parts.
    const bool has_zeros = whole && zeros_ != 0 && whole->shape()[0] == experts_ + zeros_;
    if (whole) whole->check_shape({{has_zeros ? experts_ + zeros_ : experts_, shape[0], shape[1]}});
    const auto expert = [&](extent e) {
      return whole ? whole->rows(e, 1).reshaped({shape[0], shape[1]}) : at(name, e);
    };
    // Writes [inputs, out] from an expert's numbers, or from its scales of blocks of inputs.
    const auto put = [&](const auto* from, extent inputs, auto* to) {
      const extent next_input = inputs_first ? rows : 1, next_row = inputs_first ? 1 : inputs;
      in_tiles(inputs, out, [&](extent i, extent o) {
        to[i * out + o] = from[i * next_input + row_of(o, out, part, is_joined) * next_row];
      });
    };
    if constexpr (is_quantized<T>) {
      using scale = typename T::scale;
      const quantized_layout all_in(dtype_of<T>, experts_ * in * out, {in, out});
      const auto result = std::make_shared<storage>(all_in.bytes());
      auto* const integers = static_cast<std::int8_t*>(result->data());
      auto* const scales = reinterpret_cast<scale*>(integers + all_in.first_scale());
      for (extent e = 0; e < experts_; ++e) {
        const any_tensor one = quantized_matrix(expert(e), shape, inputs_first ? 0 : 1);
        const auto* const from = static_cast<const std::int8_t*>(one.elements->data());
        const extent first_scale = quantized_layout(dtype_of<T>, rows * in, one.axis).first_scale();
        put(from, in, integers + e * in * out);
        put(reinterpret_cast<const scale*>(from + first_scale), all_in.blocks,
            scales + e * all_in.blocks * out);
      }
      return tensor<T, 3>({experts_, in, out}, result, {in, out});
    } else {
      parameter<T, 3> result({experts_, in, out});
      T* const to = elements_to_write(result);
      for (extent e = 0; e < experts_; ++e) {
        const tensor<T, 2> one = expert(e).template get<T, 2>(shape, narrow_);
        put(one.data(), in, to + e * in * out);
      }
      return result;
    }
  }

  // Returns a matrix of a file in 8 bits, with blocks along this axis. Blocks of integers and
  // a scale are kept if q8 has them.
  any_tensor quantized_matrix(const io::array& from, const std::array<extent, 2>& shape,
                              extent axis) const {
    const std::vector<extent> extents(shape.begin(), shape.end());
    if (std::is_same_v<T, q8> && axis == 1) {
      from.check_shape(shape);
      if (auto kept = io::quantized_from(from, extents)) return *std::move(kept);
    }
    const tensor<float, 2> wide = from.template get<float, 2>(shape, narrow_);
    const block_axis along = axis_of(extents, axis);
    return {dtype_of<T>, extents,
            quantized_storage<T>({dtype::float32, wide.data(), wide.size(), {}}, along), along};
  }

  // Calls f for each pair, square by square, so that a transposition reads and writes few lines of
  // the cache at a time.
  template <class F>
  static void in_tiles(extent rows, extent columns, const F& f) {
    constexpr extent side = 32;
    for (extent r = 0; r < rows; r += side)
      for (extent c = 0; c < columns; c += side)
        for (extent i = r; i < std::min(r + side, rows); ++i)
          for (extent j = c; j < std::min(c + side, columns); ++j) f(i, j);
  }

  // Returns the numbers as T; 8 bits have their blocks along this axis, as `quantize` lays them.
  static parameter<T, 2> stored(const parameter<number, 2>& numbers, extent axis) {
    if constexpr (is_quantized<T>) return quantized<T>(numbers, axis);
    else return numbers;
  }

  parameter<number, 2> biases(std::string_view name, extent out, extent part,
                              bool is_joined) const {
    if (!contains(name)) return {};
    const tensor<number, 2> all_parts =
        at(name).template get<number, 2>({experts_, is_joined ? 2 * out : out}, narrow_);
    parameter<number, 2> result({experts_, out});
    number* const to = elements_to_write(result);
    for (extent e = 0; e < experts_; ++e)
      for (extent o = 0; o < out; ++o)
        to[e * out + o] = all_parts(e, row_of(o, out, part, is_joined));
    return result;
  }

  // Returns the numbers between the first `before` and the last `behind`.
  parameter<exact, 1> vector(std::string_view name, extent length, extent before = 0,
                             extent behind = 0) const {
    if (!contains(name)) return {};
    const io::array a = at(name);  // some have a first axis of one
    const extent whole = before + length + behind;
    if (element_count(a.shape()) != whole) a.check_shape({{whole}});
    return a.reshaped({whole}).rows(before, length).template get<exact, 1>(narrow_);
  }

  // Of a matrix, or of the first or second half of its rows.
  template <class Number>
  parameter<Number, 2> transposed(std::string_view name, extent half = 0,
                                  bool is_joined = false) const {
    io::array matrix = at(name);
    if (is_joined && matrix.shape().size() == 2)
      matrix = matrix.rows(half * (matrix.shape()[0] / 2), matrix.shape()[0] / 2);
    return transposed<Number>(matrix);
  }
  template <class Number>
  parameter<Number, 2> transposed(const io::array& matrix) const {
    const tensor<Number, 2> m = matrix.template get<Number, 2>(narrow_);
    const auto [rows, columns] = m.shape();
    parameter<Number, 2> result({columns, rows});
    Number* const to = elements_to_write(result);
    in_tiles(columns, rows, [&, r = rows](extent i, extent o) { to[i * r + o] = m(o, i); });
    return result;
  }

  const io::checkpoint& from_;
  io::narrowing narrow_;
  std::vector<std::string>* extra_;
  mutable io::tensors_read read_;
  std::string prefix_;
  const mixture_names* names_ = nullptr;
  extent experts_ = 0, width_ = 0, zeros_;
};

}  // namespace fmoe::detail

namespace fmoe {

// Loads the mixture of experts of one layer, counted from 0, of a released model: of a folder with
// safetensors and config.json, or of a GGUF file. K, the kind of weights, groups and limits come
// from config.json or the metadata of the GGUF file. Weights in T take in memory what they take in
// T: FP8, MXFP4 and blocks of ggml are decoded, one expert at a time, which bf16 may take only with
// .narrow = io::narrow in the options. load_mixture<q8> keeps the integers and scales of Q8_0,
// Q5_0, Q4_0 and MXFP4, and else gives what `quantize` makes of the floats, of which it holds one
// expert. In every type a token's experts are those of the file: what chooses them stays in floats,
// and float32 beside weights of bf16 needs no leave to narrow. `prefix` in the options is the text
// before the layer's number, with its dot. Throws io::error: conflict for an
// activation or metadata in the options, missing_tensor for a layer without a mixture, extra_tensor
// for a tensor of the mixture that nothing reads, unless the options have a list for it, schema for
// a model that fmoe does not know or whose settings its tensors contradict, shape and dtype as
// io::array::get does.
//
//   const auto mixture = load_mixture(io::checkpoint::open("Qwen3-30B-A3B"), 12);
//   auto forward = compile(mixture, 64);
template <class T = float>
moe<T> load_mixture(const io::checkpoint& model, std::size_t layer,
                    const load_options& options = {}) {
  if (options.activation || !options.metadata.empty())
    throw io::error(io::errc::conflict,
                    "is loaded with an activation or metadata, and a mixture has those of its "
                    "config.json: set the layer's `activation` after load_mixture",
                    0, {}, model.file());
  const auto config = io::model_config::of(model, layer);
  const detail::mixture_family& family = detail::family_of(config);
  const detail::mixture_settings settings =
      detail::settings_of(config, family, detail::has_gguf_balance(model, layer));
  const detail::mixture_reader<T> reader(model, family, layer, settings.zero_experts, options);
  detail::check_experts(config, family, reader.experts(), settings.zero_experts);
  detail::check_latent(config, reader.latent());
  if (reader.has_balance() && !settings.has_balance)
    throw io::error(io::errc::conflict,
                    "has a balance of experts, which this architecture has not beside a softmax", 0,
                    {}, model.file());
  moe<T> mixture;
  reader.read(mixture);
  mixture.route = settings.route;
  mixture.activation = settings.activation;
  if (!mixture.shared.output.empty()) {
    mixture.shared.activation = settings.activation;
    mixture.shared.limit = settings.shared_limit;
    mixture.shared.limit_form = family.limit_form;
  }
  mixture.scale = settings.scale;
  mixture.limit = settings.limit;
  mixture.limit_form = family.limit_form;
  mixture.weighs_input = settings.weighs_input;
  const std::size_t choices = reader.experts() + settings.zero_experts;
  if (options.active && *options.active != all && *options.active > choices)
    throw io::error(io::errc::conflict,
                    "has " + std::to_string(choices) +
                        " experts, and K = " + std::to_string(*options.active) + " is asked for",
                    0, {}, model.file());
  if (options.active && mixture.route.scoring == score_function::sparse_mixer &&
      *options.active != 2)
    throw io::error(io::errc::conflict, "has a sparse mixer, which weighs two experts of a token",
                    0, {}, model.file());
  if (options.active) mixture.route.active = *options.active;
  return mixture;
}
template <class T = float>
moe<T> load_mixture(const std::filesystem::path& model, std::size_t layer,
                    const load_options& options = {}) {
  return load_mixture<T>(io::checkpoint::open(model), layer, options);
}

}  // namespace fmoe

// SPDX-License-Identifier: MIT
// Trains a small language model of characters: two blocks of attention and a feed-forward layer,
// which is by turns dense, narrow, a sparse mixture, AoE, Monet's horizontal decomposition, and a
// muMoE. docs/training_language.md shows what it measured.
//
// Call: train_language [--text FILE] [--kind dense|narrow|moe|aoe|monet|cp] [--steps N] [--seed 1]
//                      [--stop N] [--checkpoints FOLDER] [--results FOLDER]
//
// FILE is any text, such as that of scripts/make_training_text. Without it a smaller model reads
// examples/data/genesis.txt. A run that finds a checkpoint goes on with it; --stop ends a run
// early. The folder of results gets NAME.losses.csv, and NAME.experts.csv for a mixture and for
// AoE.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include <fmoe/analysis/expert_load.hpp>
#include <fmoe/cost.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/optimizers.hpp>

#include "language_layers.hpp"
#include "training.hpp"

using namespace fmoe;

using characters = std::vector<std::uint8_t>;

// A text as numbers of its characters. It is cut into stretches, and every tenth is held out.
struct text {
  characters all;
  std::size_t kinds = 0;  // different characters
  std::size_t context = 0, stretch = 0;

  static text read(const std::string& file, std::size_t context) {
    std::ifstream stream(file, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(stream), {});
    text t{characters(bytes.size()), 0, context, 16 * context};
    if (bytes.size() < 20 * t.stretch)  // less has no batch of windows that are held out
      throw std::runtime_error(file + ": the text has " + std::to_string(bytes.size()) +
                               " characters and must have " + std::to_string(20 * t.stretch));
    std::array<std::uint8_t, 256> numbers{};
    for (const char c : bytes) numbers[static_cast<unsigned char>(c)] = 1;
    for (std::uint8_t& n : numbers)
      if (n != 0) n = static_cast<std::uint8_t>(t.kinds++);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      t.all[i] = numbers[static_cast<unsigned char>(bytes[i])];
    return t;
  }

  std::size_t stretches() const { return all.size() / stretch; }
  static bool is_held_out(std::size_t number) { return number % 10 == 9; }

  // A random place of a window of context + 1 characters that are not held out.
  std::size_t drawn(random_stream& random) const {
    const std::size_t count = stretches() - stretches() / 10,
                      number = training::below(count, random);
    return (number + number / 9) * stretch + training::below(stretch - context, random);
  }

  // The places of at most `most` windows that are held out, at even distances.
  std::vector<std::size_t> held_out(std::size_t most) const {
    std::vector<std::size_t> found, some;
    for (std::size_t number = 9; number < stretches(); number += 10)
      for (std::size_t at = 0; at + context < stretch; at += context)
        found.push_back(number * stretch + at);
    const std::size_t count = std::min(most, found.size());
    for (std::size_t k = 0; k < count; ++k) some.push_back(found[k * found.size() / count]);
    return some;
  }
};

// The characters of some windows, and those that follow each.
struct batch {
  characters here, next;

  void add(const text& t, std::size_t place) {
    const auto first = t.all.begin() + static_cast<std::ptrdiff_t>(place),
               end = first + static_cast<std::ptrdiff_t>(t.context);
    here.insert(here.end(), first, end);
    next.insert(next.end(), first + 1, end + 1);
  }
};

// The held-out windows, in batches of `sequences`; windows that do not fill a batch are left out.
std::vector<batch> held_out_batches(const text& t, std::size_t sequences, std::size_t most) {
  const auto places = t.held_out(most);
  std::vector<batch> all(places.size() / sequences);
  for (std::size_t k = 0; k < all.size() * sequences; ++k) all[k / sequences].add(t, places[k]);
  return all;
}

// The mean of -log softmax(y) of the character that follows, in nats.
double cross_entropy(const tensor<float, 2>& y, const characters& next) {
  const std::size_t kinds = y.shape()[1];
  double sum = 0;
  for (std::size_t t = 0; t < next.size(); ++t) {
    const std::span row(y.data() + t * kinds, kinds);
    const auto most = static_cast<double>(*std::max_element(row.begin(), row.end()));
    double all = 0;
    for (const float v : row) all += std::exp(static_cast<double>(v) - most);
    sum += most + std::log(all) - static_cast<double>(row[next[t]]);
  }
  return sum / static_cast<double>(next.size());
}

// The cross entropy of held-out characters by how often each follows the one before it in the text
// that is not held out, or, if not `by_pairs`, by how often it stands there at all. Every count
// starts at 1.
double entropy_of_counts(const text& t, const std::vector<batch>& held_out, bool by_pairs) {
  std::vector<double> counts(t.kinds * t.kinds, 1), sums(t.kinds, static_cast<double>(t.kinds));
  const auto before = [&](std::uint8_t c) { return by_pairs ? c : std::uint8_t{0}; };
  for (std::size_t i = 0; i + 1 < t.all.size(); ++i) {
    if (text::is_held_out(i / t.stretch)) continue;
    const std::uint8_t c = before(t.all[i]);
    ++counts[c * t.kinds + t.all[i + 1]];
    ++sums[c];
  }
  double sum = 0, count = 0;
  for (const batch& b : held_out)
    for (std::size_t i = 0; i < b.next.size(); ++i, ++count) {
      const std::uint8_t c = before(b.here[i]);
      sum -= std::log(counts[c * t.kinds + b.next[i]] / sums[c]);
    }
  return sum / count;
}

// A table in a file. A run that goes on at a step keeps the rows up to it.
class table {
 public:
  // Each row begins with its step.
  table(const std::filesystem::path& folder, const std::string& file, std::string head,
        std::size_t step)
      : file_(folder.empty() ? folder : folder / file),
        text_(std::move(head) + "\n") {
    if (file_.empty()) return;
    std::filesystem::create_directories(folder);
    std::ifstream stream(file_);
    std::string line;
    std::getline(stream, line);  // the head
    while (std::getline(stream, line))
      if (std::stoull(line) <= step) text_ += line + "\n";
  }

  void add(const std::string& row) {
    if (file_.empty()) return;
    text_ += row + "\n";
    std::ofstream(file_) << text_;
  }

 private:
  std::filesystem::path file_;
  std::string text_;
};

struct settings {
  std::size_t steps, stop, seed, sequences, heads;
  double rate;
  std::filesystem::path checkpoints, results;
};

// Adds how the experts of each block share the held-out tokens (AoE, Lv et al. 2025, Eqs. 6 to 8):
// the entropy of their load, at most log n, the mean entropy of the softmax of a token's scores,
// and the share of the tokens that use each expert.
template <class Layer>
void add_loads(table& to, std::size_t step, const training::language_model<Layer>& model,
               training::compiled_model<Layer>& passes, const std::vector<batch>& held_out) {
  std::vector<expert_load> loads;
  const std::size_t most = std::min<std::size_t>(held_out.size(), 4);
  for (std::size_t k = 0; k < most; ++k) {
    passes.forward(held_out[k].here);
    for (std::size_t b = 0; b < model.depth; ++b) {
      const auto& ffn = model.blocks[b].feed_forward;
      const auto x = ffn.norm(passes.hidden_of(b));
      const auto found = evaluate(std::tuple(ffn.layer.chosen(x), ffn.layer.scores(x)));
      if (k == 0) loads.emplace_back(ffn.layer.number_of_experts());
      loads[b].add(std::get<0>(found), std::get<1>(found));
    }
  }
  for (std::size_t b = 0; b < loads.size(); ++b) {
    std::ostringstream row;
    row << step << "," << b << "," << entropy(loads[b].load_share()) << ","
        << loads[b].confidence_entropy();
    for (const double f : loads[b].load()) row << "," << f;
    to.add(row.str());
  }
}

// Trains a model with this layer; `make` draws one.
template <class Make>
void train(const std::string& name, const text& t, std::size_t width, const settings& s,
           const Make& make) {
  using layer = std::invoke_result_t<const Make&, random_stream&>;
  random_stream initial(s.seed);
  auto model = training::language_model<layer>::initial(t.kinds, t.context, width, initial, make);
  const training::checkpoints saved(s.checkpoints, name);
  adamw optimizer({.rate = s.rate});
  saved.resume(model, optimizer);
  const std::size_t first = optimizer.steps(), last = std::min(s.stop, s.steps),
                    several = std::max<std::size_t>(s.steps / 20, 1);

  training::compiled_model passes(model, s.sequences, s.heads);
  const auto held_out = held_out_batches(t, s.sequences, 256);
  const auto held_out_loss = [&] {
    double sum = 0;
    for (const batch& b : held_out) sum += cross_entropy(passes.forward(b.here), b.next);
    return sum / static_cast<double>(held_out.size());
  };
  table losses(s.results, name + ".losses.csv", "step,loss,held_out_loss,seconds", first);
  constexpr bool chooses = requires { model.blocks[0].feed_forward.layer.number_of_experts(); };
  std::string head = "step,block,load_entropy,confidence_entropy";
  if constexpr (chooses)
    for (std::size_t n = 0; n < model.blocks[0].feed_forward.layer.number_of_experts(); ++n)
      head += ",load_" + std::to_string(n);
  table experts(chooses ? s.results : std::filesystem::path(), name + ".experts.csv", head, first);

  const training::progress bar(name, first, s.steps);
  double mean = 0;  // of the losses since the last report
  std::size_t count = 0;
  for (std::size_t i = first; i < last; ++i) {
    auto random = training::drawn(s.seed, i);
    batch b;
    for (std::size_t k = 0; k < s.sequences; ++k) b.add(t, t.drawn(random));
    mean += cross_entropy(passes.forward_and_backward(b.here, b.next), b.next);
    ++count;
    clip_norm(1.0, passes.gradients());
    optimizer.options.rate = training::warmed_up(s.rate, i, s.steps);
    optimizer(model, passes.gradients());
    passes.refresh();
    if ((i + 1) % several != 0 && i + 1 != last) continue;
    const double held = held_out_loss(), loss = mean / static_cast<double>(count),
                 seconds = bar.seconds();
    bar.report(i + 1, "held out " + std::to_string(held));
    std::printf("| %s | %zu | %.4f | %.4f | %.0f |\n", name.c_str(), i + 1, loss, held, seconds);
    std::fflush(stdout);
    std::ostringstream row;
    row << i + 1 << "," << loss << "," << held << "," << seconds;
    losses.add(row.str());
    if constexpr (chooses) add_loads(experts, i + 1, model, passes, held_out);
    saved.save(model, optimizer);
    mean = 0;
    count = 0;
  }
  std::printf(
      "%s: %s the frequencies of characters\n", name.c_str(),
      held_out_loss() < entropy_of_counts(t, held_out, false) ? "better than" : "not better than");
}

int main(int argc, char** argv) try {
  const auto given = [&](const char* option, const char* otherwise) {
    return training::argument(argc, argv, option, otherwise);
  };
  const auto number = [&](const char* option, const std::string& otherwise) {
    return static_cast<std::size_t>(std::stoull(training::argument(argc, argv, option, otherwise)));
  };
  const std::string file = given("--text", ""), kind = given("--kind", "");
  const bool is_small = file.empty();
  const std::size_t d = is_small ? 32 : 64, steps = number("--steps", is_small ? "60" : "2000");
  const text t = text::read(is_small ? "examples/data/genesis.txt" : file, d);
  const settings s{steps,
                   number("--stop", std::to_string(steps)),
                   number("--seed", "1"),
                   is_small ? 8u : 16u,
                   is_small ? 2u : 4u,
                   is_small ? 1e-2 : 2e-3,
                   given("--checkpoints", ""),
                   given("--results", "")};

  const auto held_out = held_out_batches(t, s.sequences, 256);
  std::printf("%zu characters of %zu kinds; held out: %.4f nats by frequency, %.4f by pairs\n",
              t.all.size(), t.kinds, entropy_of_counts(t, held_out, false),
              entropy_of_counts(t, held_out, true));
  std::puts("| layer | parameters | multiply-adds a token |\n|---|---|---|");
  // Calls f(name, a function that draws the layer) for each layer that is asked for.
  const auto each_layer = [&](const auto& f) {
    const auto layer = [&](const char* name, const auto& make) {
      if (kind.empty() || kind == name) f(name, make);
    };
    using namespace training;
    const auto dense = [&](std::size_t hidden) {
      return [=](random_stream& r) { return dense_layer::initial(d, hidden, r); };
    };
    layer("dense", dense(8 * d));
    layer("narrow", dense(2 * d));
    layer("moe", [&](random_stream& r) { return moe_layer::initial(d, 8, is_small ? 32 : 64, r); });
    layer("aoe", [&](random_stream& r) {
      return aoe_layer::initial(d, 8, is_small ? 8 : 20, is_small ? 39 : 74, r);
    });
    layer("monet", [&](random_stream& r) {
      return monet_layer::initial(d, is_small ? 8 : 32, is_small ? 45 : 21, r);
    });
    layer("cp",
          [&](random_stream& r) { return cp_layer::initial(d, 8, 4 * d, is_small ? 73 : 149, r); });
  };
  each_layer([&](const char* name, const auto& make) {
    random_stream random(s.seed);
    const auto layer = make(random);
    const auto work = cost(layer(tensor<float, 2>({s.sequences * t.context, d}))).factorized;
    std::printf("| %s | %.0f | %.0f |\n", name, work.parameters, work.multiply_adds);
  });
  std::puts("| layer | steps | loss | held-out loss | s |\n|---|---|---|---|---|");
  each_layer([&](const char* name, const auto& make) { train(name, t, d, s, make); });
} catch (const std::exception& e) {
  std::fprintf(stderr, "train_language: %s\n", e.what());
  return 1;
}

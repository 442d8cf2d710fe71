// SPDX-License-Identifier: MIT
// fmoe_inspect FILE shows the layers that a checkpoint holds, their costs and their plans. It does
// not read weights, so it is fast for files of any size.
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include <fmoe/explain.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/io/layers_in.hpp>
#include <fmoe/io/npy.hpp>

using namespace fmoe;

namespace {

constexpr const char* usage =
    "usage: fmoe_inspect FILE [--tokens T] [--active K] [--dot]\n"
    "FILE is a safetensors or a GGUF file, a folder of a model or its "
    "model.safetensors.index.json, or an .npy file.\n"
    " --tokens T plan for T tokens at once, 1 unless said\n"
    " --active K experts of a token, where the file does not say\n"
    " --dot only the plans, for Graphviz\n";

struct settings {
  std::string file;
  std::size_t tokens = 1;
  std::optional<std::size_t> active = {};
  bool dot = false;
};

// Returns nullopt for arguments that cannot be understood.
std::optional<settings> settings_of(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    if (a == "--dot") {
      s.dot = true;
    } else if (a == "--tokens" || a == "--active") {
      const std::string_view text = ++i < argc ? argv[i] : "";
      std::size_t n = 0;
      const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), n);
      if (fault != std::errc() || end != text.data() + text.size() || n == 0 ||
          n > std::size_t{1} << 32)
        return {};
      if (a == "--tokens") s.tokens = n;
      else s.active = n;
    } else if (a.starts_with("--") || !s.file.empty()) {
      return {};
    } else {
      s.file = a;
    }
  }
  return s.file.empty() ? std::nullopt : std::optional(s);
}

// Shows a progress bar on a terminal after one second; the destructor removes it.
class progress {
 public:
  progress() {
    if (::isatty(STDERR_FILENO) == 0) return;
    drawer_ = std::async(std::launch::async, [this] {
      std::unique_lock lock(mutex_);
      const auto ended = [this] { return ended_; };
      for (auto wait = std::chrono::milliseconds(1000); !wake_.wait_for(lock, wait, ended);
           wait = std::chrono::milliseconds(100))
        draw();
      if (drawn_ != 0) std::fputs("\r\033[K", stderr);
    });
  }
  progress(const progress&) = delete;
  ~progress() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    wake_.notify_one();
  }
  // Starts the task `what`, of `count` parts; `count` is 0 if nobody knows the number of parts.
  void start(const char* what, std::size_t count) {
    const std::lock_guard lock(mutex_);
    what_ = what;
    count_ = count;
    done_ = 0;
  }
  void step() { ++done_; }

 private:
  void draw() {
    const std::size_t done = done_, width = 30;
    const std::size_t full = count_ == 0 ? drawn_ % width : width * done / count_;
    ++drawn_;
    std::string bar(width, ' ');
    if (count_ == 0) bar[full] = '#';
    else std::fill_n(bar.begin(), full, '#');
    std::fprintf(stderr, "\r\033[K%s [%s]", what_, bar.c_str());
    if (count_ != 0) std::fprintf(stderr, " %zu of %zu", done, count_);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  const char* what_ = "";
  std::size_t count_ = 0, drawn_ = 0;
  std::atomic<std::size_t> done_ = 0;
  // The last member, so that it ends first. It is no std::jthread, which libc++ has since
  // release 20.
  std::future<void> drawer_;
};

// Formats 1234567 as 1,234,567.
std::string grouped(double number) {
  std::array<char, 400> digits{};
  std::snprintf(digits.data(), digits.size(), "%.0f", number);
  std::string text = digits.data();
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}
std::string grouped(std::size_t number) { return grouped(static_cast<double>(number)); }

std::string counted(std::size_t n, const std::string& what) {
  return grouped(n) + ' ' + what + (n == 1 ? "" : "s");
}

// Columns are as wide as their widest cell and two spaces apart; numbers are aligned to the right.
class table {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const {
    std::vector<std::size_t> widths;
    for (const auto& cells : rows_) {
      widths.resize(std::max(widths.size(), cells.size()));
      for (std::size_t c = 0; c < cells.size(); ++c)
        widths[c] = std::max(widths[c], cells[c].size());
    }
    std::string result;
    for (const auto& cells : rows_) {
      std::string line = " ";
      for (std::size_t c = 0; c < cells.size(); ++c) {
        const std::string padding(widths[c] - cells[c].size(), ' ');
        const bool number =
            !cells[c].empty() && cells[c].find_first_not_of("0123456789,.") == std::string::npos;
        line +=
            ' ' + (number || right_.contains(c) ? padding + cells[c] : cells[c] + padding) + ' ';
      }
      result += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    }
    return result;
  }
  void align_right(std::size_t column) { right_.insert(column); }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::set<std::size_t> right_;
};

// Names in a file may hold any bytes; in_quotes shows a name without letting these bytes reach the
// terminal.
std::string shown(const std::string& name) {
  const std::string quoted = io::in_quotes(name, 200);
  return quoted.substr(1, quoted.size() - 2) == name ? name : quoted;
}

std::size_t numbers_in(const io::array& a) {
  std::size_t count = 1;
  for (const std::size_t n : a.shape()) count *= n;
  return count;
}

void add_tensor(table& to, const std::string& name, const io::array& a) {
  to.row({shown(name), io::text_of(a.shape()), std::string(io::name_of(a.type())),
          grouped(numbers_in(a))});
}

// The name of a layer in a report; `kind` is that of the metadata.
template <class T>
std::string title(const mxd<T>&, const std::string& kind) {
  return kind == "mxd_glu" ? "MxD layer, GLU" : "MxD layer";
}
template <class T>
std::string title(const sparse_mlp<T>&, const std::string& kind) {
  return kind == "sae"               ? "sparse autoencoder"
         : kind == "skip_transcoder" ? "skip transcoder"
         : kind == "transcoder"      ? kind
                                     : "sparse MLP";
}
template <class T>
std::string title(const monet_router<T>&, const std::string&) {
  return "Monet router";
}
template <class T>
std::string title(const monet_hd<T>&, const std::string&) {
  return "Monet layer, horizontal";
}
template <class T>
std::string title(const monet_vd<T>&, const std::string&) {
  return "Monet layer, vertical";
}
template <class T>
std::string title(const aoe<T>&, const std::string&) {
  return "AoE layer";
}
template <class T>
std::string title(const moe<T>&, const std::string&) {
  return "sparse mixture of experts";
}
template <class T>
std::string title(const soft_moe<T>&, const std::string&) {
  return "dense mixture of experts";
}
template <class T>
std::string title(const peer<T>&, const std::string&) {
  return "PEER layer";
}
template <class T>
std::string title(const mumoe<T>&, const std::string&) {
  return "muMoE layer";
}
template <class T>
std::string title(const mumoe_block<T>&, const std::string&) {
  return "block of two muMoE layers";
}

struct report {
  std::string title, said, costs, plan, dot;
};

auto expression_of(const auto& layer, std::size_t tokens) {
  const argument<0, 2> x{tokens};
  if constexpr (requires { layer.deleted; })
    return layer(x, argument<1, 3>{tokens}, argument<2, 3>{tokens});  // Monet's
  else return layer(x);
}

// Adds the cost of Monet's N = s^2 experts, stored one by one: the equations of the layers, and so
// cost(), name only halves of experts. An expert has d inputs, m units and o outputs; a router
// scores each expert for each head.
void count_whole_experts(cost_report& c, const auto& layer, std::size_t weight_bytes) {
  const auto experts = [&](std::size_t s, auto d, auto m, auto o) {
    const auto n = static_cast<double>(s * s), units = static_cast<double>(m / s);
    c.naive_multiply_adds = n * (static_cast<double>(d + o) * units + static_cast<double>(o));
    c.naive.bytes += static_cast<double>(weight_bytes) *
                     (c.naive_multiply_adds + n * units - c.naive.parameters);
  };
  if constexpr (requires {
                  layer.keys1;
                  layer.heads;
                }) {
    const std::size_t s = layer.heads == 0 ? 0 : layer.keys1.shape()[1] / layer.heads;
    c.naive_multiply_adds =
        static_cast<double>(layer.keys1.shape()[0] * layer.heads) * static_cast<double>(s * s);
    c.naive.bytes +=
        static_cast<double>(weight_bytes) * (c.naive_multiply_adds - c.naive.parameters);
  } else if constexpr (requires {
                         layer.bias1;
                         layer.deleted;
                       }) {
    experts(layer.bias1.shape()[0], layer.encoder1.shape()[0], 2 * layer.encoder1.shape()[1],
            2 * layer.bias1.shape()[1]);
  } else if constexpr (requires {
                         layer.bias;
                         layer.deleted;
                       }) {
    experts(layer.bias.shape()[0], layer.encoder.shape()[0], layer.encoder.shape()[1],
            layer.bias.shape()[1]);
  }
}

std::string text_of(const cost_report& c, std::size_t tokens, std::size_t weight_bytes) {
  table t;
  t.row({"", "factorized", "naive", ""});
  const auto line = [&](const std::string& what, double factorized, double naive) {
    std::array<char, 64> ratio{};
    std::snprintf(ratio.data(), ratio.size(),
                  naive / factorized < 100 ? "%.1f times" : "%.0f times", naive / factorized);
    t.row({what, grouped(factorized), naive > 0 ? grouped(naive) : "none",
           factorized > 0 && naive > 0 ? ratio.data() : ""});
  };
  line("FLOPs a token", c.factorized.flops(), 2 * c.naive_multiply_adds);
  line("bytes for " + counted(tokens, "token") + ", " + std::to_string(8 * weight_bytes) +
           "-bit weights",
       c.factorized.bytes, c.naive.bytes);
  t.align_right(1);
  t.align_right(2);
  return t.text();
}

template <class Layer>
bool rounds(std::string_view name) {
  Layer layer;
  return std::ranges::none_of(
      detail::released_parameters(layer),
      [&](const detail::released_parameter& p) { return p.name.name == name && !p.name.rounded; });
}

// `heads` are those of the layer's Monet router, 0 if there is none.
template <class Layer>
report report_on(const io::checkpoint& from, const std::string& prefix, const settings& s,
                 std::size_t weight_bytes, std::size_t heads) {
  auto layer = outline<Layer>(from, {.prefix = prefix, .narrow = io::narrow});
  if constexpr (requires { layer.heads; })
    if (heads != 0) layer.heads = heads;

  std::size_t* const active = io::active_of(layer);
  const auto metadata = from.metadata();
  const bool open = active != nullptr && !metadata.contains("K") && !metadata.contains("k") &&
                    !metadata.contains("selection");
  if (open && s.active) *active = *s.active;
  const auto attempt = [&](report& r) {
    const auto y = expression_of(layer, s.tokens);
    cost_report c = cost(y);
    count_whole_experts(c, layer, weight_bytes);
    r.costs = text_of(c, s.tokens, weight_bytes);
    const explanation e = explain(y);
    r.plan = e.text;
    r.dot = e.dot;
  };
  report r;
  bool guessed = false;
  try {
    try {
      attempt(r);
    } catch (const value_error&) {  // the usual K may be too large for this layer
      if (!open || s.active) throw;
      *active = 1;
      guessed = true;
      attempt(r);
    }
  } catch (const std::logic_error& e) {
    r.plan = std::string("none: ") + e.what() + '\n';
  }

  auto said = io::metadata_of(
      io::released_layer(layer),
      [&](std::string_view name) { return from.contains(prefix + std::string(name)); },
      from.file());
  r.title = title(layer, said["kind"]);
  if constexpr (requires { Layer::released_kinds; }) said.erase("kind");
  said.erase("block");
  for (const auto& [key, value] : said) {
    if (value.empty()) continue;
    const auto commas = static_cast<std::size_t>(std::ranges::count(value, ','));
    r.said += (r.said.empty() ? "" : ", ") + key + " = " +
              (value == "-1"      ? "all"
               : key == "deleted" ? counted(commas, "pair")
                                  : value);
    if (key == "K" && open && !s.active)
      r.said += guessed ? " (not in the file; say --active)" : " (not in the file)";
    if (key == "activation" && !metadata.contains(key)) r.said += " (not in the file)";
  }
  return r;
}

template <class... Layers>
struct families {
  static std::vector<io::found_layer> in(const io::checkpoint& from) {
    return io::layers_in<Layers...>(from);
  }
  static constexpr std::size_t count = sizeof...(Layers);
  // Says why there is none, as a line of the report.
  static std::string why_none(const io::checkpoint& from) {
    const auto near = io::nearest_layer<Layers...>(from);
    if (!near) return {};
    const std::array<std::string, count> titles{title(Layers(), "")...};
    return "Nearest: " + titles[near->type] +
           (near->prefix.empty() ? "" : " behind " + io::in_quotes(near->prefix)) + ". " +
           near->fault + '\n';
  }
  static report examine(std::size_t type, const io::checkpoint& from, const std::string& prefix,
                        const settings& s, std::size_t weight_bytes, std::size_t heads) {
    constexpr std::array functions{&report_on<Layers>...};
    return functions[type](from, prefix, s, weight_bytes, heads);
  }
  // False for a tensor that layers of 16 bits hold in floats.
  static bool is_rounded(std::size_t type, std::string_view name) {
    constexpr std::array functions{&rounds<Layers>...};
    return functions[type](name);
  }
};
template <class T>
using stored_in = families<monet_router<T>, monet_hd<T>, monet_vd<T>, mxd<T>, sparse_mlp<T>, aoe<T>,
                           moe<T>, soft_moe<T>, peer<T>>;
enum : std::size_t { router_type, hd_type, vd_type };  // positions in that list
using known = families<
    monet_router<>, monet_hd<>, monet_vd<>, mxd<>, sparse_mlp<>, aoe<>, moe<>, soft_moe<>,
    peer<>,                                                                                    //
    cp_mumoe<1>, cp_mumoe<2>, cp_mumoe<3>, cp_mumoe<4>, cp_mumoe_block<1>, cp_mumoe_block<2>,  //
    tr_mumoe<1>, tr_mumoe<2>, tr_mumoe<3>, tr_mumoe<4>, tr_mumoe_block<1>, tr_mumoe_block<2>,  //
    tucker_mumoe<1>, tucker_mumoe<2>, tucker_mumoe_block<1>,                                   //
    dense_mumoe<1>, dense_mumoe<2>, dense_mumoe<3>, dense_mumoe_block<1>>;

// Returns the heads of the Monet router that a layer uses, which may belong to an earlier layer, or
// 0 if there is none. Without statistics, the router has s keys for each head, and s is the number
// of biases of a layer.
std::size_t heads_for(const io::checkpoint& from, const std::vector<io::found_layer>& layers,
                      const io::found_layer& l) {
  const io::found_layer *router = nullptr, *experts = nullptr;
  for (const auto& other : layers) {
    if (other.type == router_type && !io::comes_before(l.prefix, other.prefix)) router = &other;
    if ((other.type == hd_type || other.type == vd_type) && experts == nullptr &&
        !io::comes_before(other.prefix, l.prefix))
      experts = &other;
  }
  if (l.type > vd_type || router == nullptr) return 0;
  const std::string mean = router->prefix + "router.norm1.running_mean";
  if (from.contains(mean)) return from.outline_of(mean).shape()[0];
  if (experts == nullptr) return 0;
  const std::size_t keys = from.outline_of(router->prefix + "router.w1.weight").shape()[0];
  const std::size_t halves =
      from.outline_of(experts->prefix + (experts->type == hd_type ? "moe.b" : "moe.b1")).shape()[0];
  return halves == 0 || keys % halves != 0 ? 0 : keys / halves;
}

std::string inspect(const settings& s, progress& bar) {
  const std::string file = shown(s.file);
  bar.start("reading", 0);
  if (std::filesystem::path(s.file).extension() == ".npy") {
    const io::array a = io::npy::read(s.file);
    return file + ": an array and no layer: " + io::text_of(a.shape()) + ' ' +
           std::string(io::name_of(a.type())) + '\n';
  }

  const auto from = io::checkpoint::open(s.file);
  const auto names = from.names();
  std::map<std::string, io::array> tensors;
  double numbers = 0, bits = 0;
  bar.start("headers", names.size());
  for (const std::string& name : names) {
    const auto& a = tensors.emplace(name, from.outline_of(name)).first->second;
    numbers += static_cast<double>(numbers_in(a));
    bits += static_cast<double>(numbers_in(a)) * static_cast<double>(io::bits_of(a.type())) /
            static_cast<double>(io::block_of(a.type()));
    bar.step();
  }
  bar.start("names", 0);
  const auto layers = known::in(from);
  if (layers.empty() && s.dot) throw std::runtime_error("no layer of fmoe's families to draw");

  // Equal layers are reported once, under the prefixes of all of them.
  std::vector<std::pair<std::string, std::string>> bodies;
  bar.start("layers", layers.size());
  for (const auto& l : layers) {
    const auto is_narrow = [&](const std::string& name) {
      return io::bits_of(tensors.at(name).type()) == 16 ||
             !known::is_rounded(l.type, std::string_view(name).substr(l.prefix.size()));
    };
    const bool narrow = l.type < stored_in<bf16>::count && std::ranges::all_of(l.names, is_narrow);
    const auto examine = narrow ? stored_in<bf16>::examine : known::examine;
    const report r = examine(l.type, from, l.prefix, s, narrow ? 2 : 4, heads_for(from, layers, l));
    std::string body;
    if (s.dot) {
      body = "// " + r.title + '\n' + r.dot;
    } else {
      table t;
      double parameters = 0;
      for (const auto& name : l.names) {
        const auto& a = tensors.at(name);
        add_tensor(t, name.substr(l.prefix.size()), a);
        parameters += static_cast<double>(numbers_in(a));
      }
      t.row({"parameters", "", "", grouped(parameters)});
      body = r.title + (r.said.empty() ? "" : ": " + r.said) + "\n\n" + t.text() + '\n' + r.costs +
             "\nPlan: " + r.plan;
    }
    const auto same = std::ranges::find(bodies, body, [](const auto& b) { return b.first; });
    if (same == bodies.end()) bodies.emplace_back(body, shown(l.prefix));
    else same->second += ", " + shown(l.prefix);
    bar.step();
  }
  for (const auto& l : layers)
    for (const auto& name : l.names) tensors.erase(name);

  std::string text;
  if (!s.dot)
    text = file + ": " +
           (layers.empty() ? "no layer of fmoe's families" : counted(layers.size(), "layer")) +
           (layers.empty() ? ": " : ", ") + counted(names.size(), "tensor") + " of " +
           grouped(numbers) + " numbers, " + grouped(bits / 8) + " bytes\n";
  if (!s.dot && layers.empty()) text += known::why_none(from);
  for (const auto& [body, prefixes] : bodies)
    text += (s.dot ? "" : "\n") + (prefixes.empty() ? "" : (s.dot ? "// " : "") + prefixes + '\n') +
            body;
  if (!s.dot && !tensors.empty()) {
    table rest;
    for (const auto& [name, a] : tensors) add_tensor(rest, name, a);
    text += (layers.empty() ? "\n" : "\nBeside them:\n\n") + rest.text();
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string_view("--help")) return std::fputs(usage, stdout) < 0;
  const auto s = settings_of(argc, argv);
  if (!s) {
    std::fputs(usage, stderr);
    return 2;
  }
  std::string text, fault;
  try {
    progress bar;
    text = inspect(*s, bar);
  } catch (const io::error& e) {
    fault = e.what();
  } catch (const std::bad_alloc&) {
    fault = io::in_quotes(s->file, 4096) +
            ": what a header of this size or layers of these shapes need does not fit memory";
  } catch (const std::exception& e) {
    fault = io::in_quotes(s->file, 4096) + ": " + e.what();
  }
  if (!fault.empty()) {
    std::fprintf(stderr, "fmoe_inspect: %s\n", fault.c_str());
    return 1;
  }
  return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0;
}

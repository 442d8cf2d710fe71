// SPDX-License-Identifier: MIT
// The layers, composed by hand of the products of one library, as an expert would: weights that
// meet the same rows are one weight, tokens are grouped by expert, all scratch is kept, and each
// product has the layout that was quickest when it was made. A library is a struct of
//
//   product            product(w, depth, columns, rows, like, ldx, ldy) holds w [depth, columns] in
//   the
//                      layout that is best for about so many rows, or in that of `like`, and
//                      p(rows, x, ldx, y, ldy) sets y = x w; 0 for ldx and ldy means no gaps
//   parallel(n, f)     runs f(0) ... f(n - 1) on the threads of the library
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "contestant.hpp"
#include "loops.hpp"

namespace fmoe::peers {

// The arrays and numbers of a layer's file.
struct source {
  const io::safetensors& file;

  const float* operator[](const char* name) const {
    return reinterpret_cast<const float*>(file.at(name).bytes().data());
  }
  extent size(const char* name, extent axis) const { return file.at(name).shape()[axis]; }
  extent number(const char* name) const { return std::stoull(file.metadata().at(name)); }
};

// Returns weights of as many rows side by side: [depth, columns of all].
inline floats side_by_side(extent depth,
                           const std::vector<std::pair<const float*, extent>>& weights) {
  extent columns = 0;
  for (const auto& [w, n] : weights) columns += n;
  floats joined(depth * columns);
  for (extent k = 0; k < depth; ++k) {
    float* to = joined.data() + k * columns;
    for (const auto& [w, n] : weights) to = std::copy_n(w + k * n, n, to);
  }
  return joined;
}

// [a, b, c] -> [b, a, c].
inline floats swapped(const float* w, extent a, extent b, extent c) {
  floats result(a * b * c);
  for (extent i = 0; i < a; ++i)
    for (extent j = 0; j < b; ++j)
      std::copy_n(w + (i * b + j) * c, c, result.data() + (j * a + i) * c);
  return result;
}

// [rows, columns] -> [columns, rows].
inline floats transposed(const float* w, extent rows, extent columns) {
  floats result(rows * columns);
  constexpr extent block = 32;
  for (extent i = 0; i < rows; i += block)
    for (extent j = 0; j < columns; j += block)
      for (extent a = i; a < std::min(rows, i + block); ++a)
        for (extent b = j; b < std::min(columns, j + block); ++b)
          result.data()[b * rows + a] = w[a * columns + b];
  return result;
}

template <class Library>
struct mxd {
  using product = typename Library::product;
  extent i, h, n, o, k;
  const float *encoder_bias, *gate_bias, *scales, *bias;
  product gate, encoder, decoder;
  floats scores, z, mixed;

  mxd(const source& s, extent tokens)
      : i(s.size("gate", 0)),
        h(s.size("encoder", 1)),
        n(s.size("gate", 1)),
        o(s.size("decoder", 1)),
        k(s.number("active")),
        encoder_bias(s["encoder_bias"]),
        gate_bias(s["gate_bias"]),
        scales(s["scales"]),
        bias(s["bias"]),
        gate(s["gate"], i, n, tokens),
        encoder(s["encoder"], i, h, tokens),
        decoder(s["decoder"], h, o, tokens),
        scores(tokens * n),
        z(tokens * h),
        mixed(tokens * o) {}

  void operator()(extent tokens, const float* x, float* y) {
    gate(tokens, x, i, scores.data(), n);
    encoder(tokens, x, i, z.data(), h);
    Library::parallel(tokens, [&](extent t) {
      add_bias_and_gelu(z.data() + t * h, encoder_bias, h);
      mix(scores.data() + t * n, mixed.data() + t * o);
    });
    decoder(tokens, z.data(), h, y, o);
    Library::parallel(tokens, [&](extent t) {
      for (extent j = 0; j < o; ++j)
        y[t * o + j] = y[t * o + j] * mixed.data()[t * o + j] + bias[j];
    });
  }

  // The rows of the k experts, each times its coefficient.
  void mix(float* row, float* to) {
    static thread_local top_k select;
    for (extent j = 0; j < n; ++j) row[j] = std::max(row[j] + gate_bias[j], 0.0f);
    select(row, n, k);
    std::fill_n(to, o, 0.0f);
    for (const kept& e : select.best) add_scaled(to, e.value, scales + e.index * o, o);
  }
};

template <class Library>
struct cp {
  using product = typename Library::product;
  extent i, n, r, o;
  product first, experts, output;  // x [gate, input]; a experts; the output, transposed
  floats both, a, mixed;

  cp(const source& s, extent tokens)
      : i(s.size("gate", 0)),
        n(s.size("gate", 1)),
        r(s.size("input", 1)),
        o(s.size("output", 0)),
        first(side_by_side(i, {{s["gate"], n}, {s["input"], r}}).data(), i, n + r, tokens),
        experts(s["experts"], n, r, tokens),
        output(transposed(s["output"], o, r).data(), r, o, tokens),
        both(tokens * (n + r)),
        a(tokens * n),
        mixed(tokens * r) {}

  void operator()(extent tokens, const float* x, float* y) {
    first(tokens, x, i, both.data(), n + r);
    Library::parallel(
        tokens, [&](extent t) { entmax_of_norm(both.data() + t * (n + r), n, a.data() + t * n); });
    experts(tokens, a.data(), n, mixed.data(), r);
    Library::parallel(tokens, [&](extent t) {
      const float* z = both.data() + t * (n + r) + n;
      for (extent j = 0; j < r; ++j) mixed.data()[t * r + j] *= z[j];
    });
    output(tokens, mixed.data(), r, y, o);
  }
};

template <class Library>
struct tr {
  using product = typename Library::product;
  extent i, n, p, q, r, o;
  product first, experts, output;  // [i, n + q r], [n, p q], [p r, o]
  floats both, a, mixed, joined;

  tr(const source& s, extent tokens)
      : i(s.size("gate", 0)),
        n(s.size("gate", 1)),
        p(s.size("experts", 0)),
        q(s.size("experts", 2)),
        r(s.size("input", 2)),
        o(s.size("output", 1)),
        first(
            side_by_side(i, {{s["gate"], n}, {swapped(s["input"], q, i, r).data(), q * r}}).data(),
            i, n + q * r, tokens),
        experts(swapped(s["experts"], p, n, q).data(), n, p * q, tokens),
        output(transposed(s["output"], r * o, p).data(), p * r, o, tokens),
        both(tokens * (n + q * r)),
        a(tokens * n),
        mixed(tokens * p * q),
        joined(tokens * p * r) {}

  void operator()(extent tokens, const float* x, float* y) {
    const extent width = n + q * r;
    first(tokens, x, i, both.data(), width);
    Library::parallel(
        tokens, [&](extent t) { entmax_of_norm(both.data() + t * width, n, a.data() + t * n); });
    experts(tokens, a.data(), n, mixed.data(), p * q);
    Library::parallel(tokens, [&](extent t) {
      const float* z = both.data() + t * width + n;
      for (extent row = 0; row < p; ++row) {
        float* to = joined.data() + (t * p + row) * r;
        std::fill_n(to, r, 0.0f);
        for (extent b = 0; b < q; ++b)
          add_scaled(to, mixed.data()[t * p * q + row * q + b], z + b * r, r);
      }
    });
    output(tokens, joined.data(), p * r, y, o);
  }
};

template <class Library>
struct monet {
  using product = typename Library::product;
  extent d, heads, s, h, m;
  float bound;
  const float* encoder_bias;
  product first, last;  // x [keys1, keys2, encoder]; [decoder; bias]
  floats all, mixed;

  monet(const source& w, extent tokens)
      : d(w.size("keys1", 0)),
        heads(w.number("heads")),
        s(w.size("bias", 0)),
        h(w.size("encoder", 1)),
        m(h / s),
        bound(std::stof(w.file.metadata().at("bound"))),
        encoder_bias(w["encoder_bias"]),
        first(side_by_side(d, {{w["keys1"], heads * s}, {w["keys2"], heads * s}, {w["encoder"], h}})
                  .data(),
              d, 2 * heads * s + h, tokens),
        last(below(w).data(), h + s, d, tokens),
        all(tokens * (2 * heads * s + h)),
        mixed(tokens * (h + s)) {}

  // [h + s, d].
  floats below(const source& w) const {
    floats joined((h + s) * d);
    std::copy_n(w["bias"], s * d, std::copy_n(w["decoder"], h * d, joined.data()));
    return joined;
  }

  void operator()(extent tokens, const float* x, float* y) {
    const extent width = 2 * heads * s + h;
    first(tokens, x, d, all.data(), width);
    Library::parallel(tokens,
                      [&](extent t) { mix(all.data() + t * width, mixed.data() + t * (h + s)); });
    last(tokens, mixed.data(), h + s, y, d);
  }

  void mix(float* row, float* to) const {
    float *g1 = row, *g2 = row + heads * s, *u = row + 2 * heads * s;
    for (extent g = 0; g < 2 * heads; ++g) bounded_softmax(row + g * s, s, bound);
    for (extent j = 0; j < h; ++j) {
      const float v = std::max(u[j] + encoder_bias[j], 0.0f);
      u[j] = v * v;
    }
    std::fill_n(to, h + s, 0.0f);
    static thread_local std::vector<float> by_head;
    by_head.assign(m, 0);
    for (extent p = 0; p < heads; ++p) {
      std::fill(by_head.begin(), by_head.end(), 0.0f);
      for (extent i = 0; i < s; ++i)
        if (g1[p * s + i] != 0) add_scaled(by_head.data(), g1[p * s + i], u + i * m, m);
      for (extent j = 0; j < s; ++j) {
        if (g2[p * s + j] == 0) continue;
        add_scaled(to + j * m, g2[p * s + j], by_head.data(), m);
        to[h + j] += g2[p * s + j];  // g1 of a head sums to 1
      }
    }
  }
};

// The rows of a mixture's experts: those of expert e are first[e] ... first[e + 1] - 1, and row r
// is of the token token[r].
struct grouping {
  std::vector<kept> chosen;  // k for each token
  std::vector<extent> first, token, row_of;

  void operator()(extent tokens, extent n, extent k) {
    first.assign(n + 1, 0);
    token.resize(tokens * k);
    row_of.resize(tokens * k);
    for (const kept& e : chosen) ++first[e.index + 1];
    for (extent e = 0; e < n; ++e) first[e + 1] += first[e];
    std::vector<extent>& next = next_;
    next.assign(first.begin(), first.end() - 1);
    for (extent c = 0; c < tokens * k; ++c) {
      row_of[c] = next[chosen[c].index]++;
      token[row_of[c]] = c / k;
    }
  }

 private:
  std::vector<extent> next_;
};

// AoE if there is a `down`, else the sparse mixture.
template <class Library>
struct mixture {
  using product = typename Library::product;
  extent d, n, l, w, k;
  bool by_norm;
  product score;
  std::vector<product> from_x, up, output;
  grouping groups;
  floats scores, own_x, own_cache, hidden, linear, made;

  mixture(const source& s, extent tokens)
      : d(s.size("output", 2)),
        n(s.size("output", 0)),
        l(s.file.contains("down") ? s.size("down", 2) : 0),
        w(s.size("output", 1)),
        k(s.number("active")),
        by_norm(l > 0),
        score(by_norm ? s["down"] : s["router"], d, by_norm ? n * l : n, tokens),
        scores(tokens * (by_norm ? n * l : n)),
        own_x(tokens * k * d),
        own_cache(tokens * k * l),
        hidden(tokens * k * (by_norm ? w : 2 * w)),
        linear(tokens * k * w),
        made(tokens * k * d) {
    const extent rows = std::max<extent>(1, (tokens * k + n / 2) / n);
    const auto add = [&](std::vector<product>& to, const float* weight, extent depth,
                         extent columns) {
      to.emplace_back(weight, depth, columns, rows, to.empty() ? nullptr : &to[0]);
    };
    for (auto* list : {&from_x, &up, &output}) list->reserve(n);
    for (extent e = 0; e < n; ++e) {
      add(output, s["output"] + e * w * d, w, d);
      if (by_norm) {
        add(up, s["up"] + e * l * w, l, w);
        add(from_x, s["linear"] + e * d * w, d, w);
      } else {
        const floats both =
            side_by_side(d, {{s["activated"] + e * d * w, w}, {s["linear"] + e * d * w, w}});
        add(from_x, both.data(), d, 2 * w);
      }
    }
    groups.chosen.resize(tokens * k);
  }

  void operator()(extent tokens, const float* x, float* y) {
    const extent width = by_norm ? n * l : n;
    score(tokens, x, d, scores.data(), width);
    Library::parallel(tokens, [&](extent t) { choose(t, scores.data() + t * width); });
    groups(tokens, n, k);
    Library::parallel(tokens * k, [&](extent r) {
      std::copy_n(x + groups.token[r] * d, d, own_x.data() + r * d);
    });
    if (by_norm)
      Library::parallel(tokens * k, [&](extent c) {
        std::copy_n(scores.data() + c / k * width + groups.chosen[c].index * l, l,
                    own_cache.data() + groups.row_of[c] * l);
      });
    for (extent e = 0; e < n; ++e)
      if (groups.first[e] < groups.first[e + 1]) expert(e);
    Library::parallel(tokens, [&](extent t) {
      std::fill_n(y + t * d, d, 0.0f);
      for (extent c = t * k; c < (t + 1) * k; ++c)
        add_scaled(y + t * d, groups.chosen[c].value, made.data() + groups.row_of[c] * d, d);
    });
  }

  void choose(extent t, const float* row) {
    static thread_local top_k select;
    static thread_local std::vector<float> norms;
    if (by_norm) {
      norms.resize(n);
      for (extent e = 0; e < n; ++e) norms[e] = std::sqrt(dot(row + e * l, row + e * l, l));
      row = norms.data();
    }
    select(row, n, k);
    select.to_softmax();
    std::copy_n(select.best.begin(), k, groups.chosen.begin() + static_cast<std::ptrdiff_t>(t * k));
  }

  void expert(extent e) {
    const extent first = groups.first[e], rows = groups.first[e + 1] - first;
    const float* own = own_x.data() + first * d;
    float* b = linear.data() + first * w;
    if (by_norm) {
      float* h = hidden.data() + first * w;
      up[e](rows, own_cache.data() + first * l, l, h, w);
      from_x[e](rows, own, d, b, w);
      Library::parallel(rows, [&](extent r) {
        for (extent j = r * w; j < (r + 1) * w; ++j) b[j] *= silu(h[j]);
      });
    } else {
      const float* h = hidden.data() + first * 2 * w;
      from_x[e](rows, own, d, hidden.data() + first * 2 * w, 2 * w);
      Library::parallel(rows, [&](extent r) {
        const float* row = h + r * 2 * w;
        for (extent j = 0; j < w; ++j) b[r * w + j] = silu(row[j]) * row[w + j];
      });
    }
    output[e](rows, b, w, made.data() + first * d, d);
  }
};

template <class Library>
struct peer {
  using product = typename Library::product;
  extent d, heads, s, width, k;  // width: numbers of a key
  const float *down, *up;
  product queries;
  std::vector<product> keys;  // head by head, both lists
  floats q, scores;

  peer(const source& w, extent tokens)
      : d(w.size("queries", 0)),
        heads(w.size("keys", 0)),
        s(w.size("keys", 1)),
        width(w.size("keys", 3)),
        k(w.number("active")),
        down(w["down"]),
        up(w["up"]),
        queries(w["queries"], d, 2 * heads * width, tokens),
        q(tokens * 2 * heads * width),
        scores(tokens * 2 * heads * s) {
    keys.reserve(2 * heads);
    for (extent h = 0; h < heads; ++h)
      for (extent list = 0; list < 2; ++list) {
        floats own(s * width);  // [s, width]
        for (extent j = 0; j < s; ++j)
          std::copy_n(w["keys"] + ((h * s + j) * 2 + list) * width, width, own.data() + j * width);
        keys.emplace_back(transposed(own.data(), s, width).data(), width, s, tokens,
                          keys.empty() ? nullptr : &keys[0], 2 * heads * width, 2 * heads * s);
      }
  }

  void operator()(extent tokens, const float* x, float* y) {
    const extent q_width = 2 * heads * width, s_width = 2 * heads * s;
    queries(tokens, x, d, q.data(), q_width);
    for (extent h = 0; h < heads; ++h)
      for (extent list = 0; list < 2; ++list)
        keys[2 * h + list](tokens, q.data() + (list * heads + h) * width, q_width,
                           scores.data() + (2 * h + list) * s, s_width);
    Library::parallel(tokens, [&](extent t) {
      std::fill_n(y + t * d, d, 0.0f);
      for (extent h = 0; h < heads; ++h)
        add_head(scores.data() + t * s_width + 2 * h * s, x + t * d, y + t * d);
    });
  }

  // The experts of one head. Of the sums of the two lists, sorted, only those of the first a and b
  // with (a + 1)(b + 1) <= k can be among the k greatest.
  void add_head(const float* lists, const float* x, float* y) const {
    static thread_local top_k first, second, both;
    static thread_local std::vector<float> sums;
    static thread_local std::vector<extent> expert;
    first(lists, s, k);
    second(lists + s, s, k);
    sums.clear();
    expert.clear();
    for (extent a = 0; a < k; ++a)
      for (extent b = 0; (a + 1) * (b + 1) <= k; ++b) {
        sums.push_back(first.best[a].value + second.best[b].value);
        expert.push_back(first.best[a].index * s + second.best[b].index);
      }
    both(sums.data(), sums.size(), k);
    both.to_softmax();
    for (const kept& e : both.best) {
      const extent row = expert[e.index];
      __builtin_prefetch(up + row * d);
      const float v = dot(x, down + row * d, d);
      const float gelu = 0.5f * v * (1 + std::erf(v * 0.70710678f));
      add_scaled(y, e.value * gelu, up + row * d, d);
    }
  }
};

// Calls of the layer, in tiles of so many tokens, of which the quickest is kept.
template <class Layer>
forward tiled(const source& s, extent tokens, bool may_tile = true) {
  const auto make = [&](extent tile) -> forward {
    const auto width = s.size("x", 1);
    return {
        [tokens, tile, width, layer = std::make_shared<Layer>(s, tile)](const float* x, float* y) {
          for (extent t = 0; t < tokens; t += tile) (*layer)(tile, x + t * width, y + t * width);
        }};
  };
  forward best = make(tokens);
  if (tokens < 256 || !may_tile) return best;
  floats y(tokens * s.size("x", 1));
  const auto seconds = [&](const forward& f) {
    return seconds_of_call([&] { f.call(s["x"], y.data()); });
  };
  double least = seconds(best);
  for (const extent tile : {extent{128}, extent{256}}) {
    forward other = make(tile);
    if (const double took = seconds(other); took < least) {
      least = took;
      best = std::move(other);
    }
  }
  return best;
}

template <class Library>
forward make_layer(const std::string& kind, const io::safetensors& weights, extent tokens) {
  const source s{weights};
  if (kind == "mxd") return tiled<mxd<Library>>(s, tokens);
  if (kind == "cp") return tiled<cp<Library>>(s, tokens);
  if (kind == "tr") return tiled<tr<Library>>(s, tokens);
  if (kind == "monet") return tiled<monet<Library>>(s, tokens);
  if (kind == "aoe" || kind == "moe") return tiled<mixture<Library>>(s, tokens, false);
  if (kind == "peer") return tiled<peer<Library>>(s, tokens);
  return {};
}

}  // namespace fmoe::peers

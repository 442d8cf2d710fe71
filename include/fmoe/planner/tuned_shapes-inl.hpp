// SPDX-License-Identifier: MIT
// The shapes that tuning has found, in one list for the process.
#pragma once

#include <map>
#include <mutex>

#include <fmoe/base/text_stream.hpp>
#include <fmoe/planner/program.hpp>
#include <fmoe/planner/tuned_shapes.hpp>

namespace fmoe::detail {

struct known_shapes {
  std::mutex mutex;
  std::map<std::string, plan_shape> by_key;
};

FMOE_INLINE known_shapes& all_known_shapes() {
  static known_shapes known;
  return known;
}

// Calls f with the name of each number of a shape and with the number, in the order of the text.
template <class Shape, class F>
void each_number(Shape& s, const F& f) {
  f("tile", s.tile);
  f("group_rows", s.group_rows);
  f("streamed", s.streamed);
  f("chunk", s.chunk);
  f("screen", s.screen);
  f("own_ahead", s.own_ahead);
  f("side_by_side", s.side_by_side);
}

// Reads a line's numbers; the last ones may be missing, as in the text of older versions.
inline std::optional<plan_shape> read_shape(std::istream& words) {
  plan_shape s;
  bool is_shape = true;
  each_number(s, [&](const std::string& name, auto& number) {
    const bool is_new = name == "own_ahead" || name == "side_by_side";
    if (is_new && (words >> std::ws).eof()) return;
    std::string word;
    is_shape = words >> word >> number && word == name && is_shape;
  });
  is_shape = is_shape && (words >> std::ws).eof() && s.tile > 0 && s.group_rows > 0 && s.chunk > 0;
  return is_shape ? std::optional(s) : std::nullopt;
}

}  // namespace fmoe::detail

namespace fmoe {

FMOE_INLINE std::string tuned_shapes() {
  detail::known_shapes& known = detail::all_known_shapes();
  const std::lock_guard lock(known.mutex);
  detail::text_stream text;
  for (const auto& [key, s] : known.by_key) {
    text << key << ':';
    detail::each_number(
        s, [&](const char* name, auto number) { text << ' ' << name << ' ' << number; });
    text << '\n';
  }
  return text.str();
}

FMOE_INLINE void use_tuned_shapes(std::string_view text) {
  std::map<std::string, plan_shape> read;
  detail::text_reader lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    detail::text_reader words(line);
    std::string key;
    words >> key;
    const auto shape = detail::read_shape(words);
    detail::expects<value_error>(shape && key.ends_with(':'),
                                 "[use_tuned_shapes] this is no line of tuned_shapes(): \"", line,
                                 "\"");
    key.pop_back();
    read[key] = *shape;
  }
  detail::known_shapes& known = detail::all_known_shapes();
  const std::lock_guard lock(known.mutex);
  for (const auto& [key, s] : read) known.by_key[key] = s;
}

}  // namespace fmoe

namespace fmoe::planner {

FMOE_INLINE std::string tuning_key(const program& p, const plan_options& how) {
  detail::text_stream text;
  text << how.on.name << ' ' << how.element_bytes << ' ' << p.token_count << ' ' << how.threads
       << ' ' << how.naive << ' ' << how.sum_block;
  if (how.bf16_products) text << " bf16 products";
  if (how.int8_products) text << " int8 products";
  for (const operation& o : p.operations) {
    text << ';' << text_of(p, o);
    for (const use& u : o.in)
      for (const extent e : p[u.value].shape) text << ' ' << e;
    text << " >";
    for (const extent e : p[o.out.value].shape) text << ' ' << e;
    text << ' ' << p[o.out.value].keep;
  }
  for (const ir::leaf_node& l : p.leaves) text << ' ' << name_of(l.type);
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text.str()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  detail::text_stream key;
  key << std::hex << hash;
  return key.str();
}

FMOE_INLINE std::optional<plan_shape> tuned_shape(const program& p, const plan_options& how) {
  detail::known_shapes& known = detail::all_known_shapes();
  const std::lock_guard lock(known.mutex);
  if (known.by_key.empty()) return std::nullopt;
  const auto at = known.by_key.find(tuning_key(p, how));
  if (at == known.by_key.end()) return std::nullopt;
  return at->second;
}

FMOE_INLINE void keep_tuned_shape(const std::string& key, const plan_shape& shape) {
  detail::known_shapes& known = detail::all_known_shapes();
  const std::lock_guard lock(known.mutex);
  known.by_key[key] = shape;
}

}  // namespace fmoe::planner

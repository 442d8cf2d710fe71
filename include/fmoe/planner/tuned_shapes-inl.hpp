// SPDX-License-Identifier: MIT
// The shapes that tuning has found, in one list for the process.
#pragma once

#include <map>
#include <mutex>
#include <sstream>

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

}  // namespace fmoe::detail

namespace fmoe {

FMOE_INLINE std::string tuned_shapes() {
  detail::known_shapes& known = detail::all_known_shapes();
  const std::lock_guard lock(known.mutex);
  std::ostringstream text;
  for (const auto& [key, s] : known.by_key)
    text << key << ": tile " << s.tile << " group_rows " << s.group_rows << " streamed "
         << s.streamed << " chunk " << s.chunk << " screen " << s.screen << '\n';
  return text.str();
}

FMOE_INLINE void use_tuned_shapes(std::string_view text) {
  std::map<std::string, plan_shape> read;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key, names[5];
    plan_shape s;
    words >> key >> names[0] >> s.tile >> names[1] >> s.group_rows >> names[2] >> s.streamed >>
        names[3] >> s.chunk >> names[4] >> s.screen;
    constexpr const char* expected[] = {"tile", "group_rows", "streamed", "chunk", "screen"};
    const bool is_shape = words && key.ends_with(':') && std::ranges::equal(names, expected) &&
                          s.tile > 0 && s.group_rows > 0 && s.chunk > 0;
    detail::expects<value_error>(
        is_shape, "[use_tuned_shapes] this is no line of tuned_shapes(): \"", line, "\"");
    key.pop_back();
    read[key] = s;
  }
  detail::known_shapes& known = detail::all_known_shapes();
  const std::lock_guard lock(known.mutex);
  for (const auto& [key, s] : read) known.by_key[key] = s;
}

}  // namespace fmoe

namespace fmoe::planner {

FMOE_INLINE std::string tuning_key(const program& p, const plan_options& how) {
  std::ostringstream text;
  text << how.on.name << ' ' << how.element_bytes << ' ' << p.token_count << ' ' << how.threads
       << ' ' << how.naive << ' ' << how.sum_block;
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
  std::ostringstream key;
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

// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <utility>

#include <fmoe/base/checked.hpp>
#include <fmoe/io/hints.hpp>

namespace fmoe::io {

FMOE_INLINE std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (a[i] != b[j]), last[j + 1] + 1, row[j] + 1});
      const bool exchanged = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (exchanged) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
    before = std::exchange(last, row);
  }
  return last.back();
}

FMOE_INLINE std::string listed(texts all) {
  constexpr std::size_t most = 3;
  std::string result;
  for (std::size_t i = 0; i < std::min(most, all.size()); ++i)
    result += (i == 0 ? "" : ", ") + in_quotes(all[i]);
  if (all.size() > most) result += " and " + std::to_string(all.size() - most) + " more";
  return result;
}

FMOE_INLINE std::string hint_of_names(std::string_view name, std::string_view prefix, texts in_file,
                                      std::string_view other, const std::set<std::string>& taken) {
  const auto is_near = [](std::string_view found, std::string_view wanted) {
    return !wanted.empty() && edits_between(found, wanted) <= 1 + wanted.size() / 4;
  };
  std::vector<std::string> prefixes, similar, own;
  for (const std::string& found : in_file) {
    if (found.ends_with(name)) {
      std::string before = found.substr(0, found.size() - name.size());
      if (before.empty() || before.back() == '.') prefixes.push_back(std::move(before));
    }
    if (!found.starts_with(prefix)) continue;
    own.push_back(found.substr(prefix.size()));
    const bool is_meant = is_near(own.back(), name) || is_near(own.back(), other);
    if (is_meant && !taken.contains(own.back())) similar.push_back(found);
  }
  if (!prefixes.empty() && prefixes[0].empty()) return "; the file has it without a prefix";
  if (!prefixes.empty())
    return "; the file has it behind " + listed(prefixes) + ": pass this as .prefix";
  if (!similar.empty()) return "; the file has " + listed(similar);
  if (own.empty() && !in_file.empty())
    return "; no name begins with " + in_quotes(prefix) + ", the file has " + listed(in_file);
  return in_file.empty() ? "; the file has no tensors" : "; the file has " + listed(in_file);
}

FMOE_INLINE std::optional<std::string> meant_by(std::string_view key, texts known) {
  constexpr std::size_t long_key = 6;
  const auto plain = [](std::string_view text) {
    std::string letters;
    for (const char c : text)
      if (c != '_' && c != '-') letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return letters;
  };
  if (std::ranges::find(known, key) != known.end()) return {};
  for (const std::string& k : known) {
    const bool is_misspelt = k.size() >= long_key && edits_between(plain(key), plain(k)) == 1;
    if ((k.size() > 1 && plain(key) == plain(k)) || is_misspelt) return k;
  }
  return {};
}

FMOE_INLINE std::string foreign_format(std::span<const std::byte> start, std::string_view name) {
  constexpr std::string_view save = ": write its tensors with safetensors.torch.save_file";
  struct format {
    std::string_view magic, text;
    bool holds_tensors = false;
  };
  constexpr format formats[] = {
      {"PK\x03\x04", "is a zip archive, as torch.save and numpy.savez write it", true},
      {"\x80\x02", "is a pickle, as old versions of torch.save write it", true},
      {"GGUF", "is a GGUF file, which fmoe::io::gguf::read reads"},
      {"\x89HDF\r\n\x1a\n", "is an HDF5 file, which fmoe does not read", true},
      {"\x93NUMPY", "is an .npy file, which fmoe::io::npy::read reads"},
      {"version ", "is a pointer of git-lfs in place of the file: git lfs pull brings it"},
      {"<!DOCTYP", "is a web page in place of the file: download it anew"},
      {"<!doctyp", "is a web page in place of the file: download it anew"},
      {"<html", "is a web page in place of the file: download it anew"},
      {"Access t", "is a text that refuses access to the file: log in, and download it anew"},
  };
  for (const auto& [magic, text, holds_tensors] : formats) {
    const bool has_magic =
        start.size() >= magic.size() &&
        std::equal(magic.begin(), magic.end(), start.begin(),
                   [](char c, std::byte b) { return static_cast<std::byte>(c) == b; });
    if (!has_magic) continue;
    return std::string(text).append(holds_tensors ? save : "");
  }
  if (name.ends_with(".onnx"))  // which begins with no magic
    return std::string("is named like an ONNX file, which fmoe does not read").append(save);
  return {};
}

}  // namespace fmoe::io

// SPDX-License-Identifier: MIT
// What a message says beside the fault, so that the reader need not look into the file.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/error.hpp>

namespace fmoe::io {

using texts = std::span<const std::string>;

// Returns the least number of letters to insert, remove, replace or exchange with a neighbour that
// makes one text of the other.
std::size_t edits_between(std::string_view a, std::string_view b);

// Returns "a", "b" and 3 more.
std::string listed(texts all);

// Says where the tensor `name` may be that a file does not have behind `prefix`, or what the file
// has. The tensor may also have the name `other`, and none of the names in `taken`, which are those
// of other tensors behind the prefix. The text begins with a semicolon.
std::string hint_of_names(std::string_view name, std::string_view prefix, texts in_file,
                          std::string_view other = {}, const std::set<std::string>& taken = {});

// Returns the known key that was meant by a key of metadata: one that differs in capitals or
// underscores, or, if it is long, in one letter. Files have any other keys that they like.
std::optional<std::string> meant_by(std::string_view key, texts known);

// Returns the format of a file that is not of the expected one, by its first bytes or its name, and
// how to make the expected one of it; an empty text if nothing is known. The text is the end of a
// sentence: "is a GGUF file, ...".
std::string foreign_format(std::span<const std::byte> start, std::string_view name);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/hints-inl.hpp>
#endif

// SPDX-License-Identifier: MIT
// The settings in a config.json or cfg.json, which lies beside the weights of a model.
#pragma once

#include <filesystem>
#include <string>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/array.hpp>
#include <fmoe/io/released_layer.hpp>

namespace fmoe::io {

struct layer_arrays;

// Returns the members of the object in config.json that are numbers, strings, or true or false, as
// text. If it has a member "text_config", that object's are returned, also where a "thinker_config"
// stands around it. Those of an object in it are named "object.member". Infinity and NaN, which
// Python's json writes, are passed over. Throws io, and json for text that is not JSON or not an
// object.
strings_by_name read_config(const std::filesystem::path& config);

// Adds a setting to the metadata of a file. Throws conflict if they have another one, with `where`
// to say where this one is.
void add_setting(layer_arrays& to, const std::string& key, const std::string& text,
                 const std::string& where);

// Says that a setting is in a file beside the weights.
std::string in_config(const std::filesystem::path& config);

// Adds the settings of the layer that config.json beside the file says, if one lies there that is
// of the layer's model, or of one that does not say its type. Throws as read_config and add_setting
// do.
void add_config(layer_arrays& to, const released_layer& layer);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/config_file-inl.hpp>
#endif

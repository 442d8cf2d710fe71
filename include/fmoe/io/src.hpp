// SPDX-License-Identifier: MIT
// Everything that io, and the floors that it stands on, keep out of translation units that are
// compiled separately.
#pragma once

#include <fmoe/arrays/print-inl.hpp>
#include <fmoe/arrays/released-inl.hpp>
#include <fmoe/arrays/storage-inl.hpp>
#include <fmoe/base/checked-inl.hpp>
#include <fmoe/base/error-inl.hpp>
#include <fmoe/base/open_file-inl.hpp>
#include <fmoe/base/platform-inl.hpp>
#include <fmoe/io/array-inl.hpp>
#include <fmoe/io/axes-inl.hpp>
#include <fmoe/io/block_formats-inl.hpp>
#include <fmoe/io/checkpoint-inl.hpp>
#include <fmoe/io/config_file-inl.hpp>
#include <fmoe/io/dictionary-inl.hpp>
#include <fmoe/io/file-inl.hpp>
#include <fmoe/io/gguf-inl.hpp>
#include <fmoe/io/hints-inl.hpp>
#include <fmoe/io/layer_settings-inl.hpp>
#include <fmoe/io/layers_in-inl.hpp>
#include <fmoe/io/load-inl.hpp>
#include <fmoe/io/model_config-inl.hpp>
#include <fmoe/io/npy-inl.hpp>
#include <fmoe/io/opened_safetensors-inl.hpp>
#include <fmoe/io/safetensors-inl.hpp>
#include <fmoe/io/safetensors_header-inl.hpp>
#include <fmoe/io/scaled_arrays-inl.hpp>
#include <fmoe/io/shard_index-inl.hpp>

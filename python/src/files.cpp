// SPDX-License-Identifier: MIT
// Arrays in files.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/io/scaled_arrays.hpp>

#include "arrays.hpp"

namespace fmoe::python {

using namespace nb::literals;

// The weight of this name, or of the codes of this name.
io::array weights_in(const io::checkpoint& from, const std::string& name) {
  constexpr std::string_view packed = "_packed";
  const auto find = [&](const std::string& part) {
    return from.contains(part) ? std::optional(from.at(part)) : std::nullopt;
  };
  const bool is_packed = name.ends_with(packed);
  const auto found =
      io::weight_of(is_packed ? name.substr(0, name.size() - packed.size()) : name, find);
  return found ? *found : from.at(name);
}

nb::object numpy_of(const io::array& a) {
  using io::element_type;
  const auto as = [&](const nb::dlpack::dtype& type) {
    auto* const copy = new std::vector<std::byte>(a.bytes().begin(), a.bytes().end());
    const nb::capsule owner(
        copy, [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy>(copy->data(), a.shape().size(), a.shape().data(), owner,
                                           nullptr, type));
  };
  if (a.is_scaled())
    return numpy_of(a.elements_as(dtype::float32, a.shape(), io::narrowing::refuse));
  switch (a.type()) {
    case element_type::f32: return as(nb::dtype<float>());
    case element_type::f64: return as(nb::dtype<double>());
    case element_type::i8: return as(nb::dtype<std::int8_t>());
    case element_type::u8: return as(nb::dtype<std::uint8_t>());
    case element_type::i16: return as(nb::dtype<std::int16_t>());
    case element_type::u16: return as(nb::dtype<std::uint16_t>());
    case element_type::i32: return as(nb::dtype<std::int32_t>());
    case element_type::u32: return as(nb::dtype<std::uint32_t>());
    case element_type::i64: return as(nb::dtype<std::int64_t>());
    case element_type::u64: return as(nb::dtype<std::uint64_t>());
    case element_type::boolean: return as(nb::dtype<bool>());
    case element_type::f16:
      return as({static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1});
    case element_type::bf16: {
      const dynamic::tensor t{
          dtype::bfloat16, a.shape(),
          std::make_shared<storage>(const_cast<std::byte*>(a.bytes().data()), a.bytes().size())};
      return numpy_of(t);
    }
    default:  // blocks of ggml; or it throws
      return numpy_of(a.elements_as(dtype::float32, a.shape(), io::narrowing::refuse));
  }
}

void bind_files(nb::module_& m) {
  nb::class_<io::checkpoint>(m, "Checkpoint")
      .def_static("open", [](const std::string& file) { return io::checkpoint::open(file); })
      .def("names", &io::checkpoint::names)
      .def("contains", &io::checkpoint::contains)
      .def("at", [](const io::checkpoint& c,
                    const std::string& name) { return numpy_of(weights_in(c, name)); })
      .def("metadata", [](const io::checkpoint& c) {
        const auto said = c.metadata();
        return std::map<std::string, std::string>(said.begin(), said.end());
      });
  m.def(
      "write",
      [](const std::string& file, const std::map<std::string, nb::object>& arrays,
         const std::map<std::string, std::string>& metadata) {
        io::arrays_by_name named;
        for (const auto& [name, a] : arrays) named.emplace(name, io::array(tensor_of(imported(a))));
        const io::strings_by_name said(metadata.begin(), metadata.end());
        io::safetensors::write(file, named, said);
      },
      "file"_a, "arrays"_a, "metadata"_a = std::map<std::string, std::string>());
}

}  // namespace fmoe::python

// SPDX-License-Identifier: MIT
// The extension module fmoe._core: what the package's Python files are made of.
#include <nanobind/stl/string.h>

#include <fmoe/version.hpp>

#include "arrays.hpp"

namespace fmoe::python {

dtype type_of(const nb::dlpack::dtype& type) {
  using code = nb::dlpack::dtype_code;
  const auto is = [&](code c, int bits) {
    return type.code == static_cast<std::uint8_t>(c) && type.bits == bits && type.lanes == 1;
  };
  if (is(code::Float, 32)) return dtype::float32;
  if (is(code::Float, 64)) return dtype::float64;
  if (is(code::Float, 16)) return dtype::float16;
  if (is(code::Bfloat, 16)) return dtype::bfloat16;
  throw nb::type_error(
      "fmoe takes arrays of float32, float64, float16 or bfloat16: convert it first");
}

namespace {

template <class Array>
dynamic::array view_of(const Array& a) {
  dynamic::array view{
      const_cast<void*>(static_cast<const void*>(a.data())), type_of(a.dtype()), {}};
  for (std::size_t i = 0; i < a.ndim(); ++i) {
    view.shape.push_back(a.shape(i));
    if (a.stride(i) < 0) throw value_error("[call] an array has a negative stride: copy it first");
    view.strides.push_back(static_cast<std::size_t>(a.stride(i)));
  }
  return view;
}

}  // namespace

dynamic::array array_of(const array_in& a) { return view_of(a); }
dynamic::array array_of(const array_out& a) { return view_of(a); }

dynamic::tensor tensor_of(const plain_array_in& a) {
  dynamic::tensor t{type_of(a.dtype()), {}, nullptr};
  for (std::size_t i = 0; i < a.ndim(); ++i) t.shape.push_back(a.shape(i));
  // The last user may be a thread without the interpreter's lock.
  const std::shared_ptr<const void> owner(new plain_array_in(a), [](const plain_array_in* held) {
    const nb::gil_scoped_acquire lock;
    delete held;
  });
  t.elements = std::make_shared<storage>(const_cast<void*>(a.data()), a.nbytes(), owner);
  return t;
}

nb::object numpy_of(const dynamic::tensor& t) {
  const dynamic::tensor wide = t.type == dtype::float64 ? t : detail::as_floats(t);
  auto* const kept = new std::shared_ptr<storage>(wide.elements);
  const nb::capsule owner(
      kept, [](void* p) noexcept { delete static_cast<std::shared_ptr<storage>*>(p); });
  const auto type = wide.type == dtype::float64 ? nb::dtype<double>() : nb::dtype<float>();
  return nb::cast(nb::ndarray<nb::numpy>(wide.elements->data(), wide.shape.size(),
                                         wide.shape.data(), owner, nullptr, type));
}

}  // namespace fmoe::python

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  m.doc() = "The extension module of fmoe.";
  nb::set_leak_warnings(
      false);  // PyTorch holds operators, and what they hold, until the process ends
  using v = fmoe::version;
  m.attr("version") =
      std::to_string(v::major) + '.' + std::to_string(v::minor) + '.' + std::to_string(v::patch);
  nb::exception<fmoe::shape_error>(m, "ShapeError", PyExc_ValueError);
  nb::exception<fmoe::value_error>(m, "DomainError", PyExc_ValueError);
  nb::exception<fmoe::io::error>(m, "FileError", PyExc_OSError);
  fmoe::python::bind_expressions(m);
  fmoe::python::bind_files(m);
  fmoe::python::bind_layers(m);
  fmoe::python::bind_statistics(m);
}

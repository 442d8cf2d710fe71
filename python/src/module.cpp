// SPDX-License-Identifier: MIT
// The extension module fmoe._core: what the package's Python files are made of.
#include <cstddef>
#include <cstring>

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

// Keeps an array. The last user may be a thread without the interpreter's lock.
template <class Array>
std::shared_ptr<const void> owner_of(const Array& a) {
  return {new Array(a), [](const Array* held) {
            const nb::gil_scoped_acquire lock;
            delete held;
          }};
}

}  // namespace

dynamic::array array_of(const array_in& a) { return view_of(a); }
dynamic::array array_of(const array_out& a) { return view_of(a); }

dynamic::tensor tensor_of(const plain_array_in& a) {
  dynamic::tensor t{type_of(a.dtype()), {}, nullptr};
  for (std::size_t i = 0; i < a.ndim(); ++i) t.shape.push_back(a.shape(i));
  t.elements = std::make_shared<storage>(const_cast<void*>(a.data()), a.nbytes(), owner_of(a));
  return t;
}

namespace {

// Copies an array of any strides to rows that follow each other; numbers that are as they were are
// not written, since another thread may read them.
void copy_if_changed(const void* from, void* to) {
  const array_in& a = *static_cast<const array_in*>(from);
  const std::size_t bytes = a.itemsize();
  std::byte* out = static_cast<std::byte*>(to);
  const auto copy = [&](const auto& self, std::size_t axis, const std::byte* in) -> void {
    if (axis == a.ndim()) {
      if (std::memcmp(out, in, bytes) != 0) std::memcpy(out, in, bytes);
      out += bytes;
      return;
    }
    const auto step = static_cast<std::ptrdiff_t>(bytes) * a.stride(axis);
    for (std::size_t i = 0; i < a.shape(axis); ++i, in += step) self(self, axis + 1, in);
  };
  copy(copy, 0, static_cast<const std::byte*>(a.data()));
}

bool has_plain_rows(const array_in& a) {
  std::size_t step = 1;
  for (std::size_t i = a.ndim(); i-- > 0; step *= a.shape(i))
    if (a.shape(i) != 1 && a.stride(i) != static_cast<std::int64_t>(step)) return false;
  return true;
}

}  // namespace

dynamic::tensor unwatched_tensor_of(const array_in& a) {
  dynamic::tensor t{type_of(a.dtype()), {}, nullptr};
  for (std::size_t i = 0; i < a.ndim(); ++i) t.shape.push_back(a.shape(i));
  const std::shared_ptr<const void> owner = owner_of(a);
  if (has_plain_rows(a) || a.size() == 0) {
    t.elements = std::make_shared<storage>(const_cast<void*>(a.data()), a.nbytes(), owner);
    t.elements->set_unwatched();
  } else {
    t.elements = std::make_shared<storage>(a.nbytes());
    t.elements->set_source({owner, copy_if_changed});
    t.elements->copy_source();
  }
  return t;
}

nb::object numpy_of(const dynamic::tensor& t) {
  const dynamic::tensor wide = t.type == dtype::float64 ? t : detail::as_floats(t);
  using holder = std::shared_ptr<const void>;
  const nb::capsule owner(new holder(wide.elements->holder()),
                          [](void* p) noexcept { delete static_cast<holder*>(p); });
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

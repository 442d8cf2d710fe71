// SPDX-License-Identifier: MIT
// The extension module fmoe._core: what the package's Python files are made of.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include <nanobind/stl/string.h>

#include <fmoe/version.hpp>

#include "arrays.hpp"
#include "lock.hpp"

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

// What a function of fmoe._arrays makes of an object. The module is never given back.
template <class... Args>
nb::object of_arrays(const char* function, const Args&... args) {
  static std::atomic<PyObject*> known = nullptr;
  return ask_python([&]() -> nb::object {
    PyObject* arrays = known.load(std::memory_order_acquire);
    if (arrays == nullptr) {
      arrays = nb::module_::import_("fmoe._arrays").release().ptr();
      known.store(arrays, std::memory_order_release);
    }
    return nb::handle(arrays).attr(function)(args...);
  });
}

// Throws TypeError with the reason why the binding does not take an array.
[[noreturn]] void refuse(nb::handle x, bool to_write) {
  throw nb::type_error(nb::cast<std::string>(of_arrays("refusal", x, to_write)).c_str());
}

// The elements of an array of bfloat16, a type that numpy does not have, from their bits.
array_in bfloat16_of(nb::handle bits) {
  array_in a;
  if (!nb::try_cast(bits, a, false)) refuse(bits, false);
  std::vector<std::size_t> shape;
  std::vector<std::int64_t> strides;
  for (std::size_t i = 0; i < a.ndim(); ++i) {
    shape.push_back(a.shape(i));
    strides.push_back(a.stride(i));
  }
  return {a.data(),       a.ndim(),
          shape.data(),   bits,
          strides.data(), {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1}};
}

}  // namespace

nb::object readable(nb::handle x) { return of_arrays("importable", x); }

std::size_t whole_number(nb::handle x, const char* name) {
  return nb::cast<std::size_t>(of_arrays("count", x, name));
}

index_pair whole_numbers(nb::handle x, const char* name) {
  const nb::object both = of_arrays("pair", x, name);
  return {nb::cast<std::size_t>(both[0]), nb::cast<std::size_t>(both[1])};
}

double any_number(nb::handle x, const char* name) {
  return nb::cast<double>(of_arrays("number", x, name));
}

nb::list listed(nb::handle x, const char* name) {
  return nb::cast<nb::list>(of_arrays("items", x, name));
}

array_in imported(nb::handle x) {
  if (nb::isinstance<nb::tuple>(x)) return bfloat16_of(nb::borrow<nb::tuple>(x)[0]);
  array_in a;
  if (!nb::try_cast(x, a, false)) refuse(x, false);
  return a;
}

array_out imported_to_write(nb::handle x) {
  array_out a;
  if (nb::isinstance<nb::tuple>(x) || !nb::try_cast(x, a, false)) refuse(x, true);
  return a;
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

// Keeps something of Python. The last user may be a thread without the interpreter's lock.
template <class Held>
std::shared_ptr<Held> kept(Held held) {
  return {new Held(std::move(held)), [](Held* h) { with_lock([&] { delete h; }); }};
}

std::vector<std::size_t> shape_of(const array_in& a) {
  std::vector<std::size_t> shape;
  for (std::size_t i = 0; i < a.ndim(); ++i) shape.push_back(a.shape(i));
  return shape;
}

// Copies an array of any strides to rows that follow each other; numbers that are as they were are
// not written, since another thread may read them.
void copy_if_changed(const array_in& a, void* to) {
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

// An array of an expression, and its elements as they lay when they were read.
struct operand {
  nb::object array;
  array_in elements;
  std::vector<std::size_t> shape;  // as it was: that of `elements` may be the array's own
  dtype type;
  bool is_copied;
};

// Asks the array where its elements are: PyTorch moves those of a tensor to shared memory, and
// frees the old ones, while other tensors have them.
const void* read_operand(const void* from, void* own) {
  operand& o = *static_cast<operand*>(const_cast<void*>(from));
  with_lock([&] {
    array_in now = imported(readable(o.array));
    if (shape_of(now) != o.shape || type_of(now.dtype()) != o.type ||
        (!o.is_copied && !has_plain_rows(now)))
      throw shape_error(
          "[refresh] an array has another shape, type or order of elements than when the "
          "expression was made of it: make the expression again");
    o.elements = std::move(now);
  });
  if (!o.is_copied) return o.elements.data();
  copy_if_changed(o.elements, own);
  return own;
}

}  // namespace

dynamic::array array_of(const array_in& a) { return view_of(a); }
dynamic::array array_of(const array_out& a) { return view_of(a); }

dynamic::tensor tensor_of(const array_in& a) {
  dynamic::tensor t{type_of(a.dtype()), shape_of(a), nullptr};
  if (has_plain_rows(a) || a.size() == 0) {
    t.elements = std::make_shared<storage>(const_cast<void*>(a.data()), a.nbytes(), kept(a));
  } else {
    t.elements = std::make_shared<storage>(a.nbytes());
    copy_if_changed(a, t.elements->data());
  }
  return t;
}

dynamic::tensor unwatched_tensor_of(nb::handle x) {
  const nb::object array = of_arrays("lasting", x), now = of_arrays("readable", array);
  const array_in a = imported(of_arrays("exported", now));
  const dtype type = type_of(a.dtype());
  const bool is_plain = now.is(array) && (has_plain_rows(a) || a.size() == 0);
  dynamic::tensor t{type, shape_of(a), nullptr};
  t.elements = is_plain
                   ? std::make_shared<storage>(const_cast<void*>(a.data()), a.nbytes(), nullptr)
                   : std::make_shared<storage>(a.nbytes());
  t.elements->set_source({kept(operand{array, a, t.shape, type, !is_plain}), read_operand});
  if (!is_plain) t.elements->read_source();
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

namespace {

// What a sentence of C++ says, in words of Python.
std::string in_python(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> words[] = {
      {"fmoe::all sets no limit", "None sets no limit"},
      {"fmoe::all keeps every score", "None keeps every score"},
      {"pass fmoe::io::narrow to allow it", "pass narrow=True to allow it"},
      {"which fmoe::io::npy::read reads", "which numpy.load reads"},
      {"which fmoe::io::gguf::read reads", "which fmoe.read reads"},
      {"or product_top_k, and not fmoe::all", "or product_top_k, and not None"},
      {"set the layer's `active` after load instead",
       "load it without active=, and call layer.with_active"},
      {"load them as bfloat16",
       "load a mixture with type=\"bfloat16\", or pass arrays of bfloat16"},
      {"load them as q8", "call layer.quantize(), or load a mixture with type=\"q8\""},
      {" as .prefix", " as `prefix`"},
      {"fmoe::", "fmoe."},
  };
  for (const auto& [from, to] : words)
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  return text;
}

template <class Error>
void bind_error(nb::module_& m, const char* name, nb::handle base) {
  static PyObject* type = nullptr;
  type = nb::exception<Error>(m, name, base).ptr();
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& e) {
      PyErr_SetString(type, in_python(e.what()).c_str());
    }
  });
}

}  // namespace

}  // namespace fmoe::python

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  m.doc() = "The extension module of fmoe.";
  nb::set_leak_warnings(
      false);  // PyTorch holds operators, and what they hold, until the process ends
  using v = fmoe::version;
  m.attr("version") =
      std::to_string(v::major) + '.' + std::to_string(v::minor) + '.' + std::to_string(v::patch);
  fmoe::python::bind_error<fmoe::shape_error>(m, "ShapeError", PyExc_ValueError);
  fmoe::python::bind_error<fmoe::value_error>(m, "DomainError", PyExc_ValueError);
  fmoe::python::bind_error<fmoe::io::error>(m, "FileError", PyExc_OSError);
  fmoe::python::bind_expressions(m);
  fmoe::python::bind_files(m);
  fmoe::python::bind_layers(m);
  fmoe::python::bind_statistics(m);
}

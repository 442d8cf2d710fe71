// SPDX-License-Identifier: MIT
// Arrays of other libraries that tell by their members where they lie and of which type they are:
// DLPack's DLTensor, and what __cuda_array_interface__ describes. Calls take them as they are.
#pragma once

#include <concepts>
#include <string_view>

#include <fmoe/arrays/array_view.hpp>
#include <fmoe/backend/cuda/device.hpp>

namespace fmoe::detail {

// Any struct with the members of a DLTensor.
template <class A>
concept dlpack_like = requires(const A& a) {
  { a.data } -> std::convertible_to<const void*>;
  { a.shape[0] } -> std::convertible_to<std::int64_t>;
  { a.strides[0] } -> std::convertible_to<std::int64_t>;
  { a.ndim } -> std::convertible_to<int>;
  { a.byte_offset } -> std::convertible_to<std::uint64_t>;
  a.device.device_type, a.device.device_id, a.dtype.code, a.dtype.bits, a.dtype.lanes;
};

// Any struct with the entries of __cuda_array_interface__: a pointer, a list `shape`, `typestr`
// ("<f4"), `strides` in bytes, of which an empty list says that the array is row-major, and
// `stream`, an integer that is 0 if nobody writes the array.
template <class A>
concept cuda_interface_like = requires(const A& a) {
  { a.pointer } -> std::convertible_to<const void*>;
  { a.typestr } -> std::convertible_to<std::string_view>;
  std::size(a.shape), std::size(a.strides), a.shape[0], a.strides[0];
  { a.stream } -> std::convertible_to<std::uintptr_t>;
};

// The type of a DLDataType.
inline dtype dlpack_type(int code, int bits, int lanes) {
  constexpr int real = 2, brain = 4;
  if (lanes == 1 && code == real && bits == 64) return dtype::float64;
  if (lanes == 1 && code == real && bits == 32) return dtype::float32;
  if (lanes == 1 && code == real && bits == 16) return dtype::float16;
  if (lanes == 1 && code == brain && bits == 16) return dtype::bfloat16;
  fail<value_error>(
      "[call] a DLTensor is of float, double, bfloat16 or float16, and this one has "
      "code ",
      code, ", ", bits, " bits and ", lanes, " lanes");
}

// The place of a DLDevice.
inline place dlpack_place(int type, int number) {
  constexpr int cpu = 1, gpu = 2, pinned = 3, managed = 13;
  if (type == cpu || type == pinned) return {};
  if (type == gpu || type == managed) return cuda::place_of_device(number);
  fail<value_error>(
      "[call] a DLTensor lies on the CPU or on an NVIDIA GPU, and this one is of "
      "device type ",
      type);
}

// The type of a typestr of this machine's order of bytes.
inline dtype interface_type(std::string_view typestr) {
  if (typestr == "<f8") return dtype::float64;
  if (typestr == "<f4") return dtype::float32;
  if (typestr == "<f2") return dtype::float16;
  fail<value_error>("[call] an array's typestr is \"<f4\", \"<f8\" or \"<f2\", and this one is \"",
                    std::string(typestr), '"');
}

}  // namespace fmoe::detail

namespace fmoe {

template <class A>
  requires detail::dlpack_like<A>
struct array_traits<A> {
  static typed_view<any_number, all> view(A& a) {
    const std::span shape(a.shape, static_cast<std::size_t>(a.ndim));
    auto* const first =
        static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(a.data)));
    void* const data = first + a.byte_offset;
    auto v = a.strides == nullptr ? view_at<all>(static_cast<any_number*>(data), shape)
                                  : view_at<all>(static_cast<any_number*>(data), shape,
                                                 std::span(a.strides, shape.size()));
    v.type = detail::dlpack_type(a.dtype.code, a.dtype.bits, a.dtype.lanes);
    v.where = detail::dlpack_place(static_cast<int>(a.device.device_type), a.device.device_id);
    return v;
  }
};

template <class A>
  requires detail::cuda_interface_like<A>
struct array_traits<A> {
  static typed_view<any_number, all> view(A& a) {
    const std::size_t size = detail::size_of(detail::interface_type(a.typestr));
    auto* const data =
        static_cast<any_number*>(const_cast<void*>(static_cast<const void*>(a.pointer)));
    auto v = view_at<all>(data, a.shape);
    v.type = detail::interface_type(a.typestr);
    v.where = v.span_bytes() == 0 ? place{} : cuda::place_of(data);
    v.made_by = reinterpret_cast<void*>(static_cast<std::uintptr_t>(a.stream));
    if (std::size(a.strides) == 0) return v;
    detail::expects<shape_error>(std::size(a.strides) == v.rank, "[call] an array has ",
                                 std::size(a.strides), " strides and ", v.rank, " axes");
    for (std::size_t i = 0; i < v.rank; ++i) {
      detail::expects<value_error>(
          !(a.strides[i] < 0) && static_cast<std::size_t>(a.strides[i]) % size == 0, "[call] axis ",
          i, " of an array has a stride of ", a.strides[i],
          " bytes, which is no number of elements");
      v.strides[i] = static_cast<std::size_t>(a.strides[i]) / size;
    }
    return v;
  }
};

}  // namespace fmoe

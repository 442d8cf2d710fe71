// SPDX-License-Identifier: MIT
// Arrays of numpy, PyTorch and whatever else has DLPack or the buffer protocol, as fmoe sees them.
#pragma once

#include <memory>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <fmoe/dynamic.hpp>
#include <fmoe/io/array.hpp>

namespace fmoe::python {

namespace nb = nanobind;

using array_in = nb::ndarray<nb::ro, nb::device::cpu>;
using plain_array_in = nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>;
using array_out = nb::ndarray<nb::device::cpu>;

// Throws TypeError for numbers that fmoe does not compute with.
dtype type_of(const nb::dlpack::dtype& type);

// The elements where they lie.
dynamic::array array_of(const array_in& a);
dynamic::array array_of(const array_out& a);

// A tensor on the elements of an array, which lives as long as the tensor and its copies do.
dynamic::tensor tensor_of(const plain_array_in& a);

// A tensor of the elements that an array has whenever they are read, however they lie.
dynamic::tensor unwatched_tensor_of(const array_in& a);

// A numpy array on the elements of a tensor; those of 16 and 8 bits are widened to float.
nb::object numpy_of(const dynamic::tensor& t);

// An array of a file with its own type where numpy has it; bfloat16 becomes float32.
nb::object numpy_of(const io::array& a);

void bind_expressions(nb::module_& m);
void bind_files(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_statistics(nb::module_& m);

}  // namespace fmoe::python

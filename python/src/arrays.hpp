// SPDX-License-Identifier: MIT
// Arrays of numpy, PyTorch and whatever else has DLPack or the buffer protocol, as fmoe sees them.
#pragma once

#include <memory>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <fmoe/dynamic.hpp>
#include <fmoe/io/array.hpp>

namespace fmoe::python {

namespace nb = nanobind;

using array_in = nb::ndarray<nb::ro, nb::device::cpu>;
using array_out = nb::ndarray<nb::device::cpu>;

// Throws TypeError for numbers that fmoe does not compute with.
dtype type_of(const nb::dlpack::dtype& type);

// What fmoe._arrays makes of any object: an array of numpy, or a tuple with the bits of bfloat16.
// Throws TypeError, in a sentence, if that is no array of numbers. All that users pass is made so,
// here or by the package: the binding's own import can end the process, of an object that offers
// the buffer protocol alone, and of one whose export is code of Python, which lock.hpp speaks of.
nb::object readable(nb::handle x);

// The elements of what `readable` returned, where they lie. Throws TypeError in a sentence.
array_in imported(nb::handle x);
// The same to write to.
array_out imported_to_write(nb::handle x);

// A whole number of Python's or numpy's. Throws TypeError or DomainError, in a sentence with the
// name, for another object and for a number below 0.
std::size_t whole_number(nb::handle x, const char* name);

// Two of them.
index_pair whole_numbers(nb::handle x, const char* name);

// Any number. Throws TypeError in a sentence.
double any_number(nb::handle x, const char* name);

// The objects in a list, a tuple or an array. Throws TypeError in a sentence.
nb::list listed(nb::handle x, const char* name);

dynamic::array array_of(const array_in& a);
dynamic::array array_of(const array_out& a);

// The arrays of a call, inputs first, which live as long as this.
struct passed_arrays {
  passed_arrays(const std::vector<nb::object>& in, const std::vector<nb::object>& out) {
    inputs.reserve(in.size());
    outputs.reserve(out.size());
    arrays.reserve(in.size() + out.size());
    for (const nb::object& x : in) arrays.push_back(array_of(inputs.emplace_back(imported(x))));
    for (const nb::object& x : out)
      arrays.push_back(array_of(outputs.emplace_back(imported_to_write(x))));
  }

  std::vector<array_in> inputs;
  std::vector<array_out> outputs;
  std::vector<dynamic::array> arrays;
};

// A tensor on the elements of an array, which lives as long as the tensor and its copies do, or on
// a copy of elements whose rows do not follow each other.
dynamic::tensor tensor_of(const array_in& a);

// A tensor of the elements that an array has whenever they are read, however and wherever they lie
// then. Throws as `readable` does.
dynamic::tensor unwatched_tensor_of(nb::handle x);

// A numpy array on the elements of a tensor; those of 16 and 8 bits are widened to float.
nb::object numpy_of(const dynamic::tensor& t);

// An array of a file with its own type where numpy has it; bfloat16 becomes float32.
nb::object numpy_of(const io::array& a);

void bind_expressions(nb::module_& m);
void bind_files(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_statistics(nb::module_& m);

}  // namespace fmoe::python

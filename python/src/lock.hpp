// SPDX-License-Identifier: MIT
// Functions that run without the interpreter's lock, or with it.
//
// Before Python 3.14 a thread that asks for the lock of an interpreter that ends is ended by
// pthread_exit, which unwinds its stack: through functions that are noexcept, as destructors and
// the binding's are, where the process is ended. So a thread asks in a function of its own, whose
// only object waits for ever if it is unwound. Code of Python that C++ calls asks, too, when it
// lets other threads run.
#pragma once

#include <chrono>
#include <exception>
#include <thread>
#include <type_traits>
#include <utility>

#include <nanobind/nanobind.h>

namespace fmoe::python {

class rest_of_the_process {
 public:
  rest_of_the_process() = default;
  rest_of_the_process(const rest_of_the_process&) = delete;
  rest_of_the_process& operator=(const rest_of_the_process&) = delete;
  ~rest_of_the_process() {
    while (!has_returned_) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  void has_returned() { has_returned_ = true; }

 private:
  bool has_returned_ = false;
};

// Returns f(), which runs code of Python.
template <class F>
auto ask_python(F&& f) {
  rest_of_the_process unwound;
  try {
    auto made = f();
    unwound.has_returned();
    return made;
  } catch (const std::exception&) {
    unwound.has_returned();
    throw;
  }
}

// What this thread had when it gave the lock back, in without_lock. With it a thread may ask for
// the lock of an interpreter that is gone; PyGILState_Ensure may not.
inline thread_local PyThreadState* given_back = nullptr;

inline void take_lock() {
  rest_of_the_process unwound;
  PyEval_RestoreThread(std::exchange(given_back, nullptr));
  unwound.has_returned();
}

// Returns f() and lets other threads of Python run meanwhile. The caller has the lock.
template <class F>
auto without_lock(F&& f) {
  given_back = PyEval_SaveThread();
  try {
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      take_lock();
    } else {
      auto made = f();
      take_lock();
      return made;
    }
  } catch (...) {
    take_lock();
    throw;
  }
}

// Calls f() with the lock, whether or not the thread has it. A thread that has none of Python's
// states gets one; nothing happens there once the interpreter is gone, and with it all that f could
// ask.
template <class F>
void with_lock(F&& f) {
  if (given_back != nullptr) {
    take_lock();
    try {
      f();
    } catch (...) {
      given_back = PyEval_SaveThread();
      throw;
    }
    given_back = PyEval_SaveThread();
    return;
  }
  if (!nanobind::is_alive()) return;
  rest_of_the_process unwound;
  const PyGILState_STATE state = PyGILState_Ensure();
  unwound.has_returned();
  try {
    f();
  } catch (...) {
    PyGILState_Release(state);
    throw;
  }
  PyGILState_Release(state);
}

}  // namespace fmoe::python

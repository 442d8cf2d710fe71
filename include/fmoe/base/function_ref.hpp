// SPDX-License-Identifier: MIT
// A callable by reference: what takes one is compiled once, and not for every lambda.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace fmoe {

template <class Signature>
class function_ref;

// Calls what it was made of, which must outlive it.
template <class Result, class... Arguments>
class function_ref<Result(Arguments...)> {
 public:
  template <class F>
    requires(!std::is_same_v<F, function_ref>)
  function_ref(const F& f)
      : callable_(std::addressof(f)),
        call_([](const void* callable, Arguments... arguments) -> Result {
          return (*static_cast<const F*>(callable))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const {
    return call_(callable_, std::forward<Arguments>(arguments)...);
  }

 private:
  const void* callable_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace fmoe

// SPDX-License-Identifier: MIT
// A function with a stack of its own, which can pause and go on later. On x86-64 a change of stacks
// takes a few instructions; elsewhere it is swapcontext, which takes two system calls. The address
// and the thread sanitizer are told of each change.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/compiler.hpp>
#include <fmoe/base/function_ref.hpp>

#if defined(_WIN32)
#include "fmoe has no GPUs on Windows yet: the stacks of emulated blocks are those of POSIX"
#elif !FMOE_X86_64
#include <ucontext.h>
#endif

#if defined(FMOE_ADDRESS_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#elif defined(FMOE_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace fmoe::cuda {

class fiber {
 public:
  static constexpr extent stack_bytes = extent{128} << 10;

  fiber() = default;
  fiber(const fiber&) = delete;
  ~fiber() {
    if (stack_ == nullptr) return;
    if (has_ended_) {  // the stack ends, too, and with it what the address sanitizer has for it
      body_.reset();
      enter_stack();
    }
#if defined(FMOE_THREAD_SANITIZER)
    __tsan_destroy_fiber(own_.tsan);
#endif
  }

  // The next resume() begins the body. One stack serves all bodies, one after the other; a body
  // that paused and never ended is forgotten.
  void start(function_ref<void()> body) {
    body_ = body;
    error_ = nullptr;
    if (stack_ == nullptr) {
      stack_.reset(new std::byte[stack_bytes]);
#if defined(FMOE_THREAD_SANITIZER)
      own_.tsan = __tsan_create_fiber(0);
#endif
      begin_stack();
    } else if (!has_ended_) {
      begin_stack();
    }
    has_ended_ = false;
  }

  // Runs the body until it pauses or ends. Rethrows what the body throws.
  void resume() {
    enter_stack();
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  // Goes back to the caller of resume(); the body calls this.
  void pause() { change(own_, caller_, true); }

  bool has_ended() const { return has_ended_; }

 private:
  // A stack and, while it does not run, the place where it stopped.
  struct place {
    const void* bottom = nullptr;
    extent size = 0;
    void* fake = nullptr;  // the address sanitizer's stack beside it
    void* tsan = nullptr;  // the thread sanitizer's name of it
#if FMOE_X86_64
    void* top = nullptr;
#else
    ucontext_t registers;
#endif
  };

  void begin_stack() {
    own_.bottom = stack_.get();
    own_.size = stack_bytes;
    own_.fake = nullptr;
    prepare();
  }

  // Comes back when another change leads to `from`, unless it is left for good.
  static void change(place& from, place& to, [[maybe_unused]] bool comes_back) {
#if defined(FMOE_ADDRESS_SANITIZER)
    __sanitizer_start_switch_fiber(comes_back ? &from.fake : nullptr, to.bottom, to.size);
#elif defined(FMOE_THREAD_SANITIZER)
    __tsan_switch_to_fiber(to.tsan, 0);
#endif
#if FMOE_X86_64
    change_stack(&from.top, to.top);
#else
    swapcontext(&from.registers, &to.registers);
#endif
#if defined(FMOE_ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(from.fake, &to.bottom, &to.size);
#endif
  }

  void enter_stack() {
#if defined(FMOE_THREAD_SANITIZER)
    caller_.tsan = __tsan_get_current_fiber();
#endif
    change(caller_, own_, true);
  }

  // The first function on the fiber's stack. It runs body after body, until there is none.
  static void run(fiber* self) {
#if defined(FMOE_ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(nullptr, &self->caller_.bottom, &self->caller_.size);
#endif
    while (self->body_) {
      try {
        (*self->body_)();
      } catch (...) {
        self->error_ = std::current_exception();
      }
      self->has_ended_ = true;
      self->pause();
    }
    change(self->own_, self->caller_, false);
  }

#if FMOE_X86_64
  // Saves the registers that belong to the caller of a function, and the stack, and loads others.
  FMOE_NAKED static void change_stack(void** /*from*/, void* /*to*/) {
    asm("pushq %rbp\n\t"
        "pushq %rbx\n\t"
        "pushq %r12\n\t"
        "pushq %r13\n\t"
        "pushq %r14\n\t"
        "pushq %r15\n\t"
        "movq %rsp, (%rdi)\n\t"
        "movq %rsi, %rsp\n\t"
        "popq %r15\n\t"
        "popq %r14\n\t"
        "popq %r13\n\t"
        "popq %r12\n\t"
        "popq %rbx\n\t"
        "popq %rbp\n\t"
        "ret");
  }

  // Calls the function in r13 with the argument in r12.
  FMOE_NAKED static void enter() {
    asm("movq %r12, %rdi\n\t"
        "call *%r13\n\t"
        "ud2");
  }

  // Makes a stack as change_stack() leaves it: six registers, and the address to return to. Behind
  // them it is aligned as a call expects.
  void prepare() {
    constexpr extent r13 = 2, r12 = 3, address = 6, words = 7;
    const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(stack_.get()) + stack_bytes;
    auto* const top = reinterpret_cast<void**>(end / 16 * 16) - words;
    std::fill_n(top, words, nullptr);
    top[r13] = reinterpret_cast<void*>(&run);
    top[r12] = this;
    top[address] = reinterpret_cast<void*>(&enter);
    own_.top = top;
  }
#else
  // makecontext passes integers: the halves of the address.
  static void enter(unsigned low, unsigned high) {
    run(reinterpret_cast<fiber*>(std::uintptr_t{high} << 32 | low));
  }

  void prepare() {
    getcontext(&own_.registers);
    own_.registers.uc_stack.ss_sp = stack_.get();
    own_.registers.uc_stack.ss_size = stack_bytes;
    own_.registers.uc_link = nullptr;
    const auto self = std::uint64_t{reinterpret_cast<std::uintptr_t>(this)};
    makecontext(&own_.registers, reinterpret_cast<void (*)()>(&enter), 2,
                static_cast<unsigned>(self), static_cast<unsigned>(self >> 32));
  }
#endif

  std::unique_ptr<std::byte[]> stack_;
  std::optional<function_ref<void()>> body_;
  std::exception_ptr error_;
  bool has_ended_ = true;
  place own_, caller_;
};

}  // namespace fmoe::cuda

#include "torch/raise.h"

#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>

namespace ebb::torch {
namespace {

// Of libstdc++, whose names and layouts the platform's C++ ABI fixes.
struct Runtime {
  void* (*allocate)(size_t bytes);
  void (*construct)(void* error, const char* message);  // std::runtime_error's constructor
  void (*destroy)(void* error);
  void* type;
  void (*throw_it)(void* error, void* type, void (*destroy)(void*));
};

template <class T>
bool find(void* library, const char* name, T& out) {
  out = reinterpret_cast<T>(dlsym(library, name));
  return out != nullptr;
}

const Runtime* process_runtime() noexcept {
  static Runtime r;
  static const bool complete = [] {
    void* const library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD);
    return library != nullptr && find(library, "__cxa_allocate_exception", r.allocate) &&
           find(library, "_ZNSt13runtime_errorC1EPKc", r.construct) &&
           find(library, "_ZNSt13runtime_errorD1Ev", r.destroy) &&
           find(library, "_ZTISt13runtime_error", r.type) &&
           find(library, "__cxa_throw", r.throw_it);
  }();
  return complete ? &r : nullptr;
}

[[noreturn, gnu::noinline]] void raise_own(const char* message) {
  throw std::runtime_error(message);
}

}  // namespace

void raise(const char* message) {
  const Runtime* const r = process_runtime();
  if (r == nullptr) raise_own(message);
  void* const error = r->allocate(sizeof(std::runtime_error));
  r->construct(error, message);
  r->throw_it(error, r->type, r->destroy);
  __builtin_unreachable();
}

}  // namespace ebb::torch

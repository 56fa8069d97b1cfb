#include "torch/register.h"

#include <array>
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"
#include "torch/call.h"
#include "torch/raise.h"
#include "torch/shim.h"

namespace ebb::torch {
namespace {

using Call = void (*)(const functions::Function&, StackValue*);

// Null, or what failed.
[[gnu::noinline]] const char* failure_of(size_t function, StackValue* stack, Call call) noexcept {
  thread_local std::string message;
  try {
    call(functions::all_functions()[function], stack);
    return nullptr;
  } catch (const std::exception& e) {
    message = e.what();
  } catch (...) {
    message = "ebb_kernels: unknown error";
  }
  return message.c_str();
}

// A boxed kernel knows nothing but its arguments, so each function has one of its own. An exception
// leaves it as raise.h asks: there is nothing here to be undone.
template <size_t Index>
void boxed(StackValue* stack, uint64_t, uint64_t) {
  if (const char* message = failure_of(Index, stack, call)) raise(message);
}
template <size_t Index>
void boxed_numbered(StackValue* stack, uint64_t, uint64_t) {
  if (const char* message = failure_of(Index, stack, call_numbered)) raise(message);
}

struct Kernels {
  BoxedKernel kernel, numbered;
};
template <size_t... Index>
constexpr auto boxed_kernels(std::index_sequence<Index...>) {
  return std::array<Kernels, sizeof...(Index)>{Kernels{boxed<Index>, boxed_numbered<Index>}...};
}

constexpr size_t most = 64;
constexpr auto kernels = boxed_kernels(std::make_index_sequence<most>());

}  // namespace

void register_functions(const std::string& space, const std::string& key) {
  const auto functions = functions::all_functions();
  require(functions.size() <= most, "torch: ", most, " functions at most (there are ",
          functions.size(), ")");
  LibraryHandle library = nullptr;
  check(shim().library_init_impl(space.c_str(), key.c_str(), __FILE__, __LINE__, &library),
        "opening a library of kernels");
  constexpr uint64_t version = uint64_t{2} << 56 | uint64_t{10} << 48;  // of the interface: 2.10
  const auto give = [&](const std::string& name, BoxedKernel kernel) {
    check(shim().library_impl(library, name.c_str(), kernel, version), "registering a kernel");
  };
  for (size_t i = 0; i < functions.size(); ++i) {
    give(functions[i].name, kernels[i].kernel);
    if (functions[i].has_backward)
      give(functions::numbered_name(functions[i]), kernels[i].numbered);
  }
}

}  // namespace ebb::torch

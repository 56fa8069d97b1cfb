// Handles of torch's objects that are freed with their scope.
#pragma once

#include <utility>

#include "torch/shim.h"

namespace ebb::torch {

template <class Handle, Status (*Shim::*Delete)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Owned& operator=(Owned&& o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) (shim().*Delete)(handle_);
  }
  Handle get() const { return handle_; }
  Handle release() { return std::exchange(handle_, nullptr); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

using OwnedTensor = Owned<TensorHandle, &Shim::delete_tensor>;
using OwnedList = Owned<ListHandle, &Shim::delete_list>;
using OwnedString = Owned<StringHandle, &Shim::delete_string>;

}  // namespace ebb::torch

// Handles of torch's objects that are freed with their scope.
#pragma once

#include <utility>

#include "base/inline_vector.h"
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

constexpr size_t most_without_allocation = 16;

// Tensors, absent ones with them as null.
class OwnedTensors {
 public:
  OwnedTensors() = default;
  OwnedTensors(const OwnedTensors&) = delete;
  OwnedTensors& operator=(const OwnedTensors&) = delete;
  ~OwnedTensors() {
    for (const TensorHandle t : all_)
      if (t != nullptr) shim().delete_tensor(t);
  }
  void push_back(OwnedTensor t) {
    all_.push_back(t.get());
    t.release();
  }
  size_t size() const { return all_.size(); }
  TensorHandle operator[](size_t i) const { return all_[i]; }
  OwnedTensor exchange(size_t i, OwnedTensor t) {
    return OwnedTensor(std::exchange(all_[i], t.release()));
  }
  const TensorHandle* begin() const { return all_.begin(); }
  const TensorHandle* end() const { return all_.end(); }

 private:
  InlineVector<TensorHandle, most_without_allocation> all_;
};

}  // namespace ebb::torch

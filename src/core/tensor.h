// Tensor: a dense row-major array in some device's memory. Copies share the memory.
#pragma once

#include <memory>
#include <span>

#include "base/error.h"
#include "core/shape.h"

namespace ebb {

// Memory of one device, freed with its last owner.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;  // an address on the buffer's device
  virtual int64_t bytes() const = 0;
  virtual bool on_host() const = 0;
};

std::shared_ptr<Buffer> host_buffer(int64_t bytes);  // 64-byte aligned, zeroed

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Type type) : Tensor(type, host_buffer(type.bytes())) {}  // zeros, on the host
  Tensor(DType dtype, Shape shape) : Tensor(Type{dtype, std::move(shape)}) {}
  Tensor(Type type, std::shared_ptr<Buffer> buffer, int64_t offset = 0)
      : type_(std::move(type)), buffer_(std::move(buffer)), offset_(offset) {}

  const Type& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  DType dtype() const { return type_.dtype; }
  int64_t numel() const { return type_.shape.numel(); }
  int64_t bytes() const { return type_.bytes(); }
  bool defined() const { return buffer_ != nullptr; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  void* raw() const { return static_cast<char*>(buffer_->data()) + offset_; }

  // The elements of a host tensor of this type. Throws Error on another dtype.
  template <class T>
  std::span<T> span() const {
    require(dtype() == dtype_of<T> && buffer_ && buffer_->on_host(), "tensor: expected host ",
            dtype_of<T>, "  ", type_);
    return {static_cast<T*>(raw()), static_cast<size_t>(numel())};
  }

  Tensor reshape(Shape shape) const;               // shares the memory; same number of elements
  Tensor at(Type type, int64_t offset) const;      // shares the memory from a byte on
  Tensor rows(int64_t first, int64_t last) const;  // shares the memory; [first, last) of dim 0
  Tensor clone() const;                            // host tensors
  Tensor to(DType dtype) const;                    // host tensors; a copy rounded to nearest even

 private:
  Type type_;
  std::shared_ptr<Buffer> buffer_;
  int64_t offset_ = 0;  // bytes
};

// A host tensor holding `values`.
template <class T>
Tensor tensor_of(std::span<const T> values, Shape shape) {
  Tensor t(dtype_of<T>, std::move(shape));
  require(t.numel() == static_cast<int64_t>(values.size()), "tensor: shape ", t.shape(),
          " needs another number of values (", values.size(), ")");
  std::copy(values.begin(), values.end(), t.span<T>().begin());
  return t;
}
template <class T>
Tensor tensor_of(const std::vector<T>& values, Shape shape) {
  return tensor_of(std::span<const T>(values), std::move(shape));
}
// One element, rank 0.
template <class T>
Tensor scalar_tensor(T value) {
  return tensor_of(std::span<const T>(&value, 1), Shape{});
}

}  // namespace ebb

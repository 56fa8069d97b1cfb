#include "core/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/host_memory.h"
#include "core/out_of_memory.h"

namespace ebb {
namespace {

int64_t megabytes(int64_t bytes) { return (bytes + 999999) / 1000000; }

// Large buffers are pages that the system clears on first touch, by whichever thread.
class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(int64_t bytes) : bytes_(bytes) {
    constexpr size_t alignment = 64;
    size_t room = static_cast<size_t>(bytes) + 2 * alignment;  // up to whole lines, both ways
    memory_ = std::calloc(room, 1);
    if (!memory_)
      throw OutOfMemory(str("tensor: out of memory: ", megabytes(bytes), " MB are needed at once, ",
                            megabytes(free_host_memory()),
                            " MB of the machine's memory are free, or a limit of this process "
                            "(ulimit -v) is reached"));
    data_ = memory_;
    std::align(alignment, room - alignment, data_, room);
  }
  ~HostBuffer() override { std::free(memory_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  bool on_host() const override { return true; }

 private:
  void* memory_ = nullptr;
  void* data_ = nullptr;  // the first line of memory_
  int64_t bytes_ = 0;
};

template <class To, class From>
To convert(From v) {
  if constexpr (std::is_same_v<From, bf16> || std::is_same_v<From, f16>)
    return convert<To>(static_cast<float>(v));
  else if constexpr (std::is_same_v<To, bf16> || std::is_same_v<To, f16>)
    return To(static_cast<float>(v));
  else
    return static_cast<To>(v);
}

}  // namespace

std::shared_ptr<Buffer> host_buffer(int64_t bytes) { return std::make_shared<HostBuffer>(bytes); }

Tensor Tensor::reshape(Shape shape) const {
  require(shape.numel() == numel(), "reshape: must keep the number of elements  ", type_, " to ",
          shape);
  return Tensor({dtype(), std::move(shape)}, buffer_, offset_);
}

Tensor Tensor::at(Type type, int64_t offset) const {
  require(0 <= offset && offset + type.bytes() <= bytes(), "tensor: bytes from ", offset,
          " on do not hold ", type, "  ", type_);
  return Tensor(std::move(type), buffer_, offset_ + offset);
}

Tensor Tensor::rows(int64_t first, int64_t last) const {
  require(shape().rank() > 0 && 0 <= first && first <= last && last <= shape()[0],
          "rows: out of range (", first, " to ", last, ")  ", type_);
  Shape s = shape();
  const int64_t row = s[0] ? bytes() / s[0] : 0;
  s[0] = last - first;
  return Tensor({dtype(), std::move(s)}, buffer_, offset_ + first * row);
}

Tensor Tensor::clone() const {
  constexpr int64_t chunk = 1 << 18;  // bytes; threads touch the new pages in parallel
  Tensor out(type_);
  char* to = static_cast<char*>(out.raw());
  const char* from = static_cast<const char*>(raw());
  const int64_t size = bytes();
#pragma omp parallel for schedule(static) if (size > chunk)
  for (int64_t begin = 0; begin < size; begin += chunk)
    std::memcpy(to + begin, from + begin, static_cast<size_t>(std::min(chunk, size - begin)));
  return out;
}

Tensor Tensor::to(DType dtype) const {
  Tensor out(dtype, shape());
  visit_dtype(this->dtype(), [&]<class From>(From) {
    visit_dtype(dtype, [&]<class To>(To) {
      const auto in = span<From>();
      const auto o = out.span<To>();
      for (size_t i = 0; i < in.size(); ++i) o[i] = convert<To>(in[i]);
    });
  });
  return out;
}

}  // namespace ebb

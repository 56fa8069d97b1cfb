#include "core/tensor.h"

#include <cstdlib>
#include <cstring>

namespace ebb {
namespace {

class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(int64_t bytes) : bytes_(bytes) {
    const size_t rounded = (static_cast<size_t>(bytes) + 63) / 64 * 64;
    data_ = std::aligned_alloc(64, rounded ? rounded : 64);
    require(data_ != nullptr, "tensor: out of memory (", bytes, " bytes)");
    std::memset(data_, 0, rounded);
  }
  ~HostBuffer() override { std::free(data_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  bool on_host() const override { return true; }

 private:
  void* data_ = nullptr;
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

Tensor Tensor::rows(int64_t first, int64_t last) const {
  require(shape().rank() > 0 && 0 <= first && first <= last && last <= shape()[0],
          "rows: out of range (", first, " to ", last, ")  ", type_);
  Shape s = shape();
  const int64_t row = s[0] ? bytes() / s[0] : 0;
  s[0] = last - first;
  return Tensor({dtype(), std::move(s)}, buffer_, offset_ + first * row);
}

Tensor Tensor::clone() const {
  Tensor out(type_);
  if (bytes() > 0) std::memcpy(out.raw(), raw(), static_cast<size_t>(bytes()));
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

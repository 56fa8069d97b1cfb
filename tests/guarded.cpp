#include "guarded.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

namespace ebb::test {
namespace {

constexpr int64_t guard = 256;  // bytes between arrays at least
constexpr int64_t alignment = 64;
constexpr unsigned char sentinel = 0xa5;

bool exact_allocations() {
  const char* memory = std::getenv("EBB_TEST_MEMORY");
  return memory && std::string_view(memory) == "exact";
}

// Taken once and grown, since accelerators allocate slowly; never given back.
const std::shared_ptr<Buffer>& scratch(Device& device, int64_t bytes) {
  static auto& buffers = *new std::map<Device*, std::shared_ptr<Buffer>>;
  auto& buffer = buffers[&device];
  if (!buffer || buffer->bytes() < bytes) {
    buffer = nullptr;
    buffer = device.allocate(std::max<int64_t>(bytes, 16 << 20));
  }
  return buffer;
}

}  // namespace

Bytes stored(const RefArray& a, DType dtype) {
  Bytes out(a.v.size() * static_cast<size_t>(size_of(dtype)));
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    unsigned char* to = out.data();
    for (const double v : a.v) {
      T element;
      if constexpr (std::is_integral_v<T>)
        element = static_cast<T>(v);
      else
        element = T(static_cast<float>(v));
      std::memcpy(to, &element, sizeof(T));
      to += sizeof(T);
    }
  });
  return out;
}

RefArray loaded(const Bytes& b, const Type& type) {
  RefArray a{type.shape, {}};
  visit_dtype(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const unsigned char* from = b.data();
    for (int64_t i = 0; i < type.shape.numel(); ++i, from += sizeof(T)) {
      T element;
      std::memcpy(&element, from, sizeof(T));
      if constexpr (std::is_integral_v<T>)
        a.v.push_back(static_cast<double>(element));
      else
        a.v.push_back(static_cast<double>(static_cast<float>(element)));
    }
  });
  return a;
}

int64_t GuardedArrays::end() const {
  return arrays_.empty()
             ? 0
             : arrays_.back().first + static_cast<int64_t>(arrays_.back().content.size());
}

size_t GuardedArrays::add(Bytes content, int64_t offset) {
  const int64_t boundary = (end() + guard + alignment - 1) / alignment * alignment;
  arrays_.push_back({boundary + offset, std::move(content)});
  return arrays_.size() - 1;
}

size_t GuardedArrays::add_poisoned(int64_t bytes, int64_t offset) {
  return add(Bytes(static_cast<size_t>(bytes), 0xff), offset);
}

void GuardedArrays::upload() {
  const Type bytes{DType::u8, Shape{end() + guard}};
  image_ = Tensor(bytes);
  std::memset(image_.raw(), sentinel, static_cast<size_t>(bytes.bytes()));
  for (const Array& a : arrays_)
    std::copy(a.content.begin(), a.content.end(), image_.span<uint8_t>().begin() + a.first);
  if (exact_allocations()) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const Type type = image_of(i).type();
      const int64_t offset = arrays_[i].first % alignment;
      exact_.emplace_back(type, device_.allocate(offset + type.bytes()), offset);
      device_.copy(image_of(i), exact_[i]);
    }
    return;
  }
  memory_ = Tensor(bytes, scratch(device_, bytes.bytes()));
  device_.copy(image_, memory_);
}

void GuardedArrays::download() {
  device_.synchronize();
  if (exact_.empty()) device_.copy(memory_, image_);
  for (size_t i = 0; i < exact_.size(); ++i) device_.copy(exact_[i], image_of(i));
}

Tensor GuardedArrays::image_of(size_t i) const {
  const Array& a = arrays_[i];
  return {{DType::u8, Shape{static_cast<int64_t>(a.content.size())}}, image_.buffer(), a.first};
}

void* GuardedArrays::address(size_t i) const {
  if (!exact_.empty()) return exact_[i].raw();
  return static_cast<char*>(memory_.raw()) + arrays_[i].first;
}

Bytes GuardedArrays::content(size_t i) const {
  const auto from = image_.span<uint8_t>().begin() + arrays_[i].first;
  return {from, from + static_cast<int64_t>(arrays_[i].content.size())};
}

bool GuardedArrays::changed(size_t i) const { return content(i) != arrays_[i].content; }

bool GuardedArrays::intact(size_t i) const {
  const auto image = image_.span<uint8_t>();
  const auto is_sentinel = [](uint8_t b) { return b == sentinel; };
  const Array& a = arrays_[i];
  const int64_t last = a.first + static_cast<int64_t>(a.content.size());
  const int64_t before =
      i == 0 ? 0 : arrays_[i - 1].first + static_cast<int64_t>(arrays_[i - 1].content.size());
  const int64_t after = i + 1 < arrays_.size() ? arrays_[i + 1].first : image_.numel();
  return std::all_of(image.begin() + before, image.begin() + a.first, is_sentinel) &&
         std::all_of(image.begin() + last, image.begin() + after, is_sentinel);
}

}  // namespace ebb::test

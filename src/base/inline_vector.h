// InlineVector: a vector of small, trivial elements, the first N of which need no allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

namespace ebb {

template <class T, size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return more_.empty() ? first_.data() : more_.data(); }
  const T* data() const { return more_.empty() ? first_.data() : more_.data(); }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  operator std::span<const T>() const { return {data(), size_}; }

  void push_back(const T& value) {
    if (size_ < N) {
      first_[size_++] = value;
      return;
    }
    if (more_.empty()) more_.assign(first_.begin(), first_.end());
    more_.push_back(value);
    ++size_;
  }

 private:
  std::array<T, N> first_;  // until there are more; those beyond size_ have no value
  std::vector<T> more_;     // then all
  size_t size_ = 0;
};

}  // namespace ebb

// InlineVector: a vector of small, trivial elements, the first N of which need no allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ebb {

template <class T, size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  constexpr InlineVector() = default;
  constexpr InlineVector(const InlineVector& o) : more_(o.more_), size_(o.size_) { take_first(o); }
  constexpr InlineVector(InlineVector&& o) noexcept
      : more_(std::exchange(o.more_, {})), size_(std::exchange(o.size_, 0)) {
    take_first(o);
  }
  constexpr InlineVector& operator=(InlineVector o) noexcept {
    more_ = std::move(o.more_);
    size_ = o.size_;
    take_first(o);
    return *this;
  }
  constexpr ~InlineVector() = default;

  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T* data() { return more_.empty() ? first_.data() : more_.data(); }
  constexpr const T* data() const { return more_.empty() ? first_.data() : more_.data(); }
  constexpr T& operator[](size_t i) { return data()[i]; }
  constexpr const T& operator[](size_t i) const { return data()[i]; }
  constexpr T* begin() { return data(); }
  constexpr T* end() { return data() + size_; }
  constexpr const T* begin() const { return data(); }
  constexpr const T* end() const { return data() + size_; }
  constexpr operator std::span<const T>() const { return {data(), size_}; }

  constexpr void push_back(const T& value) {
    if (size_ < N) {
      first_[size_++] = value;
      return;
    }
    if (more_.empty()) more_.assign(first_.begin(), first_.end());
    more_.push_back(value);
    ++size_;
  }

 private:
  // Of another, whose size this one has: those beyond it have no value that could be copied.
  constexpr void take_first(const InlineVector& o) {
    if (more_.empty()) std::copy_n(o.first_.begin(), size_, first_.begin());
  }

  std::array<T, N> first_;  // until there are more; those beyond size_ have no value
  std::vector<T> more_;     // then all
  size_t size_ = 0;
};

}  // namespace ebb

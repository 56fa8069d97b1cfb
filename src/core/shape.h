// Shape and Type: sizes outermost first, printed as f32[2,64,64,320].
#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace ebb {

// Sizes of a dense row-major tensor, outermost first. A rank of 0 is one element.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : sizes_(sizes) {}
  explicit Shape(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {}

  int64_t rank() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t numel() const;
  // Negative dims count from the end.
  int64_t operator[](int64_t dim) const { return sizes_[static_cast<size_t>(wrap(dim))]; }
  int64_t& operator[](int64_t dim) { return sizes_[static_cast<size_t>(wrap(dim))]; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  auto begin() const { return sizes_.begin(); }
  auto end() const { return sizes_.end(); }
  void push_back(int64_t size) { sizes_.push_back(size); }
  bool operator==(const Shape&) const = default;

  std::vector<int64_t> strides() const;            // in elements
  Shape slice(int64_t first, int64_t last) const;  // dims [first, last)

 private:
  int64_t wrap(int64_t dim) const { return dim < 0 ? dim + rank() : dim; }
  std::vector<int64_t> sizes_;
};

std::ostream& operator<<(std::ostream& out, const Shape& s);

// numpy's rule: aligned at the last dim, sizes equal or 1. Throws Error naming `op`.
Shape broadcast(const Shape& a, const Shape& b, std::string_view op);
bool broadcastable(const Shape& from, const Shape& to);
// Strides of `from` read at the indices of `to` (0 where broadcast).
std::vector<int64_t> broadcast_strides(const Shape& from, const Shape& to);

// dtype and shape of a tensor.
struct Type {
  DType dtype = DType::f32;
  Shape shape;
  int64_t bytes() const { return shape.numel() * size_of(dtype); }
  bool operator==(const Type&) const = default;
};

std::string type_text(const Type& t);  // "f32[2,3]"
std::ostream& operator<<(std::ostream& out, const Type& t);
Type parse_type(std::string_view text);  // as type_text() gives it; throws Error

}  // namespace ebb

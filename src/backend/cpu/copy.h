// Strided copies: the one loop behind every op that only moves data.
#pragma once

#include <cstdint>
#include <vector>

#include "core/shape.h"

namespace ebb::cpu {

// to[i . to_strides] = from[i . from_strides] for every index i of a box; elements are opaque.
// No element of `to` may be written twice.
class StridedCopy {
 public:
  struct Dim {
    int64_t size = 0, from = 0, to = 0;  // strides in elements
  };
  StridedCopy(std::vector<Dim> dims, int64_t element_bytes);
  void run(const void* from, void* to) const;

 private:
  template <class T>
  void run_elements(const T* from, T* to) const;
  void run_rows(const char* from, char* to) const;

  std::vector<Dim> outer_;  // outermost first
  Dim column_;              // innermost in `to`
  Dim row_{1, 0, 0};        // next; innermost in `from` where that is another dim
  int64_t element_ = 0, outer_size_ = 1;
  bool contiguous_ = false;  // columns are unit-stride on both sides
};

// The dims of a box of `sizes` in two arrays with these strides.
std::vector<StridedCopy::Dim> copy_dims(const Shape& sizes, const std::vector<int64_t>& from,
                                        const std::vector<int64_t>& to);

}  // namespace ebb::cpu

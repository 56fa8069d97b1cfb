// Parameters: the parameter struct of a kernel on the host, and what goes into it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace ebb::codegen {

// Offsets of the struct's fields, and the struct itself.
class Parameters {
 public:
  int64_t add(int64_t size) {  // bytes; also its alignment
    bytes_.resize((bytes_.size() + static_cast<size_t>(size) - 1) / static_cast<size_t>(size) *
                      static_cast<size_t>(size) +
                  static_cast<size_t>(size));
    return static_cast<int64_t>(bytes_.size()) - size;
  }
  template <class T>
  int64_t add_value(T value) {
    const int64_t at = add(sizeof(T));
    set(at, value);
    return at;
  }
  template <class T>
  void set(int64_t offset, T value) {
    std::copy_n(reinterpret_cast<const char*>(&value), sizeof(T), bytes_.begin() + offset);
  }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  void* data() { return bytes_.data(); }

 private:
  std::vector<char> bytes_;
};

// Division of numbers below 2^31 by a number that only the host knows: (2 n * multiplier) / 2^32 >>
// shift.
struct Reciprocal {
  uint32_t multiplier = 0, shift = 0;
  explicit Reciprocal(int64_t d) {
    require(d > 0 && d < int64_t{1} << 31, "divisor: must be in [1, 2^31) (got ", d, ")");
    shift = static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(d - 1)));
    multiplier =
        static_cast<uint32_t>((uint64_t{1} << (31 + shift)) / static_cast<uint64_t>(d) + 1);
  }
};

}  // namespace ebb::codegen

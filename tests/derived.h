// What the derived tests share: the cases, their inputs, and guarded memory.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"
#include "ir/kernel.h"
#include "ir/op.h"
#include "reference.h"

namespace ebb::test {

// One op on one example, all its float inputs of one dtype where that is not f32.
struct Case {
  const OpDef* op = nullptr;
  Example example;
  DType dtype = DType::f32;
  const Kernel* kernel = nullptr;  // of kernel cases

  std::string name() const;     // op__example[__dtype__kernel]
  Signature signature() const;  // with output types
};

void PrintTo(const Case& c, std::ostream* out);  // for failures

std::vector<Case> all_cases();     // every op x example that is no bench case
std::vector<Case> kernel_cases();  // x dtype x kernel that supports it

// The inputs: a function of the case's name. Floats are uniform in [low, high), rounded through
// their dtype; integers in [0, integers).
std::vector<RefArray> inputs_of(const Case& c);
// Uniform in [-1, 1), a function of `key`.
std::vector<double> noise(size_t count, std::string_view key);

// A host device without any backend behind it, for kernels that only ask for its name.
Device& test_device();

// Host memory with guards before and after, at `offset` bytes from a 64-byte boundary.
class Guarded {
 public:
  explicit Guarded(int64_t bytes, int64_t offset = 0);  // poisoned with 0xff: NaN in every float
  void* data() { return memory_.data() + first_; }
  const void* data() const { return memory_.data() + first_; }
  int64_t bytes() const { return bytes_; }
  bool intact() const;  // the guards hold what they held at first
  bool operator==(const Guarded& o) const;

 private:
  std::vector<unsigned char> memory_;
  int64_t bytes_, first_;
};

Guarded stored(const RefArray& a, DType dtype, int64_t offset = 0);
RefArray loaded(const Guarded& memory, const Type& type);

}  // namespace ebb::test

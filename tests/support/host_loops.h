// Runs generated loops on the host and compares each result with what it should be.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "codegen/loops/loop_kernel.h"
#include "codegen/registers.h"
#include "core/dtype.h"
#include "ir/expr.h"
#include "ir/iteration_space.h"
#include "support/kernel_interpreter.h"

namespace ebb::codegen {

// Numbers of a dtype in memory that is aligned to 16 bytes (or, unaligned, to an element).
class Buffer {
 public:
  Buffer(DType dtype, int64_t count, bool unaligned = false)
      : dtype_(dtype), count_(count), bytes_(static_cast<size_t>(count * size_of(dtype) + 64)) {
    const auto at = reinterpret_cast<uintptr_t>(bytes_.data());
    data_ = bytes_.data() + (16 - at % 16) % 16 + (unaligned ? size_of(dtype) : 0);
  }
  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&&) = default;
  // Values about 1 in size, different for each seed.
  static Buffer random(DType dtype, int64_t count, int seed, bool unaligned = false) {
    Buffer b(dtype, count, unaligned);
    for (int64_t i = 0; i < count; ++i)
      b.set(i, std::sin(0.7 * static_cast<double>(i * i % 1013) + seed) + 0.2 * seed);
    return b;
  }
  Buffer copy() const {
    Buffer b(dtype_, count_,
             data_ != bytes_.data() && reinterpret_cast<uintptr_t>(data_) % 16 != 0);
    for (int64_t i = 0; i < count_; ++i) b.set(i, get(i));
    return b;
  }
  void* data() { return data_; }
  int64_t count() const { return count_; }
  double get(int64_t i) const {
    return visit_dtype(dtype_, [&](auto zero) {
      std::memcpy(&zero, data_ + i * size_of(dtype_), sizeof zero);
      return static_cast<double>(static_cast<float>(zero));
    });
  }
  void set(int64_t i, double v) {
    visit_dtype(dtype_, [&](auto zero) {
      zero = static_cast<decltype(zero)>(static_cast<float>(v));
      std::memcpy(data_ + i * size_of(dtype_), &zero, sizeof zero);
    });
  }
  DType dtype() const { return dtype_; }

 private:
  DType dtype_;
  int64_t count_;
  std::vector<char> bytes_;
  char* data_ = nullptr;
};

// Of a result of n sums in a dtype.
inline double tolerance(DType dtype, double size) {
  return (dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 2e-3 : 1.2e-2) * std::max(1.0, size);
}

// Runs a kernel both ways, and expects of each what `want` gives for output k, element i.
inline void expect_results(const Kernel& kernel, void* parameters, testing::HostLaunch launch,
                           std::vector<Buffer>& out,
                           const std::function<double(size_t, int64_t)>& want) {
  const SharedRegisters shared(kernel);
  for (const bool registers : {false, true}) {
    for (Buffer& b : out)
      for (int64_t i = 0; i < b.count(); ++i) b.set(i, 777);
    launch.same_as = registers ? &shared.same_as : nullptr;
    launch.vanishes = registers ? &shared.vanishes : nullptr;
    testing::interpret(kernel, parameters, launch);
    for (size_t k = 0; k < out.size(); ++k)
      for (int64_t i = 0; i < out[k].count(); ++i) {
        const double w = want(k, i), got = out[k].get(i);
        ASSERT_NEAR(got, w, tolerance(out[k].dtype(), std::abs(w)))
            << "output " << k << ", element " << i << (registers ? ", registers" : "");
      }
  }
}

// The same for the loops whose parameters are pointers.
inline void expect_results(LoopKernel& made, std::vector<Buffer>& in, std::vector<Buffer>& out,
                           testing::HostLaunch launch,
                           const std::function<double(size_t, int64_t)>& want) {
  std::vector<void*> all;
  for (const size_t i : made.used) all.push_back(in[i].data());
  for (Buffer& b : out) all.push_back(b.data());
  ASSERT_EQ(all.size(), made.pointers.size());
  for (size_t k = 0; k < all.size(); ++k) made.parameters.set(made.pointers[k], all[k]);
  launch.threads = made.threads;
  expect_results(made.kernel, made.parameters.data(), launch, out, want);
}

inline std::vector<double> evaluated(const Expr& e, const std::vector<double>& x) {
  std::vector<double> y(e.results().size());
  e.evaluate(x, y);
  return y;
}

// Element `at` of the last dim as an operand with swapped runs reads it; 0: it is not swapped.
inline int64_t swapped(int64_t at, int64_t run) {
  if (run == 0) return at;
  return at / run % 2 == 0 ? at + run : at - run;
}

// The element of tensor i at flat index `at` of the space.
inline double element(const IterationSpace& space, size_t i, const Buffer& b, int64_t at) {
  int64_t offset = 0;
  for (size_t d = space.sizes.size(); d-- > 0;) {
    offset += at % space.sizes[d] * space.strides[i][d];
    at /= space.sizes[d];
  }
  return b.get(offset);
}

}  // namespace ebb::codegen

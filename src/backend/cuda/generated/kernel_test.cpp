// Prepared launches: where the addresses of a run go.
#include "backend/cuda/generated/kernel.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/error.h"
#include "support/allocations.h"

namespace ebb::cuda {
namespace {

// A kernel with a number and the addresses of operand 1 and of a result.
codegen::LoopKernel use_of(uint32_t number, int64_t blocks) {
  codegen::LoopKernel k;
  k.pointers.push_back(k.parameters.add_value(uint64_t{0}));
  k.parameters.add_value(number);
  k.pointers.push_back(k.parameters.add_value(uint64_t{0}));
  k.used = {1};
  k.blocks = blocks;
  return k;
}

template <class T>
T read(const std::array<char, 128>& from, int64_t at) {
  T v{};
  std::memcpy(&v, from.data() + at, sizeof v);
  return v;
}

TEST(prepared_launch, addresses__are_those_of_the_run_and_how_far_operands_begin_in_them) {
  codegen::LoopKernel uses[] = {use_of(7, 3), use_of(9, 4)};
  const codegen::SlicesForm slices{.pitch = {{}, {8, 16}}, .begin = {0, 8}};
  AddressCounter counter;
  Addresses addresses[2];
  for (Addresses& a : addresses) a = counter.next({1, 1}, slices, {DType::f32, DType::bf16}, 1);
  const PreparedLaunch launch = prepared_launch("test", uses, addresses);
  EXPECT_EQ(launch.shape.grid.x, 7u);
  std::array<char, 4> tensors{};
  const auto tensor = [&](size_t k) { return static_cast<void*>(tensors.data() + k); };
  void* const in[] = {tensor(0), tensor(1), tensor(2), tensor(3)};
  void* const out[] = {tensor(2), tensor(0)};
  std::array<char, 128> parameters{};
  const int64_t before = testing::allocations();
  launch.fill(parameters, in, out);
  EXPECT_EQ(testing::allocations(), before);
  EXPECT_GT(before, 0) << "they are counted";
  for (int u = 0; u < 2; ++u) {
    const int64_t at = codegen::SharedLaunch::use_at(u, 2, uses[0].parameters.size());
    EXPECT_EQ(read<char*>(parameters, at), static_cast<char*>(in[2 * u + 1]) + 16) << u;
    EXPECT_EQ(read<uint32_t>(parameters, at + 8), u == 0 ? 7u : 9u);
    EXPECT_EQ(read<void*>(parameters, at + 16), out[u]);
  }
  EXPECT_THROW(launch.fill(parameters, std::span(in).first(3), out), Error);
}

TEST(prepared_launch, uses_of_other_kernels__are_refused) {
  codegen::LoopKernel uses[] = {use_of(7, 3), use_of(9, 4)};
  uses[1].kernel.threads = 128;
  const Addresses addresses[2] = {};
  EXPECT_THROW(prepared_launch("test", uses, addresses), Error);
}

}  // namespace
}  // namespace ebb::cuda

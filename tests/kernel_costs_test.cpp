// Kernel::cost: what prefers one of several kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends.h"
#include "derived.h"
#include "ops/prim/attention_grad/op.h"
#include "runtime/context.h"
#include "runtime/supporting_kernels.h"

namespace ebb::test::kernel_costs_test {
namespace {

std::vector<Context> devices() {
  std::vector<Context> all = {open_context("cpu")};
  if (!only("cuda").empty()) all.push_back(open_context("cuda:h200"));
  return all;
}

TEST(kernel_costs, of_all_ops_examples__are_times_and_order_the_kernels) {
  for (const Context& context : devices()) {
    const Device& device = *context.device;
    SupportingKernels kernels(device);
    int64_t several = 0;
    for (const Case& c : kernel_cases(std::string(device.backend()))) {
      const Signature s = c.signature();
      const std::vector<const Kernel*>& all = kernels.of(s);
      if (all.size() < 2) continue;
      ++several;
      double before = 0;
      for (const Kernel* k : all) {
        const double us = k->cost(s, device);
        EXPECT_TRUE(std::isfinite(us) && us >= before) << k->name << ' ' << us << "  " << s.text();
        before = us;
      }
    }
    EXPECT_GT(several, 0) << device.description();
  }
}

// Of queries, keys and heads of a width.
std::string gradient_kernel(SupportingKernels& kernels, int64_t t, int64_t s, int64_t heads,
                            int64_t width) {
  const auto bf16 = [](Shape shape) { return Type{DType::bf16, std::move(shape)}; };
  const Type q = bf16({8, t, heads, width}), k = bf16({8, s, heads, width});
  const OpDef& op = ops::def::attention_grad();
  Signature use{&op, op.attrs(), {q, k, k, q, {DType::f32, {8, heads, t}}, q}, {}, ""};
  use.out = op.infer(use);
  return std::string(kernels.of(use).at(0)->name);
}

TEST(kernel_costs, gradient_of_attention__is_chosen_by_its_size) {
  if (only("cuda").empty()) GTEST_SKIP() << "built without CUDA";
  const Context context = open_context("cuda:h200");
  SupportingKernels kernels(*context.device);
  const auto kernel = [&](int64_t t, int64_t s, int64_t heads, int64_t width) {
    return gradient_kernel(kernels, t, s, heads, width);
  };
  EXPECT_EQ(kernel(64, 64, 12, 64), "attention_grad_sm90_head");  // a head in shared memory
  EXPECT_EQ(kernel(256, 77, 20, 64), "attention_grad_sm90_head");
  EXPECT_EQ(kernel(64, 64, 16, 72), "attention_grad_tiles");  // half of a block of keys
  EXPECT_EQ(kernel(256, 256, 16, 72), "attention_grad_sm90");
  EXPECT_EQ(kernel(1024, 77, 20, 64), "attention_grad_sm90");
  EXPECT_EQ(kernel(128, 1024, 8, 128), "attention_grad_sm90");
  EXPECT_EQ(kernel(128, 8192, 8, 128), "attention_grad_tiles");  // blocks of keys would queue up
  EXPECT_EQ(kernel(1024, 1024, 8, 160), "attention_grad_tiles");
  EXPECT_EQ(kernel(1024, 1024, 1, 512), "attention_grad_gemms");
}

}  // namespace
}  // namespace ebb::test::kernel_costs_test

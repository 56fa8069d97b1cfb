// Operators of PyTorch against a stand-in for torch's C functions: arguments, results, errors, and
// that every handle is freed.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "functions/attributes.h"
#include "support/stand_in_torch.h"
#include "torch/devices.h"
#include "torch/register.h"

namespace ebb::torch {
namespace {

// The stand-in's own functions, of the library that was loaded by its path.
template <class F>
F* of_stand_in(const char* name) {
  static void* const library = dlopen(EBB_STAND_IN_TORCH, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<F*>(dlsym(library, name));
}

class TorchOperators : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!of_stand_in<void>("stand_in_alive")) GTEST_SKIP() << dlerror();
    static const bool registered = (register_functions("ebb_kernels", "CPU"), true);
    ASSERT_TRUE(registered);
    before_ = alive();
  }
  void TearDown() override { EXPECT_EQ(alive(), before_) << "handles that were not deleted"; }

  static int64_t alive() { return of_stand_in<int64_t()>("stand_in_alive")(); }
  static TensorHandle tensor(const std::vector<int64_t>& sizes, float first = 0,
                             int32_t device = 0) {
    TensorHandle t = of_stand_in<decltype(stand_in_tensor)>("stand_in_tensor")(
        &sizes, shim().dtype_f32(), device);
    int64_t count = 1;
    for (const int64_t s : sizes) count *= s;
    for (int64_t i = 0; i < count; ++i) data(t)[i] = first + static_cast<float>(i);
    return t;
  }
  static float* data(TensorHandle t) {
    return of_stand_in<decltype(stand_in_data)>("stand_in_data")(t);
  }
  static StackValue text(const char* s) {
    return stack_value(of_stand_in<decltype(stand_in_string)>("stand_in_string")(s));
  }
  // A copy of the handle as torch gives it: the kernel owns it.
  static StackValue optional(TensorHandle t) {
    return t ? stack_value(new StackValue(stack_value(t))) : StackValue{0};
  }
  static void run(const char* name, std::vector<StackValue>& stack) {
    BoxedKernel kernel = of_stand_in<decltype(stand_in_kernel)>("stand_in_kernel")(name);
    ASSERT_NE(kernel, nullptr) << name;
    kernel(stack.data(), stack.size(), 1);
  }
  static std::string error_of(const char* name, std::vector<StackValue> stack) {
    try {
      run(name, stack);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "";
  }
  // Operands of add_norm: x, a branch, no others, and attributes.
  static std::vector<StackValue> add_norm() {
    return {stack_value(tensor({2, 4}, 1)),
            stack_value(tensor({2, 4}, 2)),
            0,
            0,
            0,
            0,
            0,
            text("rms"),
            stack_value(1e-6),
            stack_value(0.0),
            text("once"),
            text("")};
  }
  static void drop(TensorHandle t) { shim().delete_tensor(t); }

 private:
  int64_t before_ = 0;
};

double norm_at(const std::vector<float>& row, size_t i) {
  double sum = 0;
  for (const float v : row) sum += double{v} * v;
  return row[i] / std::sqrt(sum / static_cast<double>(row.size()) + 1e-6);
}

std::vector<StackValue> rms_norm_arguments(TensorHandle x, StackValue weight, StackValue rounding,
                                           StackValue dtype) {
  return {stack_value(x), weight, 0, stack_value(1e-6), stack_value(0.0), rounding, dtype};
}

TEST_F(TorchOperators, rms_norm__reads_its_arguments_and_gives_a_tensor) {
  std::vector<StackValue> stack =
      rms_norm_arguments(tensor({2, 4}, 1), optional(tensor({4}, 1)), text("once"), text(""));
  run("rms_norm", stack);
  const auto y = as<TensorHandle>(stack[0]);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(data(y)[4 + i], norm_at({5, 6, 7, 8}, i) * (1.0 + static_cast<double>(i)), 1e-5);
  drop(y);
}

TEST_F(TorchOperators, a_number__stands_for_attributes) {
  using T = std::string;
  const int64_t number = functions::number_of(functions::find_function("rms_norm"),
                                              functions::Attributes({1e-6, 0.0, T("once"), T()}));
  std::vector<StackValue> stack = {stack_value(tensor({2, 4}, 1)), optional(tensor({4}, 1)), 0,
                                   stack_value(number)};
  run("rms_norm_numbered", stack);
  const auto y = as<TensorHandle>(stack[0]);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(data(y)[4 + i], norm_at({5, 6, 7, 8}, i) * (1.0 + static_cast<double>(i)), 1e-5);
  drop(y);
  stack = {stack_value(tensor({2, 4}, 1)), optional(tensor({4}, 1)), 0, stack_value(int64_t{-1})};
  EXPECT_NE(error_of("rms_norm_numbered", stack).find("there are no attributes -1"), T::npos);
}

TEST_F(TorchOperators, what_lies_in_a_way_that_kernels_do_not_read__is_copied) {
  // Rows that overlap: element (r, c) is r + c.
  TensorHandle x = tensor({2, 4}, 1);
  const std::vector<int64_t> strides = {1, 1};
  of_stand_in<decltype(stand_in_set_strides)>("stand_in_set_strides")(x, &strides);
  std::vector<StackValue> stack = rms_norm_arguments(x, 0, text("once"), text(""));
  run("rms_norm", stack);
  const auto y = as<TensorHandle>(stack[0]);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(data(y)[4 + i], norm_at({2, 3, 4, 5}, i), 1e-5);
  drop(y);
  // An address that is no multiple of 16 bytes.
  x = tensor({8}, 0);
  of_stand_in<decltype(stand_in_move_data)>("stand_in_move_data")(x, 4);
  for (int i = 0; i < 8; ++i) data(x)[i] = static_cast<float>(i);
  stack = rms_norm_arguments(x, 0, text("once"), text(""));
  run("rms_norm", stack);
  const auto z = as<TensorHandle>(stack[0]);
  for (size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(data(z)[i], norm_at({0, 1, 2, 3, 4, 5, 6, 7}, i), 1e-5);
  drop(z);
}

TEST_F(TorchOperators, gradients__are_a_list_of_those_that_are_needed) {
  const int64_t x_and_weight = 3;
  std::vector<StackValue> stack = {optional(tensor({2, 4}, 1)),
                                   stack_value(tensor({2, 4}, 1)),
                                   optional(tensor({4}, 1)),
                                   0,
                                   stack_value(1e-6),
                                   stack_value(0.0),
                                   text("once"),
                                   text(""),
                                   stack_value(x_and_weight)};
  run("rms_norm_backward", stack);
  const auto list = as<ListHandle>(stack[0]);
  size_t size = 0;
  shim().list_size(list, &size);
  EXPECT_EQ(size, 2U);
  shim().delete_list(list);
}

TEST_F(TorchOperators, lists_of_tensors__are_operands) {
  ListHandle list = nullptr;
  shim().new_list(2, &list);
  shim().list_push_back(list, stack_value(tensor({2, 4}, 1)));
  shim().list_push_back(list, stack_value(tensor({4}, 1)));
  std::vector<StackValue> stack = {stack_value(list), text("2 * a + b"), text("a,b"), text("")};
  run("map", stack);
  const auto y = as<TensorHandle>(stack[0]);
  EXPECT_EQ(data(y)[5], 2 * 6 + 2);
  drop(y);
}

TEST_F(TorchOperators, several_results__are_put_in_order) {
  std::vector<StackValue> stack = add_norm();
  run("add_norm", stack);
  EXPECT_EQ(data(as<TensorHandle>(stack[1]))[3], 4 + 5);
  EXPECT_NEAR(data(as<TensorHandle>(stack[0]))[3], norm_at({3, 5, 7, 9}, 3), 1e-5);
  drop(as<TensorHandle>(stack[0]));
  drop(as<TensorHandle>(stack[1]));
}

TEST_F(TorchOperators, results__are_freed_where_a_later_one_fails) {
  const auto failing = [](int64_t after, const char* name, std::vector<StackValue> stack) {
    of_stand_in<decltype(stand_in_fail_after)>("stand_in_fail_after")(after);
    return error_of(name, std::move(stack));
  };
  const auto gradients_of_no_elements = [] {
    return std::vector<StackValue>{optional(tensor({0, 4})),
                                   stack_value(tensor({0, 4})),
                                   optional(tensor({4}, 1)),
                                   0,
                                   stack_value(1e-6),
                                   stack_value(0.0),
                                   text("once"),
                                   text(""),
                                   stack_value(int64_t{3})};
  };
  for (const int64_t after : {0, 1})
    EXPECT_NE(failing(after, "add_norm", add_norm()).find("allocating a tensor"),
              std::string::npos);
  // A tensor, its zeros, the next one.
  for (const int64_t after : {0, 2})
    EXPECT_NE(
        failing(after, "rms_norm_backward", gradients_of_no_elements()).find("allocating a tensor"),
        std::string::npos);
  for (const int64_t after : {1, 3})
    EXPECT_NE(failing(after, "rms_norm_backward", gradients_of_no_elements()).find("writing zeros"),
              std::string::npos);
}

TEST_F(TorchOperators, in_place__changes_the_operands) {
  TensorHandle p = tensor({4}, 1), kept = nullptr;
  shim().empty_strided(0, nullptr, nullptr, shim().dtype_f32(), 0, -1, &kept);
  drop(kept);
  const std::vector<int64_t> four = {4};
  TensorHandle numbers = tensor(four);
  const float values[] = {0.1F, 0.1F, 0.001F, 1};  // of the first step
  for (int i = 0; i < 4; ++i) data(numbers)[i] = values[i];
  ListHandle list = nullptr;  // keeps p alive: list items are copies that share its memory
  shim().new_list(1, &list);
  shim().list_push_back(list, stack_value(p));
  StackValue mine = 0;
  shim().list_item(list, 0, &mine);
  TensorHandle m = tensor(four), v = tensor(four);
  for (int i = 0; i < 4; ++i) data(m)[i] = data(v)[i] = 0;
  std::vector<StackValue> stack = {mine,
                                   stack_value(m),
                                   stack_value(v),
                                   stack_value(tensor({4}, 1)),
                                   stack_value(numbers),
                                   stack_value(0.9),
                                   stack_value(0.999),
                                   stack_value(1e-8),
                                   stack_value(0.0)};
  run("adamw", stack);
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(data(p)[i], static_cast<float>(i) + 1 - 0.1F, 1e-4) << "a step of the rate";
  shim().delete_list(list);
}

TEST_F(TorchOperators, no_elements__give_zeros) {
  std::vector<StackValue> stack = {optional(tensor({0, 4})),
                                   stack_value(tensor({0, 4})),
                                   optional(tensor({4}, 1)),
                                   0,
                                   stack_value(1e-6),
                                   stack_value(0.0),
                                   text("once"),
                                   text(""),
                                   stack_value(int64_t{2})};
  run("rms_norm_backward", stack);
  const auto list = as<ListHandle>(stack[0]);
  StackValue item = 0;
  shim().list_item(list, 0, &item);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(data(as<TensorHandle>(item))[i], 0);
  drop(as<TensorHandle>(item));
  shim().delete_list(list);
}

TEST_F(TorchOperators, wrong_operands__are_errors_that_name_them) {
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error_of("rms_norm",
               rms_norm_arguments(tensor({2, 4}), optional(tensor({3})), text("once"), text(""))),
      "weight must be [4] (got [3])");
  has(error_of("rms_norm", rms_norm_arguments(tensor({2, 4}), optional(tensor({4}, 0, 1)),
                                              text("once"), text(""))),
      "'weight' is on another device");
  has(error_of("rms_norm", rms_norm_arguments(tensor({2, 4}), 0, text("twice"), text(""))),
      "rounding must be once, diffusers or llama (got 'twice')");
}

TEST_F(TorchOperators, the_default_stream__is_not_recorded) {
  for (const int32_t index : {0, 1})
    EXPECT_FALSE((TorchDevice{shim().device_type_cuda(), index}.records(nullptr)))
        << "whichever device is the current one";
  EXPECT_FALSE((TorchDevice{shim().device_type_cpu(), -1}.records(nullptr)));
}

TEST(TorchShim, no_torch__is_an_error) {
  // In this process the stand-in may be loaded already; then there is nothing to see.
  if (dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD)) GTEST_SKIP() << "loaded by another test";
  EXPECT_THROW(shim(), Error);
}

}  // namespace
}  // namespace ebb::torch

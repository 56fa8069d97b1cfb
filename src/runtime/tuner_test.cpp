#include "runtime/tuner.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/version.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/table.h"
#include "runtime/context.h"
#include "support/files.h"

namespace ebb {
namespace {

Signature example() {
  Signature s{&ops::def::conv2d_dx(),
              ops::Conv2dDx{1, {1, 1, 1, 1}, {8, 8}, ""},
              {{DType::f32, {2, 8, 8, 16}}, {DType::f32, {16, 3, 3, 16}}},
              {},
              ""};
  s.out = s.op->infer(s);
  return s;
}

TEST(tuner, choice__is_measured_once_and_kept_in_the_file) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  const Context context = open_context("cpu", {.threads = 1});
  const Kernel& kernel = *kernels_of("conv2d_dx", "cpu")[0];
  Tuner first(path);
  const Tune chosen = first.choose(kernel, example(), *context.device);
  EXPECT_EQ(first.measured(), 1);
  first.save();
  Tuner second(path);
  EXPECT_EQ(second.choose(kernel, example(), *context.device), chosen);
  EXPECT_EQ(second.measured(), 0);
  EXPECT_NE(testing::file_bytes(path).find("conv2d_dx_onednn | conv2d_dx f32[2,8,8,16]"),
            std::string::npos);
}

TEST(tuner, edited_line__is_obeyed_and_an_unknown_one_measured_anew) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  const Context context = open_context("cpu", {.threads = 1});
  const Kernel& kernel = *kernels_of("conv2d_dx", "cpu")[0];
  const std::string key = str("ebb ", version, ", ", context.device->description(), " | ",
                              kernel.name, " | ", example().text(), " | ");
  testing::put_file(path, key + "turn=1 | 1.0 us\n");
  Tuner obeyed(path);
  EXPECT_EQ(tune_text(obeyed.choose(kernel, example(), *context.device)), "turn=1");
  EXPECT_EQ(obeyed.measured(), 0);
  testing::put_file(path, key + "turn=7 | 1.0 us\n");
  Tuner anew(path);
  anew.choose(kernel, example(), *context.device);
  EXPECT_EQ(anew.measured(), 1);
}

TEST(tuner, broken_line__is_named) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  testing::put_file(path, "# fine\nnot a line\n");
  testing::expect_error([&] { Tuner t(path); }, "tuner: line 2 must have five parts");
}

}  // namespace
}  // namespace ebb

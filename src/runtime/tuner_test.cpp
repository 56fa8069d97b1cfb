#include "runtime/tuner.h"

#include <gtest/gtest.h>

#include "base/error.h"
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
  const std::vector<const Kernel*> kernels = {kernels_of("conv2d_dx", "cpu")[0]};
  Tuner first(path, Tuner::Effort::fast);
  const Choice chosen = first.choose(kernels, example(), *context.device);
  EXPECT_EQ(first.measured(), 1);
  first.save();
  Tuner second(path, Tuner::Effort::fast);
  EXPECT_EQ(choice_text(second.choose(kernels, example(), *context.device)), choice_text(chosen));
  EXPECT_EQ(second.measured(), 0);
  EXPECT_NE(testing::file_bytes(path).find(" | conv2d_dx f32[2,8,8,16]"), std::string::npos);
}

TEST(tuner, edited_line__is_obeyed_and_an_unknown_one_measured_anew) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  const Context context = open_context("cpu", {.threads = 1});
  const std::vector<const Kernel*> kernels = {kernels_of("conv2d_dx", "cpu")[0]};
  const std::string key = str(tuning_key(*context.device, example()), " | ", kernels[0]->name, " ");
  testing::put_file(path, key + "turn=1 | 1.0 us\n");
  Tuner obeyed(path, Tuner::Effort::fast);
  EXPECT_EQ(choice_text(obeyed.choose(kernels, example(), *context.device)),
            str(kernels[0]->name, " turn=1"));
  EXPECT_EQ(obeyed.measured(), 0);
  testing::put_file(path, key + "turn=7 | 1.0 us\n");
  Tuner anew(path, Tuner::Effort::fast);
  anew.choose(kernels, example(), *context.device);
  EXPECT_EQ(anew.measured(), 1);
}

TEST(tuner, preset__serves_unless_all_is_to_be_measured) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  const Context context = open_context("cpu", {.threads = 1});
  const std::vector<const Kernel*> kernels = {kernels_of("conv2d_dx", "cpu")[0]};
  const std::string key = tuning_key(*context.device, example());
  testing::put_file(path, str("preset", key.substr(key.find(',')), " | ", kernels[0]->name,
                              " turn=1 | 1.0 us\n"));
  using Effort = Tuner::Effort;
  for (const auto& [effort, measured] :
       {std::pair{Effort::none, 0}, {Effort::fast, 0}, {Effort::full, 1}}) {
    Tuner t(path, effort);
    const Choice c = t.choose(kernels, example(), *context.device);
    EXPECT_EQ(t.measured(), measured);
    if (measured == 0) {
      EXPECT_EQ(choice_text(c), str(kernels[0]->name, " turn=1"));
    }
  }
}

TEST(tuner, no_candidate_that_runs__says_why) {
  const Kernel lost{.op = "conv2d_dx",
                    .name = "lost",
                    .supports = +[](const Signature&, const Device&) { return true; },
                    .prepare = +[](const Signature&, const Tune&, Device&) -> Program {
                      fail("far: the device failed");
                    },
                    .space =
                        +[](const Signature&, const Device&) {
                          return std::vector<Tune>{{{{"turn", 0}}}, {{{"turn", 1}}}};
                        }};
  const std::vector<const Kernel*> kernels = {&lost};
  Tuner tuner("", Tuner::Effort::fast);
  testing::expect_error(
      [&] { tuner.choose(kernels, example(), *open_context("cpu", {.threads = 1}).device); },
      "tuner: no candidate runs (far: the device failed)  conv2d_dx");
}

TEST(tuner, broken_line__is_named) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  testing::put_file(path, "# fine\nnot a line\n");
  testing::expect_error([&] { Tuner t(path, Tuner::Effort::fast); },
                        "tuner: line 2 must have four parts");
}

}  // namespace
}  // namespace ebb

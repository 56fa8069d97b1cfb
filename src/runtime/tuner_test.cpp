#include "runtime/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "core/out_of_memory.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/table.h"
#include "runtime/context.h"
#include "runtime/plan.h"
#include "runtime/prepare_use.h"
#include "support/far_device.h"
#include "support/files.h"

namespace ebb {
namespace {

Signature example() {
  Signature s{&ops::def::conv2d_dx(),
              ops::Conv2dDx{1, {1, 1, 1, 1}, {8, 8}},
              {{DType::f32, {2, 8, 8, 16}}, {DType::f32, {16, 3, 3, 16}}},
              {},
              ""};
  s.out = s.op->infer(s);
  return s;
}

Choice choose(Tuner& tuner, const std::vector<const Kernel*>& kernels, const Context& context) {
  const Use use{kernels, example()};
  return tuner.choose({&use, 1}, *context.device)[0];
}

TEST(tuner, choice__is_measured_once_and_kept_in_the_file) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  const Context context = open_context("cpu", {.threads = 1});
  const std::vector<const Kernel*> kernels = {kernels_of("conv2d_dx", "cpu")[0]};
  Tuner first(path, Tuner::Effort::fast);
  const Choice chosen = choose(first, kernels, context);
  EXPECT_EQ(first.measured(), 1);
  first.save();
  Tuner second(path, Tuner::Effort::fast);
  EXPECT_EQ(choice_text(choose(second, kernels, context)), choice_text(chosen));
  EXPECT_EQ(second.measured(), 0);
  EXPECT_NE(testing::file_bytes(path).find(" | conv2d_dx f32[2,8,8,16]"), std::string::npos);
}

TEST(tuner, choices_of_another_rank__come_before_its_own) {
  const testing::Folder folder;
  const Context context = open_context("cpu", {.threads = 1});
  const Kernel* const kernel = kernels_of("conv2d_dx", "cpu")[0];
  const std::string key = str(tuning_key(*context.device, example()), " | ", kernel->name, " ");
  const std::string own = folder / "own.txt", of_rank_0 = folder / "of_rank_0.txt";
  testing::put_file(own, key + "turn=0 | 1.0 us\n");
  testing::put_file(of_rank_0, key + "turn=1 | 1.1 us\nebb 0, other device | x | y | 1.0 us\n");
  Tuner tuner(own, Tuner::Effort::fast);
  const std::string lines = Tuner(of_rank_0, Tuner::Effort::fast).choices_for(*context.device);
  EXPECT_EQ(lines, key + "turn=1 | 1.1 us\n");
  EXPECT_TRUE(tuner.adopt(lines));
  EXPECT_EQ(choice_text(choose(tuner, {kernel}, context)), str(kernel->name, " turn=1"));
  EXPECT_FALSE(tuner.adopt(lines));
  Tuner next(own, Tuner::Effort::fast);  // what the next run reads
  EXPECT_EQ(choice_text(choose(next, {kernel}, context)), str(kernel->name, " turn=1"));
  testing::expect_error([&] { tuner.adopt("no line"); }, "another rank's choices");
}

TEST(tuner, edited_line__is_obeyed_and_an_unknown_one_measured_anew) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  const Context context = open_context("cpu", {.threads = 1});
  const std::vector<const Kernel*> kernels = {kernels_of("conv2d_dx", "cpu")[0]};
  const std::string key = str(tuning_key(*context.device, example()), " | ", kernels[0]->name, " ");
  testing::put_file(path, key + "turn=1 | 1.0 us\n");
  Tuner obeyed(path, Tuner::Effort::fast);
  EXPECT_EQ(choice_text(choose(obeyed, kernels, context)), str(kernels[0]->name, " turn=1"));
  EXPECT_EQ(obeyed.measured(), 0);
  testing::put_file(path, key + "turn=7 | 1.0 us\n");
  Tuner anew(path, Tuner::Effort::fast);
  choose(anew, kernels, context);
  EXPECT_EQ(anew.measured(), 1);
}

TEST(tuner, preset__is_used_unless_all_is_to_be_measured) {
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
    const Choice c = choose(t, kernels, context);
    EXPECT_EQ(t.measured(), measured);
    if (measured == 0) {
      EXPECT_EQ(choice_text(c), str(kernels[0]->name, " turn=1"));
    }
  }
}

// All presets are of bf16.
TEST(tuner, preset_of_bf16__is_used_for_f16) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  const Context context = open_context("cpu", {.threads = 1});
  const Kernel kernel{.op = "conv2d_dx",
                      .name = "kernel",
                      .supports = +[](const Signature&, const Device&) { return true; },
                      .space =
                          +[](const Signature&, const Device&) {
                            return std::vector<Tune>{{{{"turn", 0}}}, {{{"turn", 1}}}};
                          }};
  const std::vector<const Kernel*> kernels = {&kernel};
  const auto of = [](DType dtype) {
    Signature s = example();
    for (Type& t : s.in) t.dtype = dtype;
    s.out = s.op->infer(s);
    return s;
  };
  const std::string key = tuning_key(*context.device, of(DType::bf16));
  testing::put_file(
      path, str("preset", key.substr(key.find(',')), " | ", kernel.name, " turn=1 | 1.0 us\n"));
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tuner tuner(path, Tuner::Effort::none);
    const Use use{kernels, of(dtype)};
    EXPECT_EQ(choice_text(tuner.choose({&use, 1}, *context.device)[0]), str(kernel.name, " turn=1"))
        << dtype;
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
  testing::expect_error([&] { choose(tuner, kernels, open_context("cpu", {.threads = 1})); },
                        "tuner: no candidate runs (far: the device failed)  conv2d_dx");
}

// Kernels that write down in which order they are prepared and run.
std::vector<std::string>& events() {
  static std::vector<std::string> all;
  return all;
}

Kernel noted_kernel() {
  return {.op = "pointwise",
          .name = "noted",
          .supports = +[](const Signature&, const Device&) { return true; },
          .prepare = +[](const Signature& s, const Tune& t, Device&) -> Program {
            const std::string what = str(s.in[0].shape[0], ":", t.value("turn", -1));
            events().push_back("prepare " + what);
            return {0, [what](const Call&) { events().push_back("run " + what); }};
          },
          .space =
              +[](const Signature&, const Device&) {
                std::vector<Tune> all;
                for (int i = 0; i < 20; ++i) all.push_back({{{"turn", i}}});
                return all;
              }};
}

Use pointwise_use(const Kernel& kernel, int64_t size, const Scalar& y) {
  Signature s{&ops::def::pointwise(),
              ops::Pointwise{.expr = Expr(1, {&y, 1})},
              {{DType::f32, {size}}},
              {},
              ""};
  s.out = s.op->infer(s);
  return {{&kernel}, s};
}

TEST(tuner, uses_of_a_plan__are_all_prepared_before_the_first_runs) {
  events().clear();
  const Kernel kernel = noted_kernel();
  const Scalar x = Scalar::input(0);
  const Use uses[] = {pointwise_use(kernel, 3, exp(x)), pointwise_use(kernel, 5, exp(x))};
  Tuner tuner("", Tuner::Effort::fast);
  tuner.choose(uses, *open_context("cpu", {.threads = 1}).device);
  const auto first_run =
      std::ranges::find_if(events(), [](const std::string& e) { return e.starts_with("run"); });
  const auto prepared = std::ranges::count_if(
      events(), [](const std::string& e) { return e.starts_with("prepare"); });
  EXPECT_EQ(first_run - events().begin(), prepared);
  EXPECT_EQ(tuner.measured(), 2);
}

TEST(tuner, fast__measures_the_likeliest_candidates_and_full_all) {
  const Kernel kernel = noted_kernel();
  const Use use = pointwise_use(kernel, 3, exp(Scalar::input(0)));
  const auto candidates = [&](Tuner::Effort effort) {
    Tuner tuner("", effort);
    tuner.choose({&use, 1}, *open_context("cpu", {.threads = 1}).device);
    return tuner.costs().candidates;
  };
  EXPECT_EQ(candidates(Tuner::Effort::fast), 6);
  EXPECT_EQ(candidates(Tuner::Effort::full), 20);
}

TEST(tuner, uses_that_differ_in_what_expressions_compute__share_a_choice) {
  const testing::Folder folder;
  const std::string path = folder / "tune.txt";
  const Context context = open_context("cpu", {.threads = 1});
  const Kernel kernel = noted_kernel();
  const Scalar x = Scalar::input(0);
  const Use uses[] = {pointwise_use(kernel, 3, exp(x)), pointwise_use(kernel, 3, log(x)),
                      pointwise_use(kernel, 3, exp(x)),
                      // much more work
                      pointwise_use(kernel, 3, exp(log(exp(log(exp(log(x)))))))};
  Tuner first(path, Tuner::Effort::fast);
  const auto chosen = first.choose(uses, *context.device);
  EXPECT_EQ(first.measured(), 2);
  EXPECT_EQ(choice_text(chosen[0]), choice_text(chosen[1]));
  first.save();
  Tuner second(path, Tuner::Effort::fast);
  const Use other = pointwise_use(kernel, 3, exp(x) + 1e-3);
  EXPECT_EQ(choice_text(second.choose({&other, 1}, *context.device)[0]), choice_text(chosen[0]));
  EXPECT_EQ(second.measured(), 0);
}

TEST(tuner, memory_too_short_to_measure__leaves_the_best_guess_and_a_note) {
  const Signature s = example();
  Graph g;
  const Value x = g.input("x", s.in[0]), w = g.input("w", s.in[1]);
  g.output("y", g.add(*s.op, s.attrs, std::vector{x, w})[0]);
  std::string said;
  const Context context{.device = std::make_shared<testing::FarDevice>(1000000),
                        .tuner = std::make_shared<Tuner>("", Tuner::Effort::full),
                        .log = [&](std::string_view line) { said += line; }};
  const Plan plan(g, context);
  EXPECT_TRUE(said.starts_with("tuner: measures nothing any more, as memory is short; ")) << said;
  EXPECT_EQ(context.tuner->measured(), 0);
  EXPECT_EQ(plan.steps().size(), 1u);
}

TEST(tuner, memory_too_short_for_a_candidate__is_no_fault_of_the_candidates) {
  const Kernel large{.op = "pointwise",
                     .name = "large",
                     .supports = +[](const Signature&, const Device&) { return true; },
                     .prepare = +[](const Signature&, const Tune&, Device&) -> Program {
                       throw OutOfMemory("large: out of memory");
                     },
                     .space =
                         +[](const Signature&, const Device&) {
                           return std::vector<Tune>{{{{"n", 0}}}, {{{"n", 1}}}};
                         }};
  const Use use = pointwise_use(large, 3, exp(Scalar::input(0)));
  const Context context = open_context("cpu", {.threads = 1});
  Tuner tuner("", Tuner::Effort::full);
  EXPECT_THROW(tuner.choose(std::vector{use}, *context.device), OutOfMemory);
  EXPECT_EQ(tuner.choose(std::vector{use}, *context.device).size(), 1u);  // measures no more
}

// What wins for one of several that are alike need not serve all of them.
TEST(tuner, choice_that_another_use_refuses__gives_way_to_its_own_candidate) {
  const Kernel picky{.op = "pointwise",
                     .name = "picky",
                     .supports = +[](const Signature&, const Device&) { return true; },
                     .prepare = +[](const Signature&, const Tune& t, Device&) -> Program {
                       const int64_t turn = t.value("turn", -1);
                       require(turn == 1, "picky: not aligned to ", turn);
                       return {};
                     },
                     .space =
                         +[](const Signature&, const Device&) {
                           return std::vector<Tune>{{{{"turn", 0}}}, {{{"turn", 1}}}};
                         }};
  const Use use = pointwise_use(picky, 3, exp(Scalar::input(0)));
  const Context context = open_context("cpu", {.threads = 1});
  const Choice winner{&picky, {{{"turn", 2}}}};
  EXPECT_EQ(choice_text(prepare_use(use, winner, *context.device).choice), "picky turn=1");
  Kernel worse = picky;
  worse.space = nullptr;
  const Use hopeless = pointwise_use(worse, 3, exp(Scalar::input(0)));
  testing::expect_error([&] { prepare_use(hopeless, winner, *context.device); },
                        "picky: not aligned to 2");
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

// A device that fails while it works, and one whose memory others hold. A process loses its device
// for good, so what befalls it runs in one of its own: in tests that are disabled and that the
// others start.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backends.h"
#include "ops/silu/op.h"
#include "support/program.h"
#include "support/toy_run.h"

namespace ebb::fault_test {
namespace {

using testing::checkpoint_bytes;
using testing::Folder;
using testing::Output;
using testing::toy_batch;
using testing::toy_config;
using testing::toy_job;

constexpr int64_t gigabyte = int64_t{1} << 30;

// y = silu(w)
Graph silu_of_param(int64_t elements) {
  Graph g;
  const Value w = g.source(Source::Kind::param, "w", {DType::f32, {elements}});
  const AtScope at(g, "net.silu");
  g.output("y", ops::silu(w));
  return g;
}

bool has(const Output& out, std::string_view part) {
  return out.text.find(part) != std::string::npos;
}

// ---- what runs in a process of its own -----------------------------------------------------

// Ends the process as the program ends it.
[[noreturn]] void as_program(const std::function<void()>& work) {
  int code = 0;
  try {
    work();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ebb: error: %s\n", e.what());
    code = 2;
  }
  std::exit(code);
}

// Memory where the device has none.
class Nowhere final : public Buffer {
 public:
  void* data() const override { return reinterpret_cast<void*>(uintptr_t{1} << 16); }
  int64_t bytes() const override { return gigabyte; }
  bool on_host() const override { return false; }
};

// In step 17 a kernel reads an address that is wrong.
TEST(Apart, DISABLED_training_whose_device_fails) {
  as_program([] {
    const Context context = open_context("cuda");
    Plan wrong(silu_of_param(1000), context);
    wrong.bind("w", Tensor({DType::f32, {1000}}, std::make_shared<Nowhere>()));
    train::TrainJob job = toy_job(toy_config(std::getenv("EBB_TEST_FOLDER")));
    job.hooks.log = [](std::string_view line) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    };
    job.batches = [&](int64_t) -> train::NextBatch {
      return [&, micro_batch = int64_t{0}]() mutable {
        if (micro_batch == 16) {
          wrong.load({});
          wrong.enqueue();
        }
        return toy_batch(micro_batch++, 8);
      };
    };
    train::train(std::move(job), context);
  });
}

TEST(Apart, DISABLED_large_plan_then_small_one) {
  as_program([] {
    const Context context = open_context("cuda");
    const auto run = [&](int64_t elements) {
      Plan p(silu_of_param(elements), context);
      p.bind_missing();
      p.run({});
    };
    const std::string error = testing::error_of([&] { run(4 * gigabyte); });
    run(1000);
    fail(error.empty() ? "nothing failed" : error);
  });
}

// `settings`: of the environment.
Output run_apart(const std::string& test, const std::string& settings) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  return testing::run_command(
      str("GTEST_TOTAL_SHARDS=1 GTEST_SHARD_INDEX=0 ", settings, " '", self,
          "' --gtest_also_run_disabled_tests --gtest_filter=Apart.DISABLED_", test));
}

// What the program would have said: one line, and the exit code of a fault.
std::string error_apart(const Output& out) {
  EXPECT_EQ(out.code, 2) << out.text;
  const std::string begin = "ebb: error: ";
  const size_t at = out.text.find(begin);
  EXPECT_TRUE(at != std::string::npos && at == out.text.rfind(begin)) << out.text;
  if (at == std::string::npos) return "";
  EXPECT_EQ(out.text.find('\n', at) + 1, out.text.size()) << "more behind the error: " << out.text;
  return out.text.substr(at + begin.size());
}

// ---- a kernel that fails -------------------------------------------------------------------

class DeviceFails : public test::OnEachBackend {};

TEST_P(DeviceFails, in_training__leaves_one_error_and_a_checkpoint_to_go_on_from) {
  const Folder folder;
  const std::string lost = folder / "lost";
  const Output out = run_apart("training_whose_device_fails", "EBB_TEST_FOLDER=" + lost);
  const std::string error = error_apart(out);
  EXPECT_TRUE(error.starts_with("cuda: the device failed (cudaErrorIllegalAddress: ")) << error;
  EXPECT_NE(error.find("CUDA_LAUNCH_BLOCKING=1 names the kernel and its op"), std::string::npos);
  EXPECT_TRUE(has(out, "saved up to step 14; go on with --resume --out " + lost)) << out.text;
  EXPECT_EQ(train::checkpoint_steps(lost), (std::vector<int64_t>{7, 14}));
  train::TrainConfig again = toy_config(lost);
  again.resume = true;
  EXPECT_EQ(train::train(toy_job(again), context_).step, 20);
  train::train(toy_job(toy_config(folder / "unbroken")), context_);
  for (const int64_t step : {7, 14, 20})
    EXPECT_EQ(checkpoint_bytes(lost, step), checkpoint_bytes(folder / "unbroken", step)) << step;
}

TEST_P(DeviceFails, waited_for__names_kernel_op_and_place) {
  const Folder folder;
  const std::string error = error_apart(run_apart(
      "training_whose_device_fails", "CUDA_LAUNCH_BLOCKING=1 EBB_TEST_FOLDER=" + folder.path()));
  EXPECT_TRUE(error.starts_with("cuda: pointwise failed (cudaErrorIllegalAddress: ")) << error;
  EXPECT_NE(error.find("  pointwise f32[1000] "), std::string::npos) << error;
  EXPECT_NE(error.find("  at net.silu"), std::string::npos) << error;
  EXPECT_EQ(train::checkpoint_steps(folder.path()), (std::vector<int64_t>{7, 14}));
}

// ---- a device that is full -----------------------------------------------------------------

// These fill the device: nothing else may use it at that time.
class AloneOnDevice : public test::OnEachBackend {
 protected:
  // Holds the memory of the device but for about `rest` bytes.
  void hold_all_but(int64_t rest) {
    for (;;) {
      const int64_t more = std::min(context_.device->free_memory() - rest, 8 * gigabyte);
      if (more <= 0) return;
      held_.push_back(context_.device->allocate(more));
    }
  }

 private:
  std::vector<std::shared_ptr<Buffer>> held_;
};

TEST_P(AloneOnDevice, others_hold_its_memory__says_what_the_plan_needs_and_goes_on) {
  hold_all_but(4 * gigabyte);
  const std::string error = error_apart(run_apart("large_plan_then_small_one", ""));
  EXPECT_TRUE(error.starts_with("plan: out of memory: a run needs ")) << error;
  EXPECT_NE(error.find("a smaller --batch"), std::string::npos) << error;
}

TEST_P(AloneOnDevice, others_hold_all_of_it__says_so) {
  hold_all_but(gigabyte / 16);
  const std::string error = error_apart(run_apart("large_plan_then_small_one", ""));
  EXPECT_TRUE(error.starts_with("cuda: ") &&
              error.find(" failed (cudaErrorMemoryAllocation: ") != error.npos)
      << error;
  EXPECT_NE(error.find("other programs may hold"), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(cuda, DeviceFails, ::testing::ValuesIn(test::only("cuda")));
INSTANTIATE_TEST_SUITE_P(cuda, AloneOnDevice, ::testing::ValuesIn(test::only("cuda")));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceFails);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AloneOnDevice);

}  // namespace
}  // namespace ebb::fault_test

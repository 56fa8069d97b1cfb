#include "runtime/run_step.h"

#include <gtest/gtest.h>

#include "core/device_lost.h"
#include "core/out_of_memory.h"
#include "ops/silu/op.h"
#include "support/files.h"

namespace ebb {
namespace {

Step failing(std::function<void(const Call&)> run) {
  const Type t{DType::f32, {4}};
  return {.kernel = nullptr,
          .sig = {&ops::def::silu(), {}, {t}, {t}, "net.mid"},
          .program = {.run = std::move(run)},
          .call = {}};
}

// Who holds memory that can be freed catches it, and tries again.
TEST(run_step, out_of_memory__keeps_its_type_and_says_where) {
  try {
    run_step(failing([](const Call&) { throw OutOfMemory("far: out of memory"); }));
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& e) {
    EXPECT_EQ(std::string(e.what()).rfind("far: out of memory  silu", 0), 0u) << e.what();
    EXPECT_TRUE(std::string(e.what()).ends_with("  at net.mid")) << e.what();
  }
}

TEST(run_step, lost_device__keeps_its_type_and_says_where) {
  try {
    run_step(failing([](const Call&) { throw DeviceLost("far: it is gone"); }));
    FAIL() << "nothing was thrown";
  } catch (const DeviceLost& e) {
    EXPECT_EQ(std::string(e.what()).rfind("far: it is gone  silu", 0), 0u) << e.what();
  }
}

TEST(run_step, other_errors__say_where) {
  const Step step = failing([](const Call&) { fail("far: id 7 is out of range"); });
  testing::expect_error([&] { run_step(step); }, "  at net.mid");
  EXPECT_THROW(run_step(step), Error);
  try {
    run_step(step);
  } catch (const OutOfMemory&) {
    FAIL() << "memory was not short";
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace ebb

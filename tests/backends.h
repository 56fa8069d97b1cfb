// The backends that this program has, opened once, for tests that run on each of them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/context.h"

namespace ebb::test {

// "cpu", and "cuda" where it was built in.
std::vector<std::string> backends();

std::vector<std::string> only(const std::string& backend);  // that one, or none if not built in

// The context of a backend, or why there is none. A device that an earlier test has broken (a
// kernel that went out of its memory) is none: nothing can run on it any more.
struct Opened {
  Context context;
  std::string missing;  // empty: the context is good
};
Opened open_backend(const std::string& backend, int64_t threads = 0);

// A test on one backend; skipped, with the reason, where there is no such device.
class OnBackend : public ::testing::Test {
 protected:
  // For SetUp.
  void open(const std::string& backend, int64_t threads = 0) {
    Opened o = open_backend(backend, threads);
    if (!o.missing.empty()) GTEST_SKIP() << o.missing;
    context_ = std::move(o.context);
  }
  Context context_;
};

// A test with no other parameter than its backend.
class OnEachBackend : public OnBackend, public ::testing::WithParamInterface<std::string> {
  void SetUp() override { open(GetParam()); }
};

}  // namespace ebb::test

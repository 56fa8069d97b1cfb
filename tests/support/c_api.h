// What tests of the C API share: a sampler that is destroyed, and expectations of statuses.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include <ebb/samplers.h>

namespace ebb::testing {

struct Handle {
  explicit Handle(const char* name) { EXPECT_EQ(ebb_sampler_create(name, &s), EBB_OK); }
  ~Handle() { ebb_sampler_destroy(s); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ebb_sampler* s = nullptr;
};

inline void expect_ok(ebb_status status) { EXPECT_EQ(status, EBB_OK) << ebb_last_error(); }

inline void expect_error(ebb_status status, std::string_view part) {
  EXPECT_EQ(status, EBB_ERROR);
  EXPECT_NE(std::string_view(ebb_last_error()).find(part), std::string_view::npos)
      << ebb_last_error();
}

inline std::vector<double> levels_of(const Handle& h) {
  size_t count = 0;
  expect_ok(ebb_sampler_sigmas(h.s, nullptr, 0, &count));
  std::vector<double> out(count);
  expect_ok(ebb_sampler_sigmas(h.s, out.data(), count, &count));
  return out;
}

}  // namespace ebb::testing

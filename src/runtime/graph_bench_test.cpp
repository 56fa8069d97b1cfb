#include "runtime/graph_bench.h"

#include <gtest/gtest.h>

#include <set>

#include "base/names.h"

namespace ebb {
namespace {

TEST(GraphCases, names__are_small_letters_as_filters_are_and_differ) {
  std::set<std::string> names;
  for (const GraphCase& c : graph_cases()) {
    const std::string name = str(c.op, '/', c.example);
    EXPECT_EQ(name, small_letters(name));
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

}  // namespace
}  // namespace ebb

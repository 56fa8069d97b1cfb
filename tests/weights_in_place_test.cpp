// Weights that plans on the host read where a file is mapped.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/add/op.h"
#include "runtime/plan.h"
#include "runtime/weight_store.h"

namespace ebb::weights_in_place_test {
namespace {

// Pages of a file that a plan reads would be faulted in again with its next run.
TEST(weights_in_place, pages__leave_memory_when_the_last_plan_lets_go_of_them) {
  std::map<std::string, int> forgotten;
  WeightStore::Weights weights;
  for (const char* name : {"a", "b"}) {
    weights[name] = stored_tensor(Tensor(DType::f32, {64}));
    weights[name].forget = [&forgotten, name] { ++forgotten[name]; };
  }
  const auto store = std::make_shared<WeightStore>(std::move(weights));
  const Context context = open_context("cpu", {.threads = 2});
  const auto plan_of = [&](const std::vector<std::string>& names) {
    Graph g;
    Value sum = g.input("x", {DType::f32, {64}});
    for (const std::string& name : names)
      sum = sum + g.source(Source::Kind::param, name, {DType::f32, {64}});
    g.output("y", sum);
    return std::make_unique<Plan>(g, context, CompileOptions{.weights = store});
  };
  const auto run = [](Plan& plan) { plan.run({{"x", Tensor(DType::f32, {64})}}); };
  const auto one = plan_of({"a"}), both = plan_of({"a", "b"});
  for (Plan* plan : {one.get(), both.get()}) run(*plan);
  EXPECT_EQ(one->bound("a").raw(), both->bound("a").raw());
  store->drop_unused(*context.device);
  EXPECT_EQ(forgotten, (std::map<std::string, int>{}));
  both->release();
  store->drop_unused(*context.device);
  EXPECT_EQ(forgotten, (std::map<std::string, int>{{"b", 1}}));
  one->release();
  store->drop_unused(*context.device);
  store->drop_unused(*context.device);
  EXPECT_EQ(forgotten, (std::map<std::string, int>{{"a", 1}, {"b", 1}}));
  run(*both);
  EXPECT_EQ(both->bound("a").raw(), store->weights().at("a").host.raw());
}

}  // namespace
}  // namespace ebb::weights_in_place_test

// In which steps of a run a control network takes part, by dialect.
#include "pipeline/control.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

// The steps, from 1 on, in which it takes part.
std::vector<int64_t> steps_of(const std::string& dialect, double start, double end,
                              const std::vector<double>& sigmas) {
  ControlInput in{.image = {}};
  in.start = start, in.end = end;
  const auto steps = static_cast<int64_t>(sigmas.size()) - 1;
  const ControlRun run{.sample = {}, .steps = steps, .sigmas = sigmas, .dialect = dialect};
  std::vector<int64_t> out;
  for (int64_t i = 1; i <= steps; ++i)
    if (takes_part(in, i, run, discretisation({}))) out.push_back(i);
  return out;
}

TEST(control, share_of_a_run__is_the_dialects) {
  using Steps = std::vector<int64_t>;
  // levels of timesteps 999, 749, 499, 249
  const Discretisation d = discretisation({});
  const auto at = [&](size_t t) { return d.sigmas[t]; };
  const std::vector<double> sigmas = {at(999), at(749), at(499), at(249), 0};
  EXPECT_EQ(steps_of("diffusers", 0, 0.5, sigmas), (Steps{1, 2}));
  EXPECT_EQ(steps_of("ebb", 0, 0.5, sigmas), (Steps{1, 2}));
  EXPECT_EQ(steps_of("a1111", 0, 0.5, sigmas), (Steps{1, 2, 3}));
  EXPECT_EQ(steps_of("a1111", 0.3, 1, sigmas), (Steps{3, 4}));
  // half of the timesteps is at 499.5, between two levels
  EXPECT_EQ(steps_of("comfy", 0, 0.5, sigmas), (Steps{1, 2}));
  EXPECT_EQ(steps_of("comfy", 0.5, 1, sigmas), (Steps{3, 4}));
  // Karras's levels pass through the timesteps faster than through the steps
  const std::vector<double> karras = {at(999), at(600), at(300), at(100), 0};
  EXPECT_EQ(steps_of("comfy", 0, 0.5, karras), (Steps{1, 2}));
  EXPECT_EQ(steps_of("comfy", 0, 0.3, karras), (Steps{1}));
  EXPECT_EQ(steps_of("diffusers", 0, 0.3, karras), (Steps{1}));
  EXPECT_EQ(steps_of("comfy", 0, 0.75, karras), (Steps{1, 2, 3}));
  EXPECT_EQ(steps_of("comfy", 0, 1, karras), (Steps{1, 2, 3, 4}));
}

TEST(control, share_without_a_step__is_told_with_its_numbers) {
  const Discretisation d = discretisation({});
  const auto told = [&](const std::string& dialect, double start, double end, int64_t steps) {
    const ControlRun run{.sample = {},
                         .steps = steps,
                         .sigmas = std::vector<double>(static_cast<size_t>(steps) + 1, 1),
                         .dialect = dialect};
    ControlInput in;
    in.start = start, in.end = end;
    return control_warnings({ControlInput(), in}, {run}, d);
  };
  EXPECT_EQ(told("diffusers", 0.3, 0.4, 2),
            std::vector<std::string>{
                "control: image number 2 has no effect: no step of 2 lies within its start and end "
                "(0.3 to 0.4 of the steps, as dialect diffusers counts them)"});
  EXPECT_TRUE(told("diffusers", 0.3, 0.4, 20).empty());
  EXPECT_TRUE(told("diffusers", 0, 1, 1).empty());
  EXPECT_EQ(told("a1111", 0.8, 1, 4).size(), 1u);
  EXPECT_TRUE(told("a1111", 0.75, 1, 4).empty());
}

}  // namespace
}  // namespace ebb

// TrainConfig: checks and JSON.
#include "train/config.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace ebb::train {
namespace {

std::string problem(const TrainConfig& c) {
  return testing::error_of([&] { check(c); });
}

TEST(train_config, defaults_with_steps__are_fine) { EXPECT_EQ(problem({.steps = 10}), ""); }

TEST(train_config, impossible_values__are_named) {
  EXPECT_EQ(problem({}), "train: give --steps or --minutes");
  EXPECT_EQ(problem({.steps = 1, .batch = 0}), "batch: must be at least 1 (0)");
  EXPECT_EQ(problem({.steps = 1, .batch = 10, .accumulation = 4}),
            "accumulation: must divide batch (10 / 4)");
  EXPECT_EQ(problem({.steps = 1, .beta2 = 1}), "beta2: must be from 0 to 0.999999 (1)");
  EXPECT_EQ(problem({.steps = 1, .dtype = "f16"}),
            "dtype: unknown value 'f16' (did you mean 'bf16'?)");
  EXPECT_EQ(problem({.steps = 1, .recompute = "none"}),
            "recompute: must be off, pointwise, all, auto or a size like 8GB or 500MB ('none')");
  EXPECT_EQ(problem({.steps = 1, .resume = true, .overwrite = true}),
            "train: give resume or overwrite, not both");
  EXPECT_EQ(problem({.steps = 1, .log_every = 0}), "log_every: must be at least 1 (0)");
}

TEST(train_config, json__comes_back_whole) {
  TrainConfig a{
      .data = "d/\xc3\xa9", .steps = 7, .lr = 1.0 / 3, .recompute = "1.5GB", .flip = true};
  EXPECT_EQ(to_json(train_config_from_json(to_json(a), "config")), to_json(a));
}

TEST(train_config, unknown_key__suggests_the_nearest) {
  EXPECT_EQ(
      testing::error_of([] { train_config_from_json(R"({"warm_up": 3})", "run/config.json"); }),
      "run/config.json: unknown field 'warm_up' (did you mean 'warmup'?)");
}

TEST(train_config, dtype_auto__follows_the_device) {
  EXPECT_EQ(step_options({.steps = 1}, true).dtype, DType::bf16);
  EXPECT_EQ(step_options({.steps = 1}, false).dtype, DType::f32);
  EXPECT_EQ(step_options({.steps = 1, .dtype = "f32"}, true).dtype, DType::f32);
}

TEST(train_config, every_field__has_a_help_text) {
  TrainConfig c;
  for (const Field& f : fields_of(c)) EXPECT_FALSE(f.help.empty()) << f.name;
}

}  // namespace
}  // namespace ebb::train

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

TEST(train_config, settings_that_the_optimiser_does_not_read__are_refused) {
  EXPECT_EQ(problem({.steps = 1, .optimizer = "adafactor", .beta1 = 0.8}),
            "beta1: adafactor has none (0.8), but adamw, adamw8bit, lion, prodigy");
  EXPECT_EQ(problem({.steps = 1, .optimizer = "adafactor", .beta2 = 0.9}),
            "beta2: adafactor has none (0.9), but adamw, adamw8bit, lion, prodigy");
  EXPECT_EQ(problem({.steps = 1, .optimizer = "lion", .eps = 1e-6}),
            "eps: lion has none (1e-06), but adamw, adamw8bit, prodigy");
  EXPECT_EQ(problem({.steps = 1, .optimizer = "lion", .beta1 = 0.95, .beta2 = 0.98}), "");
  EXPECT_EQ(problem({.steps = 1, .optimizer = "prodigy", .beta1 = 0.8, .eps = 1e-6}), "");
}

// What docs/optimisers.md says of each.
TEST(train_config, optimisers__have_the_usual_rates_and_options) {
  struct Usual {
    const char* name;
    double rate, beta2;  // rate: of a run that would train by 3e-4
    const char* options;
  };
  for (const Usual& u :
       {Usual{"adamw", 3e-4, 0.999, ""}, Usual{"adamw8bit", 3e-4, 0.999, ""},
        Usual{"lion", 3e-4, 0.99, ""},
        Usual{"adafactor", 3e-4, 0,
              "clip_threshold=1 decay_rate=-0.8 eps1=1e-30 eps2=0.001 scale_parameter=false "
              "relative_step=false warmup_init=false"},
        Usual{"prodigy", 1, 0.999,
              "d0=1e-06 d_coef=1 growth_rate=0 decouple=true safeguard_warmup=false "
              "use_bias_correction=false"}}) {
    const Optimizer& o = find_optimizer(u.name);
    EXPECT_EQ(usual_rate(u.name, "", 3e-4), u.rate) << u.name;
    EXPECT_EQ(optimizer_settings({.optimizer = u.name}).beta2, u.beta2) << u.name;
    std::string options;
    if (o.options)
      for (const Option& option : o.options())
        options += str(options.empty() ? "" : " ", option.name, "=", option.value);
    EXPECT_EQ(options, u.options) << u.name;
    for (const bool known : {true, false}) {
      const TrainConfig c{.steps = 1,
                          .optimizer = u.name,
                          .optimizer_options = known && o.options
                                                   ? str(o.options().front().name, "=1")
                                               : known ? ""
                                                       : "nonsense=1"};
      EXPECT_EQ(problem(c).empty(), known) << u.name << problem(c);
    }
  }
  EXPECT_EQ(usual_rate("adafactor", "relative_step=true", 3e-4), 1);
  EXPECT_EQ(own_rates_help(), "1 (prodigy)");
  EXPECT_EQ(usual_beta2_help(), "0.999 (adamw, adamw8bit, prodigy), 0.99 (lion)");
}

TEST(train_config, options_of_which_states_are_multiples__are_told_alike_however_they_are_given) {
  const auto fixed = [](const char* options) {
    return fixed_options({.optimizer = "prodigy", .optimizer_options = options});
  };
  EXPECT_EQ(fixed(""), "d0=1e-06");
  EXPECT_EQ(fixed("d_coef=2,D0=0.000001"), fixed(""));
  EXPECT_EQ(fixed("d0=1e-5"), "d0=1e-05");
  EXPECT_EQ(fixed_options({}), "");
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

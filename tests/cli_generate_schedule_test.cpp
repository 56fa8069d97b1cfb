// The schedule that `ebb generate` takes where none is named: of the sampler's name, of the
// dialect, or the network's.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/picture_file.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::Output;
using testing::run_program;

class CliSchedule : public testing::GenerateProgram {
 protected:
  void SetUp() override {
    GenerateProgram::SetUp();
    model_ = IsSkipped() ? "" : whole();
  }
  // That a run with these flags recorded in its picture.
  std::string schedule(const std::string& flags) const {
    const Output out = run_program(generate(model_, "--prompt fox " + flags));
    EXPECT_EQ(out.code, 0) << flags << "\n" << out.text;
    return recorded(png());
  }
  static std::string recorded(const std::string& picture) {
    const auto json = nlohmann::json::parse(io::read_picture_text(picture).at("ebb"));
    return json.at("schedule");
  }
  std::string model_;
};

TEST_F(CliSchedule, auto__is_of_the_name_then_of_the_dialect_then_of_the_network) {
  struct Row {
    const char *dialect, *sampler, *schedule;
  };
  constexpr Row rows[] = {
      {"ebb", "dpmpp_2m", "karras"},
      {"ebb", "DPM++ 2M Exponential", "exponential"},
      {"ebb", "Euler a", "normal"},
      {"ebb", "lcm", "normal"},
      {"ebb", "Euler Karras", "karras"},
      {"kdiff", "euler", "karras"},
      {"comfy", "dpmpp_2m", "simple"},
      {"comfy", "euler", "simple"},
      {"comfy", "lcm", "simple"},
      {"a1111", "DPM++ 2M", "karras"},
      {"a1111", "DPM++ 2M Exponential", "exponential"},
      {"a1111", "DPM++ 2M SDE", "exponential"},
      {"a1111", "DPM++ 2M SDE Karras", "karras"},
      {"a1111", "Euler a", "uniform"},
      {"a1111", "LCM", "uniform"},
      {"a1111", "DDIM", "ddim_uniform"},
      {"a1111", "UniPC", "time_uniform"},
      {"diffusers", "euler", "leading"},
      {"diffusers", "lcm", "lcm"},
      {"diffusers", "DPM++ 2M Karras", "karras"},
      {"sdcpp", "dpmpp_2m", "discrete"},
      {"sdcpp", "lcm", "lcm"},
  };
  for (const Row& r : rows)
    EXPECT_EQ(schedule(str("--dialect ", r.dialect, " --sampler '", r.sampler, "'")), r.schedule)
        << r.dialect << " " << r.sampler;
  EXPECT_EQ(schedule(""), "karras");
  EXPECT_EQ(schedule("--dialect a1111"), "karras");
  EXPECT_EQ(schedule("--dialect comfy"), "simple");
  EXPECT_EQ(schedule("--sampler 'Euler a' --schedule simple"), "simple");
}

TEST_F(CliSchedule, options_of_a_schedule_without_a_name__are_refused_whatever_chose_it) {
  for (const char* flags :
       {"", "--dialect comfy ", "--sampler euler ", "--sampler 'Euler Karras' "})
    EXPECT_TRUE(
        testing::error_line(generate(model_, str("--prompt fox --schedule-options rho=5 ", flags)))
            .starts_with("schedule: auto has no options; give its name, "))
        << flags;
}

TEST_F(CliSchedule, configs_and_pictures__leave_it_as_open_as_flags) {
  const std::string config = folder_ / "c.json", theirs = png("theirs");
  const auto of_config = [&](const std::string& json, const std::string& flags = "") {
    std::ofstream(config) << json;
    return schedule(str("--config ", config, " ", flags));
  };
  EXPECT_EQ(of_config(R"({"prompt": "fox"})"), "karras");
  EXPECT_EQ(of_config(R"({"dialect": "diffusers", "sampler": "euler"})"), "leading");
  EXPECT_EQ(of_config(R"({"dialect": "a1111"})", "--sampler 'Euler a'"), "uniform");
  EXPECT_EQ(of_config(R"({"schedule": "karras"})", "--dialect comfy"), "karras");
  const auto of_picture = [&](const std::string& sampler, const std::string& flags = "") {
    io::write_png(theirs, Tensor(DType::u8, {8, 8, 3}),
                  {{"parameters", str("a fox\nSteps: 3, Sampler: ", sampler,
                                      ", CFG scale: 4.5, Seed: 7, Size: 64x48")}});
    return schedule(str("--like ", theirs, " ", flags));
  };
  EXPECT_EQ(of_picture("Euler a"), "uniform");
  EXPECT_EQ(of_picture("DPM++ 2M SDE Karras"), "karras");
  EXPECT_EQ(of_picture("DPM++ 2M SDE, Schedule type: Automatic"), "exponential");
  EXPECT_EQ(of_picture("DDIM", "--schedule normal"), "normal");
  // ebb's own say what they ran with.
  EXPECT_EQ(schedule("--dialect comfy"), "simple");
  ASSERT_EQ(run_program(str("generate --device cpu --like ", png(), " --out ", theirs)).code, 0);
  EXPECT_EQ(recorded(theirs), "simple");
}

}  // namespace
}  // namespace ebb

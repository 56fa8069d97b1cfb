// `ebb samplers`: which flags belong to what, and that plots show what was requested.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/fields.h"
#include "diffusion/config.h"
#include "diffusion/levels/beta_table.h"
#include "support/program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::file_bytes;
using testing::Output;
using testing::run_program;

class CliSamplers : public testing::Program {
 protected:
  // The title of a plot: name, schedule, steps.
  std::string title(const std::string& flags) const {
    const std::string file = folder_ / "x.svg";
    const Output out = run_program(str("samplers plot --points 2 --out ", file, " ", flags));
    EXPECT_EQ(out.code, 0) << out.text;
    const std::string text = file_bytes(file), mark = "font-weight='bold'>";
    const size_t from = text.find(mark) + mark.size();
    return text.substr(from, text.find('<', from) - from);
  }
};

TEST_F(CliSamplers, flags_of_other_modes__are_errors) {
  EXPECT_EQ(error_line("samplers heun --steps 3"),
            "samplers: --steps is for plot and gallery (samplers heun)");
  EXPECT_EQ(error_line("samplers --seed 3"),
            "samplers: --seed is for plot and gallery (samplers list)");
  EXPECT_EQ(error_line("samplers table --out x"),
            "samplers: --out is for plot and gallery (samplers table)");
  EXPECT_EQ(error_line("samplers plot --json --out x.svg"),
            "samplers: --json is for list and a name (samplers plot)");
  EXPECT_EQ(error_line("samplers gallery --sampler heun --out x"),
            "samplers: --sampler is for plot (samplers gallery)");
}

TEST_F(CliSamplers, json_of_a_name__has_all_that_are_called_so) {
  const auto json_of = [](const std::string& name) {
    return nlohmann::json::parse(run_program(str("samplers ", name, " --json")).text);
  };
  const auto heun = json_of("heun");
  EXPECT_EQ(heun.size(), 1U);
  EXPECT_EQ(heun["samplers"][0]["name"], "heun");
  EXPECT_EQ(heun["samplers"][0]["options"]["path"], "linear");
  const auto lcm = json_of("lcm");
  EXPECT_EQ(lcm["samplers"].size(), 1U);
  EXPECT_EQ(lcm["schedules"].size(), 1U);
  EXPECT_EQ(json_of("euler_a")["samplers"][0]["name"], "euler_ancestral");
  EXPECT_EQ(json_of("'DPM++ 2M Exponential'")["samplers"][0]["schedule"], "exponential");
  EXPECT_GT(json_of("")["samplers"].size(), 40U);
}

TEST_F(CliSamplers, names_of_all_kinds__are_known_in_any_case) {
  const auto text_of = [](const std::string& name) {
    const Output out = run_program("samplers " + name);
    EXPECT_EQ(out.code, 0) << out.text;
    return out.text;
  };
  EXPECT_NE(text_of("kdiff").find("(a dialect, --dialect)\ndefault noise "), std::string::npos);
  const std::string comfy = text_of("Comfy");
  EXPECT_NE(comfy.find("(a dialect, --dialect)"), std::string::npos) << comfy;
  EXPECT_NE(comfy.find("(a source of noise)"), std::string::npos) << comfy;
  EXPECT_TRUE(text_of("KARRAS").starts_with("karras: "));
  EXPECT_TRUE(text_of("slg").starts_with("skip_layers: "));
  EXPECT_NE(text_of("flux").find("tokens             4096"), std::string::npos);
  EXPECT_EQ(error_line("samplers ComfyUI"),
            "samplers: unknown name 'ComfyUI' (did you mean 'comfy'?)");
  const auto json = nlohmann::json::parse(text_of("kdiff --json"));
  EXPECT_EQ(json["dialects"][0]["name"], "kdiff");
}

TEST_F(CliSamplers, plot__refuses_a_folder_that_is_missing) {
  const std::string folder = folder_ / "new";
  const std::string error = error_line("samplers plot --points 2 --out " + folder + "/x.svg");
  EXPECT_NE(error.find("there is no folder " + folder + " (mkdir -p"), error.npos) << error;
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(CliSamplers, plot_that_cannot_be_written__is_told_with_its_flag) {
  const std::string file = folder_ / "x.svg", gallery = folder_ / "all";
  const std::string limited = "(trap '' XFSZ; ulimit -f 1; exec '" + testing::program_path() + "' ";
  for (const std::string& words :
       {"plot --points 200 --out " + file, "gallery --points 200 --steps 20 --out " + gallery}) {
    const Output out = testing::run_command(limited + "samplers " + words + ")");
    EXPECT_EQ(out.code, 2) << out.text;
    EXPECT_NE(out.text.find("ebb: error: samplers: --out: cannot write (File too large)  " +
                            folder_.path()),
              std::string::npos)
        << out.text;
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(CliSamplers, plot__takes_the_schedule_that_sampling_takes) {
  EXPECT_EQ(title(""), "heun, karras, 20 steps");
  EXPECT_EQ(title("--sampler 'DPM++ 2M Exponential'"),
            "DPM++ 2M Exponential, exponential, 20 steps");
  EXPECT_EQ(title("--sampler 'DPM++ 2M Exponential' --schedule karras"),
            "DPM++ 2M Exponential, karras, 20 steps");
  EXPECT_EQ(title("--schedule auto --flow --steps 5"), "heun, flow, 5 steps, flow model");
  EXPECT_EQ(title("--schedule custom --schedule-options sigmas=14,5,1,0"), "heun, custom, 3 steps");
  const Output wrong = run_program("samplers plot --schedule-options rho=3 --out x.svg");
  EXPECT_EQ(wrong.text,
            "ebb: error: schedule: auto has no options; give its name, karras here (rho)\n");
}

TEST_F(CliSamplers, gallery__has_a_plot_of_each_that_supports_it) {
  const std::string folder = folder_ / "all";
  EXPECT_EQ(run_program(str("samplers gallery --flow --steps 4 --points 2 --out ", folder)).code,
            0);
  EXPECT_TRUE(std::filesystem::exists(folder + "/heun.svg"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/ddim.svg"));
  EXPECT_EQ(error_line("samplers gallery --out /dev/null/x"),
            "samplers: --out: cannot make the folder (Not a directory)  /dev/null/x");
}

TEST_F(CliSamplers, name_that_brings_a_schedule__says_so) {
  const std::string brings = "the name implies the schedule karras, unless --schedule is given";
  EXPECT_NE(run_program("samplers 'DPM++ 2M Karras'").text.find(brings), std::string::npos);
  EXPECT_EQ(run_program("samplers 'DPM++ 2M'").text.find("implies"), std::string::npos);
}

TEST(diffusion_help, betas__lists_them_all) {
  DiffusionConfig config;
  const std::vector<Field> fields = fields_of(config);
  const std::string& help = find_field(fields, "betas", "diffusion").help;
  for (const std::string& name : beta_names())
    EXPECT_NE(help.find(name), std::string::npos) << name;
}

TEST_F(CliSamplers, gallery_that_is_refused__leaves_no_folder) {
  const std::string folder = folder_ / "gallery";
  error_line("samplers gallery --points -1 --out " + folder);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

}  // namespace
}  // namespace ebb

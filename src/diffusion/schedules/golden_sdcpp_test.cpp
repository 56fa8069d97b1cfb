// Schedules and the way between levels and timesteps against those of stable-diffusion.cpp.
#include <map>

#include "diffusion/levels/schedule.h"
#include "support/golden_lists.h"

namespace ebb::golden_sdcpp_test {
namespace {

using nlohmann::json;
using testing::compare_every_case;
using testing::expect_list;
using testing::ListTolerance;

const Discretisation& model(const std::string& name) {
  static const std::map<std::string, Discretisation> models = {
      {"sd1", discretisation({})},
      {"edm", discretisation({.levels = "edm", .sigma_max = 120})},
      {"flow3", discretisation({.levels = "flow", .shift = 3})},
      {"flux", discretisation({.levels = "flow"})}};
  return models.at(name);
}

const Discretisation& svd() {
  static const Discretisation d = discretisation({.levels = "edm", .sigma_max = 700});
  return d;
}

bool schedule(const json& c) {
  const std::string name = c.at("schedule");
  ScheduleCall call{.steps = c.at("n"), .dialect = "sdcpp"};
  if (c.contains("options")) call.options = parse_options(c.at("options").get<std::string>(), name);
  if (c.contains("tokens")) call.options.emplace_back("tokens", str(c.at("tokens")));
  const std::string version = c.value("version", "");
  if (version == "SDXL") call.options.emplace_back("model", "sdxl");
  if (version == "SVD") call.options.emplace_back("model", "svd");
  const Discretisation& d = version == "SVD" ? svd() : model(c.at("model"));
  // Its table is a product of 1000 numbers in f32; the smallest level is off by 1.3e-5, and lists
  // between the ends with it.
  ListTolerance tolerance{.relative = 1.3e-5, .table = 1.5e-6};
  if (name == "kl_optimal") tolerance.angle = 1.2e-7;
  expect_list(noise_levels(name, d, call), c.at("sigmas"), tolerance);
  return true;
}

const std::vector<testing::Excuse> excuses = {
    {"schedule=karras n=1 nan", "0 / 0 for one step"},
    {"schedule=exponential n=1 nan", "0 / 0 for one step"},
    {"schedule=gits n=1 refused", "crashes: there is no list of one step"},
    {"model=edm schedule=discrete",
     "runs from 54 to 1: takes sigma for exp(t / 250), but t for "
     "ln(sigma) / 4"},
};

TEST(golden_schedules, sdcpp__are_the_references) {
  compare_every_case("schedules_sdcpp", excuses, [](const json& c) {
    const std::string kind = c.at("kind");
    if (kind == "schedule") return schedule(c);
    const Discretisation& d = model(c.at("model"));
    if (kind == "sigma_to_t") {
      const double t = c.at("t");
      EXPECT_NEAR(d.c_noise_of(c.at("sigma")), t, 1e-5 * t + 2e-4);
      return true;
    }
    if (kind != "t_to_sigma") return false;
    const double sigma = c.at("sigma");
    EXPECT_NEAR(d.sigma_of_time(c.at("t")), sigma, ListTolerance{.table = 1.5e-6}.at(sigma));
    return true;
  });
}

}  // namespace
}  // namespace ebb::golden_sdcpp_test

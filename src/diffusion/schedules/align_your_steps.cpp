// align_your_steps: lists optimised for Stable Diffusion's networks, interpolated in ln(sigma)
// (Sabour et al. 2024, arXiv:2404.14507).
#include <span>

#include "base/error.h"
#include "base/names.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  std::string model = "sd1";
  bool keep_last = false, rounded = false;
  void fields(auto&& f) {
    f("model", model, "sd1, sdxl, svd; sd1_timesteps, sdxl_timesteps: as published in timesteps");
    f("rounded", rounded, "sd1, sdxl: levels with three digits after the point, as published");
    f("keep_last", keep_last, "put 0 behind the smallest level, not in its place");
  }
};

// For 10 steps, followed by the smallest level.
constexpr double sd1[] = {14.6146412293, 6.4745760956, 3.8636745985, 2.6946151520,
                          1.8841921177,  1.3943805092, 0.9642583904, 0.6523686016,
                          0.3977456272,  0.1515232662, 0.0291671582};
constexpr double sdxl[] = {14.6146412293, 6.3184485287, 3.7681790315, 2.1811480769,
                           1.3405244945,  0.8620721141, 0.5550693289, 0.3798540708,
                           0.2332364134,  0.1114188177, 0.0291671582};
constexpr double svd[] = {700,   54.5,  15.886, 7.977, 4.248, 1.789,
                          0.981, 0.403, 0.173,  0.034, 0.002};
// As their authors gave them (howto.html of the project's page).
constexpr double sd1_rounded[] = {14.615, 6.475, 3.861, 2.697, 1.886, 1.396,
                                  0.963,  0.652, 0.399, 0.152, 0.029};
constexpr double sdxl_rounded[] = {14.615, 6.315, 3.771, 2.181, 1.342, 0.862,
                                   0.555,  0.380, 0.234, 0.113, 0.029};
// Timesteps of 10 steps, without a final one.
constexpr double sd1_timesteps[] = {999, 850, 736, 645, 545, 455, 343, 233, 124, 24};
constexpr double sdxl_timesteps[] = {999, 845, 730, 587, 443, 310, 193, 116, 53, 13};

std::vector<double> from_timesteps(std::span<const double> timesteps, const ScheduleInput& in) {
  std::vector<double> table;
  for (const double t : timesteps) table.push_back(level_at_timestep(in.levels, t));
  return with_zero(log_interpolated(table, in.steps));
}

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  if (o.model == "sd1_timesteps") return from_timesteps(sd1_timesteps, in);
  if (o.model == "sdxl_timesteps") return from_timesteps(sdxl_timesteps, in);
  check_known("align_your_steps: unknown model", o.model,
              std::vector<std::string>{"sd1", "sdxl", "svd", "sd1_timesteps", "sdxl_timesteps"});
  std::span<const double> table = o.model == "sd1" ? sd1 : o.model == "sdxl" ? sdxl : svd;
  require(!o.rounded || o.model != "svd", "align_your_steps: svd has no other, rounded levels");
  if (o.rounded) table = o.model == "sd1" ? sd1_rounded : sdxl_rounded;
  if (o.keep_last) return with_zero(log_interpolated(table, in.steps));
  return last_part(log_interpolated(table, in.steps + 1, in.dialect.f32_schedules), in);
}

}  // namespace

const Schedule& align_your_steps() {
  static const Schedule s = make_schedule<Options>(
      {.name = "align_your_steps",
       .help = "optimised for Stable Diffusion and SVD",
       .own_denoise = true,
       .aliases = {{"ays"}, {"ays_sdxl", {{"model", "sdxl"}}}, {"ays_svd", {{"model", "svd"}}}}},
      levels);
  return s;
}

}  // namespace ebb::schedules

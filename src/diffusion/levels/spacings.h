// Spacings and curves shared by schedules.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "diffusion/levels/schedule.h"

namespace ebb {

// By quantiles of the beta distribution (Lee et al. 2024, arXiv:2407.12173), from a to b, both
// included.
std::vector<double> beta_spaced(double a, double b, int64_t count, double alpha, double beta);
// The levels spread anew between the first and the last: karras, exponential or
// beta; none: as they are. Throws Error.
std::vector<double> spread_between(std::string_view how, std::vector<double> list);

// `count` values on the line through a falling table of positive values, in their logarithm; `f32`:
// at places that f32 adds up to, from the last value on.
std::vector<double> log_interpolated(std::span<const double> table, int64_t count,
                                     bool f32 = false);
// As spaced(), each value the f32 sum of the one before and the distance (stable-diffusion.cpp).
std::vector<double> added_up_f32(double a, double b, int64_t count);

// Times of the largest and the smallest level of a schedule, as the dialect takes them.
struct TimeEnds {
  double start, end;
};
TimeEnds time_ends(const ScheduleInput& in);

// The level of timestep t of networks with timesteps; of others so far up their levels.
double level_at_timestep(const Discretisation& levels, double t);

// Of a list for full denoising the last levels, for a fraction `denoise` of it; the final level is
// replaced by 0.
std::vector<double> last_part(std::vector<double> list, const ScheduleInput& in);

// The z below which a share p of the standard normal distribution lies.
double normal_quantile(double p);

// The x below which a share p of the beta distribution lies, to 1e-14 (its density is
// x^(a-1) (1-x)^(b-1)). And that share (Press et al. 2007, Numerical Recipes, 6.4).
double beta_quantile(double p, double a, double b);
double beta_share(double x, double a, double b);

}  // namespace ebb

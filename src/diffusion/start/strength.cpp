#include "diffusion/start/strength.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/solver/dialect.h"

namespace ebb {
namespace {

StartPlan last_of(int64_t steps, int64_t run) { return {steps, steps - run, run}; }

int64_t whole(double v) { return static_cast<int64_t>(v); }

StartPlan by_list_length(int64_t steps, double strength) {
  if (strength > 0.9999) return last_of(steps, steps);
  if (strength <= 0) return last_of(steps, 0);
  const double length = static_cast<double>(steps) / strength;
  require(length < 1e6, "strength: ", strength, " is too little for ", steps, " steps (a list of ",
          length, ")");
  return last_of(whole(length), steps);
}

StartPlan with_one_more(int64_t steps, double strength, bool exact) {
  if (exact && strength > 0) {
    const double length = static_cast<double>(steps) / std::min(strength, 0.999);
    require(length < 1e6, "strength: ", strength, " is too little for ", steps,
            " steps (a list of ", length, ")");
    return last_of(whole(length), steps);
  }
  return last_of(steps, whole(std::min(strength, 0.999) * static_cast<double>(steps)) + 1);
}

StartPlan in_single_precision(int64_t steps, double strength) {
  const float part = static_cast<float>(steps) * static_cast<float>(strength);
  return last_of(steps, std::min(static_cast<int64_t>(part) + 1, steps));
}

}  // namespace

StartPlan plan_strength(std::string_view dialect, int64_t steps, double strength,
                        const StrengthOptions& options) {
  find_dialect(dialect);
  require(steps > 0, "strength: needs at least one step (", steps, ")");
  require(strength >= 0 && strength <= 1, "strength: must lie in [0, 1] (", strength, ")");
  const double part = strength * static_cast<double>(steps);
  if (dialect == "comfy") return by_list_length(steps, strength);
  if (dialect == "a1111" || dialect == "kdiff")
    return with_one_more(steps, strength, options.exact_steps);
  if (dialect == "sdcpp") return in_single_precision(steps, strength);
  if (dialect == "diffusers" && options.space == Space::flow)
    return last_of(steps, steps - whole(static_cast<double>(steps) - part));
  if (dialect == "diffusers") return last_of(steps, std::min(whole(part), steps));
  return last_of(steps, std::llround(part));
}

std::vector<double> planned_levels(const std::vector<double>& sigmas, const StartPlan& plan) {
  const auto keep = std::min(static_cast<size_t>(plan.run) + 1, sigmas.size());
  return {sigmas.end() - static_cast<std::ptrdiff_t>(keep), sigmas.end()};
}

std::vector<double> stretch_of(const std::vector<double>& sigmas, const Stretch& s) {
  const auto steps = static_cast<int64_t>(sigmas.size()) - 1;
  const int64_t last = std::min(s.last.value_or(steps), steps);
  require(s.first >= 0 && last >= 0, "steps: must not be negative (", s.first, " to ", last, ")");
  const int64_t first = std::min(s.first, last);
  std::vector<double> out(sigmas.begin() + first, sigmas.begin() + last + 1);
  if (s.finish && last < steps) out.back() = 0;
  return out;
}

// ---- states --------------------------------------------------------------------------------

template <class T>
void start_state(std::span<const T> data, std::span<const T> noise, double sigma,
                 const StartOptions& o, std::span<T> out) {
  require(
      (data.empty() || data.size() == out.size()) && (noise.empty() || noise.size() == out.size()),
      "start: data (", data.size(), ") and noise (", noise.size(), ") must have ", out.size(),
      " values");
  const double alpha = alpha_of(o.space, sigma);
  double factor = sigma * o.noise_scale;
  if (o.whole_variance && o.space == Space::ve)
    factor = std::sqrt(1 + sigma * sigma) * o.noise_scale;
  for (size_t i = 0; i < out.size(); ++i) {
    const double d = data.empty() ? 0 : static_cast<double>(data[i]);
    const double z = noise.empty() ? 0 : static_cast<double>(noise[i]);
    out[i] = static_cast<T>(alpha * d + factor * z);
  }
}

template <class T>
void finish_state(std::span<T> x, double sigma, Space space) {
  const double alpha = alpha_of(space, sigma);
  if (alpha == 1 || alpha == 0) return;  // of noise alone there is no data to scale
  for (T& v : x) v = static_cast<T>(static_cast<double>(v) / alpha);
}

template void start_state(std::span<const float>, std::span<const float>, double,
                          const StartOptions&, std::span<float>);
template void start_state(std::span<const double>, std::span<const double>, double,
                          const StartOptions&, std::span<double>);
template void finish_state(std::span<float>, double, Space);
template void finish_state(std::span<double>, double, Space);

bool starts_from_noise(std::string_view dialect, double sigma, double sigma_max) {
  find_dialect(dialect);
  if (dialect != "comfy") return false;
  return sigma > sigma_max || std::abs(sigma - sigma_max) <= 1e-5 * sigma_max;
}

}  // namespace ebb

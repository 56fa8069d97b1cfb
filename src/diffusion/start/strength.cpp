#include "diffusion/start/strength.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/solver/dialect.h"

namespace ebb {
namespace {

StartPlan last_of(int64_t steps, int64_t run) { return {steps, steps - run, run}; }

int64_t whole(double v) { return static_cast<int64_t>(v); }

StartPlan of_longer_list(int64_t steps, double strength) {
  const double length = static_cast<double>(steps) / strength;
  require(length < 1e6, "strength: ", strength, " is too little for ", steps, " steps (a list of ",
          length, ")");
  return last_of(whole(length), steps);
}

StartPlan nearest(int64_t steps, double strength, const StrengthOptions&) {
  return last_of(steps, std::llround(strength * static_cast<double>(steps)));
}

StartPlan by_list_length(int64_t steps, double strength, const StrengthOptions&) {
  if (strength > 0.9999) return last_of(steps, steps);
  if (strength <= 0) return last_of(steps, 0);
  return of_longer_list(steps, strength);
}

StartPlan one_more(int64_t steps, double strength, const StrengthOptions& o) {
  if (o.exact_steps && strength > 0) return of_longer_list(steps, std::min(strength, 0.999));
  return last_of(steps, whole(std::min(strength, 0.999) * static_cast<double>(steps)) + 1);
}

StartPlan whole_part(int64_t steps, double strength, const StrengthOptions& o) {
  const double n = static_cast<double>(steps), part = std::min(strength * n, n);
  return last_of(steps, o.space == Space::flow ? steps - whole(n - part) : whole(part));
}

StartPlan one_more_f32(int64_t steps, double strength, const StrengthOptions&) {
  const float part = static_cast<float>(steps) * static_cast<float>(strength);
  return last_of(steps, std::min(static_cast<int64_t>(part) + 1, steps));
}

// What programs do where a run starts, by dialect.
struct StartDialect {
  std::string_view name;
  StartPlan (*plan)(int64_t steps, double strength, const StrengthOptions&);
  // A run from the model's largest level starts from noise of the variance of data and noise.
  bool whole_variance = false;
};
constexpr StartDialect start_dialects[] = {
    {"ebb", nearest},    {"kdiff", one_more},       {"comfy", by_list_length, true},
    {"a1111", one_more}, {"diffusers", whole_part}, {"sdcpp", one_more_f32},
};

const StartDialect& start_dialect(std::string_view name) {
  find_dialect(name);
  for (const StartDialect& d : start_dialects)
    if (d.name == name) return d;
  fail("start: no rules for dialect '", name, "'");
}

}  // namespace

StartPlan plan_strength(std::string_view dialect, int64_t steps, double strength,
                        const StrengthOptions& options) {
  require(steps > 0, "strength: needs at least one step (", steps, ")");
  require(strength >= 0 && strength <= 1, "strength: must lie in [0, 1] (", strength, ")");
  return start_dialect(dialect).plan(steps, strength, options);
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
  if (!start_dialect(dialect).whole_variance) return false;
  return sigma > sigma_max || std::abs(sigma - sigma_max) <= 1e-5 * sigma_max;
}

}  // namespace ebb

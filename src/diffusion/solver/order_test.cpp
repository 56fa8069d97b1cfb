// Order of convergence of every sampler on the mixture, whose exact probability flow is known.
#include <gtest/gtest.h>

#include "diffusion/solver/sampler.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

constexpr double first_level = 14.6, last_level = 0.05;
const std::vector<double> starts = {-17, -6, 3.1, 11};

// Options that turn noise and last steps of lower order off, where a sampler has them.
OptionTexts smooth_options(const Sampler& s) {
  OptionTexts out;
  for (const Option& o : s.options()) {
    if (o.name == "eta" || o.name == "restarts") out.emplace_back(o.name, "0");
    if (o.name == "lower_order_final") out.emplace_back(o.name, "false");
  }
  return out;
}

// The first states that the denoiser sees are put on the exact solution: a sampler that remembers
// starts with exact memories.
class WarmLatents : public HostLatents<double> {
 public:
  using HostLatents<double>::HostLatents;

  Denoised denoise(Latent& x, double sigma, bool with_uncond) override {
    if (seen_++ < remembered) {
      std::vector<double> exact;
      for (const double start : starts)
        exact.push_back(testing::Mixture{}.transport(start, first_level, sigma));
      x = put(exact);
    }
    return HostLatents<double>::denoise(x, sigma, with_uncond);
  }

 private:
  static constexpr int remembered = 8;  // of four steps with two evaluations each
  int seen_ = 0;
};

double worst_error(const Sampler& s, const std::string& name, int64_t steps) {
  const testing::Mixture mixture;
  WarmLatents latents(
      starts.size(),
      [&](std::span<const double> x, double sigma, std::span<double> d, std::span<double> u) {
        for (size_t i = 0; i < x.size(); ++i) d[i] = mixture.denoise(x[i], sigma);
        for (size_t i = 0; i < u.size(); ++i) u[i] = d[i];
      },
      testing::sine_noise());
  const SampleCall call{.sigmas = testing::karras(steps + 1, last_level, first_level, false),
                        .options = smooth_options(s)};
  const std::vector<double> x = latents.values(sample(name, latents, latents.put(starts), call));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = mixture.transport(starts[i], first_level, last_level);
    worst = std::max(worst, std::abs(x[i] - exact));
  }
  return worst;
}

// What doubling the steps shows of the order.
double order_from(const Sampler& s, const std::string& name, int64_t steps) {
  return std::log2(worst_error(s, name, steps) / worst_error(s, name, 2 * steps));
}

// By every name. Steps make whole groups of two and of three. At fewer steps the error still shows
// something of the next order, at more some of order 4 meet rounding: the nearer of two counts.
TEST(samplers, error_on_the_mixture__falls_with_their_order) {
  for (const Sampler* s : all_samplers())
    for (const SamplerFacts& facts : all_facts_of(*s)) {
      if (facts.order == 0) continue;
      const double early = order_from(*s, facts.name, 156), late = order_from(*s, facts.name, 240);
      const bool is_early = std::abs(early - facts.order) < std::abs(late - facts.order);
      EXPECT_NEAR(is_early ? early : late, facts.order, 0.15) << facts.name;
    }
}

}  // namespace
}  // namespace ebb

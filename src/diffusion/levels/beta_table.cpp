#include "diffusion/levels/beta_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/names.h"

namespace ebb {
namespace {

// alpha_bar of the cosine schedule at t of `timesteps`, but for a constant factor.
double cosine_level(int64_t t, int64_t timesteps) {
  const double c = cosine_signal(static_cast<double>(t) / static_cast<double>(timesteps));
  return c * c;
}

BetaEnds own_ends(std::string_view betas, int64_t timesteps) {
  if (betas == "scaled_linear") return {0.00085, 0.012};
  const double scale = betas == "linear" ? 1000.0 / static_cast<double>(timesteps) : 1;
  return {scale * 1e-4, scale * 0.02};
}

double beta_of(std::string_view betas, int64_t t, int64_t timesteps, const BetaEnds& e) {
  const auto between = [&](double a, double b) {
    return a + (b - a) * static_cast<double>(t) / static_cast<double>(timesteps - 1);
  };
  if (betas == "cosine")
    return std::min(1 - cosine_level(t + 1, timesteps) / cosine_level(t, timesteps), 0.999);
  if (betas == "sigmoid") return e.start + (e.end - e.start) / (1 + std::exp(-between(-6, 6)));
  if (betas == "sqrt") return std::sqrt(between(e.start, e.end));
  if (betas != "scaled_linear") return between(e.start, e.end);
  const double root = between(std::sqrt(e.start), std::sqrt(e.end));
  return root * root;
}

void add(BetaTable& t, double beta) {
  const double before = t.alpha_bar.empty() ? 1 : t.alpha_bar.back(), bar = before * (1 - beta);
  t.beta.push_back(beta);
  t.alpha_bar.push_back(bar);
  t.sigma.push_back(std::sqrt((1 - bar) / bar));
  t.posterior_variance.push_back(beta * (1 - before) / (1 - bar));
  t.mean_x0.push_back(beta * std::sqrt(before) / (1 - bar));
  t.mean_xt.push_back((1 - before) * std::sqrt(1 - beta) / (1 - bar));
}

void add_logarithms(BetaTable& t) {
  for (size_t i = 0; i < t.beta.size(); ++i)
    t.posterior_log_variance.push_back(std::log(t.posterior_variance[std::max<size_t>(i, 1)]));
}

}  // namespace

double cosine_signal(double t) {
  return std::cos((t + cosine_offset) / (1 + cosine_offset) * std::numbers::pi / 2);
}

const std::vector<std::string>& beta_names() {
  static const std::vector<std::string> names = {"linear",  "scaled_linear", "cosine",
                                                 "sigmoid", "sqrt_linear",   "sqrt"};
  return names;
}

BetaTable beta_table(std::string_view betas, int64_t timesteps, BetaEnds ends) {
  check_known("beta_table: unknown betas", betas, beta_names());
  require(timesteps >= 2, "beta_table: timesteps must be at least 2 (", timesteps, ")");
  const BetaEnds own = own_ends(betas, timesteps);
  if (ends.start == 0) ends.start = own.start;
  if (ends.end == 0) ends.end = own.end;
  require(ends.start > 0 && ends.end >= ends.start && ends.end < 1,
          "beta_table: betas must rise between 0 and 1 (", ends.start, ", ", ends.end, ")");
  BetaTable t;
  for (int64_t i = 0; i < timesteps; ++i) add(t, beta_of(betas, i, timesteps, ends));
  add_logarithms(t);
  return t;
}

BetaTable without_last_signal(const BetaTable& table, double last_alpha_bar) {
  const double first = std::sqrt(table.alpha_bar.front()), last = std::sqrt(table.alpha_bar.back());
  BetaTable t;
  double before = 1;
  for (size_t i = 0; i < table.beta.size(); ++i) {
    const double root = (std::sqrt(table.alpha_bar[i]) - last) * first / (first - last);
    const double bar = i + 1 == table.beta.size() ? last_alpha_bar : root * root;
    add(t, 1 - bar / before);
    before = bar;
  }
  add_logarithms(t);
  return t;
}

namespace {

struct ZeroSnr {
  std::string name;
  double last_alpha_bar;  // 0: the table as it is
};
const std::vector<ZeroSnr>& zero_snrs() {
  static const std::vector<ZeroSnr> all = {
      {"no", 0}, {"comfy", 4.8973451890853435e-08}, {"diffusers", 0x1p-24}};
  return all;
}

}  // namespace

const std::vector<std::string>& zero_snr_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const ZeroSnr& z : zero_snrs()) out.push_back(z.name);
    return out;
  }();
  return names;
}

BetaTable with_zero_snr(BetaTable table, std::string_view name) {
  const ZeroSnr& z = find_known("levels: unknown zero_snr", name, zero_snrs(), &ZeroSnr::name);
  return z.last_alpha_bar > 0 ? without_last_signal(table, z.last_alpha_bar) : table;
}

}  // namespace ebb

// BetaTable: the discrete-time process q(x_t | x_0) and its posteriors, in double (Ho et al. 2020,
// arXiv:2006.11239; Nichol and Dhariwal 2021, arXiv:2102.09672).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

// Entry t belongs to step t + 1 of the papers. x_t = sqrt(alpha_bar) x_0 + sqrt(1 - alpha_bar) n.
struct BetaTable {
  std::vector<double> beta, alpha_bar;
  std::vector<double> sigma;  // sqrt((1 - alpha_bar) / alpha_bar): x_t / sqrt(alpha_bar) has it
  // Of q(x_{t-1} | x_t, x_0): variance, its logarithm (that of t = 0 is the one of t = 1, as the
  // first variance is 0), and the mean's factors of x_0 and x_t.
  std::vector<double> posterior_variance, posterior_log_variance, mean_x0, mean_xt;
};

// linear (1e-4 to 0.02 over 1000 steps), scaled_linear (latent diffusion: squares of 0.00085^0.5 to
// 0.012^0.5), cosine (of Nichol and Dhariwal, beta <= 0.999), sigmoid, sqrt_linear, sqrt.
const std::vector<std::string>& beta_names();

// start, end: first and last beta; 0: the name's own (cosine has none). Throws Error.
struct BetaEnds {
  double start = 0, end = 0;
};
BetaTable beta_table(std::string_view betas, int64_t timesteps, BetaEnds ends = {});

// The table rescaled to zero terminal SNR, except for `last_alpha_bar`: sqrt(alpha_bar) is shifted
// and stretched so that its first entry stays (Lin et al. 2024, arXiv:2305.08891, algorithm 1).
BetaTable without_last_signal(const BetaTable& table, double last_alpha_bar);

// As programs do it, who leave some signal: no, comfy, diffusers. Throws Error.
const std::vector<std::string>& zero_snr_names();
BetaTable with_zero_snr(BetaTable table, std::string_view name);

// sqrt(alpha_bar) of the cosine process at t in [0, 1], but for a constant factor.
inline constexpr double cosine_offset = 0.008;
double cosine_signal(double t);

}  // namespace ebb

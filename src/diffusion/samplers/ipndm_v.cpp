// ipndm_v: slopes of the last steps, weighted by the steps' lengths. As it is known, its weights
// are exact for two slopes only; ipndm_v_exact has those of Adams and Bashforth on unequal steps.
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  int64_t max_order = 4;
  bool exact = false;
  void fields(auto&& f) {
    f("max_order", max_order, "how many slopes count, 1 to 4");
    f("exact", exact, "weights that are exact for unequal steps");
  }
  void check() const {
    require(max_order >= 1 && max_order <= 4, "ipndm_v: max_order must be 1 to 4 (", max_order,
            ")");
  }
};

// Of three and four slopes: what is added to the weights of two. `h`: the step, then those before.
// The exact third-order term has (1 - a) b where this has 1 - a b.
void add_third(std::vector<double>& w, const std::vector<double>& h) {
  const double a = h[0] / (3 * (h[0] + h[1]));
  const double b = h[0] * (h[0] + h[1]) / (h[1] * (h[1] + h[2]));
  const double term = (1 - a * b) / 2;
  w[0] += term;
  w[1] -= (1 + h[1] / h[2]) * term;
  w.push_back(term * h[1] / h[2]);
}

void add_fourth(std::vector<double>& w, const std::vector<double>& h) {
  const double one = h[0] + h[1], two = one + h[2];
  const double a = (1 - h[0] / (3 * one)) / 2 + (1 - h[0] / (2 * one)) * h[0] / (6 * two);
  const double term = a * h[0] * one * two / (h[1] * (h[1] + h[2]) * (h[1] + h[2] + h[3]));
  const double q = h[1] * (h[1] + h[2]) / (h[2] * (h[2] + h[3])), r = h[1] / h[2];
  w[0] += term;
  w[1] -= (1 + r + q) * term;
  w[2] += (r + q * (1 + h[2] / h[3])) * term;
  w.push_back(-term * q * r);
}

// Weights of `order` slopes at level i, times the step.
std::vector<double> weights(const Run& run, int64_t i, int64_t order, bool exact) {
  std::vector<double> h;
  for (int64_t k = i; k > i - order; --k) h.push_back(run.sigma(k + 1) - run.sigma(k));
  if (exact) {
    const std::vector<double> nodes = nodes_before(run.sigmas(), i, order);
    return polynomial_weights(nodes, power_moments(h[0], nodes.size()));
  }
  std::vector<double> w = {1};
  if (order > 2 && run.dialect().equal_weights_above_two) {
    w = adams_bashforth(order);
  } else if (order > 1) {
    const double q = h[0] / h[1];
    w = {(2 + q) / 2, -q / 2};
    if (order > 2) add_third(w, h);
    if (order > 3) add_fourth(w, h);
  }
  for (double& v : w) v *= h[0];
  return w;
}

Latent run(Run& run, Latent x, const Options& o) {
  History slopes(o.max_order);
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    slopes.push((x - denoised) / from);
    if (to == 0 && !run.dialect().multistep_to_zero)
      x = denoised;
    else
      x += slopes.sum(weights(run, i, slopes.size(), o.exact));
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& ipndm_v() {
  static const Sampler s = make_sampler<Options>(
      {.name = "ipndm_v",
       .help = "slopes of four steps with the weights of their lengths",
       .order = 0,  // its four weights do not quite add up to the step
       .aliases = {{.name = "ipndm_v_exact",
                    .options = {{"exact", "true"}},
                    .order = 4,
                    .help = "slopes of four steps, with the weights of unequal steps"}}},
      run);
  return s;
}

}  // namespace ebb::samplers

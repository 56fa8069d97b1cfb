// EdmStep: one step of Karras et al. 2022 (arXiv:2206.00364), algorithm 2, for any path of noise
// and scale. States stay unscaled, x = data + sigma noise; slopes are those of s(t) x.
#pragma once

#include <string>

#include "diffusion/solver/formulas.h"
#include "diffusion/solver/path.h"

namespace ebb {

struct EdmOptions {
  ChurnOptions churn;
  std::string path = "linear";
  void fields(auto&& f) {
    churn.fields(f);
    f("path", path, "how noise and scale run with time: linear, vp or ve");
  }
  void check() const {
    churn.check();
    find_path(path);
  }
};

class EdmStep {
 public:
  // Renews noise of x, at level i.
  EdmStep(Run& run, Latent& x, int64_t i, const EdmOptions& options);

  double from() const { return from_; }  // times
  double to() const { return to_; }
  bool last() const { return run_.sigma(i_ + 1) == 0; }  // there is no slope at noise level 0

  // d(s x)/dt at time t: (sigma'/sigma + s'/s) s x - s sigma'/sigma D(x, sigma).
  Latent slope(Latent& x, double t);
  // The state at time `t`, from x at from() along a slope.
  Latent moved(const Latent& x, double t, const Latent& slope) const;
  void done(const Latent& x) { run_.done(i_, x); }

 private:
  Run& run_;
  const Path& path_;
  int64_t i_;
  double from_, to_;
};

}  // namespace ebb

// Denoiser: D(x, sigma) of a network at one batch size, with classes and classifier-free guidance,
// as a compiled graph behind an interface in double.
#pragma once

#include <vector>

#include "diffusion/precond.h"
#include "nn/network.h"
#include "runtime/plan.h"

namespace ebb {

using State = std::vector<double>;  // images [N,H,W,C], row-major

struct DenoiserOptions {
  int64_t batch = 1;
  Shape image;               // {H,W,C}
  int64_t classes = 0;       // of the network; 0: it takes none
  bool guided = false;       // runs with and without class, as one batch twice as large
  DType dtype = DType::f32;  // of matrix work in the network
};

class Denoiser {
 public:
  // Throws Error if the network's output does not fit. Weights are bound afterwards.
  Denoiser(const DiffusionConfig& config, const nn::Network& network,
           const DenoiserOptions& options, const Context& context);

  void bind(std::string_view name, const Tensor& tensor) { plan_.bind(name, tensor); }
  // One class an image, -1: none. Without a call there is none. Throws Error.
  void classes(std::vector<int64_t> classes);
  // D = D_none + scale (D_class - D_none) (Ho and Salimans 2022, arXiv:2207.12598). A scale other
  // than 1 needs DenoiserOptions::guided. Throws Error.
  void guidance(double scale);

  State operator()(const State& x, double sigma);
  int64_t evaluations() const { return evaluations_; }  // calls until now

  const Precond& precond() const { return precond_; }
  const DenoiserOptions& options() const { return options_; }
  const Plan& plan() const { return plan_; }

 private:
  Precond precond_;
  DenoiserOptions options_;
  Plan plan_;
  std::vector<int64_t> classes_;
  double guidance_ = 1;
  int64_t evaluations_ = 0;
};

// Inputs x f32[N,H,W,C], skip, out, in, noise f32[] (see Precond), classes i64[N] if the network
// takes them, guidance f32[] if guided; output "denoised" f32[N,H,W,C].
Graph denoiser_graph(const DiffusionConfig& config, const nn::Network& network,
                     const DenoiserOptions& options);

}  // namespace ebb

// Loss: the training objective around a network, as a graph. Noise, noise levels and label dropout
// come from counter-based random numbers inside of it.
//
// All objectives are the same mean square in the network's output space: F(c_in x, c_noise) against
// (data - c_skip x) / c_out, that is the noise (eps), v, or EDM's and score matching's weighted
// errors of D. They differ in the preconditioning and in how noise levels are drawn:
//   edm        ln sigma normal                    (Karras et al. 2022)
//   vp, ve     t uniform, ln sigma uniform        (Song et al. 2021)
//   eps, v, x0, iddpm   timestep uniform          (Ho et al. 2020; Salimans and Ho 2022)
//   flow       time logit-normal or uniform, then shifted   (Esser et al. 2024, arXiv:2403.03206)
// learn_sigma adds the variational bound, which trains only the variances (Nichol and Dhariwal
// 2021, L_hybrid).
#pragma once

#include <optional>

#include "diffusion/precond.h"
#include "nn/network.h"

namespace ebb {

// One value an image.
struct NoiseLevels {
  Value sigma;     // f32 [N]
  Value argument;  // f32 [N], c_noise
  Value timestep;  // i64 [N] of discrete ones; else none
};
NoiseLevels draw_noise_levels(const Precond& precond, const ops::RandomKeys& key);

// What a training step sees, all drawn.
struct NoisyImages {
  Value images;  // f32 [N,H,W,C] in [-1, 1]
  Value noise;   // f32 [N,H,W,C], standard normal
  NoiseLevels level;
  decltype(nn::NetworkInputs::conditions) conditions = {};  // of the network, by name
  Value weight = {};  // f32 [N], factors of the images' errors; none: all 1
};
struct LossTerms {
  Value loss;        // f32 []
  Value mse, bound;  // f32 []; without learn_sigma, bound is none and mse is the loss
};
// Throws Error if the network's output does not fit. `random`: of dropout in the network.
LossTerms denoising_loss(const Precond& precond, const nn::Network& network, const NoisyImages& in,
                         const std::optional<ops::RandomKeys>& random);

struct GivenCondition {
  nn::Condition condition;
  Value value;  // [N,...]
};
struct LossInputs {
  Value images;         // f32 [N,H,W,C] in [-1, 1]
  ops::RandomKeys key;  // i64[], i64[N], i64[]
  std::vector<GivenCondition> conditions = {};
  bool dropout = true;  // of conditions and in the network
  Value weight = {};    // as NoisyImages has it
};
// Draws noise, levels and, for each guided condition by itself, which images train with its null
// value (label_dropout), and adds denoising_loss.
LossTerms diffusion_loss(const Precond& precond, const nn::Network& network, const LossInputs& in);

struct LossShape {
  int64_t batch = 1;
  Shape image;                                 // {H,W,C}
  std::vector<nn::Condition> conditions = {};  // that every image comes with
  bool dropout = true;    // of conditions and in the network, as training has it
  bool weighted = false;  // images come with factors of their errors
};
// A graph with inputs images, seed, image, step and, by their names, the conditions, and weight
// f32[N] where images are weighted; output "loss" f32[].
Graph loss_graph(const DiffusionConfig& config, const nn::Network& network, const LossShape& shape);

}  // namespace ebb

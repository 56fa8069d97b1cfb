// The adversary: a discriminator that is trained beside what makes pictures, in the same step, and
// what its judgement adds to the loss of what makes them.
#pragma once

#include <string>

#include "ir/graph.h"
#include "nn/weights.h"

namespace ebb::train {

struct Adversary {
  double weight = 0;      // of the loss that it adds, beside its adaptive weight; 0: there is none
  int64_t start = 0;      // steps that are trained without it
  int64_t channels = 64;  // of its first layer
};

// The names of its weights begin so.
inline constexpr std::string_view adversary_prefix = "discriminator";

// Its weights, of pictures with so many channels. None has weight decay: so they stay as they were
// drawn for the steps without it.
nn::Weights weights_of(const Adversary& a, int64_t image_channels);

// What the maker of pictures is trained by. Outputs of a loss graph, by name.
struct MadePictures {
  std::string pictures;        // [N,H,W,C]
  std::string reconstruction;  // f32[], whose gradient the adaptive weight compares with
  std::string last_layer;      // the weight of the layer that makes the pictures
  int64_t ranks = 1;           // w is of the pictures of all of them
};

// `loss` with the discriminator D in it. `loss` has the outputs "loss" and those of `made`, which
// are taken away, and the inputs "images", real pictures, and "step" i64[]. What train_step() makes
// of it is, from a.start steps on:
//   the weights of D are trained by (mean max(0, 1 - D(real)) + mean max(0, 1 + D(made))) / 2, in
//     which `made` is a constant (the hinge loss: Lim and Ye 2017, arXiv:1705.02894),
//   all others by "loss" - w mean D(made), in which the weights of D are constants,
//   w = a.weight min(|R| / (|A| + 1e-4), 1e4) with the gradients R of `reconstruction` and A of
//     -mean D(made) by the last layer (Esser et al. 2021, arXiv:2012.09841, equation 7), a constant
//     in its turn; the two numbers are those of their program.
// The value of "loss" stays as it is, so that runs and held-out pictures compare. Outputs f32[]:
// "told.disc_loss", "told.gan_loss", which is -mean D(made), and "told.gan_weight", w.
Graph with_adversary(const Graph& loss, const Adversary& a, const MadePictures& made);

}  // namespace ebb::train

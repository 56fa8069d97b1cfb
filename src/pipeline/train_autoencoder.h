// Training the autoencoder of a checkpoint, on pictures alone.
#pragma once

#include <map>
#include <string>

#include "pipeline/checkpoint_training.h"

namespace ebb {

// Of images x f32 [N,H,W,C] in [-1,1] and their latents z = mean + exp(logvar / 2) noise:
//   l1  the mean of |x - decoded z|
//   kl  the divergence of the latents' distribution from the standard normal one, summed over an
//       image's latents, its mean over the images, divided by H W C
//   loss = l1 + kl_weight * kl
// which is that of Rombach et al. 2022 (arXiv:2112.10752, appendix G), divided by H W C and without
// its discriminator, which train/adversary.h adds. f32[] each.
struct AutoencoderLoss {
  Value loss, l1, kl;
  Value made;  // the decoded z, [N,H,W,C]
};
// The name of the weight of the layer that makes pictures.
inline constexpr std::string_view last_layer = "decoder.conv_out.weight";
// `noise`: standard normal, by the shape of the latents.
AutoencoderLoss autoencoder_loss(const Component& autoencoder, Value images,
                                 const std::function<Value(const Shape& latents)>& noise,
                                 double kl_weight);
// What it is of: beside the weight, a discriminator, if its weight is above 0.
struct AutoencoderLossOptions {
  double kl_weight = 0;
  train::Adversary adversary = {};
  int64_t ranks = 1;
};
// The same with inputs images, seed, image and step; output "loss", and those of with_adversary().
Graph autoencoder_loss_graph(const Component& autoencoder, const Shape& images,
                             const AutoencoderLossOptions& options);

// The autoencoder whose latents are `factor` times those of this one, and are decoded as these: its
// 1x1 convolutions around them, `quant_conv` and `post_quant_conv`, are changed. `weights`: in the
// network's layout, behind `prefix`; those that change are new tensors. Throws Error where it has
// no such convolutions.
NamedTensors with_scaled_latents(NamedTensors weights, const std::string& prefix, double factor);

class AutoencoderTraining final : public CheckpointTraining {
 public:
  AutoencoderTraining(FinetuneRequest request, const Context& context);
  train::TrainJob job() override;

 private:
  bool has_adversary() const { return f_.disc_weight > 0; }
  void add_adversary();
  std::map<std::string, double> rates() const;
  std::vector<Graph> losses(const std::vector<train::PictureSize>& sizes, bool measured) const;
  NamedTensors batch(const PictureBatch& of) const;
  train::TrainState written(const train::TrainState& state) const;
  double latent_deviation(const train::TrainState& state) const;

  FinetuneRequest request_;
  train::TrainConfig& c_;
  FinetuneConfig& f_;
  Context context_;
  CheckpointParts parts_;
  nn::Weights weights_;
  NamedTensors given_;
  TrainPictures pictures_;
  CheckpointWriter writer_;
};

}  // namespace ebb

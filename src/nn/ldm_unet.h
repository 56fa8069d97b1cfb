// The U-Net of latent diffusion (Rombach et al. 2022, arXiv:2112.10752; with SDXL's vector
// conditioning, Podell et al. 2023, arXiv:2307.01952) in parts that a denoiser and a control
// network share: the embedding, the encoder with the middle, the decoder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/layers.h"

namespace ebb::nn {

// The architecture as counts: each variant that was published is a set of them. Defaults: Stable
// Diffusion 1.
struct LdmUnet {
  int64_t extra_channels = 0;
  int64_t model_channels = 320;
  std::vector<int64_t> channel_mult = {1, 2, 4, 4};
  int64_t num_res_blocks = 2;
  std::vector<int64_t> input_depths = {1, 1, 1, 1, 1, 1, 0, 0};
  int64_t middle_blocks = 2;
  int64_t middle_depth = 1;
  std::vector<int64_t> output_depths = {0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  int64_t num_heads = 8;
  int64_t num_head_channels = 0;
  int64_t context = 768;
  bool conv_projection = true;
  int64_t vector = 0;
  int64_t sizes = 0;
  int64_t size_channels = 256;
  int64_t guidance_channels = 0;
  int64_t groups = 32;
  void fields(auto&& f) {
    f("extra_channels", extra_channels, "of an image beside the noisy one: inpainting has 5");
    f("model_channels", model_channels, "channels that the multipliers count in");
    f("channel_mult", channel_mult, "multiplier of every level, finest first");
    f("num_res_blocks", num_res_blocks, "residual blocks a level");
    f("input_depths", input_depths, "transformer blocks behind each residual block of the encoder");
    f("middle_blocks", middle_blocks, "residual blocks in the middle: 2, 1 or 0");
    f("middle_depth", middle_depth, "transformer blocks between those two");
    f("output_depths", output_depths,
      "transformer blocks behind each residual block of the decoder, coarsest first");
    f("num_heads", num_heads, "attention heads if num_head_channels is 0");
    f("num_head_channels", num_head_channels, "channels a head; 0: num_heads heads");
    f("context", context, "channels of the text states");
    f("conv_projection", conv_projection,
      "files have the projections of transformers as 1x1 "
      "convolutions");
    f("vector", vector, "channels of the pooled text with the embedded sizes; 0: none");
    f("sizes", sizes, "numbers among the vector: of the image, its crop and the target");
    f("size_channels", size_channels, "channels of the embedding of each of these numbers");
    f("guidance_channels", guidance_channels, "of the embedding of the guidance scale; 0: none");
    f("groups", groups, "of the group norms");
  }

  int64_t levels() const { return static_cast<int64_t>(channel_mult.size()); }
  int64_t channels(int64_t level) const {
    return channel_mult[static_cast<size_t>(level)] * model_channels;
  }
  // Features that the encoder keeps.
  int64_t skips() const { return levels() * (num_res_blocks + 1); }
  int64_t pooled() const { return vector - sizes * size_channels; }
  int64_t heads(int64_t channels) const {
    return num_head_channels > 0 ? channels / num_head_channels : num_heads;
  }
};

// Throws Error, which begins with `model`, for one that cannot be built, with a decoder or without.
void check(const LdmUnet& c, std::string_view model, bool decoder = true);

// Conditions of the network: `text` [any,context]; with a vector `pooled` and `size`; with channels
// for it `guidance`, the scale of distilled guidance; with extra channels `concat` [H,W,extra], of
// the latents' size (`image_size` where nothing says it).
std::vector<Condition> ldm_conditions(const LdmUnet& c, int64_t image_size);
// Those of a control network: what is added to the features number `i` that the encoder keeps where
// the decoder takes them, and behind the last of them to the middle.
std::string control_name(int64_t i);  // "control.3"
std::vector<Condition> control_conditions(const LdmUnet& c);
// Those of an adapter: what the encoder adds to its own features as it goes on, level by level, and
// behind the last of them to the middle. A level with attention takes them before it is halved, one
// without it behind that (as diffusers does).
std::string adapter_name(int64_t level);  // "adapter.0"
std::vector<Condition> adapter_conditions(const LdmUnet& c);

// Those of image adapters (IP-Adapter): keys and values [T,width] of further attention, for each
// layer that attends to text, and a factor of its result. Of several adapters each is followed by
// the number of the adapter: image_keys.3.1.
std::string image_keys(int64_t layer);      // "image_keys.3"
std::string image_values(int64_t layer);    // "image_values.3"
std::string image_strength(int64_t layer);  // "image_strength.3"
bool of_image_adapter(std::string_view name);
// One for all layers: where in the image the adapter acts, [T], a factor for each of the network's
// latents, row by row, behind them for those of half the sides (halved()), and so on.
std::string image_mask(int64_t adapter);  // "image_mask.1"
// What a convolution of stride 2 makes of sides {H,W}.
Shape halved(const Shape& sides);
// Channels of the layers that attend to text, in the order in which these adapters count them:
// those of the encoder, of the decoder, and last of the middle.
std::vector<int64_t> image_layers(const LdmUnet& c);

struct LdmSignals {
  Value emb;   // SiLU of the embedding of the noise level and the vector [N,4*model_channels]
  Value text;  // [N,T,context]; without one: a state of zeros
  // Of adapters, by image_layers(); may be empty. Their masks are image_mask()'s.
  std::vector<std::vector<KeysValues>> images = {};
  Shape sides = {};  // {H,W} of the noisy image
};
// `added`: to the embedding [N,4*model_channels], before SiLU; may be empty.
LdmSignals ldm_signals(const Params& p, const LdmUnet& c, const NetworkInputs& in,
                       Value added = {});

struct LdmFeatures {
  Value middle;
  std::vector<Value> skips;  // of the encoder, finest first
};
// `image`: [N,H,W,in_channels], to which the extra channels are added. `hint`: added to the first
// features, where there is one.
LdmFeatures ldm_encoder(const Params& p, const LdmUnet& c, const NetworkInputs& in,
                        const LdmSignals& s, Value hint = {});
// The features with the residuals of a control network, where there are such.
LdmFeatures with_control(LdmFeatures f, const NetworkInputs& in);
// The output blocks: features of the finest level.
Value ldm_decoder(const Params& p, const LdmUnet& c, LdmFeatures f, const LdmSignals& s);

}  // namespace ebb::nn

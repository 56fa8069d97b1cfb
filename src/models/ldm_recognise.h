// What the networks of latent diffusion share in recognise(): counts of blocks, by the original's
// names of tensors.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>

#include "models/family.h"
#include "models/names.h"
#include "nn/ldm_names.h"
#include "nn/ldm_unet.h"

namespace ebb::models {

// Transformer blocks behind the residual block of `block`.
inline int64_t ldm_depth(const Names& n, const std::string& block) {
  return n.count(str(block, ".1.transformer_blocks."), ".norm1.weight");
}

// Counts of the encoder and the middle.
inline void recognise_encoder(const Names& n, nn::LdmUnet& c) {
  const auto width = [&](int64_t k) {
    return n.size(str("input_blocks.", k, ".0.in_layers.2.weight"), 0);
  };
  c.num_res_blocks = 0;
  while (width(c.num_res_blocks + 1) > 0) ++c.num_res_blocks;
  c.channel_mult.clear();
  c.input_depths.clear();
  const int64_t step = c.num_res_blocks + 1;
  for (int64_t k = 1; c.num_res_blocks > 0 && width(k) > 0; k += step) {
    c.channel_mult.push_back(width(k) / std::max<int64_t>(c.model_channels, 1));
    for (int64_t i = 0; i < c.num_res_blocks; ++i)
      c.input_depths.push_back(ldm_depth(n, str("input_blocks.", k + i)));
  }
  c.middle_depth = ldm_depth(n, "middle_block");
  const bool two =
      n.has("middle_block.1.in_layers.2.weight") || n.has("middle_block.2.in_layers.2.weight");
  c.middle_blocks = n.has("middle_block.0.in_layers.2.weight") ? (two ? 2 : 1) : 0;
}

// Of each such network there is one.
inline const Family& ldm_family(const nn::LdmUnet& c) { return *find_family(ModelConfig(c)); }

// Heads, groups and sizes leave no trace in shapes: the family's stand, or else 64 channels a head.
inline void guess_ldm(nn::LdmUnet& c) {
  constexpr int64_t head = 64, usual_heads = 8, most_groups = 32;
  const Family& family = ldm_family(c);
  const bool counted = family.heads > 0 || c.model_channels % head != 0;
  c.num_heads = !counted ? 0 : family.heads > 0 ? family.heads : usual_heads;
  c.num_head_channels = counted ? 0 : head;
  c.groups = std::gcd(c.model_channels, most_groups);
  const int64_t numbers = c.vector - family.pooled;
  c.sizes = numbers > 0 && numbers % c.size_channels == 0 ? numbers / c.size_channels : 0;
}

// The first transformer; "" if there is none.
inline std::string first_transformer(const Names& n) {
  const auto has_block = [&](int64_t k) {
    return n.has(str("input_blocks.", k, ".0.in_layers.2.weight")) ||
           n.has(str("input_blocks.", k, ".0.op.weight"));
  };
  for (int64_t k = 1; has_block(k); ++k)
    if (ldm_depth(n, str("input_blocks.", k)) > 0) return str("input_blocks.", k, ".1");
  return ldm_depth(n, "middle_block") > 0 ? "middle_block.1" : "";
}

// All of a network's counts but those of its decoder; false if it is none of latent diffusion.
inline bool recognise_ldm(const Names& n, nn::LdmUnet& c) {
  const std::string transformer = first_transformer(n);
  c.model_channels = n.size("input_blocks.0.0.weight", 0);
  if (transformer.empty() || c.model_channels == 0 || !n.has("time_embed.0.weight")) return false;
  recognise_encoder(n, c);
  c.context = n.size(transformer + ".transformer_blocks.0.attn2.to_k.weight", 1);
  c.conv_projection = n.size(transformer + ".proj_in.weight", 2) > 0;
  c.vector = n.size("label_emb.0.0.weight", 1);
  c.guidance_channels = n.size("time_embed.cond_proj.weight", 1);
  guess_ldm(c);
  return true;
}

inline std::string guessed_ldm(const nn::LdmUnet& c) {
  return str(c.num_head_channels > 0 ? str("num_head_channels ", c.num_head_channels)
                                     : str("num_heads ", c.num_heads),
             ", groups ", c.groups, c.vector > 0 ? str(", sizes ", c.sizes) : "");
}

}  // namespace ebb::models

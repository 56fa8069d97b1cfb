#include "nn/ldm_names.h"

#include "base/error.h"
#include "nn/file_shapes.h"

namespace ebb::nn {
namespace {

constexpr std::string_view first_down = "down_blocks.0.resnets.0.conv1.weight";

}  // namespace

LdmNames::LdmNames(const LdmUnet& c, int64_t hint_convolutions) {
  add("time_embed.0", "time_embedding.linear_1");
  add("time_embed.2", "time_embedding.linear_2");
  add("time_embed.cond_proj", "time_embedding.cond_proj");
  add("label_emb.0.0", "add_embedding.linear_1");
  add("label_emb.0.2", "add_embedding.linear_2");
  add("input_blocks.0.0", "conv_in");
  add("out.0", "conv_norm_out");
  add("out.2", "conv_out");
  add_encoder(c);
  add_middle(c);
  if (hint_convolutions > 0)
    add_control(c, hint_convolutions);
  else
    add_decoder(c);
}

void LdmNames::add(const std::string& original, const std::string& diffusers) {
  to_diffusers_[original] = diffusers;
  to_original_[diffusers] = original;
}

void LdmNames::add_res(const std::string& original, const std::string& diffusers) {
  constexpr const char* layers[][2] = {
      {"in_layers.0", "norm1"},          {"in_layers.2", "conv1"},
      {"out_layers.0", "norm2"},         {"out_layers.3", "conv2"},
      {"emb_layers.1", "time_emb_proj"}, {"skip_connection", "conv_shortcut"}};
  for (const auto& [ours, theirs] : layers) add(original + "." + ours, diffusers + "." + theirs);
}

// Blocks are counted through here, within their levels there.
void LdmNames::add_encoder(const LdmUnet& c) {
  int64_t block = 1;
  for (int64_t level = 0; level < c.levels(); ++level) {
    const std::string side = str("down_blocks.", level, '.');
    for (int64_t i = 0; i < c.num_res_blocks; ++i, ++block) {
      add_res(str("input_blocks.", block, ".0"), str(side, "resnets.", i));
      add(str("input_blocks.", block, ".1"), str(side, "attentions.", i));
    }
    add(str("input_blocks.", block++, ".0.op"), side + "downsamplers.0.conv");
  }
}

void LdmNames::add_middle(const LdmUnet& c) {
  const bool attends = c.middle_depth > 0;
  add_res("middle_block.0", "mid_block.resnets.0");
  add_res(attends ? "middle_block.2" : "middle_block.1", "mid_block.resnets.1");
  if (attends) add("middle_block.1", "mid_block.attentions.0");
}

void LdmNames::add_decoder(const LdmUnet& c) {
  int64_t block = 0;
  for (int64_t level = 0; level < c.levels(); ++level) {
    const std::string side = str("up_blocks.", level, '.');
    for (int64_t i = 0; i <= c.num_res_blocks; ++i, ++block) {
      const std::string here = str("output_blocks.", block);
      const bool attends = c.output_depths[static_cast<size_t>(block)] > 0;
      add_res(here + ".0", str(side, "resnets.", i));
      if (attends) add(here + ".1", str(side, "attentions.", i));
      if (i == c.num_res_blocks)
        add(here + (attends ? ".2.conv" : ".1.conv"), side + "upsamplers.0.conv");
    }
  }
}

// Every second layer of the hint network is an activation.
void LdmNames::add_control(const LdmUnet& c, int64_t hint_convolutions) {
  const std::string hint = "controlnet_cond_embedding.";
  add("input_hint_block.0", hint + "conv_in");
  for (int64_t i = 1; i < hint_convolutions - 1; ++i)
    add(str("input_hint_block.", 2 * i), str(hint, "blocks.", i - 1));
  add(str("input_hint_block.", 2 * (hint_convolutions - 1)), hint + "conv_out");
  for (int64_t i = 0; i < c.levels() * (c.num_res_blocks + 1); ++i)
    add(str("zero_convs.", i, ".0"), str("controlnet_down_blocks.", i));
  add("middle_block_out.0", "controlnet_mid_block");
}

// The longest path of a layer that the name begins with is renamed.
std::string LdmNames::renamed(const Modules& modules, std::string_view name) {
  for (size_t dot = name.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = name.rfind('.', dot - 1))
    if (const auto it = modules.find(name.substr(0, dot)); it != modules.end())
      return it->second + std::string(name.substr(dot));
  return std::string(name);
}

LdmNames LdmNames::of_diffusers(const FileShapes& file) {
  LdmUnet c;
  const std::string hint = "controlnet_cond_embedding.";
  c.num_res_blocks = count_in_a_row(file, "down_blocks.0.resnets.", ".conv1.weight");
  const int64_t levels = count_in_a_row(file, "down_blocks.", ".resnets.0.conv1.weight");
  c.channel_mult.assign(static_cast<size_t>(levels), 1);
  c.middle_depth = file.contains("mid_block.attentions.0.norm.weight") ? 1 : 0;
  c.output_depths.clear();
  for (int64_t level = 0; level < levels; ++level)
    for (int64_t i = 0; i <= c.num_res_blocks; ++i)
      c.output_depths.push_back(
          file.contains(str("up_blocks.", level, ".attentions.", i, ".norm.weight")) ? 1 : 0);
  const int64_t blocks = count_in_a_row(file, hint + "blocks.", ".weight");
  return LdmNames(c, file.contains(hint + "conv_in.weight") ? blocks + 2 : 0);
}

bool has_diffusers_names(const FileShapes& file) {
  return file.contains("conv_in.weight") && file.contains(std::string(first_down));
}

FileShapes with_original_names(const FileShapes& file) {
  if (!has_diffusers_names(file)) return file;
  const LdmNames names = LdmNames::of_diffusers(file);
  FileShapes out;
  for (const auto& [name, shape] : file) out.emplace(names.to_original(name), shape);
  return out;
}

}  // namespace ebb::nn

// `ebb generate` on checkpoints of Stable Diffusion's layout with small hashed networks.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/safetensors.h"
#include "models/model.h"
#include "nn/hashed_weights.h"
#include "nn/storage.h"
#include "support/program.h"
#include "text/clip_vocabulary.h"

namespace ebb::testing {

// The config of a model with these fields.
inline ModelConfig config_of(const Model& model, const std::string& fields) {
  ModelConfig c = model.presets[0].config;
  parse_fields(c.fields(), fields);
  return c;
}

// Files of components with hashed weights, and commands on them.
class GenerateProgram : public Program {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
    Program::SetUp();
  }
  struct Part {
    std::string model, fields, prefix;
  };
  static Part unet() {
    return {"ldm_unet",
            "{model_channels=64 channel_mult=[1,2] num_res_blocks=1 input_depths=[1,0] "
            "middle_depth=1 output_depths=[0,0,1,1] num_heads=0 num_head_channels=64 context=64 "
            "conv_projection=false}",
            "model.diffusion_model."};
  }
  static Part text() {
    return {"clip_text", "{width=64 layers=2 heads=1 hidden=64}", "cond_stage_model.transformer."};
  }
  static Part autoencoder() {
    return {"autoencoder_kl", "{channels=32 channel_mult=[1,1,1,1] res_blocks=1}",
            "first_stage_model."};
  }

  // A file with these components.
  std::string checkpoint(const std::vector<Part>& parts, const std::string& name = "sd") const {
    std::vector<io::NamedTensor> tensors;
    for (const Part& p : parts) {
      const Model& model = *find_component(p.model).model;
      for (const nn::Weight& w : weights_of(model, config_of(model, p.fields)))
        tensors.push_back({p.prefix + w.name, nn::hashed_file_tensor(w.name, nn::file_shape(w))});
    }
    const std::string file = folder_ / (name + ".safetensors");
    io::write_safetensors(file, tensors, {});
    return file;
  }
  std::string whole() const { return checkpoint({unet(), text(), autoencoder()}); }
  std::string png(const std::string& name = "x") const { return folder_ / (name + ".png"); }
  // The whole checkpoint's picture of 64x64, by a step.
  std::string to(const std::string& out, const std::string& flags = "") const {
    return str("generate --device cpu --model ", whole(),
               " --prompt fox --steps 1 --size 64 --out ", out, " ", flags);
  }
  std::string generate(const std::string& model, const std::string& flags) const {
    return str("generate --device cpu --model ", model, " --steps 2 --size 64x48 --out ", png(),
               " ", flags);
  }
};

}  // namespace ebb::testing

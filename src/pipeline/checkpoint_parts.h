// CheckpointParts: the components that a text-to-image run needs, from one file or several.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/load_model.h"
#include "pipeline/scheduler_config.h"
#include "pipeline/text_stage.h"

namespace ebb {

struct CheckpointParts {
  LoadedModel denoiser;
  std::vector<LoadedComponent> text_encoders;  // in the file's order
  std::optional<LoadedComponent> autoencoder;
  std::optional<LoadedModel> refiner = {};             // for the last part of the levels
  std::vector<LoadedComponent> refiner_encoders = {};  // what it reads: its file's, or these
  std::optional<LoadedComponent> image_encoder = {};   // that image adapters read by
  std::optional<LoadedComponent> upscaler = {};        // of finished pictures
  std::optional<LoadedComponent> hires_upscaler = {};  // of a second pass (pipeline/hires.h)
  std::string tokenizer;  // a folder with the tokenizer's files; "": the built-in vocabulary
  std::optional<SchedulerConfig> scheduler = {};  // of a folder that has one
  // force_zeros_for_empty_prompt of the folders of diffusers that say it.
  std::optional<bool> zeros_for_empty = {}, refiner_zeros_for_empty = {};
  std::optional<double> guidance = {};  // that suits it, where the denoiser's file says it
};

struct PartFiles {
  std::string model;  // a file of all components, or a folder of diffusers
  std::vector<std::string> text_encoders = {};  // files that win over the model's
  std::string autoencoder = {};                 // likewise
  std::string variant = {};                     // of the files in any of the folders: "fp16"
  bool averaged = false;     // the denoiser's moving averages, where its file has both
  std::string refiner = {};  // a file or folder, as `model`
  std::string hires_upscaler = {};
  std::string image_encoder = {};  // a file or folder, see load_image_encoder()
};

// An autoencoder of a file, or of a folder that may have it in variants. Throws Error, naming
// `flag`.
LoadedComponent load_autoencoder(const std::string& file, const char* flag,
                                 const std::string& variant = "");

// Throws Error for files that are not there, hold nothing that is looked for, or lack a denoiser.
// `overrides`: fields of DiffusionConfig, as load_model() takes them.
CheckpointParts load_parts(const PartFiles& files,
                           const std::vector<std::pair<std::string, std::string>>& overrides = {});

}  // namespace ebb

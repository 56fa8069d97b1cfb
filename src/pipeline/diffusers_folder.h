// Folders as diffusers lays its pipelines out: which files have which component.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ebb {

struct DiffusersFolder {
  std::string denoiser, autoencoder;       // files; "" where there is none
  std::vector<std::string> text_encoders;  // the first and the second
  std::string tokenizer;                   // a folder; "" where there is none
  std::string scheduler;                   // scheduler_config.json; ""
  std::string autoencoder_config;          // vae/config.json; ""
  std::string pipeline;                    // its class, of model_index.json; ""
  std::vector<std::string> missing;        // components that model_index.json names and has no file
  std::optional<bool> zeros_for_empty;     // its force_zeros_for_empty_prompt
};

// `variant`: of files that are there in several, "fp16"; "": those without, or else the only one.
// Throws Error for a folder without a denoiser, of a pipeline that is not implemented, and where a
// variant has to be named.
DiffusersFolder read_diffusers_folder(const std::string& path, const std::string& variant = "");
// The file with the weights of the component that a folder has; "" if there is none. Throws Error
// where a variant has to be named.
std::string component_weights(const std::string& folder, const std::string& variant = "");

}  // namespace ebb

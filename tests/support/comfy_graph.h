// Graphs of ComfyUI's API for tests, of our own making.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ebb::testing {

inline nlohmann::json comfy_link(const std::string& node, int output = 0) { return {node, output}; }

inline nlohmann::json comfy_node(const std::string& type, nlohmann::json inputs) {
  return {{"class_type", type}, {"inputs", std::move(inputs)}};
}

// From a checkpoint and two texts to a saved picture, by the numbers that clients count on.
inline nlohmann::json comfy_graph(const std::string& checkpoint) {
  return {
      {"4", comfy_node("CheckpointLoaderSimple", {{"ckpt_name", checkpoint}})},
      {"5", comfy_node("EmptyLatentImage", {{"width", 64}, {"height", 48}, {"batch_size", 1}})},
      {"6", comfy_node("CLIPTextEncode", {{"text", "fox"}, {"clip", comfy_link("4", 1)}})},
      {"7", comfy_node("CLIPTextEncode", {{"text", "dog"}, {"clip", comfy_link("4", 1)}})},
      {"3", comfy_node("KSampler", {{"seed", 7},
                                    {"steps", 2},
                                    {"cfg", 7},
                                    {"sampler_name", "euler"},
                                    {"scheduler", "normal"},
                                    {"denoise", 1},
                                    {"model", comfy_link("4")},
                                    {"positive", comfy_link("6")},
                                    {"negative", comfy_link("7")},
                                    {"latent_image", comfy_link("5")}})},
      {"8", comfy_node("VAEDecode", {{"samples", comfy_link("3")}, {"vae", comfy_link("4", 2)}})},
      {"9", comfy_node("SaveImage", {{"filename_prefix", "ebb"}, {"images", comfy_link("8")}})}};
}

// The same from a picture that was uploaded.
inline nlohmann::json comfy_edit_graph(const std::string& checkpoint, const std::string& image) {
  nlohmann::json out = comfy_graph(checkpoint);
  out["10"] = comfy_node("LoadImage", {{"image", image}});
  out["5"] = comfy_node("VAEEncode", {{"pixels", comfy_link("10")}, {"vae", comfy_link("4", 2)}});
  out["3"]["inputs"]["denoise"] = 0.6;
  return out;
}

}  // namespace ebb::testing

// Targets: whose weights an adapter file's names mean.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/kind.h"
#include "models/model.h"
#include "runtime/weight_store.h"

namespace ebb::adapters {

// A network whose weights may be changed.
struct Network {
  enum class Part : uint8_t { denoiser, text };
  Part part = Part::denoiser;
  int64_t number = 1;  // of the text encoders: 1 CLIP-L or the only one, 2 CLIP-G
  const Model* model;
  ModelConfig config;
  std::shared_ptr<WeightStore> weights;

  static std::string name_of(Part part, int64_t number);  // "the U-Net", "text encoder 2"
};

// What a network's layers are called in files that are written.
class LayerNames {
 public:
  // `several_texts`: the denoiser reads more text encoders than one, which kohya numbers then.
  explicit LayerNames(const Network& network, bool several_texts = false);
  std::string diffusers(const std::string& layer) const;
  // With the prefix of the program; without the ending of a tensor.
  std::string written(const std::string& layer, FileNames names) const;
  std::string peft_prefix() const;  // "unet.", "text_encoder_2."

 private:
  Network::Part part_;
  int64_t number_;
  bool kohya_original_;
  bool numbered_;
  nn::FilePlaces diffusers_;  // may be empty
};

// A layer of one of the networks; its weights are "<layer>.weight" and "<layer>.bias".
struct Target {
  size_t network = 0;
  std::string layer;  // as the network names it
};

// The names that files may have for layers are made of the networks' own: the original's and
// diffusers', their dots perhaps replaced by underscores, behind the prefixes of each program.
class Targets {
 public:
  explicit Targets(const std::vector<Network>& networks);
  // None if no network has such a layer.
  std::optional<Target> find(const std::string& stem) const;
  // "(nearest: 'lora_unet_...')" of the known names with the same prefix; "" if none is near.
  std::string nearest(const std::string& stem) const;
  // Which network a stem's prefix means, whether that has the layer or not: "text encoder 2".
  static std::string meant(const std::string& stem);

 private:
  struct Names {
    std::map<std::string, std::string, std::less<>> layers;  // spelling -> layer
    Network::Part part;
    int64_t number;
  };
  std::vector<Names> names_;
};

}  // namespace ebb::adapters

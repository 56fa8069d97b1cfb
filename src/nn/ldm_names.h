// What diffusers calls the tensors of the U-Nets and control networks of latent diffusion, whose
// weights have the original's names here.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "nn/ldm_unet.h"
#include "nn/weights.h"

namespace ebb::nn {

class LdmNames {
 public:
  // Of a network with these counts; of a control network, with `hint_convolutions` in its hint
  // network.
  explicit LdmNames(const LdmUnet& c, int64_t hint_convolutions = 0);
  // Of the network whose tensors a file of diffusers has.
  static LdmNames of_diffusers(const FileShapes& file);

  // The name itself if it is none of the network's.
  std::string to_diffusers(std::string_view original) const {
    return renamed(to_diffusers_, original);
  }
  std::string to_original(std::string_view diffusers) const {
    return renamed(to_original_, diffusers);
  }

 private:
  using Modules = std::map<std::string, std::string, std::less<>>;  // by the path of a layer
  static std::string renamed(const Modules& modules, std::string_view name);
  void add(const std::string& original, const std::string& diffusers);
  void add_res(const std::string& original, const std::string& diffusers);
  void add_encoder(const LdmUnet& c);
  void add_middle(const LdmUnet& c);
  void add_decoder(const LdmUnet& c);
  void add_control(const LdmUnet& c, int64_t hint_convolutions);

  Modules to_diffusers_, to_original_;
};

// Whether a file has the names of diffusers.
bool has_diffusers_names(const FileShapes& file);
// The same tensors by the names of the original; the shapes themselves if they have them already.
FileShapes with_original_names(const FileShapes& file);

}  // namespace ebb::nn

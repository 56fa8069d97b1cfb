#include "apps/cli/control_flags.h"

#include "apps/cli/unused_flags.h"
#include "base/error.h"
#include "base/file_and_numbers.h"

namespace ebb::cli {
namespace {

struct UpscaleText {
  std::string file;
  double scale = 0;  // 0: the network's own
};
UpscaleText upscale_text(const std::string& text) {
  const FileAndNumbers said = file_and_numbers(text, 1, "generate: --upscale", "scale");
  return {said.file, said.number(0, 0)};
}

}  // namespace

LoadedModel with_controls(LoadedModel denoiser, const ControlFlags& flags) {
  require(flags.control.texts.size() == flags.control_model.texts.size(),
          "generate: --control-model must be given once for each --control (",
          flags.control_model.texts.size(), " for ", flags.control.texts.size(), ")");
  std::vector<LoadedComponent> networks;
  for (const std::string& file : flags.control_model.texts)
    networks.push_back(load_control_network(file, denoiser));
  LoadedModel out = ebb::with_controls(std::move(denoiser), networks);
  require(flags.image_encoder.empty() || needs_image_encoder(out),
          "generate: --image-encoder has no effect without an IP-Adapter among --control-model  ",
          flags.image_encoder);
  return out;
}

std::vector<ControlInput> control_inputs(const ControlFlags& flags) {
  if (flags.control.texts.empty()) {
    ControlFlags given = flags, plain;
    check_unused(fields_of(given), fields_of(plain), {"control_mode", "control_resize"},
                 "without --control");
  }
  std::vector<ControlInput> out;
  for (const std::string& text : flags.control.texts) {
    out.push_back(read_control(text));
    out.back().mode = control_mode(flags.control_mode);
    out.back().stretch = flags.control_resize == "stretch";
  }
  return out;
}

LoadedComponent upscaler_of(const ControlFlags& flags) {
  return load_upscaler(upscale_text(flags.upscale).file);
}

double upscale_of(const ControlFlags& flags) {
  if (flags.upscale.empty()) return 0;
  const double scale = upscale_text(flags.upscale).scale;
  require(scale >= 0 && scale <= 16,
          "generate: --upscale: the scale must be more than 0 and at most 16 (", scale, ")");
  return scale;
}

}  // namespace ebb::cli

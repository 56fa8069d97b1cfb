// Flags of control networks and of the upscaler behind a run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/unused_flags.h"
#include "base/text_list.h"
#include "pipeline/control.h"
#include "pipeline/upscaler.h"

namespace ebb::cli {

struct ControlFlags {
  TextList control, control_model, control_mask, control_blocks;
  std::string control_mode = "balanced", control_resize = "crop", image_encoder, upscale;
  void fields(auto&& f) {
    f("control", control,
      "KIND[/TASK]=IMAGE[:strength[:start[:end]]], once for each control network: IMAGE is the "
      "finished map or picture (none), or made a map (invert, threshold, canny); TASK: what it "
      "shows, for networks of several tasks");
    f("control_model", control_model,
      "a file with a control network, T2I-Adapter or IP-Adapter, once for each --control");
    f("control_mask", control_mask,
      "[K=]FILE, of the IP-Adapter number K, 1 being the first --control, or else once for each: "
      "white where its image counts");
    f("control_blocks", control_blocks,
      "[K=]TEXT, likewise: the blocks through which it acts: style, layout, style+layout, "
      "up.0.1=0.8,down.2, or a number for each");
    f("image_encoder", image_encoder,
      "CLIP's vision encoder, a file or folder, by which IP-Adapters read images");
    f("control_mode", control_mode,
      "balanced, prompt or control (what is more important, as in A1111), or guess (diffusers)");
    f("control_resize", control_resize,
      "crop: the middle of the image; stretch: all of it; fill: all of it, in the colour of its "
      "edge");
    f("upscale", upscale,
      "FILE[:scale], an upscaler of the finished pictures (ESRGAN, Real-ESRGAN)");
  }
  void choices(auto&& f) { f("control_resize", control_resize, {"crop", "stretch", "fill"}); }
  std::optional<UnusedField> unused() const;
};

// The denoiser with the networks that the flags name. Throws Error.
LoadedModel with_controls(LoadedModel denoiser, const ControlFlags& flags);
std::vector<ControlInput> control_inputs(const ControlFlags& flags);

// Of --upscale FILE[:scale]: the network, and the scale; 0: its own.
LoadedComponent upscaler_of(const ControlFlags& flags);
double upscale_of(const ControlFlags& flags);

}  // namespace ebb::cli

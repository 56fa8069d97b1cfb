#include "apps/cli/control_flags.h"

#include <algorithm>
#include <filesystem>

#include "base/by_flag.h"
#include "base/error.h"
#include "base/file_and_numbers.h"
#include "io/mask_file.h"

namespace ebb::cli {
namespace {

struct UpscaleText {
  std::string file;
  double scale = 0;  // 0: the network's own
};
UpscaleText upscale_text(const std::string& text) {
  const FileAndNumbers said = file_and_numbers(text, 1, "generate: --upscale", "scale");
  require(said.numbers.empty() || (said.numbers[0] > 0 && said.numbers[0] <= 16),
          "generate: --upscale: the scale must be more than 0 and at most 16 (got '", text, "')");
  return {said.file, said.number(0, 0)};
}

// Of a flag that is given once for each control, or with the number of one, "2=...": a text for
// each control, "" for those that it is not of.
std::vector<std::string> of_controls(const TextList& flag, const char* name, size_t controls) {
  std::vector<std::string> out(controls);
  for (size_t i = 0; i < flag.texts.size(); ++i) {
    std::string text = flag.texts[i];
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    size_t number = i + 1;
    if (digits > 0 && digits < 4 && text.substr(digits).starts_with('=')) {
      number = std::stoul(text.substr(0, digits));
      text.erase(0, digits + 1);
    }
    require(number >= 1 && number <= controls, "generate: ", name,
            " is for a --control that is not there: number ", number, " of ", controls, " (got '",
            flag.texts[i], "')");
    require(!text.empty(), "generate: ", name, " says nothing (got '", flag.texts[i], "')");
    require(out[number - 1].empty(), "generate: ", name, " is given twice for --control number ",
            number, " (got '", flag.texts[i], "')");
    out[number - 1] = std::move(text);
  }
  return out;
}

// A number of a control before it was read already.
Tensor mask_of(const std::string& file, size_t controls) {
  std::error_code ignored;
  require(file.find('=') == std::string::npos || std::filesystem::exists(file, ignored),
          "generate: --control-mask must be FILE or K=FILE, where K, 1 to ", controls,
          ", is the number of a --control (got '", file, "')");
  return by_flag("generate: --control-mask", [&] { return io::read_mask(file); });
}

}  // namespace

LoadedModel with_controls(LoadedModel denoiser, const ControlFlags& flags) {
  require(flags.control.texts.size() == flags.control_model.texts.size(),
          "generate: --control-model must be given once for each --control (",
          flags.control_model.texts.size(), " for ", flags.control.texts.size(), ")");
  std::vector<LoadedComponent> networks;
  for (const std::string& file : flags.control_model.texts)
    networks.push_back(
        by_flag("generate: --control-model", [&] { return load_control_network(file, denoiser); }));
  LoadedModel out = ebb::with_controls(std::move(denoiser), networks);
  require(flags.image_encoder.empty() || needs_image_encoder(out),
          "generate: --image-encoder has no effect without an IP-Adapter among --control-model  ",
          flags.image_encoder);
  return out;
}

std::optional<UnusedField> ControlFlags::unused() const {
  const UnusedRule rules[] = {{control.texts.empty(),
                               {"control_mode", "control_resize", "control_mask", "control_blocks"},
                               "without",
                               "control"}};
  ControlFlags given = *this, plain;
  return unused_field(fields_of(given), fields_of(plain), rules);
}

std::vector<ControlInput> control_inputs(const ControlFlags& flags) {
  require_used(flags.unused());
  std::vector<ControlInput> out;
  for (const std::string& text : flags.control.texts) {
    out.push_back(read_control(text));
    out.back().mode = control_mode(flags.control_mode);
    out.back().resize = control_resize(flags.control_resize);
  }
  const auto masks = of_controls(flags.control_mask, "--control-mask", out.size()),
             blocks = of_controls(flags.control_blocks, "--control-blocks", out.size());
  for (size_t k = 0; k < out.size(); ++k) {
    if (!masks[k].empty()) out[k].mask = mask_of(masks[k], out.size());
    out[k].blocks = blocks[k];
  }
  return out;
}

LoadedComponent upscaler_of(const ControlFlags& flags) {
  constexpr std::string_view flag = "generate: --upscale";
  return by_flag(flag, [&] { return load_upscaler(upscale_text(flags.upscale).file, flag); });
}

double upscale_of(const ControlFlags& flags) {
  if (flags.upscale.empty()) return 0;
  return upscale_text(flags.upscale).scale;
}

}  // namespace ebb::cli

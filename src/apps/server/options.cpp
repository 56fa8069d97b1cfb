#include "apps/server/options.h"

#include <filesystem>

#include "apps/server/fault.h"
#include "base/parse_json.h"
#include "io/file.h"

namespace ebb::server {
namespace {

constexpr size_t most_bytes = size_t{1} << 20, most_options = 1000;

// What clients look for.
Json usual() {
  return {{"samples_format", "png"},
          {"sd_model_checkpoint", nullptr},
          {"sd_checkpoint_hash", nullptr},
          {"sd_vae", "Automatic"},
          {"forge_additional_modules", Json::array()},
          {"forge_preset", "all"},
          {"CLIP_stop_at_last_layers", 1},
          {"sdxl_clip_l_skip", false},
          {"live_previews_enable", true},
          {"show_progress_every_n_steps", 10},
          {"show_progress_grid", true},
          {"live_previews_image_format", "png"},
          {"jpeg_quality", 80},
          {"webp_lossless", false},
          {"eta_noise_seed_delta", 0},
          {"randn_source", "GPU"},
          {"inpainting_mask_weight", 1.0},
          {"initial_noise_multiplier", 1.0},
          {"img2img_color_correction", false},
          {"img2img_fix_steps", false},
          {"interrupt_after_current", true},
          {"comma_padding_backtrack", 20}};
}

}  // namespace

Options::Options(std::string file) : file_(std::move(file)), options_(usual()) {
  if (file_.empty() || !std::filesystem::exists(file_)) return;
  const JsonObject kept = json_object(io::read_whole_file(file_, "serve: --options", most_bytes));
  require(kept.fault.empty(), "serve: --options: ", kept.fault, "  ", file_);
  options_.update(kept.value);
  require(options_.size() <= most_options, "serve: --options: more than ", most_options,
          " options (got ", options_.size(), ")  ", file_);
}

Json Options::all() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

Json Options::get(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto at = options_.find(std::string(name));
  return at == options_.end() ? Json() : *at;
}

void Options::set(const Json& changes) {
  const std::lock_guard one_writes(writing_);
  Json next = all();
  next.update(changes);
  if (next.size() > most_options)
    throw HttpFault(413, "too_large",
                    str("options: more than ", most_options, " (got ", next.size(), ")"));
  const std::string text = json_text(next);
  if (text.size() > most_bytes)
    throw HttpFault(413, "too_large", str("options: more than ", most_bytes, " bytes"));
  try {
    if (!file_.empty()) io::write_whole_file(file_, text, "serve: --options");
  } catch (const Error& e) {
    throw HttpFault(507, "cannot_keep", str("options: they are not kept: ", e.what()));
  }
  const std::lock_guard lock(mutex_);
  options_ = std::move(next);
}

}  // namespace ebb::server

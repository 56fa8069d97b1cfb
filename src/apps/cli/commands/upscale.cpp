// ebb upscale IMAGE --model FILE: a larger picture by a network.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/command.h"
#include "apps/cli/input_files.h"
#include "apps/cli/interruption.h"
#include "apps/cli/mode_flags.h"
#include "apps/cli/picture_output.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "diffusion/solver/run.h"
#include "io/image.h"
#include "io/picture_file.h"
#include "pipeline/decoder.h"
#include "pipeline/init_image.h"
#include "pipeline/upscaler.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string image, model, out = "upscaled.png", tiling = "none";
  double scale = 0;
  bool overwrite = false;
  int64_t tile = 0, quality = io::default_quality;
  CommonOptions common;
  void fields(auto&& f) {
    f("model", model, "a file with an upscaler: ESRGAN, Real-ESRGAN or its compact form");
    f("out", out, "a .png, .jpg or .webp file");
    f("overwrite", overwrite, overwrite_help);
    f("scale", scale, "how many times as large; 0: as the network makes it");
    f("tile", tile, "side of the tiles that are evaluated, in pixels; 0: what fits into memory");
    f("tiling", tiling,
      "the picture can be laid side by side without a seam, and so can the larger one: x, y or "
      "both");
    f("quality", quality, "of JPEG and WebP, 1 to 100; a WebP of 100 is lossless");
  }
  void choices(auto&& f) { f("tiling", tiling, tilings()); }
};

int interrupted(const Options& o, int signal) {
  const nlohmann::ordered_json facts = {{"out", o.out}};
  return say_interrupted("upscale", signal, "nothing was written to " + o.out,
                         o.common.json ? &facts : nullptr);
}

int run(const Options& o) {
  require(!o.model.empty(), "upscale: --model FILE must name an upscaler");
  require(io::picture_format(o.out).has_value(),
          "upscale: --out must be a .png, .jpg or .webp file (got '", o.out, "')");
  require(o.quality >= 1 && o.quality <= 100, "upscale: --quality must be 1 to 100 (got ",
          o.quality, ")");
  InputFiles inputs;
  inputs.add("image", o.image);
  inputs.add("model", o.model);
  check_not_input(o.out, inputs, "upscale: --out");
  check_output_path(o.out, "upscale", o.overwrite);
  const train::StopSignals signals(stopping);
  std::optional<ProgressLine> line;  // from where it runs
  std::mutex telling;
  const auto stopped = [&] {
    if (line) line->finish();
    return interrupted(o, signals.requested());
  };
  std::optional<StopDeadline> deadline(std::in_place, signals, telling, stopped);
  const Tensor image = io::read_image(o.image, 3);
  LoadedComponent network = load_upscaler(o.model);
  const double scale =
      o.scale == 0 ? static_cast<double>(scale_of_upscaler(network.component)) : o.scale;
  if (scale > 0 && scale <= 16) {  // of others run() tells
    const Shape large = Upscaler::scaled({1, image.shape()[0], image.shape()[1], 3}, scale);
    check_picture_size(o.out, "upscale", {.height = large[1], .width = large[2]}, 1);
  }
  Upscaler upscaler(std::move(network), open_device(o.common),
                    {.tile = o.tile, .circular = circular_axes(o.tiling, "upscale")});
  const auto start = std::chrono::steady_clock::now();
  try {
    const Tensor large = upscaler.run(signed_pixels(image), scale, [&](double share) {
      const std::lock_guard lock(telling);
      if (!line) line.emplace("upscale");
      say_changed_files(&*line);
      line->show(share);
      return signals.requested() == 0;
    });
    deadline.reset();
    if (line) line->show(1), line->finish();
    say_changed_files(nullptr);
    const Tensor out = image_at(to_pixels(large), 0);
    io::write_picture(
        o.out, out, {},
        {.quality = static_cast<int>(o.quality), .existing = existing_at(o.out, o.overwrite)});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const Shape& s = out.shape();
    if (o.common.json)
      print_json({{"width", s[1]}, {"height", s[0]}, {"seconds", seconds.count()}, {"out", o.out}});
    else
      std::fprintf(stderr, "%lldx%lld in %.1f s: %s\n", static_cast<long long>(s[1]),
                   static_cast<long long>(s[0]), seconds.count(), o.out.c_str());
    return 0;
  } catch (const Cancelled&) {
    deadline.reset();
    return stopped();
  }
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(app, "IMAGE", o->image,
                 "a picture: PNG, JPEG or WebP; what is transparent becomes white");
  add_flags(app, fields_of(*o));
  add_flags(app, fields_of(o->common));
  return [o] { return run(*o); };
}

}  // namespace

const Command& upscale() {
  static const Command c{
      "upscale", "make a picture larger by a network",
      "ebb upscale fox.png --model RealESRGAN_x4plus.safetensors --out large.png", bind};
  return c;
}

}  // namespace ebb::cli

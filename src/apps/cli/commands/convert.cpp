// ebb convert IN OUT: checkpoints in other containers, layouts and dtypes.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "apps/cli/interruption.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/text_list.h"
#include "diffusion/solver/run.h"
#include "pipeline/convert.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string in, out, dtype = "same", layout = "auto", variant;
  bool ema = false, overwrite = false, json = false;
  TextList lora;
  void fields(auto&& f) {
    f("dtype", dtype, "of the floats: f32, f16, bf16, or same: each as it is");
    f("layout", layout,
      "same names, the original's in one file, or diffusers' folder: same, original, diffusers; "
      "auto: by what IN and OUT are");
    f("variant", variant, "of a folder's files that are there in several: fp16");
    f("ema", ema, "the moving averages in place of the denoiser's weights");
    f("lora", lora,
      "a LoRA or one of its relatives to merge, FILE[:strength[:text strength]][:lbw=1,0,...]; "
      "many: again, or parted by ;");
    f("overwrite", overwrite, overwrite_help);
    f("json", json, "print one JSON object on standard output, all else on standard error");
  }
  void choices(auto&& f) {
    f("dtype", dtype, {"same", "f32", "f16", "bf16"});
    f("layout", layout, {"auto", "same", "original", "diffusers"});
  }
};

CheckpointLayout layout_of(const Options& o) {
  if (o.layout == "same") return CheckpointLayout::same;
  if (o.layout == "original") return CheckpointLayout::original;
  if (o.layout == "diffusers" || !o.out.ends_with(".safetensors"))
    return CheckpointLayout::diffusers;
  return std::filesystem::is_directory(o.in) ? CheckpointLayout::original : CheckpointLayout::same;
}

void report(const Options& o, const Converted& done, double seconds) {
  if (o.json) {
    const nlohmann::ordered_json j = {{"out", o.out},
                                      {"tensors", done.tensors},
                                      {"bytes", done.bytes},
                                      {"left_out", done.left_out},
                                      {"seconds", seconds}};
    print_json(j);
    return;
  }
  if (!done.left_out.empty()) {
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(done.left_out.size(), 5); ++i)
      names += (i > 0 ? ", " : "") + done.left_out[i];
    std::fprintf(stderr, "convert: %zu tensors are of no network and were left out: %s%s\n",
                 done.left_out.size(), names.c_str(), done.left_out.size() > 5 ? ", ..." : "");
  }
  std::fprintf(stderr, "%lld tensors, %.1f MB in %.1f s: %s\n",
               static_cast<long long>(done.tensors), static_cast<double>(done.bytes) / 1e6, seconds,
               o.out.c_str());
}

int run(const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const train::StopSignals signals(stopping);
  ProgressLine line("convert");
  const ConvertOptions options{
      .in = o.in,
      .out = o.out,
      .overwrite = o.overwrite,
      .layout = layout_of(o),
      .dtype = o.dtype == "same" ? std::nullopt : std::optional(parse_dtype(o.dtype)),
      .averaged = o.ema,
      .variant = o.variant,
      .loras = parse_loras(o.lora.text())};
  try {
    const Converted done = convert_checkpoint(options, [&](int64_t at, int64_t all) {
      line.show(static_cast<double>(at) / static_cast<double>(std::max<int64_t>(all, 1)));
      if (signals.requested() != 0) throw Cancelled("convert: stopped");
    });
    line.finish();
    say_warnings(done.warnings);
    report(o, done, seconds());
    return 0;
  } catch (const Cancelled&) {
    line.finish();
    const nlohmann::ordered_json facts = {{"out", o.out}};
    return say_interrupted("convert", signals.requested(), "nothing was written to " + o.out,
                           o.json ? &facts : nullptr);
  }
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(app, "IN", o->in,
                 "a checkpoint (.safetensors, .ckpt, .pt, .bin), or a folder of diffusers");
  add_positional(app, "OUT", o->out, "a .safetensors file, or a new folder for diffusers' layout");
  add_flags(app, fields_of(*o));
  return [o] {
    check_choices(*o, [](std::string_view field) { return str("convert: unknown ", field); });
    return run(*o);
  };
}

}  // namespace

const Command& convert() {
  static const Command c{"convert",
                         "write a checkpoint in another container, layout or dtype",
                         "ebb convert model.ckpt model.safetensors --dtype f16",
                         bind,
                         {},
                         {"lora"}};
  return c;
}

}  // namespace ebb::cli

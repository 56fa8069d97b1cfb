#include "pipeline/picture_bench.h"

#include <chrono>

#include "pipeline/bench_cases.h"
#include "pipeline/text_to_image.h"
#include "text/clip_vocabulary.h"

namespace ebb {
namespace {

struct Part {
  std::string model, settings = {};
};

struct PictureCase {
  std::string name;
  Part denoiser, text, autoencoder;
  int64_t count = 1;
  ImageSize size;
  std::string full_name() const { return "generate/" + name; }
};

std::vector<PictureCase> cases(const Device& device) {
  if (!text::has_builtin_clip_vocabulary()) return {};
  const Part tiny{"sd15",
                  "{model_channels=64 channel_mult=[1,2] num_res_blocks=1 input_depths=[1,0] "
                  "middle_depth=1 output_depths=[0,0,1,1] num_heads=0 num_head_channels=64 "
                  "context=64}"};
  std::vector<PictureCase> out = {{"tiny",
                                   tiny,
                                   {"clip_l", "{width=64 layers=2 heads=1 hidden=64}"},
                                   {"autoencoder_kl", "{channels=32 res_blocks=1}"},
                                   2,
                                   {.height = 64, .width = 96}}};
  if (device.on_host()) return out;
  const Part sd15{"sd15"}, clip{"clip_l"}, vae{"autoencoder_kl"};
  out.push_back({"sd15_512", sd15, clip, vae, 1, {.height = 512, .width = 512}});
  out.push_back({"sd15_768x512", sd15, clip, vae, 1, {.height = 512, .width = 768}});
  out.push_back({"sd15_8x512", sd15, clip, vae, 8, {.height = 512, .width = 512}});
  return out;
}

LoadedComponent loaded(const Part& part) {
  NamedModel m = find_component(part.model);
  parse_fields(m.config.fields(), part.settings);
  return {{m.model, m.config, ""}, hashed_weights(m)};
}

CheckpointParts parts_of(const PictureCase& c) {
  const LoadedComponent denoiser = loaded(c.denoiser);
  const Component& d = denoiser.component;
  CheckpointParts parts{.denoiser = {.model = d.model,
                                     .config = d.config,
                                     .diffusion = usual_diffusion(*d.model, d.config),
                                     .class_names = {},
                                     .weights = denoiser.weights},
                        .text_encoders = {loaded(c.text)},
                        .autoencoder = loaded(c.autoencoder),
                        .tokenizer = {}};
  return parts;
}

BenchResult bench(const Context& context, const PictureCase& c) {
  constexpr int runs = 5;
  using Clock = std::chrono::steady_clock;
  TextToImage pipeline(parts_of(c), context);
  const ResolvedTextToImage request = pipeline.resolve({.prompt = "a red fox in deep snow, at dawn",
                                                        .negative = "blurry",
                                                        .count = c.count,
                                                        .size = c.size,
                                                        .options = {.steps = 20,
                                                                    .sampler = "dpmpp_2m",
                                                                    .schedule = "karras",
                                                                    .guidance = 7,
                                                                    .batch = c.count}});
  const auto seconds = [&] {
    const auto start = Clock::now();
    pipeline.run(request);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const double first = seconds();
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(seconds());
  BenchResult out = result_of_runs(
      context, {"generate", c.name, pipeline.ran(request).dtype, "run"}, std::move(times));
  out.first_step_s = first;
  return out;
}

}  // namespace

std::vector<std::string> picture_bench_names(const Device& device) {
  std::vector<std::string> out;
  for (const PictureCase& c : cases(device)) out.push_back(c.full_name());
  return out;
}

void bench_pictures(const Context& context, const std::string& filter,
                    const std::function<void(const BenchResult&)>& report) {
  for (const PictureCase& c : cases(*context.device))
    if (c.full_name().find(filter) != std::string::npos) report(bench(context, c));
}

}  // namespace ebb

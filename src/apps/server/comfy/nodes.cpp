// The classes of nodes that there are.
#include <algorithm>
#include <limits>

#include "apps/server/comfy/node_class.h"
#include "apps/server/fault.h"
#include "apps/server/request_limits.h"
#include "apps/server/settings.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/sampler.h"

namespace ebb::server::comfy {
namespace {

// ---- inputs
NodeInput link(std::string name, std::string type) {
  return {.name = std::move(name), .type = std::move(type)};
}
NodeInput whole(std::string name, int64_t standard, double least, double most) {
  return {.name = std::move(name),
          .kind = InputKind::integer,
          .type = "INT",
          .least = least,
          .most = most,
          .standard = standard};
}
NodeInput real(std::string name, double standard, double least, double most) {
  return {.name = std::move(name),
          .kind = InputKind::number,
          .type = "FLOAT",
          .least = least,
          .most = most,
          .standard = standard};
}
NodeInput text(std::string name, const char* standard = "") {
  return {.name = std::move(name), .kind = InputKind::text, .type = "STRING", .standard = standard};
}
NodeInput optional(NodeInput in) {
  in.required = false;
  return in;
}

NodeInput words(std::string name, std::vector<std::string> all) {
  return {.name = std::move(name),
          .kind = InputKind::choice,
          .standard = all.front(),
          .names = [](const Choices&, const NodeInput& in) { return in.words; },
          .accepts =
              [](const Choices&, const NodeInput& in, const std::string& word) {
                return std::ranges::find(in.words, word) != in.words.end();
              },
          .words = std::move(all)};
}

NodeInput file(std::string name, FileKind kind) {
  return {.name = std::move(name),
          .kind = InputKind::choice,
          .names =
              [](const Choices& of, const NodeInput& in) {
                std::vector<std::string> out;
                for (const CatalogueFile& f : of.catalogue.all(in.files))
                  if (f.fault.empty()) out.push_back(f.file);
                return out;
              },
          .accepts =
              [](const Choices& of, const NodeInput& in, const std::string& word) {
                return of.catalogue.lookup(in.files, word).has_value();
              },
          .files = kind};
}

NodeInput upload(std::string name) {
  return {.name = std::move(name),
          .kind = InputKind::choice,
          .names = [](const Choices& of, const NodeInput&) { return of.uploads.names(); },
          .accepts = [](const Choices& of, const NodeInput&,
                        const std::string& word) { return of.uploads.find(word).has_value(); }};
}

// Names of all programs are known, beside those that are listed.
NodeInput sampler() {
  return {.name = "sampler_name",
          .kind = InputKind::choice,
          .names =
              [](const Choices&, const NodeInput&) {
                std::vector<std::string> out;
                for (const Sampler* s : all_samplers()) out.push_back(s->name);
                return out;
              },
          .accepts =
              [](const Choices&, const NodeInput&, const std::string& word) {
                try {
                  check_sampler(word);
                  return true;
                } catch (const HttpFault&) {
                  return false;
                }
              }};
}
NodeInput schedule() {
  return {.name = "scheduler",
          .kind = InputKind::choice,
          .names =
              [](const Choices&, const NodeInput&) {
                std::vector<std::string> out;
                for (const Schedule* s : all_schedules())
                  if (s->name != "custom") out.push_back(s->name);
                return out;
              },
          .accepts =
              [](const Choices&, const NodeInput&, const std::string& word) {
                try {
                  find_schedule(word, find_dialect("comfy"));
                  return true;
                } catch (const Error&) {
                  return false;
                }
              }};
}

constexpr auto largest = static_cast<double>(std::numeric_limits<uint64_t>::max());
constexpr double largest_scale = 100, largest_strength = 100;

// ---- loaders
std::vector<Value> load_checkpoint(const NodeInputs& in) {
  const std::string name = in.text("ckpt_name");
  return {ModelValue{.file = name}, ClipValue{.checkpoint = name}, VaeValue{.checkpoint = name}};
}

std::vector<Value> load_denoiser(const NodeInputs& in) {
  return {ModelValue{.file = in.text("unet_name")}};
}

std::vector<Value> load_encoders(const NodeInputs& in) {
  const std::string name = in.text("clip_name1");
  if (in.text("clip_name2") != name)
    fail_field("clip_name2",
               "ebb reads all text encoders of one file: it must be that of "
               "clip_name1");
  return {ClipValue{.file = name}};
}

std::vector<Value> load_vae(const NodeInputs& in) {
  return {VaeValue{.file = in.text("vae_name")}};
}

void add_lora(std::vector<LoraUse>& loras, const NodeInputs& in, const char* strength) {
  if (loras.size() >= most_entries) fail_field("lora_name", "more than ", most_entries, " LoRAs");
  loras.push_back({in.node(), in.text("lora_name"), in.number(strength)});
}

std::vector<Value> load_lora(const NodeInputs& in) {
  auto model = in.value<ModelValue>("model");
  auto clip = in.value<ClipValue>("clip");
  add_lora(model.loras, in, "strength_model");
  add_lora(clip.loras, in, "strength_clip");
  return {model, clip};
}

std::vector<Value> load_image(const NodeInputs& in) {
  const std::string name = in.text("image");
  return {ImageValue{.upload = name}, MaskValue{name}};
}

// ---- texts
std::vector<Value> encode_text(const NodeInputs& in) {
  return {
      std::make_shared<const TextValue>(TextValue{in.text("text"), in.value<ClipValue>("clip")})};
}

std::vector<Value> set_last_layer(const NodeInputs& in) {
  auto clip = in.value<ClipValue>("clip");
  clip.skip = -in.integer("stop_at_clip_layer");
  return {clip};
}

// Networks without distilled guidance, which ebb's are, do not read it.
std::vector<Value> keep_guidance(const NodeInputs& in) {
  return {in.value<Conditioning>("conditioning")};
}

// ---- latents
std::vector<Value> empty_latent(const NodeInputs& in) {
  return {LatentValue{.width = in.integer("width"),
                      .height = in.integer("height"),
                      .batch = in.integer("batch_size")}};
}

LatentValue encoded(const NodeInputs& in) {
  const auto& pixels = in.value<ImageValue>("pixels");
  if (pixels.upload.empty()) fail_field("pixels", "must be a picture of LoadImage");
  return {.upload = pixels.upload, .vae = in.value<VaeValue>("vae")};
}

std::vector<Value> encode_image(const NodeInputs& in) { return {encoded(in)}; }

std::vector<Value> encode_masked_image(const NodeInputs& in) {
  LatentValue out = encoded(in);
  if (in.value<MaskValue>("mask").upload != out.upload)
    fail_field("mask", "must be that of the same LoadImage as the pixels");
  out.masked = true, out.grow = in.integer("grow_mask_by");
  return {out};
}

std::vector<Value> resize_latent(const NodeInputs& in) {
  auto out = in.value<LatentValue>("samples");
  if (!out.sampled) fail_field("samples", "ebb resizes latents that a sampler has made");
  if (!out.resize.empty()) fail_field("samples", "ebb resizes latents once");
  out.resize = in.text("upscale_method");
  out.width = in.integer("width"), out.height = in.integer("height");
  return {out};
}

// ---- samplers
Sampling sampling(const NodeInputs& in, const char* seed) {
  Sampling out{.node = in.node(),
               .model = in.value<ModelValue>("model"),
               .positive = in.value<Conditioning>("positive"),
               .negative = in.value<Conditioning>("negative"),
               .start = in.value<LatentValue>("latent_image"),
               .seed = in.plain(seed),
               .steps = in.integer("steps"),
               .cfg = in.number("cfg"),
               .sampler = in.text("sampler_name"),
               .schedule = in.text("scheduler"),
               .seed_input = seed};
  if (const auto& first = out.start.sampled) {
    if (first->start.sampled) fail_field("latent_image", "ebb samples twice at most");
    if (out.start.resize.empty())
      fail_field("latent_image", "between two samplers ebb needs a LatentUpscale");
  }
  return out;
}

std::vector<Value> sampled(Sampling of) {
  LatentValue out{.batch = of.start.batch};
  out.sampled = std::make_shared<const Sampling>(std::move(of));
  return {out};
}

std::vector<Value> sample(const NodeInputs& in) {
  Sampling out = sampling(in, "seed");
  out.strength = in.number("denoise");
  return sampled(std::move(out));
}

// Of N levels the last N - S: int((N - S) / strength) must be N (plan_strength(), comfy).
std::vector<Value> sample_some_steps(const NodeInputs& in) {
  Sampling out = sampling(in, "noise_seed");
  out.strength_input = "start_at_step";
  const int64_t first = in.integer("start_at_step");
  if (in.text("add_noise") != "enable") fail_field("add_noise", "ebb always adds noise");
  if (in.integer("end_at_step") < out.steps)
    fail_field("end_at_step", "ebb ends no run early: it must be steps (", out.steps, ") or more");
  if (first >= out.steps)
    fail_field("start_at_step", "must be less than steps (", out.steps, "; got ", first, ")");
  if (first > 0) {
    const auto all = static_cast<double>(out.steps);
    out.steps -= first;
    out.strength = static_cast<double>(out.steps) / (all + 0.5);
  }
  return sampled(std::move(out));
}

std::vector<Value> decode(const NodeInputs& in) {
  const auto& latent = in.value<LatentValue>("samples");
  if (!latent.sampled) fail_field("samples", "must come from a sampler");
  if (!latent.resize.empty()) fail_field("samples", "behind a LatentUpscale ebb needs a sampler");
  return {
      ImageValue{.sampled = latent.sampled, .vae = in.value<VaeValue>("vae"), .node = in.node()}};
}

std::vector<Value> show(const NodeInputs& in) {
  if (!in.value<ImageValue>("images").sampled)
    fail_field("images", "must come from a VAEDecode: ebb shows pictures that it makes");
  return {};
}

// ---- the list
std::vector<NodeInput> of_sampler(NodeInput seed, std::vector<NodeInput> more) {
  std::vector<NodeInput> out = {link("model", "MODEL"),
                                std::move(seed),
                                whole("steps", 20, 1, static_cast<double>(most_steps)),
                                real("cfg", 8, 0, largest_scale),
                                sampler(),
                                schedule(),
                                link("positive", "CONDITIONING"),
                                link("negative", "CONDITIONING"),
                                link("latent_image", "LATENT")};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::vector<NodeInput> sides(int64_t standard) {
  constexpr double least = 16, most = most_side;
  return {whole("width", standard, least, most), whole("height", standard, least, most)};
}

std::vector<NodeInput> with(std::vector<NodeInput> first, std::vector<NodeInput> more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

std::vector<NodeClass> sources() {
  const NodeInput batch = whole("batch_size", 1, 1, static_cast<double>(most_images));
  return {
      {"CheckpointLoaderSimple",
       "loaders",
       {file("ckpt_name", FileKind::model)},
       {"MODEL", "CLIP", "VAE"},
       load_checkpoint},
      {"UNETLoader",
       "loaders",
       {file("unet_name", FileKind::model),
        words("weight_dtype", {"default", "fp8_e4m3fn", "fp8_e4m3fn_fast", "fp8_e5m2"})},
       {"MODEL"},
       load_denoiser},
      {"DualCLIPLoader",
       "loaders",
       {file("clip_name1", FileKind::text_encoder), file("clip_name2", FileKind::text_encoder),
        words("type", {"sdxl", "sd3", "flux", "hunyuan_video", "hidream"}),
        optional(words("device", {"default", "cpu"}))},
       {"CLIP"},
       load_encoders},
      {"VAELoader", "loaders", {file("vae_name", FileKind::vae)}, {"VAE"}, load_vae},
      {"LoraLoader",
       "loaders",
       {link("model", "MODEL"), link("clip", "CLIP"), file("lora_name", FileKind::lora),
        real("strength_model", 1, -largest_strength, largest_strength),
        real("strength_clip", 1, -largest_strength, largest_strength)},
       {"MODEL", "CLIP"},
       load_lora},
      {"LoadImage", "image", {upload("image")}, {"IMAGE", "MASK"}, load_image},
      {"EmptyLatentImage", "latent", with(sides(512), {batch}), {"LATENT"}, empty_latent},
      {"EmptySD3LatentImage", "latent", with(sides(1024), {batch}), {"LATENT"}, empty_latent},
  };
}

std::vector<NodeClass> steps_between() {
  constexpr double deepest = -24;
  return {
      {"CLIPTextEncode",
       "conditioning",
       {text("text"), link("clip", "CLIP")},
       {"CONDITIONING"},
       encode_text},
      {"CLIPSetLastLayer",
       "conditioning",
       {link("clip", "CLIP"), whole("stop_at_clip_layer", -1, deepest, -1)},
       {"CLIP"},
       set_last_layer},
      {"FluxGuidance",
       "conditioning",
       {link("conditioning", "CONDITIONING"), real("guidance", 3.5, 0, largest_scale)},
       {"CONDITIONING"},
       keep_guidance},
      {"VAEEncode",
       "latent",
       {link("pixels", "IMAGE"), link("vae", "VAE")},
       {"LATENT"},
       encode_image},
      {"VAEEncodeForInpaint",
       "latent",
       {link("pixels", "IMAGE"), link("vae", "VAE"), link("mask", "MASK"),
        whole("grow_mask_by", 6, 0, 64)},
       {"LATENT"},
       encode_masked_image},
      {"LatentUpscale",
       "latent",
       with({link("samples", "LATENT"),
             words("upscale_method", {"nearest-exact", "bilinear", "bicubic"})},
            with(sides(512), {words("crop", {"disabled", "center"})})),
       {"LATENT"},
       resize_latent},
      {"KSampler",
       "sampling",
       of_sampler(whole("seed", 0, 0, largest), {real("denoise", 1, 0, 1)}),
       {"LATENT"},
       sample},
      {"KSamplerAdvanced",
       "sampling",
       with({words("add_noise", {"enable", "disable"})},
            of_sampler(whole("noise_seed", 0, 0, largest),
                       {whole("start_at_step", 0, 0, 10000), whole("end_at_step", 10000, 0, 10000),
                        words("return_with_leftover_noise", {"disable", "enable"})})),
       {"LATENT"},
       sample_some_steps},
  };
}

std::vector<NodeClass> ends() {
  return {
      {"VAEDecode", "latent", {link("samples", "LATENT"), link("vae", "VAE")}, {"IMAGE"}, decode},
      {"SaveImage",
       "image",
       {link("images", "IMAGE"), text("filename_prefix", "ComfyUI")},
       {},
       show,
       "output"},
      {"PreviewImage", "image", {link("images", "IMAGE")}, {}, show, "temp"},
  };
}

}  // namespace

const std::vector<NodeClass>& node_classes() {
  static const std::vector<NodeClass> all = [] {
    std::vector<NodeClass> out;
    for (auto* some : {sources, steps_between, ends})
      for (NodeClass& c : some()) out.push_back(std::move(c));
    return out;
  }();
  return all;
}

const NodeClass* find_node_class(std::string_view name) {
  const auto at = std::ranges::find(node_classes(), name, &NodeClass::name);
  return at == node_classes().end() ? nullptr : &*at;
}

}  // namespace ebb::server::comfy

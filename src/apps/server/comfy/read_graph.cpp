#include <algorithm>
#include <cmath>

#include "apps/cli/picture_output.h"
#include "apps/server/comfy/graph.h"
#include "apps/server/comfy/prompt.h"
#include "apps/server/pictures.h"
#include "apps/server/request_limits.h"
#include "base/fields.h"
#include "base/names.h"
#include "io/image.h"

namespace ebb::server::comfy {
namespace {

std::string_view view_of(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// ---- pictures
// The middle, of sides that are multiples of 8, as the autoencoder needs them.
Tensor cropped(const Tensor& image) {
  const int64_t h = image.shape()[0], w = image.shape()[1], c = image.shape()[2];
  const int64_t height = h / size_multiple * size_multiple,
                width = w / size_multiple * size_multiple;
  if (height == 0 || width == 0)
    fail_field("image", "sides must be ", size_multiple, " pixels or more (got ", w, "x", h, ")");
  Tensor out(DType::u8, {height, width, c});
  const int64_t top = (h - height) / 2, left = (w - width) / 2;
  for (int64_t y = 0; y < height; ++y)
    std::copy_n(image.span<uint8_t>().data() + ((top + y) * w + left) * c, width * c,
                out.span<uint8_t>().data() + y * width * c);
  return out;
}

// A mask of 0 and 255, with white where windows of `size` along rows or columns have some.
Tensor widened(const Tensor& mask, int64_t size, bool rows) {
  const int64_t h = mask.shape()[0], w = mask.shape()[1];
  const int64_t lines = rows ? h : w, length = rows ? w : h;
  const int64_t stride = rows ? 1 : w, between = rows ? w : 1;
  Tensor out(DType::u8, mask.shape());
  const auto in = mask.span<uint8_t>();
  const auto to = out.span<uint8_t>();
  for (int64_t line = 0; line < lines; ++line) {
    const auto at = [&](int64_t i) { return static_cast<size_t>(line * between + i * stride); };
    int64_t next = 0, last_white = -size;  // of what windows have reached
    for (int64_t i = 0; i < length; ++i) {
      const int64_t from = i - size / 2;
      for (; next < std::min(from + size, length); ++next)
        if (in[at(next)] != 0) last_white = next;
      to[at(i)] = last_white >= from ? 255 : 0;
    }
  }
  return out;
}

// What is generated becomes grey, and the mask hard and wider.
void set_masked(SettingsBuilder& to, Tensor image, Tensor mask, int64_t grow) {
  constexpr uint8_t grey = 128;
  for (size_t i = 0; uint8_t & v : mask.span<uint8_t>()) {
    v = v >= 128 ? 255 : 0;
    if (v != 0)
      std::fill_n(image.span<uint8_t>().begin() + static_cast<std::ptrdiff_t>(3 * i), 3, grey);
    ++i;
  }
  if (grow > 1) mask = widened(widened(mask, grow, true), grow, false);
  to.picture("init", image);
  to.picture("mask", mask);
}

void set_picture(SettingsBuilder& to, const LatentValue& start, const Uploads& uploads) {
  const auto upload = uploads.find(start.upload);
  if (!upload) fail_field("image", "is no longer there: upload it again");
  const Tensor image = cropped(decoded_picture(view_of(upload->png), "image"));
  to.set("size", str(image.shape()[1], 'x', image.shape()[0]), "image");
  if (!start.masked) return to.picture("init", image);
  if (upload->mask.empty())
    fail_field("mask", "the picture has no transparent part to be generated");
  set_masked(to, image, cropped(decoded_mask(view_of(upload->mask), MaskRule::white, "mask")),
             start.grow);
}

// ---- what must be the same
void check_vae(const Sampling& s, const VaeValue& vae) {
  if (!vae.checkpoint.empty() && vae.checkpoint != s.model.file)
    fail_field("vae", "must be that of the sampler's checkpoint, or a VAELoader's");
}

void check_clip(const Sampling& s) {
  const ClipValue& clip = s.positive->clip;
  if (s.negative->clip != clip) fail_field("negative", "must have the same CLIP as positive");
  if (!clip.checkpoint.empty() && clip.checkpoint != s.model.file)
    fail_field("positive",
               "its CLIP must be that of the sampler's checkpoint, or a "
               "DualCLIPLoader's");
}

// "FILE:strength:strength in texts". One that only one of both has is 0 in the other.
Json loras_of(const Sampling& s) {
  struct Use {
    std::string node, file;
    double model = 0, clip = 0;
  };
  std::vector<Use> all;
  for (const LoraUse& l : s.model.loras) all.push_back({l.node, l.file, l.strength, 0});
  for (const LoraUse& l : s.positive->clip.loras) {
    const auto at = std::ranges::find(all, l.node, &Use::node);
    if (at == all.end())
      all.push_back({l.node, l.file, 0, l.strength});
    else
      at->clip = l.strength;
  }
  Json out = Json::array();
  for (const Use& u : all)
    out.push_back(str(u.file, ':', number_text(u.model), ':', number_text(u.clip)));
  return out;
}

// ---- settings
// Of both sides, as "WIDTHxHEIGHT" of the first pass and those of the second.
double scale_between(const std::string& before, const LatentValue& large) {
  const ImageSize small = cli::image_size(before, "serve");
  const int64_t width = large.width / size_multiple * size_multiple,
                height = large.height / size_multiple * size_multiple;
  if (small.width * height != small.height * width || width <= small.width)
    fail_field("width", "a LatentUpscale must enlarge both sides by the same factor (from ", before,
               " to ", width, 'x', height, ")");
  const auto side = static_cast<double>(small.width);
  double scale = static_cast<double>(width) / side;
  constexpr double above = 1e3;
  while (side * scale < static_cast<double>(width)) scale = std::nextafter(scale, above);
  return scale;
}

// A second sampler on the resized latents of the first is the second pass of these settings.
void set_second_pass(SettingsBuilder& to, const Sampling& first, const Sampling& second) {
  const auto same = [](bool is_so, const std::string& field) {
    if (!is_so) fail_field(field, "must be that of the first sampler: ebb's second pass shares it");
  };
  same(second.model == first.model, "model");
  same(second.seed == first.seed, second.seed_input);
  same(second.cfg == first.cfg, "cfg");
  same(second.sampler == first.sampler, "sampler_name");
  same(second.schedule == first.schedule, "scheduler");
  same(second.positive == first.positive, "positive");
  same(second.negative == first.negative, "negative");
  const std::string& method = second.start.resize;
  const std::string name = method == "bilinear" ? "latent" : "latent-" + method;
  const double scale = scale_between(to.spec().flags.size, second.start);
  to.set("hires", hires_text(scale, name, second.steps, second.strength), "width");
}

void set_start(SettingsBuilder& to, const Sampling& s, const Uploads& uploads) {
  if (s.start.upload.empty()) {
    if (s.strength < 1)
      fail_field(s.strength_input, "must be ", s.strength_input == "denoise" ? 1 : 0,
                 " for an empty latent: ebb starts those from noise alone");
    to.set_size(s.start.width, s.start.height);
    to.set("n", s.start.batch, "batch_size");
    return;
  }
  check_vae(s, s.start.vae);
  set_picture(to, s.start, uploads);
  to.set("strength", s.strength, s.strength_input);
}

void set_all(SettingsBuilder& to, const ImageValue& image, const Uploads& uploads) {
  const Sampling& last = *image.sampled;
  const Sampling& first = last.start.sampled ? *last.start.sampled : last;
  check_vae(last, image.vae);
  check_clip(last);
  to.set("dialect", "comfy");
  to.set("model", first.model.file);
  if (const std::string& file = first.positive->clip.file; !file.empty())
    to.set("text_encoder", file, "clip_name1");
  if (!image.vae.file.empty()) to.set("vae", image.vae.file, "vae_name");
  to.set("prompt", first.positive->text, "text");
  to.set("negative", first.negative->text, "text");
  if (first.positive->clip.skip > 0)
    to.set("clip_skip", first.positive->clip.skip, "stop_at_clip_layer");
  to.set("seed", first.seed, first.seed_input);
  to.set("steps", first.steps);
  to.set("guidance", first.cfg, "cfg");
  to.set("sampler", first.sampler, "sampler_name");
  to.set("schedule", first.schedule, "scheduler");
  if (const Json loras = loras_of(first); !loras.empty()) to.set("lora", loras, "lora_name");
  set_start(to, first, uploads);
  if (&first != &last) set_second_pass(to, first, last);
}

// So that GET /history can tell it again.
Json note_of(const WalkedGraph& walked, const Json& graph) {
  constexpr size_t longest = size_t{64} << 10;
  Json shows = Json::object();
  for (const auto& [node, type] : walked.shows) shows[node] = type;
  const std::string& sampler = walked.image.sampled->node;
  return {{"shows", std::move(shows)},
          {"sampler", sampler},
          {"class", graph.at(sampler).at("class_type")},
          {"graph", json_text(graph).size() > longest ? Json::object() : graph}};
}

}  // namespace

JobSpec read_graph(const Call& call, const Json& graph) {
  Service& s = call.service;
  const auto& uploads = s.of_protocol<Uploads>();
  const Choices choices{s.catalogue(), uploads};
  const WalkedGraph walked = walk(graph, choices);
  for (const std::string& name : walked.ignored) call.ignored->push_back(name);
  SettingsBuilder to(s.source());
  JobSpec spec;
  try {
    set_all(to, walked.image, uploads);
    spec = to.finish();
  } catch (const HttpFault& f) {
    if (f.status != 400 && f.status != 422) throw;
    throw fault_of_node(graph, walked.image.sampled->node,
                        {"not_supported", f.what(), f.field, f.field});
  }
  spec.keeps =
      std::ranges::any_of(walked.shows, [](const auto& show) { return show.second == "output"; });
  spec.note["comfy"] = note_of(walked, graph);
  return spec;
}

}  // namespace ebb::server::comfy

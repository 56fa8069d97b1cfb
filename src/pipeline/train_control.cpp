#include "pipeline/train_control.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <tuple>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "io/pixels.h"
#include "io/safetensors.h"
#include "models/config_fields.h"
#include "nn/storage.h"
#include "pipeline/control.h"
#include "pipeline/control_names.h"
#include "pipeline/held_out_pictures.h"
#include "train/loader.h"
#include "train/many_files.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

constexpr const char* file_prefix = "control_model.";

// ---- what it begins as ---------------------------------------------------------------------

// A layer for each time that its sides halve, and one before: those of the paper for 8 pixels to a
// latent.
std::string hint_channels(int64_t pixels) {
  const int64_t layers = std::bit_width(static_cast<uint64_t>(pixels));
  std::vector<int64_t> out = {16, 32, 96, 256};
  out.resize(static_cast<size_t>(layers), out.back());
  return str('[', separated(out, ","), ']');
}

ModelConfig config_beside(const LoadedModel& denoiser, const Model& network) {
  const auto space = denoiser.model->latents(denoiser.config);
  ModelConfig from = denoiser.config, out = network.presets.front().config;
  const std::vector<Field> known = from.fields();
  for (const Field& f : out.fields())
    if (const auto same = std::ranges::find(known, f.name, &Field::name);
        same != known.end() && f.name != "output_depths")
      set_field(f, field_text(*same));
  set_in(out, "hint_channels", hint_channels(space ? space->factor : 1));
  check(network, out);
  return out;
}

// Throws Error where its file would be read as a network of another config, as one of other heads.
void check_readable(const Component& c) {
  nn::FileShapes shapes;
  for (const nn::Weight& w : weights_of(*c.model, c.config)) shapes[w.name] = nn::file_shape(w);
  const auto read = c.model->recognise(shapes);
  require(read == c.config, "train: the file of a control network for this U-Net could not say ",
          "all of it: ", c.config.text(), " would be read as ",
          read ? read->text() : "no control network");
}

LoadedComponent new_control(const LoadedModel& denoiser, uint64_t seed) {
  const Model& model = *find_component("control_net").model;
  const Component c{&model, config_beside(denoiser, model), file_prefix};
  check_readable(c);
  const WeightStore::Weights& base = denoiser.weights->weights();
  WeightStore::Weights out;
  for (const nn::Weight& w : weights_of(model, c.config))
    if (const auto copied = base.find(w.name); copied != base.end()) {
      out.emplace(w.name, copied->second);
    } else {
      StoredWeight drawn = stored_tensor(nn::to_file(w, nn::initial_tensor(w, seed)));
      drawn.decode = [w](Value v) { return nn::decode(w, v); };
      out.emplace(w.name, std::move(drawn));
    }
  return {c, std::make_shared<WeightStore>(std::move(out))};
}

LoadedComponent continued(const LoadedModel& denoiser, const std::string& file) {
  LoadedComponent out = of_training([&] { return load_control_network(file, denoiser); });
  const Component& c = out.component;
  require(c.model->name == "control_net", "train: --control-model must be a ControlNet (it is ",
          c.model->name, ")  ", file);
  for (const auto& [field, plain, what] :
       {std::tuple{"rank", "0", "a control LoRA"},
        {"tasks", "0", "a ControlNet of several tasks"},
        {"pooled", "false", "the ControlNet for shuffled images"}})
    require(text_in(c.config, field) == plain, "train: --control-model is ", what,
            ", which cannot be trained  ", file);
  return out;
}

// ---- its images ----------------------------------------------------------------------------

using Images = std::map<std::string, train::CaptionedPicture>;  // by key

train::Captioned opened(FinetuneRequest& r, const std::string& cache) {
  const auto done = [&](int64_t n, int64_t all) { r.progress("reads control images", n, all); };
  return as_errors_of("control_images: ", "data: ", [&] {
    return train::open_captioned(
        r.config.control_images,
        {.reads_captions = false,
         .needs_all = true,
         .threads = r.threads,
         .between = r.between,
         .progress = done,
         .index = (std::filesystem::path(cache) / "controls.jsonl").string()});
  });
}

Images by_key(const train::Captioned& images) {
  Images out;
  for (const train::CaptionedPicture& p : images.pictures) {
    require(p.repeats == 1, "control_images: come as often as their pictures, and have no repeats ",
            "of their own (", p.repeats, ")  ", p.name);
    const auto [same, fresh] = out.emplace(p.key, p);
    require(fresh, "control_images: two have the name '", p.key, "'  ", same->second.name, "  ",
            p.name);
  }
  return out;
}

// Of each picture the image of its key, and of `unused` the names of the others.
std::vector<train::CaptionedPicture> matched(const Images& images, const train::Captioned& pictures,
                                             const std::string& folder,
                                             std::vector<std::string>& unused) {
  std::map<std::string, std::string> seen;  // names of pictures by their keys
  std::vector<train::CaptionedPicture> out;
  for (const train::CaptionedPicture& p : pictures.pictures) {
    const auto [same, fresh] = seen.emplace(p.key, p.name);
    require(fresh, "control_images: two pictures have the name '", p.key, "'  ", same->second, "  ",
            p.name);
    const auto found = images.find(p.key);
    require(found != images.end(), "control_images: ", folder,
            " has no PNG, JPEG or WebP picture of the name '", p.key, "'  for ", p.name);
    out.push_back(found->second);
  }
  for (const auto& [key, image] : images)
    if (!seen.contains(key)) unused.push_back(image.name);
  return out;
}

// An image may have another size, and by rounding a slightly other shape.
void check_shape(const train::CaptionedPicture& image, const train::CaptionedPicture& picture) {
  constexpr int64_t tenth = 10;  // 512 pixels as a multiple of 64 may be 1/16 off, in either side
  const int64_t a = image.width * picture.height, b = picture.width * image.height;
  require(tenth * std::abs(a - b) <= std::max(a, b),
          "control_images: must have the shape of the picture, to a tenth (", image.width, "x",
          image.height, ", the picture ", picture.width, "x", picture.height, ")  ", image.name);
}

std::string hash_of(const std::vector<train::CaptionedPicture>& images) {
  uint64_t h = 0;
  for (const train::CaptionedPicture& p : images) h = splitmix64(h ^ p.hash);
  return str(h);
}

}  // namespace

LoadedComponent control_to_train(const LoadedModel& denoiser, const std::string& file,
                                 uint64_t seed) {
  require(denoiser.model->name == "ldm_unet",
          "train: control networks are those of Stable Diffusion's U-Nets, and not of ",
          denoiser.model->name);
  return file.empty() ? new_control(denoiser, seed) : continued(denoiser, file);
}

void check_control_images(const FinetuneRequest& r) {
  const train::CaptionedOptions names{.reads_captions = false, .between = r.between};
  const std::string& folder = r.config.control_images;
  const Images images = by_key(as_errors_of(
      "control_images: ", "data: ", [&] { return train::list_captioned(folder, names); }));
  train::Captioned pictures = train::list_captioned(r.train.data, names);
  if (names_pictures(r.train.validation))
    for (auto& p : train::list_captioned(r.train.validation, names).pictures)
      pictures.pictures.push_back(std::move(p));
  std::vector<std::string> unused;
  matched(images, pictures, folder, unused);
}

std::vector<train::CaptionedPicture> read_control_images(FinetuneRequest& r,
                                                         const train::Captioned& pictures,
                                                         const std::string& cache) {
  const train::Captioned read = opened(r, cache);
  for (const std::string& w : read.warnings) r.say(w);
  std::vector<std::string> unused;
  const auto out = matched(by_key(read), pictures, r.config.control_images, unused);
  for (size_t i = 0; i < out.size(); ++i) check_shape(out[i], pictures.pictures[i]);
  if (!unused.empty()) r.say(train::listed("control images without a picture left out", unused));
  keep(r.config.base_controls, hash_of(out), "the control images", r.config.control_images);
  return out;
}

std::vector<nn::Condition> control_conditions(const LoadedModel& m, train::PictureSize size) {
  std::vector<nn::Condition> out;
  for (size_t k = 0; k < m.controls.size(); ++k) {
    nn::Condition hint = input_of(m.controls[k], nn::hint_image),
                  strength = input_of(m.controls[k], nn::control_strength);
    hint.name = hint_of(k), hint.shape = {size.height, size.width, hint.shape[2]};
    strength.name = strength_of(k);
    out.insert(out.end(), {hint, strength});
  }
  return out;
}

Tensor control_pixels(const train::CaptionedPicture& image, const train::Fit& fit, bool mirrored) {
  const Tensor bytes = train::fitted(train::decode(image), fit);
  Tensor out(DType::f32, bytes.shape());
  io::unit_pixels(bytes.span<uint8_t>(), out.span<float>());
  if (mirrored) train::mirror(out.span<float>().data(), out.shape());
  return out;
}

void write_control_network(const ControlFile& file, const Component& network,
                           const NamedTensors& tensors, const std::string& prefix) {
  std::vector<io::NamedTensor> out;
  for (const nn::Weight& w : weights_of(*network.model, network.config)) {
    const Tensor& t = tensors.at(str(prefix, prefix_of(0), '.', w.name));
    const std::string name = file_prefix + w.name;
    out.push_back({name, train::rounded(name, nn::to_file(w, t), file.dtype, "save_dtype")});
  }
  io::write_safetensors(file.path, out, file.metadata);
}

}  // namespace ebb

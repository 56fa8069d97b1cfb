#include "pipeline/new_checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "base/parse_json.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/tensor_header.h"
#include "models/config_fields.h"
#include "pipeline/checkpoint_family.h"
#include "pipeline/checkpoint_layouts.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

struct Section {
  std::string_view name, preset;
};
constexpr std::array sections = {Section{"unet", "sd15"}, Section{"text_encoder", "clip_l"},
                                 Section{"autoencoder", "autoencoder_kl"}};
constexpr std::string_view size_key = "size";

// The components in the order of `sections`.
std::vector<Component> parsed(const NewCheckpoint& r) {
  const auto json = parse_json<nlohmann::ordered_json>(r.networks);
  require(json.is_object(), "create: must be a JSON object  ", r.subject);
  std::vector<std::string> known = {std::string(size_key)};
  for (const Section& s : sections) known.emplace_back(s.name);
  for (const auto& [key, value] : json.items())
    if (std::ranges::find(known, key) == known.end())
      fail("create: unknown section '", key, "'", suggestion(key, known), "  ", r.subject);
  std::vector<Component> out;
  for (const Section& s : sections) {
    const NamedModel m = find_component(s.preset);
    out.push_back({m.model, m.config, ""});
    if (const auto given = json.find(s.name); given != json.end())
      set_fields_json(out.back().config.fields(), given->dump(), str(s.name, " of ", r.subject));
  }
  if (const auto size = json.find(size_key); size != json.end()) {
    const LatentSpace latents = family_in(out).latents;
    require(size->is_number_integer() && *size > 0 && size->get<int64_t>() % latents.factor == 0,
            "create: size must be a multiple of ", latents.factor, " (", size->dump(), ")  ",
            r.subject);
    set_in(out[0].config, "image_size", str(size->get<int64_t>() / latents.factor));
  }
  return out;
}

void check_fit(const std::vector<Component>& c, const std::string& subject) {
  try {
    for (const Component& one : c) check(*one.model, one.config);
  } catch (const Error& e) {
    fail(e.what(), "  ", subject);
  }
  const auto same = [&](size_t a, std::string_view field, size_t b, std::string_view other) {
    const int64_t x = number_in(c[a].config, field), y = number_in(c[b].config, other);
    require(x == y, "create: ", field, " of the ", sections[a].name, " (", x, ") must be ", other,
            " of the ", sections[b].name, " (", y, ")  ", subject);
  };
  same(0, "context", 1, "width");
  same(0, "in_channels", 2, "latent_channels");
  const Family& family = family_in(c);
  require(family.texts.size() == 1 && !family.texts[0].open_clip,
          "create: makes networks of Stable Diffusion 1's form alone, and these are of ",
          family.name, "  ", subject);
  constexpr int64_t words = 49408;
  require(
      number_in(c[1].config, "vocabulary") == words && number_in(c[1].config, "positions") == 77,
      "create: the text_encoder must have CLIP's vocabulary (", words, ") and 77 positions  ",
      subject);
}

// What reading the file would take for another network is an Error here.
void check_read_again(const std::vector<Component>& made, const FileFacts& facts,
                      const std::string& subject) {
  std::vector<Component> read = recognise_components(facts.shapes);
  for (size_t i = 0; i < made.size(); ++i) {
    const auto again = std::ranges::find(read, made[i].model, &Component::model);
    require(again != read.end(), "create: the ", sections[i].name,
            " would not be recognised in its file  ", subject);
    again->model->examine(again->config, facts);
    ModelConfig own = made[i].config;
    const std::vector<Field> before = own.fields(), after = again->config.fields();
    for (size_t k = 0; k < before.size(); ++k)
      require(field_text(before[k]) == field_text(after[k]), "create: a file does not say ",
              before[k].name, " of the ", sections[i].name, ", which would be read as ",
              field_text(after[k]), " (not ", field_text(before[k]), "): choose that, or other ",
              "channels  ", subject);
  }
}

struct File {
  std::vector<io::TensorToWrite> tensors;
  nn::FileShapes shapes;
  int64_t bytes = 0;
};

File file_of(const std::vector<Component>& components, const NewCheckpoint& r) {
  File out;
  const std::vector<ComponentPlace> places = original_places(components);
  for (size_t i = 0; i < components.size(); ++i)
    for (nn::Weight w : weights_of(*components[i].model, components[i].config)) {
      const nn::FilePlace place =
          places[i].places ? places[i].places(w.name) : nn::FilePlace{w.name};
      w.name = places[i].prefix + place.name;  // networks are drawn independently
      out.shapes[w.name] = nn::file_shape(w);
      out.bytes += w.shape.numel() * size_of(r.dtype);
      out.tensors.push_back(
          {w.name, std::string(io::safetensors_dtype(r.dtype)), nn::file_shape(w),
           [w, &r](const io::ByteSink& to) {
             const Tensor drawn = nn::to_file(w, nn::initial_tensor(w, r.seed));
             const Tensor t = train::rounded(w.name, drawn, r.dtype, "create");
             to({static_cast<const uint8_t*>(t.raw()), static_cast<size_t>(t.bytes())});
           }});
    }
  return out;
}

}  // namespace

std::vector<NewComponent> create_checkpoint(const NewCheckpoint& r) {
  require(r.out.ends_with(".safetensors"), "create: OUT must end with .safetensors  ", r.out);
  std::error_code none;
  require(r.overwrite || !std::filesystem::exists(r.out, none),
          "create: OUT exists; another name keeps it, --overwrite replaces it  ", r.out);
  io::check_can_write(r.out, "create");
  const std::vector<Component> components = parsed(r);
  check_fit(components, r.subject);
  File file = file_of(components, r);
  std::map<std::string, std::string> metadata = resolution_metadata(components[0]);
  metadata.emplace("format", "pt");
  if (text_in(components[0].config, "prediction") == "v")
    metadata.emplace("modelspec.prediction_type", "v");
  check_read_again(components,
                   {.shapes = file.shapes,
                    .metadata = metadata,
                    .load = [](const std::string&) { return Tensor(); }},
                   r.subject);
  int64_t done = 0;
  for (io::TensorToWrite& t : file.tensors)
    t.data = [&, data = std::move(t.data)](const io::ByteSink& to) {
      data([&](std::span<const uint8_t> bytes) {
        to(bytes);
        done += static_cast<int64_t>(bytes.size());
        if (r.progress) r.progress(done, file.bytes);
      });
    };
  io::stream_safetensors(r.out, file.tensors, metadata,
                         r.overwrite ? io::Existing::replaced : io::Existing::kept);
  std::vector<NewComponent> out;
  for (const Component& c : components)
    out.push_back({c, nn::count_elements(weights_of(*c.model, c.config))});
  return out;
}

}  // namespace ebb

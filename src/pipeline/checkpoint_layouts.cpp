#include "pipeline/checkpoint_layouts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "base/parse_json.h"
#include "models/config_fields.h"
#include "pipeline/checkpoint_family.h"
#include "pipeline/latent_space.h"
#include "pipeline/load_model.h"
#include "text/clip_vocabulary.h"
#include "text/text_encoder.h"

namespace ebb {
namespace {

using json = nlohmann::ordered_json;

json fields_of(const Component& c) {
  ModelConfig config = c.config;
  return parse_json<json>(fields_json(config.fields()));
}

bool is(const Component& c, ModelKind kind) { return c.model->kind == kind; }

// Names of a layout by tensors that only it has.
nn::FilePlaces by_markers(const Component& c, const std::vector<const char*>& markers) {
  nn::FileShapes shapes;
  for (const char* name : markers) shapes.emplace(name, Shape{1});
  nn::FilePlaces out = c.model->places(c.config, shapes);
  if (!out) out = [](const std::string& weight) { return nn::FilePlace{.name = weight}; };
  return out;
}

nn::FilePlaces open_clip(const Component& c) {
  return by_markers(c, {"transformer.resblocks.0.mlp.c_fc.weight", "token_embedding.weight"});
}
nn::FilePlaces hugging_face(const Component& c) {
  return by_markers(c, {"text_model.encoder.layers.0.mlp.fc1.weight"});
}

void check_kind(const Component& c) {
  require(has_layouts(c), "convert: has no other layout for ", c.model->name);
}

}  // namespace

bool has_layouts(const Component& c) {
  return c.model->name == "ldm_unet" || c.model->name == "autoencoder_kl" ||
         c.model->name == "clip_text";
}

std::vector<ComponentPlace> original_places(const std::vector<Component>& components) {
  std::vector<ComponentPlace> out;
  const auto texts = texts_in(family_in(components), components);
  for (size_t i = 0; i < components.size(); ++i) {
    const Component& c = components[i];
    check_kind(c);
    if (is(c, ModelKind::denoiser))
      out.push_back({"", "model.diffusion_model.", by_markers(c, {})});
    else if (is(c, ModelKind::autoencoder))
      out.push_back({"", "first_stage_model.", by_markers(c, {})});
    else
      out.push_back({"", texts[i]->original, texts[i]->open_clip ? open_clip(c) : hugging_face(c)});
  }
  return out;
}

std::map<std::string, std::string> resolution_metadata(const Component& denoiser) {
  const Family* family = is(denoiser, ModelKind::denoiser) ? find_family(denoiser.config) : nullptr;
  if (!family || denoiser.config.common().image_size == family->image_size) return {};
  const int64_t side = denoiser.config.common().image_size * family->latents.factor;
  return {{"modelspec.resolution", str(side, 'x', side)}};
}

std::vector<ComponentPlace> diffusers_places(const std::vector<Component>& components) {
  std::vector<ComponentPlace> out;
  const auto texts = texts_in(family_in(components), components);
  const char* const weights = "/diffusion_pytorch_model.safetensors";
  for (size_t i = 0; i < components.size(); ++i) {
    const Component& c = components[i];
    check_kind(c);
    if (is(c, ModelKind::denoiser))
      out.push_back({str("unet", weights), "",
                     by_markers(c, {"conv_in.weight", "down_blocks.0.resnets.0.conv1.weight"})});
    else if (is(c, ModelKind::autoencoder))
      out.push_back({str("vae", weights), "",
                     by_markers(c, {"decoder.up_blocks.0.resnets.0.conv1.weight"}), true});
    else
      out.push_back({texts[i]->folder + "/model.safetensors", "", hugging_face(c)});
  }
  return out;
}

// ---- configs -------------------------------------------------------------------------------

namespace {

// Of one level: a number if its blocks are alike, else one for each; 1 where none has transformers,
// which is not read.
json depths_of(std::span<const int64_t> blocks) {
  const bool attends = blocks[0] > 0;
  for (const int64_t depth : blocks)
    require((depth > 0) == attends,
            "convert: in diffusers' layout all residual blocks of a level are followed by "
            "transformers or none is (",
            blocks[0], " and ", depth, " transformer blocks)");
  if (std::ranges::all_of(blocks, [&](int64_t depth) { return depth == blocks[0]; }))
    return std::max<int64_t>(blocks[0], 1);
  return std::vector(blocks.begin(), blocks.end());
}

// The types of blocks and how many transformer blocks each has. The middle has as many as the
// first block of the last level; the decoder has the encoder's, unless the config says otherwise.
json transformers_json(const json& f) {
  const auto inputs = f["input_depths"].get<std::vector<int64_t>>(),
             outputs = f["output_depths"].get<std::vector<int64_t>>();
  const size_t levels = f["channel_mult"].size(), blocks = f["num_res_blocks"];
  const int64_t middle = f["middle_depth"], in_middle = f["middle_blocks"];
  json down = json::array(), up = json::array(), deep = json::array(), back = json::array();
  for (size_t i = 0; i < levels; ++i) {
    const auto in = std::span(inputs).subspan(i * blocks, blocks),
               out = std::span(outputs).subspan(i * (blocks + 1), blocks + 1);
    down.push_back(in[0] > 0 ? "CrossAttnDownBlock2D" : "DownBlock2D");
    up.push_back(out[0] > 0 ? "CrossAttnUpBlock2D" : "UpBlock2D");
    deep.push_back(depths_of(in));
    back.push_back(depths_of(out));
  }
  const bool mirrored = std::equal(deep.begin(), deep.end(), back.rbegin()) &&
                        std::ranges::all_of(deep, [](const json& n) { return n.is_number(); });
  const int64_t last = inputs[(levels - 1) * blocks];
  require(in_middle < 2 || middle > 0,
          "convert: in diffusers' layout two residual blocks in the middle have transformers "
          "between them");
  require(middle == 0 || last == 0 || middle == last,
          "convert: in diffusers' layout the middle has as many transformer blocks as the last "
          "level (",
          middle, " and ", last, ")");
  if (middle > 0 && last == 0) deep.back() = middle;
  json out = {{"down_block_types", down},
              {"mid_block_type", middle > 0      ? json("UNetMidBlock2DCrossAttn")
                                 : in_middle > 0 ? json("UNetMidBlock2D")
                                                 : json()},
              {"up_block_types", up},
              {"transformer_layers_per_block", deep}};
  if (!mirrored) out["reverse_transformer_layers_per_block"] = back;
  return out;
}

json unet_json(const Component& c, const DiffusionConfig& d) {
  const json f = fields_of(c);
  const int64_t head = f["num_head_channels"], heads = f["num_heads"], wide = f["model_channels"],
                vector = f["vector"];
  json channels = json::array(), number = json::array();
  for (const int64_t mult : f["channel_mult"]) {
    channels.push_back(mult * wide);
    number.push_back(head > 0 ? std::max<int64_t>(mult * wide / head, 1) : heads);
  }
  json out = {{"_class_name", "UNet2DConditionModel"},
              {"sample_size", f["image_size"]},
              {"in_channels", f["in_channels"].get<int64_t>() + f["extra_channels"].get<int64_t>()},
              {"out_channels", f["in_channels"]},
              {"act_fn", "silu"},
              {"flip_sin_to_cos", true},
              {"freq_shift", 0},
              {"block_out_channels", channels},
              {"layers_per_block", f["num_res_blocks"]},
              {"attention_head_dim", number},
              {"cross_attention_dim", f["context"]},
              {"use_linear_projection", !f["conv_projection"].get<bool>()},
              {"norm_num_groups", f["groups"]},
              {"norm_eps", 1e-5},
              {"upcast_attention", vector == 0 && d.precond == "v"}};
  out.update(transformers_json(f));
  if (vector > 0) {
    out["addition_embed_type"] = "text_time";
    out["addition_time_embed_dim"] = f["size_channels"];
    out["projection_class_embeddings_input_dim"] = vector;
  }
  if (f["guidance_channels"] > 0) out["time_cond_proj_dim"] = f["guidance_channels"];
  return out;
}

// What the denoiser makes of the autoencoder's; without a denoiser the family's.
LatentScaling latents_of(const std::vector<Component>& components) {
  for (const Component& c : components)
    if (is(c, ModelKind::denoiser) && c.model->latents(c.config))
      return latent_scaling(*c.model, c.config);
  return family_in(components).latents;
}

json vae_json(const Component& c, const LatentScaling& scaling, const Family& family) {
  const json f = fields_of(c);
  json channels = json::array(), down = json::array(), up = json::array();
  for (const int64_t m : f["channel_mult"]) {
    channels.push_back(m * f["channels"].get<int64_t>());
    down.push_back("DownEncoderBlock2D");
    up.push_back("UpDecoderBlock2D");
  }
  json out = {{"_class_name", "AutoencoderKL"},
              {"in_channels", f["image_channels"]},
              {"out_channels", f["image_channels"]},
              {"down_block_types", down},
              {"up_block_types", up},
              {"block_out_channels", channels},
              {"layers_per_block", f["res_blocks"]},
              {"latent_channels", f["latent_channels"]},
              {"norm_num_groups", f["groups"]},
              {"act_fn", "silu"},
              {"sample_size", family.image_size * family.latents.factor},
              {"scaling_factor", scaling.space.scale},
              {"use_quant_conv", f["quant_conv"]},
              {"use_post_quant_conv", f["quant_conv"]},
              {"force_upcast", family.decoder_overflows}};
  if (scaling.space.shift != 0) out["shift_factor"] = scaling.space.shift;
  if (!scaling.mean.empty())
    out["latents_mean"] = scaling.mean, out["latents_std"] = scaling.deviation;
  return out;
}

// diffusers reads the last layer of Stable Diffusion 2's encoder, which is the original's last but
// one: its config leaves a layer out that stays in the file.
json text_json(const Component& c, const FamilyText& text) {
  const json f = fields_of(c);
  const bool projected = text.projected,
             cut = text.cut_layers && f["layers"] == *text.cut_layers + 1;
  return {{"architectures", {projected ? "CLIPTextModelWithProjection" : "CLIPTextModel"}},
          {"model_type", "clip_text_model"},
          {"hidden_size", f["width"]},
          {"intermediate_size", f["hidden"]},
          {"num_hidden_layers", f["layers"].get<int64_t>() - (cut ? 1 : 0)},
          {"num_attention_heads", f["heads"]},
          {"max_position_embeddings", f["positions"]},
          {"vocab_size", f["vocabulary"]},
          {"hidden_act", f["activation"]},
          {"projection_dim", f["projection"] > 0 ? f["projection"] : f["width"]},
          {"layer_norm_eps", 1e-5},
          {"bos_token_id", 0},
          {"eos_token_id", 2},
          {"pad_token_id", 1}};
}

// Of EDM's schedules, unless they say others.
constexpr double edm_sigma_min = 0.002, edm_sigma_max = 80;

json scheduler_json(const DiffusionConfig& d) {
  if (d.precond == "edm")
    return {{"_class_name", "EDMEulerScheduler"},
            {"sigma_data", d.sigma_data},
            {"sigma_min", d.sigma_min > 0 ? d.sigma_min : edm_sigma_min},
            {"sigma_max", d.sigma_max > 0 ? d.sigma_max : edm_sigma_max},
            {"prediction_type", "epsilon"}};
  const auto betas = std::ranges::find(diffusers_betas, d.betas, &DiffusersBetas::name);
  const auto predicted =
      std::ranges::find(diffusers_predictions, d.precond, &DiffusersPrediction::precond);
  require(betas != std::end(diffusers_betas), "convert: diffusers' schedulers have no betas ",
          d.betas);
  require(predicted != std::end(diffusers_predictions),
          "convert: diffusers' schedulers do not predict ", d.precond);
  json out = {{"_class_name", "EulerDiscreteScheduler"},
              {"num_train_timesteps", d.timesteps},
              {"beta_start", betas->start},
              {"beta_end", betas->end},
              {"beta_schedule", betas->schedule},
              {"prediction_type", predicted->type},
              {"timestep_spacing", "leading"},
              {"steps_offset", 1},
              {"set_alpha_to_one", false},
              {"clip_sample", false},
              {"skip_prk_steps", true}};
  if (d.zero_snr != "no") out["rescale_betas_zero_snr"] = true;
  return out;
}

// By what the denoiser takes.
std::string pipeline_of(const Component* denoiser, const Family& family) {
  switch (denoiser ? beside_of(denoiser->config) : Beside::nothing) {
    case Beside::mask_and_image: return family.pipeline + "InpaintPipeline";
    case Beside::image: return family.pipeline + "InstructPix2PixPipeline";
    case Beside::depth_map: return family.pipeline + "Depth2ImgPipeline";
    case Beside::nothing:
    case Beside::unknown: break;
  }
  return family.pipeline + family.does;
}

std::string indented(const json& j) { return j.dump(2) + "\n"; }

constexpr const char* scheduler_file = "scheduler/scheduler_config.json";

// The folder of the tokenizer beside that of a text encoder, "text_encoder_2".
constexpr const char* first_text = "text_encoder";
std::string tokenizer_of(const std::string& folder) {
  return "tokenizer" + folder.substr(std::string_view(first_text).size());
}

// An encoder's config and its tokenizer.
void add_text(std::map<std::string, std::string>& out, json& index, const Component& c,
              const FamilyText& text) {
  const std::string &folder = text.folder, tokenizer = tokenizer_of(folder);
  out[folder + "/config.json"] = indented(text_json(c, text));
  index[folder] = {"transformers",
                   text.projected ? "CLIPTextModelWithProjection" : "CLIPTextModel"};
  const bool zeros = text::text_encoder(text.encoder).pad == 0;
  const auto files =
      text::builtin_clip_vocabulary()->hugging_face_files(zeros ? "!" : "<|endoftext|>");
  for (const auto& [name, bytes] : files) out[str(tokenizer, '/', name)] = bytes;
  index[tokenizer] = {"transformers", "CLIPTokenizer"};
}

}  // namespace

std::map<std::string, std::string> diffusers_files(const std::vector<Component>& components,
                                                   const DiffusionConfig& diffusion,
                                                   const SchedulerFile& scheduler) {
  std::map<std::string, std::string> out;
  const Family& family = family_in(components);
  const auto texts = texts_in(family, components);
  const Component* denoiser = nullptr;
  json index = {{"_class_name", ""}};
  const std::vector<ComponentPlace> places = diffusers_places(components);
  for (size_t i = 0; i < components.size(); ++i) {
    const Component& c = components[i];
    const std::string folder = places[i].file.substr(0, places[i].file.find('/'));
    if (is(c, ModelKind::denoiser)) {
      denoiser = &c;
      out[folder + "/config.json"] = indented(unet_json(c, diffusion));
      index[folder] = {"diffusers", "UNet2DConditionModel"};
    } else if (is(c, ModelKind::autoencoder)) {
      out[folder + "/config.json"] = indented(vae_json(c, latents_of(components), family));
      index[folder] = {"diffusers", "AutoencoderKL"};
    } else {
      add_text(out, index, c, *texts[i]);
    }
  }
  if (scheduler.name.empty()) {
    const json made = scheduler_json(diffusion);
    out[scheduler_file] = indented(made);
    index["scheduler"] = {"diffusers", made["_class_name"]};
  } else {
    out[scheduler_file] = scheduler.text;
    index["scheduler"] = {"diffusers", scheduler.name};
  }
  index["_class_name"] = pipeline_of(denoiser, family);
  for (const auto& [field, value] : family.index) index[field] = value;
  // Pipelines have a first encoder, if an empty one.
  if (std::ranges::none_of(family.texts,
                           [](const FamilyText& t) { return t.folder == first_text; }))
    index[first_text] = index[tokenizer_of(first_text)] = {nullptr, nullptr};
  if (family.checker) {
    index["safety_checker"] = index["feature_extractor"] = {nullptr, nullptr};
    index["requires_safety_checker"] = false;
  }
  out["model_index.json"] = indented(index);
  return out;
}

std::vector<std::string> unsaid_by_one_file(const std::vector<Component>& components,
                                            const DiffusionConfig& diffusion,
                                            const std::optional<SchedulerConfig>& scheduler) {
  const Component& denoiser = components[0];
  if (!is(denoiser, ModelKind::denoiser)) return {};
  DiffusionConfig said = diffusion, usual = usual_diffusion(*denoiser.model, denoiser.config);
  if (said.precond != "x0") usual.precond = said.precond;
  if (said.precond == "edm") usual.sigma_min = edm_sigma_min, usual.sigma_max = edm_sigma_max;
  if (family_in(components).markers && said.zero_snr != "no") usual.zero_snr = said.zero_snr;
  std::string flags;
  const std::vector<Field> fields = ebb::fields_of(said), others = ebb::fields_of(usual);
  for (size_t i = 0; i < fields.size(); ++i) {
    std::string name = fields[i].name;
    std::ranges::replace(name, '_', '-');
    if (field_text(fields[i]) != field_text(others[i]))
      flags += str(" --", name, " ", field_text(fields[i]));
  }
  std::vector<std::string> out;
  if (!flags.empty())
    out.push_back(
        str("convert: one file does not say how the network was trained, as the "
            "folder's scheduler does; to ebb generate these flags do:",
            flags));
  if (!scheduler || scheduler->sampler.empty()) return out;
  const bool few_steps = scheduler->sampler == "lcm" || scheduler->sampler == "tcd";
  if (!few_steps && scheduler->spacing != "trailing" && scheduler->spread.empty()) return out;
  const ScheduleText levels = schedule_of(*scheduler, scheduler->sampler);
  out.push_back(str("convert: one file has no scheduler, and the folder's is ", scheduler->name,
                    "; to ebb generate these flags say so: --sampler ", scheduler->sampler,
                    " --schedule ", levels.schedule,
                    levels.options.empty() ? "" : " --schedule-options " + levels.options));
  return out;
}

}  // namespace ebb

// A1111's API: txt2img, img2img and their answers.
#include <algorithm>

#include "apps/server/base64.h"
#include "apps/server/job_pictures.h"
#include "apps/server/sdapi/request.h"
#include "base/parse_json.h"
#include "base/version.h"
#include "pipeline/infotext.h"

namespace ebb::server::dialects {
namespace {

using sdapi::Task;

// Keys of a text of settings that `info` has other fields for; others are extras.
bool is_extra(std::string_view key) {
  constexpr std::string_view usual[] = {"Steps",
                                        "Sampler",
                                        "Schedule type",
                                        "CFG scale",
                                        "Image CFG scale",
                                        "Seed",
                                        "Size",
                                        "Model hash",
                                        "Model",
                                        "VAE hash",
                                        "VAE",
                                        "Variation seed",
                                        "Variation seed strength",
                                        "Seed resize from",
                                        "Denoising strength",
                                        "Clip skip",
                                        "ENSD",
                                        "RNG",
                                        "Tiling",
                                        "Version"};
  return std::ranges::find(usual, key) == std::end(usual);
}

// What A1111's clients parse a second time.
std::string info_text(Store& store, const JobView& v, const Json& echoed) {
  const cli::GenerateFlags& o = v.job->spec.flags;
  Json seeds = Json::array(), subseeds = Json::array(), texts = Json::array(),
       prompts = Json::array(), negatives = Json::array();
  Infotext first;
  for (const JobImage& i : v.images) {
    const auto facts = store.facts(i.id);
    const std::string all = facts ? facts->parameters : "";
    const Infotext text = parse_infotext(all);
    if (texts.empty()) first = text;
    const std::string subseed = text.value("Variation seed");
    seeds.push_back(i.seed);
    subseeds.push_back(subseed.empty() ? Json(-1) : parse_json<Json>(subseed));
    texts.push_back(all);
    prompts.push_back(o.prompt), negatives.push_back(o.negative);
  }
  Json extra = Json::object();
  for (const auto& [key, value] : first.values)
    if (is_extra(key)) extra[key] = value;
  return json_text({{"prompt", o.prompt},
                    {"all_prompts", prompts},
                    {"negative_prompt", o.negative},
                    {"all_negative_prompts", negatives},
                    {"seed", uint64_t{o.generate.seed}},
                    {"all_seeds", seeds},
                    {"subseed", subseeds.empty() ? Json(-1) : subseeds[0]},
                    {"all_subseeds", subseeds},
                    {"subseed_strength", echoed.value("subseed_strength", Json(0))},
                    {"width", echoed["width"]},
                    {"height", echoed["height"]},
                    {"sampler_name", o.generate.sampler},
                    {"cfg_scale", o.generate.guidance},
                    {"steps", o.generate.steps},
                    {"batch_size", o.generate.batch},
                    {"restore_faces", false},
                    {"face_restoration_model", nullptr},
                    {"sd_model_name", first.value("Model")},
                    {"sd_model_hash", first.value("Model hash")},
                    {"sd_vae_name", first.value("VAE").empty() ? Json() : Json(first.value("VAE"))},
                    {"sd_vae_hash", nullptr},
                    {"seed_resize_from_w", echoed["seed_resize_from_w"]},
                    {"seed_resize_from_h", echoed["seed_resize_from_h"]},
                    {"denoising_strength", echoed["denoising_strength"]},
                    {"extra_generation_params", extra},
                    {"index_of_first_image", 0},
                    {"infotexts", texts},
                    {"styles", echoed["styles"].is_array() ? echoed["styles"] : Json::array()},
                    {"job_timestamp", sdapi::timestamp(v.started)},
                    {"clip_skip", o.clip_skip == 0 ? 1 : o.clip_skip},
                    {"is_using_inpainting_conditioning", false},
                    {"version", str("ebb ", version)}});
}

void generate(const Call& c, Task task) {
  sdapi::Asked asked = sdapi::read_request(c, task);
  const auto render = [&s = c.service, echoed = asked.echoed, sends = asked.sends_images,
                       maps = asked.maps](const JobView& v) {
    throw_if_failed(v);
    Json images = Json::array();
    if (sends) {
      for (const std::string& bytes : files_of_pictures(s.store(), v))
        images.push_back(base64(bytes));
      for (const std::string& map : maps) images.push_back(map);
    }
    return Reply{.body = json_text({{"images", std::move(images)},
                                    {"parameters", echoed},
                                    {"info", info_text(s.store(), v, echoed)}})};
  };
  c.service.answer_when_done(c, std::move(asked.spec), render,
                             [&] { sdapi::keep_options(c, asked.kept_options); });
}

std::vector<Route> routes() {
  const auto route = [](const char* path, Task task) {
    return Route{"POST",     path,       [task](const Call& c) { generate(c, task); },
                 On::models, large_body, {.makes_job = true}};
  };
  return sdapi::with_prefixes(
      {route("/sdapi/v1/txt2img", Task::txt2img), route("/sdapi/v1/img2img", Task::img2img)});
}

}  // namespace

const Dialect& sdapi() {
  static const Dialect d{"sdapi", routes, sdapi::render_fault};
  return d;
}

}  // namespace ebb::server::dialects

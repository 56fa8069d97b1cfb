// A1111's API: what pictures say, larger pictures, ControlNet's maps.
#include <algorithm>

#include "apps/cli/picture_formats.h"
#include "apps/server/base64.h"
#include "apps/server/byte_span.h"
#include "apps/server/job_pictures.h"
#include "apps/server/pictures.h"
#include "apps/server/request_limits.h"
#include "apps/server/sdapi/request.h"
#include "apps/server/sides.h"
#include "base/names.h"
#include "io/image.h"
#include "pipeline/infotext.h"

namespace ebb::server::dialects {
namespace {

void png_info(const Call& c, JsonReader& r) {
  const std::string bytes = picture_bytes(r.text("image").value_or(""), "image");
  const Tensor pixels = decoded_picture(bytes, "image");  // whether it is one
  const auto text = io::picture_text(byte_span(bytes), "image");
  const std::string info = cli::infotext_of(text);
  const Infotext parsed = parse_infotext(info);
  Json parameters = Json::object();
  if (!info.empty()) {
    parameters["Prompt"] = parsed.prompt, parameters["Negative prompt"] = parsed.negative;
    for (const auto& [key, value] : parsed.values) parameters[key] = value;
    if (const auto sides = sides_of(parsed.value("Size")))
      parameters["Size-1"] = sides->first, parameters["Size-2"] = sides->second;
  }
  Json items = Json::object();
  for (const auto& [key, value] : text) items[key] = value;
  c.reply({{"info", info}, {"items", items}, {"parameters", parameters}});
}

// ---- extras
void set_upscaler(const Call& c, JobSpec& spec, const std::string& name) {
  UpscaleSettings& u = spec.upscale;
  if (same_name(name, "None")) u.scale = 1, u.width = u.height = 0;
  if (same_name(name, "None") || same_name(name, "Lanczos") || same_name(name, "Nearest")) {
    u.upscaler = same_name(name, "Nearest") ? "nearest" : "lanczos";
    return;
  }
  std::string file = name;  // Easy Diffusion's names
  if (same_name(name, "R-ESRGAN 4x+")) file = "RealESRGAN_x4plus";
  if (same_name(name, "R-ESRGAN 4x+ Anime6B")) file = "RealESRGAN_x4plus_anime_6B";
  u.upscaler = c.service.catalogue().find(FileKind::upscaler, file, "upscaler_1").path;
}

// Without the pictures.
JobSpec read_extras(const Call& c, JsonReader& r) {
  JobSpec spec;
  spec.kind = JobKind::upscale;
  spec.keeps = false;
  for (const char* f : {"gfpgan_visibility", "codeformer_visibility"})
    if (r.number(f).value_or(0) != 0) fail_field(f, "ebb restores no faces");
  if (const auto second = r.text("upscaler_2");
      second && !same_name(*second, "None") &&
      r.number("extras_upscaler_2_visibility").value_or(0) > 0)
    fail_field("upscaler_2", "ebb mixes no two upscalers");
  // of what is refused above
  r.skip({"show_extras_results", "codeformer_weight", "upscale_first",
          "extras_upscaler_2_visibility"});
  UpscaleSettings& u = spec.upscale;
  u.scale = r.number("upscaling_resize").value_or(2);
  if (u.scale <= 0 || u.scale > most_scale)
    fail_field("upscaling_resize", "must be more than 0, at most ", most_scale);
  u.crop = r.truth("upscaling_crop").value_or(true);
  const int64_t w = r.integer("upscaling_resize_w", 1, 8192).value_or(512),
                h = r.integer("upscaling_resize_h", 1, 8192).value_or(512);
  if (r.integer("resize_mode", 0, 1).value_or(0) == 1) u.width = w, u.height = h;
  set_upscaler(c, spec, r.text("upscaler_1").value_or("None"));
  spec.format = sdapi::format_of(c.service.options().get("samples_format"));
  return spec;
}

void add_image(JobSpec& spec, const std::string& text, const std::string& field) {
  const Tensor pixels = decoded_picture(picture_bytes(text, field), field);
  const auto [height, width] = upscaled_size(pixels, spec.upscale);  // which checks it
  spec.pixels = height * width;
  spec.inputs = {{"image", io::encode_png(pixels)}};
  spec.upscale.image = "image";
}

std::string image_of(Service& s, const JobView& v) {
  throw_if_failed(v);
  if (v.images.empty()) throw HttpFault(500, "cancelled", "the job was cancelled");
  return base64(files_of_pictures(s.store(), v)[0]);
}

void extra_single(const Call& c, JsonReader& r) {
  JobSpec spec = read_extras(c, r);
  add_image(spec, r.text("image").value_or(""), "image");
  c.ignore(r);
  c.service.answer_when_done(c, std::move(spec), [&s = c.service](const JobView& v) {
    return Reply{.body = json_text({{"image", image_of(s, v)}, {"html_info", ""}})};
  });
}

// One job after the other, so that none takes the queue.
struct Batch {
  std::vector<JobSpec> left;  // the last one is the next
  Json images = Json::array();
};

void run_batch(const Call& c, const std::shared_ptr<Batch>& batch) {
  if (batch->left.empty()) return c.reply({{"images", batch->images}, {"html_info", ""}});
  const auto job = c.service.submit(c, std::move(batch->left.back()));
  batch->left.pop_back();
  c.service.cancel_on_leave(c, job);
  c.service.queue().when_finished(*job, [c, batch](const JobView& v) {
    c.service.codec().add([c, batch, v] {
      c.service.answer_later(c, [&](const Call& own) {
        batch->images.push_back(image_of(own.service, v));
        run_batch(own, batch);
      });
    });
  });
}

void extra_batch(const Call& c, JsonReader& r) {
  const JobSpec spec = read_extras(c, r);
  const Json* images = r.array("imageList");
  if (!images || images->empty()) fail_field("imageList", "is missing");
  check_count("imageList", images->size());
  const auto batch = std::make_shared<Batch>();
  for (const Json& one : *images) {
    if (!one.is_object()) fail_field("imageList", "must be a list of objects");
    JsonReader image(one);
    batch->left.push_back(spec);
    add_image(batch->left.back(), image.text("data").value_or(""), "imageList");
  }
  std::ranges::reverse(batch->left);
  c.ignore(r);
  run_batch(c.without_body(), batch);
}

// ---- ControlNet
void detect(const Call& c, JsonReader& r) {
  const std::string module = small_letters(r.text("controlnet_module").value_or("none"));
  sdapi::check_preprocessor(module, "controlnet_module");
  constexpr int64_t usual = 64;  // of this route
  const ControlThresholds thresholds{sdapi::threshold_of(r, "controlnet_threshold_a", usual),
                                     sdapi::threshold_of(r, "controlnet_threshold_b", usual)};
  const Json* images = r.array("controlnet_input_images");
  if (!images || images->empty()) fail_field("controlnet_input_images", "No image selected");
  check_count("controlnet_input_images", images->size());
  Json out = Json::array();
  for (const Json& one : *images) {
    if (!one.is_string()) fail_field("controlnet_input_images", "must be a list of texts");
    out.push_back(base64(io::encode_png(sdapi::control_map(
        module, one.get_ref<const std::string&>(), "controlnet_input_images", thresholds))));
  }
  r.ignore_unless("controlnet_processor_res", {-1});
  c.ignore(r);
  c.reply({{"images", out}, {"info", "Success"}});
}

std::vector<Route> routes() {
  return sdapi::with_prefixes({
      {"POST", "/sdapi/v1/png-info", with_json(png_info), On::codec, large_body},
      {"POST",
       "/sdapi/v1/extra-single-image",
       with_json(extra_single),
       On::models,
       large_body,
       {.makes_job = true}},
      {"POST",
       "/sdapi/v1/upscale",
       with_json(extra_single),
       On::models,
       large_body,
       {.makes_job = true}},  // koboldcpp's name
      {"POST",
       "/sdapi/v1/extra-batch-images",
       with_json(extra_batch),
       On::models,
       large_body,
       {.makes_job = true}},
      {"POST", "/controlnet/detect", with_json(detect), On::codec, large_body},
  });
}

}  // namespace

const Dialect& sdapi_pictures() {
  static const Dialect d{"sdapi_pictures", routes, sdapi::render_fault};
  return d;
}

}  // namespace ebb::server::dialects

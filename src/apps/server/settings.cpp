#include "apps/server/settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "apps/cli/generate_request.h"
#include "apps/cli/picture_output.h"
#include "apps/server/fault.h"
#include "apps/server/json_body.h"
#include "apps/server/pictures.h"
#include "apps/server/request_limits.h"
#include "base/json.h"
#include "base/names.h"
#include "base/parse_json.h"
#include "base/text.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/sampler.h"
#include "io/image.h"
#include "pipeline/loras.h"
#include "pipeline/open_choices.h"
#include "text/prompt.h"

namespace ebb::server {
namespace {

constexpr std::array of_files = {
    FileSetting{"model", FileKind::model},
    FileSetting{"vae", FileKind::vae},
    FileSetting{"text_encoder", FileKind::text_encoder},
    FileSetting{"lora", FileKind::lora},
    FileSetting{"refiner", FileKind::model},
    FileSetting{"refiner_lora", FileKind::lora},
    FileSetting{"upscale", FileKind::upscaler},
    FileSetting{"image_encoder", FileKind::control},
    FileSetting{"control_model", FileKind::control},
};
// What names files in a way that requests may not.
constexpr std::array<std::string_view, 7> of_the_server = {
    "out",           "embedding_dir", "lora_dir",      "variant",
    "control_model", "control_mask",  "control_blocks"};

std::string text_of(const Json& value, const std::string& field) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.dump();
  fail_field(field, "must be a text");
}

// Of a setting: whether a number that is given for it is a text, as which it is also shown.
bool is_text(const std::vector<Field>& fields, const std::string& name) {
  const auto at = std::ranges::find(fields, name, &Field::name);
  return at != fields.end() && std::holds_alternative<std::string*>(at->ref);
}

bool is_prompt(const std::string& name) { return name == "prompt" || name == "negative_prompt"; }

// The end of an Error's text without what stands before the first rule, or all of it.
[[noreturn]] void fail_setting(const std::string& field, const Error& e) {
  throw HttpFault(422, "invalid_value", str(field, ": ", e.what()), field);
}

std::string_view sampler_of(std::string_view name) {
  return same_name(name, "auto") ? default_sampler : name;
}

std::vector<Field> plain_fields(cli::GenerateFlags& o) {
  std::vector<Field> out = fields_of(o);
  std::erase_if(out, [](const Field& f) {
    return std::ranges::find(of_the_server, f.name) != of_the_server.end();
  });
  return out;
}

// What may stand behind the name of a file: (:number){0,2}(:lbw=...)?
bool are_numbers(std::string_view rest) {
  for (int numbers = 0; !rest.empty(); ++numbers) {
    if (rest[0] != ':') return false;
    rest.remove_prefix(1);
    if (rest.starts_with("lbw=")) return rest.find(';') == rest.npos;
    const std::string_view digits = rest.substr(0, rest.find(':'));
    double value = 0;
    const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (numbers == 2 || fault != std::errc() || end != digits.data() + digits.size()) return false;
    rest.remove_prefix(digits.size());
  }
  return true;
}

// Before anything is looked up or copied.
void check_length(const std::string& name, const Json& value, const std::string& field) {
  if (name.size() > longest_name)
    throw HttpFault(422, "unknown_setting",
                    str("the name of a setting is longer than ", longest_name, " bytes"));
  const auto check_text = [&](const Json& text) {
    if (!text.is_string()) return;
    const size_t bytes = text.get_ref<const std::string&>().size();
    if (bytes > most_text)
      throw HttpFault(413, "too_large",
                      str(field, ": longer than ", most_text, " bytes (got ", bytes, ")"), field);
  };
  check_text(value);
  if (!value.is_array()) return;
  const size_t most = !value.empty() && value[0].is_number() ? most_steps + 1 : most_entries;
  if (value.size() > most)
    fail_field(field, "has more than ", most, " entries (got ", value.size(), ")");
  for (const Json& one : value) check_text(one);
}

// The pixels that come out behind outpainting, the second pass and the upscaler, within limits. A
// size that is left open, the model's, counts as 1024.
double output_pixels(const cli::GenerateFlags& o, ImageSize size, ImageSize init,
                     double upscaler_scale) {
  const cli::ModeFlags& m = o.modes;
  if (size.height == 0) size = {.height = 1024, .width = 1024};
  auto h = static_cast<double>(size.height), w = static_cast<double>(size.width);
  if (!m.outpaint.empty()) {
    const Outpaint sides = parse_outpaint(m.outpaint);
    h = static_cast<double>(std::max(size.height, init.height)) + static_cast<double>(sides.top) +
        static_cast<double>(sides.bottom);
    w = static_cast<double>(std::max(size.width, init.width)) + static_cast<double>(sides.left) +
        static_cast<double>(sides.right);
    check_pixels("outpaint", h, w);
  }
  if (!m.hires.empty()) {
    const double scale = parse_hires(m.hires).scale;
    check_pixels("hires", h *= scale, w *= scale);
  }
  if (o.control.upscale.empty()) return h * w;
  const double own = cli::upscale_of(o.control), scale = own == 0 ? upscaler_scale : own;
  check_pixels("upscale", h *= scale, w *= scale);
  return h * w;
}

}  // namespace

std::span<const FileSetting> file_settings() { return of_files; }

std::optional<CatalogueFile> current_model(const SettingsSource& source) {
  if (auto f = source.catalogue.lookup(FileKind::model, source.model); f && f->fault.empty())
    return f;
  return source.catalogue.usual_model();
}

std::optional<CatalogueFile> SettingsBuilder::model() const {
  if (!spec_.flags.model.empty()) return source_.catalogue.by_path(spec_.flags.model);
  return current_model(source_);
}

ModelDefaults SettingsBuilder::defaults() const {
  const auto f = model();
  return f ? f->defaults : ModelDefaults();
}

ImageSize SettingsBuilder::set_size(std::optional<int64_t> width, std::optional<int64_t> height) {
  ImageSize size{.height = 512, .width = 512};
  if (const std::string own = width && height ? "" : defaults().size; !own.empty())
    size = cli::image_size(own, "serve");
  size = {.height = height.value_or(size.height) / size_multiple * size_multiple,
          .width = width.value_or(size.width) / size_multiple * size_multiple};
  if (std::min(size.width, size.height) < size_multiple)
    fail_field("size", "sides must be ", size_multiple, " pixels or more");
  set("size", str(size.width, 'x', size.height), width || !height ? "width" : "height");
  return size;
}

void SettingsBuilder::set(const std::string& name, const Json& value, const std::string& asked) {
  const std::string field = asked.empty() ? name : asked;
  if (value.is_null()) return;
  if (std::ranges::find(of_the_server, name) != of_the_server.end())
    fail_field(field, "is decided by the server");
  if (name != "init" && name != "mask") check_length(name, value, field);
  if (name == "init")
    return picture(
        name, decoded_picture(picture_bytes(text_of(value, field), field, &source_.store), field));
  if (name == "mask")
    return picture(name, decoded_mask(picture_bytes(text_of(value, field), field, &source_.store),
                                      MaskRule::white, field));
  if (name == "control") {
    if (!value.is_array()) fail_field(field, "must be a list of objects");
    for (const Json& unit : value) control(unit);
    return;
  }
  if (is_prompt(name) && !value.is_string())
    fail_field(field, "must be a text (got ", shown_value(value), ")");
  const auto file = std::ranges::find(of_files, name, &FileSetting::name);
  spec_.given.insert(name);
  spec_.shown[name] =
      value.is_number() && is_text(fields_of(spec_.flags), name) ? Json(value.dump()) : value;
  if (file != of_files.end()) return set_file(name, file->kind, value, field);
  if (name == "hires") return set_hires(text_of(value, field), field);
  set_plain(name, value, field);
}

void SettingsBuilder::set_plain(const std::string& name, const Json& value,
                                const std::string& field) {
  const auto fields = plain_fields(spec_.flags);
  std::vector<std::string> known;
  for (const Field& f : fields) known.push_back(f.name);
  const auto at = std::ranges::find(fields, name, &Field::name);
  if (at == fields.end())
    throw HttpFault(422, "unknown_setting",
                    str("there is no setting '", printable(name), "'", suggestion(name, known)),
                    field);
  try {
    if (value.is_string() || (value.is_number() && !std::holds_alternative<bool*>(at->ref)))
      set_field(*at, text_of(value, field));
    else
      set_fields_json({*at}, Json{{name, value}}.dump(), "setting");
  } catch (const Error& e) {
    fail_setting(field, e);
  }
  if (name == "seed") spec_.shown["seed"] = uint64_t{spec_.flags.generate.seed};
}

std::string SettingsBuilder::path_with_numbers(FileKind kind, const std::string& text,
                                               const std::string& field) {
  if (text.size() > most_text) fail_field(field, "longer than ", most_text, " bytes");
  std::string name = text;
  for (int numbers = 0; numbers < 4; ++numbers) {
    if (const auto f = source_.catalogue.lookup(kind, name)) {
      const CatalogueFile good = source_.catalogue.find(kind, name, field);
      if (good.path.find(';') != good.path.npos)
        fail_field(field, "a file whose path has a ; cannot be named here");
      if (!are_numbers(std::string_view(text).substr(name.size())))
        fail_field(field, "behind the name may stand two numbers and lbw= (got '", printable(text),
                   "')");
      return good.path + text.substr(name.size());
    }
    const size_t colon = name.rfind(':');
    if (colon == name.npos) break;
    name.resize(colon);
  }
  return source_.catalogue.find(kind, text, field).path;  // which says what is near
}

void SettingsBuilder::set_file(const std::string& name, FileKind kind, const Json& value,
                               const std::string& field) {
  const Field own = find_field(fields_of(spec_.flags), name, "setting");
  std::vector<std::string> paths;
  for (const Json& one : value.is_array() ? value : Json::array({value}))
    if (const std::string text = text_of(one, field); !text.empty())
      paths.push_back(path_with_numbers(kind, text, field));
  if (std::holds_alternative<std::string*>(own.ref) && value.is_array())
    fail_field(field, "must be a text");
  set_field(own, separated(paths, ";"));
}

// "SCALE[:upscaler[:steps[:strength]]]": an upscaler of the catalogue, or one by name.
void SettingsBuilder::set_hires(const std::string& text, const std::string& field) {
  try {
    const Hires h = text.empty() ? Hires{} : parse_hires(text);
    spec_.flags.modes.hires = text;
    if (text.empty() || !h.network) return;
    spec_.flags.modes.hires =
        hires_text(h.scale, source_.catalogue.find(FileKind::upscaler, h.upscaler, field).path,
                   h.steps, h.strength);
  } catch (const HttpFault&) {
    throw;
  } catch (const Error& e) {
    fail_setting(field, e);
  }
}

void SettingsBuilder::picture(const std::string& name, const Tensor& pixels) {
  std::erase_if(spec_.inputs, [&](const JobInput& i) { return i.field == name; });
  add_input(name, pixels, name);
  spec_.given.insert(name);
  spec_.shown[name] = str("[", pixels.shape()[1], "x", pixels.shape()[0], "]");
  if (name == "init") init_ = {.height = pixels.shape()[0], .width = pixels.shape()[1]};
  // The queue writes it into a file, whose name takes the place of this.
  if (name == "init") spec_.flags.modes.init = name;
  if (name == "mask") spec_.flags.modes.mask = name;
  if (name == "image") spec_.upscale.image = name;
}

void SettingsBuilder::add_input(const std::string& name, const Tensor& pixels,
                                const std::string& field) {
  check_count(field, spec_.inputs.size() + 1);
  spec_.inputs.push_back({name, io::encode_png(pixels)});
}

void SettingsBuilder::another_init(const Tensor& pixels) {
  const std::string name = str(more_init, spec_.more_inits.size() + 2);
  add_input(name, pixels, "init_images");
  spec_.more_inits.push_back(name);
}

void SettingsBuilder::control(const Json& unit) {
  const std::string field = "control";
  if (!unit.is_object()) fail_field(field, "must be a list of objects");
  JsonReader r(unit);
  const std::string model = r.text("model").value_or(""), kind = r.text("kind").value_or("none");
  const auto image = r.text("image");
  if (!image) fail_field(field, "a control network needs an image");
  for (const std::string_view sign : {"=", ":", ";"})
    if (kind.find(sign) != kind.npos) fail_field(field, "unknown kind");
  auto& c = spec_.flags.control;
  c.control_model.texts.push_back(source_.catalogue.find(FileKind::control, model, field).path);
  const std::string held = str("control", c.control.texts.size());
  add_input(held, decoded_picture(picture_bytes(*image, field, &source_.store), field), field);
  c.control.texts.push_back(str(kind, "=", held, ":", number_text(r.number("strength").value_or(1)),
                                ":", number_text(r.number("start").value_or(0)), ":",
                                number_text(r.number("end").value_or(1))));
  spec_.given.insert("control");
}

void SettingsBuilder::check_names() const {
  const GenerateOptions& g = spec_.flags.generate;
  check_sampler(g.sampler);
  try {
    check_options(sampler_of(g.sampler), parse_options(g.options, "options"));
  } catch (const Error& e) {
    fail_setting("options", e);
  }
  try {
    if (!same_name(g.schedule, "auto")) find_schedule(g.schedule, find_dialect(g.dialect));
  } catch (const Error& e) {
    throw HttpFault(400, "not_found", e.what(), "schedule");
  }
  for (const auto& [name, value] : parse_options(g.schedule_options, "schedule_options"))
    if (same_name(name, "file")) fail_field("schedule_options", "a request may not name files");
}

// Tags of the prompt name files of the folder of LoRAs.
void SettingsBuilder::check_tags() const {
  if (spec_.flags.prompt.find("<lora:") == std::string::npos) return;
  const auto prompt = text::parse_prompt(spec_.flags.prompt, cli::syntax_of(spec_.flags));
  for (const text::LoraTag& tag : prompt.loras) {
    if (source_.lora_dir.empty())
      throw HttpFault(400, "not_found",
                      str("prompt: <lora:", tag.name, ">: the catalogue has no LoRA files"),
                      "prompt");
    try {
      find_lora(tag, source_.lora_dir);
    } catch (const Error& e) {
      throw HttpFault(400, "not_found", e.what(), "prompt");
    }
  }
}

JobSpec SettingsBuilder::finish() {
  if (spec_.kind == JobKind::upscale) return std::move(spec_);
  try {
    const auto upscaler = source_.catalogue.by_path(spec_.flags.control.upscale);
    spec_.pixels = check_limits(spec_.flags, init_, upscaler ? upscaler->scale : 1);
    check_names();
    cli::GenerateFlags settled = spec_.flags;
    cli::settle(settled, [&](std::string_view f) { return spec_.given.contains(f); });
    for (const auto& unused : {settled.modes.unused(), settled.control.unused()})
      if (unused) fail_field(unused->field, "has no effect ", unused->how, ' ', unused->other);
    check_tags();
  } catch (const HttpFault&) {
    throw;
  } catch (const Error& e) {
    throw HttpFault(422, "invalid_value", e.what());
  }
  cli::GenerateFlags& o = spec_.flags;
  o.lora_dir = source_.lora_dir, o.embedding_dir = source_.embedding_dir;
  if (const auto own = model()) {
    if (!has("guidance") && o.generate.rules.empty()) o.generate.guidance = own->defaults.guidance;
    o.model = own->path;
  }
  if (!has("seed")) o.generate.seed.parse("-1");
  spec_.shown["seed"] = uint64_t{o.generate.seed};
  return std::move(spec_);
}

int64_t check_limits(const cli::GenerateFlags& o, ImageSize init, double upscaler_scale) {
  const auto within = [](const char* field, int64_t v, int64_t least, int64_t most) {
    if (v < least || v > most)
      fail_field(field, "must be from ", least, " to ", most, " (got ", v, ")");
  };
  within("steps", o.generate.steps, 1, most_steps);
  within("n", o.n, 1, most_images);
  within("batch", o.generate.batch, 0, most_batch);
  within("first_image", o.first_image, 0, int64_t{1} << 40);
  within("clip_skip", o.clip_skip, 0, most_clip_skip);
  within("mask_blur", o.modes.mask_blur, -1, most_side);
  if (!std::isfinite(o.generate.guidance)) fail_field("guidance", "must be a number");
  if (!(o.modes.strength >= 0 && o.modes.strength <= 1))
    fail_field("strength", "must lie in [0, 1] (got ", o.modes.strength, ")");
  const std::optional<ImageSize> parsed = cli::parse_image_size(o.size);
  if (!parsed) fail_field("size", cli::image_size_rule(most_side), " (got '", o.size, "')");
  const ImageSize size = *parsed;
  if (o.modes.fit == "latent" && init.height * init.width > most_pixels)
    fail_field("fit", "latent: the start picture has more than ", most_pixels, " pixels");
  const auto pixels = static_cast<int64_t>(output_pixels(o, size, init, upscaler_scale));
  if (size.height == 0) return pixels;
  within("size", std::max(size.height, size.width), 1, most_side);
  if (size.height * size.width > most_pixels)
    fail_field("size", "has more than ", most_pixels, " pixels");
  if (size.height % size_multiple != 0 || size.width % size_multiple != 0)
    fail_field("size", "sides must be multiples of ", size_multiple, " (got ", o.size, ")");
  return pixels;
}

void check_count(const std::string& field, size_t pictures) {
  if (pictures > most_pictures)
    fail_field(field, "a request may bring at most ", most_pictures, " pictures");
}

void check_pixels(const std::string& field, double height, double width) {
  const auto whole = [](double v) { return static_cast<int64_t>(std::clamp(v, 0.0, 1e18)); };
  if (whole(height * width) > most_pixels_out)
    fail_field(field, "makes ", whole(width), "x", whole(height), " pixels (",
               whole(height * width), "), more than ", most_pixels_out);
}

void check_sampler(const std::string& name) {
  if (name.size() > longest_name)
    throw HttpFault(400, "not_found",
                    str("Sampler not found: the name is longer than ", longest_name, " bytes"),
                    "sampler");
  try {
    find_sampler(sampler_of(name));
  } catch (const Error& e) {
    throw HttpFault(400, "not_found", str("Sampler not found (", e.what(), ")"), "sampler");
  }
}

bool takes_option(const std::string& sampler, std::string_view option) {
  check_sampler(sampler);
  return std::ranges::any_of(find_sampler(sampler_of(sampler)).sampler->options(),
                             [&](const Option& o) { return o.name == option; });
}

std::string hires_text(double scale, const std::string& upscaler, int64_t steps, double strength) {
  return str(number_text(scale), ':', upscaler, ':', steps, ':', number_text(strength));
}

Json settings_description() {
  cli::GenerateFlags o;
  std::map<std::string, std::vector<std::string>> choices;
  o.choices([&](std::string_view field, const std::string&, const std::vector<std::string>& names) {
    choices[std::string(field)] = names;
  });
  const std::map<std::string, int64_t> most = {{"size", most_side},
                                               {"steps", most_steps},
                                               {"n", most_images},
                                               {"batch", most_batch},
                                               {"clip_skip", most_clip_skip}};
  Json out = Json::array();
  constexpr std::string_view types[] = {"integer",  "number",  "boolean", "string",
                                        "integers", "numbers", "string"};
  for (const Field& f : plain_fields(o)) {
    Json one = {{"name", f.name},
                {"type", types[f.ref.index()]},
                {"default", parse_json<Json>(fields_json({f}))[f.name]},
                {"help", f.help}};
    if (f.name == "seed") one["default"] = -1;  // which draws one, as finish() does
    if (const auto c = choices.find(f.name); c != choices.end()) one["choices"] = c->second;
    if (const auto m = most.find(f.name); m != most.end()) one["most"] = m->second;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace ebb::server

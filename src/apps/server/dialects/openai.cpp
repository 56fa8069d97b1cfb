// The OpenAI images API.
#include <algorithm>

#include "apps/server/base64.h"
#include "apps/server/job_pictures.h"
#include "apps/server/multipart.h"
#include "apps/server/pictures.h"
#include "apps/server/request_limits.h"
#include "apps/server/service.h"
#include "apps/server/sides.h"
#include "base/names.h"

namespace ebb::server::dialects {
namespace {

Reply render_openai(const HttpFault& f, const Request& r) {
  Reply out = render_fault(f, r);
  const std::string type = f.status == 401   ? "authentication_error"
                           : f.status == 429 ? "rate_limit_error"
                           : f.status < 500  ? "invalid_request_error"
                                             : "server_error";
  out.body = json_text({{"error",
                         {{"message", f.what()},
                          {"type", type},
                          {"param", f.field.empty() ? Json() : Json(f.field)},
                          {"code", f.status == 429 ? "rate_limit_exceeded" : f.code}}}});
  return out;
}

// How the answer is to be.
struct Wanted {
  std::string format = "png", size, quality, background, event = "image_generation";
  bool url = false, stream = false;
  int64_t partials = 0;
};

// Names of the vendor's models mean the one that is there.
void set_model(SettingsBuilder& to, const std::string& name, Service& s) {
  for (const char* own : {"dall-e", "gpt-image", "chatgpt-image"})
    if (name.empty() || small_letters(name).starts_with(own)) return;
  if (!s.catalogue().lookup(FileKind::model, name))
    throw HttpFault(404, "model_not_found", str("the model '", printable(name), "' does not exist"),
                    "model");
  to.set("model", name);
}

// sd.cpp's clients hide settings in the prompt.
std::string without_extra(std::string prompt, Json& extra) {
  constexpr std::string_view open = "<sd_cpp_extra_args>", close = "</sd_cpp_extra_args>";
  const size_t from = prompt.find(open), to = prompt.find(close);
  if (from == prompt.npos || to == prompt.npos || to < from) return prompt;
  extra = read_json(std::string_view(prompt).substr(from + open.size(), to - from - open.size()));
  return prompt.erase(from, to + close.size() - from);
}

// ebb's own settings: flat, in an object `ebb`, or in sd.cpp's.
void set_extras(SettingsBuilder& to, JsonReader& r) {
  if (const auto v = r.text("negative_prompt")) to.set("negative", *v, "negative_prompt");
  if (const Json* v = r.any("seed")) to.set("seed", *v);
  if (const auto v = r.integer("steps", 1, most_steps)) to.set("steps", *v);
  if (const auto v = r.number("guidance_scale")) to.set("guidance", *v, "guidance_scale");
  if (const auto v = r.text("sampler")) to.set("sampler", *v);
  if (const Json* v = r.any("lora")) to.set("lora", *v);
  if (const Json* own = r.object("ebb"))
    for (const auto& [name, value] : own->items()) to.set(name, value);
}

// Half of the usual steps, or half more.
void set_quality(SettingsBuilder& to, const std::string& quality) {
  const double factor = quality == "low" ? 0.5 : quality == "high" || quality == "hd" ? 1.5 : 1;
  for (const char* known : {"", "auto", "low", "medium", "high", "standard", "hd"})
    if (quality == known) {
      if (factor == 1 || to.has("steps")) return;
      const auto usual = static_cast<double>(to.defaults().steps);
      to.set("steps", static_cast<int64_t>(usual * factor), "quality");
      return;
    }
  fail_field("quality", "must be auto, low, medium, high, standard or hd");
}

void set_size(SettingsBuilder& to, const std::string& size) {
  if (size.empty() || size == "auto") return;
  const auto sides = sides_of(size);
  const auto digits = [](const std::string& s) {
    return !s.empty() && s.size() < 6 && s.find_first_not_of("0123456789") == s.npos;
  };
  if (!sides || !digits(sides->first) || !digits(sides->second))
    fail_field("size", "must be WIDTHxHEIGHT or auto");
  to.set_size(std::stoll(sides->first), std::stoll(sides->second));
}

// Fields of generations, edits and variations alike.
Wanted read_common(const Call& c, SettingsBuilder& to, JsonReader& r) {
  Wanted out;
  Json extra = Json::object();
  const std::string prompt = without_extra(r.text("prompt").value_or(""), extra);
  to.set("prompt", prompt);
  set_model(to, r.text("model").value_or(""), c.service);
  to.set("n", r.integer("n", 1, 10).value_or(1));
  out.size = r.text("size").value_or("auto");
  set_size(to, out.size);
  set_extras(to, r);
  JsonReader more(extra);
  set_extras(to, more);
  c.ignore(more, "sd_cpp_extra_args");
  out.quality = r.text("quality").value_or("");
  set_quality(to, out.quality);
  out.format = r.text("output_format").value_or("png");
  const std::string response = r.text("response_format").value_or("b64_json");
  if (response != "url" && response != "b64_json")
    fail_field("response_format", "must be url or b64_json");
  out.url = response == "url";
  to.spec().gives_urls = out.url;
  out.background = r.text("background").value_or("");
  if (out.background == "transparent")
    throw HttpFault(400, "invalid_value", "background: pictures are not transparent", "background");
  out.stream = r.truth("stream").value_or(false);
  out.partials = r.integer("partial_images", 0, 3).value_or(0);
  JobSpec& spec = to.spec();
  const auto format = io::picture_format("." + out.format);
  if (!format) fail_field("output_format", "must be png, jpeg or webp");
  spec.format = *format;
  spec.quality = static_cast<int>(
      std::max<int64_t>(r.integer("output_compression", 0, 100).value_or(spec.quality), 1));
  spec.keeps = false;
  r.ignore_unless("moderation", {"auto"});
  r.ignore_unless("input_fidelity", {"low"});
  r.skip({"user"});  // who asks, which no picture depends on
  c.ignore(r);
  return out;
}

Json facts_of(const Wanted& w) {
  Json out = {{"output_format", w.format}, {"size", w.size}};
  if (!w.quality.empty()) out["quality"] = w.quality;
  if (!w.background.empty()) out["background"] = w.background;
  return out;
}

Json usage() {
  return {{"input_tokens", 0},
          {"output_tokens", 0},
          {"total_tokens", 0},
          {"input_tokens_details", {{"text_tokens", 0}, {"image_tokens", 0}}}};
}

void check_end(const JobView& v) {
  throw_if_failed(v);
  if (v.status == JobStatus::cancelled) throw HttpFault(500, "cancelled", "the job was cancelled");
}

// `origin`: of the server.
Reply whole_answer(Service& s, const JobView& v, const Wanted& w, const std::string& origin) {
  check_end(v);
  Json data = Json::array();
  if (w.url)
    for (const JobImage& i : v.images)
      data.push_back({{"url", str(origin, "/ebb/v1/images/", i.id)}});
  else
    for (const std::string& bytes : files_of_pictures(s.store(), v))
      data.push_back({{"b64_json", base64(bytes)}});
  Json out = {{"created", static_cast<int64_t>(v.job->created)}, {"data", std::move(data)}};
  out.update(facts_of(w));
  out["usage"] = usage();
  return {.body = json_text(out)};
}

// ---- streams
std::string typed_text(const Json& data) {
  return event_text(data["type"].get<std::string>(), json_text(data));
}

Json error_event(const HttpFault& f) {
  return {
      {"type", "error"},
      {"error",
       {{"message", f.what()}, {"type", "server_error"}, {"param", nullptr}, {"code", f.code}}}};
}

// Partial pictures of the job that runs, as many as are wanted at most, then the finished ones.
class Partials : public std::enable_shared_from_this<Partials> {
 public:
  Partials(Service& s, Wanted w) : service_(s), wanted_(std::move(w)) {}

  // Queues it before the stream is open, so that a full queue is an answer with its status.
  void start(const Call& c, JobSpec spec) {
    job_ = service_.submit(c, std::move(spec));
    to_ = c.exchange->stream(c.told());
    if (!to_) {
      service_.queue().cancel(*job_);
      throw HttpFault(503, "too_many_streams", "too many clients read events");
    }
    if (wanted_.partials > 0)
      subscription_ =
          service_.queue().subscribe([weak = weak_from_this()](const Event& e, const Json& data) {
            if (const auto self = weak.lock()) self->came(e, data);
          });
    try {
      service_.queue().when_finished(*job_, [self = shared_from_this()](const JobView& v) {
        self->service_.codec().add([self, v] { self->finish(v); });
      });
      service_.cancel_on_leave(c, job_);
    } catch (...) {  // nobody would read it
      service_.queue().cancel(*job_);
      throw;
    }
  }

 private:
  // Under the queue's lock.
  void came(const Event& e, const Json& data) {
    if (e.name != "step" || data["job"] != job_->id || data["preview_id"] == 0) return;
    service_.codec().add([self = shared_from_this()] { self->send_partial(); });
  }
  void send_partial() {
    const auto p = service_.preview(job_->id);
    const std::lock_guard lock(mutex_);
    if (ended_ || !p || p->number == seen_ || sent_ >= wanted_.partials) return;
    seen_ = p->number;  // one that cannot be made, or comes before others are taken, is left out
    const auto bytes = io::encode_picture(*io::picture_format("." + wanted_.format), p->pixels);
    Json data = {{"type", wanted_.event + ".partial_image"},
                 {"b64_json", base64(bytes)},
                 {"partial_image_index", sent_},
                 {"created_at", static_cast<int64_t>(unix_time())}};
    data.update(facts_of(wanted_));
    sent_ += to_->send(typed_text(data)) == Sent::yes;
  }
  void finish(const JobView& v) {
    const std::lock_guard lock(mutex_);
    ended_ = true, subscription_ = nullptr;
    std::string last;
    try {
      check_end(v);
      for (const std::string& bytes : files_of_pictures(service_.store(), v)) {
        Json data = {{"type", wanted_.event + ".completed"},
                     {"b64_json", base64(bytes)},
                     {"created_at", static_cast<int64_t>(unix_time())},
                     {"usage", usage()}};
        data.update(facts_of(wanted_));
        last += typed_text(data);
      }
    } catch (const HttpFault& f) {
      last += typed_text(error_event(f));
    } catch (const std::exception& e) {
      last += typed_text(error_event({500, "internal", str("serve: ", e.what())}));
    }
    const size_t bytes = last.size();
    if (to_->close(std::move(last)) != Sent::refused) return;
    to_->close(
        typed_text(error_event({503, "too_much_waits",
                                str("the pictures (", bytes,
                                    " bytes) are not sent, as too much waits for "
                                    "other clients that do not read it; come again in a while")})));
  }

  Service& service_;
  std::shared_ptr<EventStream> to_;
  Wanted wanted_;
  std::shared_ptr<const Job> job_;
  std::shared_ptr<const void> subscription_;
  int64_t sent_ = 0, seen_ = 0;
  bool ended_ = false;
  std::mutex mutex_;
};

// "": the request's Host is empty, as it may be with a key.
std::string origin_of(const Call& c) {
  return c.request->header("host").empty() ? "" : c.service.guard().own_origin(*c.request);
}

void answer(const Call& c, SettingsBuilder& to, const Wanted& w) {
  JobSpec spec = to.finish();
  Service& s = c.service;
  if (!w.stream)
    return s.answer_when_done(c, std::move(spec), [&s, w, origin = origin_of(c)](const JobView& v) {
      return whole_answer(s, v, w, origin);
    });
  std::make_shared<Partials>(s, w)->start(c, std::move(spec));
}

void generations(const Call& c, JsonReader& r) {
  SettingsBuilder to(c.service.source());
  if (!r.has("prompt")) fail_field("prompt", "is missing");
  const Wanted w = read_common(c, to, r);
  answer(c, to, w);
}

// The fields of a form as an object, and its files.
struct Form {
  Json fields = Json::object();
  std::vector<std::string_view> images;
  std::string_view mask;
};

Form read_form(const Request& r) {
  if (!Guard::accepted(r.header("content-type"), "multipart/form-data"))
    throw HttpFault(415, "unsupported_media_type", "Content-Type must be multipart/form-data");
  Form out;
  for (const Part& p : read_multipart(r.header("content-type"), r.body)) {
    if (p.name == "image" || p.name == "image[]")
      out.images.push_back(p.body);
    else if (p.name == "mask")
      out.mask = p.body;
    else
      out.fields[p.name] = std::string(p.body);
  }
  constexpr size_t most = 16;
  if (out.images.empty()) fail_field("image", "is missing");
  if (out.images.size() > most) fail_field("image", "more than ", most, " pictures");
  if (out.images.size() > 1)
    fail_field("image", "ebb has no network that reads several pictures (got ", out.images.size(),
               ")");
  return out;
}

// Image to image; with a mask its transparent part is generated. The picture's own size.
void from_image(const Call& c, const char* event, double strength) {
  const Form form = read_form(*c.request);
  JsonReader r(form.fields);
  SettingsBuilder to(c.service.source());
  Wanted w = read_common(c, to, r);
  w.event = event;
  const Tensor image = decoded_picture(form.images[0], "image");
  to.picture("init", image);
  if (!to.has("size")) {
    const ImageSize size = to.set_size(std::max(image.shape()[1], size_multiple),
                                       std::max(image.shape()[0], size_multiple));
    w.size = str(size.width, 'x', size.height);
  }
  if (!to.has("strength")) to.set("strength", strength);
  if (!form.mask.empty())
    to.picture("mask", decoded_mask(form.mask, MaskRule::transparent, "mask"));
  answer(c, to, w);
}

Json model_json(const CatalogueFile& f) {
  return {{"id", f.model_name()}, {"object", "model"}, {"created", 0}, {"owned_by", "ebb"}};
}

void models(const Call& c) {
  Json data = Json::array();
  for (const CatalogueFile& f : c.service.catalogue().all(FileKind::model))
    if (f.fault.empty()) data.push_back(model_json(f));
  c.reply({{"object", "list"}, {"data", std::move(data)}});
}

void model(const Call& c) {
  const auto f = c.service.catalogue().lookup(FileKind::model, c.parts.at(0));
  if (!f) throw HttpFault(404, "model_not_found", "the model does not exist", "model");
  c.reply(model_json(*f));
}

std::vector<Route> routes() {
  const RouteAccess form{.accepts = "multipart/form-data", .makes_job = true};
  constexpr double edit = 0.75, vary = 0.75;
  return {
      {"POST",
       "/v1/images/generations",
       with_json(generations),
       On::models,
       small_body,
       {.makes_job = true}},
      {"POST", "/v1/images/edits", [](const Call& c) { from_image(c, "image_edit", edit); },
       On::models, large_body, form},
      {"POST", "/v1/images/variations",
       [](const Call& c) { from_image(c, "image_generation", vary); }, On::models, large_body,
       form},
      {"GET", "/v1/models", models, On::models},
      {"GET", "/v1/models/{}", model, On::models},
  };
}

}  // namespace

const Dialect& openai() {
  static const Dialect d{"openai", routes, render_openai};
  return d;
}

}  // namespace ebb::server::dialects

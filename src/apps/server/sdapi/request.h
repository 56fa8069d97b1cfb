// A request of A1111's API to a job: the names of its fields, their defaults, and what each is in
// ebb's settings.
#pragma once

#include <string>
#include <vector>

#include "apps/server/route.h"
#include "apps/server/service.h"
#include "pipeline/control.h"

namespace ebb::server::sdapi {

enum class Task : uint8_t { txt2img, img2img };

struct Asked {
  JobSpec spec;
  Json echoed;  // every field, with its default
  bool sends_images = true;
  std::vector<std::string> maps;       // of ControlNet units, base64, behind the pictures
  Json kept_options = Json::object();  // for keep_options(), once the job is queued
};
// Throws HttpFault.
Asked read_request(const Call& call, Task task);

// Every field of a request with its default, in the order of A1111's documents.
const Json& default_fields(Task task);
// Options of the server with those of the request: what the job goes by. A checkpoint is among them
// where the request names one.
Json options_of(Service& service, const Json& override_settings);
// Sets what options say. Throws HttpFault.
void set_options(const Call& call, SettingsBuilder& to, const Json& options);
// What a client sets for all that comes. Throws HttpFault for what jobs would be refused with.
void keep_options(const Call& call, const Json& asked);
// Fills fields that the body does not have by what a text of settings says.
void add_infotext(Json& body, const std::string& text, Task task, const Catalogue& catalogue);
// The units of alwayson_scripts.controlnet. Throws HttpFault.
// Gives the maps that they ask for by save_detected_map, base64.
std::vector<std::string> set_controls(const Call& call, SettingsBuilder& to, const Json& units,
                                      const std::string& init);
constexpr int64_t most_threshold = 255 * 8;  // of a Sobel gradient
// Of a preprocessor: -1 is the usual one; what stands behind the point has no effect, as values of
// pixels are whole. Throws HttpFault.
int64_t threshold_of(JsonReader& r, const char* field, int64_t usual);
// "none", "canny" and what else ebb makes of pictures for control networks.
const std::vector<std::string>& preprocessors();
// Throws HttpFault for one that is not among them.
void check_preprocessor(const std::string& module, const std::string& field);
// u8 [H,W,3] that one makes of a picture of the request. Throws HttpFault.
Tensor control_map(const std::string& module, const std::string& image, const std::string& field,
                   const ControlThresholds& thresholds);
// Of "png", "jpg", "jpeg", "webp". Throws HttpFault.
io::PictureFormat format_of(const Json& name);

// ---- what the routes share
// Unix time as A1111 tells when a job began, "20261127050000", by the clock of the place.
std::string timestamp(double time);
// {"error","detail","body","errors","message"}, or FastAPI's list of fields.
Reply render_fault(const HttpFault& fault, const Request& request);
// Each route under "" and under "/v1".
std::vector<Route> with_prefixes(std::vector<Route> routes);

}  // namespace ebb::server::sdapi

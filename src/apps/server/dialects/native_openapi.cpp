// The native protocol: its description for programs, from its routes and from fields().
#include "apps/server/service.h"
#include "base/names.h"
#include "base/version.h"

namespace ebb::server::dialects {
namespace {

Json property(const char* type, const char* description) {
  return {{"type", type}, {"description", description}};
}

Json object_of(Json properties) {
  return {{"type", "object"}, {"properties", std::move(properties)}};
}

// As POST /jobs takes them.
Json settings_schema() {
  Json properties = Json::object();
  for (const Json& s : settings_description()) {
    Json one = {{"type", s["type"]}, {"description", s["help"]}, {"default", s["default"]}};
    if (s.contains("choices")) one["enum"] = s["choices"];
    if (s["type"] == "integers" || s["type"] == "numbers") {
      const std::string item = s["type"] == "integers" ? "integer" : "number";
      one["type"] = "array", one["items"] = {{"type", item}};
    }
    if (s.contains("most"))
      one["description"] =
          str(s["help"].get<std::string>(), "; at most ", s["most"].get<int64_t>());
    properties[s["name"].get<std::string>()] = std::move(one);
  }
  return object_of(std::move(properties));
}

// The body of a route, and parameters of its query; null: none.
Json body_of(const std::string& route) {
  const Json settings = {{"$ref", "#/components/schemas/Settings"}};
  const Json json_of_settings = {{"application/json", {{"schema", settings}}}};
  if (route == "POST /ebb/v1/jobs" || route == "POST /ebb/v1/plan") return json_of_settings;
  if (route == "PATCH /ebb/v1/jobs/{}")
    return {{"application/json",
             {{"schema",
               object_of({{"position", property("integer", "among those that wait, from 0")}})}}}};
  if (route == "POST /ebb/v1/inspect") {
    const Json file = {{"schema", {{"type", "string"}, {"format", "binary"}}}};
    return {{"application/json",
             {{"schema",
               object_of({{"image", property("string", "base64, a data: URL, or id: and an id")},
                          {"text", property("string", "of settings, in place of a picture")}})}}},
            {"image/png", file},
            {"image/jpeg", file},
            {"image/webp", file}};
  }
  return {};
}

Json parameters_of(const std::string& route) {
  Json out = Json::array();
  const auto add = [&](const char* name, const char* place, const char* type) {
    out.push_back({{"name", name},
                   {"in", place},
                   {"required", std::string_view(place) == "path"},
                   {"schema", {{"type", type}}}});
  };
  if (route.find("{}") != route.npos) add("id", "path", "string");
  if (route == "GET /ebb/v1/images")
    add("before", "query", "string"), add("limit", "query", "integer"), add("q", "query", "string");
  if (route == "GET /ebb/v1/state") add("since", "query", "integer");
  if (route.ends_with("/preview")) add("n", "query", "integer");
  if (route.ends_with("/picture")) add("step", "query", "integer");
  return out;
}

int status_of(const std::string& route) {
  return route == "POST /ebb/v1/jobs" || route == "POST /ebb/v1/catalogue/rescan" ? 202 : 200;
}

void openapi(const Call& c) {
  Json paths = Json::object();
  for (const Route& r : c.service.routes()) {
    if (!r.pattern.starts_with("/ebb/")) continue;
    const std::string route = str(r.method, ' ', r.pattern);
    Json operation = Json::object();
    if (const Json all = parameters_of(route); !all.empty()) operation["parameters"] = all;
    if (const Json body = body_of(route); !body.is_null())
      operation["requestBody"] = {{"content", body}};
    operation["responses"] = {{str(status_of(route)), {{"description", "done"}}},
                              {"default", {{"description", "{\"error\":{code,message,field}}"}}}};
    std::string path = r.pattern;
    if (const size_t at = path.find("{}"); at != path.npos) path.replace(at, 2, "{id}");
    paths[path][small_letters(r.method)] = std::move(operation);
  }
  c.reply({{"openapi", "3.1.0"},
           {"info", {{"title", "ebb"}, {"version", version}}},
           {"paths", std::move(paths)},
           {"components", {{"schemas", {{"Settings", settings_schema()}}}}}});
}

std::vector<Route> routes() { return {{"GET", "/ebb/v1/openapi.json", openapi}}; }

}  // namespace

const Dialect& native_openapi() {
  static const Dialect d{"native_openapi", routes, render_fault};
  return d;
}

}  // namespace ebb::server::dialects

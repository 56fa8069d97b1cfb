// Route: a path that a dialect answers. src/apps/server/dialects/<d>.cpp defines `const Dialect&
// ebb::server::dialects::<d>()`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/server/fault.h"
#include "apps/server/guard.h"
#include "apps/server/http.h"
#include "apps/server/json_body.h"

namespace ebb::server {

class Service;

// A request that has a route.
struct Call {
  Service& service;
  std::shared_ptr<const Request> request;
  std::shared_ptr<Exchange> exchange;
  std::vector<std::string> parts = {};  // what stands in place of {}
  // Names of what the request says and the answer does not follow: told in the header X-Ebb-Ignored
  // of whatever answers it.
  std::shared_ptr<std::vector<std::string>> ignored = std::make_shared<std::vector<std::string>>();
  std::shared_ptr<std::string> job =
      std::make_shared<std::string>();  // ids that it made, for the log

  // Those of an object, which the request calls so ("sample_params").
  void ignore(const JsonReader& of, const std::string& object = "") const;
  Headers told() const;  // X-Ebb-Ignored, where there is something to tell
  void reply(Reply r) const;
  void reply(const Json& body, int status = 200) const {
    reply(Reply{.status = status, .body = json_text(body)});
  }
  Call without_body() const;  // for whoever answers later
};

using Handler = std::function<void(const Call&)>;
// Of a request whose body is a JSON object.
using JsonHandler = std::function<void(const Call&, JsonReader&)>;
Handler with_json(JsonHandler handler);
using RenderFault = Reply (*)(const HttpFault& fault, const Request& request);

enum class On : uint8_t {
  io,      // it only looks at what is in memory
  folder,  // files of folders that may hang, and nothing that others wait for
  codec,   // all else
  models,  // likewise, once the folders of models have been read: what looks up names
};

constexpr size_t small_body = size_t{1} << 20, large_body = size_t{64} << 20;

struct Route {
  std::string method;
  std::string pattern;  // "/jobs/{}": a part between slashes
  Handler handler;      // may throw HttpFault
  On on = On::codec;
  size_t body = small_body;
  RouteAccess access = {};
  RenderFault fault = nullptr;  // of the dialect
};

struct Dialect {
  std::string_view name;
  std::vector<Route> (*routes)();
  RenderFault fault;
};

const std::vector<const Dialect*>& all_dialects();

// Calls the handler; what it throws becomes an answer by `fault`.
void guarded(const Handler& handler, const Call& call, RenderFault fault);

// {"error":{"code","message","field"}}, as the native protocol has it.
Reply render_fault(const HttpFault& fault, const Request& request);

// An event of a stream (text/event-stream); `data` has one line.
std::string event_text(std::string_view name, std::string_view data);

// The parts of `path` for the {} of a pattern; none: it is not of this pattern.
std::optional<std::vector<std::string>> matched(std::string_view pattern, std::string_view path);

}  // namespace ebb::server

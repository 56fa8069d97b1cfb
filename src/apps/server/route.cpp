#include "apps/server/route.h"

#include <algorithm>

#define X(name)                     \
  namespace ebb::server::dialects { \
  const Dialect& name();            \
  }
#include "ebb/gen/dialects.inc"
#undef X

namespace ebb::server {

const std::vector<const Dialect*>& all_dialects() {
  static const std::vector<const Dialect*> all = {
#define X(name) &dialects::name(),
#include "ebb/gen/dialects.inc"
#undef X
  };
  return all;
}

void Call::ignore(const JsonReader& of, const std::string& object) const {
  for (const std::string& name : of.ignored())
    ignored->push_back(object.empty() ? name : object + "." + name);
}

Headers Call::told() const {
  constexpr size_t longest = 1000;
  std::string names;
  for (const std::string& n : *ignored) {
    if (names.size() + n.size() > longest) {
      names += names.empty() ? "..." : ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + n;
  }
  if (names.empty()) return {};
  std::ranges::replace_if(
      names, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return {{"X-Ebb-Ignored", names}};
}

void Call::reply(Reply r) const {
  for (auto& h : told()) r.headers.push_back(std::move(h));
  exchange->reply(std::move(r));
}

Call Call::without_body() const {
  auto head = std::make_shared<Request>(Request{.method = request->method,
                                                .target = request->target,
                                                .path = request->path,
                                                .query = request->query,
                                                .headers = request->headers,
                                                .body = {},
                                                .counted = {},
                                                .remote = request->remote});
  return {service, std::move(head), exchange, parts, ignored, job};
}

Handler with_json(JsonHandler handler) {
  return [handler = std::move(handler)](const Call& c) {
    const Json body = read_json(c.request->body);
    JsonReader r(body);
    handler(c, r);
  };
}

Reply render_fault(const HttpFault& f, const Request&) {
  Reply out{.status = f.status,
            .body = json_text({{"error",
                                {{"code", f.code},
                                 {"message", f.what()},
                                 {"field", f.field.empty() ? Json() : Json(f.field)}}}})};
  if (f.status == 429 || f.status == 503) out.headers.emplace_back("Retry-After", "5");
  if (f.status == 401) {
    out.headers.emplace_back("WWW-Authenticate", "Basic realm=\"ebb\"");
    out.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  return out;
}

std::string event_text(std::string_view name, std::string_view data) {
  return str("event: ", name, "\ndata: ", data, "\n\n");
}

std::optional<std::vector<std::string>> matched(std::string_view pattern, std::string_view path) {
  std::vector<std::string> out;
  const auto next = [](std::string_view& text) {
    const size_t end = std::min(text.find('/'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return part;
  };
  if (std::ranges::count(pattern, '/') != std::ranges::count(path, '/')) return {};
  while (!pattern.empty() || !path.empty()) {
    const std::string_view wanted = next(pattern), part = next(path);
    if (wanted == "{}" && !part.empty())
      out.emplace_back(part);
    else if (wanted != part)
      return {};
  }
  return out;
}

}  // namespace ebb::server

#include "apps/server/guard.h"

#include <algorithm>

#include "apps/server/base64.h"
#include "base/names.h"
#include "base/text.h"

namespace ebb::server {
namespace {

constexpr size_t most_failures = 10;
constexpr std::chrono::minutes failure_time{1};
constexpr const char* methods = "GET, HEAD, POST, PATCH, DELETE, OPTIONS";

// "localhost:7860" -> "localhost", "[::1]:7860" -> "[::1]"; "" for what is none.
std::string host_name(std::string_view host) {
  std::string text = small_letters(std::string(host));
  const size_t bracket = text.starts_with('[') ? text.find(']') : text.npos;
  if (text.starts_with('[') && bracket == text.npos) return "";
  const size_t colon = text.find(':', bracket == text.npos ? 0 : bracket);
  if (colon != text.npos) {
    const std::string_view port = std::string_view(text).substr(colon + 1);
    if (port.empty() || port.find_first_not_of("0123456789") != port.npos) return "";
    text.resize(colon);
  }
  return text;
}

[[noreturn]] void forbid(const std::string& sentence) {
  throw HttpFault(403, "forbidden", sentence);
}

bool changes(const Request& r) {
  return r.method != "GET" && r.method != "HEAD" && r.method != "OPTIONS";
}

bool has_body(const Request& r) {
  return r.count("transfer-encoding") > 0 ||
         (r.count("content-length") > 0 && r.header("content-length") != "0");
}

bool is_of_browser(const Request& r) {
  return r.count("origin") > 0 || r.count("sec-fetch-site") > 0;
}

}  // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned char different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i] ^ (b.empty() ? '\0' : b[i % b.size()]));
  return different == 0;
}

void Guard::check_host(const Request& r) const {
  if (r.count("host") != 1) throw HttpFault(400, "bad_request", "the request must name one Host");
  if (!options_.key.empty() || !options_.user.empty()) return;  // other pages have no key
  for (const std::string_view host : {r.header("host"), asked_host(r)}) check_name(host);
}

void Guard::check_name(std::string_view host) const {
  const std::string name = host_name(host);
  constexpr std::string_view usual[] = {"localhost", "127.0.0.1", "[::1]", "host.docker.internal",
                                        "host.containers.internal"};
  if (std::ranges::find(usual, name) != std::end(usual) || name.ends_with(".localhost")) return;
  const auto is_own = [&](const std::string& host) {
    const std::string own = small_letters(host);
    return own == name || str('[', own, ']') == name;  // of IPv6
  };
  if (std::ranges::any_of(options_.hosts, is_own)) return;
  forbid("this Host is not served; --allowed-host NAME allows it");
}

// What a proxy that is trusted adds stands behind what others said: in the last line, behind the
// last comma. "" where there is none.
std::string_view Guard::of_proxy(const Request& r, std::string_view name) const {
  if (std::ranges::find(options_.proxies, r.remote) == options_.proxies.end()) return "";
  std::string_view all;
  for (const auto& [header, value] : r.headers)
    if (header == name) all = value;
  return trimmed(all.substr(all.rfind(',') + 1));  // npos + 1 is 0
}

// What the browser's page is of.
std::string_view Guard::asked_host(const Request& r) const {
  const std::string_view forwarded = of_proxy(r, "x-forwarded-host");
  return forwarded.empty() ? r.header("host") : forwarded;
}

std::string Guard::own_origin(const Request& r) const {
  return str(of_proxy(r, "x-forwarded-proto") == "https" ? "https" : "http", "://", asked_host(r));
}

bool Guard::may_ask(const Request& r) const {
  const std::string_view origin = r.header("origin");
  return origin == own_origin(r) ||
         std::ranges::find(options_.origins, origin) != options_.origins.end();
}

void Guard::check_origin(const Request& r, const RouteAccess* access) const {
  if (access && access->is_static && !changes(r)) return;
  const bool has_origin = r.count("origin") > 0;
  if (has_origin && (r.count("origin") > 1 || !may_ask(r)))
    forbid("pages of other origins may not ask; --cors-origin ORIGIN allows one");
  const std::string_view site = r.header("sec-fetch-site");
  if (!has_origin && (site == "cross-site" || site == "same-site"))
    forbid("pages of other sites may not ask");
}

bool Guard::accepted(std::string_view type, std::string_view accepts) {
  const std::string own = small_letters(std::string(trimmed(type.substr(0, type.find(';')))));
  for (const std::string_view one : parted(accepts, ",")) {
    if (one.ends_with("/*") ? own.starts_with(one.substr(0, one.size() - 1)) : own == one)
      return true;
  }
  return false;
}

// A form of another site may send any text, but not this type.
void Guard::check_type(const Request& r, const RouteAccess* access) const {
  if (r.count("content-encoding") > 0)
    throw HttpFault(415, "unsupported_media_type", "compressed bodies are not read");
  if (!access || !changes(r) || !has_body(r) || !is_of_browser(r)) return;
  if (!accepted(r.header("content-type"), access->accepts))
    throw HttpFault(415, "unsupported_media_type", str("Content-Type must be ", access->accepts));
}

bool Guard::has_key(std::string_view authorization) const {
  const size_t space = std::min(authorization.find(' '), authorization.size());
  const std::string kind = small_letters(std::string(authorization.substr(0, space)));
  const std::string_view rest = trimmed(authorization.substr(space));
  if (kind == "bearer") return !options_.key.empty() && equal_in_constant_time(rest, options_.key);
  if (kind != "basic") return false;
  const auto text = base64_decoded(rest);
  if (!text) return false;
  if (!options_.user.empty() && equal_in_constant_time(*text, options_.user)) return true;
  const size_t colon = text->find(':');
  return !options_.key.empty() && colon != text->npos &&
         equal_in_constant_time(std::string_view(*text).substr(colon + 1), options_.key);
}

void Guard::check_key(const Request& r) {
  if (options_.key.empty() && options_.user.empty()) return;
  constexpr size_t most_addresses = 10'000;
  if (failures_.size() > most_addresses) failures_.clear();
  std::deque<Clock::time_point>& failed = failures_[r.remote];
  const auto now = Clock::now();
  while (!failed.empty() && now - failed.front() > failure_time) failed.pop_front();
  if (failed.size() >= most_failures)
    throw HttpFault(429, "rate_limit_exceeded", "too many wrong keys; wait a minute");
  if (has_key(r.header("authorization"))) {
    failures_.erase(r.remote);
    return;
  }
  if (!trimmed(r.header("authorization")).empty()) failed.push_back(now);
  throw HttpFault(401, "unauthorized", "a key is needed: Authorization: Bearer KEY");
}

void Guard::check(const Request& r, const RouteAccess* access) {
  check_host(r);
  check_origin(r, access);
  check_type(r, access);
  if (!access || !access->open) check_key(r);
}

Headers Guard::cors(const Request& r) const {
  const std::string origin(r.header("origin"));
  if (origin.empty() || std::ranges::find(options_.origins, origin) == options_.origins.end())
    return {{"Cross-Origin-Resource-Policy", "same-origin"}};
  return {{"Access-Control-Allow-Origin", origin},
          {"Access-Control-Expose-Headers", "Retry-After, X-Ebb-Ignored"},
          {"Vary", "Origin"},
          {"Cross-Origin-Resource-Policy", "cross-origin"}};
}

Reply Guard::preflight(const Request& r) const {
  const std::string origin(r.header("origin"));
  if (origin.empty()) return {.status = 204, .headers = {{"Allow", methods}}};  // no browser asks
  if (std::ranges::find(options_.origins, origin) == options_.origins.end())
    forbid("pages of other origins may not ask; --cors-origin ORIGIN allows one");
  return {.status = 204,
          .headers = {{"Access-Control-Allow-Methods", methods},
                      {"Access-Control-Allow-Headers", "content-type, authorization"},
                      {"Access-Control-Allow-Private-Network", "true"},
                      {"Access-Control-Max-Age", "600"}}};
}

}  // namespace ebb::server

// Guard: who may ask what, by the header of a request alone, on the I/O thread. docs/server.md says
// why so.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/server/fault.h"
#include "apps/server/http.h"

namespace ebb::server {

struct GuardOptions {
  std::vector<std::string> hosts;    // names and addresses beside the usual ones
  std::vector<std::string> origins;  // of pages elsewhere that may ask
  std::string key;                   // "": none is asked for
  std::string user;                  // "NAME:PASSWORD" of Basic, likewise
  // Addresses of proxies, which say by X-Forwarded-Proto and -Host what a browser asked for.
  std::vector<std::string> proxies = {};
};

// What the guard needs to know of a route.
struct RouteAccess {
  bool open = false;                         // needs no key: pings, files of the page
  bool is_static = false;                    // GET of a file of the page: from any page
  std::string accepts = "application/json";  // types of bodies, comma-separated
  bool makes_job = false;                    // refused before its body where the queue is full
};

class Guard {
 public:
  explicit Guard(GuardOptions options) : options_(std::move(options)) {}

  // Throws HttpFault. `access`: of the route, null where there is none.
  void check(const Request& r, const RouteAccess* access);
  // Headers for pages of other origins that may ask; none for others.
  Headers cors(const Request& r) const;
  // The answer to OPTIONS, as to a preflight request: 204, or 403.
  Reply preflight(const Request& r) const;
  // Of the server, as the client sees it: "https://host:port", of requests that were checked.
  std::string own_origin(const Request& r) const;
  // Whether `type`, "application/json; charset=utf-8", is one of `accepts`.
  static bool accepted(std::string_view type, std::string_view accepts);

 private:
  void check_host(const Request& r) const;
  void check_name(std::string_view host) const;
  void check_origin(const Request& r, const RouteAccess* access) const;
  void check_type(const Request& r, const RouteAccess* access) const;
  void check_key(const Request& r);
  bool may_ask(const Request& r) const;
  std::string_view of_proxy(const Request& r, std::string_view name) const;
  std::string_view asked_host(const Request& r) const;
  bool has_key(std::string_view authorization) const;

  GuardOptions options_;
  using Clock = std::chrono::steady_clock;
  std::map<std::string, std::deque<Clock::time_point>> failures_;  // by address
};

// The same time for all texts of a length.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace ebb::server

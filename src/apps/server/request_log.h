// What the log says of requests and jobs: a line each.
#pragma once

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "apps/server/http.h"
#include "apps/server/log.h"
#include "base/error.h"
#include "base/names.h"

namespace ebb::server {

// Tells of a request when it is answered: with the ids of the jobs that it made, as they are then.
class Logged final : public Exchange {
 public:
  Logged(std::shared_ptr<Exchange> to, const Request& r, std::shared_ptr<const std::string> job)
      : to_(std::move(to)),
        what_(str(r.method, ' ', printable(r.path.substr(0, 200)))),
        job_(std::move(job)) {}
  void reply(Reply r) override {
    say(r.status);
    to_->reply(std::move(r));
  }
  std::shared_ptr<EventStream> stream(Headers headers) override {
    auto out = to_->stream(std::move(headers));
    if (out) say(200);
    return out;
  }
  std::shared_ptr<EventStream> websocket(const Request& request) override {
    auto out = to_->websocket(request);
    if (out) say(101);
    return out;
  }
  void on_leave(std::function<void()> call) override { to_->on_leave(std::move(call)); }

 private:
  void say(int status) const {
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start_;
    const std::string job = job_->empty() ? "" : " job " + printable(job_->substr(0, 200));
    server_log().add(str(what_, ' ', status, ' ', std::llround(spent.count()), " ms", job));
  }
  std::shared_ptr<Exchange> to_;
  std::string what_;
  std::shared_ptr<const std::string> job_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Of any text, with its control characters escaped; the first 2,000 bytes.
inline std::string one_line(const std::string& text) {
  constexpr size_t longest = 2000;
  std::string out;
  for (const char c : printable(text.substr(0, longest))) out += c == '\n' ? "\\n" : str(c);
  return out;
}

}  // namespace ebb::server

// A server in this process, with the engine of tests, in a folder of its own.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "apps/server/service.h"
#include "support/files.h"
#include "support/http_client.h"

namespace ebb::testing {

// What an engine tells of a job, without a server.
class KeptEvents final : public server::JobEvents {
 public:
  explicit KeptEvents(const server::Job& job) : job_(job) {}
  bool progress(const server::JobProgress&) override { return !job_.cancel && !job_.skip; }
  bool wants_preview() override { return false; }
  void preview(const Tensor&) override {}
  void picture(server::MadePicture p) override { indices.push_back(p.index); }
  void warn(const std::string&) override {}
  void model(const std::string&, bool) override {}
  std::vector<int64_t> indices;  // of the pictures

 private:
  const server::Job& job_;
};

// "http://localhost:1/a" -> "/a"
inline std::string path_of(const std::string& url) {
  return url.substr(url.find('/', url.find("//") + 2));
}

class TestServer {
 public:
  using Change = std::function<void(server::ServiceOptions&)>;
  explicit TestServer(const std::string& folder, int64_t step_ms = 1, const Change& change = {},
                      server::Service::MakeEngine engine = {}) {
    server::ServiceOptions o;
    o.out = folder + "/out";
    if (change) change(o);
    if (!engine) engine = [step_ms](const auto&) { return server::fake_engine(step_ms); };
    service_ = std::make_unique<server::Service>(std::move(o), engine);
    thread_ = std::jthread([this] { service_->run(); });
  }
  ~TestServer() { stop(); }
  void stop() {
    service_->stop();
    if (thread_.joinable()) thread_.join();
  }
  uint16_t port() const { return service_->port(); }
  server::Service& service() { return *service_; }
  HttpAnswer get(const std::string& target, const std::string& headers = "") const {
    return ask(port(), "GET", target, "", headers);
  }
  HttpAnswer post(const std::string& target, const nlohmann::json& body,
                  const std::string& headers = "") const {
    return ask(port(), "POST", target, body.dump(), headers);
  }
  // A job of the native protocol, once it is finished.
  nlohmann::json finished(const std::string& id) const {
    for (int i = 0; i < 2000; ++i) {
      const auto job = get("/ebb/v1/jobs/" + id).json();
      if (job.value("status", "") != "queued" && job.value("status", "") != "generating")
        return job;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "the job does not end";
    return {};
  }

 private:
  std::unique_ptr<server::Service> service_;
  std::jthread thread_;
};

}  // namespace ebb::testing

// Hostile requests to a server in this process with the engine of tests, until so many are
// answered: the sockets, the HTTP parser, the router and all dialects. fuzz_serve REQUESTS [SEED].
// A finding is a fault of the sanitizers, an answer "internal", or no answer; the exit code is 0
// only without one.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>

#include <mutex>
#include <thread>

#include "apps/server/base64.h"
#include "apps/server/engine.h"
#include "apps/server/service.h"
#include "fuzz/hostile_requests.h"
#include "io/image.h"
#include "support/http_client.h"

namespace ebb::testing {
namespace {

struct Results {
  std::atomic<size_t> requests = 0, connections = 0, findings = 0;
  std::mutex mutex;
  std::map<int, size_t> answers;  // by status
};

void finding(Results& to, const char* what, const std::string& sent, const std::string& read) {
  ++to.findings;
  std::fprintf(stderr, "%s\n---- sent\n%s\n---- read\n%s\n", what, sent.substr(0, 4000).c_str(),
               read.substr(0, 2000).c_str());
}

void count(Results& to, const std::string& sent, const std::string& read) {
  constexpr std::string_view line = "HTTP/1.1 ";
  const std::lock_guard lock(to.mutex);
  for (size_t at = 0; (at = read.find(line, at)) != read.npos; at += line.size()) {
    const int status = std::atoi(read.c_str() + at + line.size());
    ++to.answers[status];
    to.requests += status >= 200;
  }
  for (const char* fault : {"\"internal\"", "\"errors\":\"serve: ", "was not answered"})
    if (read.find(fault) != read.npos) finding(to, "an internal fault", sent, read);
}

// One connection: it waits for its answers, sends no more, or is left at once.
void connection(HostileRequests& from, uint16_t port, Results& to) {
  const size_t kind = from.below(8);
  std::string bytes;
  const size_t requests = kind == 0 ? 1 : 1 + from.below(4);
  for (size_t i = 0; i < requests; ++i) bytes += from.next(i + 1 == requests);
  Wire wire(port);
  if (!wire.open()) return finding(to, "no connection", bytes, "");
  wire.send(bytes);
  ++to.connections;
  if (kind == 1) return;
  const bool streams = bytes.find("/events") != bytes.npos || bytes.find("stream") != bytes.npos;
  if (kind > 1 || streams) wire.end();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (wire.more(std::chrono::seconds(streams ? 1 : 30))) {
    if (std::chrono::steady_clock::now() > end)
      return finding(to, "no end of answers", bytes, wire.read);
  }
  count(to, bytes, wire.read);
}

int run(size_t requests, uint64_t seed) {
  server::ServiceOptions o;
  o.limits.header_time = o.limits.slow_body = std::chrono::milliseconds(500);
  o.queue = {.jobs = 8, .images = 8, .known_seconds = 2};
  server::Service service(std::move(o), [](const auto&) { return server::fake_engine(0); });
  const std::jthread serves([&] { service.run(); });
  const std::string picture = server::base64(io::encode_png(Tensor(DType::u8, {8, 8, 3})));
  Results results;
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> clients;
    for (uint64_t i = 0; i < 4; ++i)
      clients.emplace_back([&, i] {
        HostileRequests from(service.routes(), picture, seed + i);
        while (results.requests < requests && results.findings < 20)
          connection(from, service.port(), results);
      });
    while (results.requests < requests && results.findings < 20) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      std::fprintf(stderr, "\r%zu requests", results.requests.load());
    }
  }
  if (ask(service.port(), "GET", "/internal/ping").status != 200)
    finding(results, "no ping", "", "");
  service.stop();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  std::printf(
      "\n%zu requests, %zu connections, %.0f s, %zu findings; answers:", results.requests.load(),
      results.connections.load(), spent.count(), results.findings.load());
  for (const auto& [status, n] : results.answers) std::printf(" %d: %zu", status, n);
  std::printf("\n");
  return results.findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ebb::testing

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: fuzz_serve REQUESTS [SEED]\n");
    return 2;
  }
  return ebb::testing::run(std::strtoull(argv[1], nullptr, 10),
                           argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 1);
}

// Hostile requests to servers in this process with the engine of tests, until so many are answered:
// sockets, the HTTP parser, WebSockets, the router, all dialects, batches, the files that a server
// reads. fuzz_serve REQUESTS [SEED].
// A finding is a fault of the sanitizers, an answer "internal", or no answer; the exit code is 0
// only without one. Servers follow each other, each with files of its own; what their clients draw
// depends on the seed of the round, which is printed. An interrupt (SIGINT, SIGTERM) ends the round
// and says what was done till then.
#include <sanitizer/common_interface_defs.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "apps/server/base64.h"
#include "apps/server/service.h"
#include "fuzz/hostile_files.h"
#include "fuzz/hostile_requests.h"
#include "fuzz/small_engine.h"
#include "io/image.h"
#include "support/http_client.h"

namespace ebb::testing {
namespace {

constexpr size_t clients = 4, requests_of_round = 2000, most_findings = 20;

volatile std::sig_atomic_t interrupted = 0;

struct Results {
  std::atomic<size_t> requests = 0, connections = 0, sockets = 0, findings = 0;
  std::mutex mutex;
  std::map<int, size_t> answers;  // by status
};

// What each client sends; printed where a sanitizer ends the process.
std::string sending[clients];

void tell_sending() {
  for (const std::string& bytes : sending)
    std::fprintf(stderr, "---- sending\n%s\n", bytes.substr(0, 20000).c_str());
}

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
    to.requests += status != 100;
  }
  for (const char* fault : {"\"internal\"", "\"errors\":\"serve: ", "was not answered",
                            "[json.exception", "_M_", "bad_alloc"})
    if (read.find(fault) != read.npos && sent.find(fault) == sent.npos)
      finding(to, "an internal fault", sent, read);
}

// Ids and names in answers: of jobs, pictures, runs, uploads.
void learn(HostileRequests& to, const std::string& read) {
  for (const std::string_view key : {"\"id\":\"", "\"prompt_id\":\"", "\"filename\":\""})
    if (const size_t at = read.find(key); at != read.npos) {
      const size_t from = at + key.size();
      if (const size_t end = read.find('"', from); end != read.npos && end - from < 80)
        to.learn(read.substr(from, end - from));
    }
}

// Frames behind the answer to an upgrade.
void web_socket(HostileRequests& from, uint16_t port, Results& to, std::string& sent) {
  Wire wire(port);
  wire.send(sent = from.upgrade());
  if (!wire.until("\r\n\r\n")) return;  // it was no request
  for (size_t i = from.below(12); i > 0; --i) {
    const std::string frame = from.frame();
    sent += frame;
    if (!wire.send(frame)) break;
  }
  if (from.one_in(3)) wire.end();
  while (wire.more(std::chrono::milliseconds(20)) && wire.read.size() < (1u << 20)) {
  }
  ++to.sockets;
  count(to, sent, wire.read);
}

// One connection: it waits for its answers, sends no more, or is left at once.
void connection(HostileRequests& from, uint16_t port, Results& to, std::string& bytes) {
  if (from.one_in(12)) return web_socket(from, port, to, bytes);
  const bool intact = !from.one_in(3);
  const size_t kind = from.below(16), requests = 1 + from.below(intact ? 16 : 4);
  bytes.clear();
  for (size_t i = 0; i < requests; ++i) bytes += from.next(i + 1 == requests, intact);
  Wire wire(port);
  if (!wire.open()) return finding(to, "no connection", bytes, "");
  wire.send(bytes);
  ++to.connections;
  if (kind == 0) return;
  const bool streams = bytes.find("events") != bytes.npos || bytes.find("stream") != bytes.npos;
  if (!intact || kind < 4) wire.end();
  constexpr std::chrono::seconds longest{60};
  const auto end = std::chrono::steady_clock::now() + longest;
  while (wire.more(streams ? std::chrono::milliseconds(50) : longest)) {
  }
  if (std::chrono::steady_clock::now() > end) finding(to, "no end of answers", bytes, wire.read);
  count(to, bytes, wire.read);
  learn(from, wire.read);
}

SmallPicture picture() {
  const auto png =
      io::encode_png(Tensor(DType::u8, {8, 8, 3}), {{"parameters",
                                                     "a fox\nNegative prompt: dog\nSteps: 2, "
                                                     "Sampler: Euler, CFG scale: 7, Seed: 1, "
                                                     "Size: 64x64, Model: box"}});
  return {{png.begin(), png.end()}, server::base64(png)};
}

server::ServiceOptions options_of(const std::string& folder, size_t round) {
  server::ServiceOptions o;
  o.out = folder + "/out";
  o.runs = {folder + "/runs"};
  o.folders = {{folder + "/models", {}, true}};
  o.limits.header_time = o.limits.slow_body = std::chrono::milliseconds(500);
  o.limits.connections_of_address = o.limits.connections;
  o.queue = {.jobs = 8, .images = 16, .known_seconds = 2};
  o.tidy = std::chrono::milliseconds(500);
  if (round % 2 == 1) o.max_batch = 4, o.batch_window = 5;
  return o;
}

// A server and its clients, until so many requests are answered in all.
void run_round(const std::string& folder, size_t round, uint64_t seed, size_t until, Results& to) {
  const SmallPicture image = picture();
  HostileFiles files(folder + "/out", folder + "/runs", image.bytes, seed + clients);
  files.keep_jobs();
  for (int i = 0; i < 20; ++i) files.change_run();
  server::Service service(options_of(folder, round),
                          [](const auto&) { return std::make_unique<SmallEngine>(); });
  const std::jthread serves([&] { service.run(); });
  const auto goes_on = [&] {
    return to.requests < until && to.findings < most_findings && !interrupted;
  };
  {
    std::vector<std::jthread> threads;
    for (uint64_t i = 0; i < clients; ++i)
      threads.emplace_back([&, i] {
        HostileRequests from(service.routes(), image, seed + i);
        while (goes_on()) connection(from, service.port(), to, sending[i]);
      });
    for (int i = 1; goes_on(); ++i) {
      files.change_run();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (i % 200 == 0) std::fprintf(stderr, "  %zu requests\n", to.requests.load());
    }
  }
  if (ask(service.port(), "GET", "/internal/ping").status != 200) finding(to, "no ping", "", "");
  service.stop();
}

int run(size_t requests, uint64_t seed) {
  __sanitizer_set_death_callback(tell_sending);
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { interrupted = 1; });
  const std::string folder =
      (std::filesystem::temp_directory_path() / str("ebb_fuzz_serve_", ::getpid())).string();
  std::filesystem::create_directories(folder + "/models");
  std::filesystem::copy("share/ebb/box.safetensors", folder + "/models/box.safetensors");
  Results results;
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto goes_on = [&] {
    return results.requests < requests && results.findings < most_findings && !interrupted;
  };
  for (size_t round = 0; goes_on(); ++round) {
    const uint64_t own = seed + 100 * round;
    run_round(folder, round, own, std::min(results.requests + requests_of_round, requests),
              results);
    std::printf("round %zu, seed %llu: %zu requests, %.0f s, %.0f a second, %zu findings\n", round,
                static_cast<unsigned long long>(own), results.requests.load(), spent(),
                static_cast<double>(results.requests) / spent(), results.findings.load());
    std::fflush(stdout);
  }
  std::filesystem::remove_all(folder);
  std::printf("%zu requests, %zu connections, %zu WebSockets, %.0f s, %zu findings; answers:",
              results.requests.load(), results.connections.load(), results.sockets.load(), spent(),
              results.findings.load());
  for (const auto& [status, n] : results.answers) std::printf(" %d: %zu", status, n);
  std::printf("\n");
  return results.findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ebb::testing

// Short stacks of allocations, which take a tenth of the time.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "malloc_context_size=8"; }

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: fuzz_serve REQUESTS [SEED]\n");
    return 2;
  }
  return ebb::testing::run(std::strtoull(argv[1], nullptr, 10),
                           argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 1);
}

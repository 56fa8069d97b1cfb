// Hostile requests to servers in this process with the engine of tests, until so many are answered:
// sockets, the HTTP parser, WebSockets, the router, all dialects, batches, the files that a server
// reads. fuzz_serve REQUESTS [SEED [FOLDER]]: several processes may run at a time.
// A finding is a fault of the sanitizers, an answer "internal", no answer, or a server that does
// not stop; the exit code is 0 only without one. Servers follow each other, each with files of its
// own; what their clients draw depends on the seed of the round, which is printed. An interrupt
// (SIGINT, SIGTERM) ends the round and says what was done till then.
#include <sanitizer/common_interface_defs.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <span>
#include <string>
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
constexpr std::chrono::seconds longest_stop{60};

volatile std::sig_atomic_t interrupted = 0;

struct Results {
  std::atomic<size_t> requests = 0, connections = 0, sockets = 0, findings = 0;
  std::mutex mutex;
  std::map<int, size_t> answers;  // by status
};

// What each client sends; printed where a sanitizer ends the process, which for leaks is behind the
// end of what is static.
std::string* const sending = new std::string[clients];

void tell_sending() {
  for (const std::string& bytes : std::span(sending, clients))
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
  if (!wire.open()) return;
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

// One connection: it waits for its answers, sends no more, or is left at once. A server that `ends`
// may take none.
void connection(HostileRequests& from, uint16_t port, const std::atomic<bool>& ends, Results& to,
                std::string& bytes) {
  if (from.one_in(12)) return web_socket(from, port, to, bytes);
  const bool intact = !from.one_in(3);
  const size_t kind = from.below(16), requests = 1 + from.below(intact ? 16 : 4);
  bytes.clear();
  for (size_t i = 0; i < requests; ++i) bytes += from.next(i + 1 == requests, intact);
  Wire wire(port);
  if (!wire.open()) {
    if (!ends) finding(to, "no connection", bytes, "");
    return;
  }
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
  o.styles = {{"oil", "oil of {prompt}, {prompt}", "photo"}, {"twice", "{prompt}{prompt}", ""}};
  if (round % 2 == 1) o.max_batch = 4, o.batch_window = 5;
  o.drain = round % 3 == 1;
  if (round % 4 >= 2) {  // small bounds
    o.limits.answers_of_address = o.limits.answers = 20000, o.limits.small_answer = 2000;
    o.limits.streams = 2, o.limits.stream_bytes = 4000, o.limits.streams_bytes = 8000;
    o.limits.bodies = 100000, o.limits.write_stall = std::chrono::milliseconds(500);
    o.queue.events = 20, o.queue.event_bytes = 10000, o.queue.known = 3;
    o.memory.bytes = 20000;
  }
  return o;
}

// Until run() has returned; a server that goes on ends the process.
void stop(server::Service& service, const std::atomic<bool>& over, Results& to) {
  const auto end = std::chrono::steady_clock::now() + longest_stop;
  service.stop();
  while (!over && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (over) return;
  finding(to, "the server does not stop", "", "");
  tell_sending();
  std::_Exit(1);
}

// A server and its clients, until so many requests are answered in all.
void run_round(const std::string& folder, size_t round, uint64_t seed, size_t until, Results& to) {
  const SmallPicture image = picture();
  HostileFiles files(folder + "/out", folder + "/runs", image.bytes, seed + clients);
  files.keep_jobs();
  for (int i = 0; i < 20; ++i) files.change_run();
  server::Service service(options_of(folder, round),
                          [](const auto&) { return std::make_unique<SmallEngine>(); });
  const uint16_t port = service.port();
  std::atomic<bool> ends = false, over = false;
  const std::jthread serves([&] {
    service.run();
    over = true;
  });
  const bool is_asked_meanwhile = round % 2 == 0;  // while it stops
  const auto goes_on = [&] {
    return to.requests < until && to.findings < most_findings && !interrupted;
  };
  {
    std::vector<std::jthread> threads;
    for (uint64_t i = 0; i < clients; ++i)
      threads.emplace_back([&, i] {
        HostileRequests from(service.routes(), image, seed + i);
        while (goes_on() || (is_asked_meanwhile && !over))
          connection(from, port, ends, to, sending[i]);
      });
    for (int i = 1; goes_on(); ++i) {
      files.change_run();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (i % 200 == 0) std::fprintf(stderr, "  %zu requests\n", to.requests.load());
    }
    if (ask(port, "GET", "/internal/ping").status != 200) finding(to, "no ping", "", "");
    if (!is_asked_meanwhile) threads.clear();
    ends = true;
    stop(service, over, to);
  }
}

int run(size_t requests, uint64_t seed, const std::string& folder) {
  constexpr const char* box = "share/ebb/box.safetensors";
  if (!std::filesystem::exists(box)) {
    std::fprintf(stderr, "fuzz_serve: begin it in the folder of ebb's sources: no %s here\n", box);
    return 2;
  }
  __sanitizer_set_death_callback(tell_sending);
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { interrupted = 1; });
  std::filesystem::create_directories(folder + "/models");
  std::filesystem::copy(box, folder + "/models/box.safetensors",
                        std::filesystem::copy_options::overwrite_existing);
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
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr,
                 "usage: fuzz_serve REQUESTS [SEED [FOLDER]]\n"
                 "It makes a folder for its files in FOLDER, or in that of temporary files.\n");
    return 2;
  }
  const std::filesystem::path in =
      argc > 3 ? std::filesystem::path(argv[3]) : std::filesystem::temp_directory_path();
  return ebb::testing::run(std::strtoull(argv[1], nullptr, 10),
                           argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1,
                           (in / ("ebb_fuzz_serve_" + std::to_string(::getpid()))).string());
}

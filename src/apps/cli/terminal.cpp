#include "apps/cli/terminal.h"

#include <poll.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>

#include "apps/cli/file_faults.h"
#include "apps/cli/guesses.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/names.h"
#include "core/host_memory.h"
#include "io/mapped_file.h"
#include "ops/table.h"

namespace ebb::cli {
namespace {

// Whether the machine has an NVIDIA GPU, with a driver or without: a PCI device of that vendor that
// is a display controller.
bool has_nvidia_gpu() {
  namespace fs = std::filesystem;
  const auto number = [](const fs::path& file) {
    std::string text;
    std::ifstream(file) >> text;
    return text;
  };
  std::error_code ignored;
  for (const auto& e : fs::directory_iterator("/sys/bus/pci/devices", ignored))
    if (number(e.path() / "vendor") == "0x10de" && number(e.path() / "class").starts_with("0x03"))
      return true;
  return fs::exists("/dev/nvidiactl", ignored);
}

// Where `auto` came to the processor although the program has CUDA and the machine a GPU: why.
void say_why_not_cuda(const Context& c) {
  if (c.device->backend() != "cpu" || kernels_of("matmul", "cuda").empty() || !has_nvidia_gpu())
    return;
  try {
    open_context("cuda");
  } catch (const Error& e) {
    std::fprintf(stderr, "%s; uses the processor\n", e.what());
  }
}

// Whether the terminal takes the sequences that rewrite a line.
bool knows_sequences() {
  const char* name = std::getenv("TERM");
  return name == nullptr || std::string_view(name) != "dumb";
}

// Throws Error if some output was lost: on a full disk, not where the reader of a pipe went away.
void flush_output() {
  const bool flushed = std::fflush(stdout) == 0;
  pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  const bool unread = poll(&out, 1, 0) > 0 && (out.revents & POLLERR) != 0;
  require((flushed && std::ferror(stdout) == 0) || unread,
          "standard output: cannot write all of it");
}

}  // namespace

Context open_device(CommonOptions o, Devices which) {
  resolve(o);
  require(which == Devices::described || o.device.find(':') == std::string::npos,
          "device: must be auto, cpu or cuda; a GPU that is not here is for ebb explain (got '",
          o.device, "')");
  check_choices(o, [](std::string_view field) { return str(field, ": unknown value"); });
  Context c = open_context(o.device, {.threads = o.threads, .index = static_cast<int>(o.index)});
  io::MappedFile::before_first(handle_file_faults);
  const char* over = isatty(STDERR_FILENO) != 0 && knows_sequences() ? "\r\033[K" : "";
  c.log = [over](std::string_view line) {  // over the line of progress
    std::fprintf(stderr, "%snote: %.*s\n", over, static_cast<int>(line.size()), line.data());
  };
  if (small_letters(o.device) == "auto") say_why_not_cuda(c);
  if (o.tune != "off")
    c.tuner = std::make_shared<Tuner>(cache_path("kernels.txt"),
                                      o.tune == "fast" ? Tuner::Effort::fast : Tuner::Effort::full);
  return c;
}

int exit_code(const std::function<int()>& run) {
  const auto say = [](std::string_view error) {
    std::fprintf(stderr, "ebb: error: %s\n", printable(error).c_str());
    return usage_error;
  };
  try {
    const int code = run();
    flush_output();
    return code;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr,  // which takes no memory
                 "ebb: error: out of memory: %lld MB of the machine's memory are free, or a limit "
                 "of this process (ulimit -v) is reached; fewer images at a time need less\n",
                 static_cast<long long>(free_host_memory() / 1000000));
    return usage_error;
  } catch (const std::filesystem::filesystem_error& e) {
    return say(str("cannot read (", e.code().message(), ")  ", e.path1().string()));
  } catch (const std::exception& e) {
    return say(e.what());
  }
}

void print_json(const nlohmann::ordered_json& json) {
  using Json = nlohmann::ordered_json;
  std::puts(json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

void say_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& w : warnings) std::fprintf(stderr, "warning: %s\n", printable(w).c_str());
}

void say_changed_files(ProgressLine* over) {
  for (const std::string& file : io::MappedFile::changed()) {
    if (over) over->finish();
    say_warnings(
        {str("the file was written to while its weights are used: what is made from now "
             "on may be of other weights than it had  ",
             file)});
  }
}

void say_drawn(const DrawableSeed& seed) {
  if (seed.drawn()) std::fprintf(stderr, "seed: %s (drawn for -1)\n", seed.text().c_str());
}

void say_guesses(const LoadedModel& model) {
  for (const std::string& line : guesses_of(model)) std::fprintf(stderr, "%s\n", line.c_str());
}

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)),
      terminal_(isatty(STDERR_FILENO) != 0 && knows_sequences()),
      start_(std::chrono::steady_clock::now()) {}

void ProgressLine::show(double share) {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  // less says nothing about what is to come
  const bool tells = spent.count() >= (share >= 0.05 ? 2 : 30) && share > 0;
  show(share, what_, tells ? spent.count() * (1 - share) / share : -1);
}

void ProgressLine::show(double share, std::string_view what, double seconds_left) {
  using Clock = std::chrono::steady_clock;
  const int percent = static_cast<int>(share * 100);
  const auto now = Clock::now();
  const bool waited = terminal_ && now - said_ >= std::chrono::seconds(1);
  if (!waited && (percent == shown_ || (!terminal_ && percent / 10 == shown_ / 10 && shown_ >= 0)))
    return;
  shown_ = percent;
  said_ = now;
  std::string left;
  if (seconds_left >= 0) left = str(", ", std::lround(seconds_left), " s left");
  std::fprintf(stderr, terminal_ ? "\r%.*s %3d %%%s \033[K" : "%.*s %d %%%s\n",
               static_cast<int>(what.size()), what.data(), percent, left.c_str());
}

void ProgressLine::finish() {
  if (terminal_ && shown_ >= 0) std::fputs("\r\033[K", stderr);
}

}  // namespace ebb::cli

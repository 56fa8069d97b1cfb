#include "apps/cli/interruption.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "apps/cli/command.h"
#include "apps/cli/terminal.h"

namespace ebb::cli {
namespace {

using std::chrono_literals::operator""ms;

}  // namespace

int say_interrupted(std::string_view command, int signal, std::string_view leaves,
                    const nlohmann::ordered_json* facts) {
  std::fprintf(stderr, "%s: interrupted by signal %d; %s\n", std::string(command).c_str(), signal,
               std::string(leaves).c_str());
  if (facts) {
    nlohmann::ordered_json j = {{"interrupted", true}, {"signal", signal}};
    j.update(*facts);
    print_json(j);
  }
  return signal_exit + signal;
}

StopDeadline::StopDeadline(const train::StopSignals& signals, std::mutex& telling,
                           std::function<int()> end)
    : thread_([&signals, &telling, end = std::move(end)](const std::stop_token& stop) {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any wake;
        const auto wait = [&](std::chrono::milliseconds time) {
          wake.wait_for(lock, stop, time, [] { return false; });
          return !stop.stop_requested();
        };
        while (signals.requested() == 0)
          if (!wait(50ms)) return;
        if (!wait(500ms)) return;
        const std::lock_guard quiet(telling);
        if (!stop.stop_requested()) ::_exit(exit_code(end));
      }) {}

}  // namespace ebb::cli

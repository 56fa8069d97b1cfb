// Signals that end a command: what it tells of them, and that it ends soon although the kernel that
// runs takes minutes.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <thread>

#include "train/stop.h"

namespace ebb::cli {

// Tells that a signal ended a command, "generate", and what it leaves, "nothing was written": a
// line on standard error, and unless `facts` is null (--json) an object with these. Gives the exit
// code.
int say_interrupted(std::string_view command, int signal, std::string_view leaves,
                    const nlohmann::ordered_json* facts);

// Work that polls signals does so between kernels. While an instance exists, half a second after
// one came another thread calls `end`, which keeps what is finished and tells of it, and ends the
// process with the exit code that it gives. The work holds `telling` while it writes or prints, and
// is not ended then; once it has come to its end, so must the instance, before anything else.
class StopDeadline {
 public:
  StopDeadline(const train::StopSignals& signals, std::mutex& telling, std::function<int()> end);

 private:
  std::jthread thread_;
};

}  // namespace ebb::cli

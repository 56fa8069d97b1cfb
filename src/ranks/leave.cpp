#include "ranks/leave.h"

#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "base/names.h"

namespace ebb::ranks {
namespace {

constexpr int fault_exit = 2;  // as a command's mistakes and faults

}  // namespace

void say(std::string_view error) {
  const std::string line = str("ebb: error: ", printable(error), "\n");
  static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
}

void leave() {
  // a thread that is blocked while it writes holds the lock
  for (std::FILE* out : {stdout, stderr})
    if (ftrylockfile(out) == 0) std::fflush(out);
  ::_exit(fault_exit);
}

}  // namespace ebb::ranks

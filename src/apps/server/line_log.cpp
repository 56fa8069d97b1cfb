#include "apps/server/line_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace ebb::server {
namespace {

// What a pipe takes at once where it takes anything (PIPE_BUF of Linux).
constexpr size_t longest = 4096;

}  // namespace

void LineLog::write(std::string_view what, std::string_view more) {
  const std::lock_guard lock(mutex_);
  if (left_out_ > 0) {
    std::array<char, 80> text{};
    std::snprintf(text.data(), text.size(), "%lld lines of the log were left out: nobody read it",
                  static_cast<long long>(left_out_));
    if (put(text.data(), "")) left_out_ = 0;
  }
  if (left_out_ > 0 || !put(what, more)) ++left_out_;
}

// False where there is no room. A descriptor that fails has no reader to tell.
bool LineLog::put(std::string_view what, std::string_view more) const {
  pollfd room{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  if (::poll(&room, 1, 0) == 0) return false;
  std::array<char, longest> line{};
  auto end = line.begin();
  for (const std::string_view part : {what, more}) {
    const auto left = static_cast<size_t>(line.end() - end - 1);
    end = std::copy_n(part.begin(), std::min(part.size(), left), end);
  }
  *end++ = '\n';
  return ::write(descriptor_, line.data(), static_cast<size_t>(end - line.begin())) >= 0 ||
         (room.revents & POLLOUT) == 0;
}

void log_line(std::string_view what, std::string_view more) {
  static LineLog log(STDERR_FILENO);
  log.write(what, more);
}

}  // namespace ebb::server

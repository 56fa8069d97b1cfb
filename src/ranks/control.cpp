#include "ranks/control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>

#include "base/error.h"
#include "ranks/leave.h"

namespace ebb::ranks {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Signals are for other threads while this lives.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::string body_of(const Progress& p) {
  BodyWriter out;
  out.number(p.step).number(static_cast<int64_t>(p.phase)).real(p.seconds);
  for (const double s : p.longest) out.real(s);
  return out.body();
}

Progress progress_of(std::string_view body) {
  BodyReader in(body);
  Progress out{.step = in.number()};
  const int64_t phase = in.number();
  require(phase >= 0 && phase < static_cast<int64_t>(phases), "ranks: no phase is ", phase);
  out.phase = static_cast<Phase>(phase);
  out.seconds = in.real();
  for (double& s : out.longest) s = in.real();
  in.finish();
  return out;
}

Control::Control(const Assembly& assembly, int64_t rank, const Limits& limits)
    : rank_(rank),
      members_(assembly.members),
      limits_(limits),
      clock_(Clock::now()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  require(static_cast<bool>(wake_), "ranks: no event descriptor is left");
}

void Control::start() {
  const SignalsBlocked of_the_thread;
  thread_ = std::jthread([this] { loop(); });
}

// ---- the main thread's side ----------------------------------------------------------------

void Control::wake() const {
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_.descriptor(), &one, sizeof one));
}

std::vector<std::string> Control::gather(std::string_view own) {
  require(own.size() <= most_text, "ranks: a text must have at most ", most_text, " bytes (",
          own.size(), ")");
  std::unique_lock lock(mutex_);
  wishes_.text = own;
  wake();
  changed_.wait(lock, [&] { return !gathered_.empty() || !no_gathers_.empty(); });
  require(!gathered_.empty(), no_gathers_);
  std::vector<std::string> out = std::move(gathered_.front());
  gathered_.pop_front();
  return out;
}

void Control::report(int64_t step, Phase phase) {
  constexpr double least = 1e-3;  // shows that there was one
  const std::lock_guard lock(mutex_);
  const double now = now_;
  // The first one compiles, opens files, connects: it does not say how long the next ones take.
  if (std::exchange(seen_[static_cast<size_t>(phase_)], true)) {
    double& longest = longest_[static_cast<size_t>(phase_)];
    longest = std::max({longest, now - phase_began_, least});
  }
  step_ = step;
  phase_ = phase;
  phase_began_ = now;
  changed_.notify_all();
}

void Control::fail(std::string_view error) {
  {
    const std::lock_guard lock(mutex_);
    wishes_.error = error.substr(0, most_text);
    phase_ = Phase::step;  // nothing is being written any more
    changed_.notify_all();
  }
  wake();
  while (true) ::pause();  // the thread ends the process
}

void Control::watch_link(std::function<std::string()> fault) {
  const std::lock_guard lock(link_mutex_);
  link_fault_ = std::move(fault);
}

void Control::leave_group(Leaving how) {
  {
    const std::lock_guard lock(mutex_);
    wishes_.leaving = how;
  }
  wake();
  thread_.join();
}

// ---- the thread's side ---------------------------------------------------------------------

void Control::loop() {
  try {
    do {
      wait();
      advance_clock();
    } while (turn());
  } catch (const std::exception& e) {
    say(str("ranks: ", member(rank_), " cannot go on: ", e.what()));
    leave();
  }
}

void Control::wait() {
  constexpr double milliseconds = 1e3;
  std::vector<pollfd> all{{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0}};
  for (const Connection* c : connections()) {
    const auto events = static_cast<short>(c->unsent() ? POLLIN | POLLOUT : POLLIN);
    if (c->open()) all.push_back({.fd = c->descriptor(), .events = events, .revents = 0});
  }
  ::poll(all.data(), all.size(), static_cast<int>(limits_.beat / 2 * milliseconds));
  uint64_t count = 0;
  static_cast<void>(!::read(wake_.descriptor(), &count, sizeof count));
}

// A process that was stopped does not count the time: if all of a run were, none is to blame.
void Control::advance_clock() {
  const auto now = Clock::now();
  now_ = now_ + std::min(seconds(now - clock_), 2 * limits_.beat);
  clock_ = now;
}

Progress Control::progress() const {
  const std::lock_guard lock(mutex_);
  return {.step = step_, .phase = phase_, .seconds = now_ - phase_began_, .longest = longest_};
}

bool Control::beat_due() {
  if (now_ < beat_at_) return false;
  beat_at_ = now_ + limits_.beat;
  return true;
}

Control::Wishes Control::take_wishes() {
  Wishes out;
  {
    const std::lock_guard lock(mutex_);
    out = std::exchange(wishes_, {});
  }
  if (out.error) watch_link({});  // what it says may follow from that
  if (std::optional<std::string> fault = fault_of_link()) out.error = std::move(fault);
  return out;
}

std::optional<std::string> Control::fault_of_link() {
  if (now_ < link_at_) return {};
  link_at_ = now_ + limits_.beat;
  const std::lock_guard lock(link_mutex_);
  const std::string fault = link_fault_ ? link_fault_() : "";
  if (fault.empty()) return {};
  if (!broken_since_) broken_since_ = now_.load();
  if (now_ - *broken_since_ < limits_.settle) return {};
  link_fault_ = {};
  return fault.substr(0, most_text);
}

void Control::deliver(std::vector<std::string> texts) {
  const std::lock_guard lock(mutex_);
  gathered_.push_back(std::move(texts));
  changed_.notify_all();
}

void Control::no_more_gathers(std::string_view why) {
  const std::lock_guard lock(mutex_);
  no_gathers_ = why;
  changed_.notify_all();
}

void Control::end_process() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(limits_.last_writing),
                      [&] { return phase_ != Phase::alone; });
  }
  leave();
}

}  // namespace ebb::ranks

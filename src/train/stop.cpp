#include "train/stop.h"

#include <ctime>

namespace ebb::train {
namespace {

// A signal handler can reach nothing but globals; these are the only ones.
volatile std::sig_atomic_t came = 0;
volatile std::time_t came_at = 0;

// One request may come as two signals at once (a shell's and that of `timeout`, say); one that
// comes seconds later means it: the default takes over.
void on_signal(int signal) {
  constexpr std::time_t patience = 1;  // seconds
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (came == 0) {
    came_at = now.tv_sec;
    came = signal;
  } else if (now.tv_sec - came_at > patience) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

StopSignals::StopSignals() {
  came = 0;
  struct sigaction a = {};
  a.sa_handler = on_signal;
  a.sa_flags = SA_RESTART;  // system calls in other threads go on
  sigemptyset(&a.sa_mask);
  sigaction(SIGINT, &a, &interrupt_before_);
  sigaction(SIGTERM, &a, &terminate_before_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &interrupt_before_, nullptr);
  sigaction(SIGTERM, &terminate_before_, nullptr);
}

int StopSignals::requested() const { return came; }

}  // namespace ebb::train

#include "train/stop.h"

namespace ebb::train {
namespace {

// A signal handler can reach nothing but a global; this is the only one.
volatile std::sig_atomic_t came = 0;

void on_signal(int signal) { came = signal; }

}  // namespace

StopSignals::StopSignals() {
  came = 0;
  struct sigaction a = {};
  a.sa_handler = on_signal;
  // A second signal meets the default again. System calls in other threads go on.
  a.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
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

// Prefetcher: values by number, made ahead by background threads and handed out in order.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ebb::train {

struct PrefetchOptions {
  int64_t first = 0;    // number of the first value
  int64_t threads = 1;  // that make values; several: `make` is called from all of them at once
  int64_t depth = 2;    // values made ahead, at most
};

// next() gives make(first), make(first + 1), ... An exception of `make` is thrown by next() in
// place of its value, and again by every later next(). `make` may give nothing only if a stop is
// requested.
template <class T>
class Prefetcher {
 public:
  using Make = std::function<std::optional<T>(int64_t number, const std::stop_token& stop)>;

  // Throws Error.
  Prefetcher(Make make, const PrefetchOptions& o)
      : make_(std::move(make)), claimed_(o.first), wanted_(o.first) {
    require(o.first >= 0 && o.threads >= 1 && o.depth >= 1, "prefetch: first (", o.first,
            ") must not be negative, threads (", o.threads, ") and depth (", o.depth,
            ") must be positive");
    slots_.resize(static_cast<size_t>(o.depth));
    for (int64_t t = 0; t < std::min(o.threads, o.depth); ++t)
      workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  ~Prefetcher() {
    for (std::jthread& w : workers_) w.request_stop();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  T next() {
    std::unique_lock lock(mutex_);
    Slot& s = slot(wanted_);
    ready_.wait(lock, [&] { return s.value || s.error; });
    if (s.error) std::rethrow_exception(s.error);
    T out = std::move(*s.value);
    s.value.reset();
    ++wanted_;
    room_.notify_all();
    return out;
  }

 private:
  struct Slot {
    std::optional<T> value;
    std::exception_ptr error;
  };

  Slot& slot(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      const int64_t depth = static_cast<int64_t>(slots_.size());
      if (!room_.wait(lock, stop, [&] { return claimed_ < wanted_ + depth; })) return;
      const int64_t number = claimed_++;
      lock.unlock();
      Slot made;
      try {
        made.value = make_(number, stop);
        require(made.value || stop.stop_requested(), "prefetch: no value is made (", number, ")");
      } catch (...) {
        made.error = std::current_exception();
      }
      lock.lock();
      if (stop.stop_requested()) return;
      slot(number) = std::move(made);
      ready_.notify_all();
    }
  }

  Make make_;
  std::mutex mutex_;
  std::condition_variable ready_;      // a slot was filled
  std::condition_variable_any room_;   // a slot was emptied
  std::vector<Slot> slots_;            // of number % depth
  int64_t claimed_;                    // the next number that a worker takes
  int64_t wanted_;                     // the number that next() gives
  std::vector<std::jthread> workers_;  // last: they stop before the rest goes
};

}  // namespace ebb::train

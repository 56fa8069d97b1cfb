#include "pipeline/on_devices.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <thread>

#include "base/error.h"
#include "diffusion/solver/run.h"
#include "pipeline/run_memory.h"

namespace ebb {
namespace {

// What went wrong first.
struct Failure {
  std::exception_ptr error;
  size_t device = 0;
};

[[noreturn]] void rethrow(const Failure& f, std::span<const Context> devices) {
  try {
    std::rethrow_exception(f.error);
  } catch (const Cancelled&) {
    throw;
  } catch (const std::bad_alloc&) {  // of the host
    throw;
  } catch (const std::exception& e) {
    fail("device ", f.device, " of ", devices.size(), " (", devices[f.device].device->description(),
         "): ", e.what());
  }
}

}  // namespace

ImageQueue::ImageQueue(int64_t images, int64_t batch, size_t devices) {
  int64_t at = 0;
  const auto add = [&](int64_t n) {
    left_.push_back({at, std::min(at + n, images)});
    at = left_.back().end;
  };
  for (size_t i = 0; i < devices; ++i) add(batch);
  add(images);
}

ImageRange ImageQueue::next(size_t device, int64_t most) {
  const std::lock_guard lock(mutex_);
  ImageRange& from = left_[device].empty() ? left_.back() : left_[device];
  const ImageRange out{from.first, std::min(from.first + most, from.end)};
  from.first = out.end;
  return out;
}

int64_t divided_batch(int64_t images, int64_t most, size_t devices) {
  const auto n = static_cast<int64_t>(devices);
  return equal_batch(images, std::min(most, (images + n - 1) / n));
}

size_t used_devices(int64_t images, int64_t batch, size_t devices) {
  return std::min(devices, static_cast<size_t>((images + batch - 1) / batch));
}

void on_devices(std::span<const Context> devices, const DeviceWork& work) {
  if (devices.size() == 1) return work(0, {});
  std::stop_source ending;
  std::mutex mutex;
  std::optional<Failure> first;
  const auto run = [&](size_t device) {
    try {
      devices[device].device->run_current([&] { work(device, ending.get_token()); });
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = {std::current_exception(), device};
      ending.request_stop();
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (size_t i = 0; i < devices.size(); ++i) threads.emplace_back(run, i);
    } catch (...) {  // where no thread is left, those that began need not finish
      ending.request_stop();
      throw;
    }
  }
  if (first) rethrow(*first, devices);
}

}  // namespace ebb

#include "core/chunks.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <atomic>
#include <exception>

namespace ebb {

namespace {

// As many as the device was opened with.
int64_t usual_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

}  // namespace

void in_chunks(int64_t bytes, int64_t chunk,
               const std::function<void(int64_t at, int64_t count)>& work) {
  constexpr int64_t most_threads = 16;  // more do not read faster
  const int64_t chunks = (bytes + chunk - 1) / chunk;
  if (chunks <= 1) {
    if (bytes > 0) work(0, bytes);
    return;
  }
  std::exception_ptr first;
  std::atomic<bool> failed = false;
  [[maybe_unused]] const int threads =
      static_cast<int>(std::min({chunks, most_threads, usual_threads()}));
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t i = 0; i < chunks; ++i) {
    if (failed) continue;
    try {
      work(i * chunk, std::min(chunk, bytes - i * chunk));
    } catch (...) {
#pragma omp critical(ebb_in_chunks)
      if (!failed.exchange(true)) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace ebb

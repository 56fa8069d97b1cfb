#include "train/many_files.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/names.h"

namespace ebb::train {

void parallel(int64_t n, int64_t threads, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  std::atomic<bool> broken = false;
  std::exception_ptr error;
  const auto run = [&] {
    for (int64_t i = next++; i < n && !broken; i = next++) {
      try {
        work(i);
      } catch (...) {
        if (!broken.exchange(true)) error = std::current_exception();
      }
    }
  };
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> team;
    for (int64_t t = 1; t < std::min(threads, n); ++t) team.emplace_back(run);
    run();
  }
  if (error) std::rethrow_exception(error);
}

bool is_picture_name(std::string_view name) {
  const std::string end = small_letters(std::filesystem::path(name).extension().string());
  return end == ".png" || end == ".jpg" || end == ".jpeg" || end == ".webp";
}

std::string listed(std::string_view what, const std::vector<std::string>& names) {
  constexpr size_t shown = 5;
  std::string text = str(what, " (", names.size(), "): ");
  for (size_t i = 0; i < std::min(shown, names.size()); ++i) text += (i ? ", " : "") + names[i];
  return text + (names.size() > shown ? ", ..." : "");
}

}  // namespace ebb::train

#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "io/file.h"
#include "train/checkpoint.h"

namespace ebb::train {
namespace {

namespace fs = std::filesystem;

// True for what training, and eval and report of it, write; it goes when the run is overwritten.
bool belongs_to_run(const std::string& name) {
  return is_checkpoint_file(name) || name == "metrics.jsonl" || name == "config.json" ||
         name == "run.json" || name == "samples.png" || name == "eval.json" ||
         name == "eval_tenth.json" || name == "report.html" ||
         name.starts_with("events.out.tfevents.");
}

constexpr std::string_view sample_prefix = "step-", sample_suffix = ".png";

// The pictures of sample_every among those in the folder `samples`.
bool is_picture_of_run(const std::string& name) {
  return name.starts_with(sample_prefix) && name.ends_with(sample_suffix) &&
         name.find_first_not_of("0123456789", sample_prefix.size()) ==
             name.size() - sample_suffix.size();
}

bool half_written(const std::string& name) {
  const size_t at = name.rfind(".tmp-");
  const std::string whole = name.substr(0, at);
  return at != std::string::npos && (belongs_to_run(whole) || is_picture_of_run(whole));
}

}  // namespace

std::string sample_file(const std::string& folder, int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%08lld.png", static_cast<long long>(step));
  return (fs::path(folder) / "samples" / name).string();
}

namespace {

// None where there is no folder yet, or its file system knows no locks.
RunLock lock_run_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return {};
  RunLock lock(nullptr, [fd](void*) { ::close(fd); });
  require(::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK,
          "out: another process is training in the folder  ", folder);
  return lock;
}

}  // namespace

void check_run_folder(const std::string& folder, bool resume, bool overwrite) {
  lock_run_folder(folder);
  io::check_can_write((fs::path(folder) / "config.json").string(), "out");
  if (resume) {
    last_checkpoint(folder);
  } else if (!overwrite) {
    const std::vector<int64_t> steps = checkpoint_steps(folder);
    require(steps.empty(), "out: the folder holds a run of ", steps.empty() ? 0 : steps.back(),
            " steps; give --resume to go on, --overwrite to start anew, or another --out  ",
            folder);
    require(!fs::exists(fs::path(folder) / "metrics.jsonl"),
            "out: the folder holds a run without a checkpoint; give --overwrite to start anew, or "
            "another --out  ",
            folder);
  }
}

RunLock begin_run_folder(const std::string& folder, bool overwrite) {
  io::make_folder(folder, "out");
  RunLock lock = lock_run_folder(folder);
  std::error_code error;
  std::vector<fs::path> gone;
  for (const std::string& p : half_checkpoints(folder)) gone.emplace_back(p);
  for (const auto& e : fs::directory_iterator(folder)) {
    const std::string name = e.path().filename().string();
    if (half_written(name) || (overwrite && belongs_to_run(name))) gone.push_back(e.path());
  }
  const fs::path samples = fs::path(folder) / "samples";
  if (fs::is_directory(samples)) {
    for (const auto& e : fs::directory_iterator(samples)) {
      const std::string name = e.path().filename().string();
      if (half_written(name) || (overwrite && is_picture_of_run(name))) gone.push_back(e.path());
    }
  }
  for (const fs::path& p : gone) {
    if (!fs::is_directory(p)) fs::remove(p, error);
    require(!error, "out: cannot delete (", error.message(), ")  ", p.string());
  }
  return lock;
}

}  // namespace ebb::train

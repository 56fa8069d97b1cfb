// TrainingRuns: the runs of `ebb train` in the folders of --runs, as far as their files tell. They
// are only looked at. Any thread may call.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/server/json_body.h"
#include "apps/server/training_log.h"

namespace ebb::server {

class TrainingRuns {
 public:
  // Folders of runs, or with such folders in them, down to four levels. Symbolic links below them
  // are not followed. Throws Error for what is no folder.
  explicit TrainingRuns(const std::vector<std::string>& folders);

  // {"folders": number, "runs": [...]}, those that run first, then the one that wrote last.
  Json list();
  // One of the list, with its curve, its pictures and its settings; null where there is none.
  Json run(std::string_view id);
  // The bytes of the picture of a step, as they are in its file; none: there is none.
  std::optional<std::string> picture(std::string_view id, int64_t step);

 private:
  struct Run {
    std::string root, path;  // of the folder, and below it
    std::string name;
    bool running = false;
    bool is_locked_before = false;  // it was once: locks work there
    double grew = -1e9;             // when it was seen to have more lines than before
    Json settings;                  // of config.json
    double began = 0;               // its process, unix time; 0: not known
    TrainingLog log;
  };
  Run* find(std::string_view id);
  void find_runs();
  void find_runs_in(const std::string& root, const std::string& path, int levels, int& folders);
  void look(Run& run, int64_t& budget);
  static Json run_json(const std::string& id, const Run& run);

  std::mutex mutex_;
  std::vector<std::string> roots_;
  std::map<std::string, Run, std::less<>> runs_;  // by id
  std::vector<std::string> found_;                // ids, of the search that goes on
  double searched_ = -1e9;
};

}  // namespace ebb::server

// Files of a server as nobody writes them: jobs that are kept in the queue's folder, and folders of
// `ebb train`, with a structure that was changed in a few places, cut off, or with other bytes.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "apps/server/queue.h"
#include "fuzz/hostile_random.h"
#include "train/metrics.h"
#include "train/run_folder.h"

namespace ebb::testing {

class HostileFiles : public HostileRandom {
 public:
  // `out`: the gallery of the server, whose jobs lie below it. `runs`: where folders of runs lie.
  HostileFiles(std::string out, std::string runs, std::string picture, uint64_t seed)
      : HostileRandom(seed),
        jobs_(out + "/.jobs"),
        runs_(std::move(runs)),
        picture_(std::move(picture)) {
    for (const char* name : {"a", "b/c", "b/d"})
      std::filesystem::create_directories(runs_ + "/" + name + "/samples");
  }

  // Some jobs beside those that the last server left; what cannot be read stays, but few of them.
  void keep_jobs() {
    namespace fs = std::filesystem;
    fs::create_directories(jobs_);
    size_t left = 0;
    for (const auto& e : fs::directory_iterator(jobs_)) left += e.path().extension() == ".json";
    if (left > 8) fs::remove_all(jobs_), fs::create_directories(jobs_);
    for (const auto& e : fs::directory_iterator(jobs_))
      if (one_in(4)) put(e.path().string(), damaged(read(e.path().string())));
    for (size_t i = 0; i < 1 + below(8); ++i) {
      server::Job job;
      job.id = one_in(4) ? word() : str("kept", i);
      job.file = str("kept", i, "-", number());
      job.spec.flags.prompt = "fox";
      job.spec.flags.n = 1 + static_cast<int64_t>(below(3));
      if (one_in(3)) job.spec.inputs.push_back({"init", {picture_.begin(), picture_.end()}});
      server::write_inputs(jobs_, job);
      server::write_job(jobs_, job, static_cast<int64_t>(below(3)));
      const std::string file = jobs_ + "/" + job.file + ".json";
      put(file, damaged(read(file)));
    }
  }

  // One file of one run: written anew, or longer than before.
  void change_run() {
    const std::string run = runs_ + "/" + std::string(std::vector{"a", "b/c", "b/d"}[below(3)]);
    switch (below(6)) {
      case 0:
        return put(run + "/config.json",
                   damaged(R"({"train":{"steps":200,"batch":8,"minutes":5,"model":"tiny"}})"));
      case 1:
        return put(run + "/run.json",
                   damaged(R"({"started":1764218260.5,"device":"cpu","parameters":10})"));
      case 2: return put(train::sample_file(run, static_cast<int64_t>(below(3))), picture());
      case 3: return put(run + "/samples/" + one_of({"step_x.png", "step_-1.png", "9"}), "x");
      case 4: step_ = 0; return put(run + "/metrics.jsonl", lines());
      default: return put(run + "/metrics.jsonl", lines(), std::ios::app);
    }
  }

 private:
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const std::string& path, const std::string& bytes,
                  std::ios::openmode how = std::ios::out) {
    std::ofstream(path, std::ios::binary | how) << bytes;
  }
  std::string damaged(std::string text) {
    Json tree = Json::parse(text, nullptr, false);
    if (!tree.is_discarded() && !one_in(5)) {
      change(tree);
      text = tree.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    if (one_in(6)) change(text);
    if (one_in(20)) text.resize(below(text.size() + 1));
    return text;
  }
  std::string picture() {
    std::string out = picture_;
    if (one_in(2)) change(out);
    return out;
  }
  std::string lines() {
    std::string out;
    for (size_t i = 0; i < below(100); ++i) {
      step_ += static_cast<int64_t>(below(3));
      std::string line = train::metrics_json(
          {.step = step_, .loss = 1, .lr = 1e-3, .seconds = static_cast<double>(step_)});
      if (one_in(10)) line = damaged(line);
      if (one_in(100)) line = R"({"step":9223372036854775807,"loss":1e308,"seconds":-1e308})";
      if (one_in(200)) line = std::string(70000, 'x');
      out += line + (one_in(50) ? "" : "\n");
    }
    return out;
  }
  using HostileRandom::change;

  std::string jobs_, runs_, picture_;
  int64_t step_ = 0;
};

}  // namespace ebb::testing

// Job: the one request that all protocols become, and what is known of it while it waits and runs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/generate_flags.h"
#include "apps/server/json_body.h"
#include "io/picture_file.h"

namespace ebb::server {

// A picture of the request, decoded and encoded again: `field` of the settings is its file.
struct JobInput {
  std::string field;
  std::vector<uint8_t> png;
};

// A larger picture of one that is given: by a network (`upscaler`, a file), "lanczos" or "nearest".
struct UpscaleSettings {
  std::string upscaler = "lanczos", image;
  double scale = 2;
  int64_t width = 0, height = 0;  // in place of `scale`; 0: not given
  bool crop = true;               // to them; else the picture fits into them
  void fields(auto&& f) {
    f("upscaler", upscaler, "an upscaler of the catalogue, lanczos or nearest");
    f("image", image, "the picture");
    f("scale", scale, "how many times as large");
    f("width", width, "instead of the scale, with height; 0: not given");
    f("height", height, "instead of the scale, with width; 0: not given");
    f("crop", crop, "to width and height; false: the picture fits into them");
  }
};

enum class JobKind : uint8_t { generate, upscale };

// Fields of start pictures behind `init` begin so.
constexpr std::string_view more_init = "init-";

// What is asked for.
struct JobSpec {
  JobKind kind = JobKind::generate;
  cli::GenerateFlags flags;  // files of the catalogue by path
  UpscaleSettings upscale;
  std::set<std::string, std::less<>> given;  // names of settings that the request says
  Json shown = Json::object();               // what clients are told of them: names, no paths
  Json note;                                 // of the protocol that made it, for itself
  std::vector<JobInput> inputs;
  int64_t pixels = 0;                   // of each picture, as far as is known before it is made
  std::vector<std::string> more_inits;  // start pictures behind `init`: several_inits.h
  bool keeps = true;        // pictures go to the gallery, and the job survives the process
  bool gives_urls = false;  // of pictures that are not kept: they outlive what is known of the job
  io::PictureFormat format = io::PictureFormat::png;
  int quality = io::default_quality;
  std::string client;  // for fairness: whose it is
  std::string id;      // that the client wants; "": any
  int64_t images() const { return kind == JobKind::generate ? flags.n : 1; }
};

enum class JobStatus : uint8_t { queued, generating, completed, failed, cancelled };
std::string_view name_of(JobStatus status);
inline bool is_finished(JobStatus s) { return s > JobStatus::generating; }

struct JobProgress {
  int64_t image = 0, images = 1, step = 0, steps = 0;
  double share = 0, seconds_left = -1;  // negative: not known
  int64_t preview = 0;                  // its number; 0: none yet
};

struct JobImage {
  int64_t index = 0;
  std::string id;  // in the store
  uint64_t seed = 0;
  int64_t batch = 1;  // MadePicture::batch
};

struct JobError {
  int status = 0;  // of HTTP; 0: none
  std::string code, message;
};

// What does not change once it is queued, and what other threads ask of it while it runs: `skip` is
// false again once the engine has done it.
struct Job {
  std::string id;    // which the client may have chosen
  std::string file;  // the stem of its files
  JobSpec spec;
  double created = 0;       // Unix time
  int64_t order = 0;        // among those that are kept: the next process takes them so
  int64_t done_before = 0;  // pictures of an earlier process
  bool of_before = false;   // that process may have stored more than these
  mutable std::atomic<bool> cancel = false, skip = false;
};

// A moment of a job.
struct JobView {
  std::shared_ptr<const Job> job;
  JobStatus status = JobStatus::queued;
  double started = 0, completed = 0;
  int64_t position = -1;  // in the queue, from 0; -1: it does not wait
  JobProgress progress;
  std::vector<JobImage> images;  // in the order of their numbers
  std::vector<std::string> warnings;
  JobError error;
};

double unix_time();
// Of intervals: seconds by a clock that nobody sets.
double steady_time();

}  // namespace ebb::server

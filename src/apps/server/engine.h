// Engine: what makes the pictures of jobs, one at a time, on the worker's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "apps/cli/command.h"
#include "apps/server/job.h"
#include "core/tensor.h"

namespace ebb::server {

class Catalogue;
struct BatchMember;

struct MadePicture {
  int64_t index = 0;
  Tensor pixels;                            // u8 [H,W,3]
  std::map<std::string, std::string> text;  // what is written into it
  uint64_t seed = 0;
  int64_t batch = 1;  // pictures of other jobs that were made together with it, and itself
  // Makes `pixels` and `text`, on whichever thread encodes it; empty: they are there.
  std::function<void(MadePicture&)> complete = {};
};

// What an engine tells of the job that it runs.
class JobEvents {
 public:
  virtual ~JobEvents() = default;
  // False: it is to stop, within a step.
  virtual bool progress(const JobProgress& p) = 0;
  virtual bool wants_preview() = 0;
  virtual void preview(const Tensor& pixels) = 0;  // u8 [H,W,3]
  virtual void picture(MadePicture picture) = 0;
  virtual void warn(const std::string& text) = 0;
  virtual void model(const std::string& name, bool ready) = 0;
  // That runs behind it, as far as is known by now; null: none.
  virtual std::shared_ptr<const Job> next() { return nullptr; }
};

// What a job would take of the device's memory at most, and what there is for it.
struct JobMemory {
  int64_t bytes = 0, limit = 0;
  std::string text;  // by stage
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Pictures from number `first` on. Throws Error, and Cancelled where it was told to stop; behind
  // a DeviceLost it is asked for nothing.
  virtual void run(const Job& job, int64_t first, JobEvents& events) = 0;
  // Which other jobs' pictures can be made in one batch with those of `job`, by the model that is
  // loaded; null: none. Those whose settings are wrong cannot. What is given refers to `job`, and
  // holds until something runs.
  using Joins = std::function<bool(const Job& other)>;
  virtual Joins joins(const Job& job) = 0;
  // Jobs that join each other. A member that is cancelled ends at once, and the others go on.
  // Throws Error: members that are open still can be run alone.
  virtual void run_batch(std::span<BatchMember> members) = 0;
  // Of one that asks for pictures of a prompt alone; makes none. Throws Error, also where it would
  // not fit.
  virtual JobMemory plan(const Job& job) = 0;
  virtual void release() = 0;  // what lies on the device
  // The model that is loaded, as it is told to clients; "": none.
  virtual std::string loaded() const = 0;
};

// Pictures of nothing, the same for the same settings; each step takes so long.
std::unique_ptr<Engine> fake_engine(int64_t step_ms);
std::unique_ptr<Engine> pipeline_engine(const Catalogue& catalogue, cli::CommonOptions device,
                                        std::string memory);

// u8 [height,width,3] of an upscale job without a network.
Tensor resized(const Tensor& image, const UpscaleSettings& s);
// Its size, with `scale` or in place of it. Throws HttpFault 422 for settings that no request may
// have, and pictures that would be too large on the way.
std::pair<int64_t, int64_t> upscaled_size(const Tensor& image, const UpscaleSettings& s);
// The settings of a job, with those that were left open.
cli::GenerateFlags settled(const Job& job);
// Of the settings' file, as it is told to clients.
std::string shown_model(const Job& job);

}  // namespace ebb::server

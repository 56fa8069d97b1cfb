// Pipelines of one model, one on each of several devices, that share the images of a request.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "pipeline/on_devices.h"
#include "pipeline/pipeline.h"

namespace ebb {

class PipelineGroup {
 public:
  PipelineGroup(const LoadedModel& model, const std::vector<Context>& devices) {
    for (const Context& c : devices) pipelines_.push_back(std::make_unique<Pipeline>(model, c));
  }
  const Pipeline& first() const { return *pipelines_[0]; }
  // Pipeline::generate_on() all.
  Generated generate(const ResolvedRequest& r, const std::function<bool(double)>& progress = {}) {
    std::vector<Pipeline*> all;
    for (const auto& p : pipelines_) all.push_back(p.get());
    return Pipeline::generate_on(all, r, progress);
  }

 private:
  std::vector<std::unique_ptr<Pipeline>> pipelines_;
};

// A request that leaves the number of images at a time open, for so many devices.
inline void divide(ResolvedRequest& r, size_t devices) {
  if (devices == 1) return;
  r.batch = r.options.batch = divided_batch(r.count(), r.batch, devices);
}

}  // namespace ebb

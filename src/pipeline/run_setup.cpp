#include "pipeline/run_setup.h"

#include <algorithm>

#include "pipeline/run_dtype.h"

namespace ebb {
namespace {

// On a processor a larger batch takes as long for each picture. A run can be stopped between
// kernels, which take longer then, and what it has begun is lost.
constexpr int64_t batch_on_host = 4;

}  // namespace

TextToImage::RunSetup::RunSetup(TextToImage& of, ResolvedTextToImage& asked, RunEvents how)
    : ends(nullptr, [&of](void*) { of.tell_ = {}, of.step_ = {}, of.hooks_->poll = {}; }),
      r(asked),
      events(std::move(how)),
      count(static_cast<double>(r.request.count)),
      meter((of.work_ = run_work(of.parts_, r, of.flops_))
                .of_run(r.request.count, r.request.init.has_value()),
            events.progress) {
  if (r.free_batch() && of.context_.device->on_host())
    r.set_batch(equal_batch(r.request.count, std::min(r.first().batch, batch_on_host)));
  of.tell_ = events.tell, of.step_ = events.step, of.made_ = 0;
  of.take_tiling(r.request.tiling);
  const std::string slow = slow_dtype_text(of.pipeline_.dtype_of(r.first()), *of.context_.device);
  if (of.tell_ && !slow.empty()) of.tell_("warning: " + slow);
  of.hooks_->poll = [this] { meter.poll(); };
  of.apply_loras(r);
  memory = of.planned(r);
  of.policy_ = memory.policy;
  if (events.planned) events.planned(memory);
  of.context_.memory->restart_peak();
}

RunReport TextToImage::RunSetup::reported(const TextToImage& of) {
  const DefaultNoise& noise = r.first().noise;
  report.start_noise = noise.source;
  report.step_noise = noise.steps.empty() ? noise.source : noise.steps;
  report.ran = of.ran(r);
  report.planned_bytes = memory.peak();
  if (events.planned)
    report.peak_bytes = of.context_.memory->peak() + of.context_.device->driver_memory().now;
  report.text_seconds = meter.seconds(Stage::text);
  report.sampling_seconds = meter.seconds(Stage::sampling);
  report.decoding_seconds = meter.seconds(Stage::decoding);
  return std::move(report);
}

}  // namespace ebb

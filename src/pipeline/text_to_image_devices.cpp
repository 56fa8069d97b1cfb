#include "pipeline/text_to_image_devices.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <utility>

#include "pipeline/on_devices.h"

namespace ebb {
namespace {

// What the devices of a run tell, as if it were of one.
class SharedEvents {
 public:
  SharedEvents(const RunEvents& events, const StageWork& work, size_t devices)
      : events_(events), meter_(work, events.progress), done_(devices) {}

  RunEvents of(size_t device, const std::stop_token& stop) {
    RunEvents out;
    out.progress = [this, device, stop](const RunProgress& p) {
      return !stop.stop_requested() && progress(device, p);
    };
    out.tell = [this](const std::string& text) { tell(text); };
    if (events_.picture)
      out.picture = [this](Picture p) {
        const std::lock_guard lock(mutex_);
        events_.picture(std::move(p));
      };
    if (device > 0) return out;
    out.step = events_.step;
    if (events_.planned)
      out.planned = [this](const RunMemory& m) {
        const std::lock_guard lock(mutex_);
        events_.planned(m);
      };
    return out;
  }

 private:
  // Each device encodes the text; of the pictures it makes a share. Throws Cancelled.
  bool progress(size_t device, const RunProgress& p) {
    const std::lock_guard lock(mutex_);
    const auto stage = static_cast<size_t>(p.stage);
    done_[device][stage] = p.of_stage;
    double all = 0;
    for (const auto& d : done_) all += d[stage];
    const bool by_all = p.stage == Stage::text || p.stage == Stage::encoding;
    meter_.show(p.stage, by_all ? all / static_cast<double>(done_.size()) : all);
    return true;
  }
  // Most of it is the same on all.
  void tell(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (told_.insert(text).second && events_.tell) events_.tell(text);
  }

  const RunEvents& events_;
  std::mutex mutex_;
  RunMeter meter_;
  std::vector<std::array<double, stage_count>> done_;
  std::set<std::string> told_;
};

void add(RunReport& all, RunReport one) {
  if (one.steps == 0) one.ran = all.ran;  // it made none
  for (const auto member :
       {&RunReport::text_seconds, &RunReport::sampling_seconds, &RunReport::decoding_seconds})
    one.*member = std::max(one.*member, all.*member);
  for (const auto member : {&RunReport::steps, &RunReport::evaluations, &RunReport::planned_bytes,
                            &RunReport::peak_bytes})
    one.*member = std::max(one.*member, all.*member);
  all = std::move(one);
}

}  // namespace

ResolvedTextToImage divided(const ResolvedTextToImage& r, size_t devices) {
  ResolvedTextToImage out = r;
  if (devices > 1 && r.free_batch())
    out.set_batch(divided_batch(r.request.count, r.first().batch, devices));
  return out;
}

RunReport run_on(std::span<const std::unique_ptr<TextToImage>> devices,
                 const ResolvedTextToImage& asked, const RunEvents& events) {
  if (devices.size() == 1) return devices[0]->run(asked, events);
  ResolvedTextToImage r = asked;
  for (RunPass& pass : r.passes) pass.request.dtype = devices[0]->dtype_of(pass);
  std::vector<Context> contexts;
  for (const auto& d : devices) contexts.push_back(d->context());
  KnownFlops flops;
  const StageWork work =
      run_work(devices[0]->parts(), r, flops).of_run(r.request.count, r.request.init.has_value());
  SharedEvents shared(events, work, devices.size());
  ImageQueue queue(r.request.count, r.first().batch, devices.size());
  std::vector<RunReport> reports(devices.size());
  on_devices(contexts, [&](size_t d, const std::stop_token& stop) {
    reports[d] =
        devices[d]->run(r, shared.of(d, stop), [&](int64_t most) { return queue.next(d, most); });
  });
  RunReport out = std::move(reports[0]);
  for (size_t d = 1; d < reports.size(); ++d) add(out, std::move(reports[d]));
  return out;
}

}  // namespace ebb

#include "train/batches_ahead.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/round_up.h"
#include "runtime/plan_inputs.h"

namespace ebb::train {
namespace {

int64_t aligned(int64_t bytes) {
  constexpr int64_t alignment = 256;  // of an input within a batch
  return rounded_up(bytes, alignment);
}

// Memory for several batches.
class BatchMemory {
 public:
  BatchMemory(const Context& context, BatchesAhead ahead)
      : context_(context), ahead_(std::move(ahead)) {
    for (int64_t i = 0; i < ahead_.batches; ++i) all_.push_back(context.allocate(ahead_.bytes));
    context.device->synchronize();  // new memory is cleared where other work goes
  }

  NamedTensors copied(NamedTensors batch) {
    const std::shared_ptr<Buffer> memory = unused();
    int64_t at = 0;
    for (auto& [name, tensor] : batch) {
      if (!ahead_.inputs.contains(name) || is_small_input(tensor.type())) continue;
      const Tensor to(tensor.type(), memory, at);
      at += aligned(tensor.bytes());
      require(at <= ahead_.bytes, "train: a batch is larger than its graphs' inputs (",
              ahead_.bytes, " bytes)  ", name, ' ', tensor.type());
      context_.device->copy(std::exchange(tensor, to), to);
    }
    return batch;
  }

 private:
  std::shared_ptr<Buffer> unused() const {
    const auto found =
        std::ranges::find_if(all_, [](const auto& buffer) { return buffer.use_count() == 1; });
    require(found != all_.end(), "train: more batches are in use than there is memory for (",
            all_.size() - 1, ")");
    std::atomic_thread_fence(std::memory_order_acquire);  // behind who let go of it
    return *found;
  }

  Context context_;
  BatchesAhead ahead_;
  std::vector<std::shared_ptr<Buffer>> all_;
};

}  // namespace

BatchesAhead batches_ahead_of(const TrainJob& job, const Device& device) {
  if (device.on_host() || !job.batches_on_any_thread) return {};
  BatchesAhead out;
  const auto add = [&out](const Graph& g) {
    int64_t sum = 0;
    for (const Source& s : g.sources()) {
      const Type& type = g.type(s.value);
      if (s.kind != Source::Kind::input || is_small_input(type)) continue;
      out.inputs.insert(s.name);
      sum += aligned(type.bytes());
    }
    out.bytes = std::max(out.bytes, sum);
  };
  add(job.loss);
  for (const Graph& g : job.other_losses) add(g);
  return out;
}

NextBatch batches_ahead(NextBatch next, const Context& context, BatchesAhead ahead) {
  if (ahead.bytes == 0) return next;
  const auto memory = std::make_shared<BatchMemory>(context, std::move(ahead));
  const auto all = std::make_shared<Prefetcher<NamedTensors>>(
      [next = std::move(next), memory, device = context.device](int64_t, const std::stop_token&) {
        NamedTensors batch = next();
        device->run_beside([&] { batch = memory->copied(std::move(batch)); });
        return std::optional(std::move(batch));
      },
      PrefetchOptions{.depth = 1});
  return [all] { return all->next(); };
}

}  // namespace ebb::train
